"""Nodes to which clients send messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.message import Outgoing, ServiceBusMessageBatch
from kafkabus.aio import ServiceBusSender
from kafkabus.gateway.amqp.conditions import INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, AmqpError
from kafkabus.gateway.amqp.events import IncomingDelivery
from kafkabus.gateway.amqp.performatives import Accepted, Composite, Rejected, TransactionalState, error_of
from kafkabus.gateway.amqp.session import Link
from kafkabus.gateway.server.errors import told
from kafkabus.gateway.server.messages import incoming
from kafkabus.gateway.server.peer import BaseNode
from kafkabus_mapping.amqp.types import Symbol, ULong
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

BATCH_LIMIT: Final = Symbol("com.microsoft:max-message-batch-size")

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

_Parsed = tuple[IncomingDelivery, list[Outgoing]]


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
        self._waiting: deque[IncomingDelivery] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._most = 0

    async def open(self) -> None:
        """Accept the link if there is such an entity.

        Raises:
            ServiceBusError: There is none.
            AmqpError: Nothing can be sent there.
        """
        if self._path.is_dead_letter or SUBSCRIPTIONS in self._path.name:
            raise AmqpError(NOT_ALLOWED, f"nothing can be sent to {self._path}: send to a queue or a topic")
        self._sender = self.peer.gateway.sender(self._path)
        await self._sender.__aenter__()
        self._most = await self.peer.gateway.max_message_bytes(self._path)
        self.link.accept(max_message_size=self._most, properties={BATCH_LIMIT: ULong(self._most)})
        self.link.give_credit(self._credit)

    @property
    def _credit(self) -> int:
        return self.peer.gateway.settings.credit

    def delivered(self, delivery: IncomingDelivery) -> None:
        """Have a message, or a batch of messages, stored."""
        self.peer.hold(delivery.size)
        self._waiting.append(delivery)
        if self._worker is None:
            self._worker = self.peer.start(self._work())

    async def _work(self) -> None:
        """Store what waits."""
        try:
            while self._waiting:
                several: list[IncomingDelivery] = []
                size = 0
                while self._waiting and (not several or size + self._waiting[0].size <= self._most):
                    if several and self._waiting[0].state is not several[0].state:
                        break
                    several.append(self._waiting.popleft())
                    size += several[-1].size
                try:
                    await self._store(several)
                finally:
                    self.peer.hold(-sum(one.size for one in several))
                if self.link.is_attached and self.link.credit <= self._credit // 2:
                    self.link.give_credit(self._credit - len(self._waiting))
                self.peer.flush_soon()
        finally:
            self._worker = None

    async def _store(self, deliveries: Sequence[IncomingDelivery]) -> None:
        """Store deliveries of one transaction, or of none, and answer them."""
        good: list[_Parsed] = []
        for delivery in deliveries:
            try:
                good.append((delivery, self._parsed(delivery)))
            except AmqpError as error:  # noqa: PERF203 - one that is refused must not spoil the others
                self._answer([delivery], error)
        if not good:
            return
        refused = await self._try(good)
        if refused is None or len(good) == 1:
            self._answer([delivery for delivery, _ in good], refused)
            return
        # Which of them is refused shows if each goes alone; unless the broker has some of them already.
        for one in good:
            alone = refused if refused.stored else await self._try([one])
            self._answer([one[0]], alone)

    def _parsed(self, delivery: IncomingDelivery) -> list[Outgoing]:
        if delivery.is_too_large or delivery.size > self._most:
            raise AmqpError(
                MESSAGE_SIZE_EXCEEDED, f"a message of {delivery.size} bytes: {self._path} takes {self._most}"
            )
        return incoming(delivery.payload, delivery.message_format)

    @property
    def _open_sender(self) -> ServiceBusSender:
        if self._sender is None:
            raise AmqpError(INTERNAL_ERROR, "the link is closed")
        return self._sender

    async def _try(self, parsed: Sequence[_Parsed]) -> _Refused | None:
        """Store messages together; return why they could not be stored, or None."""
        state = parsed[0][0].state
        batch = ServiceBusMessageBatch._of([one for _, several in parsed for one in several])
        try:
            transaction = None
            if isinstance(state, TransactionalState):
                transaction = self.peer.transactions.find(state.txn_id)
            await self._open_sender.send_messages(batch, transaction=transaction)
        except Exception as error:  # noqa: BLE001 - the client is told
            return _Refused(told(error, self._path), stored=not isinstance(error, NOTHING_STORED))
        return None

    def _answer(self, deliveries: Sequence[IncomingDelivery], error: AmqpError | None) -> None:
        state: Composite = Accepted() if error is None else Rejected(error_of(error))
        if isinstance(deliveries[0].state, TransactionalState) and error is None:
            state = TransactionalState(deliveries[0].state.txn_id, state)
        if self.link.is_attached:
            self.link.session.acknowledge(deliveries, state)

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
    """

    def __init__(self, error: AmqpError, *, stored: bool) -> None:
        super().__init__(error.condition, error.description)
        self.stored = stored
