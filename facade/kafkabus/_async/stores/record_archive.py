"""Messages that outlast their log: deferred and scheduled ones, kept apart so that the records behind them can be deleted.

In their ledger they stay what they are, under their offsets; only their records are elsewhere, in a compacted topic of the
namespace. A reader that reads below the beginning of a log finds them there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kafkabus._async.compat import Lock
from kafkabus._async.connections import Connections
from kafkabus._async.kafka.offset_reader import READ_TIMEOUT, UnfinishedReadError, read_upto
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.record import Record, StoredRecord, as_bytes, enqueue_time_of, size_of
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC
from kafkabus._ledger.operations import Ledger
from kafkabus._ledger.ranges import NEVER
from kafkabus_mapping.archive import ARCHIVE, ArchiveKey, read_archived, write_archived

LOGGER = logging.getLogger("kafkabus")

LARGEST = 1_870_000
"""The largest size of a copy in bytes; a copy is a third larger than its record, and a topic takes 2 MB."""
STORED_AT_ONCE = 8_000_000
"""How many bytes are stored in one go."""
READ_AT_ONCE = 200
"""How many copies are read in one go."""
TIMEOUT = 30.0
"""How long, in seconds, storing records may take."""


class ArchivedRecord(NamedTuple):
    """A message that is kept apart.

    Attributes:
        at: The offset of its copy in the archive's topic.
        due: When it is to be enqueued, ms since 1970; None if it is not scheduled.
    """

    at: int
    due: int | None


class RecordArchive:
    """A namespace's messages that are kept apart; safe to share.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic(ARCHIVE, COMPACTED_TOPIC)
        self._lock = Lock()
        self._read_to = 0
        self._known: dict[tuple[str, int], dict[int, ArchivedRecord]] = {}

    async def read(self, entity: Entity, partition: int, first: int, last: int) -> list[Record]:
        """Return the entity's messages between two offsets of its log, also those kept apart, as they are received.

        Raises:
            ServiceBusError: See ``OffsetReader.read``.
        """
        return entity.select_received(await self.read_as_stored(entity, partition, first, last))

    async def read_as_stored(
        self,
        entity: Entity,
        partition: int,
        first: int,
        last: int,
        timeout: float = READ_TIMEOUT,
        most_bytes: int | None = None,
        *,
        streams: bool = False,
    ) -> list[Record]:
        """Return the records of an entity's log between two offsets, also those kept apart; see ``OffsetReader.read``.

        Raises:
            ServiceBusError: See ``OffsetReader.read``.
        """
        connections, deadline = self._connections, time.monotonic() + timeout
        try:
            records = await connections.offset_reader.read(
                entity.topic, partition, first, last, timeout, most_bytes, streams=streams
            )
        except UnfinishedReadError as error:
            if error.records and error.records[0].offset() == first:
                raise
            # The missing records before them may be kept apart, so these records are not the beginning of the answer.
            raise UnfinishedReadError(str(error), []) from error
        if last < first or (records and records[0].offset() == first):
            return records
        start = (await connections.topics.starts(entity.topic, [partition]))[partition]
        if records and first >= start:
            return records
        if most_bytes is not None:
            last = read_upto(records, last, most_bytes) - 1
        there = {record.offset() for record in records}
        apart: list[Record] = []
        size = 0
        for offset, archived in sorted((await self._find(entity, partition, first, last)).items()):
            if offset not in there:
                apart.append(await self._fetch(archived, deadline))
                size += size_of(apart[-1])
                if most_bytes is not None and size >= most_bytes:
                    return apart
        return [*apart, *records]

    async def find_archived(self, entity: Entity, partition: int) -> dict[int, ArchivedRecord]:
        """Return the messages of a log that are kept apart, by offset.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        return await self._find(entity, partition, 0, NEVER)

    async def of_each(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, dict[int, ArchivedRecord]]:
        """Return the messages of several logs that are kept apart, by ledger; see ``find_archived``.

        Args:
            places: The ledgers, and the entity of each.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if not places:
            return {}
        async with self._lock:
            await self._learn()
            return {
                ledger: dict(self._known.get((entity.holder_id, ledger.partition), {}))
                for ledger, entity in places.items()
            }

    async def keep(self, entity: Entity, partition: int, records: Sequence[Record]) -> set[int]:
        """Store copies of records, which may be deleted from their log when this returns.

        Returns:
            The offsets of records that are too large and were not kept.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all copies.
        """
        texts: dict[str | None, bytes | None] = {}
        size, too_large = 0, set[int]()
        for record in records:
            text, offset = write_archived(*StoredRecord.copy(record)), record.offset() or 0
            if len(text) > LARGEST:
                too_large.add(offset)
                continue
            texts[_key(entity, partition, offset)], size = text, size + len(text)
            if size >= STORED_AT_ONCE:
                await self._topic.store(_WHAT, texts, timeout=TIMEOUT)
                texts, size = {}, 0
        if texts:
            await self._topic.store(_WHAT, texts, timeout=TIMEOUT)
        LOGGER.info("kept_apart entity=%s partition=%d count=%d", entity.path, partition, len(records) - len(too_large))
        return too_large

    async def drop(self, entity: Entity, partition: int, offsets: Collection[int]) -> None:
        """Delete the copies of messages that are not needed any more.

        Raises:
            ServiceBusCommunicationError: Kafka did not store the deletion.
        """
        if offsets:
            gone: dict[str | None, bytes | None] = {_key(entity, partition, offset): None for offset in offsets}
            await self._topic.store("that a message is settled", gone, timeout=TIMEOUT)

    async def drop_all(self, entity: Entity) -> None:
        """Delete the copies of all messages of an entity, when none is needed any more."""
        for partition in range(entity.partitions):
            await self.drop(entity, partition, await self.find_archived(entity, partition))

    async def _find(self, entity: Entity, partition: int, first: int, last: int) -> dict[int, ArchivedRecord]:
        async with self._lock:
            await self._learn()
            known = self._known.get((entity.holder_id, partition), {})
            return {offset: archived for offset, archived in known.items() if first <= offset <= last}

    async def _fetch(self, archived: ArchivedRecord, deadline: float) -> StoredRecord:
        try:
            record = await self._topic.read_one(archived.at, max(1.0, deadline - time.monotonic()))
        except (ServiceBusError, ValueError) as error:
            raise ServiceBusCommunicationError(f"a message that is kept apart: {error}", error=error) from error
        return _record(as_bytes(record.value()) or b"")

    async def _learn(self) -> None:
        """Learn which messages were kept and dropped since the last call."""
        try:
            await self._read_on()
        except ServiceBusError as error:
            # Unchanged, the error would seem to be about the caller's own log.
            raise ServiceBusCommunicationError(f"messages that are kept apart: {error}", error=error) from error

    async def _read_on(self) -> None:
        if not await self._topic.is_there():
            return
        async for upto, records in self._topic.batches(self._read_to, READ_AT_ONCE):
            for record in records:
                holder_id, partition, offset = ArchiveKey.parse((as_bytes(record.key()) or b"").decode())
                place, value = (holder_id, partition), as_bytes(record.value())
                known = self._known.setdefault(place, {})
                if value is None:
                    known.pop(offset, None)
                else:
                    known[offset] = ArchivedRecord(record.offset() or 0, enqueue_time_of(_record(value)))
                if not known:
                    del self._known[place]
            self._read_to = upto


_WHAT = "a message that outlasts its log"


def _key(entity: Entity, partition: int, offset: int) -> str:
    return str(ArchiveKey(entity.holder_id, partition, offset))


def _record(text: bytes) -> StoredRecord:
    return StoredRecord(*read_archived(text))
