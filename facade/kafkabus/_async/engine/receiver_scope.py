"""The common state of the parts of a receiver's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkabus._async.compat import caller_left
from kafkabus._async.context import ClientContext
from kafkabus._async.engine.held_session import HeldSession
from kafkabus._async.receiving.readers import needs_session
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import InvalidOperationError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._runtime import instruments
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.names import EntityPath


class ReceiverScope:
    """A receiver's entity and session, and whether the receiver was closed.

    Args:
        context: The parts of the client.
        path: The queue or subscription, with its sub-queue.
        takes: Whether messages are received and deleted.
        session: The session that the receiver is for; None without one.
        identifier: The receiver's identifier, which locks name.
        on_session_locked: Called when the session was locked.

    Attributes:
        context: The parts of the client.
        path: The queue or subscription, with its sub-queue.
        entity_path: The same as a text.
        takes: Whether messages are received and deleted.
        session: The session that the receiver is for; None without one.
        is_closed: Whether the receiver was closed.
    """

    def __init__(
        self,
        context: ClientContext,
        path: EntityPath,
        *,
        takes: bool,
        session: HeldSession | None,
        identifier: str,
        on_session_locked: Callable[[], None] | None,
    ) -> None:
        self.context = context
        self.path = path
        self.entity_path = str(path)
        self.takes = takes
        self.session = session
        self.is_closed = False
        self._identifier = identifier
        self._on_session_locked = on_session_locked

    def check_open(self) -> None:
        """Check that the receiver was not closed.

        Raises:
            ValueError: It was.
        """
        if self.is_closed:
            raise ValueError(
                "The handler has already been shutdown: this receiver was closed, get another from the client"
            )

    @property
    def holder(self) -> str | None:
        """The receiver, as leases name it; None if they do not."""
        return self.context.holder_of(self._identifier)

    def is_unwanted(self) -> bool:
        """Return whether no call waits for messages any more: the receiver was closed, or the caller has left."""
        return self.is_closed or caller_left()

    async def entity(self, *, to_search: bool = False) -> Entity:
        """Return the entity.

        Args:
            to_search: Whether messages are searched, which goes through all sessions without one.

        Raises:
            ServiceBusError: It is a topic, or has sessions and the receiver has none, or is gone, or cannot be looked up.
        """
        entity = await self.context.catalog.entity(self.path)
        if entity.is_topic:
            raise InvalidOperationError(
                ErrorText(
                    f"{self.path} is a topic: receive from one of ",
                    Term(
                        "receive_from_subscription", "its subscriptions, with get_subscription_receiver", str(self.path)
                    ),
                )
            )
        if entity.has_sessions and self.session is None and not to_search:
            raise needs_session(entity, self.path)
        return entity

    async def lock_session(self, wait: float | None) -> SessionLock | None:
        """Return the lock of the session; lock the session now if it was not locked yet. None without a session.

        Raises:
            SessionLockLostError: The lock was lost.
            ServiceBusError: See ``HeldSession.open``.
        """
        session = self.session
        if session is None:
            return None
        was_open = session.is_open
        lock = await session.open(wait, self.is_unwanted, self.holder)
        if lock.lost:
            raise session.lost_error()
        if not was_open and self._on_session_locked is not None:
            self._on_session_locked()
        return lock

    async def note_use(self, entity: Entity) -> None:
        """Keep an entity from being deleted because it is idle; a receive says by itself that the entity is used."""
        await self.context.connections.notifications.note_use(entity)

    def report_received(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Report messages that are handed out to the process's observer."""
        if instruments.observer is not None and messages:
            instruments.observer.on_receive(self.entity_path, len(messages))

    def report_failure(self, operation: str, error: BaseException) -> None:
        """Report an error to the process's observer."""
        if instruments.observer is not None and isinstance(error, Exception):
            instruments.observer.on_error(self.entity_path, operation, error)
