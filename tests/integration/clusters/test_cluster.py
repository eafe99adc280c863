"""A Redis Cluster: ledgers of one entity are on several nodes, and slots move between them."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import redis
from redis.crc import key_slot

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import rights_of
from kafkabus.doctor.findings import State
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.exceptions import UnsuitableRedisError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts
from tests.integration.clusters.findings import redis_findings
from tests.redis_server import ClusterOfNodes, cluster_of
from tests.servers import scratch_folder
from tests.upkeep import upkeep

pytestmark = pytest.mark.faults

PATIENCE = 60.0
OUTAGE = 3.0
"""For how long, in seconds, a node is down: longer than the others take to notice."""
MOVED = 6
"""How many slots with keys are moved."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterOfNodes]:
    """Three nodes of the module's own."""
    folder = scratch_folder()
    try:
        with cluster_of(find_redis(), folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def elsewhere(untended: str, runtime: RunningNamespace, cluster: ClusterOfNodes) -> str:
    """The connection string of an empty namespace."""
    assert runtime.redis_url in untended
    return format_connection_string(parse_parts(untended) | {"Redis": cluster.url})


def keys_of(cluster: ClusterOfNodes) -> dict[int, list[bytes]]:
    """Return all keys, by the nodes' positions."""
    found: dict[int, list[bytes]] = {}
    for number, node in enumerate(cluster.nodes):
        with redis.Redis(HOST, node.port) as client:
            found[number] = [key for key in client.keys("*") if isinstance(key, bytes)]
    return found


class Load:
    """Sends and receives in threads, until it is ended.

    Attributes:
        sent: Bodies that were acknowledged.
        done: Bodies whose messages were completed.
    """

    def __init__(self, client: ServiceBusClient, queue: str) -> None:
        self.sent: list[str] = []
        self.done: Counter[str] = Counter()
        self._client, self._queue = client, queue
        self._ended = threading.Event()
        self._sender, self._receiver = (threading.Thread(target=work) for work in (self._send, self._receive))
        self._sender.start()
        self._receiver.start()

    def _send(self) -> None:
        with self._client.get_queue_sender(self._queue) as sender:
            while not self._ended.is_set():
                bodies = [f"{len(self.sent) + number}" for number in range(20)]
                sender.send_messages([ServiceBusMessage(body, partition_key=body) for body in bodies])
                self.sent += bodies

    def _receive(self) -> None:
        with self._client.get_queue_receiver(self._queue) as receiver:
            # The sender may still be at its last batch when it is asked to end.
            while self._sender.is_alive():
                self._complete(receiver)
            deadline = time.monotonic() + PATIENCE
            while len(self.done) < len(self.sent) and time.monotonic() < deadline:
                self._complete(receiver)

    def _complete(self, receiver: ServiceBusReceiver) -> None:
        messages = receiver.receive_messages(100, max_wait_time=1)
        receiver.complete_messages(messages)
        self.done.update(map(str, messages))

    def wait_for(self, count: int) -> None:
        """Wait until so many more messages were completed."""
        wanted, deadline = len(self.done) + count, time.monotonic() + PATIENCE
        while len(self.done) < wanted:
            assert time.monotonic() < deadline, (len(self.sent), len(self.done))
            time.sleep(0.01)

    def end(self) -> None:
        """End sending, and wait until all was received."""
        self._ended.set()
        self._sender.join()
        self._receiver.join()


def test_slots_move_under_load(elsewhere: str, cluster: ClusterOfNodes) -> None:
    """Each message is completed once, and upkeep goes on. The test waits for messages between the moves."""
    with (
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration,
        ServiceBusClient.from_connection_string(elsewhere) as client,
        upkeep(elsewhere),
    ):
        administration.create_queue("orders", enable_partitioning=True)
        load = Load(client, "orders")
        try:
            load.wait_for(100)
            namespace = administration.fully_qualified_namespace.partition(".")[0].encode()
            placed = keys_of(cluster)
            assert all(placed.values()), "all nodes have ledgers"
            ours = sorted((key for keys in placed.values() for key in keys if namespace in key), reverse=True)
            # The descriptions' keys are first.
            slots = list(dict.fromkeys(key_slot(key) for key in ours))
            assert len(slots) > MOVED
            for slot in slots[:MOVED]:
                cluster.move(slot, pause=lambda: administration.get_queue("orders"))
                load.wait_for(20)
        finally:
            load.end()
        assert set(load.done) == set(load.sent)
        assert max(load.done.values()) == 1
        deadline = time.monotonic() + PATIENCE
        while administration.get_queue_runtime_properties("orders").total_message_count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.extended
def test_a_node_is_killed_and_started_again(elsewhere: str, cluster: ClusterOfNodes) -> None:
    """Without replicas, all wait for it, for which the test waits; what was settled stays settled."""
    with (
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration,
        ServiceBusClient.from_connection_string(elsewhere) as client,
    ):
        administration.create_queue("orders", enable_partitioning=True)
        load = Load(client, "orders")
        try:
            load.wait_for(100)
            cluster.nodes[1].kill()
            time.sleep(OUTAGE)
            cluster.nodes[1].start()
            load.wait_for(100)
        finally:
            load.end()
        assert set(load.done) == set(load.sent)


def test_the_doctor_examines_all_nodes(elsewhere: str, cluster: ClusterOfNodes) -> None:
    """It names the node that would drop keys. It takes some seconds, as it waits for the servers' answers."""
    assert redis_findings(elsewhere)["redis-mode"].found == "it is a Redis Cluster, with 3 primaries"
    node = cluster.nodes[1]
    with redis.Redis(HOST, node.port) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            findings = redis_findings(elsewhere)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert [name for name, one in findings.items() if one.state is State.FAILURE] == ["redis-eviction"]
    assert f":{node.port}: maxmemory-policy is allkeys-lru" in findings["redis-eviction"].found


def test_topics_and_their_administration(elsewhere: str, cluster: ClusterOfNodes) -> None:
    """Subscriptions, heartbeats for several entities at once, counts and deletion touch keys of many slots."""
    with (
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration,
        ServiceBusClient.from_connection_string(elsewhere) as client,
    ):
        administration.create_topic("news", enable_partitioning=True)
        for name in ("all", "some"):
            administration.create_subscription("news", name)
        client.get_topic_sender("news").send_messages([ServiceBusMessage(str(number)) for number in range(10)])
        receivers = [client.get_subscription_receiver("news", name) for name in ("all", "some")]
        for receiver in receivers:
            got: list[str] = []
            while len(got) < 10:
                messages = receiver.receive_messages(10, max_wait_time=PATIENCE)
                receiver.complete_messages(messages)
                got += map(str, messages)
            assert sorted(got) == sorted(map(str, range(10)))
        administration.delete_topic("news")
    namespace = administration.fully_qualified_namespace.partition(".")[0].encode()
    left = [
        key for keys in keys_of(cluster).values() for key in keys if namespace + b"/" in key and b":slot:" not in key
    ]
    assert [key for key in left if b":receivers" not in key] == []


def test_a_user_with_the_documented_rights_can_do_everything(elsewhere: str, cluster: ClusterOfNodes) -> None:
    """Clients of a cluster also ask which node has which slots, and say ASKING while a slot moves."""
    namespace = parse_settings(elsewhere).namespace
    for node in cluster.nodes:
        node.ask("ACL SETUSER", "app", "on", ">secret", *rights_of(namespace).split())
    url = cluster.url.replace("redis+cluster://", "redis+cluster://app:secret@")
    own = format_connection_string(parse_parts(elsewhere) | {"Redis": url})
    with (
        ServiceBusAdministrationClient.from_connection_string(own) as administration,
        ServiceBusClient.from_connection_string(own) as client,
    ):
        administration.create_queue("orders", requires_session=True)
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("a message", session_id="a"))
        receiver = client.get_queue_receiver("orders", session_id="a")
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        assert receiver.session is not None
        receiver.complete_message(message)
        administration.delete_queue("orders")
    with redis.Redis(HOST, cluster.nodes[0].port, username="app", password="secret") as node:
        assert node.execute_command("ASKING")


def test_a_server_that_is_no_cluster_is_refused(untended: str, runtime: RunningNamespace) -> None:
    """The error has the scheme to write."""
    wrong = untended.replace(
        runtime.redis_url, runtime.redis_url.replace("redis://", "redis+cluster://").removesuffix("/0")
    )
    assert wrong != untended
    with ServiceBusAdministrationClient.from_connection_string(wrong) as administration:
        with pytest.raises(UnsuitableRedisError, match="is no Redis Cluster: begin its URL with redis://"):
            administration.create_queue("orders")
