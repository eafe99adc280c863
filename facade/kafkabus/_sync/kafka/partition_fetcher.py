# Generated from facade/kafkabus/_async/kafka/partition_fetcher.py by tools/generate_blocking.py. Do not edit.
"""Fetching the records of an entity's partitions with one Kafka consumer, from offsets that the caller chooses."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import methodcaller
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._core.record import Record
from kafkabus._core.settings import Settings
from kafkabus._kafka.client_factory import open_consumer
from kafkabus._kafka.client_options import LOGGER, PASSING, consumer_options
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus._sync.compat import Pool

CHOSEN_AT_ONCE = 200
"""Fewest records of one call to the consumer if only some of them are wanted: they fit into the processor's cache."""
CHOOSE_FOR = 0.5
"""Longest time, in seconds, of one fetch if only some of the records are wanted."""
GATHER = 0.005
"""How long, in seconds, a fetch waits for records that the brokers are known to have."""

_PARTITION_OF = methodcaller("partition")
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_TRUNCATED = re.compile(r"truncation.*broker end offset is (-?\d+)")
"""The consumer's error if the log before an offset is not the one that was read; and where the log was truncated."""


class FetchFrom(NamedTuple):
    """The place at which to begin with a partition.

    Attributes:
        partition: The partition.
        offset: The first offset to fetch.
        epoch: The leader epoch of the record before that offset. The consumer then asks the brokers first whether the log
            still holds what it held there. None: it does not ask.
    """

    partition: int
    offset: int
    epoch: int | None


class OffsetNotInLogError(Exception):
    """A log does not hold the offset at which it was to be read on: it was trimmed or truncated.

    Attributes:
        partition: The partition.
        truncated_to: The offset to which the brokers say that the log was truncated, negative if they do not know it; None
            if they said nothing of a truncation.
    """

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(reason)
        truncated = _TRUNCATED.search(reason)
        self.partition = partition
        self.truncated_to = None if truncated is None else int(truncated[1])


class RecordSink(Protocol):
    """The buffers that fetched records go to: a ``LogReader``'s. The fetcher calls it in the thread that fetches."""

    def add(self, partition: int, records: Sequence[Record]) -> int:
        """Take records of a partition, in the log's order; return how many of them are messages."""
        ...

    def end(self, partition: int, offset: int) -> None:
        """Note that a log ends at an offset for now."""
        ...

    def buffered_partitions(self) -> Iterable[int]:
        """Return the partitions with buffered messages."""
        ...

    def position(self, partition: int) -> int:
        """Return the offset behind the last record of a partition that was taken."""
        ...


