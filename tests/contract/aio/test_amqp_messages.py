"""Messages in AMQP's terms: identifiers of every type, settings of the raw message, messages that come as bytes."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from kafkabus.aio import ServiceBusClient
from tests.contract.aio.conftest import Advance, MakeQueue
from tests.contract.aio.receiving import receive_all

IDENTIFIERS: list[Any] = [uuid.UUID(int=5), b"bytes", b"\xff\x00", 7, "text"]


async def test_identifiers_come_back_as_what_they_were(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """That holds if they are sent, in a batch, scheduled or forwarded. The second of each is a duplicate of the first."""
    queue = await make_queue(requires_duplicate_detection=True, partitioned=False)
    source = await make_queue(forward_to=queue, partitioned=False)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    async with client.get_queue_sender(queue) as sender:
        for _ in range(2):
            await sender.send_messages(
                [ServiceBusMessage("sent", message_id=one, correlation_id=one) for one in IDENTIFIERS]
            )
        await sender.schedule_messages(
            ServiceBusMessage("scheduled", message_id=8, correlation_id=uuid.UUID(int=8)), due
        )
    async with client.get_queue_sender(source) as sender:
        await sender.send_messages(ServiceBusMessage("forwarded", message_id=b"9", correlation_id=9))
    receiver = client.get_queue_receiver(queue)
    found = await receive_all(receiver, 6)
    assert [(one.message_id, one.correlation_id) for one in found[:5]] == [(one, one) for one in IDENTIFIERS]
    assert [(str(one), one.message_id, one.correlation_id) for one in found[5:]] == [("forwarded", b"9", 9)]
    await later(queue, 3601)
    (scheduled,) = await receive_all(receiver, 1)
    assert (scheduled.message_id, scheduled.correlation_id) == (8, uuid.UUID(int=8))


async def test_what_is_set_of_the_raw_message_is_sent(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """That holds for a received message, too, when it is sent again."""
    queue = await make_queue(requires_session=True)
    message = ServiceBusMessage("x")
    raw: Any = message.raw_amqp_message
    raw.properties.subject, raw.properties.group_id, raw.properties.user_id = "s", "session", b"u"
    raw.header.priority, raw.header.time_to_live = 3, 60_000
    raw.annotations = {"x-opt-partition-key": "session", "mine": 1}
    raw.delivery_annotations, raw.footer, raw.application_properties = {"d": 2}, {"f": 3}, {"a": 4}
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(message)
        async with client.get_queue_receiver(queue, session_id="session") as receiver:
            (first,) = await receive_all(receiver, 1)
            found: Any = first.raw_amqp_message
            found.properties.subject, found.annotations[b"mine too"] = b"other", 5
            await sender.send_messages(first)
            (second,) = await receive_all(receiver, 1)
    assert (second.subject, second.session_id, second.partition_key) == ("other", "session", "session")
    assert (second.time_to_live, second.application_properties) == (timedelta(minutes=1), {b"a": 4})
    again: Any = second.raw_amqp_message
    assert (again.properties.user_id, again.header.priority, again.header.delivery_count) == (b"u", 3, 0)
    assert (again.annotations["mine"], again.annotations[b"mine too"]) == (1, 5)
    assert (again.delivery_annotations["d"], again.footer) == (2, {"f": 3})
    assert again.annotations[b"x-opt-sequence-number"] == second.sequence_number
    assert again.annotations[b"x-opt-sequence-number"] != found.annotations[b"x-opt-sequence-number"]


async def test_what_the_raw_message_cannot_be_is_refused_before_anything_is_sent(
    client: ServiceBusClient, queue: str
) -> None:
    """The other messages of its list are refused with it."""
    bad = ServiceBusMessage("bad")
    raw: Any = bad.raw_amqp_message
    raw.properties.subject = 5
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        with pytest.raises(TypeError, match="subject is int"):
            await sender.send_messages([ServiceBusMessage("good"), bad])
        await sender.send_messages(ServiceBusMessage("last"))
        assert [str(one) for one in await receive_all(receiver, 1)] == ["last"]


async def test_a_message_of_bytes_is_sent_and_not_settled(client: ServiceBusClient, queue: str) -> None:
    """The message has no receiver."""
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage("x", message_id=uuid.UUID(int=5), subject="s"))
    with pytest.warns(DeprecationWarning, match="send the batch itself"):
        (data,) = batch.message.data
    message = ServiceBusReceivedMessage.from_bytes(data)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        with pytest.raises(ValueError, match="is not locked"):
            await receiver.complete_message(message)
        with pytest.raises(ValueError, match="is not locked"):
            await receiver.renew_message_lock(message)
        await sender.send_messages(message)
        (found,) = await receive_all(receiver, 1)
    assert (str(found), found.message_id, found.subject) == ("x", uuid.UUID(int=5), "s")


async def test_a_message_whose_time_to_live_is_zero_lives_as_the_queue_says(
    client: ServiceBusClient, queue: str
) -> None:
    """azure.servicebus treats it in the same way."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x", time_to_live=0))
        (message,) = await receive_all(receiver, 1)
    assert message.time_to_live is None
