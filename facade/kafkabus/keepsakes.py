# Generated from facade/kafkabus/aio/keepsakes.py by tools/generate_blocking.py. Do not edit.
"""Messages that outlast their log: deferred and scheduled ones, kept apart so that the records behind them can be deleted.

They stay what they are in their ledger, under their offsets; only their records are elsewhere, in a compacted topic of the
namespace. Whoever reads below the beginning of a log finds them there.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kafkabus._acompat import Lock
from kafkabus.entity import Entity
from kafkabus.log.points import READ_TIMEOUT
from kafkabus.log.topics import COMPANION_TOPIC
from kafkabus.record import Record, StoredRecord, as_bytes

if TYPE_CHECKING:
    from kafkabus.services import Services

LOGGER = logging.getLogger("kafkabus")

LARGEST = 1_400_000
"""How large a record may be, in bytes, to be kept; it takes a third more there, and a topic takes 2 MB."""
TIMEOUT = 30.0
"""How long it may take until records are stored, in seconds."""


class Keepsakes:
    """A namespace's messages that are kept apart; safe to share.

    Args:
        services: The client's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._companion = services.companion("keepsakes", COMPANION_TOPIC)
        self._lock = Lock()
        self._read_to = 0
        self._known: defaultdict[tuple[str, int], dict[int, StoredRecord]] = defaultdict(dict)

    def read(
        self, entity: Entity, partition: int, first: int, last: int, timeout: float = READ_TIMEOUT
    ) -> list[Record]:
        """The records of an entity's log from one offset to another, those that are kept apart too; see ``PointReader.read``.

        Raises:
            ServiceBusError: As of ``PointReader.read``.
        """
        services = self._services
        records = services.points.read(entity.topic, partition, first, last, timeout)
        if last < first or (records and records[0].offset() == first):
            return records
        start = (services.pool.run(services.topics.starts, entity.topic, [partition]))[partition]
        if first >= start:
            return records
        kept = self.of(entity, partition)
        there = {record.offset() for record in records}
        apart: list[Record] = [kept[one] for one in sorted(kept) if first <= one <= last and one not in there]
        return [*apart, *records]

    def of(self, entity: Entity, partition: int) -> dict[int, StoredRecord]:
        """What is kept of a log, by its offset.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        return (self.of_all(entity))[partition]

    def of_all(self, entity: Entity) -> list[dict[int, StoredRecord]]:
        """Likewise, of each log of an entity.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        with self._lock:
            self._read_on()
            return [dict(self._known[entity.topic_id, partition]) for partition in range(entity.partitions)]

    def keep(self, entity: Entity, partition: int, records: Sequence[Record]) -> None:
        """Keep records apart; they may be deleted from their log when this returns.

        Raises:
            ServiceBusCommunicationError: They were not all stored.
        """
        texts: dict[str | None, bytes | None] = {
            _key(entity, partition, record.offset() or 0): _text(record) for record in records
        }
        texts = {key: text for key, text in texts.items() if text is not None and len(text) < LARGEST * 4 / 3}
        if texts:
            self._companion.store("a message that outlasts its log", texts, timeout=TIMEOUT)
            LOGGER.info("kept_apart entity=%s partition=%d count=%d", entity.path, partition, len(texts))

    def drop(self, entity: Entity, partition: int, offsets: Collection[int]) -> None:
        """These are not needed any more.

        Raises:
            ServiceBusCommunicationError: That was not stored.
        """
        if offsets:
            gone: dict[str | None, bytes | None] = {_key(entity, partition, offset): None for offset in offsets}
            self._companion.store("that a message is settled", gone, timeout=TIMEOUT)

    def _read_on(self) -> None:
        records, self._read_to = self._companion.read(self._read_to)
        for record in records:
            where, _, offset = (as_bytes(record.key()) or b"").decode().rpartition("#")
            topic_id, _, partition = where.rpartition("/")
            known, value = self._known[topic_id, int(partition)], as_bytes(record.value())
            if value is None:
                known.pop(int(offset), None)
            else:
                known[int(offset)] = _record(value)


def _key(entity: Entity, partition: int, offset: int) -> str:
    return f"{entity.topic_id}/{partition}#{offset}"


def _text(record: Record) -> bytes:
    (topic, partition, offset), (key, value, headers), stamp = StoredRecord.of(record)
    parts = [_encoded(key), _encoded(value), [(name, _encoded(content)) for name, content in headers]]
    return json.dumps([(topic, partition, offset), parts, stamp], separators=(",", ":")).encode()


def _record(text: bytes) -> StoredRecord:
    (topic, partition, offset), (key, value, headers), (kind, moment) = json.loads(text)
    content = _decoded(key), _decoded(value), [(name, _decoded(one)) for name, one in headers]
    return StoredRecord((topic, partition, offset), content, (kind, moment))


def _encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _decoded(content: str | None) -> bytes | None:
    return None if content is None else base64.b64decode(content)
