"""A log of which a disk changed a byte: nothing is skipped."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from tests.queues import new_queue
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """The folder in which the broker keeps its logs."""
    folder = scratch_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(data: Path) -> Iterator[EmbeddedRuntime]:
    """A broker whose files the test may spoil."""
    with EmbeddedRuntime(data, namespace="spoilt") as started:
        yield started


@pytest.fixture
def queue(cluster: EmbeddedRuntime) -> str:
    """A new plain queue: one log."""
    return new_queue(cluster.connection_string)


def spoil(data: Path, queue: str, body: str) -> None:
    """Change a byte of a message where the broker stored it."""
    (log,) = data.glob(f"**/spoilt.{queue}-0/00000000000000000000.log")
    content = log.read_bytes()
    at = content.index(body.encode())
    with log.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([content[at] ^ 1]))


def receive_all(receiver: ServiceBusReceiver) -> None:
    """Receive and complete one by one, for ever."""
    while True:
        receiver.complete_messages(receiver.receive_messages(1, max_wait_time=60))


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_message_that_cannot_be_read_is_an_error_and_stays(
    cluster: EmbeddedRuntime, data: Path, queue: str, seen_before: bool
) -> None:
    """The message is never received, or comes again; earlier ones are received, and the queue still holds it."""
    with (
        ServiceBusAdministrationClient.from_connection_string(cluster.connection_string) as administration,
        ServiceBusClient.from_connection_string(cluster.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for body in ("first", "second", "third"):
            sender.send_messages(ServiceBusMessage(body))
        if seen_before:
            messages = receiver.receive_messages(3, max_wait_time=60)
            assert [str(message) for message in messages] == ["first", "second", "third"]
            receiver.abandon_messages(messages)
        spoil(data, queue, "second")
        with pytest.raises(ServiceBusError, match="failed"):
            receive_all(receiver)
        assert administration.get_queue_runtime_properties(queue).total_message_count >= 2


def test_a_read_by_offset_does_not_pass_over_it(cluster: EmbeddedRuntime, data: Path, queue: str) -> None:
    """Return whether messages are claimed before they are read, as this fault needs it."""
    with (
        ServiceBusClient.from_connection_string(cluster.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for body in ("first", "second", "third"):
            sender.send_messages(ServiceBusMessage(body))
    spoil(data, queue, "second")
    context = ClientContext(parse_settings(cluster.connection_string))
    try:
        assert [record.value() for record in context.connections.offset_reader.read(f"spoilt.{queue}", 0, 0, 0)] == [
            b"first"
        ]
        with pytest.raises(ServiceBusError, match="failed"):
            context.connections.offset_reader.read(f"spoilt.{queue}", 0, 0, 2)
    finally:
        context.close()
