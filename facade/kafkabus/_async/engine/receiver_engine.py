"""The engine of one receiver: claims messages, keeps prefetched ones, and gives back those that no caller gets.

Each part owns one kind of state, and changes no other's:

- the engine owns its stock: messages that are locked and that no caller has seen. A message leaves the stock before it is
  handed out or given back, so that it is given back once;
- ``ReceiverScope`` knows whether the receiver was closed; the engine alone closes it;
- ``HeldSession`` owns the lock of the session;
- ``MessageClaimer``, ``DeferredClaimer`` and ``WaitingClaimer`` own granted messages until they return them; if they are
  interrupted, they give these back to the ledger;
- ``MessageSettler`` owns nothing: the ledger decides, and receipts note how far each message is settled.

An interrupted call ends where it waits. Messages that were claimed by a blocking call whose caller has left go back
into the stock, or to the ledger if the receiver was closed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kafkabus._async.compat import on_left
from kafkabus._async.context import ClientContext
from kafkabus._async.engine.deferred_claimer import DeferredClaimer
from kafkabus._async.engine.held_session import HeldSession
from kafkabus._async.engine.message_claimer import MessageClaimer
from kafkabus._async.engine.message_settler import MessageSettler
from kafkabus._async.engine.numbered_claimer import NumberedClaimer
from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._async.engine.waiting_claimer import WaitingClaimer
from kafkabus._core.enums import ServiceBusReceiveMode
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._core.message_search import MessageSearch, PeekedMessages
from kafkabus._runtime import forks
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import split_sequence_number


class ReceiverEngine:
    """Claims, settles, renews and gives back the messages of one receiver.

    Args:
        context: The parts of the client.
        path: The queue or subscription, with its sub-queue.
        mode: Whether messages are locked, or received and deleted.
        prefetch_count: How many messages beyond those that a call asks for are claimed.
        session: The session to receive from; None without one.
        identifier: The receiver's identifier, which locks name.
        on_session_locked: Called when the session was locked.

    Attributes:
        scope: The receiver's entity and session.
        settler: Settles messages and renews their locks.
    """

    def __init__(
        self,
        context: ClientContext,
        path: EntityPath,
        mode: ServiceBusReceiveMode,
        *,
        prefetch_count: int = 0,
        session: HeldSession | None = None,
        identifier: str,
        on_session_locked: Callable[[], None] | None = None,
    ) -> None:
        takes = mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        self.scope = ReceiverScope(
            context,
            path,
            takes=takes,
            session=session,
            identifier=identifier,
            on_session_locked=on_session_locked,
        )
        self.settler = MessageSettler(self.scope)
        self._claimer = MessageClaimer(self.scope)
        self._deferred = DeferredClaimer(self.scope, self._claimer)
        self._waiting = WaitingClaimer(self.scope, self._claimer)
        self._prefetch = 0 if takes else prefetch_count
        self._stock: deque[ServiceBusReceivedMessage] = deque()
        context.receiving.readers.on_open(path)
        forks.watch(self)

    def _after_fork(self) -> None:
        # Prefetched messages are locked for the parent process.
        self._stock.clear()

    @property
    def session(self) -> HeldSession | None:
        """The session that it receives from; None without one."""
        return self.scope.session

    @property
    def is_closed(self) -> bool:
        """Whether the receiver was closed."""
        return self.scope.is_closed

    async def open(self) -> None:
        """Check that the receiver can receive, and lock its session.

        Raises:
            ValueError: The receiver was closed.
            ServiceBusError: The entity gives no messages, or its session cannot be locked.
        """
        self.scope.check_open()
        await self.scope.entity()
        await self.scope.lock_session(None)

    async def close(self) -> None:
        """Give back prefetched messages, and the session; a second call does nothing."""
        before, self.scope.is_closed = self.scope.is_closed, True
        await self._empty_stock()
        if self.session is not None:
            await self.session.close()
        if not before:
            await self.scope.context.receiving.readers.on_close(self.scope.path)

    async def _empty_stock(self) -> None:
        """Give back prefetched messages, each once, also if several calls do so at a time."""
        stock, self._stock = self._stock, deque()
        await self.release(list(stock))

    async def receive(
        self, count: int, wait: float, *, most_bytes: float = math.inf
    ) -> list[ServiceBusReceivedMessage]:
        """Return up to ``count`` messages, prefetched ones first; messages that are claimed beyond them are prefetched.

        Args:
            count: The most messages.
            wait: The longest wait for a first message, in seconds.
            most_bytes: How many bytes of messages are claimed, if their sizes are known before.
        """
        messages = await self._take_stock(count)
        missing = count - len(messages)
        if missing:
            try:
                claimed = await self._claimer.claim(missing + self._prefetch, 0.0 if messages else wait, most_bytes)
            except BaseException as error:
                self._stock.extendleft(reversed(messages))
                self.scope.report_failure("receive", error)
                raise
            messages += claimed[:missing]
            self._stock.extend(claimed[missing:])
            if self.is_closed:
                # Closed while this waited: no call asks for these messages any more.
                await self._empty_stock()
        if not self.scope.takes:
            on_left(partial(self._restock, messages))
        self.scope.report_received(messages)
        return messages

    async def _take_stock(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Return up to ``count`` prefetched messages; give back those whose locks are half over, no delivery counted."""
        taken: list[ServiceBusReceivedMessage] = []
        old: list[ServiceBusReceivedMessage] = []
        while self._stock and len(taken) < count:
            try:
                message = self._stock.popleft()
            except IndexError:
                break  # Another thread was faster.
            if self.session is None:
                fresh = self.seconds_left(message) > self._claimer.half_lock
            else:
                # No message of a session overtakes one that goes back.
                fresh = not old and self.seconds_left(message) > 0
            (taken if fresh else old).append(message)
        try:
            await self.release(old)
        except BaseException:
            self._stock.extendleft(reversed(taken))
            raise
        return taken

    async def _restock(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Keep messages that the caller has not seen for the next receive; give them back if the receiver was closed."""
        if self.is_closed:
            await self.release(messages)
        else:
            self._stock.extendleft(reversed(messages))

    async def receive_deferred(self, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Return the deferred messages of some sequence numbers, in their order, all of them or none.

        Raises:
            MessageNotFoundError: A number names no deferred message, or one that is locked; none was received.
        """
        return await self._receive_named(self._deferred, numbers)

    async def receive_by_number(self, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Return the waiting messages of some sequence numbers, in their order, all of them or none.

        Raises:
            MessageNotFoundError: A number names no message that waits; none was received.
        """
        return await self._receive_named(self._waiting, numbers)

    async def _receive_named(self, claimer: NumberedClaimer, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        entity = await self.scope.entity()
        messages = await claimer.claim(entity, numbers)
        received = {message.sequence_number: message for message in messages}
        missing = [number for number in numbers if number not in received]
        if missing:
            await self.release(messages)
            raise claimer.missing_error(entity, missing)
        self.scope.report_received(messages)
        return [received[number] for number in dict.fromkeys(numbers)]

    async def peek(self, count: int, number: int, wait: float | None, search: MessageSearch | None) -> PeekedMessages:
        """Look at messages without locking them.

        Args:
            count: The most messages.
            number: The sequence number to look from; 0 to go on where the last call stopped, or to search from the beginning.
            wait: The longest wait for a session, in seconds.
            search: The messages to look for; None: all.
        """
        context, peeker = self.scope.context, self._claimer.peeker
        entity = await self.scope.entity(to_search=search is not None)
        lock = await self.scope.lock_session(wait)
        if lock is not None:
            peeker.keep_to(lock.session)
        parts, (partition, offset) = context.receiving.peek_parts, split_sequence_number(number) if number else (0, 0)
        if search is not None:
            return await peeker.search(parts, entity, partition, offset, count, search)
        if not number:
            return await peeker.look_on(parts, entity, count)
        return await peeker.look_from(parts, entity, partition, offset, count)

    async def release(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Release messages that no caller has seen, for any receiver to claim; no delivery is counted."""
        await self.settler.release(messages)

    def seconds_left(self, message: ServiceBusReceivedMessage) -> float:
        """Return how long a message's lock still lasts; see ``MessageSettler.seconds_left``."""
        return self.settler.seconds_left(message)


class EngineHolder(Protocol):
    """A receiver as applications see it."""

    _engine: ReceiverEngine


def engine_of(receiver: EngineHolder) -> ReceiverEngine:
    """Return the engine of a receiver."""
    return receiver._engine
