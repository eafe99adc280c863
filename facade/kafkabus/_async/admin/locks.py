"""The locks of an entity's messages and sessions: who has them, and how operators end them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kafkabus._async.admin.base import check_name
from kafkabus._async.admin.clients import ClientAdministration
from kafkabus._async.compat import guard
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import InvalidOperationError, MessageNotFoundError
from kafkabus._core.message_lock import MessageLock, locks_of
from kafkabus._ledger.operations import BreakLock, ListLocks
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath, check_path
from kafkabus_mapping.numbers import split_sequence_number

LISTED_AT_ONCE = 1_000
"""How many ranges of locked messages a ledger lists at a time, during which Redis does nothing else."""


class LockAdministration(ClientAdministration):
    """Administers the locks of messages and sessions."""

    @guard
    async def list_locks(self, entity: str) -> AsyncIterator[MessageLock]:
        """Yield the locks of an entity's messages and sessions, partition by partition, as they are now.

        Azure Service Bus shows no locks.

        Args:
            entity: A queue, ``TOPIC/Subscriptions/SUBSCRIPTION``, or one of these with ``/$DeadLetterQueue``.

        Raises:
            InvalidOperationError: The name breaks a rule, or names a topic.
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = await self._with_messages(entity)
        for partition, ledger in enumerate(known.ledgers):
            listed = ListLocks(ledger, 0, LISTED_AT_ONCE)
            await self._connections().ledger_client.execute(listed)
            found, sessions = listed.found, listed.sessions
            while listed.has_more:
                listed = ListLocks(ledger, found[-1].last + 1, LISTED_AT_ONCE)
                await self._connections().ledger_client.execute(listed)
                found += listed.found
            for lock in locks_of(partition, found, sessions):  # aio-only
                yield lock  # aio-only
            # blocking: yield from locks_of(partition, found, sessions)

    @guard
    async def break_lock(
        self, entity: str, sequence_number: int | None = None, *, session_id: str | None = None
    ) -> None:
        """End the lock of one message, or of a session and all messages that were received of it.

        It is as if the lock had expired: a delivery is counted, the message is available again, or postponed by the entity's
        retry policy, and the receiver that had the lock can settle nothing of it any more. Other messages that were received
        together stay locked. Azure Service Bus cannot do this.

        Args:
            entity: A queue, ``TOPIC/Subscriptions/SUBSCRIPTION``, or one of these with ``/$DeadLetterQueue``.
            sequence_number: The message's sequence number.
            session_id: The session, in place of a message.

        Raises:
            ValueError: Neither a message nor a session is given, or both are, or the number names no message.
            MessageNotFoundError: The message or the session is not locked.
            InvalidOperationError: The message is locked by its session's lock, the name breaks a rule, or names a topic.
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if (sequence_number is None) == (session_id is None):
            raise ValueError("give a sequence number, or session_id=: one lock is broken at a time; nothing was done")
        known = await self._with_messages(entity)
        target: int | str
        if session_id is not None:
            partition, target = partition_of(session_id, known.partitions), session_id
            what = f"session {session_id!r}"
        else:
            partition, target = split_sequence_number(sequence_number or 0)
            what = f"message {sequence_number}"
            if partition >= known.partitions:
                raise MessageNotFoundError(f"{known.path}: {what} is not there: it has {known.partitions} partitions")
        broken = BreakLock(known.ledgers[partition], target)
        await self._connections().ledger_client.execute(broken)
        if broken.session is not None:
            raise InvalidOperationError(
                f"{known.path}: {what} is locked by the lock of session {broken.session!r}: break that, with session_id=; "
                "nothing was done"
            )
        if not broken.is_broken:
            raise MessageNotFoundError(
                f"{known.path}: {what} is not locked, or no longer; list_locks shows the locks; nothing was done"
            )

    async def _with_messages(self, name: str) -> Entity:
        """Return an entity that messages are received from.

        Raises:
            InvalidOperationError: The name breaks a rule, or names a topic.
            ServiceBusError: There is no such entity, or it cannot be looked up.
        """
        path = EntityPath.parse(check_name(check_path, name))
        known = await self._connections().catalog.entity(path)
        if known.is_topic:
            raise InvalidOperationError(
                f"{path} is a topic, and its subscriptions have its messages: name one, as {path}/Subscriptions/NAME"
            )
        return known
