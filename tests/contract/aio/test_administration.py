"""Queues are created, described, listed and deleted, and their messages counted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from kafkabus import ServiceBusMessage, ServiceBusMessageBatch
from kafkabus._async.compat import sleep
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageLockLostError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
)
from kafkabus.management import AccessRights, AuthorizationRule, EntityStatus
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.aio.receiving import take


async def test_a_new_queue_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Settings that were not given have Service Bus's defaults; sizes are for all partitions."""
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
    """A name is taken in every spelling, in upper and lower case."""
    with pytest.raises(MessagingEntityAlreadyExistsError, match=queue.upper()):
        await administration.create_queue(queue.upper())


async def test_names_with_slashes_dots_and_underscores_work(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Service Bus allows names that Kafka does not allow."""
    for name in ("Orders/eu-1", "orders_eu.1", "orders.eu_1"):
        await administration.create_queue(name)
        async with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
            await sender.send_messages(ServiceBusMessage(name))
            (message,) = await receiver.receive_messages(max_wait_time=60)
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
        messages = await receiver.receive_messages(2, max_wait_time=60)
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
    """The new queue begins empty even if it has fewer partitions."""
    name = "locked-and-deleted"
    await administration.create_queue(name, enable_partitioning=True)
    async with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        for number in range(4):
            await sender.send_messages(ServiceBusMessage(str(number)))
        old = await take(receiver, 4)
    await administration.delete_queue(name)
    await administration.create_queue(name, enable_partitioning=False)
    async with other_client.get_queue_sender(name) as sender, other_client.get_queue_receiver(name) as receiver:
        await sender.send_messages(ServiceBusMessage("new"))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_messages(old)
        with pytest.raises(MessageLockLostError):
            await receiver.dead_letter_messages(old)
        (new,) = await receiver.receive_messages(2, max_wait_time=60)
        assert (str(new), new.delivery_count) == ("new", 0)
    await administration.delete_queue(name)


async def test_sending_and_receiving_are_accesses(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str
) -> None:
    """Looking at the queue is no access."""

    async def accessed() -> datetime:
        return (await administration.get_queue_runtime_properties(queue)).accessed_at_utc

    properties = await administration.get_queue_runtime_properties(queue)
    assert properties.accessed_at_utc == properties.created_at_utc
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    sent = await accessed()
    async with client.get_queue_receiver(queue) as receiver:
        (peeked,) = await receiver.peek_messages(1)
        assert sent == await accessed() == peeked.enqueued_time_utc
        (message,) = await receiver.receive_messages(1, max_wait_time=60)
        await receiver.complete_message(message)
    assert await accessed() > sent


async def test_counts_follow_the_messages(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str
) -> None:
    """The active count includes waiting and locked messages; the queue's count is the sum over its partitions."""
    fresh = await administration.get_queue_runtime_properties(queue)
    assert (fresh.total_message_count, fresh.created_at_utc) == (0, fresh.updated_at_utc)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key=str(number)) for number in range(20)])
        messages = await take(receiver, 5)
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


@pytest.mark.parametrize("partitioned", [True, False])
async def test_the_size_is_that_of_what_is_not_settled(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    partitioned: bool,
) -> None:
    """The size includes dead letters; for messages of equal size it is exact."""
    queue = await make_queue(partitioned=partitioned)

    async def size() -> int:
        return (await administration.get_queue_runtime_properties(queue)).size_in_bytes

    assert await size() == 0
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage(1000 * b"x", message_id="a"))
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(1000 * b"x", message_id="a") for _ in range(30)])
        assert await size() == 30 * batch.size_in_bytes
        messages = await take(receiver, 30)
        for message in messages[:10]:
            await receiver.complete_message(message)
        assert await size() == 20 * batch.size_in_bytes
        for message in messages[10:15]:
            await receiver.dead_letter_message(message)
        # Dead letters name their source and the reason.
        assert 20 * batch.size_in_bytes < await size() < 22 * batch.size_in_bytes


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


