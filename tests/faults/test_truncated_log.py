"""A log that lost its last records and was written to again, as after an unclean election or from an old backup."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@pytest.fixture
def data() -> Iterator[Path]:
    """Where the servers keep their data."""
    folder = scratch_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def exchange(runtime: EmbeddedRuntime, name: str, count: int) -> None:
    """Send messages and complete them all."""
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"{name} {number}") for number in range(count)])
        left = count
        while left:
            messages = receiver.receive_messages(left, max_wait_time=20)
            receiver.complete_messages(messages)
            left -= len(messages)


def test_what_was_written_in_place_of_lost_records_is_never_skipped_silently(data: Path) -> None:
    """The log is longer than the ledger's cursor again, so that only the leader epoch tells; a receive says what is wrong."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders")
        exchange(runtime, "kept", 50)
    (log,) = data.rglob("cut.orders-0")
    shutil.copytree(log, data / "earlier")
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        exchange(runtime, "lost", 50)
    shutil.rmtree(log)
    shutil.copytree(data / "earlier", log)
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"new {number}") for number in range(70)])
        with pytest.raises(ServiceBusError, match="truncated or made anew"):
            receiver.receive_messages(100, max_wait_time=20)
