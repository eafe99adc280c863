"""Kafka is not at its address, or refuses the client: an error says so within ten seconds."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._kafka import errors
from kafkabus._kafka.topic_admin import Topics
from kafkabus.aio import ServiceBusClient as AsyncServiceBusClient
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus.exceptions import ServiceBusAuthenticationError, ServiceBusCommunicationError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.service import Upkeep
from tests.proxy import Proxy
from tests.servers import REACHED_WITHIN, STALLED_FOR

WITHIN = 10.0
PATIENCE = 30.0

WRONG: dict[str, tuple[str, type[ServiceBusError], str]] = {
    "a closed port": (
        "127.0.0.1:1",
        ServiceBusCommunicationError,
        r"Kafka 127\.0\.0\.1:1 cannot be reached .*Connection refused.*is it running, and is the address right\?",
    ),
    "an unknown host": (
        "nohost.invalid:9092",
        ServiceBusCommunicationError,
        r"Kafka nohost\.invalid:9092 cannot be reached .*Failed to resolve.*is the host's name right\?",
    ),
    "both": ("127.0.0.1:1,nohost.invalid:9092", ServiceBusCommunicationError, r"(?s)refused.*resolve|resolve.*refused"),
    "TLS": (
        "{kafka};KafkaSecurityProtocol=SSL",
        ServiceBusCommunicationError,
        r"cannot be reached .*SSL.*KafkaSecurityProtocol is SSL: does the listener at this address speak that\?",
    ),
    "credentials": (
        "{kafka};KafkaSecurityProtocol=SASL_PLAINTEXT;KafkaSaslMechanism=PLAIN;KafkaSaslUsername=u;KafkaSaslPassword=guessed",
        ServiceBusAuthenticationError,
        r"refuses the credentials: .*see to KafkaSaslUsername, KafkaSaslPassword",
    ),
    "silence": ("{silent}", ServiceBusCommunicationError, r"cannot be reached .*is it a Kafka broker"),
}
"""Addresses given for Kafka, and the error for each."""


def _create(connection: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_queue("invoices")


def _send(connection: str) -> None:
    with ServiceBusClient.from_connection_string(connection) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))


def _receive(connection: str) -> None:
    with ServiceBusClient.from_connection_string(connection) as client:
        client.get_queue_receiver("orders").receive_messages(1, max_wait_time=60)


async def _send_in_a_task(connection: str) -> None:
    async with AsyncServiceBusClient.from_connection_string(connection) as client:
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))


OPERATIONS: dict[str, Callable[[str], object]] = {
    "create": _create,
    "receive": _receive,
    "send in a task": lambda connection: asyncio.run(_send_in_a_task(connection)),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of these tests have less patience than usual; the usual patience is short enough, too."""
    assert REACHED_WITHIN < WITHIN
    monkeypatch.setattr(errors, "REACHED_WITHIN", 3.0)


@pytest.fixture
def silent() -> Iterator[str]:
    """The port of a server that accepts connections and never answers."""
    listener = socket.create_server((HOST, 0))
    with closing(listener):
        yield f"{HOST}:{listener.getsockname()[1]}"


@pytest.fixture
def described(untended: str) -> str:
    """A namespace whose Redis knows of a queue: its clients need not ask Kafka first."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
    return untended


def elsewhere(described: str, runtime: RunningNamespace, servers: str) -> str:
    """A connection string for the namespace with another address of Kafka."""
    return described.replace(f"KafkaBootstrapServers={runtime.bootstrap_servers}", f"KafkaBootstrapServers={servers}")


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_says_why_kafka_is_not_reached(
    described: str, runtime: RunningNamespace, silent: str, wrong: str
) -> None:
    """It names address, cause and remedy. Here a broker that starts has three seconds to answer."""
    servers, kind, says = WRONG[wrong]
    began = time.monotonic()
    with pytest.raises(kind, match=says) as caught:
        _send(elsewhere(described, runtime, servers.format(kafka=runtime.bootstrap_servers, silent=silent)))
    assert time.monotonic() - began < WITHIN
    assert "guessed" not in str(caught.value)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_is_done_first_says_it(described: str, runtime: RunningNamespace, operation: str) -> None:
    """That holds even if Redis knows all that the call needs of the queue. It takes three seconds."""
    began = time.monotonic()
    with pytest.raises(
        ServiceBusCommunicationError, match=r"Kafka 127\.0\.0\.1:1 cannot be reached .*Connection refused"
    ):
        OPERATIONS[operation](elsewhere(described, runtime, "127.0.0.1:1"))
    assert time.monotonic() - began < WITHIN


def test_upkeep_says_why_and_waits(described: str, runtime: RunningNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """Upkeep is started before Kafka; three seconds pass before it warns."""
    reserved = ReservedPort()
    connection = elsewhere(described, runtime, f"{HOST}:{reserved.number}")

    async def run() -> None:
        stop = asyncio.Event()
        service = asyncio.create_task(Upkeep(parse_settings(connection)).run(stop))
        began = time.monotonic()
        while "Connection refused" not in caplog.text:
            assert time.monotonic() - began < WITHIN
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.wait_for(service, PATIENCE)

    asyncio.run(run())
    reserved.release()
    assert f"Kafka {HOST}:{reserved.number} cannot be reached" in caplog.text


def test_the_command_line_says_why(described: str, runtime: RunningNamespace) -> None:
    """It prints one line and exits with status 1, after seven seconds."""
    connection = elsewhere(described, runtime, "127.0.0.1:1")
    done = subprocess.run(
        [sys.executable, "-m", "kafkabus.cli", "-c", connection, "send", "orders", "one"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error: Kafka 127.0.0.1:1 cannot be reached" in done.stderr
    assert "Connection refused" in done.stderr


def test_a_broker_that_starts_is_waited_for(
    described: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempts are refused, and then it serves: no error is raised."""
    # As long as a machine that stalls may take to start it.
    monkeypatch.setattr(errors, "REACHED_WITHIN", STALLED_FOR)
    port = int(runtime.bootstrap_servers.rpartition(":")[2])
    with ExitStack() as stack:
        reserved = ReservedPort()
        number = reserved.number
        reserved.release()
        settings = parse_settings(elsewhere(described, runtime, f"{HOST}:{number}"))
        opened: list[Proxy] = []

        def start() -> None:
            opened.append(stack.enter_context(Proxy(port, number)))

        starts = threading.Timer(errors.AT_FIRST + 0.3, start)
        starts.start()
        Topics(settings).reach()
        starts.join()
        assert opened


def test_an_established_client_waits_as_before(described: str, runtime: RunningNamespace) -> None:
    """A client that once reached a broker goes on when it comes back, after longer than a first contact may take."""
    port = int(runtime.bootstrap_servers.rpartition(":")[2])
    with Proxy(port) as proxy:
        topics = Topics(parse_settings(elsewhere(described, runtime, f"{HOST}:{proxy.port}")))
        topics.reach()
        assert topics.has_contact
        proxy.cut()
        began = time.monotonic()
        topics.reach()
        assert time.monotonic() - began < 4


def test_many_who_wait_are_told_together(described: str, runtime: RunningNamespace) -> None:
    """The second attempt does not begin when the first one ended."""
    topics = Topics(parse_settings(elsewhere(described, runtime, "127.0.0.1:1")))
    told: list[str] = []

    def reach() -> None:
        try:
            topics.reach()
        except ServiceBusCommunicationError as error:
            told.append(str(error))

    threads = [threading.Thread(target=reach) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < WITHIN
    assert len(told) == len(threads)
