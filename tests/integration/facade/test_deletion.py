"""Deleting a bounded number of messages on a real log, which holds more than messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._ledger.operations import Operation, Settlement
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.integration.facade.test_logs import transact

NEVER = 1 << 45


@pytest.fixture
def client(runtime: RunningNamespace) -> Iterator[ServiceBusClient]:
    """A client."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as opened:
        yield opened


def delete(client: ServiceBusClient, queue: str, count: int, before_ms: int = NEVER) -> int:
    """Delete so many messages at the most."""
    context = client._connections()
    return context.receiving.deletion.delete(context.catalog.entity(EntityPath(queue)), count, before_ms)


def left(client: ServiceBusClient, queue: str) -> list[str]:
    """Return the messages that are left."""
    return [str(message) for message in client.get_queue_receiver(queue).peek_messages(100)]


def test_markers_and_aborted_records_do_not_count(
    runtime: RunningNamespace, client: ServiceBusClient, queue: str
) -> None:
    """Only messages do, oldest first."""
    transact(runtime, f"tests.{queue}", ["a", "b"], commit=True)
    transact(runtime, f"tests.{queue}", ["never"], commit=False)
    transact(runtime, f"tests.{queue}", ["c", "d"], commit=True)
    assert delete(client, queue, 3) == 3
    assert left(client, queue) == ["d"]
    assert delete(client, queue, 3) == 1
    assert delete(client, queue, 3) == 0


def test_only_messages_that_were_stored_before_are_deleted(client: ServiceBusClient, queue: str) -> None:
    """A time before 1970 names no message, for a purge as well."""
    client.get_queue_sender(queue).send_messages([ServiceBusMessage("x")])
    (peeked,) = client.get_queue_receiver(queue).peek_messages(1)
    assert peeked.enqueued_time_utc is not None
    enqueued_ms = round(peeked.enqueued_time_utc.timestamp() * 1000)
    assert delete(client, queue, 3, enqueued_ms) == 0
    assert delete(client, queue, 3, -1) == 0
    long_ago = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)
    assert client.get_queue_receiver(queue).purge_messages(before_enqueue_time_utc=long_ago) == 0
    assert delete(client, queue, 3, enqueued_ms + 1) == 1


def test_messages_come_again_if_their_deleter_dies(
    runtime: RunningNamespace, client: ServiceBusClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between locking them and deleting them; none is lost, and no other was deleted."""
    client.get_queue_sender(queue).send_messages([ServiceBusMessage(str(number)) for number in range(5)])
    ledger_client = client._connections().ledger_client
    execute = ledger_client.execute

    def die(*operations: Operation) -> None:
        if any(isinstance(operation, Settlement) for operation in operations):
            raise ServiceBusCommunicationError("died")
        execute(*operations)

    monkeypatch.setattr(ledger_client, "execute", die)
    with pytest.raises(ServiceBusCommunicationError):
        delete(client, queue, 3)
    monkeypatch.undo()
    assert delete(client, queue, 9) == 2
    advance(runtime.redis_url, "tests", queue, 61)
    receiver = client.get_queue_receiver(queue)
    assert [str(message) for message in receiver.receive_messages(9, max_wait_time=60)] == ["0", "1", "2"]


def test_a_message_that_another_client_claims_meanwhile_is_not_deleted(
    client: ServiceBusClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count either; the later ones are deleted."""
    client.get_queue_sender(queue).send_messages([ServiceBusMessage(str(number)) for number in range(4)])
    archive, receiver = client._connections().stores.archive, client.get_queue_receiver(queue)
    read, claimed = archive.read_as_stored, list[str]()

    def claim_before(*place: Any, **bounds: Any) -> object:
        found = read(*place, **bounds)
        if not claimed:
            claimed.extend(str(message) for message in receiver.receive_messages(2, max_wait_time=60))
        return found

    monkeypatch.setattr(archive, "read_as_stored", claim_before)
    assert delete(client, queue, 3) == 1
    monkeypatch.undo()
    assert claimed == ["0", "1"]
    assert left(client, queue) == ["0", "1", "3"]
