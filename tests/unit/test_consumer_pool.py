"""Tests of the consumers that the readers of a client share, over an in-memory Kafka."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Set
from functools import partial

import pytest

from kafkabus._core.settings import Settings, parse_settings
from kafkabus._kafka import consumer_pool
from kafkabus._kafka.client_options import Options
from kafkabus._kafka.consumer_pool import ConsumerPool, Inbox, PartitionFeed
from kafkabus.testing.log import Cluster, MemoryConsumer, MemoryTopics

TOPIC, OTHER = "orders", "bills"
PATIENCE = 60.0


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(lambda: 0)
    for name in (TOPIC, OTHER):
        MemoryTopics(cluster).create(name, 2, {})
    return cluster


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConsumerPool]:
    """A pool whose consumers are small, and change their partitions all the time."""
    monkeypatch.setattr(consumer_pool, "open_consumer", partial(memory_consumer, cluster))
    for name, value in {
        "CHUNK": 7,
        "FULL_COUNT": 20,
        "SURVEY": 0.002,
        "CALM": 3,
        "BUSY": 5,
        "CALM_SURVEYS": 1,
        "PATIENT_POLL": 0.01,
        "NEAR": 5,
        "CLOSE_AFTER": 0.05,
    }.items():
        monkeypatch.setattr(consumer_pool, name, value)
    pool = ConsumerPool(
        parse_settings("Endpoint=sb://ns.kafkabus;KafkaBootstrapServers=nowhere:1;Redis=redis://nowhere", {})
    )
    yield pool
    pool.close()


def memory_consumer(cluster: Cluster, _settings: Settings, _options: Options) -> MemoryConsumer:
    return MemoryConsumer(cluster)


def fail(_consumer: MemoryConsumer, _timeout: float) -> None:
    raise ZeroDivisionError


class Reader:
    """Reads one partition, and holds each record to be the next one."""

    def __init__(self, pool: ConsumerPool, topic: str, partition: int, offset: int = 0) -> None:
        self._pool = pool
        self._key = topic, partition
        self.news = threading.Event()
        self.inbox = Inbox(self.news.set)
        self.next = offset
        self.feed = self._open()

    def _open(self) -> PartitionFeed:
        (feed,) = self._pool.open(self.inbox, [(self._key, self.next, None)])
        return feed

    def go_to(self, offset: int) -> None:
        self._pool.close_feeds(self.inbox, [self.feed])
        self.next = offset
        self.feed = self._open()

    def take(self, batches: int) -> None:
        for _ in range(batches):
            batch = self.inbox.take()
            if batch is None:
                break
            assert batch.error is None
            offsets = [record.offset() for record in batch.records]
            assert offsets == list(range(self.next, self.next + len(offsets)))
            assert batch.feed.key == self._key
            self.next += len(offsets)
        self._pool.on_take(self.inbox)

    def read_to(self, offset: int) -> None:
        until = time.monotonic() + PATIENCE
        while self.next < offset and time.monotonic() < until:
            self.news.wait(0.01)
            self.news.clear()
            self.take(100)
        assert self.next == offset


def store(cluster: Cluster, count: int, topic: str = TOPIC, partition: int = 0) -> None:
    for _ in range(count):
        cluster.append(topic, partition, (None, b"x", []))


@pytest.mark.parametrize("seed", range(6))
def test_each_reader_gets_every_record_of_its_log_once_and_in_order(
    cluster: Cluster, pool: ConsumerPool, seed: int
) -> None:
    """More readers read a log from different offsets than there are consumers; some stop reading, some go elsewhere."""
    chance = random.Random(seed)
    readers = [Reader(pool, topic, partition) for topic in (TOPIC, OTHER) for partition in (0, 1) for _ in range(6)]
    stored = dict.fromkeys(((TOPIC, 0), (TOPIC, 1), (OTHER, 0), (OTHER, 1)), 0)
    for _ in range(400):
        key = chance.choice(list(stored))
        count = chance.choice((0, 1, 30))
        store(cluster, count, *key)
        stored[key] += count
        reader = chance.choice(readers)
        if chance.random() < 0.2:
            reader.go_to(chance.randint(0, stored[reader.feed.key]))
        reader.take(chance.choice((1, 10)))
    for reader in readers:
        reader.read_to(stored[reader.feed.key])


def test_a_calm_partition_is_fetched_by_the_patient_consumer_and_a_busy_one_by_a_prompt_one(
    cluster: Cluster, pool: ConsumerPool
) -> None:
    """By one alone, once that one has taken over."""
    reader = Reader(pool, TOPIC, 0)

    def fetched_by(poll: float) -> bool:
        with pool.lock:
            return [place.consumer._poll for place in reader.feed.places] == [poll]

    wait_until(lambda: fetched_by(consumer_pool.PATIENT_POLL))
    stored = 0
    until = time.monotonic() + PATIENCE
    while not fetched_by(consumer_pool.PROMPT_POLL) and time.monotonic() < until:
        store(cluster, 10)
        stored += 10
        reader.read_to(stored)
    assert fetched_by(consumer_pool.PROMPT_POLL)
    wait_until(lambda: fetched_by(consumer_pool.PATIENT_POLL))


def test_consumers_without_partitions_are_closed(cluster: Cluster, pool: ConsumerPool) -> None:
    """Their threads end, and others begin when there is something to fetch again."""
    store(cluster, 5)
    reader = Reader(pool, TOPIC, 0)
    reader.read_to(5)
    pool.close_feeds(reader.inbox, [reader.feed])
    wait_for_threads_to_end()
    reader.go_to(2)
    reader.read_to(5)


def test_few_threads_fetch_for_many_readers(cluster: Cluster, pool: ConsumerPool) -> None:
    """However many readers there are, and wherever they read."""
    store(cluster, 100)
    readers = [Reader(pool, TOPIC, 0, offset) for offset in range(100)]
    for reader in readers:
        reader.read_to(100)
    assert len(consumer_threads()) <= consumer_pool.PROMPT_CONSUMERS + 1


def test_a_reader_that_does_not_take_is_in_nobodys_way(cluster: Cluster, pool: ConsumerPool) -> None:
    """Its records are fetched again later; the others get theirs."""
    stuck, reader = Reader(pool, TOPIC, 0), Reader(pool, TOPIC, 0)
    store(cluster, 500)
    reader.read_to(500)
    assert stuck.inbox.fill < 4
    stuck.read_to(500)


def test_a_failed_consumer_tells_its_readers(
    cluster: Cluster, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next that they ask for is fetched by another consumer."""
    reader = Reader(pool, TOPIC, 0)
    reader.news.wait(PATIENCE)
    reader.take(1)
    with monkeypatch.context() as broken:
        broken.setattr(MemoryConsumer, "poll", fail)
        until = time.monotonic() + PATIENCE
        while (batch := reader.inbox.take()) is None and time.monotonic() < until:
            reader.news.wait(0.01)
        assert batch is not None
        assert isinstance(batch.error, ZeroDivisionError)
        wait_for_threads_to_end()
    store(cluster, 3)
    reader.go_to(0)
    reader.read_to(3)


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.001)
    assert holds()


def wait_for_threads_to_end() -> None:
    for thread in consumer_threads():
        thread.join(PATIENCE)
        assert not thread.is_alive()


def consumer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafkabus-consumer"]


def test_the_leaders_of_a_new_topic_are_asked_for_at_once(
    cluster: Cluster, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client would ask for them once a second, and the first message would come as late. Once for each topic."""
    asked: list[Set[str]] = []

    def ask(_consumer: MemoryConsumer, topics: Set[str]) -> None:
        asked.append(topics)

    monkeypatch.setattr(consumer_pool, "CALM_SURVEYS", 1_000_000)
    monkeypatch.setattr(consumer_pool, "ask_for_leaders", ask)
    for topic, partition in ((TOPIC, 0), (TOPIC, 1), (OTHER, 0)):
        store(cluster, 3, topic, partition)
        Reader(pool, topic, partition).read_to(3)
    assert asked == [{TOPIC}, {OTHER}]
