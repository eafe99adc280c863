# Generated from facade/kafkabus/_async/handles/transaction.py by tools/generate_blocking.py. Do not edit.
"""Sends and settlements that happen together, or not at all.

What is to be done is kept until the ``with`` block ends. Then, in this order:

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
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import Self

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import InvalidOperationError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage
from kafkabus._core.record import Delivery, Record, as_bytes
from kafkabus._core.settlement import Held, raise_lost, still_there
from kafkabus._ledger.operations import Ledger, Prepare, Resolve, Schedule
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus._runtime import forks
from kafkabus._sync.compat import guarded, uninterrupted
from kafkabus._sync.context import Services
from kafkabus._sync.dispositions.transfer import Intent, Place, copy_of, identity
from kafkabus._sync.handles.receiver import DEFERRED_LIMIT, ServiceBusReceiver, too_many_deferred
from kafkabus._sync.handles.sender import DEFAULT_TIMEOUT, ServiceBusSender, announce, schedules
from kafkabus._sync.kafka.producer import OutgoingRecord
from kafkabus._sync.kafka.transactional_producer import Stored, Transactor
from kafkabus._sync.stores.transaction_markers import Marker, Settles
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, encode_headers
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus._sync.handles.transaction")

PREPARED_FOR = 15.0
"""After how many seconds somebody else looks what became of a transaction whose client did not say so."""


@dataclass(frozen=True, slots=True)
class _Sends:
    """Messages to send to one queue, and the records that they become."""

    sender: ServiceBusSender
    outgoing: Sequence[Outgoing]
    entity: Entity
    records: Sequence[OutgoingRecord]

    def anew(self) -> _Sends:
        """Checked once more, against what the queue is like now."""
        return _Sends(self.sender, self.outgoing, *self.sender._placed(self.outgoing, DEFAULT_TIMEOUT))


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of a message for one subscription, to be stored in its topic's log."""

    entity: Entity
    records: Sequence[OutgoingRecord]
    outgoing: Sequence[Outgoing] = ()

    def anew(self) -> _Copies:
        """They are what they were."""
        return self


