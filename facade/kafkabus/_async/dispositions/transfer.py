"""Moving a message into another log: begin, produce, end; and finishing a move that another client began.

The source's ledger holds the intent from begin to end, so a message is never nowhere: a client that finds an intent whose
owner is late looks for the copy in the destination, produces one only if there is none, and ends. The first end decides which
copy counts; a second copy is taken out of the destination again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.ledger_marks import LedgerMarks
from kafkabus._async.kafka.producer import OutgoingRecord
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._async.stores.clock_skew import ClockSkew
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._async.stores.transaction_markers import TransactionMarkers
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, ServiceBusError
from kafkabus._core.fetch_plan import sweeps
from kafkabus._core.record import Record, any_lives, as_bytes, envelope_of
from kafkabus._core.settlement import too_much_changed
from kafkabus._ledger.operations import (
    Activate,
    AdoptTransfers,
    BeginTransfer,
    EndTransfer,
    Ledger,
    NoteRefusal,
    Orphan,
    Retreat,
    SkipRecord,
)
from kafkabus._ledger.prepared_settlement import Prepared
from kafkabus._ledger.ranges import Range, merge_offsets
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import LONGEST_REASON, Headers, record_size
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import sequence_number

LOGGER = logging.getLogger("kafkabus.transfer")

ORPHAN_AGE = 30.0
"""After how many seconds a transfer counts as left by its owner, which produces in the first half of them or not at all."""
WINNER_KEPT = 120.0
"""For how many seconds a ledger remembers which copy counted. A later end leaves a duplicate and loses nothing."""
LARGEST_COPY, HEADER_ROOM, BATCH_ROOM, CUT_ROOM = 1_999_000, 16, 100, 1_000
"""In bytes: the largest copy, as Kafka adds to it and takes 2,000,000; its additions to a header and to a record; a list of
missing parts."""
SEARCHED_AT_ONCE = 5_000
"""How many records of a destination are read in one go when it is searched for a copy."""
ADOPTED_AT_ONCE = 2_000
"""How many transfers, unfinished ones and those to be forgotten, one request looks at."""
ACTIVATED_AT_ONCE = 1_000
"""How many scheduled messages are moved in one go."""


_Where = tuple[str | None, int | None, str | None]
"""The place that a transfer goes to: path, partition and topic id of its intent."""


class _CopyRefusedError(OperationTimeoutError):
    """A destination does not accept a copy, because the copy is too large for it."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The task of a transfer, as the source's ledger keeps it.

    Attributes:
        searched_from: An offset of the destination below which the copy cannot be.
        reason: Why the message is dead-lettered.
        description: The same in more words.
        path: Path of the entity that the message goes to; None: its entity's dead-letter queue.
        partition: The partition there; None: the same as here.
        topic_id: Id of that entity's topic, if the entity may be gone, or another one have its name; None if it may not.
    """

    searched_from: int
    reason: str | None = None
    description: str | None = None
    path: str | None = None
    partition: int | None = None
    topic_id: str | None = None

    @property
    def forwards(self) -> bool:
        """Whether the message is forwarded, maybe to where it is; if not, it moves within its entity, or is dead-lettered."""
        return self.topic_id is not None

    def to_text(self) -> str:
        """Return the intent as JSON."""
        members = [self.searched_from, self.reason, self.description]
        if self.path is not None:
            members += [self.path, self.partition, self.topic_id]
        return json.dumps(members, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Intent:
        """Read what ``to_text`` wrote."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class EntityLog:
    """One log of an entity.

    Attributes:
        entity: The entity.
        partition: Its partition.
    """

    entity: Entity
    partition: int

    @property
    def ledger(self) -> Ledger:
        """The entity's ledger over the log, which grants its messages."""
        return self.entity.ledgers[self.partition]


