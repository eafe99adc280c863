"""The in-memory namespace as its users meet it; the contract tests cover its treatment of messages."""

from __future__ import annotations

import asyncio
import doctest
import time

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus import aio as kafkabus_aio
from kafkabus._ledger.keys import upkeep_key
from kafkabus._sync.entities import catalog, upkeep_watch
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace, namespace
from kafkabus.upkeep.service import HEARTBEAT_EVERY
from tests.clock import PATIENCE_S


def test_the_docstrings_example_works() -> None:
    """It is what users try first."""
    assert doctest.testmod(namespace) == (0, 4)


def test_blocking_and_asyncio_clients_share_a_namespace() -> None:
    """Messages that one client sends are received by the other."""

    async def receive(connection_string: str) -> list[str]:
        async with (
            kafkabus_aio.ServiceBusClient.from_connection_string(connection_string) as client,
            client.get_queue_receiver("q") as receiver,
        ):
            return [str(message) for message in await receiver.receive_messages(max_wait_time=60)]

    with InMemoryNamespace() as here:
        with ServiceBusAdministrationClient.from_connection_string(here.connection_string) as administration:
            administration.create_queue("q")
        with (
            ServiceBusClient.from_connection_string(here.connection_string) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage("hello"))
        assert asyncio.run(receive(here.connection_string)) == ["hello"]


def test_each_namespace_is_apart() -> None:
    """Two namespaces of one name share nothing."""
    with InMemoryNamespace(upkeep=False) as one, InMemoryNamespace(upkeep=False) as other:
        with ServiceBusAdministrationClient.from_connection_string(one.connection_string) as administration:
            administration.create_queue("q")
        with ServiceBusAdministrationClient.from_connection_string(other.connection_string) as administration:
            assert list(administration.list_queues()) == []


def test_outside_of_its_block_it_is_not_there() -> None:
    """It exists neither before nor afterwards, and the error says what to do."""
    closed = InMemoryNamespace(upkeep=False)
    with pytest.raises(RuntimeError, match="'with' statement"):
        _ = closed.connection_string
    with closed:
        connection_string = closed.connection_string
    with (
        pytest.raises(ValueError, match=r"not open in this process: .*\.InMemoryNamespace"),
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("q") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_time_does_not_go_back() -> None:
    """The error names the negative time."""
    with InMemoryNamespace(upkeep=False) as here, pytest.raises(ValueError, match="seconds=-1"):
        here.advance(-1)


@pytest.mark.parametrize("upkeep", [True, False])
def test_a_client_tells_that_nobody_looks_after_its_namespace(
    upkeep: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It warns once, with the command to use. It waits for three looks of an upkeep service, three seconds."""
    monkeypatch.setattr(catalog, "DESCRIPTION_AGE", 0.0)
    monkeypatch.setattr(upkeep_watch, "UPKEEP_SILENCE", 3 * HEARTBEAT_EVERY)
    deadline = time.monotonic() + PATIENCE_S
    with InMemoryNamespace(upkeep=upkeep) as here:
        with ServiceBusAdministrationClient.from_connection_string(here.connection_string) as administration:
            administration.create_queue("q")
        with ServiceBusClient.from_connection_string(here.connection_string) as client:
            context, sender = client._connections(), client.get_queue_sender("q")
            watch = context.catalog._upkeep_watch
            sender.send_messages(ServiceBusMessage("x"))
            (before,) = watch._heard
            while upkeep and context.ledger_client.last_heartbeat(upkeep_key("memory")) == before:
                assert time.monotonic() < deadline
            while len(watch._heard) < 2:
                assert time.monotonic() < deadline
                sender.send_messages(ServiceBusMessage("x"))
    told = [record.getMessage() for record in caplog.records if "no_upkeep" in record.getMessage()]
    assert ["run 'kafkabus serve'" in one for one in told] == ([] if upkeep else [True])
