"""An in-memory substitute for Kafka: topics, a producer, consumers.

The clients have only the methods of confluent-kafka's clients that the SDK calls.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition

from kafkabus._kafka.topic_admin import Topic
from kafkabus._ledger.operations import Tail
from kafkabus.exceptions import ServiceBusError

EPOCH = 0
"""The leader epoch of all logs."""

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """Replaces ``confluent_kafka.Message``; the methods are ``kafkabus._core.record.Record``'s."""

    _place: tuple[str, int, int]
    _content: tuple[bytes | None, bytes | None, Headers]
    _stored_ms: int
    _error: KafkaError | None = None

    def __len__(self) -> int:
        """Return the size of the body in bytes."""
        return len(self._content[1] or b"")

    def __bool__(self) -> bool:
        """Return True, also without a body."""
        return True

    def topic(self) -> str:
        """Return the Kafka topic."""
        return self._place[0]

    def partition(self) -> int:
        """Return the Kafka partition."""
        return self._place[1]

    def offset(self) -> int:
        """Return the Kafka offset."""
        return self._place[2]

    def key(self) -> bytes | None:
        """Return the partition key, or None."""
        return self._content[0]

    def value(self) -> bytes | None:
        """Return the body, or None."""
        return self._content[1]

    def headers(self) -> Headers:
        """Return names and values in order."""
        return self._content[2]

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970 UTC."""
        return TIMESTAMP_LOG_APPEND_TIME, self._stored_ms

    def leader_epoch(self) -> int:
        """Return the leader epoch, which never changes."""
        return EPOCH

    def error(self) -> KafkaError | None:
        """Return the error if this is an event, or None if it is a record."""
        return self._error


@dataclass(slots=True)
class _Log:
    """The log of a partition; ``start`` is the offset of the first record, ``open`` has records of open transactions.

    The log has gaps at the markers that end transactions, and at the records of aborted transactions.
    """

    start: int = 0
    records: list[MemoryMessage | None] = field(default_factory=list[MemoryMessage | None])
    open: set[int] = field(default_factory=set[int])

    @property
    def stored_end(self) -> int:
        return self.start + len(self.records)

    @property
    def end(self) -> int:
        return min(self.open, default=self.stored_end)

    @property
    def committed(self) -> list[MemoryMessage]:
        return [record for record in self.records[: self.end - self.start] if record is not None]


@dataclass(slots=True)
class _Topic:
    topic_id: str
    logs: list[_Log]


class Cluster:
    """All topics of a namespace; safe to share between threads.

    Args:
        now_ms: The time, ms since 1970.

    Attributes:
        grown: The condition that is held while topics are read or changed, and that wakes consumers that wait for records.
        topics: The topics by name.
        open: Records of open transactions, by their producers' transactional ids.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.grown = threading.Condition()
        self.topics: dict[str, _Topic] = {}
        self.open: dict[str, list[tuple[_Log, int]]] = {}

    def append(
        self,
        topic: str,
        partition: int,
        content: tuple[bytes | None, bytes | None, Headers],
        transaction: list[tuple[_Log, int]] | None = None,
    ) -> MemoryMessage:
        """Store a record, in a transaction or without one; return it, or an event with the error."""
        with self.grown:
            known = self.topics.get(topic)
            if known is None or not 0 <= partition < len(known.logs):
                error = KafkaError(KafkaError._UNKNOWN_TOPIC if known is None else KafkaError._UNKNOWN_PARTITION)
                return MemoryMessage((topic, partition, -1), content, 0, error)
            log = known.logs[partition]
            stored = MemoryMessage((topic, partition, log.stored_end), content, self._now_ms())
            log.records.append(stored)
            if transaction is not None:
                log.open.add(stored.offset())
                transaction.append((log, stored.offset()))
            self.grown.notify_all()
            return stored

    def end(self, transaction: list[tuple[_Log, int]], *, committed: bool) -> None:
        """End a transaction: its records become readable, or are dropped."""
        with self.grown:
            for log, offset in transaction:
                log.open.discard(offset)
                if not committed and offset >= log.start:
                    log.records[offset - log.start] = None
            for log in {id(log): log for log, _ in transaction}.values():
                log.records.append(None)
            transaction.clear()
            self.grown.notify_all()


