# Generated from facade/kafkabus/_async/engine/held_session.py by tools/generate_blocking.py. Do not edit.
"""The session that a receiver has locked: its lock, from the first request for it until it is given up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from kafkabus._core.entity import LedgersReplacedError
from kafkabus._core.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from kafkabus._ledger.operations import Extend
from kafkabus._runtime import forks
from kafkabus._sync.context import ClientContext
from kafkabus._sync.receiving.session_reader import SessionLock, lock_lost
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus")

DEFAULT_OPEN_WAIT = 65.0
"""How long, in seconds, a receiver waits for the next available session by default; as Service Bus does."""


class HeldSession:
    """Owns the lock of a receiver's session.

    Args:
        context: The parts of the client.
        path: The queue or subscription.
        session_id: The session's id; None for the next available one.
        max_wait_time: The receiver's longest wait, in seconds; None for the default.

    Attributes:
        renew_error: The error for which an ``AutoLockRenewer`` does not renew the lock any more; None while it does.
        lock: The lock; None before the session is locked.
    """

    def __init__(
        self, context: ClientContext, path: EntityPath, session_id: str | None, max_wait_time: float | None
    ) -> None:
        self.renew_error: AutoLockRenewTimeout | AutoLockRenewFailed | None = None
        self.lock: SessionLock | None = None
        self._context = context
        self._path = path
        self._wanted = session_id
        self._max_wait_time = max_wait_time
        self._closed = False
        forks.watch(self)

    def _after_fork(self) -> None:
        # The session is locked for the parent process.
        self.lock = None

    def __str__(self) -> str:
        return f"Session {self.session_id!r} of {self._path}"

    @property
    def session_id(self) -> str | None:
        """The session's id; None as long as it is the next available one, and none was available yet."""
        return self._wanted if self.lock is None else self.lock.session

    @property
    def is_open(self) -> bool:
        """Whether the session was locked, even if the lock was lost since."""
        return self.lock is not None

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost."""
        return self.lock is not None and self.lock.lost

    @property
    def seconds_left(self) -> float:
        """How long the lock still lasts, in seconds, according to the ledger's clock as this client estimates it."""
        lock = self.lock
        if lock is None or lock.lost:
            return 0.0
        return self._context.catalog.seconds_left(self._path, lock.partition, lock.expiry)

    def lost_error(self) -> SessionLockLostError:
        """Return the error that says that the lock was lost."""
        return lock_lost(self.session_id, self._path, self.renew_error)

    def note_lost(self, lock: SessionLock) -> SessionLockLostError:
        """Note that a ledger does not hold a lock any more; return the error that says so."""
        lock.lost = True
        return self.lost_error()

    def require_lock(self) -> SessionLock:
        """Return the lock; lock the session if that was not done yet.

        Raises:
            ValueError: The receiver was closed.
            SessionLockLostError: The lock was lost.
        """
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this session's receiver was closed, get another from the client"
            )
        lock = self.open(None, lambda: False, None)
        if lock.lost:
            raise self.lost_error()
        return lock

    def open(self, wait: float | None, closed: Callable[[], bool], holder: str | None) -> SessionLock:
        """Lock the session if that was not done yet.

        Args:
            wait: The longest wait for an available session, in seconds; by default, and at most, the receiver's, else 65.
            closed: Returns whether no caller wants the session any more.
            holder: The receiver, as leases name it; None if they do not.

        Raises:
            OperationTimeoutError: No session was available in time.
            SessionCannotBeLockedError: Another receiver has the session.
            ServiceBusError: The queue has no sessions, or is gone, or Kafka or Redis cannot be reached.
        """
        if self.lock is not None:
            return self.lock
        entity = self._context.catalog.entity(self._path)
        reader = self._context.receiving.readers.sessions_of(entity)
        self._context.connections.notifications.note_use(entity)
        most = self._max_wait_time or DEFAULT_OPEN_WAIT
        seconds = most if wait is None else min(wait, most)
        try:
            lock, held = reader.accept(self._wanted, seconds, closed, holder)
        except LedgersReplacedError as error:
            self._context.catalog.check_moved_on(entity, error)
            return self.open(wait, closed, holder)
        if lock is not None and self.is_open:
            # Another task was faster.
            reader.leave(lock)
            return self.open(wait, closed, holder)
        if self.is_open:
            return self.open(wait, closed, holder)
        if lock is None:
            raise self._refused_error(held, seconds)
        self.lock = lock
        if closed():
            self.close()
        return lock

    def _refused_error(self, held: bool, seconds: float) -> ServiceBusError:
        if held:
            return SessionCannotBeLockedError(
                f"session {self._wanted!r} of {self._path} is locked by another receiver: close that one, or wait until "
                "its lock has expired"
            )
        return OperationTimeoutError(
            f"no session of {self._path} with messages was available within {seconds:g} s: its sessions have none, or other "
            "receivers have locked them"
        )

    def renew(self) -> int:
        """Renew the session's lock, for the queue's whole lock duration from now on; return its end, ms since 1970.

        Raises:
            ValueError: The receiver was closed.
            SessionLockLostError: The lock expired before.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        lock = self.require_lock()
        entity = self._context.catalog.entity(self._path)
        self._context.connections.notifications.note_use(entity)
        extend = Extend(entity.ledgers[lock.partition], lock.lease, entity.lock_ms)
        self._context.ledger_client.execute(extend)
        if extend.expiry is None:
            raise self.note_lost(lock)
        lock.expiry = extend.expiry
        return extend.expiry

    def close(self) -> None:
        """Give the session up."""
        self._closed = True
        lock = self.lock
        if lock is None or lock.lost:
            return
        lock.lost = True
        try:
            entity = self._context.catalog.entity(self._path)
            (self._context.receiving.readers.sessions_of(entity)).leave(lock)
        except ServiceBusError as error:
            LOGGER.warning("leave_session entity=%s session=%r error=%s", self._path, lock.session, error)


class SessionHandle(Protocol):
    """The session as applications see it."""

    _held: HeldSession


def held_session_of(session: SessionHandle) -> HeldSession:
    """Return the owner of a session's lock."""
    return session._held
