"""Sending to a queue that was deleted and created again, by a client that used it a moment before."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.compat import sleep
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import MessagingEntityNotFoundError
from tests.contract.aio.conftest import MakeQueue

KEYED = {"session_id": "s"}
KINDS = ("keyless", "keyed", "scheduled", "in a transaction")


async def send(client: ServiceBusClient, queue: str, kind: str) -> None:
    """Send three messages in one of the ways in which messages are sent."""
    sender, more = client.get_queue_sender(queue), {} if kind == "keyless" else KEYED
    messages = [ServiceBusMessage(str(number), **more) for number in range(3)]  # type: ignore[arg-type]
    if kind == "scheduled":
        numbers = await sender.schedule_messages(messages, datetime.now(timezone.utc) + timedelta(hours=1))
        assert len(numbers) == 3
    elif kind == "in a transaction":
        async with client.transaction() as transaction:
            await sender.send_messages(messages, transaction=transaction)
    else:
        await sender.send_messages(messages)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_sender_goes_on_with_a_queue_that_was_created_again(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    partitioned: bool,
    kind: str,
) -> None:
    """At once, and every message is stored once; the queue had more partitions before, or as many."""
    queue = await make_queue(partitioned=partitioned)
    await send(client, queue, kind)
    await administration.delete_queue(queue)
    await administration.create_queue(queue, enable_partitioning=False)
    await send(client, queue, kind)
    async with other_client.get_queue_receiver(queue) as receiver:
        assert [str(message) for message in await receiver.peek_messages(9)] == ["0", "1", "2"]
    scheduled, deadline = 3 if kind == "scheduled" else 0, time.monotonic() + 30
    while (await administration.get_queue_runtime_properties(queue)).scheduled_message_count != scheduled:
        assert time.monotonic() < deadline
        await sleep(0.1)


@pytest.mark.parametrize("kind", KINDS[:3])
async def test_a_sender_to_a_queue_that_is_gone_says_so(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """At once, and not that Kafka has no such topic."""
    queue = f"gone-{kind.replace(' ', '-')}"
    await administration.create_queue(queue)
    await send(client, queue, kind)
    await administration.delete_queue(queue)
    with pytest.raises(MessagingEntityNotFoundError):
        await send(client, queue, kind)