class Transfers:
    """A client's transfers: into dead-letter queues, into other partitions, and on to other queues.

    Args:
        connections: The client's.
        catalog: The client's entities.
        marks: Notifies ledgers of messages before they are stored.
        clock_skew: Returns the time on the brokers' clock.
        archive: Records that are kept apart from their logs.
        markers: Looks up whether a transaction was committed.
    """

    def __init__(
        self,
        connections: Connections,
        catalog: EntityCatalog,
        *,
        marks: LedgerMarks,
        clock_skew: ClockSkew,
        archive: RecordArchive,
        markers: TransactionMarkers,
    ) -> None:
        self._connections = connections
        self._catalog = catalog
        self._marks = marks
        self._clock_skew = clock_skew
        self._archive = archive
        self._markers = markers
        self._ends: dict[tuple[str, int], int] = {}
        self._failed: set[tuple[Ledger, _Where]] = set()

    async def dead_letter(
        self,
        entity: Entity,
        partition: int,
        records: Mapping[str, Sequence[Record]],
        *,
        reason: str | None,
        description: str | None,
        forwarding: bool = False,
        changes: Mapping[str, str] | None = None,
    ) -> dict[str, list[Range]]:
        """Move messages of one partition into the entity's dead-letter queue.

        In a transaction, ``TransactionCommit`` stores the copies instead.

        Args:
            entity: The entity that holds the messages.
            partition: The partition of the messages.
            records: The messages' records, by the lease that holds them.
            reason: Why they are moved, in a word.
            description: The same in more words.
            forwarding: Whether they cannot be forwarded, and so move into the transfer dead-letter queue.
            changes: Changes of their application properties, which the ledger keeps until the move has ended.

        Returns:
            For each lease the ranges of offsets that it did not hold any more, which were not moved.

        Raises:
            OperationTimeoutError: Kafka did not take a copy in time; the ledger knows of the move, and the entity's next
                receiver, or upkeep, finishes it.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        path = entity.path.transfer_dead_letter if forwarding else entity.path.dead_letter
        source, destination = EntityLog(entity, partition), EntityLog(await self._catalog.entity(path), partition)
        # A complaint about a rule may quote all of it.
        reason, description = (
            None if text is None else text[:LONGEST_REASON].encode(errors="replace").decode()
            for text in (reason, description)
        )
        intent = Intent(await self._end_of(destination), reason, description)
        if forwarding:
            intent = replace(intent, path=str(path), partition=partition)
        return await self._move(source, destination, records, intent, changes)

    async def to_partition(
        self, entity: Entity, partition: int, there: int, records: Mapping[str, Sequence[Record]]
    ) -> dict[str, list[Range]]:
        """Move messages of one partition of an entity into another one, where they come last; see ``dead_letter``."""
        source, destination = EntityLog(entity, partition), EntityLog(entity, there)
        # Not the end as known here: other clients store there all the time, and all their records would have to be searched.
        intent = Intent(await self._ask_end(destination), path=str(entity.path), partition=there)
        return await self._move(source, destination, records, intent)

    async def forward(
        self, entity: Entity, partition: int, destination: EntityLog, end: int, records: Mapping[str, Sequence[Record]]
    ) -> dict[str, list[Range]]:
        """Move messages of one partition into another entity; see ``dead_letter``.

        Args:
            entity: The entity that holds the messages.
            partition: The partition of the messages.
            destination: The log that they go to.
            end: The end of that log when it was asked for last.
            records: The messages' records, by the lease that holds them.
        """
        there = destination.entity
        intent = Intent(end, path=str(there.path), partition=destination.partition, topic_id=there.topic_id)
        return await self._move(EntityLog(entity, partition), destination, records, intent)

    def forget(self, entity: Entity) -> None:
        """Forget an entity that is gone, or was replaced by another one of its name: transfers to it are over."""
        for where in [where for where in self._ends.copy() if where[0] == entity.generation]:
            self._ends.pop(where, None)

    async def activate(self, entity: Entity, partition: int, end: int) -> int:
        """Move scheduled messages whose time has come behind the end of their log, where they are like any other.

        Args:
            entity: The entity that holds the messages.
            partition: The partition of the messages.
            end: The log's end when it was asked for last.

        Returns:
            How many messages were moved; 0 if no more are due by the brokers' clock, or that clock's time is not known.

        Raises:
            OperationTimeoutError: See ``dead_letter``.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        place, began = EntityLog(entity, partition), time.monotonic()
        intent = Intent(end, path=str(entity.path), partition=partition)
        now = await self._clock_skew.now_ms(entity, partition)
        if now is None:
            return 0
        activate = Activate(place.ledger, ACTIVATED_AT_ONCE, intent.to_text(), _ms(ORPHAN_AGE), now)
        await self._connections.ledger_client.execute(activate)
        if not activate.begun:
            return 0
        found = await self._read(place, activate.begun)
        copies = [(found[offset], intent) for offset in activate.begun if offset in found]
        if copies:
            ends = await self.produce(place, place, copies, began)
            await self.end(place, place, ends)
        LOGGER.debug("activated entity=%s partition=%d count=%d", entity.path, partition, len(copies))
        return len(activate.begun)

    async def _move(
        self,
        source: EntityLog,
        destination: EntityLog,
        records: Mapping[str, Sequence[Record]],
        intent: Intent,
        changes: Mapping[str, str] | None = None,
    ) -> dict[str, list[Range]]:
        began = time.monotonic()
        lost = await self.begin(source, records, intent, changes)
        moving = [
            record
            for lease, held in records.items()
            for record in held
            if not _within(record.offset() or 0, lost.get(lease, ()))
        ]
        if moving:
            moving.sort(key=lambda record: record.offset() or 0)
            ends = await self.produce(source, destination, [(record, intent) for record in moving], began)
            await self.end(source, destination, ends)
        return lost

    async def finish(self, entity: Entity, partition: int) -> None:
        """Finish the transfers out of a partition whose owners are late.

        A transfer that cannot be finished now is logged and left to a later client: it is no error of the present receiver.
        """
        source = EntityLog(entity, partition)
        with self._left_to_others(source):
            await self._finish(source)

    @contextmanager
    def _left_to_others(self, source: EntityLog) -> Generator[None]:
        """Log an error that keeps transfers from being finished now."""
        try:
            yield
        except _CopyRefusedError as error:
            # This was logged when it was found out.
            LOGGER.debug("transfer_unfinished entity=%s error=%s", source.entity.path, error)
        except ServiceBusError as error:
            LOGGER.warning(
                "transfer_unfinished entity=%s partition=%d error=%s", source.entity.path, source.partition, error
            )

    async def _finish(self, source: EntityLog) -> None:
        began = time.monotonic()
        by_destination: dict[_Where, list[Orphan]] = defaultdict(list)
        # All of them first: transfers that cannot be finished come again together, in their order.
        prepared: dict[str, list[int]] = defaultdict(list)
        for orphan in await self.adopt(source):
            transactional = Prepared.from_text(orphan.intent)
            if transactional is not None:
                prepared[transactional.transaction].append(orphan.offset)
                continue
            intent = Intent.from_text(orphan.intent)
            by_destination[intent.path, intent.partition, intent.topic_id].append(orphan)
        try:
            # Each by itself, those that failed before at last: no destination keeps transfers to others from being finished.
            for where, orphans in sorted(
                by_destination.items(), key=lambda item: (source.ledger, item[0]) in self._failed
            ):
                if time.monotonic() - began <= ORPHAN_AGE / 2:
                    self._failed.add((source.ledger, where))
                    with self._left_to_others(source):
                        await self._finish_to(source, where, orphans, began)
                        self._failed.discard((source.ledger, where))
        finally:
            await self._markers.resolve(source.ledger, prepared)

    async def _finish_to(
        self,
        source: EntityLog,
        where: _Where,
        orphans: Sequence[Orphan],
        began: float,
    ) -> None:
        """Finish the transfers to one place."""
        text, partition, topic_id = where
        destination = await self._entity_of(source, text)
        if destination is None:
            await self._retreat(source, orphans, began)
            return
        there = EntityLog(destination, source.partition if partition is None else partition)
        if topic_id not in {None, destination.topic_id}:
            await self._finish_to_replaced(source, there, orphans)
            return
        ends = await self.search(source, there, orphans)
        try:
            ends |= await self.produce_again(
                source, there, [orphan for orphan in orphans if orphan.offset not in ends], began
            )
        finally:
            await self.end(source, there, ends)

    async def _finish_to_replaced(self, source: EntityLog, destination: EntityLog, orphans: Sequence[Orphan]) -> None:
        """Have messages wait again whose destination was deleted, unless another one of its name holds their copies.

        Clients use a description for some seconds, and Kafka's producers know topics by name: the owner may have stored copies
        in the new topic.
        """
        ends: dict[int, int] = {}
        if destination.partition < destination.entity.partitions:
            topic, partition = destination.entity.topic, destination.partition
            start = (await self._connections.topics.starts(topic, [partition]))[partition]
            ends = await self.search(source, destination, orphans, start)
            await self.end(source, destination, ends)
        waiting = [orphan for orphan in orphans if orphan.offset not in ends]
        if waiting:
            # The search may have taken long; a transfer that begins after another client's retreat has another intent.
            await self._retreat(source, waiting, time.monotonic())

    async def _entity_of(self, source: EntityLog, text: str | None) -> Entity | None:
        """Return the entity that now has the name of the one that a transfer goes to; None if there is none."""
        if text is None:
            return await self._catalog.entity(source.entity.path.dead_letter)
        try:
            entity = await self._catalog.entity(EntityPath.parse(text))
        except MessagingEntityNotFoundError:
            return None
        if entity.path.key != source.entity.path.key:
            # A copy that is stored now may be deleted with the entity.
            entity.check_in_use()
        return entity

    async def _retreat(self, source: EntityLog, orphans: Sequence[Orphan], began: float) -> None:
        """Have messages wait again whose destination is gone; the upkeep that forwards them finds out."""
        # As before producing: a client that was paused for longer may find that another has finished this.
        if time.monotonic() - began <= ORPHAN_AGE / 2:
            await self._connections.ledger_client.execute(*(Retreat(source.ledger, orphan) for orphan in orphans))
            LOGGER.warning(
                "transfer_given_up entity=%s partition=%d count=%d: its destination was deleted",
                source.entity.path,
                source.partition,
                len(orphans),
            )

    # The steps, one by one, so that a test may pause between any two.

    async def begin(
        self,
        source: EntityLog,
        records: Mapping[str, Sequence[Record]],
        intent: Intent,
        changes: Mapping[str, str] | None = None,
    ) -> dict[str, list[Range]]:
        """Take the messages out of their leases; return the ranges that the leases did not hold any more."""
        begins = [
            BeginTransfer(
                source.ledger,
                lease,
                merge_offsets(record.offset() or 0 for record in held),
                intent.to_text(),
                _ms(ORPHAN_AGE),
                changes,
            )
            for lease, held in records.items()
        ]
        await self._connections.ledger_client.execute(*begins)
        for begin in begins:
            if begin.too_much is not None:
                raise too_much_changed(source.entity, source.partition, begin.too_much)
        return {begin.lease: begin.lost for begin in begins}

    async def produce(
        self, source: EntityLog, destination: EntityLog, copies: Sequence[tuple[Record, Intent]], began: float
    ) -> dict[int, int]:
        """Store copies of records, each for its own reason; return offset there by offset here.

        Raises:
            OperationTimeoutError: The transfer is too old to be its owner's any more, or Kafka did not take a copy in time.
        """
        entity, partition = source.entity, source.partition
        changed = await as_changed(self._connections, source.ledger, [record for record, _ in copies])
        outgoing = [
            copy_of(record, source, destination, intent) for record, (_, intent) in zip(changed, copies, strict=True)
        ]
        if destination.entity.expires and any_lives(record for record, _ in copies):
            # As before messages are sent.
            await self._marks.mark(destination.entity, {destination.partition}, "has_message_ttl")
        # Judged directly before producing: a client that was paused for longer may find that another has finished this.
        if time.monotonic() - began > ORPHAN_AGE / 2:
            raise OperationTimeoutError(_UNFINISHED.format(path=entity.path, partition=partition, why="too slow"))
        deadline = time.monotonic() + ORPHAN_AGE / 2
        by_offset = {record.offset() or 0: copy for (record, _), copy in zip(copies, outgoing, strict=True)}
        ends = await self._store(source, destination, by_offset, deadline)
        refused = {offset: copy for offset, copy in by_offset.items() if offset not in ends}
        if len(by_offset) > 1:
            # Kafka refuses all records of a batch together.
            for offset, copy in refused.items():
                ends |= await self._store(source, destination, {offset: copy}, deadline)
        if ends:
            self._ends[destination.entity.generation, destination.partition] = max(ends.values()) + 1
        if len(ends) < len(by_offset):
            await self.end(source, destination, ends)
            await self._note_refused(
                source, destination, {offset: copy for offset, copy in refused.items() if offset not in ends}
            )
            why = f"{destination.entity.topic} does not accept copies of that size: raise its max.message.bytes"
            raise _CopyRefusedError(_UNFINISHED.format(path=entity.path, partition=partition, why=why))
        return ends

    async def _store(
        self, source: EntityLog, destination: EntityLog, copies: Mapping[int, OutgoingRecord], deadline: float
    ) -> dict[int, int]:
        """Store copies, by offset here; return offset there by offset here of those that are not too large.

        Raises:
            OperationTimeoutError: Kafka did not take a copy in time.
        """
        reports = await self._connections.transfer_producer.send(
            destination.entity.topic,
            list(copies.values()),
            timeout=deadline - time.monotonic(),
            keep_offsets=True,
        )
        why: object = "" if reports.is_done else "no acknowledgement in time"
        if any(offset < 0 for _, offset in reports.stored):
            why = "stored, unknown where"
        why = next((failure.error for failure in reports.failures if not failure.too_large), why)
        if why:
            raise OperationTimeoutError(
                _UNFINISHED.format(path=source.entity.path, partition=source.partition, why=why)
            )
        refused = {failure.position for failure in reports.failures}
        stored = (offset for at, offset in enumerate(copies) if at not in refused)
        return {here: there for here, (_, there) in zip(stored, reports.stored, strict=True)}

    async def _note_refused(
        self, source: EntityLog, destination: EntityLog, copies: Mapping[int, OutgoingRecord]
    ) -> None:
        """Note copies in the source's ledger that the destination does not accept; log each of them once."""
        notes = [
            NoteRefusal(source.ledger, offset, _size(copy.headers) + record_size(copy.value, copy.key, ()) + BATCH_ROOM)
            for offset, copy in copies.items()
        ]
        await self._connections.ledger_client.execute(*notes)
        for note in notes:
            if note.new:
                LOGGER.warning(
                    "transfer_refused entity=%s partition=%d sequence_number=%d bytes=%d topic=%s: the topic does not accept a "
                    "copy of this size; raise its max.message.bytes above that, and the transfer is finished",
                    source.entity.path,
                    source.partition,
                    sequence_number(source.partition, note.offset),
                    note.bytes,
                    destination.entity.topic,
                )

    async def end(self, source: EntityLog, destination: EntityLog, ends: dict[int, int]) -> None:
        """Have the source give the messages up, and take copies that lost out of the destination."""
        moves = [EndTransfer(source.ledger, here, there, _ms(WINNER_KEPT)) for here, there in ends.items()]
        await self._connections.ledger_client.execute(*moves)
        losers = [move for move in moves if move.winner is not None and move.winner != move.at]
        if losers:
            readers = await self._catalog.readers_of(destination.entity)
            skips = [
                SkipRecord(reader.ledgers[destination.partition], move.at) for reader in readers for move in losers
            ]
            await self._connections.ledger_client.execute(*skips)
            for skip in skips:
                LOGGER.info(
                    "transfer_copy_void entity=%s partition=%d offset=%d delivered=%s",
                    destination.entity.path,
                    destination.partition,
                    skip.offset,
                    not skip.skipped,
                )

    async def adopt(self, source: EntityLog) -> list[Orphan]:
        """Take over the transfers out of a partition whose owners are late."""
        orphans: list[Orphan] = []
        more = True
        while more:
            adopt = AdoptTransfers(source.ledger, ADOPTED_AT_ONCE, _ms(ORPHAN_AGE))
            await self._connections.ledger_client.execute(adopt)
            orphans += adopt.orphans
            more = adopt.more
        if orphans:
            LOGGER.info(
                "transfer_adopted entity=%s partition=%d count=%d",
                source.entity.path,
                source.partition,
                len(orphans),
            )
        return orphans

    async def produce_again(
        self, source: EntityLog, destination: EntityLog, orphans: Sequence[Orphan], began: float
    ) -> dict[int, int]:
        """Store the copies that the owners of transfers did not store; see ``produce``."""
        found = await self._read(source, [orphan.offset for orphan in orphans])
        gone = [orphan for orphan in orphans if orphan.offset not in found]
        if gone:
            entity, partition = source.entity, source.partition
            start = (await self._connections.topics.starts(entity.topic, [partition]))[partition]
            await self._connections.ledger_client.execute(
                *(Retreat(source.ledger, orphan, gone=True) for orphan in gone if orphan.offset < start)
            )
        copies = [
            (found[orphan.offset], Intent.from_text(orphan.intent)) for orphan in orphans if orphan.offset in found
        ]
        return await self.produce(source, destination, copies, began) if copies else {}

    async def _read(self, source: EntityLog, offsets: Sequence[int]) -> dict[int, Record]:
        """Return records by their offsets; log an error for those that the log does not have any more."""
        found: dict[int, Record] = {}
        for sweep in sweeps(merge_offsets(offsets), lambda run: run, at_once=SEARCHED_AT_ONCE):
            first, last = sweep[0][0], sweep[-1][1]
            stored = await self._archive.read_as_stored(source.entity, source.partition, first, last)
            for record in source.entity.change_granted(stored):
                found[record.offset() or 0] = record
        lost = [offset for offset in offsets if offset not in found]
        if lost:
            LOGGER.error(
                "lost_by_the_log entity=%s partition=%d offsets=%s",
                source.entity.path,
                source.partition,
                merge_offsets(lost),
            )
        return found

    async def _end_of(self, destination: EntityLog) -> int:
        """Return an offset that no copy made from now on is below; asked for once, then known from the stored copies."""
        where = (destination.entity.generation, destination.partition)
        known = self._ends.get(where)
        if known is None:
            known = self._ends[where] = await self._ask_end(destination)
        return known

    async def _ask_end(self, place: EntityLog) -> int:
        ends = await self._connections.topics.ends(place.entity.topic, [place.partition])
        return ends[place.partition]

    async def search(
        self, source: EntityLog, destination: EntityLog, orphans: Sequence[Orphan], start: int | None = None
    ) -> dict[int, int]:
        """Return offset there by offset here of the copies that the destination holds already, the first of each.

        Args:
            source: The log that the messages move out of.
            destination: The log that they go to.
            orphans: The transfers.
            start: An offset of the destination below which no copy can be; None: as the intents have it.
        """
        wanted = {identity(source.ledger, orphan.offset): orphan.offset for orphan in orphans}
        if start is None:
            start = min(Intent.from_text(orphan.intent).searched_from for orphan in orphans)
        where = destination.entity.topic, destination.partition
        stored = await self._connections.topics.stored_ends(where[0], [where[1]])
        end = await self._ask_end(destination)
        if end < stored[where[1]]:
            raise OperationTimeoutError(
                f"{where[0]}/{where[1]} has a transaction that is not over, and the copy may be stored behind it: the next "
                "attempt looks for it again"
            )
        found: dict[int, int] = {}
        for first in range(start, end, SEARCHED_AT_ONCE):
            last = min(end, first + SEARCHED_AT_ONCE) - 1
            for record in await self._connections.offset_reader.read(
                destination.entity.topic, destination.partition, first, last
            ):
                here = wanted.get(_source_of(record))
                if here is not None:
                    found.setdefault(here, record.offset() or 0)
        return found


