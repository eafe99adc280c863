"""Requests of the tests to running servers, and ways to wait for them."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_log import KAFKA_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATIENCE_S = 150.0
"""For how long a machine may stall: longer than the 45 s that the start of a lone broker waits for its controller at most."""


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE_S) -> None:
    """Wait for a condition, and fail when it does not come true in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain: {what}"
        time.sleep(0.02)


def send(bootstrap_servers: str, topic: str, value: bytes) -> None:
    """Store a record, in a topic that is created when it is missing."""
    create_topic(bootstrap_servers, topic)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=KAFKA_LOG)
    failures: list[KafkaError] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Create a topic unless it exists, with a copy on each of three brokers at most."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=KAFKA_LOG)
    try:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def read_all(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Read a topic's records from the first to the last."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "log_level": 0}
    consumer = Consumer(settings, logger=KAFKA_LOG)
    try:
        partition = TopicPartition(topic, 0, 0)
        end = _end(consumer, partition)
        consumer.assign([partition])
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < end:
            assert time.monotonic() < deadline, f"read {len(values)} of {end} records"
            message = consumer.poll(0.1)
            value = message.value() if message is not None and message.error() is None else None
            if isinstance(value, bytes):
                values.append(value)
        return values
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Ask until the partition has a leader, which takes a moment when a broker comes back."""
    found: list[int] = []

    def ask() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=5)[1])
        except KafkaException:
            return False
        return True

    wait_until(ask, f"{partition} has a leader")
    return found[0]


def brokers_known(bootstrap_servers: str) -> set[int]:
    """Return the ids of the brokers that the cluster knows."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=KAFKA_LOG)
    try:
        return set(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return set()


def cluster_id(bootstrap_servers: str) -> str | None:
    """Return Kafka's cluster id."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=KAFKA_LOG)
    return admin.list_topics(timeout=PATIENCE_S).cluster_id


def redis_call(url: str, *words: str) -> bytes:
    """Send one command to Redis and return the first line of its answer, or nothing."""
    address = urlsplit(url)
    assert address.hostname is not None
    try:
        with socket.create_connection((address.hostname, address.port or 0), 2) as connection:
            connection.sendall(f"AUTH {address.password}\r\n{' '.join(words)}\r\n".encode())
            with connection.makefile("rb") as answers:
                answers.readline()
                return answers.readline().strip()
    except OSError:
        return b""


def kill(pid: int) -> None:
    """Kill a process without a warning."""
    os.kill(pid, signal.SIGKILL)


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until no process with any of these pids runs."""
    left = set(pids)

    def gone() -> bool:
        left.difference_update({pid for pid in left if not _runs(pid)})
        return not left

    wait_until(gone, f"processes {left} end")


def descendants(pid: int) -> set[int]:
    """Return the pids of a process's children, their children, and so on."""
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
