"""A log that lost its last records and was written to again, as after an unclean election or from an old backup."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus.connection_string import parse_settings
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusError
from kafkabus.log.topics import Topics
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.services import Services
from kafkabus_mapping.names import EntityPath
from tests.queues import crowd
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
        receive_all(receiver, count)


def receive_all(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete so many."""
    bodies: list[str] = []
    while len(bodies) < count:
        messages = receiver.receive_messages(100, max_wait_time=20)
        assert messages, f"{count - len(bodies)} messages are lost"
        receiver.complete_messages(messages)
        bodies += map(str, messages)
    return bodies


@pytest.mark.parametrize(
    ("count", "crowded"),
    [(70, False), (20, False), (150, True)],
    ids=["longer than before", "shorter than before", "longer, and claimed ahead"],
)
def test_what_was_written_in_place_of_lost_records_is_received(
    data: Path, count: int, crowded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the leader epoch tells where the log was cut. It is said once, and no message is skipped or comes twice."""
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
        bodies = [f"new {number}" for number in range(count)]
        sender.send_messages([ServiceBusMessage(body) for body in bodies])
        if crowded:
            crowd(runtime.connection_string, "orders")
        with pytest.raises(ServiceBusError, match="partition 0 was truncated behind our back; call again"):
            receiver.receive_messages(100, max_wait_time=20)
        assert "offsets=[(50, 99)]" in caplog.text
        assert receive_all(receiver, count) == bodies
        with ServiceBusClient.from_connection_string(runtime.connection_string) as other:
            sender.send_messages(ServiceBusMessage("the last one"))
            assert receive_all(other.get_queue_receiver("orders"), 1) == ["the last one"]


def test_what_was_written_in_place_of_judged_records_is_received(data: Path) -> None:
    """Nobody had read them, and half of them were duplicates: what stands there now is none."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders", requires_duplicate_detection=True)
        exchange(runtime, "kept", 50)
    (log,) = data.rglob("cut.orders-0")
    shutil.copytree(log, data / "earlier")
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            client.get_queue_sender("orders").send_messages(
                [ServiceBusMessage("lost", message_id=str(number // 2)) for number in range(50)]
            )
        wait_until_judged(runtime, 100)
    shutil.rmtree(log)
    shutil.copytree(data / "earlier", log)
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        bodies = [f"new {number}" for number in range(70)]
        client.get_queue_sender("orders").send_messages([ServiceBusMessage(body) for body in bodies])
        with pytest.raises(ServiceBusError, match="partition 0 was truncated behind our back; call again"):
            receiver.receive_messages(100, max_wait_time=20)
        assert receive_all(receiver, 70) == bodies
        wait_until_judged(runtime, 120)


def wait_until_judged(runtime: EmbeddedRuntime, offset: int) -> None:
    """Wait until upkeep knows which records below an offset are duplicates."""
    services = Services(parse_settings(runtime.connection_string))
    deadline = time.monotonic() + 30
    try:
        ledger = services.entity(EntityPath("orders")).ledgers[0]
        while (state := services.courier.states([ledger])[0]) is None or state.judged != offset:
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
    finally:
        services.close()


def test_a_log_without_records_is_not_taken_for_a_truncated_one(data: Path) -> None:
    """All that was settled is deleted, and a broker that starts anew knows no leader epoch of it any more."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders")
        exchange(runtime, "old", 50)
        Topics(parse_settings(runtime.connection_string)).delete_records("cut.orders", {0: 50})
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            assert client.get_queue_receiver("orders").receive_messages(1, max_wait_time=1) == []
        exchange(runtime, "new", 20)
