"""Fixtures of the contract tests: each backend, unknown to the test, and the blocking clients.

``tests/contract/aio/conftest.py`` has the asyncio ones, written by hand as well.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkabus import ServiceBusClient
from kafkabus._core.settings import parse_settings
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus.testing.containers import KafkabusContainer
from tests.clock import advance

BLOCKING = Path(__file__).parent
EVERYWHERE = {"test_locks.py", "test_processors.py", "test_sending_and_receiving.py", "test_transactions.py"}
"""Files of both halves that run on servers and in memory for every change; see docs/decisions/0027.

Of the others, the asyncio half runs on servers and the blocking half in memory.
"""

ON_CONTAINERS = {"test_sending_and_receiving.py"}
"""Files of the blocking half that run on a container for every change."""

CORE = {
    "test_duplicates.py",
    "test_scheduled.py",
    "test_sending_and_receiving.py",
    "test_sessions.py",
    "test_settling.py",
    "test_topics.py",
    "test_transactions.py",
}
"""Files of the asyncio half that run on all versions of Kafka and Redis."""

PLAIN = re.compile(r"\[.*\bplain\b")
"""Matches tests of entities with one partition that are done with sixteen as well."""

MakeQueue = Callable[..., str]
MakeTopic = Callable[..., str]
Advance = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Backend:
    """A namespace named ``tests``, or one of the test's own, on any backend.

    Attributes:
        connection_string: The connection string for its clients.
        advance: Lets time pass for a queue's locks; takes the queue's name, and seconds.
    """

    connection_string: str
    advance: Advance


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what shows again what others show; the asyncio half needs no container.

    Mark the core of the asyncio half, for `make test-matrix`.
    """
    asyncio_half = BLOCKING / "aio"
    for item in items:
        if item.path.parent not in {BLOCKING, asyncio_half} or "backend" not in getattr(item, "fixturenames", ()):
            continue
        name = item.path.name
        on_servers, on_containers = (
            item.get_closest_marker(marker) is not None for marker in ("servers", "containers")
        )
        blocking = item.path.parent == BLOCKING
        usual = name in ON_CONTAINERS if on_containers else name in EVERYWHERE or on_servers != blocking
        if not blocking and on_servers and (item.get_closest_marker("rules") is not None or PLAIN.search(item.name)):
            usual = False
        if not usual:
            item.add_marker(pytest.mark.extended)
        if not blocking and on_servers and name in CORE:
            item.add_marker(pytest.mark.core)
    items[:] = [
        item for item in items if item.path.parent != asyncio_half or item.get_closest_marker("containers") is None
    ]


@pytest.fixture(
    params=[
        "memory",
        pytest.param("embedded", marks=pytest.mark.servers),
        pytest.param("container", marks=[pytest.mark.containers, pytest.mark.timeout(900)]),
    ]
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each kind of namespace in turn; one in memory is the test's own, because its clock is moved as a whole."""
    if request.param == "memory":
        with InMemoryNamespace("tests") as namespace:
            yield Backend(namespace.connection_string, lambda _queue, seconds: namespace.advance(seconds))
    elif request.param == "container":
        container: KafkabusContainer = request.getfixturevalue("container")
        yield _backend_of(container.connection_string, request)
    else:
        runtime: RunningNamespace = request.getfixturevalue("runtime")
        yield _backend_of(runtime.connection_string, request)


def _backend_of(connection_string: str, request: pytest.FixtureRequest) -> Backend:
    """Return a backend on servers: the namespace that all tests share, or one of those that need their own, in this process."""
    settings = parse_settings(connection_string)
    if request.node.get_closest_marker("own_namespace") is not None:
        own = f"own-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        connection_string = re.sub(r"sb://[^./;]+", f"sb://{own}", connection_string, count=1)
        settings = parse_settings(connection_string)
    return Backend(connection_string, partial(advance, settings.redis_url.reveal(), settings.namespace))


@pytest.fixture
def connection_string(backend: Backend) -> str:
    """The connection string of the namespace."""
    return backend.connection_string


@pytest.fixture
def client(connection_string: str) -> Iterator[ServiceBusClient]:
    """A client of the namespace."""
    with ServiceBusClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
def other_client(connection_string: str) -> Iterator[ServiceBusClient]:
    """Another client, as another process would have."""
    with ServiceBusClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
def administration(connection_string: str) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
def make_queue(administration: ServiceBusAdministrationClient) -> Iterator[MakeQueue]:
    """Create queues that are deleted after the test."""
    made: list[str] = []

    def make(*, partitioned: bool = True, **settings: Any) -> str:
        name = f"q-{uuid.uuid4().hex[:12]}"
        administration.create_queue(name, enable_partitioning=partitioned, **settings)
        made.append(name)
        return name

    yield make
    for name in made:
        administration.delete_queue(name)


@pytest.fixture
def make_topic(administration: ServiceBusAdministrationClient) -> Iterator[MakeTopic]:
    """Create topics, and their subscriptions, that are deleted after the test."""
    made: list[str] = []

    def make(*subscriptions: str, partitioned: bool = True, **settings: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        administration.create_topic(name, enable_partitioning=partitioned, **settings)
        made.append(name)
        for subscription in subscriptions:
            administration.create_subscription(name, subscription)
        return name

    yield make
    for name in made:
        administration.delete_topic(name)


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """A new partitioned queue."""
    return make_queue()


@pytest.fixture
def later(backend: Backend) -> Advance:
    """Let time pass for a queue's locks."""
    return backend.advance
