"""Kafka records as the facade reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from kafkabus_mapping.codec import (
    Envelope,
    Headers,
    change_properties,
    decode_headers,
    read_moment,
    read_time_to_live,
    record_size,
)
from kafkabus_mapping.headers import SCHEDULED_ENQUEUE_TIME, SESSION_ID, TIME_TO_LIVE, TRANSFER_SOURCE
from kafkabus_mapping.properties import read_changes

_TIMES = frozenset({SCHEDULED_ENQUEUE_TIME, TIME_TO_LIVE})


class Record(Protocol):
    """The part of a consumed record that the facade needs; ``confluent_kafka.Message`` fits."""

    def topic(self) -> str | None:
        """Return the Kafka topic."""
        ...

    def partition(self) -> int | None:
        """Return the Kafka partition."""
        ...

    def offset(self) -> int | None:
        """Return the Kafka offset."""
        ...

    def key(self) -> str | bytes | None:
        """Return the partition key, or None."""
        ...

    def value(self) -> str | bytes | None:
        """Return the body, or None."""
        ...

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return names and values in order, or None."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970 UTC."""
        ...

    def leader_epoch(self) -> int | None:
        """Return how often the partition had changed leaders when the record was stored; None if that is not known."""
        ...


class StoredRecord(NamedTuple):
    """A record as a picklable value; the methods are ``Record``'s.

    Attributes:
        where: Topic, partition and offset.
        content: Key, value and headers.
        stamp: Kind and milliseconds of the record's timestamp.
    """

    where: tuple[str, int, int]
    content: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
    stamp: tuple[int, int]

    @classmethod
    def copy(cls, record: Record) -> StoredRecord:
        """Return a copy of any record."""
        topic, partition, offset = place_of(record)
        content = (as_bytes(record.key()), as_bytes(record.value()), list(record.headers() or ()))
        return cls((topic, partition, offset), content, record.timestamp())

    def topic(self) -> str | None:
        """Return the Kafka topic."""
        return self.where[0]

    def partition(self) -> int | None:
        """Return the Kafka partition."""
        return self.where[1]

    def offset(self) -> int | None:
        """Return the Kafka offset."""
        return self.where[2]

    def key(self) -> str | bytes | None:
        """Return the partition key, or None."""
        return self.content[0]

    def value(self) -> str | bytes | None:
        """Return the body, or None."""
        return self.content[1]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return names and values in order, or None."""
        return self.content[2]

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970 UTC."""
        return self.stamp

    def leader_epoch(self) -> int | None:
        """Return None: the copy does not keep it."""
        return None


class ChangedRecord:
    """A record with other headers than it was stored with; the methods are ``Record``'s.

    Args:
        stored: The record as it was stored.
        headers: The other headers.
    """

    __slots__ = ("_headers", "_stored")

    def __init__(self, stored: Record, headers: Headers) -> None:
        self._stored = stored
        self._headers = headers

    def topic(self) -> str | None:
        """Return the Kafka topic."""
        return self._stored.topic()

    def partition(self) -> int | None:
        """Return the Kafka partition."""
        return self._stored.partition()

    def offset(self) -> int | None:
        """Return the Kafka offset."""
        return self._stored.offset()

    def key(self) -> str | bytes | None:
        """Return the partition key, or None."""
        return self._stored.key()

    def value(self) -> str | bytes | None:
        """Return the body, or None."""
        return self._stored.value()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return names and values in order."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970 UTC."""
        return self._stored.timestamp()

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that stored the record."""
        return self._stored.leader_epoch()


def with_changes(record: Record, changes: Mapping[str, str]) -> Record:
    """Return a record as its message is since it was returned with changed application properties.

    Args:
        record: The record, as it was stored, or as a rule left it.
        changes: The value of each changed property, as JSON, by its name; see ``write_changes``.
    """
    if not changes:
        return record
    return ChangedRecord(record, change_properties(record.headers() or (), read_changes(changes)))


def place_of(record: Record) -> tuple[str, int, int]:
    """Return topic, partition and offset of a record.

    Raises:
        ValueError: The record was never stored, so it has no place.
    """
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError("a record that was never stored has no place")
    return topic, partition, offset


def as_bytes(content: str | bytes | None) -> bytes | None:
    """Return a key or value as bytes; Kafka's client types it as text or bytes."""
    return content.encode() if isinstance(content, str) else content


