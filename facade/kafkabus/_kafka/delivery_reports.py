"""Delivery reports of records that are given to a producer together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from kafkabus._core.record import as_bytes
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_options import GONE

SERVE_SLICE = 0.01
"""How long a waiting thread serves acknowledgements before it checks for its own, in seconds."""


UNKNOWN_OFFSET = -1
"""The offset of a stored record if the broker did not report it."""


Content = tuple[int | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not acknowledged.

    Attributes:
        content: The record's partition, key and value; Kafka's client returns no other fields.
        error: The error of Kafka's client.
        position: The record's position among those that were given to the producer together; None if it was not kept.
    """

    content: Content
    error: KafkaError
    position: int | None = None

    @property
    def unknown(self) -> bool:
        """Whether the record may have been stored nevertheless: the broker may have received it, but did not answer."""
        return self.error.code() in {error_codes.MSG_TIMED_OUT, error_codes.TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}

    @property
    def too_large(self) -> bool:
        """Whether the topic does not accept a record, or a batch of records, of this size, so that none was stored."""
        return self.error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    @property
    def topic_gone(self) -> bool:
        """Whether there is no such topic or partition, so that the record was not stored."""
        return self.error.code() in GONE

    @property
    def elsewhere(self) -> bool:
        """Whether another partition may accept the record, because the record itself is valid."""
        return self.unknown or self.error.code() in _PARTITION_UNAVAILABLE


_PARTITION_UNAVAILABLE = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.BROKER_NOT_AVAILABLE,
    error_codes.TRANSPORT,
    error_codes.ALL_BROKERS_DOWN,
}


class DeliveryReports:
    """Records given to a producer together.

    Args:
        count: The number of records.
        keep_offsets: Whether to keep the offsets at which the records were stored.

    Attributes:
        left: The number of records that were neither acknowledged nor given up yet.
        failures: Records that were not acknowledged.
        stored: Partition and offset of each stored record in order of acknowledgement, if ``keep_offsets`` is set.
    """

    __slots__ = ("_guard", "_keep_offsets", "_when_done", "failures", "left", "stored")

    def __init__(self, count: int, *, keep_offsets: bool = False) -> None:
        self.failures: list[Failure] = []
        self.stored: list[tuple[int, int]] = []
        self.left = count
        self._keep_offsets = keep_offsets
        self._guard = threading.Lock()
        self._when_done: list[Callable[[], object]] = []

    @property
    def is_done(self) -> bool:
        """Whether each record was acknowledged or given up."""
        return self.left == 0

    def when_done(self, call: Callable[[], object]) -> None:
        """Call a function once all records are done, in the thread that serves acknowledgements; at once if they are done."""
        with self._guard:
            if self.left:
                self._when_done.append(call)
                return
        call()

    def acknowledge(self, error: KafkaError | None, message: Message, position: int | None = None) -> None:
        """Note the acknowledgement or the failure of a record; Kafka's client calls this."""
        if error is not None:
            self.refuse((message.partition(), as_bytes(message.key()), as_bytes(message.value())), error, position)
            return
        offset = message.offset() if self._keep_offsets else None
        self._note(None, (message.partition() or 0, UNKNOWN_OFFSET if offset is None else offset))

    def refuse(self, content: Content, error: KafkaError, position: int | None = None) -> None:
        """Note that a record was not acknowledged, or that Kafka's client does not take it."""
        self._note(Failure(content, error, position), (0, UNKNOWN_OFFSET))

    def _note(self, failure: Failure | None, place: tuple[int, int]) -> None:
        calls: list[Callable[[], object]] = []
        with self._guard:
            if failure is not None:
                self.failures.append(failure)
            elif self._keep_offsets:
                self.stored.append(place)
            self.left -= 1
            if self.left == 0:
                calls, self._when_done = self._when_done, calls
        for call in calls:
            call()