async def test_a_name_that_may_be_meant_is_proposed(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue, make_topic: MakeTopic
) -> None:
    """Also one of another kind. To read, change or delete nothing is no reason to create something."""
    queue, topic = await make_queue(), await make_topic("sport")
    for ask in (
        administration.get_queue,
        administration.delete_queue,
        administration.get_queue_runtime_properties,
    ):
        with pytest.raises(MessagingEntityNotFoundError, match=f"did you mean queue '{queue}'\\?$"):
            await ask(f"{queue}x")
        with pytest.raises(MessagingEntityNotFoundError, match=f"did you mean topic '{topic}'\\?$"):
            await ask(topic)
        with pytest.raises(
            MessagingEntityNotFoundError, match=r"there is no queue 'zzzzzzzzzzz' .*: list_queues shows what"
        ):
            await ask("zzzzzzzzzzz")
    with pytest.raises(MessagingEntityNotFoundError, match=f"did you mean subscription 'sport' of topic '{topic}'\\?$"):
        await administration.get_subscription(topic, "sprt")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a b", "ä", "x" * 261])
async def test_bad_names_are_refused(administration: ServiceBusAdministrationClient, name: str) -> None:
    """The name is refused before anything is created."""
    with pytest.raises(ValueError, match="entity name"):
        await administration.create_queue(name)


async def test_all_settings_can_be_given_and_are_kept(administration: ServiceBusAdministrationClient) -> None:
    """Durations are timedeltas or ISO 8601 texts; settings that are only stored come back as they were."""
    rule = AuthorizationRule(key_name="send", rights=[AccessRights.SEND], primary_key="p", secondary_key="s")
    created = await administration.create_queue(
        "settings",
        authorization_rules=[rule],
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live="PT5M",
        enable_batched_operations=False,
        enable_express=True,
        enable_partitioning=True,
        lock_duration="PT13S",
        max_delivery_count=14,
        max_size_in_megabytes=2048,
        max_message_size_in_kilobytes=256,
        user_metadata="mine",
        settled_retention=timedelta(hours=2),
        status="ReceiveDisabled",
    )
    try:
        assert created == await administration.get_queue("settings")
        assert (created.lock_duration, created.default_message_time_to_live) == (
            timedelta(seconds=13),
            timedelta(minutes=5),
        )
        assert created.authorization_rules == [rule]
        assert (created.max_size_in_megabytes, created.status, created.enable_express) == (
            32 * 1024,
            EntityStatus.RECEIVE_DISABLED,
            True,
        )
    finally:
        await administration.delete_queue("settings")


async def test_settings_can_be_changed(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str
) -> None:
    """Settings change by attribute, mapping or keyword; None restores the default; reported settings are accepted."""
    properties = await administration.get_queue(queue)
    properties.lock_duration = timedelta(seconds=21)
    await administration.update_queue(properties, max_delivery_count=3)
    changed = await administration.get_queue(queue)
    assert (changed.lock_duration, changed.max_delivery_count) == (timedelta(seconds=21), 3)
    assert changed.max_size_in_megabytes == properties.max_size_in_megabytes
    await administration.update_queue(dict(changed), lock_duration=None, max_size_in_megabytes=5120)
    changed = await administration.get_queue(queue)
    assert (changed.lock_duration, changed.max_size_in_megabytes) == (timedelta(minutes=1), 16 * 5120)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert (await administration.get_queue_runtime_properties(queue)).updated_at_utc > (
        await administration.get_queue_runtime_properties(queue)
    ).created_at_utc


