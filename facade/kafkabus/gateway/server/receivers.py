"""Nodes from which clients receive messages, and that settle them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkabus._async.compat import run_uninterrupted
from kafkabus._async.engine.held_session import HeldSession, held_session_of
from kafkabus._async.engine.receiver_engine import engine_of
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.record import size_of
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusReceiver, ServiceBusSession
from kafkabus.gateway.amqp.conditions import (
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from kafkabus.gateway.amqp.deliveries import OutgoingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import (
    SETTLED,
    Composite,
    Rejected,
    error_of,
    fields_of,
)
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.held import discard_body
from kafkabus.gateway.server.messages import ShownLock, encode_message, to_ticks
from kafkabus.gateway.server.peer import BaseNode
from kafkabus.gateway.server.service_bus_conditions import (
    ENTITY_DISABLED,
    MESSAGE_LOCK_LOST,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    TIMEOUT,
)
from kafkabus.gateway.server.settlements import RequestedSettlement, Verb, echo_of, settlement_of_state
from kafkabus.gateway.server.sources import AskedSource
from kafkabus.gateway.server.transactions import Enlistment, in_transaction
from kafkabus.gateway.server.undelivered import Deleted, delete, place_of
from kafkabus_mapping.amqp.types import Symbol
from kafkabus_mapping.names import EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

LOGGER = logging.getLogger("kafkabus.gateway")

LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
RECEIVER_NAME: Final = Symbol("com.microsoft:receiver-name")

SESSION_WAIT: Final = 60.0
"""How long a client waits for the next available session unless it says so, in seconds."""
WAIT: Final = 3600.0
"""How long one wait for a message lasts, in seconds; then it begins again."""
KEPT_TRIED: Final = 10
"""How many sessions of which messages are kept a client that takes the next one tries to lock first."""
KEPT_WAIT: Final = 0.1
"""How long it waits for each, in seconds."""
SETTLED_AT_ONCE: Final = 100
"""How many groups of a link's deliveries are settled at a time; others have their turns in between."""
JOINED_TO: Final = 4
"""With how many groups that wait deliveries are compared that are to be settled: with those that are settled alike they go."""
ABANDONED_AT_ONCE: Final = 100
"""How many messages of a transaction that was rolled back are abandoned in one go."""
DRAIN_WAIT: Final = 0.15
"""How long messages that are there may take to come, in seconds: a client that gives its credit up waits for so long at most.

JavaScript's client takes a link for broken that has not answered after 0.2 s.
"""
MOST_AT_ONCE: Final = 500
"""The most messages that are claimed at once."""
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""About how many bytes of messages are claimed at once."""
UNEVEN: Final = 2
"""How many times as many bytes may be claimed if messages are larger than those before."""
CARRIED_FOR: Final = 5.0
"""How long, in seconds, claimed messages wait for a client that does not read, before they are given back."""
CLAIMING_AT_ONCE: Final = 16
"""How many links of a client may wait for so many bytes at the same time; more of them wait for less each."""
LEAST_BYTES_AT_ONCE: Final = 64 * 1024
"""How many bytes each may claim at least."""
MOST_FRAMES_WAITING: Final = 200
"""How many frames may wait for the client's window before no more messages are claimed."""

GIVEN_UP_WITHIN: Final = 5.0
"""How long, in seconds, a link that has ended may take to give its session up before the session counts as locked."""
ASKED_AGAIN_AFTER: Final = 0.1
"""After how many seconds a session that another client has is asked for once more."""
LOCK_SLACK: Final = 0.05
"""How long after the last known end of a session's lock it is checked again, in seconds."""
TAKING_SLACK: Final = 2.0
"""How long after that a link is detached whose client receives and deletes, in seconds: one that waits for as long as the lock
lasts gives up before, and has nothing to settle."""

