"""Logs of Kafka's client show each error once, not at each attempt; errors that it hides are found out."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafkabus._core.settings import parse_settings
from kafkabus._kafka import errors
from kafkabus._kafka.client_options import AGAIN_AFTER, LOGGER, common_options
from kafkabus._kafka.errors import FirstContact
from kafkabus.exceptions import ServiceBusCommunicationError
from tests.kafka_log import KAFKA_LOG

ROOT = Path(__file__).parents[2]
CLIENTS = {"AdminClient", "AIOConsumer", "AIOProducer", "Consumer", "Producer", "ShareConsumer"}


def test_the_same_is_heard_once_a_minute(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle and the number of attempts do not matter; a new text is logged at once."""
    now = 1_000.0
    monkeypatch.setattr("kafkabus._kafka.client_options.time.monotonic", lambda: now)

    def fail(handle: int, address: str, *, tried: int = 0) -> None:
        LOGGER.error(
            "FAIL [rdkafka#producer-%d] [thrd:%s]: %s: Connect failed: refused (after %dms in state CONNECT)",
            handle,
            address,
            address,
            tried,
        )

    for handle in range(3):
        for tried in range(3):
            fail(handle, "there:1", tried=tried)
    fail(0, "elsewhere:1")
    assert ["there" in message for message in caplog.messages] == [True, False]
    now += AGAIN_AFTER
    fail(1, "there:1")
    assert len(caplog.messages) == 3


def test_a_name_server_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """While Kafka's client waits for it, it logs nothing."""
    answered = threading.Event()

    def never(*_: object) -> None:
        answered.wait()

    monkeypatch.setattr("kafkabus._kafka.errors.socket.getaddrinfo", never)
    monkeypatch.setattr(errors, "AT_FIRST", 0.1)
    monkeypatch.setattr(errors, "REACHED_WITHIN", 0.2)
    settings = parse_settings(
        "Endpoint=sb://tests.localhost/;SharedAccessKeyName=any;SharedAccessKey=any;"
        "KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1"
    )
    contact = FirstContact(settings, AdminClient(common_options(settings) | {"log_level": 0}, logger=KAFKA_LOG))
    with pytest.raises(ServiceBusCommunicationError, match=r"Failed to resolve '127\.0\.0\.1' in time"):
        contact.make()
    answered.set()


def test_no_client_of_kafka_writes_to_the_terminal() -> None:
    """A client without a logger does: each that the product or a test makes gets one."""
    written = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for folder in ("demo", "facade", "spark", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for call in clients_made(path.read_text())
        if "logger" not in {keyword.arg for keyword in call.keywords}
    ]
    assert written == []


def clients_made(source: str) -> list[ast.Call]:
    """Return the calls in a module that make clients of confluent-kafka."""
    if "confluent_kafka" not in source:
        return []
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in CLIENTS]
