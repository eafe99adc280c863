"""Consumers that a client's readers share, over a real broker: whether a log is still the one that was read is always asked."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kafkabus._core.settings import parse_settings
from kafkabus._kafka.client_factory import open_topics
from kafkabus._kafka.consumer_pool import ConsumerPool, Inbox
from kafkabus.embedded import RunningNamespace
from tests.kafka_log import KAFKA_LOG

PATIENCE = 60.0
RECORDS = 10
UNKNOWN_EPOCH = 7
"""No leader of the tests' logs had this epoch: a log whose last record was of it has lost that record."""


@pytest.fixture
def pool(runtime: RunningNamespace) -> Iterator[ConsumerPool]:
    """The consumers of a client."""
    pool = ConsumerPool(parse_settings(runtime.connection_string))
    yield pool
    pool.close()


@pytest.fixture
def topic(runtime: RunningNamespace) -> str:
    """A topic with some records in each of three partitions."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    topics = open_topics(parse_settings(runtime.connection_string))
    topics.create(name, 3, {})
    topics.wait_for(name)
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    for partition in range(3):
        for number in range(RECORDS):
            producer.produce(name, str(number).encode(), partition=partition)
    producer.flush()
    return name


class Reader:
    """Reads one partition from an offset on."""

    def __init__(self, pool: ConsumerPool, topic: str, partition: int, offset: int, epoch: int | None) -> None:
        self._news = threading.Event()
        self._inbox = Inbox(self._news.set)
        self._pool = pool
        (self.feed,) = pool.open(self._inbox, [((topic, partition), offset, epoch)])

    def read(self) -> tuple[list[int | None], int | None]:
        """Return the offsets of the first records that come, or the code of the event."""
        while True:
            batch = self._inbox.take()
            if batch is None:
                assert self._news.wait(PATIENCE)
                self._news.clear()
            elif batch.records:
                return [record.offset() for record in batch.records], None
            else:
                return [], code_of(batch.event)


def code_of(event: Message | None) -> int | None:
    """Return the code of an event's error."""
    assert event is not None
    error = event.error()
    assert error is not None
    return error.code()


def test_a_log_is_checked_whatever_the_consumer_knew_before(pool: ConsumerPool, topic: str) -> None:
    """Kafka's client checks a log by itself only as it first learns of the leader; records of another log would be taken."""
    offsets = list(range(5, RECORDS))
    truncated: tuple[list[int | None], int | None] = ([], KafkaError._AUTO_OFFSET_RESET)
    # The topic is new to the consumer; then only the partition is; then neither.
    assert Reader(pool, topic, 0, 5, UNKNOWN_EPOCH).read() == truncated
    assert Reader(pool, topic, 1, 5, UNKNOWN_EPOCH).read() == truncated
    assert Reader(pool, topic, 2, 5, 0).read() == (offsets, None)
    assert Reader(pool, topic, 2, 5, UNKNOWN_EPOCH).read() == truncated
    assert Reader(pool, topic, 1, 5, None).read() == (offsets, None)


def test_a_position_stays_behind_a_record_at_the_end_of_a_log(
    pool: ConsumerPool, topic: str, runtime: RunningNamespace
) -> None:
    """The end may be behind aborted records of a later epoch; a position there, with the record's epoch, looks truncated."""
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": topic}, logger=KAFKA_LOG)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush()
    producer.abort_transaction()
    reader = Reader(pool, topic, 0, 0, None)
    assert reader.read() == (list(range(RECORDS)), None)
    assert reader.read() == ([], KafkaError._PARTITION_EOF)
    (place,) = reader.feed.places
    assert (place.start.offset, place.start.leader_epoch) == (RECORDS, 0)
    assert (reader.feed.position, reader.feed.epoch) == (RECORDS, 0)