async def test_a_disabled_queue_takes_and_gives_nothing_until_it_is_enabled(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str
) -> None:
    """New clients use the changed settings at once."""
    await administration.update_queue(await administration.get_queue(queue), status=EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        await client.get_queue_receiver(queue).receive_messages(max_wait_time=1)


async def test_a_change_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """The error names the value, the rule and the remedy, and nothing changes."""
    properties = await administration.get_queue(queue)
    refused: list[tuple[dict[str, object], str]] = [
        ({"requires_session": True}, "requires_session=True.*fixed at creation"),
        ({"enable_partitioning": False}, "enable_partitioning=False.*fixed at creation"),
        ({"max_delivery_count": 0}, "max_delivery_count=0.*greater than or equal to 1"),
        ({"lock_duration": timedelta(minutes=6)}, "lock_duration=0:06:00.*0:05:00"),
        ({"max_size_in_megabytes": 1000}, "max_size_in_megabytes=1000: choose one of"),
        ({"max_message_size_in_kilobytes": 1024}, "up to 256 KB"),
        ({"colour": "red"}, r"\['colour'\]"),
        ({"status": "Sleeping"}, "status=Sleeping"),
    ]
    for settings, pattern in refused:
        with pytest.raises(InvalidOperationError, match=pattern):
            await administration.update_queue(properties, **settings)
    assert await administration.get_queue(queue) == properties
    with pytest.raises(TypeError, match="NoneType"):
        await administration.update_queue(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lock_duration"):
        await administration.update_queue({"name": queue})
    with pytest.raises(MessagingEntityNotFoundError):
        await administration.update_queue({**properties, "name": "no-such-queue"})
    with pytest.raises(ValueError, match="entity name ''"):
        await administration.update_queue({**properties, "name": ""})


async def test_names_that_are_none_are_refused(administration: ServiceBusAdministrationClient) -> None:
    """The error is azure-core's and a ValueError, raised before any request; unknown settings are refused as well."""
    calls: list[Callable[[Any], Awaitable[object]]] = [
        administration.create_queue,
        administration.get_queue,
        administration.delete_queue,
        administration.get_queue_runtime_properties,
        administration.create_topic,
        administration.get_topic,
        administration.delete_topic,
        administration.get_topic_runtime_properties,
        partial(administration.create_subscription, "topic"),
        partial(administration.get_subscription, "topic"),
        partial(administration.delete_rule, "topic", "subscription"),
        partial(administration.get_rule, "topic", "subscription"),
    ]
    for call in calls:
        for name in ("", "a//b", "x" * 261):
            with pytest.raises(HttpResponseError, match="name") as refused:
                await call(name)
            assert {InvalidOperationError, ValueError} <= set(type(refused.value).__mro__)
        for no_text in (None, 5, Exception("test")):
            with pytest.raises(HttpResponseError, match=type(no_text).__name__) as refused:
                await call(no_text)
            assert {InvalidOperationError, TypeError} <= set(type(refused.value).__mro__)
    with pytest.raises(HttpResponseError):
        await administration.get_queue("there-is-none")


async def test_the_namespace_is_standard_unless_it_was_created_otherwise(
    administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """A namespace's tier is fixed once it has a queue."""
    assert queue
    namespace = await administration.get_namespace_properties()
    assert (namespace.messaging_sku, namespace.partitions, namespace.namespace_type) == ("Standard", None, "Messaging")
    assert await administration.create_namespace("standard") == namespace
    for tier, partitions in (("Premium", 4), ("Basic", None), ("Premium", None), ("Gold", None)):
        with pytest.raises(InvalidOperationError, match=f"{tier}|Standard"):
            await administration.create_namespace(tier, partitions)


async def test_a_queue_that_nobody_uses_is_deleted(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    make_queue: MakeQueue,
    later: Advance,
) -> None:
    """The queue is deleted after its idle time, not while it is used or a scheduled message waits.

    First it refuses all clients.
    """
    patience = timedelta(minutes=5)
    idle, used = f"idle-{uuid.uuid4().hex[:8]}", await make_queue(auto_delete_on_idle=patience)
    waiting = await make_queue(auto_delete_on_idle=patience)
    await administration.create_queue(idle, auto_delete_on_idle=patience)
    due = datetime.now(timezone.utc) + timedelta(days=10)
    async with client.get_queue_sender(waiting) as sender:
        await sender.schedule_messages(ServiceBusMessage("x"), due)
    refused = False
    async with client.get_queue_sender(idle) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for queue in (idle, used, waiting):
            await later(queue, 70)
        async with client.get_queue_sender(used) as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        try:
            status = (await administration.get_queue(idle)).status
        except MessagingEntityNotFoundError:
            break
        if status is EntityStatus.DELETING and not refused:
            with pytest.raises(MessagingEntityNotFoundError, match="auto_delete_on_idle"):
                await other_client.get_queue_sender(idle).send_messages(ServiceBusMessage("x"))
            refused = True
        await sleep(0.5)
    with pytest.raises(MessagingEntityNotFoundError):
        await administration.get_queue(idle)
    assert refused
    assert [(await administration.get_queue(queue)).status for queue in (used, waiting)] == [EntityStatus.ACTIVE] * 2


async def test_a_queue_that_is_peeked_is_in_use(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """Peeking keeps it from being deleted, and counts as access."""
    patience = timedelta(minutes=5)
    idle, peeked = f"idle-{uuid.uuid4().hex[:8]}", await make_queue(auto_delete_on_idle=patience)
    await administration.create_queue(idle, auto_delete_on_idle=patience)
    receiver, deadline = client.get_queue_receiver(peeked), time.monotonic() + 60
    status = EntityStatus.ACTIVE
    while status is EntityStatus.ACTIVE and time.monotonic() < deadline:
        for queue in (idle, peeked):
            await later(queue, 140)
        # However slow the machine is, less than five minutes pass between two uses.
        before = known = await administration.get_queue_runtime_properties(peeked)
        while known.accessed_at_utc == before.accessed_at_utc and time.monotonic() < deadline:
            assert await receiver.peek_messages() == []
            await sleep(0.1)
            known = await administration.get_queue_runtime_properties(peeked)
        status = (await administration.get_queue(idle)).status
    assert status is EntityStatus.DELETING
    assert (await administration.get_queue(peeked)).status is EntityStatus.ACTIVE


async def test_a_queue_that_is_to_be_deleted_can_be_kept(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """An update of the queue keeps it; its messages are still there."""
    queue = await make_queue(auto_delete_on_idle=timedelta(minutes=5), partitioned=False)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("kept"))
    deadline = time.monotonic() + 60
    while (known := await administration.get_queue(queue)).status is EntityStatus.ACTIVE:
        assert time.monotonic() < deadline
        await later(queue, 70)
        await sleep(0.2)
    await administration.update_queue(known, auto_delete_on_idle=None)
    for _ in range(4):
        await later(queue, 600)
    (message,) = await client.get_queue_receiver(queue).receive_messages(max_wait_time=20)
    assert str(message) == "kept"
    assert (await administration.get_queue(queue)).status is EntityStatus.ACTIVE


async def test_who_receives_goes_by_a_new_lock_duration(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """The change holds within some seconds, even for a receiver that was there before."""
    queue = await make_queue(partitioned=False, max_delivery_count=2000)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        deadline, locked_for = time.monotonic() + 30, timedelta(minutes=1)
        while time.monotonic() < deadline and locked_for > timedelta(seconds=20):
            (message,) = await receiver.receive_messages(max_wait_time=60)
            assert message.locked_until_utc is not None
            locked_for = message.locked_until_utc - datetime.now(timezone.utc)
            await receiver.abandon_message(message)
            if locked_for > timedelta(seconds=50):
                await administration.update_queue(
                    await administration.get_queue(queue), lock_duration=timedelta(seconds=15)
                )
            await sleep(0.2)
    assert locked_for < timedelta(seconds=20)


async def test_what_is_being_deleted_is_not_changed(administration: ServiceBusAdministrationClient, queue: str) -> None:
    """It would be there again for others, who would lose what they give it; a deletion that was cut off can go on."""
    before, descriptions = await administration.get_queue(queue), administration._connections().descriptions
    known = await descriptions.get(queue)
    assert known is not None
    await descriptions.put(known.model_copy(update={"status": EntityStatus.DELETING}))
    with pytest.raises(MessagingEntityNotFoundError, match="is being deleted"):
        await administration.update_queue(before)
    # The fixture deletes it.
