"""A session that a receiver has locked, and its state."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from datetime import datetime

from kafkabus._async.compat import guard
from kafkabus._async.context import ClientContext
from kafkabus._async.receiving.session_reader import SessionLock, SessionReader, lock_lost
from kafkabus._core.compatibility import check_timeout, warn_unsupported
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from kafkabus._ledger.operations import Extend, GetState, ListSessions, ListUpdatedStates, SetState
from kafkabus._runtime import forks
from kafkabus_mapping.codec import from_milliseconds, to_milliseconds
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus")

LIST_TIMEOUT = 60.0
"""How long, in seconds, looking at all messages for a list of sessions may take."""
DEFAULT_OPEN_WAIT = 65.0
"""How long, in seconds, a receiver waits for the next available session by default; as Service Bus does."""


class ServiceBusSession:
    """The session of a receiver: ``receiver.session``. Safe to share between asyncio tasks.

    Attributes:
        auto_renew_error: The error for which an ``AutoLockRenewer`` does not renew the lock any more; None while it does.
    """

    def __init__(
        self, context: ClientContext, path: EntityPath, session_id: str | None, max_wait_time: float | None
    ) -> None:
        self.auto_renew_error: AutoLockRenewTimeout | AutoLockRenewFailed | None = None
        self._context = context
        self._path = path
        self._wanted = session_id
        self._max_wait_time = max_wait_time
        self._lock: SessionLock | None = None
        self._closed = False
        forks.watch(self)

    def _after_fork(self) -> None:
        # The session is locked for the parent process.
        self._lock = None

    def __str__(self) -> str:
        return f"Session {self.session_id!r} of {self._path}"

    @property
    def session_id(self) -> str | None:
        """The session's id; None as long as it is the next available one, and none was available yet."""
        return self._wanted if self._lock is None else self._lock.session

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the session's lock expires, in UTC, on the ledger's clock; None before it is locked."""
        return None if self._lock is None else from_milliseconds(self._lock.expiry)

    @guard
    async def renew_lock(self, *, timeout: float | None = None, **unsupported: object) -> datetime:
        """Lock the session anew, for the queue's whole lock duration from now on.

        Args:
            timeout: Kept for compatibility: a ledger answers or cannot be reached.
            **unsupported: Named in a warning.

        Returns:
            When the lock expires now, in UTC, on the ledger's clock; also in ``locked_until_utc``.

        Raises:
            ValueError: The receiver was closed.
            SessionLockLostError: The lock expired before.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        lock = await self._locked()
        entity = await self._context.catalog.entity(self._path)
        await self._context.connections.notifications.note_use(entity)
        extend = Extend(entity.ledgers[lock.partition], lock.lease, entity.lock_ms)
        await self._context.ledger_client.execute(extend)
        if extend.expiry is None:
            lock.lost = True
            raise self._lost()
        lock.expiry = extend.expiry
        return from_milliseconds(extend.expiry)

    @guard
    async def get_state(self, *, timeout: float | None = None, **unsupported: object) -> bytes | None:
        """Return the state that a receiver of the session set last; None if none was set, or it was cleared.

        Args:
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Raises:
            ValueError: The receiver was closed.
            SessionLockLostError: The session's lock has expired.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        lock = await self._locked()
        entity = await self._context.catalog.entity(self._path)
        get = GetState(entity.ledgers[lock.partition], lock.lease)
        return await self._state(entity, lock, get)

    @guard
    async def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None, **unsupported: object
    ) -> None:
        """Keep a state for the receivers of the session; it is durable when this returns.

        Args:
            state: The state, up to the size of a message; text is stored as UTF-8. None clears the state.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Raises:
            ValueError: The receiver was closed.
            TypeError: The state is neither text nor bytes nor None.
            MessageSizeExceededError: The state is too large; nothing was changed.
            SessionLockLostError: The session's lock has expired; nothing was changed.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; it is unknown whether the state was set.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        content = _state_bytes(state)
        lock = await self._locked()
        entity = await self._context.catalog.entity(self._path)
        if content is not None and len(content) > entity.max_message_bytes:
            raise MessageSizeExceededError(
                f"a state of {len(content)} bytes: the namespace takes {entity.max_message_bytes}; nothing was changed"
            )
        value = None if content is None else base64.b64encode(content).decode()
        await self._state(entity, lock, SetState(entity.ledgers[lock.partition], lock.lease, value))

    async def _state(self, entity: Entity, lock: SessionLock, ask: GetState | SetState) -> bytes | None:
        """Return the state once its record is known to stand."""
        await self._context.connections.notifications.note_use(entity)
        await self._context.ledger_client.execute(ask)
        if ask.gone:
            lock.lost = True
            raise self._lost()
        if ask.state is None:
            return None
        if not ask.state.stored:
            # Also if another receiver set the state and did not get to the end: a state that was seen is not taken back.
            await self._context.stores.session_states.store(entity, ask.ledger, ask.state)
        return None if ask.state.value is None else base64.b64decode(ask.state.value)

    @property
    def _is_open(self) -> bool:
        """Whether the session was locked, even if the lock was lost since."""
        return self._lock is not None

    @property
    def _is_lost(self) -> bool:
        """Whether the lock is known to be lost."""
        return self._lock is not None and self._lock.lost

    async def _reader(self) -> SessionReader:
        entity = await self._context.catalog.entity(self._path)
        return await self._context.receiving.readers.sessions_of(entity)

    async def _locked(self) -> SessionLock:
        """Return the lock; lock the session if that was not done yet.

        Raises:
            ValueError: The receiver was closed.
            SessionLockLostError: The lock was lost.
        """
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this session's receiver was closed, get another from the client"
            )
        lock = await self._open(None, lambda: False)
        if lock.lost:
            raise self._lost()
        return lock

    async def _open(self, wait: float | None, closed: Callable[[], bool]) -> SessionLock:
        """Lock the session if that was not done yet.

        Args:
            wait: The longest wait for an available session, in seconds; by default, and at most, the receiver's, else 65.
            closed: Tells whether no caller wants the session any more.

        Raises:
            OperationTimeoutError: No session was available in time.
            SessionCannotBeLockedError: Another receiver has the session.
            ServiceBusError: The queue has no sessions, or is gone, or Kafka or Redis cannot be reached.
        """
        if self._lock is not None:
            return self._lock
        entity = await self._context.catalog.entity(self._path)
        reader = await self._context.receiving.readers.sessions_of(entity)
        await self._context.connections.notifications.note_use(entity)
        most = self._max_wait_time or DEFAULT_OPEN_WAIT
        seconds = most if wait is None else min(wait, most)
        try:
            lock, held = await reader.accept(self._wanted, seconds, closed)
        except LedgersReplacedError as error:
            await self._context.catalog.check_moved_on(entity, error)
            return await self._open(wait, closed)
        if lock is not None and self._is_open:
            # Another task was faster.
            await reader.leave(lock)
            return await self._open(wait, closed)
        if self._is_open:
            return await self._open(wait, closed)
        if lock is None:
            raise self._refused(held, seconds)
        self._lock = lock
        if closed():
            await self._close()
        return lock

    def _refused(self, held: bool, seconds: float) -> ServiceBusError:
        if held:
            return SessionCannotBeLockedError(
                f"session {self._wanted!r} of {self._path} is locked by another receiver: close that one, or wait until "
                "its lock has expired"
            )
        return OperationTimeoutError(
            f"no session of {self._path} with messages was available within {seconds:g} s: its sessions have none, or other "
            "receivers have locked them"
        )

    def _lost(self) -> SessionLockLostError:
        return lock_lost(self.session_id, self._path, self.auto_renew_error)

    def _seconds_left(self) -> float:
        """Return how long the lock still lasts, as far as this client knows the ledger's clock."""
        lock = self._lock
        if lock is None or lock.lost:
            return 0.0
        return self._context.catalog.seconds_left(self._path, lock.partition, lock.expiry)

    async def _close(self) -> None:
        """Give the session up."""
        self._closed = True
        lock = self._lock
        if lock is None or lock.lost:
            return
        lock.lost = True
        try:
            await (await self._reader()).leave(lock)
        except ServiceBusError as error:
            LOGGER.warning("leave_session entity=%s session=%r error=%s", self._path, lock.session, error)