class PartitionFetcher:
    """A consumer of some partitions of one topic, without a consumer group; one caller at a time may use it.

    Args:
        settings: The client's settings.
        pool: The threads for blocking calls.
        topic: The name of the topic.
        entity: The name of the entity, for errors.
        sink: The buffers.

    Attributes:
        assigned: The partitions that are fetched.
    """

    def __init__(self, settings: Settings, pool: Pool, topic: str, entity: str, sink: RecordSink) -> None:
        self._settings = settings
        self._pool = pool
        self._topic = topic
        self._entity = entity
        self._sink = sink
        self._consumer: Consumer | None = None
        self.assigned: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether there is a consumer, with its connections."""
        return self._consumer is not None

    def assign(self, places: Sequence[FetchFrom]) -> None:
        """Begin to fetch partitions that were not fetched."""
        self._pool.run(self._assign, places)

    def unassign(self, partitions: Iterable[int]) -> None:
        """Stop fetching partitions; records of theirs that the consumer holds are dropped."""
        stopped = self.assigned.intersection(partitions)
        if stopped:
            self._pool.run(self._unassign, stopped)

    def unassign_all(self) -> None:
        """Stop fetching, also if the consumer's state is unknown because a call was interrupted."""
        if self._consumer is not None:
            self._pool.run(self._unassign_all, self._consumer)

    def seek(self, partition: int, offset: int) -> None:
        """Fetch a partition from another offset."""
        if partition in self.assigned:
            self._pool.run(self._seek, partition, offset)

    def fetch(self, count: int, timeout: float | None, *, chooses: bool) -> None:
        """Fetch until the sink has ``count`` more messages, or until no more records are at hand.

        Args:
            count: The number of messages.
            timeout: The longest wait for the first record, in seconds; None if messages are buffered already.
            chooses: Whether only some of the records are messages of the sink.

        Raises:
            OffsetNotInLogError: A log does not hold the offset to be fetched.
            MessagingEntityNotFoundError: The topic is gone.
            ServiceBusError: The records cannot be read.
        """
        if count > 0 and self._consumer is not None:
            self._pool.run(self._fetch, self._consumer, count, timeout, chooses)

    def close(self) -> None:
        """Close the consumer; the next ``assign`` opens another."""
        consumer, self._consumer = self._consumer, None
        self.assigned = set()
        if consumer is not None:
            self._pool.run(consumer.close)

    def has_more(self, partition: int) -> bool:
        """Return whether the brokers are known to hold records behind those that the sink has taken."""
        consumer = self._consumer
        if consumer is None or partition not in self.assigned:
            return False
        _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return bool(end > self._sink.position(partition))

    # The methods below block; they run in the pool's threads.

    def _assign(self, places: Sequence[FetchFrom]) -> None:
        if self._consumer is None:
            self._consumer = open_consumer(self._settings, consumer_options(self._settings, f"kafkabus.{self._topic}"))
        self._consumer.incremental_assign(
            [
                TopicPartition(self._topic, partition, offset)
                if epoch is None
                else TopicPartition(self._topic, partition, offset, "", epoch)
                for partition, offset, epoch in places
            ]
        )
        self.assigned.update(place.partition for place in places)

    def _unassign(self, partitions: Iterable[int]) -> None:
        if self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in partitions])
        self.assigned.difference_update(partitions)

    def _unassign_all(self, consumer: Consumer) -> None:
        consumer.unassign()
        self.assigned.clear()

    def _seek(self, partition: int, offset: int) -> None:
        where = TopicPartition(self._topic, partition, offset)
        if self._consumer is None:
            return
        try:
            self._consumer.seek(where)
        except KafkaException:
            # The consumer does not fetch it yet: another assignment has the same effect.
            self._consumer.incremental_unassign([where])
            self._consumer.incremental_assign([where])

    def _fetch(self, consumer: Consumer, count: int, timeout: float | None, chooses: bool) -> None:
        if timeout is not None:
            message = consumer.poll(timeout)
            if message is None:
                return
            count -= self._hand_over([message])
        gathering, until = 0.0, time.monotonic() + CHOOSE_FOR
        while count > 0 and (not chooses or time.monotonic() < until):
            messages = consumer.consume(min(max(count, CHOSEN_AT_ONCE) if chooses else count, 10_000), gathering)
            if messages:
                count -= self._hand_over(messages)
                gathering = 0.0
            elif gathering or not any(map(self.has_more, self._sink.buffered_partitions())):
                return
            else:
                gathering = GATHER

    def _hand_over(self, messages: Sequence[Message]) -> int:
        """Give records to the sink; return how many were messages."""
        added = 0
        events: list[tuple[int, Message]] = []
        for partition, group in groupby(messages, _PARTITION_OF):
            records: list[Any] = list(group)
            found = [record for record in records if record.error() is not None]
            if found:
                events += [(partition, event) for event in found]
                records = [record for record in records if record.error() is None]
            if records and partition in self.assigned:
                added += self._sink.add(partition, records)
        # Errors are raised last: the records that came with them must not be taken for a hole.
        for partition, event in events:
            self._take_event(partition, event)
        return added

    def _take_event(self, partition: int, event: Message) -> None:
        error = event.error()
        code = error.code() if error is not None else None
        if code == KafkaError._PARTITION_EOF:
            if partition in self.assigned:
                self._sink.end(partition, event.offset() or 0)
        elif code in _GONE:
            raise MessagingEntityNotFoundError(f"{self._entity} was deleted: its topic {self._topic} is gone")
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}:
            raise OffsetNotInLogError(partition, str(error))
        elif code in PASSING:
            LOGGER.warning("consume entity=%s partition=%d error=%s", self._entity, partition, error)
        elif error is not None and code in NO_RIGHTS:
            raise no_rights(self._settings.bootstrap_servers, f"read topic {self._topic!r}", error)
        else:
            # The consumer would continue behind a record that it cannot read, and the ledger would settle that as a hole.
            position = self._sink.position(partition)
            raise ServiceBusError(
                f"reading {self._entity}, partition {partition}, from offset {position} failed: {error}"
            )
