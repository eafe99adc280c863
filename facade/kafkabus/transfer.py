# Generated from facade/kafkabus/aio/transfer.py by tools/generate_blocking.py. Do not edit.
"""Moving a message into another log: begin, produce, end; and finishing what somebody else began.

The source's ledger holds the intent from begin to end, so a message is never nowhere: whoever finds an intent whose owner is
late looks for the copy in the destination, produces one only if there is none, and ends. The first end decides which copy
counts; a second copy is taken out of the destination again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkabus.entity import Entity
from kafkabus.exceptions import OperationTimeoutError, ServiceBusError
from kafkabus.ledger.operations import Activate, Adopt, Begin, Ledger, Moved, Orphan, Void
from kafkabus.ledger.ranges import Range, merge_offsets
from kafkabus.log.outbox import OutgoingRecord
from kafkabus.log.plan import sweeps
from kafkabus.record import Record, as_bytes
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Headers, decode_headers
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import sequence_number

if TYPE_CHECKING:
    from kafkabus.services import Services

LOGGER = logging.getLogger("kafkabus.transfer")

ORPHAN_AGE = 30.0
"""After how many seconds a transfer counts as left by its owner, who produces in the first half of them or not at all."""
WINNER_KEPT = 120.0
"""For how many seconds a ledger remembers which copy counted. Who comes later leaves a duplicate and loses nothing."""
SEARCHED_AT_ONCE = 5_000
"""How many records of a destination are read in one go when it is searched for a copy."""
ADOPTED_AT_ONCE = 64
"""How many unfinished transfers one client takes over at a time."""
ACTIVATED_AT_ONCE = 1_000
"""How many scheduled messages are moved in one go."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a transfer is to do, as the source's ledger keeps it.

    Attributes:
        searched_from: An offset of the destination below which the copy cannot be.
        reason: Why the message is dead-lettered.
        description: The same in more words.
        queue: Name of the queue that the message goes to; None: into the dead-letter queue of its own.
        partition: There; None: the same as here.
    """

    searched_from: int
    reason: str | None = None
    description: str | None = None
    queue: str | None = None
    partition: int | None = None

    def to_text(self) -> str:
        """As JSON."""
        members = [self.searched_from, self.reason, self.description]
        if self.queue is not None:
            members += [self.queue, self.partition]
        return json.dumps(members, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Intent:
        """Read what ``to_text`` wrote."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class Place:
    """One log of an entity.

    Attributes:
        entity: The entity.
        partition: Its partition.
    """

    entity: Entity
    partition: int

    @property
    def ledger(self) -> Ledger:
        """What is granted of it."""
        return self.entity.ledgers[self.partition]


