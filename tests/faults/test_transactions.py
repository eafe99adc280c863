"""Each party crashes after each step of a transaction: all of it happens, or nothing, and it is decided in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from kafkabus import ServiceBusClient
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions.transaction_commit import TransactionCommit
from kafkabus._sync.stores.checkpoints import Checkpoints
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import MessageLockLostError, ServiceBusCommunicationError, ServiceBusError
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.faults.transacting import ALL, NOTHING, STEPS, State, after, fill, state, transact
from tests.queues import new_queue

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

PATIENCE = 180.0
"""How long, in seconds, it may take until the transaction is decided and all messages can be received."""


@pytest.fixture(scope="module")
def namespace() -> Iterator[EmbeddedRuntime]:
    """A separate namespace, whose servers may be killed."""
    with EmbeddedRuntime(namespace="transacts") as started:
        yield started


@pytest.fixture
def queues(namespace: EmbeddedRuntime, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A source, of several ledgers if the test asks for that, and a destination."""
    several: bool = getattr(request, "param", False)
    source = new_queue(namespace.connection_string, enable_partitioning=several, max_delivery_count=100)
    return source, new_queue(namespace.connection_string)


def decided(namespace: EmbeddedRuntime, queues: tuple[str, str], number: int, expected: tuple[State, ...]) -> State:
    """Return the outcome of a transaction, once no lock is left and it stays so."""
    source, destination = queues
    seen: list[State] = []
    until = time.monotonic() + PATIENCE
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        while time.monotonic() < until:
            # Locks expire, and late callers are late.
            advance(namespace.redis_url, "transacts", source, 61)
            try:
                seen.append(state(client, source, destination, number))
            except ServiceBusError:
                continue  # A server that was killed is not there yet.
            if len(seen) > 1 and seen[-1] == seen[-2] and seen[-1] in expected:
                return seen[-1]
    raise AssertionError(f"neither of {expected} stayed so in {PATIENCE:.0f} s: {seen[-5:]}")


def die(namespace: EmbeddedRuntime, queues: tuple[str, str], step: str) -> int:
    """Have a process begin a transaction and kill itself right after a step; return its exit status."""
    command = [sys.executable, "-m", "tests.faults.transacting", *queues, step]
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: namespace.connection_string}
    return subprocess.run(command, env=environment, check=False).returncode


@pytest.mark.parametrize("queues", [True], indirect=True, ids=["of several ledgers"])
@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_is_killed_after_a_step(namespace: EmbeddedRuntime, queues: tuple[str, str], step: str) -> None:
    """A crash before the commit undoes everything, a crash after it nothing."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        number = fill(client, queues[0])
    assert die(namespace, queues, step) == -signal.SIGKILL
    expected = NOTHING if step in {"_produce", "_prepare"} else ALL
    assert decided(namespace, queues, number, (expected,)) == expected


def run(
    namespace: EmbeddedRuntime,
    queues: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    act: Callable[[], object],
) -> tuple[int, ServiceBusError | None]:
    """Do the transaction, and a fault after a step; return the deferred message, and the exception."""
    monkeypatch.setattr(TransactionCommit, step, after(step, act))
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        number = fill(client, queues[0])
        try:
            transact(client, *queues)
        except ServiceBusError as error:
            return number, error
        return number, None


@pytest.mark.parametrize("step", STEPS)
def test_a_redis_that_is_emptied_after_a_step(
    namespace: EmbeddedRuntime, queues: tuple[str, str], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the locks are lost before anything is prepared, nothing happens; later, all of it does, by the markers."""

    def empty() -> None:
        with redis.Redis.from_url(namespace.redis_url) as store:
            store.flushall()

    number, error = run(namespace, queues, monkeypatch, step, empty)
    expected = NOTHING if step == "_produce" else ALL
    assert isinstance(error, MessageLockLostError) if expected is NOTHING else error is None
    assert decided(namespace, queues, number, (expected,)) == expected


@pytest.mark.parametrize(
    "step",
    # Each starts a broker again, for which `_prepare` and `_settle` leave the transaction as it was a step before.
    [step if step in {"_produce", "_decide"} else pytest.param(step, marks=pytest.mark.extended) for step in STEPS],
)
def test_a_broker_that_is_killed_after_a_step(
    namespace: EmbeddedRuntime, queues: tuple[str, str], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error means that nothing happened, unless it says that the outcome is unknown; no error means that all did."""
    number, error = run(
        namespace, queues, monkeypatch, step, lambda: os.kill(namespace.processes["broker-1"], signal.SIGKILL)
    )
    if error is None:
        expected: tuple[State, ...] = (ALL,)
    else:
        assert isinstance(error, ServiceBusCommunicationError)
        expected = (ALL, NOTHING) if "unknown" in str(error) else (NOTHING,)
    assert decided(namespace, queues, number, expected) in expected


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_redis_that_went_back_to_before_a_transaction(
    namespace: EmbeddedRuntime, queues: tuple[str, str], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lagging replica is promoted: committed settlements hold, although the ledgers do not know of them."""
    before: dict[bytes, bytes] = {}

    def remember() -> None:
        with redis.Redis.from_url(namespace.redis_url) as store:
            for key in store.scan_iter(match=f"{{transacts/{queues[0]}/*", count=1000):
                before[key] = store.dump(key) or b""

    def go_back() -> None:
        with redis.Redis.from_url(namespace.redis_url) as store:
            for key in store.scan_iter(match=f"{{transacts/{queues[0]}/*", count=1000):
                store.delete(key)
            for key, content in before.items():
                store.restore(key, 0, content, replace=True)

    def remember_once_it_is_written_down() -> None:
        context = ClientContext(parse_settings(namespace.connection_string))
        prefix = context.catalog.entity(EntityPath(queues[0])).ledgers[0].keys.prefix
        until = time.monotonic() + PATIENCE
        try:
            while Checkpoints(context.connections).read(prefix) is None:
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            context.close()
        remember()

    monkeypatch.setattr(TransactionCommit, "_announce", after("_announce", remember_once_it_is_written_down))
    number, error = run(namespace, queues, monkeypatch, step, go_back)
    assert error is None
    assert decided(namespace, queues, number, (ALL,)) == ALL


def test_who_waits_behind_a_transaction_that_nobody_ends(namespace: EmbeddedRuntime, queues: tuple[str, str]) -> None:
    """The broker aborts the transaction, so that readers go on."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        number = fill(client, queues[0])
    die(namespace, queues, "_produce")
    context = ClientContext(parse_settings(namespace.connection_string))
    try:
        entity = context.catalog.entity(EntityPath(queues[1]))
        began = time.monotonic()
        everywhere = range(entity.partitions)
        assert context.topics.ends(entity.topic, everywhere) != context.topics.stored_ends(entity.topic, everywhere)
        while context.topics.ends(entity.topic, everywhere) != context.topics.stored_ends(entity.topic, everywhere):
            assert time.monotonic() - began < 20
            time.sleep(0.1)
    finally:
        context.close()
    assert decided(namespace, queues, number, (NOTHING,)) == NOTHING
