"""Clients that others wrote work with a gateway: Azure's SDKs for Python in each run, the others in ``make test-clients``.

The tests start a namespace with a gateway. If ``KAFKABUS_GATEWAY`` is set, they use that one: it is the connection string that
applications use, and ``KAFKABUS_CONNECTION_STRING`` that of its namespace, in which the tests create entities.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.gateway import GatewayPorts
from kafkabus.embedded.java import spark_java_home
from kafkabus.gateway.announcement import Bound, connection_string
from kafkabus.management import ServiceBusAdministrationClient
from tests.clients import entities, spark_reader
from tests.clients.comparison import differences
from tests.clients.programs import PYTHON_SDKS, Program, install_python, own_program, programs
from tests.clients.restarts import RestartedGateway
from tests.ports import free_ports
from tests.servers import scratch_folder
from tests.spark.marks import UNCLOSED_SOCKETS

# A program runs all of its checks before the first of its tests ends: each may wait for a lock to end.
pytestmark = pytest.mark.timeout(900)

PROGRAMS = {program.name: program for program in programs()}
NEWEST_SDK = PYTHON_SDKS[0]
TYPED = [own_program(), *(PROGRAMS[name] for name in (f"python-{NEWEST_SDK}", "javascript", "go", "java"))]
"""The programs that exchange messages of every type."""

UNSHOWN = {
    ("data-sections", "java"),
    ("sequences", "java"),
}
"""Messages that a receiver's SDK does not show whole: it has only the first section of a body."""


class Addresses(NamedTuple):
    """The connection strings of a gateway.

    Attributes:
        gateway: That of applications with Azure's SDKs.
        namespace: That of kafkabus's own.
    """

    gateway: str
    namespace: str


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    """A gateway, of the module's own unless the environment names one."""
    given = os.environ.get("KAFKABUS_GATEWAY")
    if given:
        yield Addresses(given, os.environ["KAFKABUS_CONNECTION_STRING"])
        return
    amqp, http = free_ports(2)
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, gateway=GatewayPorts(amqp, http)) as runtime:
            # It is started when its gateway listens, too.
            for port in (amqp, http):
                socket.create_connection(("127.0.0.1", port), 10).close()
            with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
                # Standard takes no messages of a megabyte.
                administration.create_namespace("Premium", 4)
            yield Addresses(connection_string("127.0.0.1", Bound(amqp, None, http)), runtime.connection_string)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _cases() -> list[Any]:
    return [
        pytest.param(program.name, check, id=f"{program.name}-{check}")
        for program in PROGRAMS.values()
        if program.language != "python"
        for check in entities.checks_of(program.language)
    ]


def _outcomes(name: str, addresses: Addresses) -> dict[str, dict[str, Any]]:
    """Run a program's checks, all at once; return the line of each."""
    program = PROGRAMS[name]
    prefix = f"{name}-{uuid.uuid4().hex[:6]}-"
    with ServiceBusAdministrationClient.from_connection_string(addresses.namespace) as administration:
        entities.create(administration, prefix, entities.checks_of(program.language))
    ended = program.run(connection_string=addresses.gateway, prefix=prefix)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines, ended.stderr[-2000:]
    return {line["check"]: line for line in lines}


_once = cache(_outcomes)


@pytest.mark.clients
@pytest.mark.parametrize(("name", "check"), _cases())
def test_an_sdk_works(addresses: Addresses, name: str, check: str) -> None:
    """A check passes with an SDK."""
    outcome = _once(name, addresses)[check]
    assert outcome["ok"], outcome["error"]


@pytest.mark.parametrize(
    "version",
    [NEWEST_SDK, *(pytest.param(one, marks=pytest.mark.extended) for one in PYTHON_SDKS if one != NEWEST_SDK)],
)
def test_the_sdk_for_python_works(addresses: Addresses, version: str) -> None:
    """All checks, with a version of azure-servicebus and both of its halves, at the same time.

    It takes a minute, in which the programs wait: for locks to end, for messages that are scheduled or do not come.
    """
    names = [program.name for program in PROGRAMS.values() if program.name.startswith(f"python-{version}")]
    install_python()
    with ThreadPoolExecutor(len(names)) as pool:
        found = dict(zip(names, pool.map(_outcomes, names, [addresses] * len(names)), strict=True))
    wrong = {
        f"{name} {check}": line["error"]
        for name, lines in found.items()
        for check, line in lines.items()
        if not line["ok"]
    }
    assert not wrong, json.dumps(wrong, indent=1)
    checks = set(entities.checks_of("python"))
    # Versions before 7.15 cannot list sessions.
    assert {frozenset(checks - set(lines)) for lines in found.values()} == {
        frozenset() if version == NEWEST_SDK else frozenset({"session-list"})
    }


