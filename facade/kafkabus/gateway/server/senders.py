"""Nodes to which clients send messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
    unstored_positions,
)
from kafkabus._core.message import Outgoing, batch_of
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusSender
from kafkabus.gateway.amqp.conditions import INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED, AmqpError
from kafkabus.gateway.amqp.deliveries import IncomingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import Accepted, Rejected, error_of, fields_of
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.messages import LARGE, decode_transfer
from kafkabus.gateway.server.peer import BaseNode
from kafkabus.gateway.server.transactions import Enlistment, in_transaction
from kafkabus_mapping.amqp.types import Symbol, ULong
from kafkabus_mapping.names import EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

BATCH_LIMIT: Final = Symbol("com.microsoft:max-message-batch-size")
SEND_VIA: Final = Symbol("com.microsoft:transfer-destination-address")
"""The property of a link whose messages are to go on to another entity, which it names."""

STORED_AT_ONCE: Final = 500
"""How many messages of a client are stored beside those of others; more begin in their turn."""
MESSAGE_BYTES: Final = 1_500
"""About how many bytes a transaction keeps for a message of a batch beside those that came."""
NOTHING_STORED: Final = (
    InvalidOperationError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
    TypeError,
    ValueError,
)
"""Errors of a sender that has sent nothing; after others, some of the messages may be stored."""


@dataclass(slots=True)
class _Arrival:
    """A message, or a batch of messages, that has arrived.

    Attributes:
        delivery: The delivery.
        part: Its part in a transaction; None without one.
        messages: The messages that it holds.
    """

    delivery: IncomingDelivery
    part: Enlistment | None
    messages: Sequence[Outgoing] = ()


class SenderNode(BaseNode):
    """Stores the messages that come over a link.

    Messages that wait are stored together, and each is answered when the broker has it.

    Args:
        peer: The client.
        link: Its link.
        path: The queue or topic.
    """

    needs_claims = True

    def __init__(self, peer: Peer, link: Link, path: EntityPath) -> None:
        super().__init__(peer, link)
        self._path = path
        self._sender: ServiceBusSender | None = None
        self._waiting: deque[_Arrival] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._untold: AmqpError | None = None
        self._most = 0

    async def open(self) -> None:
        """Accept the link if there is such an entity.

        Raises:
            ServiceBusError: There is none.
            AmqpError: Nothing can be sent there.
        """
        self._sender = self.peer.namespace.sender(self._path)
        if SEND_VIA in fields_of(self.link.attach.properties):
            raise AmqpError(
                NOT_IMPLEMENTED,
                f"{SEND_VIA}: no message goes to another entity by way of {self._path}; send to that entity, as a "
                "transaction spans all entities of the namespace",
            )
        await self._sender.__aenter__()
        self._most = await self.peer.namespace.max_message_bytes(self._path)
        self.link.accept(max_message_size=self._most, properties={BATCH_LIMIT: ULong(self._most)})
        self.link.give_credit(self._credit)

    @property
    def _credit(self) -> int:
        return self.peer.commons.settings.credit

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Have a message, or a batch of messages, stored."""
        self.peer.load.hold(delivery.size + delivery.overhead)
        self._waiting.append(_Arrival(delivery, self.peer.transactions.join(delivery.state, delivery.size)))
        if self._worker is None:
            self._worker = self.peer.tasks.start(self._work(), is_requested=True)

    async def _work(self) -> None:
        """Store what waits."""
        try:
            while self._waiting:
                arrivals = self._next()
                try:
                    await self._store(arrivals)
                finally:
                    self.peer.load.hold(-sum(arrival.delivery.size + arrival.delivery.overhead for arrival in arrivals))
                if self.link.is_attached and self._untold is None and self.link.credit <= self._credit // 2:
                    self.link.give_credit(self._credit - len(self._waiting))
                self.peer.outbox.flush_soon()
            if self._untold is not None and self.link.is_attached:
                # A client is answered nothing to what it sent settled, and would lose one message after the other.
                self.peer.links.detach(self.link, self._untold)
        finally:
            self._worker = None

    def _next(self) -> list[_Arrival]:
        """Return the next arrivals that are stored together; those of transactions go one by one."""
        arrivals = [self._waiting.popleft()]
        size = arrivals[0].delivery.size
        while self._waiting and arrivals[0].part is None and self._waiting[0].part is None:
            size += self._waiting[0].delivery.size
            if size > self._most:
                break
            arrivals.append(self._waiting.popleft())
        return arrivals

    async def _store(self, arrivals: Sequence[_Arrival]) -> None:
        """Store messages, and answer them."""
        # One that is refused must not spoil the others.
        pace = Pace()
        good = [arrival for arrival in arrivals if await self._is_parsed(arrival, pace)]
        if not good:
            return
        refused = await self._try(good)
        if refused is None or len(good) == 1:
            self._answer(good, refused)
            return
        # Which of them is refused shows if each goes alone; unless the broker has some of them already.
        at = 0
        for arrival in good:
            positions = range(at, at := at + len(arrival.messages))
            if not refused.stored:
                self._answer([arrival], await self._try([arrival]))
            else:
                is_stored = refused.unstored is not None and refused.unstored.isdisjoint(positions)
                self._answer([arrival], None if is_stored else refused)

    async def _is_parsed(self, arrival: _Arrival, pace: Pace) -> bool:
        """Parse the messages of an arrival; answer it, and return False, if they are refused."""
        try:
            arrival.messages = await self._parse(arrival.delivery, pace)
            more = len(arrival.messages) - 1
            if arrival.part is not None and more:
                arrival.part.count(MESSAGE_BYTES * more, more)
        except AmqpError as error:
            self._answer([arrival], error)
            return False
        return True

    async def _parse(self, delivery: IncomingDelivery, pace: Pace) -> list[Outgoing]:
        if delivery.is_too_large or delivery.size > self._most:
            raise AmqpError(
                MESSAGE_SIZE_EXCEEDED, f"a message of {delivery.size} bytes: {self._path} takes {self._most}"
            )
        messages: list[Outgoing] = []
        large = delivery.size > LARGE
        async with self.peer.commons.parsing.turn(self.peer) if large else nullcontext(pace) as turn:
            written = self.peer.namespace.context.descriptions.written_format
            for message in decode_transfer(delivery.payload, delivery.message_format, written):
                messages.append(message)
                await turn.keep()
        return messages

    @property
    def _open_sender(self) -> ServiceBusSender:
        if self._sender is None:
            raise AmqpError(INTERNAL_ERROR, "the link is closed")
        return self._sender

    async def _try(self, arrivals: Sequence[_Arrival]) -> _Refused | None:
        """Store messages together, or have their transaction send them; return why that was refused, or None."""
        batch = batch_of([message for arrival in arrivals for message in arrival.messages])
        part = arrivals[0].part
        try:
            many = len(batch) > STORED_AT_ONCE and part is None
            async with self.peer.commons.storing.turn(self.peer) if many else nullcontext():
                transaction = None if part is None else part.transaction
                await self._open_sender.send_messages(batch, transaction=transaction)
        except Exception as error:  # noqa: BLE001 - reported to the client
            is_stored = not isinstance(error, NOTHING_STORED)
            return _Refused(to_amqp_error(error, self._path), is_stored, unstored_positions(error))
        return None

    def _answer(self, arrivals: Sequence[_Arrival], error: AmqpError | None) -> None:
        for arrival in arrivals:
            if arrival.part is not None:
                arrival.part.end(error)
        if not self.link.is_attached:
            return
        state = in_transaction(arrivals[0].delivery.state, Accepted() if error is None else Rejected(error_of(error)))
        if error is not None and any(
            arrival.delivery.settled and (arrival.part is None or arrival.part.is_unknown) for arrival in arrivals
        ):
            self._untold = self._untold or error
        self.link.acknowledge([arrival.delivery for arrival in arrivals], state)

    async def close(self) -> None:
        """Let go of the sender when everything that came is stored."""
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self._sender is not None:
            await self._sender.close()


class _Refused(AmqpError):
    """Messages that could not be stored.

    Attributes:
        stored: Whether some of them may be stored nevertheless.
        unstored: The positions of those that are not known to be stored; None: that is known of none.
    """

    def __init__(self, error: AmqpError, stored: bool, unstored: frozenset[int] | None) -> None:
        super().__init__(error.condition, error.description)
        self.stored = stored
        self.unstored = unstored
