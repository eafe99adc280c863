"""``kafkabus serve`` as a process: its logs, its HTTP endpoint, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._runtime.health_endpoint import CONNECTIONS, LONGEST
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.process import END_WITHIN
from tests.processes import PROCESSES
from tests.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
NEVER = 600.0


@dataclass
class Serving:
    """A process that serves a namespace.

    Attributes:
        pid: The process.
        log: The file with its log.
        wait: Waits for its end, and returns its exit status.
    """

    pid: int
    log: Path
    wait: Callable[[], int | None]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The members of its log lines."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def event(self, name: str) -> dict[str, Any]:
        """Return the first line of an event; wait for it."""
        wait_until(lambda: any(line.get("event") == name for line in self.lines), name)
        return next(line for line in self.lines if line.get("event") == name)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return the status and the text at a path of its endpoint."""
        host, port = self.event("http_listening")["address"].split(":")
        connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the samples of each metric by the entity, or by the empty text."""
        samples: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[sample.labels.get("entity", "")] = sample.value
        return samples


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def serve(arguments: list[str], variables: dict[str, str], log: Path, end_within: float) -> None:
    """Be the program; tests need not wait as long as users for an end without servers, and for figures."""
    os.environ.update(variables)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115 - it is open
    sys.argv = ["kafkabus", "serve", "--log-format", "json", *arguments]
    from kafkabus.cli import main
    from kafkabus.upkeep import metrics, process

    process.END_WITHIN = end_within
    metrics.FRESH_FOR = 0.0
    main()


@contextmanager
def serving(
    folder: Path, connection_string: str, *arguments: str, end_within: float = END_WITHIN
) -> Generator[Serving]:
    """Serve a namespace in a process, which gets the connection string in a file."""
    secret, log = folder / "connection", folder / "log"
    secret.write_text(f"{connection_string}\n")
    log.touch()
    variables = {"KAFKABUS_CONNECTION_STRING_FILE": str(secret)}
    process = PROCESSES.Process(target=serve, args=([*arguments], variables, log, end_within))
    process.start()
    assert process.pid is not None

    def wait() -> int | None:
        process.join(PATIENCE_S)
        return process.exitcode

    try:
        yield Serving(process.pid, log, wait)
    finally:
        process.kill()
        process.join()


@pytest.fixture(scope="module")
def namespace(connection_string: str) -> str:
    """The connection string of a namespace with a queue, which these processes alone tend."""
    string = re.sub(r"sb://[^.]+\.", f"sb://serve-{os.getpid()}.", connection_string, count=1)
    with ServiceBusAdministrationClient.from_connection_string(string) as administration:
        administration.create_queue("orders", enable_partitioning=False)
        administration.create_queue("shipments", enable_partitioning=False)
        administration.create_topic("news", enable_partitioning=False)
        administration.create_subscription("news", "audit", requires_session=True)
    return string


@pytest.fixture(scope="module")
def server(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A process that serves the namespace, with an endpoint; of its queues, only one has separate metrics."""
    folder = tmp_path_factory.mktemp("serve")
    with serving(folder, namespace, "--http", "127.0.0.1:0", "--metrics-entities", "orders|news.*") as found:
        wait_until(lambda: found.get("/readyz")[0] == 200, "the service is ready")
        yield found


def test_a_service_that_tends_is_alive_and_ready(server: Serving) -> None:
    """Both answers are JSON."""
    assert server.get("/livez") == (200, '{"alive":true}')
    assert server.get("/readyz") == (200, '{"ready":true,"reasons":{}}')
    assert server.get("/nowhere")[0] == 404


def test_logs_name_event_and_namespace(server: Serving, namespace: str) -> None:
    """Times are in UTC."""
    line = server.event("upkeep_started")
    assert (line["level"], line["namespace"]) == ("info", parse_settings(namespace).namespace)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_hanging_clients_keep_no_other_from_an_answer(server: Serving) -> None:
    """More of them than may be connected send half a request; the oldest one is cut off."""
    host, port = server.event("http_listening")["address"].split(":")
    with ExitStack() as stack:
        hanging: list[socket.socket] = []
        for _ in range(CONNECTIONS + 5):
            hanging.append(stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)))
            hanging[-1].sendall(b"GET /livez HTTP/1.1\r\nHost:")
        assert server.get("/livez")[0] == 200
        hanging[0].settimeout(LONGEST / 2)
        with suppress(ConnectionResetError):
            assert hanging[0].recv(1) == b""
        hanging[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            hanging[-1].recv(1)


def test_metrics_count_messages_of_an_entity(server: Serving, namespace: str) -> None:
    """Messages are counted by what became of them; the entities that were not chosen are summed.

    The test takes two seconds, as often as upkeep looks for new dead-letter queues.
    """
    with ServiceBusClient.from_connection_string(namespace) as client:
        with client.get_queue_sender("orders") as sender, client.get_queue_sender("shipments") as others:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(8)])
            others.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("orders") as receiver:
            messages = receiver.receive_messages(6, max_wait_time=PATIENCE_S)
            while len(messages) < 6:
                messages += receiver.receive_messages(6 - len(messages), max_wait_time=PATIENCE_S)
            receiver.complete_messages(messages[:2])
            receiver.defer_message(messages[2])
            receiver.dead_letter_message(messages[3])
            receiver.abandon_message(messages[4], delay=3600)

            def expected() -> bool:
                found = server.metrics()
                counts = {
                    "kafkabus_active_messages": 5,  # two wait, one is locked, one is deferred, one postponed
                    "kafkabus_deferred_messages": 1,
                    "kafkabus_postponed_messages": 1,
                    "kafkabus_locked_messages": 1,
                    "kafkabus_dead_letter_messages": 1,
                    "kafkabus_scheduled_messages": 0,
                    "kafkabus_stored_records_total": 8,
                    "kafkabus_settled_messages_total": 3,
                    "kafkabus_dead_lettered_messages_total": 1,
                    "kafkabus_partition_skew_ratio": 1,
                }
                return (
                    all(found.get(name, {}).get("orders") == count for name, count in counts.items())
                    and found["kafkabus_active_messages"].get("(others)") == 1
                    and 0 < found["kafkabus_oldest_message_age_seconds"]["orders"] < PATIENCE_S
                )

            wait_until(expected, "the metrics have the counts")
    found = server.metrics()
    assert "news/Subscriptions/audit" in found["kafkabus_locked_sessions"]
    assert "news/Subscriptions/audit" in found["kafkabus_available_sessions"]
    assert "shipments" not in found["kafkabus_active_messages"]
    assert found["kafkabus_redis_call_seconds_count"][""] > 0
    assert found["kafkabus_upkeep_lateness_seconds_count"][""] > 0


