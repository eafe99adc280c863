"""Carrying out a transaction: sends and settlements that happen together, or not at all.

In this order:

1. the messages are stored in a Kafka transaction, with a marker that says what is settled (``_produce``);
2. the ledgers take the messages that are settled out of their leases and note the marker with them (``_prepare``);
3. the Kafka transaction is committed: from here on all of it has happened (``_decide``);
4. the ledgers settle (``_settle``).

Who dies after a step leaves what anybody can finish: whether a transaction was committed is told by its marker.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.transfer import Intent, Place, copy_of, identity
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.ledger_marks import LedgerMarks, schedules
from kafkabus._async.kafka.producer import OutgoingRecord
from kafkabus._async.kafka.transactional_producer import Stored, TransactionalProducer
from kafkabus._async.stores.transaction_markers import Marker, Settles, TransactionMarkers
from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage
from kafkabus._core.record import Record, as_bytes
from kafkabus._core.settlement import DEFERRED_LIMIT, SettlementBatch, raise_lost, still_there, too_many_deferred
from kafkabus._ledger.operations import Ledger, Prepare, Resolve, Schedule
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, encode_headers
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.transaction")

PREPARED_FOR = 15.0
"""After how many seconds somebody else looks what became of a transaction whose client did not say so."""


class PendingSends(Protocol):
    """Messages to send to one entity, and the records that they become."""

    @property
    def entity(self) -> Entity:
        """Where they go."""
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
        """Checked once more, against what the entity is like now."""
        ...


@dataclass(frozen=True, slots=True)
class PendingSettlement:
    """Messages of one delivery to settle.

    Attributes:
        path: Of the entity.
        verb: ``complete``, ``abandon``, ``defer`` or ``dead_letter``.
        batch: The messages.
        raise_lost: Says that locks were lost, as who holds the messages says it.
        reason: Why they are dead-lettered.
        description: The same in more words.
    """

    path: EntityPath
    verb: str
    batch: SettlementBatch
    raise_lost: Callable[[str, Sequence[ServiceBusReceivedMessage]], None]
    reason: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of a message for one subscription, to be stored in its topic's log."""

    entity: Entity
    records: Sequence[OutgoingRecord]
    outgoing: Sequence[Outgoing] = ()

    async def anew(self) -> _Copies:
        """They are what they were."""
        return self


@dataclass(frozen=True, slots=True)
class CommitParts:
    """The parts of a client that its transactions use.

    Attributes:
        connections: The client's.
        catalog: The client's entities.
        marks: Tells ledgers of messages before they are stored.
        markers: Tells whether a transaction was committed.
    """

    connections: Connections
    catalog: EntityCatalog
    marks: LedgerMarks
    markers: TransactionMarkers


