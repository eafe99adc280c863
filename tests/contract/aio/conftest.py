"""Fixtures of the asyncio contract tests; ``tests/contract/conftest.py`` is the blocking twin, written by hand."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from tests.contract.conftest import Backend

MakeQueue = Callable[..., Awaitable[str]]
MakeTopic = Callable[..., Awaitable[str]]
Advance = Callable[[str, float], Awaitable[None]]


@pytest.fixture
async def client(connection_string: str) -> AsyncIterator[ServiceBusClient]:
    """A client of the namespace."""
    async with ServiceBusClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
async def other_client(connection_string: str) -> AsyncIterator[ServiceBusClient]:
    """Another client, as another process would have."""
    async with ServiceBusClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
async def administration(connection_string: str) -> AsyncIterator[ServiceBusAdministrationClient]:
    """An administration client."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as opened:
        yield opened


@pytest.fixture
async def make_queue(administration: ServiceBusAdministrationClient) -> AsyncIterator[MakeQueue]:
    """Create queues that are deleted after the test."""
    made: list[str] = []

    async def make(*, partitioned: bool = True, **settings: Any) -> str:
        name = f"q-{uuid.uuid4().hex[:12]}"
        await administration.create_queue(name, enable_partitioning=partitioned, **settings)
        made.append(name)
        return name

    yield make
    for name in made:
        await administration.delete_queue(name)


@pytest.fixture
async def make_topic(administration: ServiceBusAdministrationClient) -> AsyncIterator[MakeTopic]:
    """Create topics, and their subscriptions, that are deleted after the test."""
    made: list[str] = []

    async def make(*subscriptions: str, partitioned: bool = True, **settings: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        await administration.create_topic(name, enable_partitioning=partitioned, **settings)
        made.append(name)
        for subscription in subscriptions:
            await administration.create_subscription(name, subscription)
        return name

    yield make
    for name in made:
        await administration.delete_topic(name)


@pytest.fixture
async def queue(make_queue: MakeQueue) -> str:
    """A new partitioned queue."""
    return await make_queue()


@pytest.fixture
def later(backend: Backend) -> Advance:
    """Let time pass for a queue's locks."""

    async def let_pass(queue: str, seconds: float) -> None:
        backend.advance(queue, seconds)

    return let_pass
