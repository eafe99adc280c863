# Generated from facade/kafkabus/_async/engine/deferred_claimer.py by tools/generate_blocking.py. Do not edit.
"""Claiming deferred messages by their sequence numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageNotFoundError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._core.record import session_of
from kafkabus._ledger.operations import Recall, new_lease
from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus._sync.engine.numbered_claimer import NumberedClaimer
from kafkabus._sync.receiving.readers import Reader
from kafkabus._sync.receiving.session_reader import SessionLock
from kafkabus._sync.stores.changed_properties import as_changed
from kafkabus_mapping.numbers import sequence_number as number_of


class DeferredClaimer(NumberedClaimer):
    """Claims deferred messages."""

    @override
    def missing_error(self, entity: Entity, numbers: Sequence[int]) -> MessageNotFoundError:
        """Return the error that says that numbers name no deferred messages."""
        return MessageNotFoundError(
            f"{entity.path}: no deferred messages with sequence numbers {list(numbers[:10])}: they were never deferred, are "
            "locked by another receiver, or are settled; nothing was received"
        )

    @override
    def _claim_places(
        self, entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None
    ) -> list[ServiceBusReceivedMessage]:
        """Lock deferred messages and read them; expired ones go where expired messages go."""
        scope, context = self._scope, self._scope.context
        recalls = _recalls_of(entity, wanted, lock, self._scope.holder)
        reader = context.receiving.readers.reader_of(entity)
        context.ledger_client.execute(*recalls)
        if scope.session is not None and any(recall.gone for recall in recalls):
            raise scope.session.lost_error()
        releases = [recall.undo() for recall in recalls if recall.again]
        if len(releases) < len(recalls):
            if releases:
                context.ledger_client.execute(*releases)
            missing = [
                number_of(recall.ledger.partition, offset)
                for recall in recalls
                for offset in offsets_of(recall.missing)
            ]
            raise self.missing_error(entity, missing)
        grants: list[Grant] = []
        try:
            if any(recall.stale_rules for recall in recalls):
                entity = context.catalog.entity_anew(entity)
                reader.log.follow(entity)
            for recall in recalls:
                grants += self._read(entity, reader, recall)
            if lock is not None:
                self._check_session(entity, grants, lock.session)
            return self._deliver(entity, reader, grants)
        except BaseException:
            self._give_back(reader, releases, grants)
            raise

    def _read(self, entity: Entity, reader: Reader, recall: Recall) -> list[Grant]:
        """Read messages that were locked."""
        grants: list[Grant] = []
        for first, last, count in recall.again:
            delivery = entity.delivery(
                recall.ledger.partition,
                recall.lease,
                recall.expiry,
                count,
                deferred=True,
                session=self._scope.session is not None,
            )
            records = reader.log.read_again(delivery, [(first, last)])
            changed = as_changed(self._scope.context.connections, recall.ledger, records)
            grants.append(Grant(delivery, changed))
        return grants

    def _check_session(self, entity: Entity, grants: Sequence[Grant], session: str) -> None:
        """Check that deferred messages are of the session, which is known only once they were read.

        Raises:
            MessageNotFoundError: Some are of another session.
        """
        strangers = [
            number_of(grant.delivery.partition, record.offset() or 0)
            for grant in grants
            for record in grant.records
            if session_of(record) != session
        ]
        if strangers:
            raise self.missing_error(entity, strangers)


def _recalls_of(
    entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None, holder: str | None
) -> list[Recall]:
    """Return the operation that locks the messages of each partition, with the session's lease if there is one."""
    return [
        Recall(
            entity.ledgers[partition],
            new_lease() if lock is None else lock.lease,
            merge_offsets(offsets),
            entity.lock_ms,
            session=lock is not None,
            rules=entity.rules_version,
            by=holder,
        )
        for partition, offsets in wanted.items()
    ]
