# Generated from facade/kafkabus/_async/engine/waiting_claimer.py by tools/generate_blocking.py. Do not edit.
"""Claiming waiting messages by their sequence numbers, out of their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageNotFoundError, ServiceBusQuotaExceededError
from kafkabus._core.fetch_plan import sweeps
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._core.record import Record, enqueue_time_of, session_of
from kafkabus._ledger.operations import Seize, new_lease
from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus._sync.engine.numbered_claimer import NumberedClaimer
from kafkabus._sync.receiving.session_reader import SessionLock
from kafkabus._sync.stores.changed_properties import as_changed
from kafkabus_mapping.numbers import sequence_number as number_of

MOST_NUMBERS = 1_000
"""How many sequence numbers one call may name."""
FILED_WITHIN = 30.0
"""How long, in seconds, filing the messages of a session's partition may take that come before the wanted ones."""
READ_AT_ONCE = 100
"""How many offsets are read in one go."""
AHEAD_LIMIT = 10_000
"""How many messages of a partition may be received by number that no receiver has come to yet; the ledger remembers each."""


class WaitingClaimer(NumberedClaimer):
    """Claims messages that wait; of other messages, no delivery is counted.

    A message may lie beyond the cursor of its ledger, that is, never have been granted: its record is read first, to know that
    it is a message of the entity, and claims leave it out from then on.
    """

    @override
    def missing_error(self, entity: Entity, numbers: Sequence[int]) -> MessageNotFoundError:
        """Return the error that says that numbers name no messages that wait."""
        return MessageNotFoundError(
            f"{entity.path}: no messages with sequence numbers {list(numbers[:10])} wait: there are none, or they are settled, "
            "locked by another receiver, deferred, scheduled, or of another session: look with peek_messages. Nothing was "
            "received"
        )

    @override
    def _claim_places(
        self, entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None
    ) -> list[ServiceBusReceivedMessage]:
        """Lock waiting messages and return them.

        Raises:
            MessageNotFoundError: A number names no message that waits.
            OperationTimeoutError: The messages before that of a session could not be looked at in time.
            ServiceBusQuotaExceededError: Too many messages of a partition were received out of their order.
            SessionLockLostError: The receiver's session lock has expired.
        """
        context = self._scope.context
        if entity.subscription_filter is not None:
            # By rules that were changed since, no message beyond the cursor could be chosen.
            entity = context.catalog.entity_anew(entity)
        reader = context.receiving.readers.reader_of(entity)
        context.duplicate_scan.scan_all(entity, list(wanted))
        records = self._read(entity, wanted, lock)
        if lock is not None:
            # A message that goes back before earlier ones are filed would come before them.
            sessions = context.receiving.readers.sessions_of(entity)
            ends = {partition: max(offsets) + 1 for partition, offsets in wanted.items()}
            sessions.file_upto(ends, FILED_WITHIN)
        seizes = [
            _seize_of(entity, partition, offsets, lock, self._scope.holder) for partition, offsets in wanted.items()
        ]
        context.ledger_client.execute(*seizes)
        releases = [seize.undo() for seize in seizes if seize.again]
        grants: list[Grant] = []
        try:
            self._check_granted(entity, wanted, seizes)
            grants += [grant for seize in seizes for grant in self._grants_of(entity, seize, records, lock)]
            return self._deliver(entity, reader, grants)
        except BaseException:
            self._give_back(reader, releases, grants)
            raise

    def _read(
        self, entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None
    ) -> dict[tuple[int, int], Record]:
        """Return the records of messages, as a receiver gets them, by partition and offset.

        Raises:
            MessageNotFoundError: Some are no messages of the entity, or of another session.
        """
        found: dict[tuple[int, int], Record] = {}
        ends = self._scope.context.topics.ends(entity.topic, list(wanted))
        for partition, offsets in wanted.items():
            stored_ones = {offset for offset in offsets if offset < ends[partition]}
            for sweep in sweeps(merge_offsets(stored_ones), lambda run: run, at_once=READ_AT_ONCE):
                stored = self._scope.context.stores.archive.read_as_stored(entity, partition, sweep[0][0], sweep[-1][1])
                for record in entity.select_received(stored):
                    is_wanted = record.offset() in stored_ones and enqueue_time_of(record) is None
                    if is_wanted and (lock is None or session_of(record) == lock.session):
                        found[partition, record.offset() or 0] = record
        missing = [
            number_of(partition, offset)
            for partition, offsets in wanted.items()
            for offset in offsets
            if (partition, offset) not in found
        ]
        if missing:
            raise self.missing_error(entity, missing)
        return found

    def _check_granted(self, entity: Entity, wanted: Mapping[int, list[int]], seizes: Sequence[Seize]) -> None:
        """Check that all messages were locked, and none was deferred.

        Raises:
            MessageNotFoundError: Some are settled, deferred, or locked by another receiver.
            ServiceBusQuotaExceededError: Too many messages of a partition were received out of their order.
            SessionLockLostError: The session's lock has expired.
        """
        if self._scope.session is not None and any(seize.gone for seize in seizes):
            raise self._scope.session.lost_error()
        full = [seize.ledger.partition for seize in seizes if seize.full]
        if full:
            raise ServiceBusQuotaExceededError(
                f"{entity.path}, partition {full[0]}: more than {AHEAD_LIMIT:,} messages would be received by their numbers "
                "that no receiver has come to yet; receive the messages before them first. Nothing was received"
            )
        missing: list[int] = []
        for seize in seizes:
            partition = seize.ledger.partition
            locked = set(offsets_of([(first, last) for first, last, _, deferred in seize.again if not deferred]))
            missing += [number_of(partition, offset) for offset in wanted[partition] if offset not in locked]
        if missing:
            raise self.missing_error(entity, missing)

    def _grants_of(
        self, entity: Entity, seize: Seize, records: Mapping[tuple[int, int], Record], lock: SessionLock | None
    ) -> list[Grant]:
        """Return the messages that were locked, as their ledger changed them."""
        partition, grants = seize.ledger.partition, list[Grant]()
        for first, last, count, _ in seize.again:
            delivery = entity.delivery(
                partition,
                seize.lease,
                seize.expiry if lock is None else lock.expiry,
                count,
                session=lock is not None,
            )
            found = [records[partition, offset] for offset in range(first, last + 1)]
            changed = as_changed(self._scope.context.connections, seize.ledger, found)
            grants.append(Grant(delivery, changed))
        return grants


def _seize_of(
    entity: Entity, partition: int, offsets: Sequence[int], lock: SessionLock | None, holder: str | None
) -> Seize:
    return Seize(
        entity.ledgers[partition],
        new_lease() if lock is None else lock.lease,
        merge_offsets(offsets),
        entity.lock_ms,
        rules=entity.rules_version,
        session=None if lock is None else lock.lease,
        ahead_limit=AHEAD_LIMIT,
        by=holder,
    )
