"""Looking at an entity's messages without taking them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.duplicate_scan import DuplicateScan
from kafkabus._async.kafka.offset_reader import read_upto
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import sweeps
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.message_search import MessageSearch, PeekedMessages
from kafkabus._core.record import Record, as_bytes, enqueue_time_of, session_of
from kafkabus._ledger.operations import Peek, PeekedRange
from kafkabus_mapping.codec import record_size
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.numbers import sequence_number

PEEKED_BYTES = 256 * 1024
"""How much one call returns at the most, keys and headers counted, beside a first message that is larger by itself."""
READ_AT_ONCE, READ_BYTES = 100, 1024 * 1024
"""How many offsets are read in one go, however many messages are asked for, and about how many bytes at the most."""
SEARCHED_AT_ONCE, SEARCHED_BYTES = 2_000, 4 * 1024 * 1024
"""The same for a search, which returns few of the messages that it reads."""


_WAITING, _SCHEDULED = PeekedRange(0, 0, False, 0), PeekedRange(0, 0, False, 0, scheduled=True)


@dataclass(slots=True)
class _Call:
    """One call, as its answer fills.

    Attributes:
        count: How many messages it returns at the most.
        places: The offset in each partition up to which it has looked.
        search: The messages that it looks for; None: all.
        answer: The messages found so far.
        bytes_left: How many more bytes it returns.
        left_to_examine: How many more messages a search examines.
        is_over: Whether no more fits, or the search examined enough.
    """

    count: int
    places: dict[int, int]
    search: MessageSearch | None = None
    answer: PeekedMessages = field(default_factory=PeekedMessages)
    bytes_left: int = PEEKED_BYTES
    left_to_examine: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.is_over = self.count <= 0
        if self.search is not None:
            self.left_to_examine = self.search.most

    @property
    def at_once(self) -> int:
        """How many offsets are read in one go; no more than may be of interest, as far as that is known before."""
        if self.search is None:
            return min(READ_AT_ONCE, self.count - len(self.answer))
        return min(SEARCHED_AT_ONCE, self.left_to_examine)

    def add(
        self,
        entity: Entity,
        partition: int,
        records: Sequence[Record],
        found_at: Callable[[Record], PeekedRange | None],
        upto: int,
    ) -> None:
        """Add those records that are messages, and are looked for, with the data of their ledger.

        Args:
            entity: The entity.
            partition: The partition of the records.
            records: The records.
            found_at: Returns the data of a record's ledger; None if it is no message.
            upto: The offset from which on the next records are to be read.
        """
        if self.search is None:
            found = [(record, data) for record in records if (data := found_at(record)) is not None]
        else:
            found = self.search.select(records, found_at, entity.life, self.answer)
            self.left_to_examine -= len(records)
        for record, data in found:
            if len(self.answer) >= self.count or not self._takes(record):
                self.is_over = True
                return
            delivery = entity.delivery(
                partition,
                "",
                0,
                data.count,
                deferred=data.deferred,
                scheduled=data.scheduled,
                postponed_until=data.postponed_until,
                locked_until=data.locked_until,
            )
            self.answer.append(ServiceBusReceivedMessage(record, delivery))
            self.places[partition] = (record.offset() or 0) + 1
        self.places[partition] = upto
        self.is_over = len(self.answer) >= self.count or (self.search is not None and self.left_to_examine <= 0)

    def _takes(self, record: Record) -> bool:
        """Return whether a message that is returned fits; if it does, count it."""
        size = record_size(as_bytes(record.value()), record.key(), record.headers() or ())
        if size > self.bytes_left and self.bytes_left < PEEKED_BYTES:
            return False
        self.bytes_left -= size
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

    async def look_on(self, parts: PeekParts, entity: Entity, count: int) -> PeekedMessages:
        """The next messages, oldest first, of one partition after the other.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._forget_others(entity)
        order = [(self._turn + step) % entity.partitions for step in range(entity.partitions)]
        return await self._look(parts, entity, order, _Call(count, self._places))

    async def look_from(
        self, parts: PeekParts, entity: Entity, partition: int, offset: int, count: int
    ) -> PeekedMessages:
        """The messages from a place on, in the order of their sequence numbers; looking on goes on behind the last one.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._forget_others(entity)
        order = list(range(partition, entity.partitions))
        self._places |= {**dict.fromkeys(order, 0), partition: offset}
        return await self._look(parts, entity, order, _Call(count, self._places))

    async def search(
        self, parts: PeekParts, entity: Entity, partition: int, offset: int, count: int, search: MessageSearch
    ) -> PeekedMessages:
        """Messages from a place on that are looked for, in the order of their sequence numbers; looking on is not changed.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        turn, call = self._turn, _Call(count, {partition: offset}, search)
        try:
            return await self._look(parts, entity, range(partition, entity.partitions), call)
        finally:
            self._turn = turn

    def _forget_others(self, entity: Entity) -> None:
        """Places are those of one queue, and not of the next one of its name."""
        if self._generation != entity.generation:
            self._generation, self._places = entity.generation, {}

    async def _look(self, parts: PeekParts, entity: Entity, order: Sequence[int], call: _Call) -> PeekedMessages:
        if self._session is not None:
            order = [partition for partition in order if partition == partition_of(self._session, entity.partitions)]
        if not order:
            return call.answer
        await parts.connections.notifications.note_use(entity)
        await parts.duplicate_scan.scan_all(entity, order)
        limit = SEARCHED_AT_ONCE if call.search is not None else call.count
        peeks = [
            Peek(entity.ledgers[partition], call.places.get(partition, 0), limit, self._session) for partition in order
        ]
        await parts.connections.ledger_client.execute(*peeks)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        ends = await parts.connections.topics.ends(entity.topic, order)
        for partition, peek in zip(order, peeks, strict=True):
            self._turn = partition
            await self._look_at(parts, entity, partition, peek, ends[partition], call)
            if call.is_over:
                if call.search is not None:
                    call.answer.next_sequence_number = sequence_number(partition, call.places.get(partition, 0))
                return call.answer
        self._turn = order[0]
        return call.answer

    async def _look_at(
        self, parts: PeekParts, entity: Entity, partition: int, peek: Peek, end: int, call: _Call
    ) -> None:
        """Look at one partition: the messages that are not settled below the cursor, then those beyond it."""
        while not call.is_over:
            start = await self._look_once(parts, entity, partition, peek, end, call)
            if start is None:
                break
            # The messages found are of other sessions, it turned out.
            peek = Peek(peek.ledger, start, max(peek.limit, READ_AT_ONCE), self._session)
            await parts.connections.ledger_client.execute(peek)

    async def _look_once(
        self, parts: PeekParts, entity: Entity, partition: int, peek: Peek, end: int, call: _Call
    ) -> int | None:
        """Add messages up to where the ledger was asked; return from where on to ask it again, None if that is all."""
        await self._look_below(parts, entity, partition, peek, call)
        return None if call.is_over else await self._look_beyond(parts, entity, partition, peek, end, call)

    async def _look_below(self, parts: PeekParts, entity: Entity, partition: int, peek: Peek, call: _Call) -> None:
        """Add messages below the cursor, as the ledger listed them."""
        at_once = call.at_once
        below = [run for run in peek.found if run.first < peek.cursor]
        for sweep in sweeps(_slices(below, at_once), lambda run: (run.first, run.last), at_once=at_once):

            def found_at(record: Record, runs: Sequence[PeekedRange] = sweep) -> PeekedRange | None:
                offset = record.offset() or 0
                run = runs[bisect_right(runs, offset, key=lambda run: run.first) - 1]
                return run if run.first <= offset <= run.last else None

            at = sweep[0].first
            while at <= sweep[-1].last:
                records, at = await self._read(parts, entity, partition, at, sweep[-1].last, call)
                call.add(entity, partition, records, found_at, at)
                if call.is_over:
                    return

    async def _look_beyond(
        self, parts: PeekParts, entity: Entity, partition: int, peek: Peek, end: int, call: _Call
    ) -> int | None:
        """Add messages beyond the cursor; return from where on to ask the ledger again, None if that is all."""
        waiting = {run.first: run for run in peek.found if run.scheduled or run.postponed_until is not None}

        def found_at(record: Record) -> PeekedRange | None:
            offset = record.offset() or 0
            found = waiting.get(offset)
            if found is not None or offset in peek.skipped:
                return found
            # Its sender, or upkeep, is about to report to the ledger that it waits for its time.
            return _WAITING if enqueue_time_of(record) is None else _SCHEDULED

        known = _known_end(peek, end)
        at = max(peek.start, min(peek.cursor, known))
        while at < end and not call.is_over:
            if at >= known:
                return at
            last = min(end, known, at + call.at_once) - 1
            records, at = await self._read(parts, entity, partition, at, last, call)
            call.add(entity, partition, records, found_at, at)
        if not call.is_over:
            # A later answer of the ledger may list messages behind the end.
            call.places[partition] = max(end, at)
        return None

    async def _read(
        self, parts: PeekParts, entity: Entity, partition: int, first: int, last: int, call: _Call
    ) -> tuple[list[Record], int]:
        """Return messages from one offset to another, and the offset from which on the next are to be read."""
        searches = call.search is not None
        most_bytes = SEARCHED_BYTES if searches else READ_BYTES
        stored = await parts.archive.read_as_stored(
            entity, partition, first, last, most_bytes=most_bytes, streams=searches
        )
        records = [
            record
            for record in entity.select_received(stored)
            if self._session is None or session_of(record) == self._session
        ]
        call.left_to_examine -= len(stored) - len(records)
        changed = await as_changed(parts.connections, entity.ledgers[partition], records)
        return changed, read_upto(stored, last, most_bytes)


def _known_end(peek: Peek, end: int) -> int:
    """Return the offset up to which a ledger has listed all, at most that of the log's end or of its cursor."""
    is_all = sum(found.last - found.first + 1 for found in peek.found) < peek.limit
    return max(end, peek.cursor) if is_all else peek.found[-1].last + 1


def _slices(found: Iterable[PeekedRange], at_once: int) -> Iterator[PeekedRange]:
    """Ranges, none longer than what is read in one go."""
    for run in found:
        for first in range(run.first, run.last + 1, at_once):
            yield replace(run, first=first, last=min(run.last, first + at_once - 1))
