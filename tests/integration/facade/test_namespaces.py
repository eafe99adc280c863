"""Namespaces of other tiers, on the Kafka and Redis of the tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus._sync.redis.connection import DescriptionCache
from kafkabus.exceptions import InvalidOperationError, MessageSizeExceededError, ServiceBusQuotaExceededError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping import namespaces
from kafkabus_mapping.namespaces import NamespaceDescription, Tier


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


@pytest.fixture(params=["in memory", "servers"])
def new_namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a new namespace without upkeep."""
    if request.param == "servers":
        yield request.getfixturevalue("untended")
        return
    with InMemoryNamespace() as namespace:
        yield namespace.connection_string


@pytest.mark.parametrize("limit", ["MAX_ENTITIES", "MAX_PARTITIONED"])
def test_of_creations_at_the_limit_no_more_pass_than_there_is_room_for(
    new_namespace: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Clients create at once; the others are refused, and their names are free."""
    monkeypatch.setattr(namespaces, limit, 3)
    may_go = threading.Barrier(5)

    def create(name: str) -> bool:
        with ServiceBusAdministrationClient.from_connection_string(new_namespace) as administration:
            may_go.wait()
            try:
                return bool(administration.create_topic(name, enable_partitioning=True))
            except ServiceBusQuotaExceededError as error:
                return "no more than 3" not in str(error)

    with ServiceBusAdministrationClient.from_connection_string(new_namespace) as administration:
        administration.create_namespace()
        administration.create_queue("first", enable_partitioning=True)
        with ThreadPoolExecutor(5) as pool:
            assert sum(pool.map(create, [f"topic-{number}" for number in range(5)])) == 2
        with pytest.raises(ServiceBusQuotaExceededError):
            administration.create_queue("another", enable_partitioning=True)
        administration.delete_queue("first")
        administration.create_queue("another", enable_partitioning=True)


def test_a_basic_namespace_refuses_what_its_tier_lacks(administration: ServiceBusAdministrationClient) -> None:
    """The error names the rule, and no topic was created."""
    administration.create_namespace("Basic")
    with pytest.raises(InvalidOperationError, match="14 days"):
        administration.create_queue("q", default_message_time_to_live="P20D")
    assert list(administration.list_queues()) == []


def test_the_cost_of_an_operation_does_not_grow_with_the_namespace(
    new_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operation on one entity reads the descriptions of all."""
    with (
        ServiceBusAdministrationClient.from_connection_string(new_namespace) as administration,
        ServiceBusClient.from_connection_string(new_namespace) as client,
    ):
        administration.create_namespace()

        def all_of_them(_cache: DescriptionCache) -> None:
            raise AssertionError

        monkeypatch.setattr(DescriptionCache, "all", all_of_them)
        administration.create_queue("queue")
        administration.create_topic("topic")
        administration.create_subscription("topic", "one", forward_to="queue")
        administration.create_subscription("topic", "other")
        administration.update_queue(administration.get_queue("queue"), max_delivery_count=3)
        with pytest.warns(UserWarning, match="come back"):
            administration.update_queue(administration.get_queue("queue"), forward_to="topic")
        administration.update_queue(administration.get_queue("queue"), forward_to=None)
        assert [one.name for one in administration.list_subscriptions("topic")] == ["one", "other"]
        assert administration.get_topic_runtime_properties("topic").subscription_count == 2
        client.get_topic_sender("topic").send_messages(ServiceBusMessage("x"))
        receiver = client.get_subscription_receiver("topic", "other")
        (message,) = receiver.receive_messages(max_wait_time=30)
        receiver.complete_message(message)
        administration.delete_subscription("topic", "one")
        administration.delete_topic("topic")
        administration.delete_queue("queue")