def envelope_of(record: Record) -> Envelope:
    """Return a record's properties, as a receiver would see them."""
    place = f"{record.topic()}/{record.partition()}/{record.offset()}"
    return decode_headers(record.headers(), key=as_bytes(record.key()), place=place)


def own_time_to_live(record: Record) -> int | None:
    """Return the time to live that a record brings along, in milliseconds; None if it brings none that can be read."""
    lives = None
    for name, value in record.headers() or ():
        if name == TIME_TO_LIVE and value is not None:
            with suppress(ValueError, OverflowError):
                lives = read_time_to_live(value)
    return lives


def enqueue_time_of(record: Record) -> int | None:
    """Return when a copy of a scheduled record may be granted, ms since 1970; the record itself never is.

    Return None if the record may be granted at once, as the copy of a scheduled record may.
    """
    due = None
    for name, value in record.headers() or ():
        if name == TRANSFER_SOURCE:
            return None
        if name == SCHEDULED_ENQUEUE_TIME and value is not None:
            with suppress(ValueError, OverflowError):
                due = read_moment(value)
    return due


def schedule_of(records: Iterable[Record]) -> list[tuple[int, int]]:
    """Return offset and time of those records that are scheduled."""
    return [
        (record.offset() or 0, due) for record in _with_times(records) if (due := enqueue_time_of(record)) is not None
    ]


def part_scheduled(records: Sequence[Record]) -> tuple[list[tuple[int, int]], list[Record]]:
    """Return offset and time of those records that are scheduled, and the other records."""
    items = schedule_of(records)
    waiting = dict(items)
    return items, [record for record in records if record.offset() not in waiting] if items else list(records)


def exclude_records(records: Iterable[Record], excluded: Iterable[Record]) -> list[Record]:
    """Return records of a log that are not among others of it, in their order."""
    gone = {record.offset() for record in excluded}
    return [record for record in records if record.offset() not in gone]


def any_lives(records: Iterable[Record]) -> bool:
    """Return whether any of some records brings a time to live along."""
    return any(own_time_to_live(record) is not None for record in _with_times(records))


def _with_times(records: Iterable[Record]) -> list[Record]:
    """Return those of some records that bring a time along; fast, because this looks at each record that is received."""
    return [
        record
        for record in records
        if (headers := record.headers())
        # Most records have a message id, and no other header.
        and (headers[0][0] in _TIMES if len(headers) == 1 else not _TIMES.isdisjoint([name for name, _ in headers]))
    ]


def session_of(record: Record) -> str | None:
    """Return the session that a record belongs to; None if it names none that can be read."""
    for name, value in reversed(record.headers() or ()):
        if name == SESSION_ID and value is not None:
            try:
                return value.decode()
            except UnicodeDecodeError:
                continue
    return None


def expires_at(record: Record, life_ms: int | None) -> int | None:
    """Return when a record's time to live, its own or its entity's if that is shorter, is over, ms since 1970; None: never.

    Args:
        record: The record.
        life_ms: The entity's time to live, in milliseconds; None: for ever.
    """
    own = own_time_to_live(record)
    lives = own if life_ms is None or (own is not None and own < life_ms) else life_ms
    return None if lives is None else record.timestamp()[1] + lives


def is_expired(record: Record, life_ms: int | None, now_ms: int) -> bool:
    """Return whether a record's time to live is over at a moment, ms since 1970; see ``expires_at``."""
    moment = expires_at(record, life_ms)
    return moment is not None and moment <= now_ms


def size_of(record: Record) -> int:
    """Return how many bytes a record has, as a message's size is counted."""
    return record_size(as_bytes(record.value()), record.key(), record.headers() or ())
