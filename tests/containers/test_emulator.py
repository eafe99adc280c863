"""The images, as their users run them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient as AzureClient
from azure.servicebus import ServiceBusMessage as AzureMessage
from docker.errors import NotFound
from testcontainers.core.container import BytesExecResult
from testcontainers.core.network import Network

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing.containers import KafkabusContainer
from tests.images import docker

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

PATIENCE_S = 120.0
ENTITIES = {
    "UserConfig": {
        "Namespaces": [{"Name": "any", "Queues": [{"Name": "orders", "Properties": {"EnablePartitioning": True}}]}]
    }
}


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    """A file with one partitioned queue, which the container's user can read."""
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(ENTITIES))
    file.chmod(0o644)
    return file


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def send(connection_string: str, *texts: str) -> None:
    """Send messages to the queue."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def bodies(connection_string: str, count: int) -> set[str]:
    """Receive and complete so many messages of the queue, and return their bodies."""
    found: set[str] = set()
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        while len(found) < count:
            received = receiver.receive_messages(count, max_wait_time=30)
            assert received, f"{len(found)} of {count} messages came"
            receiver.complete_messages(received)
            found |= {str(one) for one in received}
    return found


def test_a_killed_container_has_all_messages_at_its_next_start(emulator_image: str, entities: Path) -> None:
    """It runs without root, on a file system that it cannot change, with the entities of a file in Microsoft's format."""
    container = KafkabusContainer(emulator_image, entities=entities, read_only=True)
    container.with_tmpfs_mount("/tmp")  # noqa: S108 - the container's
    sent = {f"order {number}" for number in range(300)}
    with container:
        identity = container.get_container_id()
        assert docker("exec", identity, "id", "--user").strip() == "10001"
        send(container.connection_string, *sent)

        docker("kill", "--signal", "KILL", identity)
        docker("start", identity)

        assert bodies(container.connection_string, len(sent)) == sent
        with ServiceBusAdministrationClient.from_connection_string(container.connection_string) as administration:
            assert administration.get_queue("orders").enable_partitioning


def test_a_stopped_container_ends_in_order(emulator_image: str) -> None:
    """Kafka and Redis are stopped before it ends, within Docker's patience of 10 s."""
    with KafkabusContainer(emulator_image) as container:
        identity = container.get_container_id()
        docker("stop", identity)
        state = json.loads(docker("inspect", "--format", "{{json .State}}", identity))
        assert state["ExitCode"] == 143, "and not 137, of a process that was killed"
        assert "Stopped." in docker("logs", identity)


def test_a_container_that_cannot_start_says_why(
    emulator_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error shows the mistake, even if the container ends while it is asked, at once; nothing is left of it."""

    def ask_late(container: KafkabusContainer, command: list[str]) -> BytesExecResult:
        container.get_wrapped_container().wait()
        return exec_at_once(container, command)

    exec_at_once = KafkabusContainer.exec
    monkeypatch.setattr(KafkabusContainer, "exec", ask_late)
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(ENTITIES).replace("EnablePartitioning", "EnablePartitions"))
    file.chmod(0o644)
    container = KafkabusContainer(emulator_image, entities=file)
    with pytest.raises(RuntimeError, match="did you mean 'EnablePartitioning'"):
        container.start()
    with pytest.raises(NotFound):
        container.reload()


def test_it_may_share_the_network_of_the_host(emulator_image: str, entities: Path) -> None:
    """Then it listens on ports of the host that are free."""
    with KafkabusContainer(emulator_image, entities=entities, network_mode="host") as container:
        send(container.connection_string, "hello")
        assert bodies(container.connection_string, 1) == {"hello"}


def test_a_neighbouring_container_connects_by_name(emulator_image: str, entities: Path) -> None:
    """Kafka advertises another address to it than to the host."""
    with (
        Network() as network,
        KafkabusContainer(emulator_image, entities=entities)
        .with_network(network)
        .with_network_aliases("shop-bus") as container,
    ):
        send(container.connection_string, "from the host")
        words = ("--network", network.name, "--entrypoint", "kafkabus", "--env", "KAFKABUS_CONNECTION_STRING")
        environment = {"KAFKABUS_CONNECTION_STRING": container.network_connection_string}
        received = docker("run", "--rm", *words, emulator_image, "receive", "orders", environment=environment)
        assert received == "from the host\n"


def test_commands_in_the_container_find_its_namespace(container: KafkabusContainer) -> None:
    """They need no connection string."""
    identity = container.get_container_id()

    def kafkabus(*words: str) -> str:
        return docker("exec", identity, "kafkabus", *words)

    kafkabus("queue", "create", "commands")
    kafkabus("send", "commands", "hello")
    assert kafkabus("receive", "commands") == "hello\n"


def test_azures_sdk_connects_to_its_gateway(container: KafkabusContainer) -> None:
    """Its messages are those of the namespace, and the administration is served beside it."""
    with ServiceBusAdministrationClient.from_connection_string(container.connection_string) as administration:
        administration.create_queue("of-azure")
    with AzureClient.from_connection_string(container.amqp_connection_string) as client:
        with client.get_queue_sender("of-azure") as sender:
            sender.send_messages(AzureMessage("hello"))
        with client.get_queue_receiver("of-azure") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=PATIENCE_S)
            assert str(message) == "hello"
            receiver.complete_message(message)
    connection = HTTPConnection(container.get_container_host_ip(), container.administration_port, timeout=PATIENCE_S)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()


def test_the_health_check_tells_a_namespace_that_serves(container: KafkabusContainer) -> None:
    """Docker runs it every ten seconds."""
    identity = container.get_container_id()
    wait_until(lambda: docker("inspect", "--format", "{{.State.Health.Status}}", identity).strip() == "healthy")


def test_upkeep_of_an_existing_cluster_ends_when_told(kafkabus_image: str, container: KafkabusContainer) -> None:
    """The image's default command is ``serve``; its connection string comes from the environment."""
    identity = docker(
        *("run", "--detach", "--network", "host", "--read-only", "--env", "KAFKABUS_CONNECTION_STRING"),
        kafkabus_image,
        environment={"KAFKABUS_CONNECTION_STRING": container.connection_string},
    ).strip()
    try:
        wait_until(lambda: "serve_started namespace=tests" in docker("logs", identity))
        docker("stop", identity)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", identity).strip() in {"0", "143"}
    finally:
        docker("rm", "--force", identity)
