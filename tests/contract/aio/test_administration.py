"""Creating, describing, listing and deleting queues, and their counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kafkabus import ServiceBusMessage
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageLockLostError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
)
from tests.contract.aio.conftest import MakeQueue


async def test_a_new_queue_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """What was not given is as Service Bus has it; sizes are for all partitions."""
    queue = await make_queue()
    properties = await administration.get_queue(queue)
    assert (properties.name, properties.enable_partitioning) == (queue, True)
    assert (properties.lock_duration, properties.max_delivery_count) == (timedelta(minutes=1), 10)
    assert (properties.max_size_in_megabytes, properties.status, properties.availability_status) == (
        16 * 1024,
        "Active",
        "Available",
    )
    assert dict(properties)["requires_session"] is False
    plain = await administration.get_queue(await make_queue(partitioned=False))
    assert (plain.enable_partitioning, plain.max_size_in_megabytes) == (False, 1024)


async def test_what_is_given_is_kept(administration: ServiceBusAdministrationClient, make_queue: MakeQueue) -> None:
    """Settings come back as they were set."""
    queue = await make_queue(lock_duration=timedelta(seconds=7), max_delivery_count=3)
    properties = await administration.get_queue(queue.upper())
    assert (properties.lock_duration, properties.max_delivery_count) == (timedelta(seconds=7), 3)


async def test_a_name_can_be_taken_once(administration: ServiceBusAdministrationClient, queue: str) -> None:
    """In whatever case it is written."""
    with pytest.raises(MessagingEntityAlreadyExistsError, match=queue.upper()):
        await administration.create_queue(queue.upper())


async def test_names_with_slashes_dots_and_underscores_work(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Service Bus allows what Kafka does not."""
    for name in ("Orders/eu-1", "orders_eu.1", "orders.eu_1"):
        await administration.create_queue(name)
        async with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
            await sender.send_messages(ServiceBusMessage(name))
            (message,) = await receiver.receive_messages(max_wait_time=10)
            assert str(message) == name
    listed = [queue.name async for queue in administration.list_queues()]
    assert {"Orders/eu-1", "orders_eu.1", "orders.eu_1"} <= set(listed)
    for name in ("Orders/eu-1", "orders_eu.1", "orders.eu_1"):
        await administration.delete_queue(name)


async def test_a_deleted_queue_is_gone_and_its_name_free(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The next queue of that name begins empty, with its dead-letter queue."""
    await administration.create_queue("again", enable_partitioning=True)
    async with client.get_queue_sender("again") as sender, client.get_queue_receiver("again") as receiver:
        await sender.send_messages([ServiceBusMessage("old"), ServiceBusMessage("dead")])
        messages = await receiver.receive_messages(2, max_wait_time=10)
        await receiver.dead_letter_message(messages[0])
    await administration.delete_queue("again")
    with pytest.raises(MessagingEntityNotFoundError, match="'again'"):
        await administration.get_queue("again")
    with pytest.raises(MessagingEntityNotFoundError):
        await administration.delete_queue("again")
    await administration.create_queue("again", enable_partitioning=True)
    counts = await administration.get_queue_runtime_properties("again")
    assert (counts.total_message_count, counts.active_message_count, counts.dead_letter_message_count) == (0, 0, 0)
    await administration.delete_queue("again")


async def test_locks_of_a_deleted_queue_hold_nothing_of_the_next_one(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, other_client: ServiceBusClient
) -> None:
    """Also where the next one has fewer partitions."""
    name = "locked-and-deleted"
    await administration.create_queue(name, enable_partitioning=True)
    async with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        for number in range(4):
            await sender.send_messages(ServiceBusMessage(str(number)))
        old = await receiver.receive_messages(4, max_wait_time=10)
    await administration.delete_queue(name)
    await administration.create_queue(name, enable_partitioning=False)
    async with other_client.get_queue_sender(name) as sender, other_client.get_queue_receiver(name) as receiver:
        await sender.send_messages(ServiceBusMessage("new"))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_messages(old)
        with pytest.raises(MessageLockLostError):
            await receiver.dead_letter_messages(old)
        (new,) = await receiver.receive_messages(2, max_wait_time=10)
        assert (str(new), new.delivery_count) == ("new", 0)
    await administration.delete_queue(name)


async def test_counts_follow_the_messages(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str
) -> None:
    """Active counts what waits and what is locked; the sum over the partitions is the queue's."""
    fresh = await administration.get_queue_runtime_properties(queue)
    assert (fresh.total_message_count, fresh.created_at_utc) == (0, fresh.updated_at_utc)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key=str(number)) for number in range(20)])
        messages = await receiver.receive_messages(5, max_wait_time=10)
        counts = await administration.get_queue_runtime_properties(queue)
        assert (counts.active_message_count, counts.dead_letter_message_count) == (20, 0)
        await receiver.complete_messages(messages[:2])
        await receiver.dead_letter_message(messages[2])
        await receiver.abandon_message(messages[3])
        counts = await administration.get_queue_runtime_properties(queue)
        assert (counts.total_message_count, counts.active_message_count, counts.dead_letter_message_count) == (
            18,
            17,
            1,
        )
        assert sum(partition.active_message_count for partition in counts.partitions) == 17
        assert len(counts.partitions) == 16


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"lock_duration": timedelta(minutes=6)}, "lock_duration"),
        ({"lock_duration": timedelta(0)}, "lock_duration"),
        ({"max_delivery_count": 0}, "max_delivery_count"),
        ({"user_metadata": "x" * 1025}, "user_metadata"),
    ],
)
async def test_settings_out_of_bounds_are_refused(
    administration: ServiceBusAdministrationClient, settings: dict[str, object], complaint: str
) -> None:
    """The error names the setting, and no queue is created."""
    with pytest.raises(InvalidOperationError, match=complaint):
        await administration.create_queue("refused", **settings)  # type: ignore[arg-type]  # one setting at a time
    with pytest.raises(MessagingEntityNotFoundError):
        await administration.get_queue("refused")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a b", "ä", "x" * 261])
async def test_bad_names_are_refused(administration: ServiceBusAdministrationClient, name: str) -> None:
    """Before anything is created."""
    with pytest.raises(ValueError, match="entity name"):
        await administration.create_queue(name)