_UNFINISHED = (
    "moving a message out of {path}, partition {partition}, began and was not finished ({why}): "
    "the ledger knows of it, and the entity's next receiver, or upkeep, finishes it"
)


def identity(ledger: Ledger, offset: int) -> str:
    """Return the name of a source record in its copies, for ever: ledger, topic id and sequence number."""
    return f"{ledger.keys.prefix}@{sequence_number(ledger.partition, offset)}"


def _source_of(record: Record) -> str:
    """Return the name of a copy's source; an empty text if a record is no copy."""
    source = ""
    for name, value in record.headers() or ():
        if name == h.TRANSFER_SOURCE and value is not None:
            source = value.decode(errors="replace")
    return source


def copy_of(record: Record, source: EntityLog, destination: EntityLog, intent: Intent) -> OutgoingRecord:
    """Return a record as it is stored elsewhere: as it was, with the reason why it is there."""
    envelope, offset = envelope_of(record), record.offset() or 0
    number = str(sequence_number(source.partition, offset))
    key, noted = record.key(), {h.TRANSFER_SOURCE: identity(source.ledger, offset)}
    if destination.entity.path.is_dead_letter:
        noted[h.DEAD_LETTER_SOURCE] = str(source.entity.path)
        noted[h.ENQUEUED_SEQUENCE_NUMBER] = number
        replaced = {h.DEAD_LETTER_REASON, h.DEAD_LETTER_DESCRIPTION}
    elif intent.forwards:
        key = destination.entity.key_of(envelope)
        noted[h.HOPS] = str(1 + (envelope.hops or 0))
        if envelope.enqueued_sequence_number is None:
            noted[h.ENQUEUED_SEQUENCE_NUMBER] = number
        replaced = set[str]()
    else:
        replaced = set[str]()
    if intent.reason is not None:
        noted[h.DEAD_LETTER_REASON] = intent.reason
    if intent.description is not None:
        noted[h.DEAD_LETTER_DESCRIPTION] = intent.description
    replaced |= noted.keys()
    kept = [(name, value) for name, value in record.headers() or () if name not in replaced]
    place = f"{record.topic()}/{record.partition()}/{record.offset()}"
    if envelope.message_id == place:
        # A plain producer's record: its derived id and its key are to stay what they were. The last header counts.
        kept.append((h.MESSAGE_ID, place.encode()))
        if envelope.partition_key is not None:
            kept.append((h.PARTITION_KEY, envelope.partition_key.encode()))
    body = as_bytes(record.value())
    room = LARGEST_COPY - _size((name, text.encode()) for name, text in noted.items())
    if _size(kept) + record_size(body, key, ()) > room:
        key, kept, body, cut = _cut(key, kept, body, room - CUT_ROOM)
        noted[h.DEAD_LETTER_DESCRIPTION] = f"{noted.get(h.DEAD_LETTER_DESCRIPTION, '')} ({cut})".lstrip()
        LOGGER.error("cut entity=%s partition=%d offset=%d: %s", source.entity.path, source.partition, offset, cut)
    kept += [(name, text.encode()) for name, text in noted.items()]
    return OutgoingRecord(destination.partition, key, body, kept)


def _size(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") + HEADER_ROOM for name, value in headers)


def _cut(
    key: str | bytes | None, headers: Headers, body: bytes | None, room: int
) -> tuple[str | bytes | None, Headers, bytes | None, str]:
    """Return as much of a record as there is room for: key, headers, body, and the missing parts in words."""
    missing: list[str] = []
    while (left := room - _size(headers) - record_size(None, key, ())) < 0:
        largest, value = max(headers, key=lambda header: len(header[1] or b""), default=("", None))
        if record_size(None, key, ()) > len(value or b""):
            missing.append("its key")
            key = None
        else:
            missing.append(f"the header {largest[:40]!r}")
            headers = [header for header in headers if header[0] != largest]
    if body is not None and len(body) > left:
        missing.append(f"{len(body) - left:,} of the {len(body):,} bytes of its body")
        body = body[:left]
    return key, headers, body, f"cut to what Kafka takes, without {', '.join(missing[:5])}"


def _within(offset: int, ranges: Sequence[Range]) -> bool:
    return any(first <= offset <= last for first, last in ranges)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
