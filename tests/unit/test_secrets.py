"""Passwords are shown nowhere: not in representations, errors or logs, and not to other users of the machine."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from kafkabus import parse_connection_string
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.cli.connection import GlobalOptions
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.state import ProcessMark, State
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus_mapping.connection import parse_kafka_location
from kafkabus_mapping.secret import Secret

PASSWORD = "open-sesame"
REDIS = f"redis://:{PASSWORD}@127.0.0.1:1/0"
CONNECTION_STRING = (
    f"Endpoint=sb://nowhere.localhost/;SharedAccessKeyName=k;SharedAccessKey={PASSWORD};KafkaBootstrapServers=127.0.0.1:1;"
    f"KafkaSaslUsername=user;KafkaSaslPassword={PASSWORD};Redis={REDIS}"
)
SIGNED = f"Endpoint=sb://nowhere.localhost/;SharedAccessSignature={PASSWORD}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Secret(PASSWORD),
        lambda: parse_settings(CONNECTION_STRING, {}),
        lambda: asdict(parse_settings(CONNECTION_STRING, {})),
        lambda: parse_settings(CONNECTION_STRING, {}).kafka_options,
        lambda: parse_settings(CONNECTION_STRING, {}).redis_address,
        lambda: parse_kafka_location(CONNECTION_STRING, {}, str),
        lambda: parse_kafka_location(CONNECTION_STRING, {}, str).kafka_options,
        lambda: parse_connection_string(CONNECTION_STRING),
        lambda: parse_connection_string(SIGNED),
        lambda: RunningNamespace(CONNECTION_STRING, "127.0.0.1:1", REDIS, 1, 1, Path("data")),
        lambda: State("ready", Path("data"), ProcessMark.own(), True, "n", 1, CONNECTION_STRING, "127.0.0.1:1", REDIS),
        lambda: GlobalOptions(CONNECTION_STRING),
    ],
)
def test_no_representation_shows_one(make: Callable[[], object]) -> None:
    """That holds for every way to write an object out."""
    made = make()
    for shown in (repr(made), str(made), f"{made}", f"{[made]}"):
        assert PASSWORD not in shown


def test_a_secret_is_the_text_that_it_was_made_of() -> None:
    """The same holds for its copies."""
    secret = Secret(PASSWORD)
    for same in (secret, copy.deepcopy(secret), copy.copy(secret)):
        assert (same, hash(same), same.reveal()) == (secret, hash(secret), PASSWORD)
    assert secret not in {PASSWORD, Secret("another")}


def test_a_redis_that_cannot_be_reached_is_named_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    """Errors and warnings have scheme, host, port and database; ``tests/no_secrets.py`` checks other places."""
    caplog.set_level(logging.DEBUG)
    context = ClientContext(parse_settings(f"{CONNECTION_STRING}?socket_timeout=5", {}), retry_for=0)
    with pytest.raises(ServiceBusCommunicationError, match=r"Redis redis://127.0.0.1:1/0 cannot be reached"):
        context.ledger_client.heartbeat("key", "instance", 1.0)
    with pytest.raises(ServiceBusCommunicationError, match=r"Redis redis://127.0.0.1:1/0 cannot be reached"):
        context.descriptions.all()
    context.close()
    assert "redis_retry address=redis://127.0.0.1:1/0" in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        f"localhost:6379/{PASSWORD}",
        f"http://:{PASSWORD}@localhost",
        f":{PASSWORD}@localhost:6379",
        f"redis://:{PASSWORD}/x@localhost:6379/0",
        f"redis://:{PASSWORD}?x@localhost:6379/0",
        f"redis://:{PASSWORD}#x@localhost:6379/0",
        f"redis://:/{PASSWORD}@localhost:6379/0",
        f"unix://:/{PASSWORD}@/run/redis.sock",
        f"redis://:1/{PASSWORD}@localhost:6379/0",
        f"redis://:1#{PASSWORD}@localhost:6379/0",
        f"redis://:{PASSWORD}[@localhost:6379/0",
        f"redis://:{PASSWORD}\u2100@localhost:6379/0",
    ],
)
def test_a_malformed_address_of_redis_is_not_shown(url: str) -> None:
    """Python's own error is not shown, either. The error has the rule, and says how to write a password."""
    for text, environment in ((f"{SIGNED};Redis={url}", {}), (SIGNED, {"KAFKABUS_REDIS_URL": url})):
        with pytest.raises(ValueError, match=r"Redis: a URL begins with redis://.*percent-encoded") as caught:
            parse_settings(text, {"KAFKABUS_BOOTSTRAP_SERVERS": "a:1", **environment})
        assert PASSWORD not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


ROOT = Path(__file__).resolve().parents[2]
PLANTED = """
import logging, sys
import pytest
from kafkabus.exceptions import ServiceBusError
from kafkabus_mapping.secret import Secret

PASSWORD = "open%2Fsesame"

@pytest.fixture(autouse=True)
def known(): Secret(f"redis://user:{PASSWORD}@localhost/0")

def test_output(): print(PASSWORD)
def test_errors(): print(PASSWORD.replace("%2F", "/"), file=sys.stderr)
def test_log(): logging.getLogger("kafkabus").warning("at %s", PASSWORD)
def test_caught():
    with pytest.raises(ServiceBusError):
        raise ServiceBusError(f"at {PASSWORD}")
def test_none(): print("open", "sesame", Secret(PASSWORD))
"""


def test_a_test_that_shows_one_fails(tmp_path: Path) -> None:
    """A password that any test gives to the code under test is therefore noticed. Another pytest takes a second."""
    (tmp_path / "test_planted.py").write_text(PLANTED)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.no_secrets",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "-rA",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    outcomes = [
        line.partition(" - ")[0] for line in told.stdout.splitlines() if line.startswith(("FAILED", "PASSED", "ERROR"))
    ]
    assert sorted(outcomes) == [
        *(f"FAILED test_planted.py::test_{name}" for name in ("caught", "errors", "log", "output")),
        "PASSED test_planted.py::test_none",
    ], told.stdout + told.stderr
