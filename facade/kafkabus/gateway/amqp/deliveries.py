"""Deliveries: the messages of a link while they come, and while they are not settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kafkabus.gateway.amqp.conditions import ILLEGAL_STATE, NOT_ALLOWED, NOT_IMPLEMENTED, AmqpError
from kafkabus.gateway.amqp.performatives import Transfer

LONGEST_TAG: Final = 32
"""The most bytes of a delivery's tag, and of a transaction's id; beyond it, no two that the gateway issues differ."""
SMALL_PIECE: Final = 4_096
"""A piece of a message with fewer bytes is joined with the next one."""


@dataclass(slots=True, eq=False)
class IncomingDelivery:
    """A message that comes over a link.

    Attributes:
        number: Its number in the session.
        tag: Its tag.
        message_format: 0, or Service Bus's of a batch.
        settled: Whether the peer wants to know nothing of it.
        state: Its state, such as the transaction that it is part of.
        most_bytes: The most bytes of it that are kept.
        size: The bytes that came.
        overhead: About how many bytes of memory its tag and its state take.
        pieces: Its bytes; empty if there are too many.
    """

    number: int
    tag: bytes
    message_format: int
    settled: bool
    state: Any
    most_bytes: int
    size: int = 0
    overhead: int = 0
    pieces: list[bytes] = field(default_factory=list[bytes])

    @property
    def is_too_large(self) -> bool:
        """Whether it has more bytes than the limit allows."""
        return self.size > self.most_bytes

    @property
    def kept(self) -> int:
        """How many bytes of it are kept."""
        return self.overhead + (0 if self.is_too_large else self.size)

    @property
    def payload(self) -> bytes:
        """Its bytes; empty if there are too many."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def update(self, transfer: Transfer) -> None:
        """Take what another transfer says of this delivery.

        Raises:
            AmqpError: It is about another one.
        """
        if transfer.delivery_id not in {None, self.number} or transfer.delivery_tag not in {None, self.tag}:
            raise AmqpError(
                NOT_ALLOWED,
                f"a transfer of delivery {transfer.delivery_id} before the last one of delivery {self.number}: a link's "
                "deliveries come one after the other, and one that is given up is aborted",
            )
        if transfer.settled:
            self.settled = True
        if transfer.state is not None:
            self.state = transfer.state

    def add(self, piece: bytes) -> None:
        """Add bytes that came."""
        self.size += len(piece)
        if self.is_too_large:
            self.pieces.clear()
        elif self.pieces and len(self.pieces[-1]) < SMALL_PIECE:
            # Many pieces of a byte each would take fifty times as much.
            self.pieces[-1] += piece
        else:
            self.pieces.append(piece)


def begin_delivery(transfer: Transfer, most_bytes: int) -> IncomingDelivery:
    """Return the delivery that a transfer begins.

    Args:
        transfer: The transfer.
        most_bytes: The most bytes of it that are kept.

    Raises:
        AmqpError: The transfer may not begin one.
    """
    number, tag = transfer.delivery_id, transfer.delivery_tag
    if number is None or tag is None:
        raise AmqpError(ILLEGAL_STATE, "the first transfer of a delivery has its id and its tag")
    if len(tag) > LONGEST_TAG:
        raise AmqpError(ILLEGAL_STATE, f"a tag of {len(tag)} bytes: a delivery's has at most {LONGEST_TAG}")
    if transfer.resume:
        raise AmqpError(
            NOT_IMPLEMENTED,
            "a delivery that is resumed: nothing is kept of a link that has ended; send the message again",
        )
    message_format, settled = transfer.message_format or 0, bool(transfer.settled)
    return IncomingDelivery(number, tag, message_format, settled, transfer.state, most_bytes)


@dataclass(slots=True, eq=False)
class OutgoingDelivery:
    """A message that goes over a link, as long as it is not settled.

    Attributes:
        number: Its number in the session.
        content: The owner's own note.
    """

    number: int
    content: Any