@pytest.mark.clients
@pytest.mark.parametrize("name", ["jms", "rhea"])
def test_a_client_outlives_a_restart(addresses: Addresses, tmp_path: Path, name: str) -> None:
    """A client goes on over the links that it had before the gateway was stopped and started: all that was stored is there.

    It takes a quarter of a minute, in which the client sends a message each tenth of a second and then waits for more.
    """
    queue = f"restart-{name}-{uuid.uuid4().hex[:6]}"
    with ServiceBusAdministrationClient.from_connection_string(addresses.namespace) as administration:
        # Messages that a consumer has prefetched when the gateway stops come again when their locks end.
        entities.create_queue(administration, queue, entities.Queue(lock_s=entities.SHORT_LOCK_S))
    count, errors = 60, tmp_path / "errors"
    with RestartedGateway(addresses.namespace) as gateway:
        process = PROGRAMS[name].start(
            "keep-sending", queue, str(count), connection_string=gateway.connection_string, errors=errors
        )
        with process:
            assert process.stdout is not None
            said = list(itertools.islice(process.stdout, count // 6))
            gateway.restart()
            said += process.stdout
    assert process.returncode == 0, errors.read_text()[-3000:]
    lines = [json.loads(line) for line in said]
    assert [line["stored"] for line in lines if "stored" in line] == list(range(count))
    # A message that was not answered before the gateway stopped was sent again, and may be there twice.
    assert {line["received"] for line in lines if "received" in line} == set(range(count))


@pytest.mark.clients
@pytest.mark.parametrize("receiver", TYPED, ids=lambda program: program.name)
@pytest.mark.parametrize("sender", TYPED, ids=lambda program: program.name)
def test_a_message_comes_with_its_types(addresses: Addresses, sender: Program, receiver: Program) -> None:
    """A message that any SDK sends is the same for the SDK that receives it; a type counts only if both show it."""
    gateway, namespace = addresses
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


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that can read Kafka."""
    folder = tmp_path_factory.mktemp("spark")
    session = kafkabus_spark.session("clients", java_home=spark_java_home(), java_log=folder / "java.log")
    try:
        yield session
    finally:
        kafkabus_spark.stop(session)


@pytest.mark.clients
@pytest.mark.filterwarnings(UNCLOSED_SOCKETS)
@pytest.mark.parametrize("sender", TYPED, ids=lambda program: program.name)
def test_spark_reads_a_message_with_its_types(addresses: Addresses, sender: Program, spark: SparkSession) -> None:
    """A message that any SDK sends is the same for Spark; a type counts only if the SDK shows it."""
    gateway, namespace = addresses
    queue = f"types-{sender.name}-spark-{uuid.uuid4().hex[:6]}"
    with ServiceBusAdministrationClient.from_connection_string(namespace) as administration:
        entities.create_queue(administration, queue)
    sent = _forms(sender, "send-types", queue, gateway=gateway, namespace=namespace)
    got = spark_reader.forms(spark, namespace, queue)
    assert sorted(sent) == sorted(got)
    wrong = {identity: different for identity, form in sent.items() if (different := differences(form, got[identity]))}
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)


def _forms(program: Program, *arguments: str, gateway: str, namespace: str) -> dict[str, dict[str, Any]]:
    own = program.name == own_program().name
    ended = program.run(*arguments, connection_string=namespace if own else gateway)
    assert ended.returncode == 0, f"{ended.stdout[-1000:]}\n{ended.stderr[-3000:]}"
    return {form["id"]: form for form in map(json.loads, ended.stdout.splitlines())}
