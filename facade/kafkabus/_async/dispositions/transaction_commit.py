"""The commit of a transaction: sends and settlements that happen together, or not at all.

In this order:

1. the messages are stored in a Kafka transaction, with a marker that says what is settled (``_produce``);
2. the ledgers take the messages that are settled out of their leases and note the marker with them (``_prepare``);
3. the Kafka transaction is committed: from here on all of it has happened (``_decide``);
4. the ledgers settle (``_settle``).

If a client dies after a step, another client, or upkeep, can finish: the marker shows whether the transaction was committed.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.transfer import EntityLog, Intent, copy_of, identity
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.ledger_marks import LedgerMarks, schedules
from kafkabus._async.kafka.producer import OutgoingRecord
from kafkabus._async.kafka.transactional_producer import Stored, TransactionalProducer
from kafkabus._async.stores.transaction_markers import Marker, Settles, TransactionMarkers
from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage, receipt_of
from kafkabus._core.record import Record, as_bytes, with_changes
from kafkabus._core.settlement import (
    DEFERRED_LIMIT,
    SettlementBatch,
    raise_lost,
    still_there,
    too_many_deferred,
    too_much_changed,
)
from kafkabus._kafka.errors import is_topic_gone
from kafkabus._ledger.operations import Ledger, Prepare, PreparedVerb, Resolve, Schedule
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus._ledger.snapshot import Change
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, encode_headers
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.transaction")

PREPARED_FOR = 15.0
"""After how many seconds another client, or upkeep, looks up the outcome of a transaction whose client did not report it."""


PendingVerb = Literal[PreparedVerb, "dead_letter"]
"""A way to settle messages in a transaction."""


class PendingSends(Protocol):
    """Messages to send to one entity, and the records that they become."""

    @property
    def entity(self) -> Entity:
        """The entity that the messages go to."""
        ...

    @property
    def outgoing(self) -> Sequence[Outgoing]:
        """The messages."""
        ...

    @property
    def records(self) -> Sequence[OutgoingRecord]:
        """Their records, each with the position of its message."""
        ...

    async def anew(self) -> PendingSends:
        """Check the messages once more, against the entity as it is now; return the checked ones."""
        ...


@dataclass(frozen=True, slots=True)
class PendingSettlement:
    """Messages of one delivery to settle.

    Attributes:
        path: The path of the entity.
        verb: The way.
        batch: The messages.
        raise_lost: Raises the error for lost locks, in the words of the receiver of the messages.
        reason: Why the messages are dead-lettered.
        description: The same in more words.
        changes: Changes of their application properties.
    """

    path: EntityPath
    verb: PendingVerb
    batch: SettlementBatch
    raise_lost: Callable[[str, Sequence[ServiceBusReceivedMessage]], None]
    reason: str | None = None
    description: str | None = None
    changes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def kept_changes(self) -> Change:
        """The changes that the ledger keeps; those of a dead-lettered message are in its copy."""
        return self.changes if self.verb in {"abandon", "defer"} else {}


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of a message for one subscription, to be stored in its topic's log."""

    entity: Entity
    records: Sequence[OutgoingRecord]
    outgoing: Sequence[Outgoing] = ()

    async def anew(self) -> _Copies:
        """Return the copies as they are."""
        return self


@dataclass(frozen=True, slots=True)
class CommitParts:
    """The parts of a client that its transactions use.

    Attributes:
        connections: The client's.
        catalog: The client's entities.
        marks: Notifies ledgers of messages before they are stored.
        markers: Looks up whether a transaction was committed.
    """

    connections: Connections
    catalog: EntityCatalog
    marks: LedgerMarks
    markers: TransactionMarkers


