"""Azure's unmodified SDKs work with a gateway: ``make test-clients``.

``KAFKABUS_GATEWAY`` is the connection string that applications of the gateway use, and ``KAFKABUS_CONNECTION_STRING`` that of
its namespace, in which the tests create entities.
"""

from __future__ import annotations

import json
import os
import uuid
from functools import cache
from typing import Any

import pytest

from kafkabus.management import ServiceBusAdministrationClient
from tests.clients import entities
from tests.clients.comparison import differences
from tests.clients.programs import Program, own_program, programs

# A program runs all of its checks before the first of its tests ends: each may wait for a lock to end.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

PROGRAMS = {program.name: program for program in programs()}
TYPED = [own_program(), *(PROGRAMS[name] for name in ("python-7.15.0", "javascript", "go", "java"))]
"""The programs that exchange messages of every type."""

KNOWN = {
    "abandon-properties": "kafkabus changes properties only of a message that it dead-letters",
}
"""Checks that fail, with the reason."""
UNSHOWN = {
    ("data-sections", "java"),
    ("sequences", "java"),
}
"""Messages that a receiver's SDK does not show whole: it has only the first section of a body."""


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f"{name} is not set")
    return value


def _cases() -> list[Any]:
    return [
        pytest.param(program.name, check, id=f"{program.name}-{check}")
        for program in PROGRAMS.values()
        for check in entities.checks_of(program.language)
        if (program.name[:11], check) != ("python-7.14", "session-list")  # new in 7.15
    ]


@cache
def _outcomes(name: str, gateway: str, namespace: str) -> dict[str, dict[str, Any]]:
    """Run a program's checks, all at once; return the line of each."""
    program = PROGRAMS[name]
    prefix = f"{name}-{uuid.uuid4().hex[:6]}-"
    with ServiceBusAdministrationClient.from_connection_string(namespace) as administration:
        entities.create(administration, prefix, entities.checks_of(program.language))
    ended = program.run(connection_string=gateway, prefix=prefix)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines, ended.stderr[-2000:]
    return {line["check"]: line for line in lines}


@pytest.mark.parametrize(("name", "check"), _cases())
def test_an_sdk_works(name: str, check: str) -> None:
    """A check passes with an SDK."""
    outcome = _outcomes(name, _variable("KAFKABUS_GATEWAY"), _variable("KAFKABUS_CONNECTION_STRING"))[check]
    if check in KNOWN:
        assert not outcome["ok"], f"{check} passes: take it out of KNOWN"
        pytest.xfail(KNOWN[check])
    assert outcome["ok"], outcome["error"]


@pytest.mark.parametrize("receiver", TYPED, ids=lambda program: program.name)
@pytest.mark.parametrize("sender", TYPED, ids=lambda program: program.name)
def test_a_message_comes_with_its_types(sender: Program, receiver: Program) -> None:
    """A message that any SDK sends is the same for the SDK that receives it, as far as both show the types of values."""
    gateway, namespace = _variable("KAFKABUS_GATEWAY"), _variable("KAFKABUS_CONNECTION_STRING")
    queue = f"types-{sender.name}-{receiver.name}-{uuid.uuid4().hex[:6]}"
    with ServiceBusAdministrationClient.from_connection_string(namespace) as administration:
        entities.create_queue(administration, queue)
    sent = _forms(sender, "send-types", queue, gateway=gateway, namespace=namespace)
    got = _forms(receiver, "receive-types", queue, str(len(sent)), gateway=gateway, namespace=namespace)
    assert sorted(sent) == sorted(got)
    wrong = {
        identity: different
        for identity, form in sent.items()
        if (identity, receiver.name) not in UNSHOWN and (different := differences(form, got[identity]))
    }
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)


def _forms(program: Program, *arguments: str, gateway: str, namespace: str) -> dict[str, dict[str, Any]]:
    own = program.name == own_program().name
    ended = program.run(*arguments, connection_string=namespace if own else gateway)
    assert ended.returncode == 0, f"{ended.stdout[-1000:]}\n{ended.stderr[-3000:]}"
    return {form["id"]: form for form in map(json.loads, ended.stdout.splitlines())}