class _Holder:
    """Who holds a message that its copies replace, in place of a receiver."""

    def _raise_lost(self, done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
        raise_lost(done, lost)


@dataclass(frozen=True, slots=True)
class _Settlement:
    """Messages of one delivery to settle."""

    receiver: ServiceBusReceiver | _Holder
    path: EntityPath
    verb: str
    held: Held
    reason: str | None = None
    description: str | None = None


class ServiceBusTransaction:
    """Sends and settlements that happen together, or not at all; made by ``ServiceBusClient.transaction``.

    Used in a ``with`` block, and given to the methods that are to be part of it. They check what they are asked for and
    return at once; all of it is done when the block ends, and none of it where that raises, or an exception leaves the
    block: then the messages stay locked as they were. One thread uses it.

    Attributes:
        transaction_id: Made up, for logs.
    """

    def __init__(self, services: Services) -> None:
        self.transaction_id = uuid.uuid4().hex
        self._services = services
        self._open = False
        self._over = False
        self._done = False
        self._key: tuple[str, str] | None = None
        self._sends: list[_Sends | _Copies] = []
        self._settlements: list[_Settlement] = []
        forks.watch(self)

    def _after_fork(self) -> None:
        # The parent carries it out.
        self._open, self._over = False, True
        self._sends.clear()
        self._settlements.clear()

    def __str__(self) -> str:
        return f"Transaction {self.transaction_id}"

    def __enter__(self) -> Self:
        if self._open or self._over:
            raise ValueError("a transaction is used in one 'with' block: get another from the client")
        self._open = True
        return self

    @guarded
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open, self._over = False, True
        try:
            if exc_type is None and (self._sends or self._settlements):
                uninterrupted(self._commit())  # type: ignore[func-returns-value, unused-ignore]
        finally:
            self._mark(settled=self._done)

    def _check(self, services: Services) -> None:
        """Whether a handle's work may be part of it.

        Raises:
            ValueError: It is not open, or another client's.
        """
        if not self._open:
            raise ValueError("the transaction is not open: use it within its 'with' block")
        if services is not self._services:
            raise ValueError(
                "the transaction is of another client: use senders and receivers of the client that made it"
            )

    def _add_sends(
        self, sender: ServiceBusSender, outgoing: Sequence[Outgoing], entity: Entity, records: Sequence[OutgoingRecord]
    ) -> None:
        """Have checked messages sent.

        Raises:
            InvalidOperationError: The queue is partitioned, and they have no key, or another one than those before.
        """
        if entity.partitions > 1:
            self._check_keys(entity, records)
        self._sends.append(_Sends(sender, outgoing, entity, records))

    def _check_keys(self, entity: Entity, records: Sequence[OutgoingRecord]) -> None:
        known = self._key
        for record in records:
            if record.key is None:
                raise InvalidOperationError(
                    f"message {record.message_id!r} to {entity.path} has no key, and the queue is partitioned: what a "
                    "transaction sends there needs a session_id or a partition_key; it was not sent"
                )
            known = known or (str(record.key), str(entity.path))
            if known[0] != record.key:
                raise InvalidOperationError(
                    f"message {record.message_id!r} to {entity.path} has key {record.key!r}, and another one of the "
                    f"transaction, to {known[1]}, has {known[0]!r}: all that a transaction sends to partitioned queues has one "
                    "session_id or partition_key; use a transaction for each. It was not sent"
                )
        self._key = known

    def _add_settlements(
        self,
        receiver: ServiceBusReceiver,
        verb: str,
        held: Sequence[Held],
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        """Have checked messages settled: ``complete``, ``abandon``, ``defer`` or ``dead_letter``."""
        for one in held:
            self._settlements.append(_Settlement(receiver, receiver._path, verb, one, reason, description))
            for message in one.messages:
                message._enlisted = True

    def _mark(self, *, enlisted: bool = False, prepared: bool = False, settled: bool = False) -> None:
        for one in self._settlements:
            for message in one.held.messages:
                message._enlisted, message._prepared, message._settled = enlisted, prepared, settled

    def _commit(self) -> None:
        services = self._services
        transactor = services.transactors.borrow()
        try:
            self._carry_out(transactor)
        except ServiceBusError:
            raise
        except BaseException:
            transactor.forget()
            raise
        finally:
            services.transactors.give_back(transactor)

    def _carry_out(self, transactor: Transactor) -> None:
        entities = {one.path.key: self._services.entity(one.path) for one in self._settlements}
        self._sends = [one.anew() for one in self._sends]
        self._announce()
        transactor.begin()
        prepares: list[Prepare] = []
        try:
            marker, stored = self._produce(transactor, entities)
            prepares = self._prepares(marker, entities)
            self._prepare(prepares, entities)
        except BaseException as error:
            # It was never asked to be committed, so it never will be: nobody needs to know how its end went.
            self._give_up(transactor, prepares, wait=not isinstance(error, ServiceBusCommunicationError))
            raise
        self._decide(transactor, marker, prepares)
        self._settle(prepares, stored)

    def _announce(self) -> None:
        """What whoever is granted one of the messages must know before it is stored."""
        for one in self._sends:
            partitions = {record.partition for record in one.records}
            self._services.mark(one.entity, partitions, "transacts")
            announce(self._services, one.entity, one.outgoing, partitions)

    # The steps, one by one, so that a test may stop after any of them.

    def _produce(self, transactor: Transactor, entities: dict[str, Entity]) -> tuple[Marker, list[Stored]]:
        """Store what is sent, copies of what is dead-lettered, and the marker; returns that, and where the former stand."""
        records = [(one.entity.topic, record) for one in self._sends for record in one.records]
        sent = len(records)
        for one in self._settlements:
            if one.verb == "dead_letter":
                records += self._copies(one, entities[one.path.key])
        settles = [
            Settles(entity.ledgers[one.held.delivery.partition].keys.prefix, _ledger_verb(one.verb), one.held.ranges)
            for one in self._settlements
            if one.held.delivery.partition < (entity := entities[one.path.key]).partitions
        ]
        # The marker last: whoever sees it sees the others.
        records.append(self._services.markers.make(self.transaction_id, settles))
        stored = transactor.send(records)
        return Marker(stored[-1].offset, self.transaction_id), stored[:sent]

    def _prepare(self, prepares: Sequence[Prepare], entities: dict[str, Entity]) -> None:
        """Take the messages that are settled out of their leases.

        Raises:
            MessageLockLostError: Locks of some expired; nothing was done.
            SessionLockLostError: That of a session.
            ServiceBusQuotaExceededError: Too many messages are deferred.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        # Nobody renews their locks meanwhile.
        self._mark(enlisted=True, prepared=True)
        self._services.courier.ask(*prepares)
        gone: dict[tuple[Ledger, str], list[Range]] = defaultdict(list)
        for prepare in prepares:
            for (_, lease, _), lost in zip(prepare.items, prepare.lost, strict=True):
                gone[prepare.ledger, lease] += lost
        for one in self._settlements:
            entity = entities[one.path.key]
            there, lost_messages = still_there([one.held], entity)
            for held in there:
                lost_messages += held.without(gone[entity.ledgers[held.delivery.partition], held.delivery.lease])[1]
            one.receiver._raise_lost("settled, and nothing else of the transaction was done", lost_messages)
        full = {prepare.ledger for prepare in prepares if prepare.full}
        for entity in entities.values():
            for ledger in full.intersection(entity.ledgers):
                raise too_many_deferred(entity, ledger.partition)

    def _decide(self, transactor: Transactor, marker: Marker, prepares: Sequence[Prepare]) -> None:
        """Commit the Kafka transaction, and where it is unknown whether that was done, find out.

        Raises:
            ServiceBusCommunicationError: It was not committed; or that is unknown still.
        """
        try:
            transactor.commit()
        except ServiceBusError as error:
            try:
                transactor.reset()
                committed = self._services.markers.wait_for(marker)
            except ServiceBusError as unknown:
                self._done = True
                raise ServiceBusCommunicationError(
                    f"whether transaction {self.transaction_id} was committed is unknown, as Kafka cannot be asked: all of it "
                    f"was done, or nothing, and its messages are available again then ({unknown})",
                    error=error,
                ) from error
            if not committed:
                self._take_back(prepares, wait=True)
                raise ServiceBusCommunicationError(
                    f"transaction {self.transaction_id} was not committed, and nothing of it was done: {error}",
                    error=error,
                ) from error
        self._done = True

    def _settle(self, prepares: Sequence[Prepare], stored: Sequence[Stored]) -> None:
        """Settle what was prepared, and say what was scheduled; whoever comes later does it where this fails."""
        operations = [*_resolves(prepares, committed=True), *self._schedules(stored)]
        try:
            self._services.courier.ask(*operations)
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_unsettled transaction=%s: it is committed, and settled by whoever comes next: %s",
                self.transaction_id,
                error,
            )

    def _give_up(self, transactor: Transactor, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """Nothing of it is to happen."""
        try:
            transactor.abort()
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_open transaction=%s: the broker aborts it after a while: %s", self.transaction_id, error
            )
        self._take_back(prepares, wait=wait)

    def _take_back(self, prepares: Sequence[Prepare], *, wait: bool) -> None:
        """The messages are locked as they were; at once, or with what the ledgers are asked next."""
        resolves = _resolves(prepares, committed=False)
        if not wait:
            for resolve in resolves:
                self._services.courier.later(resolve)
            return
        try:
            self._services.courier.ask(*resolves)
        except ServiceBusError as error:
            LOGGER.warning(
                "transaction_prepared transaction=%s: its messages come again after a while: %s",
                self.transaction_id,
                error,
            )

    def _copies(self, one: _Settlement, entity: Entity) -> list[tuple[str, OutgoingRecord]]:
        """Topics and records of dead-lettered messages."""
        partition = one.held.delivery.partition
        if partition >= entity.partitions:
            return []
        source, letters = Place(entity, partition), self._services.entity(entity.path.dead_letter)
        self._services.mark(letters, [partition], "transacts")
        destination = Place(letters, partition)
        intent = Intent(0, one.reason, one.description)
        return [
            (destination.entity.topic, copy_of(message._record, source, destination, intent))
            for message in one.held.messages
        ]

    def _prepares(self, marker: Marker, entities: dict[str, Entity]) -> list[Prepare]:
        """What each ledger is to prepare."""
        items: dict[Ledger, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
        for one in self._settlements:
            delivery, entity = one.held.delivery, entities[one.path.key]
            if delivery.partition < entity.partitions:
                offsets = offsets_of(one.held.ranges)
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
        records = [record for one in self._sends for record in one.records]
        places = {id(record.headers): place for record, place in zip(records, stored, strict=True)}
        return [
            schedule
            for one in self._sends
            for schedule in schedules(one.entity, one.outgoing, lambda outgoing: places[id(outgoing.headers)])
        ]


def replace_by_copies(
    services: Services, entity: Entity, delivery: Delivery, record: Record, envelopes: Sequence[Envelope]
) -> None:
    """Settle a message of a subscription, and store what its rules made of it, for this subscription alone; both or neither.

    Args:
        services: The client's connections.
        entity: The subscription.
        delivery: With the lease that holds the message.
        record: Its record.
        envelopes: Of the copies.

    Raises:
        MessageLockLostError: The lease does not hold it any more; nothing was done.
        ServiceBusCommunicationError: Kafka or Redis cannot be reached; it comes again, or its copies do.
    """
    topic, held = services.entity(entity.log_path), Held(delivery)
    held.messages.append(ServiceBusReceivedMessage(record, delivery))
    source = identity(entity.ledgers[delivery.partition], record.offset() or 0)
    noted = [(h.TRANSFER_SOURCE, source.encode()), (h.ADDRESSED_TO, entity.path.key.encode())]
    body, key = as_bytes(record.value()), record.key()
    copies = [OutgoingRecord(delivery.partition, key, body, [*encode_headers(one), *noted]) for one in envelopes]
    transaction = ServiceBusTransaction(services)
    transaction._sends.append(_Copies(topic, copies))
    transaction._settlements.append(_Settlement(_Holder(), entity.path, "complete", held))
    transaction._commit()


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
