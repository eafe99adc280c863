"""What the blocking contract tests start; ``tests/contract/aio/conftest.py`` is the asyncio twin, written by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from kafkabus import ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient
from tests.clock import advance

MakeQueue = Callable[..., str]
Advance = Callable[[str, float], None]


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
    """Creates queues that are deleted after the test."""
    made: list[str] = []

    def make(
        *,
        partitioned: bool = True,
        lock_duration: timedelta | None = None,
        max_delivery_count: int | None = None,
        default_message_time_to_live: timedelta | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
    ) -> str:
        name = f"q-{uuid.uuid4().hex[:12]}"
        administration.create_queue(
            name,
            enable_partitioning=partitioned,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            default_message_time_to_live=default_message_time_to_live,
            dead_lettering_on_message_expiration=dead_lettering_on_message_expiration,
        )
        made.append(name)
        return name

    yield make
    for name in made:
        administration.delete_queue(name)


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """A new partitioned queue."""
    return make_queue()


@pytest.fixture
def later(runtime: EmbeddedRuntime) -> Advance:
    """Lets time pass for a queue's locks."""

    def let_pass(queue: str, seconds: float) -> None:
        advance(runtime.redis_url, "tests", queue, seconds)

    return let_pass