class TransactionCommit:
    """One transaction that is carried out.

    Args:
        parts: The parts of the client that it uses.

    Attributes:
        transaction_id: Made up, for logs.
        sends: What it sends.
        settlements: What it settles.
        done: Whether it was committed, or nobody knows.
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
        self._connections = parts.connections
        self._catalog = parts.catalog
        self._marks = parts.marks
        self._markers = parts.markers

    async def run(self) -> None:
        """Carry it out.

        Raises:
            MessageLockLostError: Locks of some messages expired; nothing was done.
            SessionLockLostError: That of a session.
            ServiceBusQuotaExceededError: Too many messages are deferred.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; the message says what is known.
        """
        producers = self._connections.transactional_producers
        producer = producers.borrow()
        try:
            await self._carry_out(producer)
        except ServiceBusError:
            raise
        except BaseException:
            producer.forget()
            raise
        finally:
            producers.give_back(producer)

    def mark(self, *, enlisted: bool = False, prepared: bool = False, settled: bool = False) -> None:
        """Have the messages that it settles tell how far it is."""
        for one in self.settlements:
            for message in one.batch.messages:
                message._enlisted, message._prepared, message._settled = enlisted, prepared, settled

    async def _carry_out(self, producer: TransactionalProducer) -> None:
        entities = {one.path.key: await self._catalog.entity(one.path) for one in self.settlements}
        self.sends = [await one.anew() for one in self.sends]
        await self._announce()
        await producer.begin()
        prepares: list[Prepare] = []
        try:
            marker, stored = await self._produce(producer, entities)
            prepares = self._prepares(marker, entities)
            await self._prepare(prepares, entities)
        except BaseException as error:
            # It was never asked to be committed, so it never will be: nobody needs to know how its end went.
            await self._give_up(producer, prepares, wait=not isinstance(error, ServiceBusCommunicationError))
            raise
        await self._decide(producer, marker, prepares)
        await self._settle(prepares, stored)

    async def _announce(self) -> None:
        """What whoever is granted one of the messages must know before it is stored."""
        for one in self.sends:
            partitions = {record.partition for record in one.records}
            await self._marks.mark(one.entity, partitions, "transacts")
            await self._marks.announce(one.entity, one.outgoing, partitions)

    # The steps, one by one, so that a test may stop after any of them.

    async def _produce(
        self, producer: TransactionalProducer, entities: dict[str, Entity]
    ) -> tuple[Marker, list[Stored]]:
        """Store what is sent, copies of what is dead-lettered, and the marker; returns that, and where the former stand."""
        records = [(one.entity.topic, record) for one in self.sends for record in one.records]
        sent = len(records)
        for one in self.settlements:
            if one.verb == "dead_letter":
                records += await self._copies(one, entities[one.path.key])
        settles = [
            Settles(entity.ledgers[one.batch.delivery.partition].keys.prefix, _ledger_verb(one.verb), one.batch.ranges)
            for one in self.settlements
            if one.batch.delivery.partition < (entity := entities[one.path.key]).partitions
        ]
        # The marker last: whoever sees it sees the others.
        records.append(await self._markers.make(self.transaction_id, settles))
        stored = await producer.send(records)
        return Marker(stored[-1].offset, self.transaction_id), stored[:sent]

    async def _prepare(self, prepares: Sequence[Prepare], entities: dict[str, Entity]) -> None:
        """Take the messages that are settled out of their leases.

        Raises:
            MessageLockLostError: Locks of some expired; nothing was done.
            SessionLockLostError: That of a session.
            ServiceBusQuotaExceededError: Too many messages are deferred.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        # Nobody renews their locks meanwhile.
        self.mark(enlisted=True, prepared=True)
        await self._connections.ledger_client.execute(*prepares)
        gone: dict[tuple[Ledger, str], list[Range]] = defaultdict(list)
        for prepare in prepares:
            for (_, lease, _), lost in zip(prepare.items, prepare.lost, strict=True):
                gone[prepare.ledger, lease] += lost
        for one in self.settlements:
            entity = entities[one.path.key]
            there, lost_messages = still_there([one.batch], entity)
            for held in there:
                lost_messages += held.without(gone[entity.ledgers[held.delivery.partition], held.delivery.lease])[1]
            one.raise_lost("settled, and nothing else of the transaction was done", lost_messages)
        full = {prepare.ledger for prepare in prepares if prepare.full}
        for entity in entities.values():
            for ledger in full.intersection(entity.ledgers):
                raise too_many_deferred(entity, ledger.partition)

    async def _decide(self, producer: TransactionalProducer, marker: Marker, prepares: Sequence[Prepare]) -> None:
        """Commit the Kafka transaction, and where it is unknown whether that was done, find out.

        Raises:
            ServiceBusCommunicationError: It was not committed; or that is unknown still.
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
        """Settle what was prepared, and say what was scheduled; whoever comes later does it where this fails."""
        operations = [*_resolves(prepares, committed=True), *self._schedules(stored)]
        try:
            await self._connections.ledger_client.execute(*operations)
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_unsettled transaction=%s: it is committed, and settled by whoever comes next: %s",
                self.transaction_id,
                error,
            )

    async def _give_up(self, producer: TransactionalProducer, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """Nothing of it is to happen."""
        try:
            await producer.abort()
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_open transaction=%s: the broker aborts it after a while: %s", self.transaction_id, error
            )
        await self._take_back(prepares, wait=wait)

    async def _take_back(self, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """The messages are locked as they were; at once, or with what the ledgers are asked next."""
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

    async def _copies(self, one: PendingSettlement, entity: Entity) -> list[tuple[str, OutgoingRecord]]:
        """Topics and records of dead-lettered messages."""
        partition = one.batch.delivery.partition
        if partition >= entity.partitions:
            return []
        source, letters = Place(entity, partition), await self._catalog.entity(entity.path.dead_letter)
        await self._marks.mark(letters, [partition], "transacts")
        destination = Place(letters, partition)
        intent = Intent(0, one.reason, one.description)
        return [
            (destination.entity.topic, copy_of(message._record, source, destination, intent))
            for message in one.batch.messages
        ]

    def _prepares(self, marker: Marker, entities: dict[str, Entity]) -> list[Prepare]:
        """What each ledger is to prepare."""
        items: dict[Ledger, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
        for one in self.settlements:
            delivery, entity = one.batch.delivery, entities[one.path.key]
            if delivery.partition < entity.partitions:
                offsets = offsets_of(one.batch.ranges)
                items[entity.ledgers[delivery.partition]][_ledger_verb(one.verb), delivery.lease] += offsets
        return [
            Prepare(
                ledger,
                [(verb, lease, merge_offsets(offsets)) for (verb, lease), offsets in several.items()],
                marker.to_text(),
                int(PREPARED_FOR * 1000),
                DEFERRED_LIMIT,
            )
            for ledger, several in items.items()
        ]

    def _schedules(self, stored: Sequence[Stored]) -> list[Schedule]:
        """What of what was stored is scheduled."""
        operations: list[Schedule] = []
        places = iter(stored)
        for one in self.sends:
            by_position = {record.position: next(places) for record in one.records}
            operations += schedules(one.entity, one.outgoing, by_position.get)
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
        MessageLockLostError: The lease does not hold it any more; nothing was done.
        ServiceBusCommunicationError: Kafka or Redis cannot be reached; it comes again, or its copies do.
    """
    topic, batch = await parts.catalog.entity(entity.log_path), SettlementBatch(delivery)
    batch.messages.append(ServiceBusReceivedMessage(record, delivery))
    source = identity(entity.ledgers[delivery.partition], record.offset() or 0)
    noted = [(h.TRANSFER_SOURCE, source.encode()), (h.ADDRESSED_TO, entity.path.key.encode())]
    body, key = as_bytes(record.value()), record.key()
    copies = [OutgoingRecord(delivery.partition, key, body, [*encode_headers(one), *noted]) for one in envelopes]
    settlement = PendingSettlement(entity.path, "complete", batch, raise_lost)
    await TransactionCommit(parts, uuid.uuid4().hex, [_Copies(topic, copies)], [settlement]).run()


def _ledger_verb(verb: str) -> str:
    """What becomes of a message here; what is dead-lettered is done with, as its copy stands elsewhere."""
    return "complete" if verb == "dead_letter" else verb


def _resolves(prepares: Sequence[Prepare], *, committed: bool) -> list[Resolve]:
    return [
        Resolve(
            prepare.ledger,
            merge_offsets(offset for _, _, ranges in prepare.items for offset in offsets_of(ranges)),
            prepare.transaction,
            committed=committed,
        )
        for prepare in prepares
    ]