def test_metrics_are_compressed_for_clients_that_can_read_that(server: Serving) -> None:
    """Prometheus asks for that."""
    host, port = server.event("http_listening")["address"].split(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert (answer.getheader("Content-Encoding"), answer.read()[:2]) == ("gzip", b"\x1f\x8b")
    connection.close()


def names_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression of PromQL."""
    without_texts = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    without_labels = re.sub(
        r"\{[^}]*\}|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", without_texts
    )
    words = re.findall(r"[a-zA-Z_:][\w:]*(?!\s*\()\b", re.sub(r"\[[^]]*\]", " ", without_labels))
    return {word for word in words if "_" in word and not re.search(rf"\b{word}\s*\(", without_labels)}


def expressions() -> Iterator[str]:
    """Return the expressions of the dashboard and of the alerts."""
    dashboard = json.loads((ROOT / "docker" / "grafana" / "kafkabus.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        yield from re.findall(r"label_values\((\w+),", str(variable.get("query", "")))
    alerts = yaml.safe_load((ROOT / "docker" / "grafana" / "alerts.yml").read_text())
    yield from (rule["expr"] for group in alerts["groups"] for rule in group["rules"])


def test_dashboard_alerts_and_documentation_name_metrics_that_there_are(server: Serving) -> None:
    """The documentation has all of them. Metrics of clients' processes are described, too."""
    families = list(text_string_to_metric_families(server.get("/metrics")[1]))
    samples = {sample.name for family in families for sample in family.samples}
    declared = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    asked = {name for expression in expressions() for name in names_in(expression)}
    assert len(asked) > 10
    assert asked - samples - declared == {"up"} & asked
    table = (ROOT / "docs" / "how-to" / "operate.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(kafkabus_\w+)` \|", table, re.MULTILINE))
    assert {name for name in declared if name.startswith("kafkabus_")} == documented


@pytest.mark.faults
@pytest.mark.parametrize("server_that_hangs", ["redis", "kafka"])
def test_sigterm_ends_a_service_whose_servers_hang(
    runtime: RunningNamespace, namespace: str, tmp_path: Path, server_that_hangs: str
) -> None:
    """The exit status is 0. The test takes two seconds, since a process needs one, and waits for one."""
    settings = parse_settings(namespace)
    redis_port = int(settings.redis_address.rpartition(":")[2].partition("/")[0])
    kafka_port = int(runtime.bootstrap_servers.rpartition(":")[2])
    with (
        Proxy(redis_port) as redis,
        Proxy(kafka_port) as kafka,
        serving(
            tmp_path,
            namespace.replace(f":{redis_port}", f":{redis.port}").replace(f":{kafka_port}", f":{kafka.port}"),
            end_within=1.0,
        ) as served,
    ):
        # Kafka names its own address to a client that has reached it.
        kafka.hangs = server_that_hangs == "kafka"
        served.event("upkeep_started")
        if server_that_hangs == "redis":
            served.event("upkeep_tends")
        redis.hangs = server_that_hangs == "redis"
        os.kill(served.pid, signal.SIGTERM)
        assert served.wait() == 0
        assert served.event("upkeep_ended_late")["level"] == "warning"


@pytest.mark.faults
def test_a_second_signal_ends_a_service_at_once(namespace: str, tmp_path: Path) -> None:
    """The exit status names the signal, while Redis hangs. The test takes a second, as a process does."""
    port = int(parse_settings(namespace).redis_address.rpartition(":")[2].partition("/")[0])
    with (
        Proxy(port) as proxy,
        serving(tmp_path, namespace.replace(f":{port}", f":{proxy.port}"), end_within=NEVER) as served,
    ):
        served.event("upkeep_tends")
        proxy.hangs = True
        os.kill(served.pid, signal.SIGTERM)
        served.event("upkeep_stopping")
        os.kill(served.pid, signal.SIGTERM)
        assert served.wait() == 128 + signal.SIGTERM


def test_an_address_in_use_is_an_error(server: Serving, namespace: str, tmp_path: Path) -> None:
    """It names the address and the remedy, in the form of the log."""
    address = server.event("http_listening")["address"]
    with serving(tmp_path, namespace, "--http", address) as other:
        assert other.wait() == 1
        assert f"--http {address}: cannot listen there" in other.event("serve_failed")["error"]
