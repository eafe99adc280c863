"""Claiming deferred messages by their sequence numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from kafkabus._async.compat import on_left
from kafkabus._async.engine.message_claimer import MessageClaimer, put_back
from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._async.receiving.readers import Reader
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import MessageNotFoundError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._core.record import session_of
from kafkabus._ledger.operations import Recall, new_lease
from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus_mapping.numbers import sequence_number as number_of
from kafkabus_mapping.numbers import split_sequence_number


class DeferredClaimer:
    """Claims deferred messages, all that a call names or none. A call that fails gives back what it was granted.

    Args:
        scope: The receiver's entity and session.
        claimer: Prepares granted messages for the caller.
    """

    def __init__(self, scope: ReceiverScope, claimer: MessageClaimer) -> None:
        self._scope = scope
        self._claimer = claimer

    async def claim(self, entity: Entity, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Lock the deferred messages of some sequence numbers and read them; expired ones are left out.

        Raises:
            MessageNotFoundError: A number names no deferred message.
        """
        wanted: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            partition, offset = _place_of(number, entity)
            wanted[partition].append(offset)
        try:
            return await self._recall(entity, wanted)
        except LedgersReplacedError as error:
            await self._scope.context.catalog.check_moved_on(entity, error)
            return await self._recall(await self._scope.entity(), wanted)

    async def _recall(self, entity: Entity, wanted: Mapping[int, list[int]]) -> list[ServiceBusReceivedMessage]:
        """Lock deferred messages and read them; expired ones go where expired messages go."""
        scope, context = self._scope, self._scope.context
        await scope.note_use(entity)
        lock = await scope.lock_session(None)
        if lock is not None and wanted.keys() - {lock.partition}:
            raise not_deferred_error(entity, [number_of(where, offset) for where in wanted for offset in wanted[where]])
        recalls = _recalls_of(entity, wanted, lock)
        reader = await context.receiving.readers.reader_of(entity)
        await context.ledger_client.execute(*recalls)
        if scope.session is not None and any(recall.gone for recall in recalls):
            raise scope.session.lost_error()
        releases = [recall.undo() for recall in recalls if recall.again]
        if len(releases) < len(recalls):
            if releases:
                await context.ledger_client.execute(*releases)
            missing = [
                number_of(recall.ledger.partition, offset)
                for recall in recalls
                for offset in offsets_of(recall.missing)
            ]
            raise not_deferred_error(entity, missing)
        grants: list[Grant] = []
        try:
            if any(recall.stale_rules for recall in recalls):
                entity = await context.catalog.entity_anew(entity)
                reader.log.follow(entity)
            for recall in recalls:
                grants += await self._read(entity, reader, recall)
            if lock is not None:
                _check_session(entity, grants, lock.session)
            messages = await self._claimer.deliver(entity, grants)
            on_left(partial(put_back, reader, messages))
            return messages
        except BaseException:
            for release in releases:
                context.ledger_client.enqueue(release)
            # Messages that are settled and were not handed out come with the next call that receives.
            await reader.log.undelivered.put_back([grant for grant in grants if not grant.delivery.lease])
            raise

    async def _read(self, entity: Entity, reader: Reader, recall: Recall) -> list[Grant]:
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
            records = await reader.log.read_again(delivery, [(first, last)])
            changed = await as_changed(self._scope.context.connections, recall.ledger, records)
            grants.append(Grant(delivery, changed))
        return grants


def _recalls_of(entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None) -> list[Recall]:
    """Return the operation that locks the messages of each partition, with the session's lease if there is one."""
    return [
        Recall(
            entity.ledgers[partition],
            new_lease() if lock is None else lock.lease,
            merge_offsets(offsets),
            entity.lock_ms,
            session=lock is not None,
            rules=entity.rules_version,
        )
        for partition, offsets in wanted.items()
    ]


def _check_session(entity: Entity, grants: Sequence[Grant], session: str) -> None:
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
        raise not_deferred_error(entity, strangers)


def _place_of(number: int, entity: Entity) -> tuple[int, int]:
    """Return the partition and the offset of a sequence number."""
    try:
        partition, offset = split_sequence_number(number)
    except ValueError as error:
        raise MessageNotFoundError(str(error), error=error) from error
    if partition >= entity.partitions:
        raise not_deferred_error(entity, [number])
    return partition, offset


def not_deferred_error(entity: Entity, numbers: Sequence[int]) -> MessageNotFoundError:
    """Return the error that says that numbers name no deferred messages."""
    return MessageNotFoundError(
        f"{entity.path}: no deferred messages with sequence numbers {list(numbers[:10])}: they were never deferred, are locked "
        "by another receiver, or are settled; nothing was received"
    )