class TransactionCommit:
    """The commit of one transaction.

    Args:
        parts: The parts of the client that it uses.

    Attributes:
        transaction_id: A made-up id, which appears in logs and in the marker.
        sends: The messages to send.
        settlements: The messages to settle.
        done: Whether the transaction was committed, or its outcome is unknown.
    """

    def __init__(
        self,
        parts: CommitParts,
        transaction_id: str,
        sends: Sequence[PendingSends],
        settlements: Sequence[PendingSettlement],
    ) -> None:
        self.transaction_id = transaction_id
        self.sends = list(sends)
        self.settlements = settlements
        self.done = False
        self._waits_for_topic = False
        self._connections = parts.connections
        self._catalog = parts.catalog
        self._marks = parts.marks
        self._markers = parts.markers

    async def run(self) -> None:
        """Carry the transaction out.

        Raises:
            MessageLockLostError: Locks of some messages expired; nothing was done.
            SessionLockLostError: The lock of a session expired; nothing was done.
            ServiceBusQuotaExceededError: Too many messages are deferred.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; the message says what is known.
        """
        producers = self._connections.transactional_producers
        producer = await producers.borrow()
        try:
            try:
                await self._carry_out(producer)
            except ServiceBusError as error:
                if not await self._can_be_tried_again(error):
                    raise
                self._waits_for_topic = True
                await self._carry_out(producer)
        except ServiceBusError:
            raise
        except BaseException:
            producer.forget()
            raise
        finally:
            producers.give_back(producer)

    def mark(self, *, enlisted: bool = False, prepared: bool = False, settled: bool = False) -> None:
        """Note on the messages to settle how far the transaction is."""
        for settlement in self.settlements:
            for message in settlement.batch.messages:
                receipt = receipt_of(message)
                receipt.is_enlisted, receipt.is_prepared, receipt.is_settled = enlisted, prepared, settled

    async def _can_be_tried_again(self, error: ServiceBusError) -> bool:
        """Return whether nothing was done because a topic is gone, or not known everywhere yet.

        Raises:
            MessagingEntityNotFoundError: An entity is gone that the transaction sends to.
        """
        gone = is_topic_gone(error)
        if self.done or not (gone or isinstance(error, MessagingEntityNotFoundError)):
            return False
        entities = [sends.entity for sends in self.sends]
        replaced = [(await self._catalog.current(entity)).generation != entity.generation for entity in entities]
        return gone or any(replaced)

    async def _carry_out(self, producer: TransactionalProducer) -> None:
        entities = {settlement.path.key: await self._catalog.entity(settlement.path) for settlement in self.settlements}
        for sends in self.sends:
            if sends.entity.partitions > 1:
                # A broker does not answer a transaction's record for a partition that is gone.
                await self._catalog.current(sends.entity)
        self.sends = [await sends.anew() for sends in self.sends]
        await self._announce()
        await producer.begin()
        prepares: list[Prepare] = []
        try:
            marker, stored = await self._produce(producer, entities)
            prepares = self._prepares(marker, entities)
            await self._prepare(prepares, entities)
        except BaseException as error:
            # The commit was never requested, so it never happens: no caller needs to know how the transaction ended.
            await self._give_up(producer, prepares, wait=not isinstance(error, ServiceBusCommunicationError))
            raise
        await self._decide(producer, marker, prepares)
        await self._settle(prepares, stored)

    async def _announce(self) -> None:
        """Notify ledgers, before messages are stored, of what a receiver that is granted one must know."""
        for sends in self.sends:
            partitions = {record.partition for record in sends.records}
            await self._marks.mark(sends.entity, partitions, "transacts")
            await self._marks.announce(sends.entity, sends.outgoing, partitions)

    # The steps, one by one, so that a test may stop after any of them.

    async def _produce(
        self, producer: TransactionalProducer, entities: dict[str, Entity]
    ) -> tuple[Marker, list[Stored]]:
        """Store sent messages, copies of dead-lettered ones, and the marker; return it, and the places of the sent messages."""
        records = [(sends.entity.topic, record) for sends in self.sends for record in sends.records]
        sent = len(records)
        for settlement in self.settlements:
            if settlement.verb == "dead_letter":
                records += await self._copies(settlement, entities[settlement.path.key])
        settles = [
            Settles(
                entity.ledgers[settlement.batch.delivery.partition].keys.prefix,
                _ledger_verb(settlement.verb),
                settlement.batch.ranges,
                settlement.kept_changes,
            )
            for settlement in self.settlements
            if settlement.batch.delivery.partition < (entity := entities[settlement.path.key]).partitions
        ]
        # The marker last: a reader that sees it sees the others.
        records.append(await self._markers.make(self.transaction_id, settles))
        stored = await producer.send(records, waits_for_topic=self._waits_for_topic)
        return Marker(stored[-1].offset, self.transaction_id), stored[:sent]

    async def _prepare(self, prepares: Sequence[Prepare], entities: dict[str, Entity]) -> None:
        """Take the messages that are settled out of their leases.

        Raises:
            MessageLockLostError: Locks of some messages expired; nothing was done.
            SessionLockLostError: The lock of a session expired; nothing was done.
            ServiceBusQuotaExceededError: Too many messages are deferred.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        # From now on the client does not renew their locks.
        self.mark(enlisted=True, prepared=True)
        await self._connections.ledger_client.execute(*prepares)
        gone: dict[tuple[Ledger, str], list[Range]] = defaultdict(list)
        for prepare in prepares:
            for (_, lease, _, _), lost in zip(prepare.items, prepare.lost, strict=True):
                gone[prepare.ledger, lease] += lost
        for settlement in self.settlements:
            entity = entities[settlement.path.key]
            there, lost_messages = still_there([settlement.batch], entity)
            for held in there:
                lost_messages += held.split_lost(gone[entity.ledgers[held.delivery.partition], held.delivery.lease])[1]
            settlement.raise_lost("settled, and nothing else of the transaction was done", lost_messages)
        too_much = {prepare.ledger: prepare.too_much for prepare in prepares if prepare.too_much is not None}
        full = {prepare.ledger for prepare in prepares if prepare.full}
        for entity in entities.values():
            for ledger in full.intersection(entity.ledgers):
                raise too_many_deferred(entity, ledger.partition)
            for ledger in too_much.keys() & {*entity.ledgers}:
                raise too_much_changed(entity, ledger.partition, too_much[ledger])

    async def _decide(self, producer: TransactionalProducer, marker: Marker, prepares: Sequence[Prepare]) -> None:
        """Commit the Kafka transaction; if it is unknown whether that was done, find out.

        Raises:
            ServiceBusCommunicationError: The transaction was not committed, or that is still unknown.
        """
        try:
            await producer.commit()
        except ServiceBusError as error:
            try:
                await producer.reset()
                committed = await self._markers.wait_for(marker)
            except ServiceBusError as unknown:
                self.done = True
                raise ServiceBusCommunicationError(
                    f"whether transaction {self.transaction_id} was committed is unknown, as Kafka cannot be asked: all of it "
                    f"was done, or nothing, and its messages are available again then ({unknown})",
                    error=error,
                ) from error
            if not committed:
                await self._take_back(prepares, wait=True)
                raise ServiceBusCommunicationError(
                    f"transaction {self.transaction_id} was not committed, and nothing of it was done: {error}",
                    error=error,
                ) from error
        self.done = True

    async def _settle(self, prepares: Sequence[Prepare], stored: Sequence[Stored]) -> None:
        """Settle the prepared messages, and report the scheduled ones; if this fails, a later client, or upkeep, does it."""
        operations = [*_resolves(prepares, committed=True), *self._schedules(stored)]
        try:
            await self._connections.ledger_client.execute(*operations)
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_unsettled transaction=%s: it is committed, and the next receiver, or upkeep, settles it: %s",
                self.transaction_id,
                error,
            )

    async def _give_up(self, producer: TransactionalProducer, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """Abort the transaction, so that nothing of it happens."""
        try:
            await producer.abort()
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_open transaction=%s: the broker aborts it after a while: %s", self.transaction_id, error
            )
        await self._take_back(prepares, wait=wait)

    async def _take_back(self, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """Lock the messages as they were: at once if ``wait``, else with the next requests to the ledgers."""
        resolves = _resolves(prepares, committed=False)
        if not wait:
            for resolve in resolves:
                self._connections.ledger_client.enqueue(resolve)
            return
        try:
            await self._connections.ledger_client.execute(*resolves)
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_prepared transaction=%s: its messages come again after a while: %s",
                self.transaction_id,
                error,
            )

    async def _copies(self, settlement: PendingSettlement, entity: Entity) -> list[tuple[str, OutgoingRecord]]:
        """Return topics and records of the copies of dead-lettered messages."""
        partition = settlement.batch.delivery.partition
        if partition >= entity.partitions:
            return []
        source, letters = EntityLog(entity, partition), await self._catalog.entity(entity.path.dead_letter)
        await self._marks.mark(letters, [partition], "transacts")
        destination = EntityLog(letters, partition)
        intent = Intent(0, settlement.reason, settlement.description)
        return [
            (
                destination.entity.topic,
                copy_of(with_changes(receipt_of(message).record, settlement.changes), source, destination, intent),
            )
            for message in settlement.batch.messages
        ]

    def _prepares(self, marker: Marker, entities: dict[str, Entity]) -> list[Prepare]:
        """Return the operation by which each ledger prepares its settlements."""
        items: dict[Ledger, dict[tuple[PreparedVerb, str, tuple[tuple[str, str], ...]], list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for settlement in self.settlements:
            delivery, entity = settlement.batch.delivery, entities[settlement.path.key]
            if delivery.partition < entity.partitions:
                offsets = offsets_of(settlement.batch.ranges)
                ledger = entity.ledgers[delivery.partition]
                changes = tuple(settlement.kept_changes.items())
                items[ledger][_ledger_verb(settlement.verb), delivery.lease, changes] += offsets
        return [
            Prepare(
                ledger,
                [
                    (verb, lease, merge_offsets(offsets), dict(change))
                    for (verb, lease, change), offsets in prepared.items()
                ],
                marker.to_text(),
                int(PREPARED_FOR * 1000),
                DEFERRED_LIMIT,
            )
            for ledger, prepared in items.items()
        ]

    def _schedules(self, stored: Sequence[Stored]) -> list[Schedule]:
        """Return the operations that report to ledgers which of the stored messages are scheduled."""
        operations: list[Schedule] = []
        places = iter(stored)
        for sends in self.sends:
            by_position = {record.position: next(places) for record in sends.records}
            operations += schedules(sends.entity, sends.outgoing, by_position.get)
        return operations


async def replace_by_copies(
    parts: CommitParts, entity: Entity, delivery: Delivery, record: Record, envelopes: Sequence[Envelope]
) -> None:
    """Settle a message of a subscription and store the copies that its rules made of it, for it alone; both or neither.

    Args:
        parts: The parts of the client that the transaction uses.
        entity: The subscription.
        delivery: The delivery whose lease holds the message.
        record: The message's record.
        envelopes: The properties of each copy.

    Raises:
        MessageLockLostError: The lease does not hold the message any more; nothing was done.
        ServiceBusCommunicationError: Kafka or Redis cannot be reached; the message comes again, or its copies do.
    """
    topic, batch = await parts.catalog.entity(entity.log_path), SettlementBatch(delivery)
    batch.messages.append(ServiceBusReceivedMessage(record, delivery))
    source = identity(entity.ledgers[delivery.partition], record.offset() or 0)
    noted = [(h.TRANSFER_SOURCE, source.encode()), (h.ADDRESSED_TO, entity.path.key.encode())]
    body, key = as_bytes(record.value()), record.key()
    copies = [
        OutgoingRecord(delivery.partition, key, body, [*encode_headers(envelope), *noted]) for envelope in envelopes
    ]
    settlement = PendingSettlement(entity.path, "complete", batch, raise_lost)
    await TransactionCommit(parts, uuid.uuid4().hex, [_Copies(topic, copies)], [settlement]).run()


def _ledger_verb(verb: PendingVerb) -> PreparedVerb:
    """Return the ledger's verb: a message that is dead-lettered is complete here, as its copy is stored elsewhere."""
    return "complete" if verb == "dead_letter" else verb


def _resolves(prepares: Sequence[Prepare], *, committed: bool) -> list[Resolve]:
    return [
        Resolve(
            prepare.ledger,
            merge_offsets(offset for _, _, ranges, _ in prepare.items for offset in offsets_of(ranges)),
            prepare.transaction,
            committed=committed,
        )
        for prepare in prepares
    ]
