# Generated from facade/kafkabus/_async/engine/message_settler.py by tools/generate_blocking.py. Do not edit.
"""Settling and renewing the messages that a receiver holds."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.record import Record, with_changes
from kafkabus._core.settlement import (
    DEFERRED_LIMIT,
    SettlementBatch,
    by_delivery,
    check_unsettled,
    raise_lost,
    still_there,
    too_many_deferred,
    too_much_changed,
)
from kafkabus._ledger.operations import Deferral, Ledger, Renewal, Settlement, SettlementVerb
from kafkabus._runtime import instruments
from kafkabus._sync.dispositions.disposition import delivered_too_often
from kafkabus._sync.dispositions.transaction_commit import PendingSettlement, PendingVerb
from kafkabus._sync.engine.message_delays import MessageDelays
from kafkabus._sync.engine.property_changes import PropertyChanges
from kafkabus._sync.engine.receiver_scope import ReceiverScope
from kafkabus_mapping.formats import FIRST

LOGGER = logging.getLogger("kafkabus")

S = TypeVar("S", bound=Settlement)


class MessageSettler:
    """Settles messages, renews their locks and releases them; the ledger decides whether a lock is held.

    It has no state: receipts say how far each message is settled.

    Args:
        scope: The receiver's entity and session.

    Attributes:
        changes: Reads changes of application properties.
        delays: Checks and stores for how long messages are postponed.
    """

    def __init__(self, scope: ReceiverScope) -> None:
        self._scope = scope
        self.changes = PropertyChanges(scope)
        self.delays = MessageDelays(scope)

    def check(self, messages: Sequence[ServiceBusReceivedMessage], *, renewing: bool = False) -> list[SettlementBatch]:
        """Return messages by delivery; all are checked before anything is done.

        Args:
            messages: The messages.
            renewing: Whether messages that an open transaction is to settle are accepted.

        Raises:
            ValueError: The receiver was closed, or a message is not locked, or is another entity's.
            SessionLockLostError: The session's lock was lost.
            MessageAlreadySettled: A message was settled before.
        """
        self._scope.check_open()
        session = self._scope.session
        if session is not None and session.is_lost:
            raise session.lost_error()
        batches = by_delivery(messages)
        for batch in batches:
            self._check_delivery(batch.delivery)
        check_unsettled(batches, enlisted=renewing)
        return batches

    def _check_delivery(self, delivery: Delivery) -> None:
        if self._scope.takes or not delivery.lease:
            raise ValueError(
                "the message is not locked, so it cannot be settled: it was received with RECEIVE_AND_DELETE or peeked"
            )
        if delivery.entity != self._scope.path.key:
            raise ValueError(
                f"the message was received from {delivery.entity!r}: settle it with a receiver of that "
                f"queue, not of {self._scope.entity_path!r}"
            )

    def prepare(
        self,
        verb: PendingVerb,
        batches: Sequence[SettlementBatch],
        reason: str | None = None,
        description: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> list[PendingSettlement]:
        """Return settlements for a transaction."""
        return [
            PendingSettlement(self._scope.path, verb, batch, self._raise_lost, reason, description, changes or {})
            for batch in batches
        ]

    def complete(self, batches: list[SettlementBatch]) -> None:
        """Complete messages.

        Raises:
            MessageLockLostError: Locks of some messages were lost; the others were completed.
            SessionLockLostError: The session's lock was lost.
        """
        entity = self._scope.context.catalog.entity(self._scope.path)
        self._report("complete", "completed", batches, self._settle(entity, "complete", batches))

    def abandon(self, batches: list[SettlementBatch], changes: Mapping[str, str], delay_ms: int | None = None) -> None:
        """Abandon messages; those that were delivered for the last time are dead-lettered. See ``complete``.

        Args:
            batches: The messages.
            changes: Their application properties to change.
            delay_ms: For how long they are postponed, ms; None: as the entity's retry policy says.
        """
        entity = self._scope.context.catalog.entity(self._scope.path)
        last = [batch for batch in batches if batch.delivery.count + 1 >= entity.max_deliveries]
        rest = [batch for batch in batches if batch not in last]
        if delay_ms:
            self.delays.store(entity, rest, delay_ms)
        lost = self._settle(entity, "abandon", rest, changes, delay_ms)
        if delay_ms and lost:
            self.delays.store(entity, by_delivery(lost), 0)
        for batch in last:
            reason, description = delivered_too_often(entity, batch.delivery.count + 1)
            lost += self._dead_letter(entity, [batch], reason, description, changes)
        self._report("abandon", "abandoned", batches, lost)

    def defer(self, batches: list[SettlementBatch], changes: Mapping[str, str]) -> None:
        """Defer messages; see ``complete``.

        Raises:
            ServiceBusQuotaExceededError: Too many messages of a partition are deferred already.
        """
        entity = self._scope.context.catalog.entity(self._scope.path)
        asked, lost = self._execute(
            entity,
            batches,
            lambda ledger, batch: Deferral(ledger, batch.delivery.lease, batch.ranges, DEFERRED_LIMIT, changes),
        )
        full = [deferral.ledger.partition for _, deferral in asked if deferral.full]
        for batch, deferral in asked:
            if not deferral.full and deferral.too_much is None:
                lost += batch.mark_settled(deferral.lost)
        _check_changes(entity, asked)
        if full:
            raise too_many_deferred(entity, full[0])
        self._report("defer", "deferred", batches, lost)

    @property
    def dead_letter_verb(self) -> PendingVerb:
        """How messages are dead-lettered: those of a dead-letter queue, which has no dead-letter queue, stay there."""
        return "abandon" if self._scope.path.is_dead_letter else "dead_letter"

    def dead_letter(
        self,
        batches: list[SettlementBatch],
        reason: str | None,
        description: str | None,
        changes: Mapping[str, str],
    ) -> None:
        """Dead-letter messages; see ``complete``."""
        entity = self._scope.context.catalog.entity(self._scope.path)
        verb = self.dead_letter_verb
        if verb == "dead_letter":
            lost = self._dead_letter(entity, batches, reason, description, changes)
        else:
            lost = self._settle(entity, verb, batches, changes)
        self._report("dead_letter", "dead-lettered", batches, lost)

    def renew(self, batches: list[SettlementBatch]) -> list[ServiceBusReceivedMessage]:
        """Renew the locks of messages, in one round trip; return those whose locks were lost."""
        entity = self._scope.context.catalog.entity(self._scope.path)
        asked, lost = self._execute(
            entity, batches, lambda ledger, batch: Renewal(ledger, batch.delivery.lease, batch.ranges, entity.lock_ms)
        )
        for batch, renewal in asked:
            lost += batch.mark_renewed(renewal.lost, renewal.expiry)
        return lost

    def release(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Release messages that no caller has seen, for any receiver to claim; no delivery is counted."""
        if not messages:
            return
        try:
            entity = self._scope.context.catalog.entity(self._scope.path)
            self._settle(entity, "release", by_delivery(messages))
        except ServiceBusError as error:
            LOGGER.warning("put_back entity=%s count=%d error=%s", self._scope.entity_path, len(messages), error)

    def postpone(self, batches: list[SettlementBatch], delay_ms: int) -> None:
        """Release messages that no caller has seen, and postpone them; no delivery is counted. See ``complete``.

        Raises:
            ServiceBusCommunicationError: Kafka did not store the delay; nothing was done.
        """
        entity = self._scope.context.catalog.entity(self._scope.path)
        self.delays.store(entity, batches, delay_ms, counted=0)
        lost = self._settle(entity, "release", batches, delay_ms=delay_ms)
        if lost:
            self.delays.store(entity, by_delivery(lost), 0, counted=0)
        self._report("postpone", "postponed", batches, lost)

    def seconds_left(self, message: ServiceBusReceivedMessage) -> float:
        """Return how long a message's lock still lasts, according to the ledger's clock as this client estimates it."""
        if self._scope.session is not None:
            return self._scope.session.seconds_left
        receipt = receipt_of(message)
        return self._scope.context.catalog.seconds_left(
            self._scope.path, receipt.delivery.partition, receipt.lock_until
        )

    def _execute(
        self, entity: Entity, batches: list[SettlementBatch], operation: Callable[[Ledger, SettlementBatch], S]
    ) -> tuple[list[tuple[SettlementBatch, S]], list[ServiceBusReceivedMessage]]:
        """Have an operation done for each batch, in one round trip; return these, and messages whose partition is gone."""
        context = self._scope.context
        self._scope.note_use(entity)
        there, lost = still_there(batches, entity)
        operations = [operation(entity.ledgers[batch.delivery.partition], batch) for batch in there]
        try:
            context.ledger_client.execute(*operations)
        except LedgersReplacedError as error:
            context.catalog.check_moved_on(entity, error)
            # The new ledgers know no locks of the old ones, and say so.
            return self._execute(context.catalog.entity(self._scope.path), batches, operation)
        except ServiceBusError as error:
            self._scope.report_failure("settle", error)
            raise
        return list(zip(there, operations, strict=True)), lost

    def _settle(
        self,
        entity: Entity,
        verb: SettlementVerb,
        batches: list[SettlementBatch],
        changes: Mapping[str, str] | None = None,
        delay_ms: int | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Complete, abandon or release messages; return those whose locks were lost.

        The ledger decides, in ``_ledger/lua/settle.lua``: ``operations`` has a function for each verb.
        """
        asked, lost = self._execute(
            entity,
            batches,
            lambda ledger, batch: Settlement(ledger, verb, batch.delivery.lease, batch.ranges, changes, delay_ms),
        )
        for batch, settlement in asked:
            if settlement.too_much is None:
                lost += batch.mark_settled(settlement.lost)
        _check_changes(entity, asked)
        return lost

    def _dead_letter(
        self,
        entity: Entity,
        batches: list[SettlementBatch],
        reason: str | None,
        description: str | None,
        changes: Mapping[str, str],
    ) -> list[ServiceBusReceivedMessage]:
        """Dead-letter messages; return those whose locks were lost."""
        context = self._scope.context
        kept = changes if context.descriptions.written_format > FIRST else {}
        batches, lost = still_there(batches, entity)
        for partition in sorted({batch.delivery.partition for batch in batches}):
            there = [batch for batch in batches if batch.delivery.partition == partition]
            records: dict[str, list[Record]] = defaultdict(list)
            for batch in there:
                records[batch.delivery.lease] += [
                    with_changes(receipt_of(message).record, changes) for message in batch.messages
                ]
            refused = context.transfers.dead_letter(
                entity, partition, records, reason=reason, description=description, changes=kept
            )
            for batch in there:
                lost += batch.mark_settled(refused.get(batch.delivery.lease, []))
        return lost

    def _report(
        self,
        outcome: str,
        done: str,
        batches: Sequence[SettlementBatch],
        lost: Sequence[ServiceBusReceivedMessage],
    ) -> None:
        """Report a settlement to the process's observer, and raise an error if locks were lost."""
        if instruments.observer is not None:
            count = sum(len(batch.messages) for batch in batches)
            instruments.observer.on_settlement(self._scope.entity_path, outcome, count - len(lost))
        try:
            self._raise_lost(done, lost)
        except Exception as error:
            self._scope.report_failure("settle", error)
            raise

    def _raise_lost(self, done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
        """Raise if locks were lost.

        Raises:
            MessageLockLostError: Locks of messages were lost.
            SessionLockLostError: The session's lock was lost.
        """
        if lost and self._scope.session is not None:
            raise self._scope.session.lost_error()
        raise_lost(done, lost)


def _check_changes(entity: Entity, asked: Sequence[tuple[SettlementBatch, Settlement]]) -> None:
    """Check that ledgers kept changed properties.

    Raises:
        ServiceBusQuotaExceededError: One did not, and did nothing.
    """
    for _, settlement in asked:
        if settlement.too_much is not None:
            raise too_much_changed(entity, settlement.ledger.partition, settlement.too_much)
