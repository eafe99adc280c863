# Generated from facade/kafkabus/_async/kafka/offset_reader.py by tools/generate_blocking.py. Do not edit.
"""Reading records by offset: messages that were granted before, and whole compacted topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.record import Record, size_of
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_factory import ask_for_leaders, open_consumer
from kafkabus._kafka.client_options import GONE, PASSING, offset_reader_options, stream_options
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus._sync.compat import Alarm, Lock, Pool, acquire, try_acquire

READ_TIMEOUT = 30.0
"""How long, in seconds, a read by offset may take before Kafka counts as unreachable."""
REST_AFTER = 2.0
"""After how many seconds without a read a consumer fetches nothing more; it would ask the brokers ten times a second."""
SILENCE = 1.0
"""After how many seconds without an answer the reader asks whether the topic still exists."""
CONSUMERS = 4
"""How many reads of a client run at a time."""


class OffsetReader:
    """Reads records by offset for a client; safe to share.

    A few consumers, which stay open, share the work, so that a partition that does not answer delays no other.

    Args:
        settings: The namespace's settings.
        pool: Threads for blocking calls.
    """

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._pool = pool
        self._consumers = [_PointConsumer(settings) for _ in range(CONSUMERS)]
        self._stream = _PointConsumer(settings, streams=True)
        self._alarm = Alarm(self._rest)

    def read(
        self,
        topic: str,
        partition: int,
        first: int,
        last: int,
        timeout: float = READ_TIMEOUT,
        most_bytes: int | None = None,
        *,
        streams: bool = False,
    ) -> list[Record]:
        """Return the committed records from ``first`` to ``last`` that the log holds, in order.

        Args:
            topic: The Kafka topic.
            partition: The partition of the topic.
            first: The first offset.
            last: The last offset, below the log's committed end.
            timeout: How long the read may take, in seconds.
            most_bytes: After how many bytes of records the read ends; see ``read_upto``. None: it goes on to ``last``.
            streams: Whether other reads follow from where this one ends, so that their records are fetched meanwhile.

        Raises:
            MessagingEntityNotFoundError: The topic is gone.
            UnfinishedReadError: Not all records came in time.
            LogTruncatedError: The log ends before ``last``.
            ServiceBusError: The log cannot be read.
        """
        if last < first:
            return []
        deadline = time.monotonic() + timeout
        place = (topic, partition)
        # A consumer that has the partition already need not be assigned again.
        consumers = [self._stream] if streams else self._consumers
        for consumer in sorted(consumers, key=lambda consumer: consumer.assigned != place):
            if try_acquire(consumer.turn):
                break
        else:
            consumer = consumers[partition % len(consumers)]
            if not acquire(consumer.turn, max(0.0, timeout)):
                raise UnfinishedReadError(
                    f"other reads by offset took all the time: {topic}/{partition} was not read", []
                )
        try:
            return self._pool.run(consumer.read, topic, partition, first, last, deadline, most_bytes)
        finally:
            consumer.used_at = time.monotonic()
            consumer.turn.release()
            self._alarm.set(REST_AFTER)

    def _rest(self) -> None:
        """Have consumers that were not used for a while fetch nothing until the next read."""
        for consumer in (*self._consumers, self._stream):
            if consumer.assigned and time.monotonic() - consumer.used_at >= REST_AFTER and try_acquire(consumer.turn):
                try:
                    self._pool.run(consumer.rest)
                finally:
                    consumer.turn.release()
        if any(consumer.assigned for consumer in (*self._consumers, self._stream)):
            self._alarm.set(REST_AFTER)

    def close(self) -> None:
        """Close the consumers that were opened."""
        self._alarm.stop()
        for consumer in (*self._consumers, self._stream):
            with consumer.turn:
                self._pool.run(consumer.close)


def read_upto(records: Sequence[Record], last: int, most_bytes: int) -> int:
    """Return the offset behind those up to which a read with ``most_bytes`` came that was to go on to ``last``."""
    after = (records[-1].offset() or 0) + 1 if records else last + 1
    return after if after <= last and sum(map(size_of, records)) >= most_bytes else last + 1


class _PointConsumer:
    """A consumer that is positioned for each read, unless it streams: then a read may go on where the last one ended.

    Its calls block; one caller at a time may use it.

    Args:
        settings: The namespace's settings.
        streams: Whether it fetches ahead. Then it is closed when it rests, as few clients use it.
    """

    def __init__(self, settings: Settings, *, streams: bool = False) -> None:
        self.turn = Lock()
        self.assigned: tuple[str, int] | None = None
        self.used_at = 0.0
        self._settings = settings
        self._streams = streams
        # The offset of the next message, if none that was fetched was left out since; else None.
        self._next: int | None = None
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Close the consumer, if it was opened; the next read opens another."""
        consumer, self._consumer, self.assigned = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def rest(self) -> None:
        """Fetch nothing until the next read."""
        if self._streams:
            self.close()
        elif self._consumer is not None:
            self._consumer.unassign()
        self.assigned = None

    def read(
        self, topic: str, partition: int, first: int, last: int, deadline: float, most_bytes: int | None
    ) -> list[Record]:
        """See ``OffsetReader.read``."""
        try:
            return self._read(topic, partition, first, last, deadline, most_bytes)
        except UnfinishedReadError:
            # Kafka's client may wait for ever for a partition whose leader changed; a new one finds the leader.
            self.close()
            raise
        except BaseException:
            # The consumer's position is no longer known for sure.
            self.assigned = None
            raise

    def _read(
        self, topic: str, partition: int, first: int, last: int, deadline: float, most_bytes: int | None
    ) -> list[Record]:
        consumer = self._place(topic, partition, first)
        records: list[Record] = []
        end: int | None = None
        size = 0
        for message in self._poll(consumer, (topic, partition), lambda: last - first + 1 - len(records), deadline):
            if message is None:
                if end is not None:
                    # Only after a silence: a new leader reports such an end, too, until it knows what is committed.
                    raise _truncation_error(topic, partition, end, last)
                self._check_topic(consumer, topic)
                continue
            error, offset = message.error(), message.offset() or 0
            if error is None:
                end = None
                if first <= offset <= last:
                    records.append(message)
                    size += size_of(message)
                    if most_bytes is not None and size >= most_bytes:
                        return records
            elif error.code() == error_codes.AUTO_OFFSET_RESET:
                return self._read_from_start(consumer, topic, partition, first, last, deadline, most_bytes)
            elif error.code() == error_codes.PARTITION_EOF:
                # The last record, if there is one, is before the end.
                end, offset = offset, offset - 1
            else:
                self._check_event(error, topic, partition, first)
                continue
            if offset >= last:
                return records
        raise UnfinishedReadError(
            f"Kafka {self._settings.bootstrap_servers} did not answer in time: of records {first} to {last} of "
            f"{topic}/{partition} {len(records)} came",
            records,
        )

    def _poll(
        self, consumer: Consumer, place: tuple[str, int], missing: Callable[[], int], deadline: float
    ) -> Iterator[Any]:
        """Yield a partition's messages and events until time runs out, as many at once as are missing; None after a silence."""
        while (left := deadline - time.monotonic()) > 0:
            head = consumer.poll(min(SILENCE, left))
            if head is None:
                yield None
                continue
            messages = [head, *(consumer.consume(more, 0) if (more := missing() - 1) > 0 else ())]
            for message in messages:
                # Messages of the partition that was read before may still arrive.
                if (message.topic(), message.partition()) == place:
                    is_last = message is messages[-1] and message.error() is None
                    self._next = (message.offset() or 0) + 1 if is_last else None
                    yield message

    def _check_topic(self, consumer: Consumer, topic: str) -> None:
        """Raise if the topic was deleted: Kafka's client waits for a deleted topic as it does for a new one."""
        try:
            known = consumer.list_topics(topic, timeout=SILENCE).topics[topic]
        except KafkaException:
            return  # No broker answers; that may change.
        if known.error is not None and known.error.code() in GONE:
            raise _gone_error(topic)

    def _check_event(self, error: KafkaError, topic: str, partition: int, offset: int) -> None:
        """Raise for an event that waiting does not mend, also for one that Kafka's client would pass over."""
        if error.code() in GONE:
            raise _gone_error(topic)
        if error.code() in NO_RIGHTS:
            raise no_rights(self._settings.bootstrap_servers, f"read topic {topic!r}", error)
        if error.fatal() or error.code() not in PASSING:
            raise ServiceBusError(f"reading {topic}/{partition} from offset {offset} failed: {error}")

    def _read_from_start(
        self,
        consumer: Consumer,
        topic: str,
        partition: int,
        first: int,
        last: int,
        deadline: float,
        most_bytes: int | None,
    ) -> list[Record]:
        """Read from the start of a log that begins behind ``first``; raise if the log ends before ``first`` instead."""
        self.assigned = None
        left = max(0.0, deadline - time.monotonic())
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=left)
        except KafkaException as error:
            raise UnfinishedReadError(
                f"Kafka {self._settings.bootstrap_servers} did not say in time where {topic}/{partition} begins: {error}",
                [],
            ) from error
        if start <= first:
            raise _truncation_error(topic, partition, end, last)
        return self._read(topic, partition, start, last, deadline, most_bytes) if start <= last else []

    def _place(self, topic: str, partition: int, offset: int) -> Consumer:
        if self._consumer is None:
            options = stream_options if self._streams else offset_reader_options
            self._consumer = open_consumer(self._settings, options(self._settings))
            self.assigned = None
        if self._streams and self.assigned == (topic, partition) and self._next == offset:
            return self._consumer
        where, self._next = TopicPartition(topic, partition, offset), None
        if self.assigned == (topic, partition):
            try:
                self._consumer.seek(where)
            except KafkaException:
                # The consumer does not fetch yet: assigning again does the same, later.
                self._consumer.assign([where])
        else:
            self._consumer.assign([where])
            if self.assigned is None or self.assigned[0] != topic:
                ask_for_leaders(self._consumer, {topic})
            self.assigned = (topic, partition)
        return self._consumer


def _gone_error(topic: str) -> MessagingEntityNotFoundError:
    return MessagingEntityNotFoundError(f"its topic {topic} is gone: the entity was deleted")


class UnfinishedReadError(ServiceBusCommunicationError):
    """Not all records of a read by offset came in time.

    Attributes:
        records: The records that came, from the first one on.
    """

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


class LogTruncatedError(ServiceBusError):
    """A log ends before an offset at which a record was stored once."""


def _truncation_error(topic: str, partition: int, end: int, wanted: int) -> LogTruncatedError:
    return LogTruncatedError(
        f"the log of {topic}/{partition} ends at offset {end}, and offset {wanted} was stored there once: it was truncated "
        "or recreated outside kafkabus; nothing is skipped silently"
    )
