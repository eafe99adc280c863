"""Passwords are shown nowhere: not in representations, errors or logs, and not to other users of the machine."""

from __future__ import annotations

import copy
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pydantic import ValidationError

from kafkabus import parse_connection_string
from kafkabus._async.admin.base import validate
from kafkabus._core.entity_properties import properties_of
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.cli.connection import GlobalOptions
from kafkabus.cli.settings import settings_json, settings_text
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.state import ProcessMark, RuntimeState
from kafkabus.exceptions import InvalidOperationError, ServiceBusCommunicationError
from kafkabus.management import AuthorizationRule, EntityAvailabilityStatus, QueueProperties
from kafkabus_mapping.connection import parse_kafka_location
from kafkabus_mapping.entities import AuthorizationRuleDescription, QueueDescription, read_description
from kafkabus_mapping.namespaces import NamespaceDescription
from kafkabus_mapping.secret import Secret

PASSWORD = "open-sesame"
REDIS = f"redis://:{PASSWORD}@127.0.0.1:1/0"
CONNECTION_STRING = (
    f"Endpoint=sb://nowhere.localhost/;SharedAccessKeyName=k;SharedAccessKey={PASSWORD};KafkaBootstrapServers=127.0.0.1:1;"
    f"KafkaSaslUsername=user;KafkaSaslPassword={PASSWORD};Redis={REDIS}"
)
SIGNED = f"Endpoint=sb://nowhere.localhost/;SharedAccessSignature={PASSWORD}"


NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


def queue() -> QueueDescription:
    """Return the description of a queue with an authorization rule."""
    rule = AuthorizationRuleDescription(key_name="app", primary_key=PASSWORD, secondary_key=PASSWORD)
    return QueueDescription(
        name="q", topic="t", topic_id="id", created_at=NOW, updated_at=NOW, authorization_rules=(rule,)
    )


def properties() -> QueueProperties:
    """Return the properties of that queue."""
    namespace, available = NamespaceDescription(created_at=NOW, updated_at=NOW), EntityAvailabilityStatus.AVAILABLE
    return properties_of(QueueProperties, queue(), namespace, available, "localhost")


@pytest.mark.parametrize(
    "make",
    [
        queue,
        properties,
        lambda: settings_text(properties()),
        lambda: settings_json(properties()),
        lambda: AuthorizationRule(primary_key=PASSWORD, secondary_key=PASSWORD),
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
        lambda: RuntimeState(
            "ready", Path("data"), ProcessMark.own(), True, "n", 1, CONNECTION_STRING, "127.0.0.1:1", REDIS
        ),
        lambda: GlobalOptions(CONNECTION_STRING),
    ],
)
def test_no_representation_shows_one(make: Callable[[], object]) -> None:
    """That holds for every way to write an object out."""
    made = make()
    for shown in (repr(made), str(made), f"{made}", f"{[made]}"):
        assert PASSWORD not in shown


def test_the_command_line_shows_that_there_are_keys() -> None:
    """And the SDK returns them, as Azure's does."""
    [rule] = properties().authorization_rules
    assert (rule.primary_key, rule.secondary_key) == (PASSWORD, PASSWORD)
    [shown] = json.loads(json.dumps(settings_json(properties())))["authorization_rules"]
    assert (shown["key_name"], shown["primary_key"], shown["secondary_key"]) == ("app", "*" * 10, "*" * 10)
    assert settings_json(vars(AuthorizationRule(key_name="app")))["primary_key"] is None
    assert "key_name='app'" in settings_text(properties())["authorization_rules"]


@pytest.mark.parametrize(
    "rule",
    [
        {"primary_key": [PASSWORD]},
        {"primary_key": PASSWORD, "rights": ["Bad"]},
        {"primary_key": PASSWORD, "unknown": 1},
        {"unknown": PASSWORD},
        PASSWORD,
        [{"primary_key": PASSWORD}],
    ],
)
def test_an_authorization_rule_that_is_refused_is_not_shown(rule: object) -> None:
    """Neither by the error nor by its cause."""
    settings = {**queue().model_dump(), "authorization_rules": [rule]}
    with pytest.raises(InvalidOperationError, match="authorization_rules") as caught:
        validate(QueueDescription, settings, "created")
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__cause__!r}"
    with pytest.raises(ValidationError, match="authorization_rules") as stored:
        read_description(json.dumps({**json.loads(queue().model_dump_json()), "authorization_rules": [rule]}))
    assert PASSWORD not in f"{stored.value} {stored.value!r}"


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
