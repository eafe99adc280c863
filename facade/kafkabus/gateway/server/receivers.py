"""Nodes from which clients receive messages, and that settle them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkabus._core.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus.aio import ServiceBusReceiver, ServiceBusSession
from kafkabus.gateway.amqp.conditions import (
    INTERNAL_ERROR,
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    SESSION_LOCK_LOST,
    AmqpError,
)
from kafkabus.gateway.amqp.events import OutgoingDelivery
from kafkabus.gateway.amqp.performatives import (
    SETTLED,
    Rejected,
    Source,
    error_of,
    fields_of,
)
from kafkabus.gateway.amqp.session import Link
from kafkabus.gateway.server.errors import told
from kafkabus.gateway.server.held import let_go
from kafkabus.gateway.server.messages import stored, to_ticks
from kafkabus.gateway.server.peer import BaseNode
from kafkabus.gateway.server.settlements import Settlement, Verb, echo_of, settlement_of
from kafkabus.gateway.server.transactions import Enlistment, within
from kafkabus_mapping.amqp.types import Described, Symbol
from kafkabus_mapping.names import EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

LOGGER = logging.getLogger("kafkabus.gateway")

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")

SESSION_WAIT: Final = 60.0
"""How long a client waits for the next available session unless it says so, in seconds."""
WAIT: Final = 3600.0
"""How long one wait for a message lasts, in seconds; then it begins again."""
DRAIN_WAIT: Final = 0.15
"""How long messages that are there may take to come, in seconds: a client that gives its credit up waits for so long at most.

JavaScript's client takes a link for broken that has not answered after 0.2 s.
"""
MOST_AT_ONCE: Final = 500
"""The most messages that are claimed at once."""
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""About how many bytes of messages are claimed at once."""
MOST_FRAMES_WAITING: Final = 200
"""How many frames may wait for the client's window before no more messages are claimed."""

LOCK_SLACK: Final = 0.05
"""How long after the end of a session's lock, as far as is known, it is looked at again, in seconds."""

_NONE: Final = object()
_SETTLED_OTHERWISE: Final = AmqpError(NOT_ALLOWED, "the message is being settled in another way")


