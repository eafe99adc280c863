"""A gateway to a namespace in memory, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from kafkabus.gateway.server.gateway import Gateway
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from tests.amqp_client import AmqpClient
from tests.integration.gateway.conversation import Completions


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace with a queue, one with sessions, and a topic with a subscription."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_namespace("Premium", 4)
        administration.create_queue("q", max_delivery_count=3)
        administration.create_queue("s", requires_session=True)
        administration.create_topic("t")
        administration.create_subscription("t", "all")
        yield namespace


@pytest.fixture
async def gateway(namespace: InMemoryNamespace) -> AsyncIterator[Gateway]:
    """A gateway to it."""
    async with Gateway(namespace.connection_string) as gateway:
        yield gateway


@pytest.fixture
async def port(gateway: Gateway) -> int:
    """Its port."""
    return await gateway.listen("127.0.0.1", 0)


@pytest.fixture
async def client(port: int) -> AsyncIterator[AmqpClient]:
    """A client."""
    async with AmqpClient(port) as client:
        yield client


@pytest.fixture
async def other(port: int) -> AsyncIterator[AmqpClient]:
    """Another client."""
    async with AmqpClient(port) as client:
        yield client


@pytest.fixture
def completions(monkeypatch: pytest.MonkeyPatch) -> Completions:
    """The completions of the gateway's messages."""
    return Completions(monkeypatch)