TELLS: Final = frozenset(
    {
        MESSAGE_LOCK_LOST,
        SESSION_LOCK_LOST,
        NOT_ALLOWED,
        NOT_FOUND,
        ENTITY_DISABLED,
        MESSAGE_SIZE_EXCEEDED,
        RESOURCE_LIMIT_EXCEEDED,
        UNAUTHORIZED_ACCESS,
    }
)
"""Conditions at which each client's settlement fails if they come with the outcome ``Rejected``.

At others, Azure's SDK for Go tries again, and its second try succeeds without being sent.
"""
PASSES: Final = frozenset({SERVER_BUSY, TIMEOUT, INTERNAL_ERROR})
"""Conditions of which a client that waits for no answer need not know: its messages come again."""


class ReceiverNode(BaseNode):
    """Sends the messages of a queue, a subscription or a session over a link, and settles them.

    Args:
        peer: The client.
        link: Its link.
        path: The queue or subscription, with its sub-queue.
        asked: The source that the client asks for.

    Attributes:
        path: The queue or subscription, with its sub-queue.
    """

    needs_claims = True

    def __init__(self, peer: Peer, link: Link, path: EntityPath, asked: AskedSource) -> None:
        super().__init__(peer, link)
        self._asked = asked
        self.path = path
        self._given_up_now = asyncio.Event()
        self._receiver: ServiceBusReceiver | None = None
        self._takes = link.attach.snd_settle_mode == SETTLED
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._claim: asyncio.Task[list[ServiceBusReceivedMessage]] | None = None
        self._claimed_at = 0.0
        self._wanted = asyncio.Event()
        self._settling: deque[_Group] = deque()
        self._needed_frames = 1
        self._settler: asyncio.Task[None] | None = None
        self._mean_bytes = 0.0
        self._needed = 0
        self._place = ""
        self._tags = itertools.count()

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

    @property
    def _identifier(self) -> str:
        """The name that the client gave its receiver, or the link's."""
        return str(fields_of(self.link.attach.properties).get(RECEIVER_NAME) or self.link.attach.name)

    async def open(self) -> None:
        """Accept the link when there is such an entity, and its session is locked.

        Raises:
            ServiceBusError: There is none, or the session cannot be locked.
            AmqpError: The client asks for something that is not in force.
        """
        asked = self._asked
        # The property has the name of the condition.
        timeout = fields_of(self.link.attach.properties).get(TIMEOUT)
        wait = timeout / 1000 if isinstance(timeout, int) and timeout > 0 else SESSION_WAIT
        entity = await self._checked_entity(asked.in_session)
        self._mean_bytes = float(entity.max_message_bytes)
        self._place = place_of(entity)
        if self._takes and asked.in_session and asked.session_id is None:
            await self._open_next_session(wait)
        else:
            await self._open_receiver(asked.session_id, wait)
        session = self.session
        if self._takes:
            self.peer.commons.undelivered.watch(self._place, self._session_id, self._undelivered_came)
        until = None if session is None else session.locked_until_utc
        self.link.accept(
            source=asked.granted(None if session is None else session.session_id),
            properties=None if session is None else {LOCKED_UNTIL: None if until is None else to_ticks(until)},
            max_message_size=self.peer.engine.limits.message_bytes,
        )
        if session is not None:
            self.peer.commons.session_holders[self._place, session.session_id or ""] = self.link, self._given_up_now
            self._watch = self.peer.tasks.start(self._watch_session(held_session_of(session)))
        self._pump = self.peer.tasks.start(self._run())

    async def _open_receiver(self, session_id: str | None, wait: float) -> None:
        """Open a receiver in place of the one before.

        Args:
            session_id: The session to receive from; None for the next available one, or for an entity without sessions.
            wait: How long to wait for the session, in seconds.
        """
        try:
            await self._enter(session_id, wait)
        except SessionCannotBeLockedError:
            if not await self._wait_for_release(session_id):
                # Another gateway may have answered a detach just now.
                await asyncio.sleep(ASKED_AGAIN_AFTER)
            await self._enter(session_id, wait)

    async def _enter(self, session_id: str | None, wait: float) -> None:
        if self._receiver is not None:
            await self._receiver.close()
        self._receiver = receiver = self.peer.namespace.receiver(
            self.path, self._identifier, in_session=self._asked.in_session, session_id=session_id, wait=wait
        )
        await receiver.__aenter__()

    async def _wait_for_release(self, session_id: str | None) -> bool:
        """Wait until a link that has ended has given a session up; return whether one did.

        Its client was answered before, and may ask for the session again at once.
        """
        link, given_up = self.peer.commons.session_holders.get((self._place, session_id or ""), (None, None))
        if link is None or given_up is None or link.is_attached:
            return False
        waiting = asyncio.ensure_future(given_up.wait())
        try:
            await asyncio.wait([waiting], timeout=GIVEN_UP_WITHIN)
        finally:
            waiting.cancel()
        return given_up.is_set()

    async def _open_next_session(self, wait: float) -> None:
        """Open a receiver of a session of which messages are kept that another client did not get; else of the next one.

        No ledger knows of such messages any more, so that it does not offer their session.
        """
        kept, loop, came = self.peer.commons.undelivered, asyncio.get_running_loop(), asyncio.Event()
        until, untried = loop.time() + wait, set(kept.sessions(self._place))
        kept.watch(self._place, None, came.set)
        try:
            while True:
                came.clear()
                sessions = kept.sessions(self._place)
                untried.intersection_update(sessions)
                for session_id in sessions[:KEPT_TRIED]:
                    with suppress(SessionCannotBeLockedError, OperationTimeoutError):
                        await self._open_receiver(session_id, KEPT_WAIT)
                        return
                    kept.put_last(self._place, session_id)
                    untried.discard(session_id)
                left = max(KEPT_WAIT, until - loop.time())
                opening = asyncio.ensure_future(self._open_receiver(None, KEPT_WAIT if untried else left))
                coming = asyncio.ensure_future(came.wait())
                try:
                    await asyncio.wait([opening, coming], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (opening, coming):
                        task.cancel()
                    await asyncio.wait([opening])
                if not opening.cancelled():
                    with suppress(OperationTimeoutError) if untried and loop.time() < until else nullcontext():
                        opening.result()
                        return
        finally:
            kept.unwatch(self._place, None, came.set)
            if came.is_set():
                # Another one that waits is notified in place of this one.
                for session_id in kept.sessions(self._place):
                    kept.tell_of_session(self._place, session_id)

    async def _watch_session(self, session: HeldSession) -> None:
        """Detach the link when the session's lock has ended."""
        while (left := session.seconds_left) > 0:  # noqa: ASYNC110 - the lock may be renewed during the sleep
            await asyncio.sleep(left + LOCK_SLACK)
        if self._takes:
            await asyncio.sleep(TAKING_SLACK)
        if self.link.is_attached:
            self.peer.links.detach(self.link, to_amqp_error(session.lost_error(), self.path))

    async def _checked_entity(self, in_session: bool) -> Entity:
        """Return the entity; check that the client asks for a session where there are sessions, and only there.

        Raises:
            MessagingEntityNotFoundError: There is no such entity.
            AmqpError: It does not, or the entity is a topic.
        """
        entity = await self.peer.namespace.entity_with_messages(self.path)
        if entity.has_sessions and not in_session:
            raise AmqpError(
                NOT_ALLOWED, f"{self.path} requires sessions: receive from a session, or the next available one"
            )
        if in_session and not entity.has_sessions:
            raise AmqpError(NOT_ALLOWED, f"{self.path} has no sessions: receive without one")
        return entity

    def on_flow(self) -> None:
        """Go on with another credit, or give up what is left of it."""
        if self.link.credit > 0 or self.link.drain:
            self._wanted.set()
        if (self.link.drain or self.link.credit <= 0) and self._claim is not None:
            self._hurry(self._claim)

    def _undelivered_came(self) -> None:
        """Go on: there are messages that another client did not get."""
        self._wanted.set()
        if self._claim is not None:
            self._hurry(self._claim)

    def _hurry(self, claim: asyncio.Task[list[ServiceBusReceivedMessage]]) -> None:
        """End a wait for messages when those that are there have had the time to come."""
        asyncio.get_running_loop().call_at(self._claimed_at + DRAIN_WAIT, claim.cancel)

    async def _run(self) -> None:
        """Send messages as long as the link is attached."""
        link, receiver = self.link, self.receiver
        try:
            while link.is_attached:
                if self._takes and link.credit > 0 and not await self._may_go_on():
                    continue
                if link.credit > 0 and self._has_room:
                    messages = await self._messages(receiver)
                    await (self._send_taken(messages) if self._takes else self._send(messages))
                    await self.peer.load.wait_for_turn(hurries=link.drain)
                    if messages:
                        continue
                if link.drain:
                    link.give_up_credit()
                    self.peer.outbox.flush_soon()
                await self._until_wanted()
        except Exception as error:  # noqa: BLE001 - reported to the client
            if self._takes and isinstance(error, SessionLockLostError):
                return  # The watch detaches the link, a little later.
            problem = await self.peer.namespace.to_link_error(error, self.path)
            if link.is_attached:
                self.peer.links.detach(link, problem)

    async def _until_wanted(self) -> None:
        """Wait until the client has given credit, and has room."""
        link = self.link
        if link.credit <= 0 or not self._has_room:
            self._wanted.clear()
            if link.credit > 0:
                link.session.window.await_room(link, self._needed_frames)
            await self._wanted.wait()

    @property
    def _has_room(self) -> bool:
        peer, window = self.peer, self.link.session.window
        if peer.is_ending or peer.socket.is_lost or self.link.unsettled >= peer.commons.settings.unsettled:
            return False
        return window.room >= self._needed_frames if self._takes else window.waiting < MOST_FRAMES_WAITING

    async def _messages(self, receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
        """Wait for messages; return none if the client withdraws its credit before they come."""
        link, peer = self.link, self.peer
        peer.load.claiming += 1
        share = max(LEAST_BYTES_AT_ONCE, BYTES_AT_ONCE * CLAIMING_AT_ONCE / max(peer.load.claiming, CLAIMING_AT_ONCE))
        count = max(1, min(link.credit, MOST_AT_ONCE, int(share / self._mean_bytes)))
        # Messages may be much larger than those before.
        most_bytes = int(share * UNEVEN)
        self._claim = claim = asyncio.ensure_future(engine_of(receiver).receive(count, WAIT, most_bytes=most_bytes))
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
            peer.load.claiming -= 1
        return [] if claim.cancelled() else await self._keep_first(claim.result(), most_bytes)

    async def _keep_first(
        self, messages: list[ServiceBusReceivedMessage], most_bytes: int
    ) -> list[ServiceBusReceivedMessage]:
        """Return the first messages, of so many bytes together or only one; give back the others, which were claimed unread."""
        if sum(len(receipt_of(message).body or b"") for message in messages) < most_bytes // UNEVEN:
            # The usual case. Sizes of messages that were read before are exact already, and of others there are few.
            return messages
        for count, size in enumerate(accumulate(size_of(receipt_of(message).record) for message in messages)):
            if count and size > most_bytes:
                self._note_size(size, count + 1)
                try:
                    await self._give_back([discard_body(message) for message in messages[count:]])
                except asyncio.CancelledError:
                    await self._give_back(messages[:count])
                    raise
                return messages[:count]
        return messages

    async def _send(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Send messages as long as the client takes them; give the others back."""
        link, peer, sent, size = self.link, self.peer, 0, 0
        pace, carried = Pace(), deque(size_of(receipt_of(message).record) for message in messages)
        peer.load.carry(sum(carried))
        try:
            while sent < len(messages) and link.is_attached and link.credit > 0 and self._has_room:
                if not peer.socket.can_write.is_set():
                    if peer.load.carries_too_much or not await peer.socket.is_writable_within(CARRIED_FOR):
                        break
                    if engine_of(self.receiver).seconds_left(messages[sent]) <= 0:
                        # The client was slow, and others may have the rest by now.
                        break
                    continue
                message = messages[sent]
                peer.load.carry(-carried.popleft())
                payload = encode_message(message, ShownLock.OF_LINK, for_java=peer.is_java)
                link.send(self._tag_of(message), payload, settled=False, content=discard_body(message))
                sent, size = sent + 1, size + len(payload)
                peer.outbox.add_message(len(payload))
                await pace.keep()
        finally:
            peer.load.carry(-sum(carried))
            self._note_size(size, sent)
            await self._give_back([discard_body(message) for message in messages[sent:]])

    def _note_size(self, size: int, count: int) -> None:
        """Expect messages like those that came; smaller ones not all at once, as a claim takes by their number."""
        if count:
            self._mean_bytes = max(size / count, self._mean_bytes / 8)

    def _next_tag(self) -> bytes:
        """Return the tag of a delivery that is sent settled."""
        return next(self._tags).to_bytes(8, "big")

    def _tag_of(self, message: ServiceBusReceivedMessage) -> bytes:
        token = message.lock_token
        return uuid.uuid4().bytes if token is None else token.bytes_le

    async def _give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give back messages that the client does not take, even if the link ends during the call."""
        if self._receiver is not None:
            await run_uninterrupted(engine_of(self._receiver).release(messages))

    # Receive and delete.

    async def _send_taken(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Complete and send messages; give those back that the client does not take, before they are completed."""
        left = deque(messages)
        try:
            while left and (unit := self._unit(left)):
                await self._complete_and_send(unit)
                self.peer.outbox.flush()
        finally:
            await self._give_back(list(left))

    async def _may_go_on(self) -> bool:
        """Send what other clients did not get; return whether other messages may follow."""
        await self.peer.wait_for_ends()
        await self.peer.socket.wait_for_room(self._needed)
        return self._send_undelivered() or not self._has_room

    def _send_undelivered(self) -> bool:
        """Send messages that were completed for clients that did not get them; return whether none is left, or no credit."""
        link, kept = self.link, self.peer.commons.undelivered
        place = self._place, self._session_id
        while link.is_attached and link.credit > 0 and (payload := kept.first(*place)) is not None:
            needed = self._frames_for(payload)
            self._needed, self._needed_frames = len(payload), needed
            if (
                not self.peer.socket.has_room_for(len(payload))
                or link.session.window.room < needed
                or self.peer.is_ending
            ):
                return False
            self._needed, self._needed_frames = 0, 1
            link.send(self._next_tag(), payload, settled=True, content=kept.take_first(*place))
            self.peer.outbox.flush()
        return True

    @property
    def _session_id(self) -> str | None:
        return None if self.session is None else self.session.session_id

    def _unit(self, left: deque[ServiceBusReceivedMessage]) -> list[_Taken]:
        """Take the next messages, as many as the client's credit, its window and the socket take at once."""
        link, unit = self.link, list[_Taken]()
        room, frames = self.peer.socket.room, link.session.window.room
        self._needed, self._needed_frames = 0, 1
        while left and link.is_attached and len(unit) < link.credit and not self.peer.holds_ends:
            payload = encode_message(left[0], for_java=self.peer.is_java)
            needed = self._frames_for(payload)
            frames -= needed
            room -= len(payload)
            fits = room >= 0 if unit else self.peer.socket.has_room_for(len(payload))
            if not fits or frames < 0 or self.peer.is_ending:
                self._needed, self._needed_frames = len(payload), needed
                break
            unit.append(_Taken(left.popleft(), payload))
        self._note_size(sum(len(taken.payload) for taken in unit), len(unit))
        return unit

    def _frames_for(self, payload: bytes) -> int:
        """Return for how many frames there must be room: not for more than the client ever takes at once."""
        return max(1, min(self.link.count_frames(len(payload)), self.link.session.window.largest))

    async def _complete_and_send(self, unit: Sequence[_Taken]) -> None:
        """Complete messages, and send those that were completed.

        If the client ends the link during the call, the end waits until they were sent.
        """
        with self.peer.holding_ends(), self._reserve([taken.payload for taken in unit]):
            payloads: list[bytes] = []
            try:
                # A link that ends during the call needs the list of completed messages, too.
                await run_uninterrupted(self._complete(unit, payloads))
            finally:
                if self.link.is_attached and self.peer.is_open:
                    for payload in payloads:
                        deleted = Deleted(self._place, self._session_id, [payload])
                        self.link.send(self._next_tag(), payload, settled=True, content=deleted)
                else:
                    self.peer.commons.undelivered.put(Deleted(self._place, self._session_id, payloads))

    @contextmanager
    def _reserve(self, payloads: Sequence[bytes]) -> Generator[None]:
        """Keep room for messages in the client's window and in the socket, until they have used it."""
        peer, window = self.peer, self.link.session.window
        frames, size = sum(map(self._frames_for, payloads)), sum(map(len, payloads))
        window.reserved += frames
        peer.socket.reserved_bytes += size
        try:
            yield
        finally:
            window.reserved -= frames
            peer.socket.reserved_bytes -= size
            for link in window.take_ready():
                peer.links.on_flow(link)

    async def _complete(self, unit: Sequence[_Taken], payloads: list[bytes]) -> None:
        """Complete messages; note the payloads of those that the client gets.

        Raises:
            ServiceBusError: It is unknown which were completed.
        """
        are_deleted, error = await delete(self.receiver, [taken.message for taken in unit])
        payloads += compress((taken.payload for taken in unit), are_deleted)
        if error is not None:
            raise error

    # Settlement.

    def on_disposition(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Have messages settled."""
        part = self.peer.transactions.join(state, operations=len(deliveries))
        self._settling.append(_Group(state, settled, deliveries, part))
        if self._settler is None:
            self._settler = self.peer.tasks.start(self._settle(), is_requested=True)

    async def _settle(self) -> None:
        """Settle what is to be settled."""
        try:
            while self._settling:
                groups: list[_Group] = []
                while self._settling and len(groups) < SETTLED_AT_ONCE:
                    group = self._settling.popleft()
                    # Two transactions, or two outcomes, in turn are two groups.
                    if not any(earlier.join(group) for earlier in groups[-JOINED_TO:]):
                        groups.append(group)
                await asyncio.gather(*(self._settle_group(group) for group in groups))
                self._wanted.set()
                self.peer.outbox.flush_soon()
        finally:
            self._settler = None

    async def _settle_group(self, group: _Group) -> None:
        messages = [delivery.content for delivery in group.deliveries]
        error: AmqpError | None = None
        try:
            if messages:
                await self._do(messages, group)
        except (MessageLockLostError, SessionLockLostError) as problem:
            error = to_amqp_error(problem)
        except Exception as problem:  # noqa: BLE001 - reported to the client
            error = to_amqp_error(problem, self.path)
        if group.parts and group.settled:
            await group.parts[0].give_back(messages, self._abandon)
        for part in group.parts:
            part.end(error)
        self._answer(group, error)

    async def _abandon(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Make messages available again that the client settled in a transaction that was rolled back."""
        namespace, held = self.peer.namespace, [message for message in messages if not receipt_of(message).is_settled]
        if self.session is not None and not self.link.is_attached:
            # The messages of a session went back with its lock.
            return
        for at in range(0, len(held), ABANDONED_AT_ONCE):
            # A copy has nothing of the changes that the transaction would have made.
            abandoned = [discard_body(message) for message in held[at : at + ABANDONED_AT_ONCE]]
            try:
                entity = await namespace.entity(self.path)
                async with (
                    namespace.receiver(self.path, self._identifier)
                    if self.session is None
                    else nullcontext(self.receiver) as receiver
                ):
                    await RequestedSettlement(Verb.ABANDON).apply(namespace.context, entity, receiver, abandoned, None)
            except Exception as error:  # noqa: BLE001 - their locks end by themselves, and a discharge waits for this
                LOGGER.warning("not_abandoned entity=%s count=%d error=%s", self.path, len(abandoned), error)

    def _answer(self, group: _Group, error: AmqpError | None) -> None:
        link = self.link
        if error is not None and self._hides(group, error):
            self.peer.links.detach(link, error)
        if group.settled:
            link.forget(group.deliveries)
            return
        echo = echo_of(group.state)
        if error is None:
            link.settle(group.deliveries, echo)
            return
        refused = in_transaction(group.state, Rejected(error_of(error)))
        if error.condition in {MESSAGE_LOCK_LOST, SESSION_LOCK_LOST}:
            # Of several, some may have been settled.
            link.settle([done for done in group.deliveries if receipt_of(done.content).is_settled], echo)
        link.settle(group.deliveries, refused)

    @staticmethod
    def _hides(group: _Group, error: AmqpError) -> bool:
        """Return whether a client might take settlements for done that were refused, unless its link is detached.

        A transaction reports this with its discharge.
        """
        is_told = error.condition in TELLS or (group.settled and error.condition in PASSES)
        return not group.parts and not is_told

    async def _do(self, messages: Sequence[ServiceBusReceivedMessage], group: _Group) -> None:
        """Settle messages as their state says.

        Raises:
            ServiceBusError: They cannot be settled.
            AmqpError: The state is none that settles.
        """
        settlement = settlement_of_state(group.state)
        if settlement is None or self._takes:
            return
        namespace = self.peer.namespace
        entity = await namespace.entity(self.path)
        part = group.parts[0] if group.parts else None
        await settlement.apply(namespace.context, entity, self.receiver, messages, part)

    async def close(self) -> None:
        """End the link: a session is given up; other messages stay locked as long as their locks last."""
        if self._settler is not None:
            await asyncio.wait([self._settler])
        undelivered, session_id = self.peer.commons.undelivered, self._session_id
        if self._takes:
            # Before the pump ends: messages that it deleted and does not send are for other clients.
            undelivered.unwatch(self._place, session_id, self._undelivered_came)
        for task in (self._watch, self._pump):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        if self._receiver is not None:
            await self._receiver.close()
        self._given_up_now.set()
        holders, held = self.peer.commons.session_holders, (self._place, session_id or "")
        if held in holders and holders[held][0] is self.link:
            del holders[held]
        undelivered.tell_of_session(self._place, session_id)


class _Taken(NamedTuple):
    """A message that is received and deleted.

    Attributes:
        message: The message, which is locked until it is completed.
        payload: Its bytes, as they are sent.
    """

    message: ServiceBusReceivedMessage
    payload: bytes


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

    def join(self, other: _Group) -> bool:
        """Add the deliveries of another group if they are settled alike; return whether they are."""
        if self.settled != other.settled or type(other.state) is not type(self.state) or other.state != self.state:
            return False
        if isinstance(self.state, Composite) and self.state.encoded() != other.state.encoded():
            # Values of two types may be equal.
            return False
        if any(part.is_refused for part in (*self.parts, *other.parts)):
            # One came after the end of its transaction, the other before.
            return False
        self.deliveries += other.deliveries
        self.parts += other.parts
        return True
