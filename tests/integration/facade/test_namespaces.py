"""Namespaces of other tiers, on the Kafka and Redis of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.exceptions import InvalidOperationError, MessageSizeExceededError, ServiceBusQuotaExceededError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping import namespaces
from kafkabus_mapping.namespaces import NamespaceDescription, Tier


@pytest.fixture
def administration(untended: str) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client of that namespace."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as opened:
        yield opened


def test_a_premium_namespace_decides_how_many_partitions_its_queues_have(
    administration: ServiceBusAdministrationClient, untended: str
) -> None:
    """It also takes larger messages."""
    created = administration.create_namespace("Premium", 4)
    assert (created.messaging_sku, created.partitions, created.messaging_units) == ("Premium", 4, 1)
    queue = administration.create_queue("large")
    assert (queue.enable_partitioning, queue.max_size_in_megabytes) == (True, 4 * 1024)
    assert queue.max_message_size_in_kilobytes == 1024
    with pytest.raises(InvalidOperationError, match="created with 4 partition"):
        administration.create_queue("plain", enable_partitioning=False)
    with ServiceBusClient.from_connection_string(untended) as client:
        sender, receiver = client.get_queue_sender("large"), client.get_queue_receiver("large")
        body = b"x" * 1_000_000
        sender.send_messages(ServiceBusMessage(body))
        (message,) = receiver.receive_messages(max_wait_time=60)
        assert b"".join(message.body or ()) == body
        receiver.complete_message(message)
        assert sender.create_message_batch().max_size_in_bytes == 1_048_576
        with pytest.raises(MessageSizeExceededError, match="1048576"):
            sender.send_messages(ServiceBusMessage(b"x" * 1_048_576))
    assert len(administration.get_queue_runtime_properties("large").partitions) == 4
    administration.delete_queue("large")


def test_queues_from_before_a_namespace_was_premium_go_on(
    administration: ServiceBusAdministrationClient, untended: str
) -> None:
    """A namespace may bring such queues along: they keep their partitions, and new ones have the namespace's number."""
    administration.create_queue("partitioned", enable_partitioning=True)
    administration.create_queue("plain")
    with closing(ClientContext(parse_settings(untended))) as context:
        now = datetime.now(timezone.utc)
        context.descriptions.put_namespace(
            NamespaceDescription(tier=Tier.PREMIUM, partitions=2, created_at=now, updated_at=now)
        )
    administration.create_queue("new")
    with ServiceBusClient.from_connection_string(untended) as client:
        for queue, partitions in (("partitioned", 16), ("plain", 1), ("new", 2)):
            sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
            sender.send_messages(ServiceBusMessage("x"))
            (message,) = receiver.receive_messages(max_wait_time=30)
            receiver.complete_message(message)
            assert len(administration.get_queue_runtime_properties(queue).partitions) == partitions
            administration.delete_queue(queue)


def test_a_namespace_holds_so_many_partitioned_queues(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain queue can still be created."""
    monkeypatch.setattr(namespaces, "MAX_PARTITIONED", 1)
    administration.create_queue("first", enable_partitioning=True)
    with pytest.raises(ServiceBusQuotaExceededError, match="no more than 1 "):
        administration.create_queue("second", enable_partitioning=True)
    administration.create_queue("second")
    for name in ("first", "second"):
        administration.delete_queue(name)


def test_a_basic_namespace_refuses_what_its_tier_lacks(administration: ServiceBusAdministrationClient) -> None:
    """The error names the rule, and no topic was created."""
    administration.create_namespace("Basic")
    with pytest.raises(InvalidOperationError, match="14 days"):
        administration.create_queue("q", default_message_time_to_live="P20D")
    assert list(administration.list_queues()) == []