class MemoryTopics:
    """Replaces ``kafkabus._kafka.topic_admin.Topics``, which documents the methods."""

    has_contact = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def close(self) -> None:
        """Do nothing; there is no client to end."""

    def brokers(self) -> int:
        """Return the number of brokers, 1."""
        return 1

    def create_entity(self, name: str, partitions: int) -> bool:
        """Create an entity's topic; return False if it existed already."""
        return self.create(name, partitions, {})

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> bool:  # noqa: ARG002 - nothing is dropped
        """Create a topic; return False if it existed already."""
        with self._cluster.grown:
            if name in self._cluster.topics:
                return False
            self._cluster.topics[name] = _Topic(uuid.uuid4().hex[:22], [_Log() for _ in range(partitions)])
            return True

    def delete(self, name: str) -> bool:
        """Delete a topic; return False if there was none."""
        with self._cluster.grown:
            gone = self._cluster.topics.pop(name, None) is not None
            self._cluster.grown.notify_all()
            return gone

    def describe(self, name: str, timeout: float | None = None) -> Topic | None:  # noqa: ARG002  # as Kafka's
        """Return a topic, or None if it does not exist."""
        return self.describe_all([name]).get(name)

    def describe_all(self, names: Sequence[str], timeout: float | None = None) -> dict[str, Topic]:  # noqa: ARG002  # as Kafka's
        """Return those of several topics that exist."""
        with self._cluster.grown:
            found = {name: known for name in names if (known := self._cluster.topics.get(name)) is not None}
            return {name: Topic(name, known.topic_id, len(known.logs), ()) for name, known in found.items()}

    def wait_for(self, name: str) -> Topic:
        """Return a topic that was just created."""
        described = self.describe(name)
        if described is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return described

    def starts(self, name: str, partitions: Iterable[int], timeout: float | None = None) -> dict[int, int]:  # noqa: ARG002  # as Kafka's
        """Return the first offset of each log."""
        with self._cluster.grown:
            return {partition: self._log(name, partition).start for partition in partitions}

    def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each log."""
        with self._cluster.grown:
            return {partition: self._log(name, partition).end for partition in partitions}

    def stored_ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each log, records of open transactions included."""
        with self._cluster.grown:
            return {partition: self._log(name, partition).stored_end for partition in partitions}

    def tails(self, name: str, partitions: Iterable[int], timeout: float) -> dict[int, Tail]:  # noqa: ARG002  # as Kafka's
        """Return the end of each log, and its leader epoch, which never changes."""
        try:
            return {partition: Tail(end, EPOCH) for partition, end in self.ends(name, partitions).items()}
        except KafkaException as error:
            raise ServiceBusError(f"topic {name} is gone", error=error) from error

    def newest(self, name: str, partitions: Iterable[int]) -> int | None:
        """Return when the newest record was stored, ms since 1970, or None if there is no record."""
        with self._cluster.grown:
            logs = [self._log(name, partition) for partition in partitions]
            return max((record.timestamp()[1] for log in logs for record in log.committed[-1:]), default=None)

    def offsets_at(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, int]:
        """Return each log's first offset whose record is not older than a moment, else the log's end."""
        return {partition: offset for partition, (offset, _) in self.first_after(name, partitions, moment_ms).items()}

    def first_after(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, tuple[int, int | None]]:
        """Return each log's first offset whose record is not older than a moment, with its time; else the log's end."""
        with self._cluster.grown:
            found: dict[int, tuple[int, int | None]] = {}
            for partition in partitions:
                log = self._log(name, partition)
                record = next((message for message in log.committed if message.timestamp()[1] >= moment_ms), None)
                found[partition] = (log.end, None) if record is None else (record.offset() or 0, record.timestamp()[1])
            return found

    def names(self) -> set[str]:
        """Return the names of all topics."""
        with self._cluster.grown:
            return set(self._cluster.topics)

    def ends_of(self, topics: Mapping[str, int], *, stored: bool = False) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of several topics; without topics that are gone."""
        with self._cluster.grown:
            return {
                name: {
                    partition: log.stored_end if stored else log.end
                    for partition, log in enumerate(self._cluster.topics[name].logs)
                }
                for name in topics
                if name in self._cluster.topics
            }

    def ends_of_empty(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of those topics whose logs hold no record."""
        with self._cluster.grown:
            logs = {name: self._cluster.topics[name].logs for name in topics if name in self._cluster.topics}
            return {
                name: {partition: log.end for partition, log in enumerate(partitions)}
                for name, partitions in logs.items()
                if all(log.start == log.end for log in partitions)
            }

    def delete_records(self, name: str, upto: Mapping[int, int]) -> None:
        """Delete each log's records below an offset."""
        with self._cluster.grown:
            for partition, offset in upto.items():
                log = self._log(name, partition)
                start = min(max(log.start, offset), log.end)
                del log.records[: start - log.start]
                log.start = start

    def _log(self, name: str, partition: int) -> _Log:
        known = self._cluster.topics.get(name)
        if known is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return known.logs[partition]


