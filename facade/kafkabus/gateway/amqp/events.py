"""Events of a connection, and the deliveries that they report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.amqp.performatives import Open

if TYPE_CHECKING:
    from kafkabus.gateway.amqp.session import Link


SMALL_PIECE: Final = 4_096
"""A piece of a message with fewer bytes is joined with the next one."""


class Event:
    """Something that the peer did."""

    __slots__ = ()


@dataclass(slots=True)
class Opened(Event):
    """The peer opened the connection."""

    open: Open


@dataclass(slots=True)
class LinkAttached(Event):
    """The peer attaches a link: ``accept`` or ``refuse`` it."""

    link: Link


@dataclass(slots=True)
class LinkFlowed(Event):
    """The peer gave a link that we send on another credit, or asked for its use."""

    link: Link


@dataclass(slots=True)
class Delivered(Event):
    """A message came as a whole."""

    delivery: IncomingDelivery


@dataclass(slots=True)
class Disposed(Event):
    """The peer told the state of deliveries that it received and that are not settled.

    Attributes:
        deliveries: The deliveries.
        state: Their state.
        settled: Whether the peer has settled them.
    """

    deliveries: list[OutgoingDelivery]
    state: Any
    settled: bool


@dataclass(slots=True)
class Discarded(Event):
    """Something that has a state went to a link that is gone; the peer did not know that yet, or the link went with it.

    Attributes:
        state: The state of a message that came, or of one that was sent.
    """

    state: Any


@dataclass(slots=True)
class LinkDetached(Event):
    """A link is gone, by itself or with its session; the peer has its answer."""

    link: Link
    error: Any = None


@dataclass(slots=True)
class Closed(Event):
    """The connection is over: send what is left of the output, then close the socket."""

    error: AmqpError | None = None
    by_peer: Any = None


@dataclass(slots=True, eq=False)
class IncomingDelivery:
    """A message that comes over a link.

    Attributes:
        link: The link.
        number: Its number in the session.
        tag: Its tag.
        message_format: 0, or Service Bus's of a batch.
        settled: Whether the peer wants to know nothing of it.
        state: Its state, such as the transaction that it is part of.
        size: The bytes that came.
        overhead: About how many bytes of memory its tag and its state take.
        pieces: Its bytes; empty if there are too many.
    """

    link: Link
    number: int
    tag: bytes
    message_format: int
    settled: bool
    state: Any
    size: int = 0
    overhead: int = 0
    pieces: list[bytes] = field(default_factory=list[bytes])

    @property
    def is_too_large(self) -> bool:
        """Whether it has more bytes than the limit allows."""
        return self.size > self.link.most_bytes

    @property
    def kept(self) -> int:
        """How many bytes of it are kept."""
        return self.overhead + (0 if self.is_too_large else self.size)

    @property
    def payload(self) -> bytes:
        """Its bytes; empty if there are too many."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

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


@dataclass(slots=True, eq=False)
class OutgoingDelivery:
    """A message that goes over a link, as long as it is not settled.

    Attributes:
        link: The link.
        number: Its number in the session.
        content: The owner's own note.
    """

    link: Link
    number: int
    content: Any
