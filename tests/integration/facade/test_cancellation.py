"""Receives that are cancelled at any moment: nothing is lost, and no delivery is counted that nobody saw."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.embedded import EmbeddedRuntime

TOTAL = 300


async def receive_for(receiver: ServiceBusReceiver, seconds: float) -> list[ServiceBusReceivedMessage]:
    """What a receive yields that is cancelled after so long, if it was not done by then."""
    receiving = asyncio.create_task(receiver.receive_messages(7, max_wait_time=5))
    await asyncio.wait([receiving], timeout=seconds)
    receiving.cancel()
    try:
        return await receiving
    except asyncio.CancelledError:
        return []


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
async def test_cancelled_receives_lose_nothing(runtime: EmbeddedRuntime, mode: ServiceBusReceiveMode) -> None:
    """With locks every message comes with its first delivery; with receive and delete every message comes once."""
    queue = f"cancelled-{uuid.uuid4().hex[:8]}"
    dice = random.Random(7)
    async with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        await administration.create_queue(queue, enable_partitioning=True)
    async with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue, receive_mode=mode)
        for start in range(0, TOTAL, 10):
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(start, start + 10)])
        seen: list[ServiceBusReceivedMessage] = []
        for _ in range(60):
            seen += await receive_for(receiver, dice.uniform(0.0, 0.02))
        while len(seen) < TOTAL:
            messages = await receiver.receive_messages(50, max_wait_time=5)
            assert messages, f"only {len(seen)} of {TOTAL} came"
            seen += messages
        assert await receiver.receive_messages(1, max_wait_time=0.5) == []
        assert Counter(str(message) for message in seen) == Counter(str(number) for number in range(TOTAL))
        assert [message.delivery_count for message in seen] == [0] * TOTAL
        if mode is ServiceBusReceiveMode.PEEK_LOCK:
            await receiver.complete_messages(seen)