class Transfers:
    """A client's transfers, into dead-letter queues and into other partitions.

    Args:
        services: The client's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ends: dict[tuple[str, int], int] = {}

    def dead_letter(
        self,
        entity: Entity,
        partition: int,
        records: Mapping[str, Sequence[Record]],
        *,
        reason: str | None,
        description: str | None,
    ) -> dict[str, list[Range]]:
        """Move messages of one partition into the entity's dead-letter queue.

        Args:
            entity: Where they are.
            partition: Their partition.
            records: Them, by the lease that holds them.
            reason: Why, in a word.
            description: Why, in more.

        Returns:
            For each lease the ranges of offsets that it did not hold any more, which were not moved.

        Raises:
            OperationTimeoutError: Kafka did not take a copy in time; the ledger knows of the move, and whoever receives from
                the entity next finishes it.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        source = Place(entity, partition)
        destination = Place(self._services.entity(entity.path.dead_letter), partition)
        return self._move(source, destination, records, Intent(self._end_of(destination), reason, description))

    def to_partition(
        self, entity: Entity, partition: int, there: int, records: Mapping[str, Sequence[Record]]
    ) -> dict[str, list[Range]]:
        """Move messages of one partition of an entity into another one, where they come last; see ``dead_letter``."""
        source, destination = Place(entity, partition), Place(entity, there)
        # Not what is known of it: others store there all the time, and all that they did would have to be searched.
        intent = Intent(self._ask_end(destination), queue=entity.path.name, partition=there)
        return self._move(source, destination, records, intent)

    def activate(self, entity: Entity, partition: int, end: int) -> int:
        """Move scheduled messages whose time has come behind the end of their log, where they are like any other.

        Args:
            entity: Where they are.
            partition: Their partition.
            end: Where the log ended when that was asked last.

        Returns:
            How many were moved; 0 where no more are due.

        Raises:
            OperationTimeoutError: See ``dead_letter``.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        place, began = Place(entity, partition), time.monotonic()
        intent = Intent(end, queue=entity.path.name, partition=partition)
        activate = Activate(place.ledger, ACTIVATED_AT_ONCE, intent.to_text(), _ms(ORPHAN_AGE))
        self._services.courier.ask(activate)
        if not activate.begun:
            return 0
        found: dict[int, Record] = {}
        ranges = merge_offsets(activate.begun)
        for sweep in sweeps(ranges, lambda one: one, at_once=SEARCHED_AT_ONCE):
            first, last = sweep[0][0], sweep[-1][1]
            for record in self._services.points.read(entity.topic, partition, first, last):
                found[record.offset() or 0] = record
        lost = [offset for offset in activate.begun if offset not in found]
        if lost:
            LOGGER.error(
                "lost_by_the_log entity=%s partition=%d offsets=%s", entity.path, partition, merge_offsets(lost)
            )
        records = [found[offset] for offset in activate.begun if offset in found]
        if records:
            ends = self.produce(place, place, records, intent, began)
            self.end(place, place, ends)
        LOGGER.debug("activated entity=%s partition=%d count=%d", entity.path, partition, len(records))
        return len(activate.begun)

    def _move(
        self, source: Place, destination: Place, records: Mapping[str, Sequence[Record]], intent: Intent
    ) -> dict[str, list[Range]]:
        began = time.monotonic()
        lost = self.begin(source, records, intent)
        moving = [
            record
            for lease, held in records.items()
            for record in held
            if not _within(record.offset() or 0, lost.get(lease, ()))
        ]
        if moving:
            ends = self.produce(source, destination, moving, intent, began)
            self.end(source, destination, ends)
        return lost

    def finish(self, entity: Entity, partition: int) -> None:
        """Finish the transfers out of a partition whose owners are late.

        What cannot be finished now is logged, and somebody else's later: it is no error of whoever happens to receive.
        """
        try:
            self._finish(Place(entity, partition))
        except ServiceBusError as error:
            LOGGER.warning("transfer_unfinished entity=%s partition=%d error=%s", entity.path, partition, error)

    def _finish(self, source: Place) -> None:
        began = time.monotonic()
        by_destination: dict[tuple[str | None, int | None], list[Orphan]] = defaultdict(list)
        for orphan in self.adopt(source):
            intent = Intent.from_text(orphan.intent)
            by_destination[intent.queue, intent.partition].append(orphan)
        for (queue, partition), orphans in by_destination.items():
            path = source.entity.path.dead_letter if queue is None else EntityPath(queue)
            there = source.partition if partition is None else partition
            destination = Place(self._services.entity(path), there)
            ends = self.search(source, destination, orphans)
            try:
                for orphan in orphans:
                    if orphan.offset not in ends:
                        ends |= self.produce_again(source, destination, orphan, began)
            finally:
                self.end(source, destination, ends)

    # The steps, one by one, so that a test may pause between any two.

    def begin(self, source: Place, records: Mapping[str, Sequence[Record]], intent: Intent) -> dict[str, list[Range]]:
        """The messages leave their leases; returns what the leases did not hold any more."""
        begins = [
            Begin(
                source.ledger,
                lease,
                merge_offsets(record.offset() or 0 for record in held),
                intent.to_text(),
                _ms(ORPHAN_AGE),
            )
            for lease, held in records.items()
        ]
        self._services.courier.ask(*begins)
        return {begin.lease: begin.lost for begin in begins}

    def produce(
        self, source: Place, destination: Place, records: Sequence[Record], intent: Intent, began: float
    ) -> dict[int, int]:
        """Store copies; returns offset there by offset here.

        Raises:
            OperationTimeoutError: The transfer is too old to be its owner's any more, or Kafka did not take a copy in time.
        """
        entity, partition = source.entity, source.partition
        outgoing = [
            OutgoingRecord(
                destination.partition,
                record.key(),
                as_bytes(record.value()),
                _headers(record, entity, identity(source.ledger, record.offset() or 0), intent),
            )
            for record in records
        ]
        # Judged directly before producing: whoever was paused for longer may find that another has finished this.
        if time.monotonic() - began > ORPHAN_AGE / 2:
            raise OperationTimeoutError(_UNFINISHED.format(path=entity.path, partition=partition, why="too slow"))
        parcel = self._services.transfer_outbox.send(
            destination.entity.topic, outgoing, timeout=ORPHAN_AGE / 2, keep_offsets=True
        )
        if not parcel.done or parcel.failures:
            why = parcel.failures[0].error if parcel.failures else "no acknowledgement in time"
            raise OperationTimeoutError(_UNFINISHED.format(path=entity.path, partition=partition, why=why))
        if any(offset < 0 for _, offset in parcel.stored):
            raise OperationTimeoutError(
                _UNFINISHED.format(path=entity.path, partition=partition, why="stored, unknown where")
            )
        self._ends[destination.entity.generation, destination.partition] = parcel.stored[-1][1] + 1
        return {record.offset() or 0: offset for record, (_, offset) in zip(records, parcel.stored, strict=True)}

    def end(self, source: Place, destination: Place, ends: dict[int, int]) -> None:
        """The source gives the messages up; copies that lost are taken out of the destination."""
        moves = [Moved(source.ledger, here, there, _ms(WINNER_KEPT)) for here, there in ends.items()]
        self._services.courier.ask(*moves)
        losers = [move for move in moves if move.winner is not None and move.winner != move.at]
        if losers:
            voids = [Void(destination.ledger, move.at) for move in losers]
            self._services.courier.ask(*voids)
            for void in voids:
                LOGGER.info(
                    "transfer_copy_void entity=%s partition=%d offset=%d delivered=%s",
                    destination.entity.path,
                    destination.partition,
                    void.offset,
                    not void.void,
                )

    def adopt(self, source: Place) -> list[Orphan]:
        """Take over the transfers out of a partition whose owners are late."""
        adopt = Adopt(source.ledger, ADOPTED_AT_ONCE, _ms(ORPHAN_AGE))
        self._services.courier.ask(adopt)
        if adopt.orphans:
            LOGGER.info(
                "transfer_adopted entity=%s partition=%d count=%d",
                source.entity.path,
                source.partition,
                len(adopt.orphans),
            )
        return adopt.orphans

    def produce_again(self, source: Place, destination: Place, orphan: Orphan, began: float) -> dict[int, int]:
        """Store the copy that the owner of a transfer did not; see ``produce``."""
        entity, partition = source.entity, source.partition
        records = self._services.points.read(entity.topic, partition, orphan.offset, orphan.offset)
        if not records:
            LOGGER.error("lost_by_the_log entity=%s partition=%d offset=%d", entity.path, partition, orphan.offset)
            return {}
        return self.produce(source, destination, records, Intent.from_text(orphan.intent), began)

    def _end_of(self, destination: Place) -> int:
        """An offset that no copy made from now on is below; asked once, then known from what was stored."""
        where = (destination.entity.generation, destination.partition)
        if where not in self._ends:
            self._ends[where] = self._ask_end(destination)
        return self._ends[where]

    def _ask_end(self, place: Place) -> int:
        ends = self._services.pool.run(self._services.topics.ends, place.entity.topic, [place.partition])
        return ends[place.partition]

    def search(self, source: Place, destination: Place, orphans: Sequence[Orphan]) -> dict[int, int]:
        """Offset there by offset here of the copies that the destination holds already, the first of each."""
        wanted = {identity(source.ledger, orphan.offset): orphan.offset for orphan in orphans}
        start = min(Intent.from_text(orphan.intent).searched_from for orphan in orphans)
        end = self._ask_end(destination)
        found: dict[int, int] = {}
        for first in range(start, end, SEARCHED_AT_ONCE):
            last = min(end, first + SEARCHED_AT_ONCE) - 1
            for record in self._services.points.read(destination.entity.topic, destination.partition, first, last):
                here = wanted.get(_source_of(record))
                if here is not None:
                    found.setdefault(here, record.offset() or 0)
        return found


_UNFINISHED = (
    "moving a message out of {path}, partition {partition}, began and was not finished ({why}): "
    "the ledger knows of it, and whoever receives from the entity next finishes it"
)


def identity(ledger: Ledger, offset: int) -> str:
    """What names a source record in its copies, for ever: ledger, topic id and sequence number."""
    return f"{ledger.keys.prefix}@{sequence_number(ledger.partition, offset)}"


def _source_of(record: Record) -> str:
    """What names the source of a copy; nothing where a record is none."""
    source = ""
    for name, value in record.headers() or ():
        if name == h.TRANSFER_SOURCE and value is not None:
            source = value.decode(errors="replace")
    return source


def _headers(record: Record, entity: Entity, source: str, intent: Intent) -> Headers:
    """The record's own headers, and why it is where it is."""
    noted: Headers = [(h.TRANSFER_SOURCE, source)]
    if intent.queue is None:
        number = sequence_number(record.partition() or 0, record.offset() or 0)
        noted += [(h.DEAD_LETTER_SOURCE, str(entity.path)), (h.ENQUEUED_SEQUENCE_NUMBER, str(number))]
    if intent.reason is not None:
        noted.append((h.DEAD_LETTER_REASON, intent.reason))
    if intent.description is not None:
        noted.append((h.DEAD_LETTER_DESCRIPTION, intent.description))
    replaced = {h.TRANSFER_SOURCE}
    if intent.queue is None:
        replaced |= {h.DEAD_LETTER_REASON, h.DEAD_LETTER_DESCRIPTION, h.DEAD_LETTER_SOURCE, h.ENQUEUED_SEQUENCE_NUMBER}
    kept: Headers = [(name, value) for name, value in record.headers() or () if name not in replaced]
    place = f"{record.topic()}/{record.partition()}/{record.offset()}"
    envelope = decode_headers(record.headers(), key=as_bytes(record.key()), place=place)
    if envelope.message_id == place:
        # A plain producer's record: its derived id and its key are to stay what they were. The last header counts.
        kept.append((h.MESSAGE_ID, place))
        if envelope.partition_key is not None:
            kept.append((h.PARTITION_KEY, envelope.partition_key))
    return kept + noted


def _within(offset: int, ranges: Sequence[Range]) -> bool:
    return any(first <= offset <= last for first, last in ranges)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
