"""One of three brokers is stopped, and with it some partitions of a queue that has no replicas."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.client_factory import open_topics
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus.management import EntityAvailabilityStatus, ServiceBusAdministrationClient
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath, compacted_topic_name, topic_name
from tests import processes
from tests.kafka_log import KAFKA_LOG

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

VICTIM = 2
PARTITIONS = 16
BROKERS = 3
PATIENCE = 120.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedRuntime]:
    """Three brokers, and a queue without replicas."""
    with (
        EmbeddedRuntime(namespace="spread", brokers=BROKERS) as started,
        ServiceBusAdministrationClient.from_connection_string(
            f"{started.connection_string};KafkaReplicationFactor=1"
        ) as administration,
    ):
        administration.create_queue("orders", enable_partitioning=True)
        yield started


def partitions_of(runtime: EmbeddedRuntime, queue: str, broker: int) -> set[int]:
    """Return the partitions of a queue that a broker leads."""
    return led_by(runtime, topic_name("spread", EntityPath(queue)), broker)


def led_by(runtime: EmbeddedRuntime, topic: str, broker: int) -> set[int]:
    """Return the partitions of a topic that a broker leads."""
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return {one.id for one in described.partitions if one.leader is not None and one.leader.id == broker}


def key_of(partitions: set[int]) -> str:
    """Return a key that belongs to one of these partitions."""
    return next(key for number in itertools.count() if partition_of(key := f"key-{number}", PARTITIONS) in partitions)


def receive_all(receiver: ServiceBusReceiver, expected: set[str], bodies: list[str]) -> None:
    """Receive and complete messages until all that are expected have come; a silence may be a machine that is busy."""
    deadline = time.monotonic() + PATIENCE
    while expected - set(bodies):
        assert time.monotonic() < deadline, expected - set(bodies)
        messages = receiver.receive_messages(100, max_wait_time=5)
        receiver.complete_messages(messages)
        bodies += map(str, messages)


@contextmanager
def paused(runtime: EmbeddedRuntime, broker: int) -> Generator[None]:
    """Stop a broker for a while, once no other one has something to catch up with.

    Two of three brokers are as many as elect leaders: those that the broker leads get no other leader while a second broker,
    which was stopped before, is not back in sync.
    """
    wait_until_whole(runtime)
    with processes.paused(runtime.processes[f"broker-{broker}"]):
        yield


def wait_until_whole(runtime: EmbeddedRuntime) -> None:
    """Wait until all brokers serve, and all replicas of all partitions are in sync."""
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    deadline = time.monotonic() + PATIENCE
    while not _is_whole(admin):
        assert time.monotonic() < deadline, "a broker did not come back"
        time.sleep(0.05)


def _is_whole(admin: AdminClient) -> bool:
    try:
        listed = admin.list_topics(timeout=5)
        quorum = admin.describe_cluster(request_timeout=5).result(5)
    except (KafkaException, TimeoutError):
        return False
    partitions = [partition for topic in listed.topics.values() for partition in topic.partitions.values()]
    return len(quorum.nodes) == BROKERS and all(
        partition.leader > 0 and set(partition.isrs) == set(partition.replicas) for partition in partitions
    )


def test_the_partitions_have_brokers_of_their_own(cluster: EmbeddedRuntime) -> None:
    """Each broker leads a share of them."""
    shares = [partitions_of(cluster, "orders", broker) for broker in range(1, 4)]
    assert sorted(set().union(*shares)) == list(range(PARTITIONS))
    assert {len(share) for share in shares} <= {5, 6}


def test_what_has_no_key_goes_elsewhere_and_all_is_delivered_in_the_end(cluster: EmbeddedRuntime) -> None:
    """Keyless sends succeed, keyed ones to a stopped partition fail, other messages are received, and none is lost."""
    connection_string = cluster.connection_string
    sent: list[str] = []

    def send(body: str, key: str | None = None, timeout: float = 60) -> None:
        sender.send_messages(ServiceBusMessage(body, partition_key=key), timeout=timeout)
        sent.append(body)

    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        assert administration.get_queue("orders").availability_status is EntityAvailabilityStatus.AVAILABLE
        gone = partitions_of(cluster, "orders", VICTIM)
        there = set(range(PARTITIONS)) - gone
        assert gone
        lost_key, safe_key = key_of(gone), key_of(there)
        for number in range(2 * PARTITIONS):
            send(f"before {number}")
        send("before, with a key", lost_key)

        bodies: list[str] = []
        with paused(cluster, VICTIM):
            for number in range(2 * PARTITIONS):
                send(f"during the pause {number}")
            send("during the pause, with a key", safe_key)
            with pytest.raises(
                ServiceBusCommunicationError, match=f"partition {partition_of(lost_key, PARTITIONS)} of"
            ) as no:
                send("not sent", lost_key, timeout=20)
            assert repr(lost_key) in str(no.value)
            assert "nothing was sent" in str(no.value)
            assert administration.get_queue("orders").availability_status is EntityAvailabilityStatus.LIMITED
            # If a receiver fetched messages of the broker just before it stopped, even those came.
            receive_all(receiver, {body for body in sent if body.startswith("during")}, bodies)
            os.kill(cluster.processes[f"broker-{VICTIM}"], signal.SIGKILL)

        send("afterwards, with a key", lost_key)
        receive_all(receiver, set(sent), bodies)
        assert set(bodies) == set(sent)
        # A message that was under way when the broker stopped, or for which a busy broker took too long, may be stored twice.
        # One with a key is never sent to another partition.
        twice = {body for body, count in Counter(bodies).items() if count > 1}
        assert {body for body in twice if "key" in body} == set()
        wait_until_whole(cluster)
        assert administration.get_queue("orders").availability_status is EntityAvailabilityStatus.AVAILABLE


def test_where_a_log_ends_is_asked_until_a_broker_answers(cluster: EmbeddedRuntime) -> None:
    """A stopped leader gives no answer, and that counts as none; the leader that takes over answers."""
    topic = compacted_topic_name("spread", "descriptions")
    topics = open_topics(parse_settings(cluster.connection_string))
    wait_until_whole(cluster)
    ends = topics.ends(topic, [0])
    (leader,) = [broker for broker in range(1, 4) if 0 in led_by(cluster, topic, broker)]
    with paused(cluster, leader):
        assert topics.ends(topic, [0]) == ends
        assert topics.starts(topic, [0]) == {0: 0}


def test_a_topic_is_described_whichever_broker_was_asked_first(cluster: EmbeddedRuntime) -> None:
    """Each client asks one broker about topics; if that one is stopped, another one answers."""
    settings = parse_settings(cluster.connection_string)
    topic = topic_name("spread", EntityPath("orders"))
    clients = [open_topics(settings) for _ in range(9)]
    for client in clients:
        assert client.describe(topic) is not None
    with paused(cluster, VICTIM), ThreadPoolExecutor(len(clients)) as pool:
        asked = [pool.submit(client.describe, topic) for client in clients]
        described = [one.result() for one in asked]
    assert [one.partitions for one in described if one is not None] == [PARTITIONS] * len(clients)
