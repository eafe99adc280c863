"""``kafkabus gateway`` as a process, with Azure's SDK and over TLS; and the page that describes it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from azure.servicebus import ServiceBusClient as AzureClient
from azure.servicebus import ServiceBusMessage as AzureMessage
from azure.servicebus import ServiceBusReceivedMessage
from prometheus_client.parser import text_string_to_metric_families

from kafkabus._core.settings import parse_settings
from kafkabus.gateway.amqp.performatives import Accepted
from kafkabus.gateway.announcement import Bound, connection_string, unchecked_addresses, warning
from kafkabus.gateway.process import Ports, run_gateway
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from tests.amqp_client import AmqpClient
from tests.certificates import Authority
from tests.ports import free_ports

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "gateway.md"
PATIENCE_S = 60.0


@dataclass
class Running:
    """A gateway's process.

    Attributes:
        process: The process.
        connection_string: The connection string that it printed.
        log: The file with its log.
    """

    process: subprocess.Popen[str]
    connection_string: str
    log: Path

    @property
    def port(self) -> int:
        """The port for AMQP without TLS, in the connection string."""
        found = re.search(r"sb://127\.0\.0\.1:(\d+)", self.connection_string)
        assert found is not None
        return int(found[1])

    def stop(self) -> int:
        """End it; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def started(connection: str, folder: Path, *arguments: str) -> Generator[Running]:
    """Start a gateway on free ports, and kill it at the end."""
    command = [sys.executable, "-m", "kafkabus.cli", "gateway", "--amqp-port", "0", "--http-port", "0", *arguments]
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: connection}
    log = folder / "gateway.log"
    with log.open("w") as errors:
        # Signals go to its process group, which must not be that of the tests.
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, log.read_text()
        yield Running(process, line, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def workers(gateway: Running) -> list[psutil.Process]:
    """Return the processes of a gateway that share its ports."""
    children = psutil.Process(gateway.process.pid).children()
    return [one for one in children if "spawn_main" in " ".join(one.cmdline())]


def until(true: Callable[[], object], what: str) -> None:
    """Wait for a condition, and fail when it does not come true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def exchange(connection: str, queue: str) -> list[str]:
    """Send and receive with Azure's SDK; return the bodies."""
    with AzureClient.from_connection_string(connection) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([AzureMessage("one", partition_key="k"), AzureMessage("two", partition_key="k")])
        with client.get_queue_receiver(queue) as receiver:
            came: list[ServiceBusReceivedMessage] = []
            while len(came) < 2:
                some = receiver.receive_messages(2 - len(came), max_wait_time=PATIENCE_S)
                assert some
                came += some
            for message in came:
                receiver.complete_message(message)
            return [str(message) for message in came]


def fetch(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer over HTTP."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def queue(untended: str) -> Iterator[str]:
    """A queue of a namespace of the test's own."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
        yield "orders"


def test_applications_use_the_connection_string_that_it_prints(untended: str, queue: str, tmp_path: Path) -> None:
    """It ends in order at SIGTERM. Azure's SDK takes half a second for each link, and the process one to start."""
    (metrics,) = free_ports(1)
    with started(untended, tmp_path, "--metrics", f"127.0.0.1:{metrics}") as gateway:
        assert exchange(gateway.connection_string, queue) == ["one", "two"]
        assert fetch(metrics, "/readyz") == (200, '{"ready":true,"reasons":{}}')
        status, page = fetch(metrics, "/metrics")
        figures = {one.name: one.value for family in text_string_to_metric_families(page) for one in family.samples}
        assert status == 200
        assert figures["kafkabus_gateway_connections_opened_total"] == 2
        assert figures["kafkabus_gateway_connections_broken_total"] == 0
        assert figures["kafkabus_client_sent_messages_total"] == 2
        assert gateway.stop() == 0
        log = gateway.log.read_text()
        assert "gateway_stopped" in log
        assert 'client="azsdk-python-servicebus/' in log
        assert "Traceback" not in log
        for secret in (parse_settings(untended).redis_url.reveal(), "SAS_KEY_VALUE"):
            assert secret not in log.replace(gateway.connection_string, "")


def test_several_processes_share_the_port(untended: str, queue: str, tmp_path: Path) -> None:
    """One that is killed is started again, and its clients connect again. Three processes take some seconds to start."""
    with started(untended, tmp_path, "--workers", "2") as gateway:
        until(lambda: gateway.log.read_text().count("gateway_started") == 2, "both listen")
        assert exchange(gateway.connection_string, queue) == ["one", "two"]
        workers(gateway)[0].kill()
        until(lambda: gateway.log.read_text().count("gateway_started") == 3, "another one listens")
        assert exchange(gateway.connection_string, queue) == ["one", "two"]
        assert len(workers(gateway)) == 2
        # Another test's namespace may have the port for HTTP by default.
        ports = ["--amqp-port", str(gateway.port), "--http-port", "off"]
        refused = subprocess.run(
            [sys.executable, "-m", "kafkabus.cli", "gateway", "--workers", "2", *ports],
            env={**os.environ, CONNECTION_STRING_VARIABLE: untended},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (refused.returncode, f"{gateway.port}: cannot listen there" in refused.stderr) == (1, True)
        # As Ctrl-C in a terminal and systemd do.
        os.killpg(gateway.process.pid, signal.SIGINT)
        assert gateway.process.wait(PATIENCE_S) == 0
        log = gateway.log.read_text()
        assert log.count("gateway_stopped") == 2
        assert "at_once" not in log


@pytest.mark.parametrize("how", ["killed", "terminal closed"])
def test_processes_end_with_the_one_that_watches_over_them(untended: str, queue: str, tmp_path: Path, how: str) -> None:
    """Beside those that are started next, they would go on with keys that were replaced. Three processes take some seconds."""
    with started(untended, tmp_path, "--workers", "2") as gateway:
        until(lambda: gateway.log.read_text().count("gateway_started") == 2, "both listen")
        left = workers(gateway)
        if how == "killed":
            gateway.process.kill()
        else:
            for _ in range(2):
                os.killpg(gateway.process.pid, signal.SIGHUP)
            assert gateway.process.wait(PATIENCE_S) == 0
        _gone, alive = psutil.wait_procs(left, PATIENCE_S)
        assert alive == []
        assert gateway.log.read_text().count("gateway_stopped") == 2


def test_tls_needs_a_certificate_that_the_client_trusts(untended: str, queue: str, tmp_path: Path) -> None:
    """The same port speaks nothing else. The process takes a second to start."""
    authority = Authority(tmp_path)
    own = authority.certify("gateway")
    (port,) = free_ports(1)
    options = ("--tls-cert", str(own.certificate), "--tls-key", str(own.key), "--tls-port", str(port))
    with started(untended, tmp_path, *options):

        async def send() -> object:
            context = ssl.create_default_context(cafile=str(authority.file))
            async with AmqpClient(port, tls=context) as client:
                sender = await client.sender(queue)
                return await sender.send(encode_sections(Sections(data=[b"secret"])))

        assert asyncio.run(send()) == Accepted()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--amqp-port", "70000"), "write a port"),
        (("--amqp-port", "off"), "nothing would be served"),
        (("--tls-key", "key.pem"), "--tls-key without --tls-cert"),
        (("--tls-cert", "nowhere.pem"), "nowhere.pem"),
        (("--policies", "nowhere.toml"), "nowhere.toml"),
        (("--workers", "0"), "write a number from 1 to 256"),
        (("--host", "192.0.2.1"), "cannot listen there"),
    ],
)
def test_an_error_names_value_rule_and_remedy(
    untended: str, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    """Before anything is served. Each process takes half a second."""
    command = [sys.executable, "-m", "kafkabus.cli", "gateway", "--http-port", "off", "--amqp-port", "0", *arguments]
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: untended}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode in {1, 2}
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


# In this process.


def test_addresses_without_policies_are_named() -> None:
    """If other machines reach them."""
    for host in ("127.0.0.1", "localhost", "::1"):
        assert unchecked_addresses(host, Bound(1, 2, 3, 4)) == []
    assert unchecked_addresses("", Bound(1, None)) == ["*:1 (AMQP)"]
    named = unchecked_addresses("::", Bound(5672, 5671, None, 443))
    assert named == ["[::]:5672 (AMQP)", "[::]:5671 (AMQP with TLS)", "[::]:443 (administration with TLS)"]
    assert (
        warning(["a", "b"], "c") == "Warning: no key is checked: each client that can reach a or b has full rights; c"
    )


@contextmanager
def in_a_thread(namespace: InMemoryNamespace) -> Generator[str]:
    """Run a gateway to a namespace in memory; yield the connection string for applications."""
    ready, ended, found = threading.Event(), asyncio.Event(), list[object]()

    async def run() -> None:
        ports = Ports("127.0.0.1", 0, None, 0)
        async with run_gateway(namespace.connection_string, ports, GatewaySettings()) as bound:
            found.extend((asyncio.get_running_loop(), connection_string("127.0.0.1", bound)))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        loop, string = found
        assert isinstance(loop, asyncio.AbstractEventLoop)
        yield str(string)
        loop.call_soon_threadsafe(ended.set)
    finally:
        thread.join(PATIENCE_S)


def test_the_page_does_what_it_says() -> None:
    """Its program prints what follows it, with Azure's SDK."""
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (_, program), (_, output) = blocks[:2]
    with (
        InMemoryNamespace("how-to") as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_queue("orders", enable_partitioning=False)
        with in_a_thread(namespace) as connection, contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, {"connection_string": connection})  # noqa: S102 - it is the documentation's
        assert printed.getvalue() == output
