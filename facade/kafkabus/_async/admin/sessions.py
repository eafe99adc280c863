"""Sessions as operators handle them: their states, and the rest of their messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from kafkabus._async.admin.locks import LockAdministration
from kafkabus._async.compat import guard
from kafkabus._async.engine.held_session import HeldSession
from kafkabus._async.engine.receiver_engine import ReceiverEngine
from kafkabus._async.engine.session_state import encode_state, stored_state
from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._core.entity import Entity
from kafkabus._core.enums import ServiceBusReceiveMode
from kafkabus._core.exceptions import InvalidOperationError, MessageNotFoundError
from kafkabus._core.message import ServiceBusMessageState, ServiceBusReceivedMessage
from kafkabus._core.settlement import SettlementBatch, check_reason
from kafkabus._ledger.operations import GetState, SetState
from kafkabus_mapping.keys import partition_of

TAKEN_AT_ONCE = 100
"""How many messages of a session are deleted or dead-lettered at a time."""
ATTEMPTS = 5
"""How often in a row messages may turn out to be gone that were just there, as those are whose time to live is over."""

Settle = Callable[[list[SettlementBatch]], Awaitable[None]]


class SessionAdministration(LockAdministration):
    """Administers sessions."""

    @guard
    async def get_session_state(self, entity: str, session_id: str) -> bytes | None:
        """Return the state of a session, whether a receiver has it or not; None if none was set, or it was cleared.

        In Azure Service Bus, a receiver of the session alone sees its state.

        Args:
            entity: A queue, or ``TOPIC/Subscriptions/SUBSCRIPTION``.
            session_id: The session.

        Raises:
            InvalidOperationError: The entity has no sessions, or its name breaks a rule.
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = await self._with_sessions(entity)
        get = GetState(known.ledgers[partition_of(session_id, known.partitions)], session=session_id)
        await self._connections().ledger_client.execute(get)
        return await stored_state(self._connections(), known, get)

    @guard
    async def set_session_state(self, entity: str, session_id: str, state: str | bytes | bytearray | None) -> None:
        """Set the state of a session, or clear it, whether a receiver has it or not; it is durable when this returns.

        A receiver that has the session may set another one at any time: end its lock first (``break_lock``) if it must not.

        Args:
            entity: A queue, or ``TOPIC/Subscriptions/SUBSCRIPTION``.
            session_id: The session.
            state: The state, up to the size of a message; text is stored as UTF-8. None clears the state.

        Raises:
            TypeError: The state is neither text nor bytes nor None.
            MessageSizeExceededError: The state is too large; nothing was changed.
            InvalidOperationError: The entity has no sessions, or its name breaks a rule.
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; it is unknown whether the state was set.
        """
        known = await self._with_sessions(entity)
        value = encode_state(known, state)
        ledger = known.ledgers[partition_of(session_id, known.partitions)]
        change = SetState(ledger, "", value, session=session_id)
        await self._connections().ledger_client.execute(change)
        await stored_state(self._connections(), known, change)

    @guard
    async def dead_letter_session(
        self, entity: str, session_id: str, *, reason: str | None = None, error_description: str | None = None
    ) -> int:
        """Dead-letter all messages that wait in a session, postponed ones as well; deferred and scheduled ones stay.

        The session is locked meanwhile. If a call is cut off, what it did stays done, and another call does the rest.

        Args:
            entity: A queue, or ``TOPIC/Subscriptions/SUBSCRIPTION``.
            session_id: The session.
            reason: Why, up to 4,096 characters.
            error_description: A longer explanation, up to 4,096 characters.

        Returns:
            How many messages were dead-lettered.

        Raises:
            SessionCannotBeLockedError: A receiver has the session: ``break_lock`` ends its lock.
            InvalidOperationError: The entity has no sessions, or its name breaks a rule.
            MessagingEntityNotFoundError: There is no such entity.
            ValueError: A text is too long.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        check_reason("reason", reason)
        check_reason("error_description", error_description)
        return await self._end_rest(
            entity,
            session_id,
            lambda engine: partial(
                engine.settler.dead_letter, reason=reason, description=error_description, changes={}
            ),
        )

    @guard
    async def purge_session(self, entity: str, session_id: str) -> int:
        """Delete all messages that wait in a session, postponed ones as well; deferred and scheduled ones stay.

        See ``dead_letter_session``.

        Args:
            entity: A queue, or ``TOPIC/Subscriptions/SUBSCRIPTION``.
            session_id: The session.

        Returns:
            How many messages were deleted.

        Raises:
            SessionCannotBeLockedError: A receiver has the session: ``break_lock`` ends its lock.
            InvalidOperationError: The entity has no sessions, or its name breaks a rule.
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._end_rest(entity, session_id, lambda engine: engine.settler.complete)

    async def _end_rest(self, name: str, session_id: str, settle_with: Callable[[ReceiverEngine], Settle]) -> int:
        """Lock a session, and settle all messages that wait in it; return how many these were."""
        context, known = self._connections(), await self._with_sessions(name)
        held = HeldSession(context, known.path, session_id, None)
        engine = ReceiverEngine(
            context, known.path, ServiceBusReceiveMode.PEEK_LOCK, session=held, identifier="administration"
        )
        settle, peeker, settled, attempts = settle_with(engine), MessagePeeker(), 0, 0
        peeker.keep_to(session_id)
        try:
            await engine.open()
            while seen := await peeker.look_on(context.receiving.peek_parts, known, TAKEN_AT_ONCE):
                numbers = [message.sequence_number for message in seen if _waits(message)]
                if held.seconds_left < known.lock_ms / 2000:
                    await held.renew()
                try:
                    messages = await engine.receive_by_number(numbers) if numbers else []
                except MessageNotFoundError:
                    attempts += 1
                    if attempts == ATTEMPTS:
                        raise
                    peeker.put_back(seen)
                    continue
                await settle(engine.settler.check(messages))
                settled, attempts = settled + len(messages), 0
        finally:
            await engine.close()
        return settled

    async def _with_sessions(self, name: str) -> Entity:
        """Return an entity with sessions.

        Raises:
            InvalidOperationError: It has none, or the name breaks a rule.
            ServiceBusError: There is no such entity, or it cannot be looked up.
        """
        known = await self._with_messages(name)
        if not known.has_sessions:
            raise InvalidOperationError(
                f"{known.path} has no sessions: requires_session is set when a queue or a subscription is created"
            )
        return known


def _waits(message: ServiceBusReceivedMessage) -> bool:
    """Return whether a peeked message is neither deferred, scheduled nor locked."""
    return message.state is ServiceBusMessageState.ACTIVE and message.peeked_locked_until_utc is None