class ReceiverNode(BaseNode):
    """Sends the messages of a queue, a subscription or a session over a link, and settles them.

    Args:
        peer: The client.
        link: Its link.
        path: The queue or subscription, with its sub-queue.

    Attributes:
        path: The queue or subscription, with its sub-queue.
    """

    needs_claims = True

    def __init__(self, peer: Peer, link: Link, path: EntityPath) -> None:
        super().__init__(peer, link)
        self.path = path
        self._receiver: ServiceBusReceiver | None = None
        self._takes = link.attach.snd_settle_mode == SETTLED
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._claim: asyncio.Task[list[ServiceBusReceivedMessage]] | None = None
        self._claimed_at = 0.0
        self._wanted = asyncio.Event()
        self._stock: list[ServiceBusReceivedMessage] = []
        self._settling: deque[_Group] = deque()
        self._under_way: dict[OutgoingDelivery, Any] = {}
        self._settler: asyncio.Task[None] | None = None
        self._mean_bytes = 1024.0
        self._tag = 0

    @property
    def session(self) -> ServiceBusSession | None:
        """The session that it receives from; None without one."""
        return None if self._receiver is None else self._receiver.session

    @property
    def receiver(self) -> ServiceBusReceiver:
        """Receives for the link.

        Raises:
            AmqpError: The link is closed.
        """
        if self._receiver is None:
            raise AmqpError(INTERNAL_ERROR, "the link is closed")
        return self._receiver

    async def open(self) -> None:
        """Accept the link when there is such an entity, and its session is locked.

        Raises:
            ServiceBusError: There is none, or the session cannot be locked.
        """
        source = self.link.attach.source
        given = fields_of(source.filter) if isinstance(source, Source) else {}
        wanted = given.get(SESSION_FILTER, _NONE)
        timeout = fields_of(self.link.attach.properties).get(TIMEOUT)
        wait = timeout / 1000 if isinstance(timeout, int) and timeout > 0 else SESSION_WAIT
        await self._check_sessions(wanted is not _NONE)
        described = isinstance(wanted, Described)
        session_id = wanted.value if isinstance(wanted, Described) else wanted
        self._receiver = self.peer.gateway.receiver(
            self.path,
            takes=self._takes,
            in_session=wanted is not _NONE,
            session_id=session_id if isinstance(session_id, str) else None,
            wait=wait,
        )
        await self._receiver.__aenter__()
        session = self._receiver.session
        if session is None:
            self.link.accept(max_message_size=self.peer.engine.limits.message_bytes)
        else:
            name: Any = session.session_id
            source.filter = {
                **given,
                SESSION_FILTER: wanted._replace(value=name) if described and isinstance(wanted, Described) else name,
            }
            until = session.locked_until_utc
            self.link.accept(
                source=source,
                properties={LOCKED_UNTIL: None if until is None else to_ticks(until)},
                max_message_size=self.peer.engine.limits.message_bytes,
            )
            self._watch = self.peer.start(self._watch_session(session))
        self._pump = self.peer.start(self._run())

    async def _watch_session(self, session: ServiceBusSession) -> None:
        """Detach the link when the session's lock has ended."""
        while (left := session._seconds_left()) > 0:  # noqa: ASYNC110 - the lock may be renewed meanwhile
            await asyncio.sleep(left + LOCK_SLACK)
        if self.link.is_attached:
            self.peer.detach(self.link, told(session._lost(), self.path))

    async def _check_sessions(self, in_session: bool) -> None:
        """Check that the client asks for a session where there are sessions, and only there.

        Raises:
            MessagingEntityNotFoundError: There is no such entity.
            AmqpError: It does not.
        """
        entity = await self.peer.gateway.entity(self.path)
        if entity.has_sessions and not in_session:
            raise AmqpError(
                NOT_ALLOWED, f"{self.path} requires sessions: receive from a session, or the next available one"
            )
        if in_session and not entity.has_sessions:
            raise AmqpError(NOT_ALLOWED, f"{self.path} has no sessions: receive without one")

    def flowed(self) -> None:
        """Go on with another credit, or give up what is left of it."""
        if self.link.credit > 0 or self.link.drain:
            self._wanted.set()
        if (self.link.drain or self.link.credit <= 0) and self._claim is not None:
            self._hurry(self._claim)

    def _hurry(self, claim: asyncio.Task[list[ServiceBusReceivedMessage]]) -> None:
        """End a wait for messages when those that are there have had the time to come."""
        asyncio.get_running_loop().call_at(self._claimed_at + DRAIN_WAIT, claim.cancel)

    async def _run(self) -> None:
        """Send messages as long as the link is attached."""
        link, receiver = self.link, self.receiver
        try:
            while link.is_attached:
                if link.credit > 0 and self._has_room:
                    messages = [*self._stock] or await self._messages(receiver)
                    self._stock.clear()
                    await self._send(messages)
                    await self.peer.can_write.wait()
                    if messages:
                        continue
                if link.drain:
                    link.drained()
                    self.peer.flush_soon()
                if link.credit <= 0 or not self._has_room:
                    self._wanted.clear()
                    await self._wanted.wait()
        except Exception as error:  # noqa: BLE001 - the client is told
            if link.is_attached:
                self.peer.detach(link, told(error, self.path))

    @property
    def _has_room(self) -> bool:
        settings = self.peer.gateway.settings
        return self.link.unsettled < settings.unsettled and self.link.session.waiting < MOST_FRAMES_WAITING

    async def _messages(self, receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
        """Wait for messages; return none if the client does not want any more meanwhile."""
        link = self.link
        count = max(1, min(link.credit, MOST_AT_ONCE, int(BYTES_AT_ONCE / self._mean_bytes)))
        self._claim = claim = asyncio.ensure_future(receiver.receive_messages(count, max_wait_time=WAIT))
        self._claimed_at = asyncio.get_running_loop().time()
        if link.drain:
            self._hurry(claim)
        try:
            await asyncio.wait([claim])
        except asyncio.CancelledError:
            # The node is closed; messages that have just come go back.
            claim.cancel()
            await asyncio.wait([claim])
            if not claim.cancelled() and claim.exception() is None:
                await self._give_back(claim.result())
            raise
        finally:
            self._claim = None
        return [] if claim.cancelled() else claim.result()

    async def _send(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Send messages, or give them back if the link is gone."""
        link, size = self.link, 0
        for at, message in enumerate(messages):
            if not link.is_attached or link.credit <= 0:
                await self._give_back(messages[at:])
                break
            payload = stored(message)
            size += len(payload)
            tag = self._tag_of(message)
            link.send(tag, payload, settled=self._takes, content=None if self._takes else let_go(message))
        if messages:
            self._mean_bytes = (self._mean_bytes + size / len(messages)) / 2
            self.peer.flush_soon()

    def _tag_of(self, message: ServiceBusReceivedMessage) -> bytes:
        token = None if self._takes else message.lock_token
        if token is not None:
            return token.bytes_le
        self._tag += 1
        return self._tag.to_bytes(16, "big")

    async def _give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give back messages that the client does not take; those that are deleted already wait for its next credit."""
        if self._takes:
            self._stock += messages
        elif self._receiver is not None:
            await self._receiver._put_back(messages)

    # Settlement.

    def disposed(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Have messages settled."""
        if state is None and not settled:
            return
        transactions = self.peer.transactions
        part = transactions.join(state, operations=len(deliveries))
        if any(self._under_way.get(one, state) != state for one in deliveries):
            transactions.fail(state, _SETTLED_OTHERWISE)
        fresh = [one for one in deliveries if one not in self._under_way]
        self._under_way.update(dict.fromkeys(fresh, state))
        self._settling.append(_Group(state, settled, fresh, part))
        if self._settler is None:
            self._settler = self.peer.start(self._settle())

    async def _settle(self) -> None:
        """Settle what is to be settled."""
        try:
            while self._settling:
                groups: list[_Group] = []
                while self._settling:
                    group = self._settling.popleft()
                    if not groups or not groups[-1].joined(group):
                        groups.append(group)
                await asyncio.gather(*(self._settle_group(group) for group in groups))
                self._wanted.set()
                self.peer.flush_soon()
        finally:
            self._settler = None

    async def _settle_group(self, group: _Group) -> None:
        messages = [one.content for one in group.deliveries]
        error: AmqpError | None = None
        try:
            if messages:
                await self._do(messages, group)
        except (MessageLockLostError, SessionLockLostError) as problem:
            error = told(problem)
        except Exception as problem:  # noqa: BLE001 - the client is told
            error = told(problem, self.path)
        for delivery in group.deliveries:
            self._under_way.pop(delivery, None)
        if group.parts and group.settled:
            await group.parts[0].give_back(partial(self._abandon, messages))
        for part in group.parts:
            part.end(error)
        self._answer(group, error)

    async def _abandon(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Make messages available again that the client settled in a transaction that was rolled back."""
        gateway, held = self.peer.gateway, [one for one in messages if not one._settled]
        if not held or (self.session is not None and not self.link.is_attached):
            # The messages of a session went back with its lock.
            return
        try:
            entity = await gateway.entity(self.path)
            async with gateway.receiver(self.path) if self.session is None else nullcontext(self.receiver) as receiver:
                await Settlement(Verb.ABANDON).apply(gateway.context, entity, receiver, held, None)
        except (ServiceBusError, AmqpError) as error:
            LOGGER.warning("not_abandoned entity=%s count=%d error=%s", self.path, len(held), error)

    def _answer(self, group: _Group, error: AmqpError | None) -> None:
        session = self.link.session
        if group.settled:
            session.forget(group.deliveries)
            return
        echo = echo_of(group.state)
        if error is None:
            session.settle(group.deliveries, echo)
            return
        refused = within(group.state, Rejected(error_of(error)))
        if error.condition in {MESSAGE_LOCK_LOST, SESSION_LOCK_LOST}:
            # Of several, some may have been settled.
            session.settle([one for one in group.deliveries if one.content._settled], echo)
        session.settle(group.deliveries, refused)

    async def _do(self, messages: Sequence[ServiceBusReceivedMessage], group: _Group) -> None:
        """Settle messages as their state says.

        Raises:
            ServiceBusError: They cannot be settled.
            AmqpError: The state is none that settles.
        """
        settlement = settlement_of(group.state)
        if settlement is None or self._takes:
            return
        gateway = self.peer.gateway
        entity = await gateway.entity(self.path)
        part = group.parts[0] if group.parts else None
        await settlement.apply(gateway.context, entity, self.receiver, messages, part)

    async def close(self) -> None:
        """End the link: a session is given up; other messages stay locked as long as their locks last."""
        if self._settler is not None:
            await asyncio.wait([self._settler])
        for task in (self._watch, self._pump):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        if self._receiver is not None:
            await self._receiver.close()


class _Group:
    """Deliveries that are settled alike.

    Args:
        state: Their state.
        settled: Whether the client has settled them.
        deliveries: The deliveries.
        part: Their part in a transaction; None without one.
    """

    def __init__(self, state: Any, settled: bool, deliveries: list[OutgoingDelivery], part: Enlistment | None) -> None:
        self.state = state
        self.settled = settled
        self.deliveries = deliveries
        self.parts = [] if part is None else [part]

    def joined(self, other: _Group) -> bool:
        """Add the deliveries of another group if they are settled alike; return whether they are."""
        if self.settled != other.settled or type(other.state) is not type(self.state) or other.state != self.state:
            return False
        self.deliveries += other.deliveries
        self.parts += other.parts
        return True
