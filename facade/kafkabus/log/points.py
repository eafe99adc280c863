# Generated from facade/kafkabus/aio/log/points.py by tools/generate_blocking.py. Do not edit.
"""Reading records by offset: messages that were granted before, and whole companion topics."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkabus._acompat import Lock, Pool
from kafkabus.connection_string import Settings
from kafkabus.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus.log.configuration import LOGGER, point_options
from kafkabus.record import Record

READ_TIMEOUT = 30.0
"""How long, in seconds, a read by offset may take before Kafka counts as unreachable."""


class PointReader:
    """One kept consumer for all reads by offset of a client; safe to share.

    Args:
        settings: Where Kafka is.
        pool: Threads for blocking calls.
    """

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._turn = Lock()
        self._consumer: Consumer | None = None
        self._assigned: tuple[str, int] | None = None

    def read(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        """The committed records from ``first`` to ``last`` that the log holds, in order.

        Raises:
            ServiceBusCommunicationError: They did not come in time.
        """
        with self._turn:
            return self._pool.run(self._read, topic, partition, first, last)

    def close(self) -> None:
        """Close the consumer, if one was needed."""
        with self._turn:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                self._pool.run(consumer.close)

    def _read(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        if last < first:
            return []
        consumer = self._place(topic, partition, first)
        deadline = time.monotonic() + READ_TIMEOUT
        records: list[Record] = []
        while True:
            missing = last - first + 1 - len(records)
            head = consumer.poll(max(0.0, deadline - time.monotonic()))
            if head is None:
                raise ServiceBusCommunicationError(
                    f"Kafka {self._settings.bootstrap_servers} did not answer within {READ_TIMEOUT:.0f} s: "
                    f"records {first} to {last} of {topic}/{partition} were not read"
                )
            for message in [head, *(consumer.consume(missing - 1, 0) if missing > 1 else ())]:
                error, offset = message.error(), message.offset() or 0
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    return self._read_from_start(consumer, topic, partition, first, last)
                if error is not None:
                    self._check_event(error, topic, partition, offset, last)
                elif offset <= last:
                    records.append(message)  # pyright: ignore[reportArgumentType]  # typed as headers may be produced
                if offset >= last and (error is None or error.code() == KafkaError._PARTITION_EOF):
                    return records

    def _check_event(self, error: KafkaError, topic: str, partition: int, offset: int, last: int) -> None:
        """An event that no patience mends is an error."""
        if error.code() == KafkaError._PARTITION_EOF and offset <= last:
            raise _truncated(topic, partition, offset, last)
        if error.fatal() or error.code() in _GONE:
            self._assigned = None
            raise KafkaException(error)

    def _read_from_start(self, consumer: Consumer, topic: str, partition: int, first: int, last: int) -> list[Record]:
        """The log does not hold ``first``: it begins behind it, or ends before it."""
        self._assigned = None
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT)
        if start <= first:
            raise _truncated(topic, partition, end, last)
        return self._read(topic, partition, start, last)

    def _place(self, topic: str, partition: int, offset: int) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(point_options(self._settings), logger=LOGGER)
            self._assigned = None
        where = TopicPartition(topic, partition, offset)
        if self._assigned == (topic, partition):
            try:
                self._consumer.seek(where)
            except KafkaException:
                # Not fetching yet: assigning anew does the same, later.
                self._consumer.assign([where])
        else:
            self._consumer.assign([where])
            self._assigned = (topic, partition)
        return self._consumer


_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def _truncated(topic: str, partition: int, end: int, wanted: int) -> ServiceBusError:
    return ServiceBusError(
        f"the log of {topic}/{partition} ends at offset {end}, and offset {wanted} was stored there once: it was truncated "
        "or made anew behind our back; nothing is skipped silently"
    )