async def session_ids(context: ClientContext, path: EntityPath, state_updated_after: datetime | None) -> list[str]:
    """Return the ids of an entity's sessions, in order.

    Raises:
        ServiceBusError: It has no sessions, or is gone, or Kafka or Redis cannot be reached.
    """
    entity = await context.catalog.entity(path)
    reader = await context.receiving.readers.sessions_of(entity)
    await context.connections.notifications.note_use(entity)
    after = -1 if state_updated_after is None else to_milliseconds(state_updated_after)
    asked: list[ListSessions | ListUpdatedStates] = [ListUpdatedStates(ledger, after) for ledger in entity.ledgers]
    try:
        if state_updated_after is None:
            await reader.file_all(LIST_TIMEOUT)
            asked += [ListSessions(ledger) for ledger in entity.ledgers]
        await context.ledger_client.execute(*asked)
    except LedgersReplacedError as error:
        await context.catalog.check_moved_on(entity, error)
        return await session_ids(context, path, state_updated_after)
    return sorted({name for one in asked for name in one.names})


def _state_bytes(state: object) -> bytes | None:
    if isinstance(state, str):
        return state.encode()
    if isinstance(state, (bytes, bytearray)):
        return bytes(state)
    if state is None:
        return None
    raise TypeError(f"a state of type {type(state).__name__}: give a str, bytes, or None to clear it")
