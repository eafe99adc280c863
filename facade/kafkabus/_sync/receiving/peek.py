# Generated from facade/kafkabus/_async/receiving/peek.py by tools/generate_blocking.py. Do not edit.
"""Looking at an entity's messages without taking them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import sweeps
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.record import Record, as_bytes, enqueue_time_of, session_of
from kafkabus._ledger.operations import Peek, PeekedRange
from kafkabus._sync.connections import Connections
from kafkabus._sync.dispositions.duplicate_scan import DuplicateScan
from kafkabus._sync.kafka.offset_reader import read_upto
from kafkabus._sync.stores.changed_properties import as_changed
from kafkabus._sync.stores.record_archive import RecordArchive
from kafkabus_mapping.codec import record_size
from kafkabus_mapping.keys import partition_of

PEEKED_BYTES = 256 * 1024
"""How much one call returns at the most, keys and headers counted, beside a first message that is larger by itself."""
READ_AT_ONCE, READ_BYTES = 100, 1024 * 1024
"""How many offsets are read in one go, however many messages are asked for, and about how many bytes at the most."""


@dataclass(slots=True)
class _Room:
    """The room that is left in the answer of a call."""

    messages: int
    bytes: int

    def takes(self, record: Record) -> bool:
        """Return whether a record fits; if it does, count it."""
        size = record_size(as_bytes(record.value()), record.key(), record.headers() or ())
        if self.messages <= 0 or (size > self.bytes and self.bytes < PEEKED_BYTES):
            self.messages = 0
            return False
        self.messages -= 1
        self.bytes -= size
        return True


@dataclass(frozen=True, slots=True)
class PeekParts:
    """The parts of a client that peeking works with.

    Attributes:
        connections: The client's connections.
        archive: The records that are kept apart from their logs.
        duplicate_scan: The search for duplicates.
    """

    connections: Connections
    archive: RecordArchive
    duplicate_scan: DuplicateScan


class MessagePeeker:
    """One receiver's way through its entity's messages, with a separate place in each partition."""

    def __init__(self) -> None:
        self._session: str | None = None
        self._generation = ""
        self._places: dict[int, int] = {}
        self._turn = 0

    def keep_to(self, session: str) -> None:
        """Look at the messages of one session alone."""
        self._session = session

    def put_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Look once more at the last messages that were looked at."""
        for message in reversed(messages):
            receipt = receipt_of(message)
            self._turn = receipt.delivery.partition
            self._places[self._turn] = receipt.offset

    def note_received(self, entity: Entity, partition: int, offset: int) -> None:
        """A message was received: looking goes on behind it."""
        self._forget_others(entity)
        self._places[partition] = max(self._places.get(partition, 0), offset + 1)

    def look_on(self, parts: PeekParts, entity: Entity, count: int) -> list[ServiceBusReceivedMessage]:
        """The next messages, oldest first, of one partition after the other.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._forget_others(entity)
        order = [(self._turn + step) % entity.partitions for step in range(entity.partitions)]
        return self._look(
            parts, entity, order, {partition: self._places.get(partition, 0) for partition in order}, count
        )

    def look_from(
        self, parts: PeekParts, entity: Entity, partition: int, offset: int, count: int
    ) -> list[ServiceBusReceivedMessage]:
        """The messages from a place on, in the order of their sequence numbers.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._forget_others(entity)
        order = list(range(partition, entity.partitions))
        return self._look(parts, entity, order, {**dict.fromkeys(order, 0), partition: offset}, count)

    def _forget_others(self, entity: Entity) -> None:
        """Places are those of one queue, and not of the next one of its name."""
        if self._generation != entity.generation:
            self._generation, self._places = entity.generation, {}

    def _look(
        self, parts: PeekParts, entity: Entity, order: Sequence[int], places: dict[int, int], count: int
    ) -> list[ServiceBusReceivedMessage]:
        if self._session is not None:
            order = [partition for partition in order if partition == partition_of(self._session, entity.partitions)]
        if not order:
            return []
        parts.connections.notifications.note_use(entity)
        parts.duplicate_scan.scan_all(entity, order)
        peeks = [Peek(entity.ledgers[partition], places[partition], count, self._session) for partition in order]
        parts.connections.ledger_client.execute(*peeks)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        ends = parts.connections.topics.ends(entity.topic, order)
        room, messages = _Room(count, PEEKED_BYTES), list[ServiceBusReceivedMessage]()
        for partition, peek in zip(order, peeks, strict=True):
            self._turn = partition
            messages += self._look_at(parts, entity, partition, peek, ends[partition], room)
            if room.messages <= 0:
                return messages
        self._turn = order[0]
        return messages

    def _look_at(
        self, parts: PeekParts, entity: Entity, partition: int, peek: Peek, end: int, room: _Room
    ) -> list[ServiceBusReceivedMessage]:
        """Messages of one partition: what is not settled below the cursor, then what lies beyond it."""
        messages: list[ServiceBusReceivedMessage] = []
        while room.messages > 0:
            start = self._look_once(parts, entity, partition, peek, end, room, messages)
            if start is None:
                break
            # The messages found are of other sessions, it turned out.
            peek = Peek(peek.ledger, start, max(peek.limit, READ_AT_ONCE), self._session)
            parts.connections.ledger_client.execute(peek)
        return messages

    def _look_once(
        self,
        parts: PeekParts,
        entity: Entity,
        partition: int,
        peek: Peek,
        end: int,
        room: _Room,
        messages: list[ServiceBusReceivedMessage],
    ) -> int | None:
        """Add messages up to where the ledger was asked; return from where on to ask it again, None if that is all."""
        known = _known_end(peek, end)
        below = [run for run in peek.found if run.first < peek.cursor]
        for sweep in sweeps(_slices(below), lambda run: (run.first, run.last), at_once=READ_AT_ONCE):
            at = sweep[0].first
            while at <= sweep[-1].last:
                records, at = self._read(parts, entity, partition, at, sweep[-1].last)
                for record in records:
                    offset = record.offset() or 0
                    run = next((run for run in sweep if run.first <= offset <= run.last), None)
                    if run is not None and not self._add(entity, partition, record, run, room, messages):
                        return None
        waiting = {run.first: run for run in peek.found if run.scheduled or run.postponed_until is not None}
        at = max(peek.start, min(peek.cursor, known))
        while at < end and room.messages > 0:
            if at >= known:
                return at
            last = min(end, known, at + min(room.messages, READ_AT_ONCE)) - 1
            records, at = self._read(parts, entity, partition, at, last)
            for record in records:
                offset = record.offset() or 0
                found = waiting.get(offset)
                if (found or offset not in peek.skipped) and not self._add(
                    entity, partition, record, found, room, messages
                ):
                    return None
        if room.messages > 0:
            # A later answer of the ledger may list messages behind the end.
            self._places[partition] = max(end, at)
        return None

    def _read(
        self, parts: PeekParts, entity: Entity, partition: int, first: int, last: int
    ) -> tuple[list[Record], int]:
        """Return messages from one offset to another, and the offset from which on the next are to be read."""
        stored = parts.archive.read_as_stored(entity, partition, first, last, most_bytes=READ_BYTES)
        records = [
            record
            for record in entity.select_received(stored)
            if self._session is None or session_of(record) == self._session
        ]
        changed = as_changed(parts.connections, entity.ledgers[partition], records)
        return changed, read_upto(stored, last, READ_BYTES)

    def _add(
        self,
        entity: Entity,
        partition: int,
        record: Record,
        found: PeekedRange | None,
        room: _Room,
        messages: list[ServiceBusReceivedMessage],
    ) -> bool:
        """Add a record as a message, with what its ledger knows of it; return False if no more fit."""
        if not room.takes(record):
            return False
        if found is None:
            # Its sender, or upkeep, is about to report to the ledger that it waits for its time.
            found = PeekedRange(0, 0, False, 0, enqueue_time_of(record) is not None)
        delivery = entity.delivery(
            partition,
            "",
            0,
            found.count,
            deferred=found.deferred,
            scheduled=found.scheduled,
            postponed_until=found.postponed_until,
        )
        messages.append(ServiceBusReceivedMessage(record, delivery))
        self._places[partition] = (record.offset() or 0) + 1
        return True


def _known_end(peek: Peek, end: int) -> int:
    """Return the offset up to which a ledger has listed all, at most that of the log's end or of its cursor."""
    is_all = sum(found.last - found.first + 1 for found in peek.found) < peek.limit
    return max(end, peek.cursor) if is_all else peek.found[-1].last + 1


def _slices(found: Iterable[PeekedRange]) -> Iterator[PeekedRange]:
    """Ranges, none longer than what is read in one go."""
    for run in found:
        for first in range(run.first, run.last + 1, READ_AT_ONCE):
            yield replace(run, first=first, last=min(run.last, first + READ_AT_ONCE - 1))
