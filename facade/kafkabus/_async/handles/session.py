"""A session that a receiver has locked, and its state."""

from __future__ import annotations

from datetime import datetime

from kafkabus._async.compat import guard
from kafkabus._async.context import ClientContext
from kafkabus._async.engine.held_session import HeldSession
from kafkabus._async.engine.session_state import encode_state, stored_state
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._core.compatibility import check_timeout, warn_unsupported
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from kafkabus._ledger.operations import GetState, ListSessions, ListUpdatedStates, SetState
from kafkabus_mapping.codec import from_milliseconds, to_milliseconds
from kafkabus_mapping.names import EntityPath

LIST_TIMEOUT = 60.0
"""How long, in seconds, looking at all messages for a list of sessions may take."""


class ServiceBusSession:
    """The session of a receiver: ``receiver.session``. Safe to share between asyncio tasks."""

    def __init__(
        self, context: ClientContext, path: EntityPath, session_id: str | None, max_wait_time: float | None
    ) -> None:
        self._context = context
        self._path = path
        self._held = HeldSession(context, path, session_id, max_wait_time)

    def __str__(self) -> str:
        return str(self._held)

    @property
    def session_id(self) -> str | None:
        """The session's id; None as long as it is the next available one, and none was available yet."""
        return self._held.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the session's lock expires, in UTC, on the ledger's clock; None before it is locked."""
        lock = self._held.lock
        return None if lock is None else from_milliseconds(lock.expiry)

    @property
    def auto_renew_error(self) -> AutoLockRenewTimeout | AutoLockRenewFailed | None:
        """The error for which an ``AutoLockRenewer`` does not renew the lock any more; None while it does."""
        return self._held.renew_error

    @auto_renew_error.setter
    def auto_renew_error(self, error: AutoLockRenewTimeout | AutoLockRenewFailed | None) -> None:
        self._held.renew_error = error

    @guard
    async def renew_lock(self, *, timeout: float | None = None, **unsupported: object) -> datetime:
        """Renew the session's lock, for the queue's whole lock duration from now on.

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
        return from_milliseconds(await self._held.renew())

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
        lock = await self._held.require_lock()
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
        lock = await self._held.require_lock()
        entity = await self._context.catalog.entity(self._path)
        value = encode_state(entity, state)
        await self._state(entity, lock, SetState(entity.ledgers[lock.partition], lock.lease, value))

    async def _state(self, entity: Entity, lock: SessionLock, ask: GetState | SetState) -> bytes | None:
        """Return the state once its record is known to be stored."""
        await self._context.connections.notifications.note_use(entity)
        await self._context.ledger_client.execute(ask)
        if ask.gone:
            raise self._held.note_lost(lock)
        return await stored_state(self._context, entity, ask)


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
            ends = await context.topics.ends(entity.topic, range(entity.partitions))
            await reader.file_upto(ends, LIST_TIMEOUT)
            asked += [ListSessions(ledger) for ledger in entity.ledgers]
        await context.ledger_client.execute(*asked)
    except LedgersReplacedError as error:
        await context.catalog.check_moved_on(entity, error)
        return await session_ids(context, path, state_updated_after)
    return sorted({name for operation in asked for name in operation.names})
