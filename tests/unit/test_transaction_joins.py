"""Work that joins a transaction while it ends: it fails loudly, and is not taken for part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._core.entity import Entity
from kafkabus.aio import ServiceBusClient
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.names import EntityPath


@pytest.fixture
def connection() -> Iterator[str]:
    """The connection string of a namespace with a queue ``q``."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_queue("q")
        yield namespace.connection_string


async def test_a_send_that_meets_the_commit_of_another_task_raises(
    connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its client to look the queue up, while the block ends."""
    async with ServiceBusClient.from_connection_string(connection) as client:
        catalog, is_there = client._connections().catalog, asyncio.Event()
        look_up = catalog.entity

        async def late(path: EntityPath) -> Entity:
            await is_there.wait()
            return await look_up(path)

        monkeypatch.setattr(catalog, "entity", late)
        sender = client.get_queue_sender("q")
        async with client.transaction() as transaction:
            sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("late"), transaction=transaction))
            await asyncio.sleep(0)
        is_there.set()
        with pytest.raises(ValueError, match="the transaction is not open"):
            await sending
        async with client.get_queue_receiver("q") as receiver:
            assert await receiver.peek_messages(5) == []
