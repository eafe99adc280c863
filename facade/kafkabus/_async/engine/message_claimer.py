"""Claiming messages for a receiver, and preparing them for its caller."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kafkabus._async.compat import on_left, run_uninterrupted
from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._async.kafka.offset_reader import LogTruncatedError
from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._async.receiving.readers import Reader
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import InvalidOperationError, MessagingEntityDisabledError, SessionLockLostError
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.settlement import by_delivery
from kafkabus._ledger.operations import Settlement
from kafkabus._ledger.ranges import offsets_of

ENDS_TOGETHER = 1.0
"""How much sooner than a wait, in seconds, a session's lock may end and the wait ends without an error all the same."""
UNREAD_AT_ONCE = 50
"""How many messages of a session are claimed at once, at the most, if their bytes are limited: their sizes are not known."""


class MessageClaimer:
    """Claims messages. A call that fails or is cancelled gives back the messages that it was granted.

    Args:
        scope: The receiver's entity and session.

    Attributes:
        peeker: The receiver's place among the messages, behind those that were claimed.
        half_lock: Half of the entity's lock duration, in seconds, at the last claim.
    """

    def __init__(self, scope: ReceiverScope) -> None:
        self._scope = scope
        self.peeker = MessagePeeker()
        self.half_lock = 0.0

    async def claim(self, count: int, wait: float, most_bytes: float) -> list[ServiceBusReceivedMessage]:
        """Claim up to ``count`` messages, waiting up to ``wait`` seconds until at least one is there.

        Args:
            count: The most messages.
            wait: The longest wait, in seconds.
            most_bytes: How many bytes of messages are claimed, if their sizes are known before.
        """
        scope, catalog = self._scope, self._scope.context.catalog
        deadline = time.monotonic() + wait
        session = scope.session
        held = session is not None and (not session.is_open or session.seconds_left > 0)
        while not scope.is_unwanted():
            entity = await scope.entity()
            _check_receivable(entity)
            left = deadline - time.monotonic()
            try:
                lock = await scope.lock_session(wait)
                left = deadline - time.monotonic()
                messages = await self._claim_from(entity, lock, count, max(0.0, left), most_bytes)
            except SessionLockLostError:
                # A wait for as long as the lock lasts, by a receiver that has nothing to settle, was in vain; it lost nothing.
                if not scope.takes or not held or time.monotonic() < deadline - ENDS_TOGETHER:
                    raise
                return []
            except LedgersReplacedError as error:
                await catalog.check_moved_on(entity, error)
                continue
            except LogTruncatedError:
                # The next round reads the log from the ledger's cursor, and so finds out where it was truncated.
                if left <= 0:
                    raise
                continue
            if messages or (left <= 0 and catalog.goes_by(entity)):
                return messages
        return []

    async def _claim_from(
        self, entity: Entity, lock: SessionLock | None, count: int, wait: float, most_bytes: float
    ) -> list[ServiceBusReceivedMessage]:
        """Claim messages of an entity, or of the session that a lock holds, and prepare them for the application.

        The wait may end before its time, and does if the entity is no longer as it was.
        """
        scope, context, take = self._scope, self._scope.context, self._scope.takes
        reader: Reader

        def is_over() -> bool:
            return scope.is_unwanted() or not context.catalog.goes_by(entity)

        if lock is None:
            reader = await context.receiving.readers.messages_of(entity)
            grants = await reader.receive(
                count, min(wait, reader.log.slice), is_over, take=take, most_bytes=most_bytes, holder=scope.holder
            )
        else:
            reader = await context.receiving.readers.sessions_of(entity)
            if most_bytes < math.inf:
                count = min(count, UNREAD_AT_ONCE)
            grants = await reader.receive_next(lock, count, min(wait, reader.log.slice), is_over)
        try:
            messages = await self.deliver(entity, grants)
        except BaseException:
            await reader.log.undelivered.put_back(grants)
            raise
        if take and messages:
            on_left(partial(put_back, reader, messages))
        return messages

    async def deliver(self, entity: Entity, grants: Sequence[Grant]) -> list[ServiceBusReceivedMessage]:
        """Return the granted messages, without those whose time to live is over and those that were delivered too often.

        Messages whose lock was over when they came, by this client's estimate, go back, and no delivery is counted.
        """
        context = self._scope.context
        self.half_lock = entity.lock_ms / 2000
        delivered: list[Grant] = []
        late: list[Grant] = []
        for grant in grants:
            if await context.dispositions.outlives(entity, grant):
                (late if self._is_late(entity, grant, late) else delivered).append(grant)
        for grant in late:
            # Before any other request to the ledger, so that it does not grant a later message of the session.
            ledger, lease = entity.ledgers[grant.delivery.partition], grant.delivery.lease
            context.ledger_client.enqueue(Settlement(ledger, "release", lease, runs_of(grant.records)))
        if self._scope.takes:
            await self._complete(entity, [grant for grant in delivered if grant.delivery.lease])
        messages: list[ServiceBusReceivedMessage] = []
        for grant in delivered:
            messages += [ServiceBusReceivedMessage(record, grant.delivery) for record in grant.records]
            if grant.records:
                self.peeker.note_received(entity, grant.delivery.partition, grant.records[-1].offset() or 0)
        return messages

    def _is_late(self, entity: Entity, grant: Grant, late: Sequence[Grant]) -> bool:
        """Return whether a lock is over, as reading took long or Redis answered late; in a session, also if others' was."""
        delivery = grant.delivery
        if not delivery.lease:
            return False
        if delivery.session and self._scope.session is not None:
            return bool(late) or self._scope.session.seconds_left <= 0
        return entity.ledgers[delivery.partition].seconds_until(delivery.expiry) <= 0

    async def _complete(self, entity: Entity, grants: Sequence[Grant]) -> None:
        """Settle messages that were leased to be read, and are received and deleted."""
        settlements = [
            Settlement(
                entity.ledgers[grant.delivery.partition], "complete", grant.delivery.lease, runs_of(grant.records)
            )
            for grant in grants
        ]
        try:
            # This call must learn which messages were settled, also if its task is cancelled.
            await run_uninterrupted(self._scope.context.ledger_client.execute(*settlements))  # type: ignore[func-returns-value, unused-ignore]
        finally:
            for grant, settlement in zip(grants, settlements, strict=True):
                if settlement.done and settlement.error is None:
                    # A message whose lock expired while it was read may be another receiver's by now; the caller has the rest.
                    lost = set(offsets_of(settlement.lost))
                    grant.records = [record for record in grant.records if record.offset() not in lost]
                    grant.delivery = replace(grant.delivery, lease="", expiry=0)


async def put_back(reader: Reader, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Give back messages that no caller has seen: other receivers may get them; received and deleted ones come again."""
    grants = [
        Grant(batch.delivery, [receipt_of(message).record for message in batch.messages])
        for batch in by_delivery(messages)
    ]
    await reader.log.undelivered.put_back(grants)


def _check_receivable(entity: Entity) -> None:
    """Look whether an entity gives messages to receivers.

    Raises:
        MessagingEntityNotFoundError: It is about to be deleted.
        MessagingEntityDisabledError: It is disabled for receivers.
        InvalidOperationError: It forwards its messages.
    """
    entity.check_in_use()
    closed_by = entity.closing_status
    if closed_by is not None:
        raise MessagingEntityDisabledError(f"{closed_by} and gives no messages")
    if entity.forwards_to is not None:
        raise InvalidOperationError(
            f"{entity.kind} {entity.path} forwards its messages to {entity.forwards_to}: receive them there"
        )
