# Generated from tests/contract/aio/test_recreated_queues.py by tools/generate_blocking.py. Do not edit.
"""Sending to a queue that was deleted and created again, by a client that used it a moment before."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.compat import sleep
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import MakeQueue

KEYED = {"session_id": "s"}
KINDS = ("keyless", "keyed", "scheduled", "in a transaction")


def send(client: ServiceBusClient, queue: str, kind: str) -> None:
    """Send three messages in one of the ways in which messages are sent."""
    sender, more = client.get_queue_sender(queue), {} if kind == "keyless" else KEYED
    messages = [ServiceBusMessage(str(number), **more) for number in range(3)]  # type: ignore[arg-type]
    if kind == "scheduled":
        numbers = sender.schedule_messages(messages, datetime.now(timezone.utc) + timedelta(hours=1))
        assert len(numbers) == 3
    elif kind == "in a transaction":
        with client.transaction() as transaction:
            sender.send_messages(messages, transaction=transaction)
    else:
        sender.send_messages(messages)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_sender_goes_on_with_a_queue_that_was_created_again(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    partitioned: bool,
    kind: str,
) -> None:
    """At once, and every message is stored once; the queue had more partitions before, or as many."""
    queue = make_queue(partitioned=partitioned)
    send(client, queue, kind)
    administration.delete_queue(queue)
    administration.create_queue(queue, enable_partitioning=False)
    send(client, queue, kind)
    with other_client.get_queue_receiver(queue) as receiver:
        assert [str(message) for message in receiver.peek_messages(9)] == ["0", "1", "2"]
    scheduled, deadline = 3 if kind == "scheduled" else 0, time.monotonic() + 30
    while (administration.get_queue_runtime_properties(queue)).scheduled_message_count != scheduled:
        assert time.monotonic() < deadline
        sleep(0.1)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_sender_to_a_queue_that_is_gone_says_so(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """At once, and not that Kafka has no such topic."""
    queue = f"gone-{kind.replace(' ', '-')}"
    administration.create_queue(queue)
    send(client, queue, kind)
    administration.delete_queue(queue)
    with pytest.raises(MessagingEntityNotFoundError):
        send(client, queue, kind)
