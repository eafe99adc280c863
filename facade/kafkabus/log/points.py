# Generated from facade/kafkabus/aio/log/points.py by tools/generate_blocking.py. Do not edit.
"""Reading records by offset: messages that were granted before, and whole companion topics."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkabus._acompat import Lock, Pool, try_acquire
from kafkabus.connection_string import Settings
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus.log.clients import open_consumer
from kafkabus.log.configuration import point_options
from kafkabus.record import Record

READ_TIMEOUT = 30.0
"""How long, in seconds, a read by offset may take before Kafka counts as unreachable."""
SILENCE = 1.0
"""After how many seconds without an answer it is asked whether the topic is still there."""
CONSUMERS = 4
"""How many reads of a client go on at a time."""


class PointReader:
    """All reads by offset of a client; safe to share.

    A few kept consumers share the work, so that a partition that does not answer delays no other.

    Args:
        settings: Where Kafka is.
        pool: Threads for blocking calls.
    """

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._pool = pool
        self._consumers = [_PointConsumer(settings) for _ in range(CONSUMERS)]

    def read(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        """The committed records from ``first`` to ``last`` that the log holds, in order.

        Raises:
            MessagingEntityNotFoundError: The topic is gone.
            ServiceBusCommunicationError: They did not come in time.
            ServiceBusError: The log ends before ``last``, or cannot be read.
        """
        if last < first:
            return []
        place = (topic, partition)
        # The one that reads there already need not be assigned anew.
        for one in sorted(self._consumers, key=lambda one: one.assigned != place):
            if try_acquire(one.turn):
                break
        else:
            one = self._consumers[partition % CONSUMERS]
            one.turn.acquire()
        try:
            return self._pool.run(one.read, topic, partition, first, last)
        finally:
            one.turn.release()

    def close(self) -> None:
        """Close the consumers that were needed."""
        for one in self._consumers:
            with one.turn:
                self._pool.run(one.close)


class _PointConsumer:
    """One consumer that is placed anew for each read. Its calls block; one at a time may use it."""

    def __init__(self, settings: Settings) -> None:
        self.turn = Lock()
        self.assigned: tuple[str, int] | None = None
        self._settings = settings
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Close the consumer, if one was needed."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def read(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        """See ``PointReader.read``."""
        try:
            return self._read(topic, partition, first, last)
        except BaseException:
            # Where the consumer stands is no longer known for sure.
            self.assigned = None
            raise

    def _read(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        consumer = self._place(topic, partition, first)
        deadline = time.monotonic() + READ_TIMEOUT
        records: list[Record] = []
        while True:
            missing = last - first + 1 - len(records)
            head = consumer.poll(min(SILENCE, max(0.0, deadline - time.monotonic())))
            if head is None:
                if time.monotonic() >= deadline:
                    raise ServiceBusCommunicationError(
                        f"Kafka {self._settings.bootstrap_servers} did not answer within {READ_TIMEOUT:.0f} s: "
                        f"records {first} to {last} of {topic}/{partition} were not read"
                    )
                self._check_topic(consumer, topic)
                continue
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

    def _check_topic(self, consumer: Consumer, topic: str) -> None:
        """Kafka's client waits for a topic that was deleted, as it does for one that is new."""
        try:
            known = consumer.list_topics(topic, timeout=SILENCE).topics[topic]
        except KafkaException:
            return  # No broker answers; that may change.
        if known.error is not None and known.error.code() in _GONE:
            raise _gone(topic)

    def _check_event(self, error: KafkaError, topic: str, partition: int, offset: int, last: int) -> None:
        """An event that no patience mends is an error."""
        if error.code() == KafkaError._PARTITION_EOF and offset <= last:
            raise _truncated(topic, partition, offset, last)
        if error.code() in _GONE:
            raise _gone(topic)
        if error.fatal():
            raise ServiceBusError(f"reading {topic}/{partition} from offset {offset} failed: {error}")

    def _read_from_start(self, consumer: Consumer, topic: str, partition: int, first: int, last: int) -> list[Record]:
        """The log does not hold ``first``: it begins behind it, or ends before it."""
        self.assigned = None
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT)
        if start <= first:
            raise _truncated(topic, partition, end, last)
        return self._read(topic, partition, start, last) if start <= last else []

    def _place(self, topic: str, partition: int, offset: int) -> Consumer:
        if self._consumer is None:
            self._consumer = open_consumer(self._settings, point_options(self._settings))
            self.assigned = None
        where = TopicPartition(topic, partition, offset)
        if self.assigned == (topic, partition):
            try:
                self._consumer.seek(where)
            except KafkaException:
                # Not fetching yet: assigning anew does the same, later.
                self._consumer.assign([where])
        else:
            self._consumer.assign([where])
            self.assigned = (topic, partition)
        return self._consumer


_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def _gone(topic: str) -> MessagingEntityNotFoundError:
    return MessagingEntityNotFoundError(f"its topic {topic} is gone: the entity was deleted")


def _truncated(topic: str, partition: int, end: int, wanted: int) -> ServiceBusError:
    return ServiceBusError(
        f"the log of {topic}/{partition} ends at offset {end}, and offset {wanted} was stored there once: it was truncated "
        "or made anew behind our back; nothing is skipped silently"
    )
