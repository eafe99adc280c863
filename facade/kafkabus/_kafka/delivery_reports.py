"""Records given to a producer together, and what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from kafkabus._core.record import as_bytes

SERVE_SLICE = 0.01
"""Longest time, in seconds, for which one waiter serves acknowledgements before it looks whether its own have come."""


UNKNOWN_OFFSET = -1
"""Offset of a record that is stored, where the broker did not say where."""


Content = tuple[int | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not acknowledged.

    Attributes:
        content: Its partition, key and value; Kafka's client gives back no more of it.
        error: What Kafka's client said.
    """

    content: Content
    error: KafkaError

    @property
    def unknown(self) -> bool:
        """Whether the record may have been stored all the same: the broker got it and did not answer."""
        return self.error.code() in {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}

    @property
    def elsewhere(self) -> bool:
        """Whether another partition may take the record: nothing is wrong with the record itself."""
        return self.unknown or self.error.code() in _PARTITION_UNAVAILABLE


_PARTITION_UNAVAILABLE = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}


class DeliveryReports:
    """Records given to a producer together.

    Args:
        count: How many there are.
        keep_offsets: Whether the offsets at which they were stored are wanted.

    Attributes:
        left: How many were neither acknowledged nor given up yet.
        failures: Records that were not acknowledged.
        stored: Partition and offset of each stored record in order of acknowledgement, where wanted.
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
    def done(self) -> bool:
        """Whether each record was acknowledged or given up."""
        return self.left == 0

    def when_done(self, call: Callable[[], object]) -> None:
        """Call something once, from whichever thread serves acknowledgements, or at once where all is done."""
        with self._guard:
            if self.left:
                self._when_done.append(call)
                return
        call()

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Kafka's client calls this for each record."""
        calls: list[Callable[[], object]] = []
        with self._guard:
            if error is not None:
                content = message.partition(), as_bytes(message.key()), as_bytes(message.value())
                self.failures.append(Failure(content, error))
            elif self._keep_offsets:
                offset = message.offset()
                self.stored.append((message.partition() or 0, UNKNOWN_OFFSET if offset is None else offset))
            self.left -= 1
            if self.left == 0:
                calls, self._when_done = self._when_done, calls
        for call in calls:
            call()
