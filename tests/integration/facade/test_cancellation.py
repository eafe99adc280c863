"""Receives are cancelled at any moment: nothing is lost, and only deliveries to the application count."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus._async.receiving.message_reader import AHEAD_FROM
from kafkabus._async.redis.ledger_client import LedgerClient
from kafkabus._ledger.operations import Operation, Settlement
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.embedded import RunningNamespace

TOTAL = 300


async def receive_for(receiver: ServiceBusReceiver, seconds: float, count: int = 7) -> list[ServiceBusReceivedMessage]:
    """Cancel a receive after so long, and return its messages if it was done by then."""
    receiving = asyncio.create_task(receiver.receive_messages(count, max_wait_time=5))
    await asyncio.wait([receiving], timeout=seconds)
    receiving.cancel()
    try:
        return await receiving
    except asyncio.CancelledError:
        return []


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
async def test_cancelled_receives_lose_nothing(runtime: RunningNamespace, mode: ServiceBusReceiveMode) -> None:
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


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
async def test_cancelled_receives_of_a_crowd_lose_nothing(
    runtime: RunningNamespace,
    mode: ServiceBusReceiveMode,
    crowded: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That is the case if messages are claimed before they are read."""
    queue, total = f"cancelled-{uuid.uuid4().hex[:8]}", 20 * AHEAD_FROM
    dice = random.Random(11)
    async with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        await administration.create_queue(queue)
    crowded(queue)
    async with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue, receive_mode=mode)
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(total)])
        # This receive is not cancelled, so that the receiver has seen the crowd.
        seen = await receiver.receive_messages(AHEAD_FROM, max_wait_time=60)
        for _ in range(40):
            seen += await receive_for(receiver, dice.uniform(0.0, 0.03), AHEAD_FROM)
        while len(seen) < total:
            messages = await receiver.receive_messages(AHEAD_FROM, max_wait_time=5)
            assert messages, f"only {len(seen)} of {total} came"
            seen += messages
        assert await receiver.receive_messages(1, max_wait_time=0.5) == []
        assert Counter(str(message) for message in seen) == Counter(str(number) for number in range(total))
        assert [message.delivery_count for message in seen] == [0] * total
        assert "claim_ahead" in caplog.text


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("keeps_expired", [False, True])
async def test_what_a_cancelled_receive_has_settled_comes_with_the_next(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, *, keeps_expired: bool, deferred: bool
) -> None:
    """The cancellation comes while the receiver reports to the ledger that leased messages were read and are deleted."""
    queue, settling = f"cancelled-{uuid.uuid4().hex[:8]}", asyncio.Event()
    ask = LedgerClient.execute

    async def ask_and_say(ledger_client: LedgerClient, *operations: Operation) -> None:
        if any(type(operation) is Settlement for operation in operations):
            settling.set()
        await ask(ledger_client, *operations)

    async with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        await administration.create_queue(
            queue,
            dead_lettering_on_message_expiration=keeps_expired,
            default_message_time_to_live=timedelta(hours=1) if keeps_expired else None,
        )
    async with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        sender, locking = client.get_queue_sender(queue), client.get_queue_receiver(queue)
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
        held = await locking.receive_messages(5, max_wait_time=60)
        receiver = client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        if deferred:
            for message in held:
                await locking.defer_message(message)
        else:
            await locking.abandon_messages(held)
        monkeypatch.setattr(LedgerClient, "execute", ask_and_say)
        receiving = asyncio.create_task(
            receiver.receive_deferred_messages([message.sequence_number or 0 for message in held])
            if deferred
            else receiver.receive_messages(5, max_wait_time=60)
        )
        await settling.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        assert receiving.cancelled()
        seen = await receiver.receive_messages(5, max_wait_time=60)
        assert [str(message) for message in seen] == ["0", "1", "2", "3", "4"]
        assert await receiver.receive_messages(5, max_wait_time=0.5) == []