class MemoryProducer:
    """Replaces ``confluent_kafka.Producer``."""

    def __init__(self, cluster: Cluster, transactional_id: str = "") -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._told: deque[Callable[[], object]] = deque()
        self._transaction: list[tuple[_Log, int]] | None = None

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        callback: Callable[[KafkaError | None, Any], object],
        _reserved: object = None,
        _timestamp: int = 0,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
    ) -> None:
        """Store a record; the next ``flush`` calls the callback."""
        kept = [(name, _bytes(content)) for name, content in headers]
        stored = self._cluster.append(topic, partition, (_bytes(key), _bytes(value), kept), self._transaction)
        self._told.append(lambda: callback(stored.error(), stored))

    def flush(self, _timeout: float = -1) -> int:
        """Call the callbacks; no record is ever left to send."""
        while self._told:
            try:
                tell = self._told.popleft()
            except IndexError:
                break  # Another thread called it.
            tell()
        return 0

    def init_transactions(self, _timeout: float = -1) -> None:
        """Abort the open transaction of an earlier producer with the same transactional id."""
        self._cluster.end(self._cluster.open.pop(self._transactional_id, []), committed=False)

    def begin_transaction(self) -> None:
        """Begin a transaction, whose records are read together or not at all."""
        self._transaction = self._cluster.open[self._transactional_id] = []

    def commit_transaction(self, _timeout: float = -1) -> None:
        """Commit the transaction: its records become readable."""
        self._end(committed=True)

    def abort_transaction(self, _timeout: float = -1) -> None:
        """Abort the transaction: its records are dropped."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        transaction, self._transaction = self._transaction or [], None
        self._cluster.open.pop(self._transactional_id, None)
        self.flush()
        self._cluster.end(transaction, committed=committed)


@dataclass(slots=True)
class _Position:
    """The position of a consumer in a log; quiet: it has reported that it is at the end, or cannot go on."""

    topic: _Topic | None
    offset: int
    quiet_at: int = -1


class MemoryConsumer:
    """Replaces ``confluent_kafka.Consumer``, set as ``client_options`` says; one thread at a time may use it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[tuple[str, int], _Position] = {}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Read only these partitions."""
        self._positions = {}
        self.incremental_assign(places)

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        """Read these partitions as well."""
        with self._cluster.grown:
            for place in places:
                known = self._cluster.topics.get(place.topic)
                self._positions[place.topic, place.partition] = _Position(known, place.offset)

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for place in places:
            self._positions.pop((place.topic, place.partition), None)

    def unassign(self) -> None:
        """Stop reading all partitions."""
        self._positions = {}

    def seek(self, place: TopicPartition) -> None:
        """Continue reading a partition at another offset."""
        if (place.topic, place.partition) not in self._positions:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.incremental_assign([place])

    def poll(self, timeout: float) -> MemoryMessage | None:
        """Return a record or an event, or None if none comes in time."""
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, count: int, timeout: float) -> list[MemoryMessage]:
        """Return up to ``count`` records and events; wait until there is one."""
        deadline = time.monotonic() + timeout
        with self._cluster.grown:
            while True:
                found: list[MemoryMessage] = []
                for (topic, partition), position in self._positions.items():
                    found += self._read(topic, partition, position, count - len(found))
                left = deadline - time.monotonic()
                if found or left <= 0:
                    return found
                self._cluster.grown.wait(left)

    def get_watermark_offsets(self, place: TopicPartition, **_options: object) -> tuple[int, int]:
        """Return the first offset and the end of a log."""
        with self._cluster.grown:
            known = self._cluster.topics.get(place.topic)
            if known is None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            log = known.logs[place.partition]
            return log.start, log.end

    def list_topics(self, topic: str, timeout: float = -1) -> Any:  # noqa: ARG002 - needs no waiting
        """Return metadata that says whether a topic exists."""
        there = topic in self._cluster.topics
        error = None if there else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
        """Return the places: an answer that no caller reads."""
        return list(places)

    def close(self) -> None:
        """Close the consumer."""
        self._positions = {}

    def _read(self, topic: str, partition: int, position: _Position, count: int) -> list[MemoryMessage]:
        if count <= 0:
            return []
        if position.topic is None or self._cluster.topics.get(topic) is not position.topic:
            return self._say_once(KafkaError.UNKNOWN_TOPIC_OR_PART, topic, partition, position)
        log = position.topic.logs[partition]
        if not log.start <= position.offset <= log.stored_end:
            return self._say_once(KafkaError._AUTO_OFFSET_RESET, topic, partition, position)
        if position.offset >= log.end:
            return self._say_once(KafkaError._PARTITION_EOF, topic, partition, position)
        records: list[MemoryMessage] = []
        while len(records) < count and position.offset < log.end:
            record = log.records[position.offset - log.start]
            position.offset += 1
            if record is not None:
                records.append(record)
        position.quiet_at = -1
        return records or self._read(topic, partition, position, count)

    @staticmethod
    def _say_once(code: int, topic: str, partition: int, position: _Position) -> list[MemoryMessage]:
        if position.quiet_at == position.offset:
            return []
        position.quiet_at = position.offset
        return [MemoryMessage((topic, partition, position.offset), (None, None, []), 0, KafkaError(code))]


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
