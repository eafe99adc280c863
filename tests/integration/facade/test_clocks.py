"""Times to live, locks, scheduled and idle entities with a Redis whose clock is wrong, or is set while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from confluent_kafka import Producer

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus import ServiceBusMessageState as State
from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.idleness import Idleness
from kafkabus_mapping.names import EntityPath
from tests.clock import advance, step
from tests.contract.receiving import receive_all
from tests.kafka_log import KAFKA_LOG


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client of a namespace with a queue ``q``; only the test expires its messages."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("q", dead_lettering_on_message_expiration=True)
        with ServiceBusClient.from_connection_string(untended) as opened:
            yield opened
        administration.delete_queue("q")


def test_a_ledger_whose_clock_is_ahead_expires_nothing_early(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient, caplog: pytest.LogCaptureFixture
) -> None:
    """By the ledger's clock the message expires as soon as it is stored; a warning names the clocks."""
    step(runtime.redis_url, parse_settings(untended).namespace, "q", 60)
    client.get_queue_sender("q").send_messages(ServiceBusMessage("x", time_to_live=30))
    (message,) = client.get_queue_receiver("q").receive_messages(max_wait_time=60)
    assert str(message) == "x"
    assert "clocks_differ" in caplog.text


def test_a_ledger_whose_clock_is_behind_expires_nothing_late(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """By its own clock the message has a minute left."""
    step(runtime.redis_url, parse_settings(untended).namespace, "q", -60)
    client.get_queue_sender("q").send_messages(ServiceBusMessage("x", time_to_live=1))
    receiver = client.get_queue_receiver("q")
    (peeked,) = receiver.peek_messages()
    assert peeked.expires_at_utc is not None
    time.sleep(max(0.0, (peeked.expires_at_utc - datetime.now(timezone.utc)).total_seconds() + 0.1))
    assert receiver.receive_messages(max_wait_time=1) == []
    (dead,) = client.get_queue_receiver("q", sub_queue="deadletter").peek_messages()
    assert dead.dead_letter_reason == "TTLExpiredException"


def test_a_time_to_live_counts_whoever_wrote_it(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """Kafka's own producer announces nothing to the ledger."""
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    producer.produce(f"{parse_settings(untended).namespace}.q", b"x", headers={"sb-time-to-live": b"1"})
    producer.flush()
    receiver = client.get_queue_receiver("q")
    (peeked,) = receiver.peek_messages()
    assert str(peeked) == "x"
    assert receiver.receive_messages(max_wait_time=1) == []


def test_a_clock_that_is_set_forward_expires_and_enqueues_nothing_early(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """The clock was right when it was measured, a moment ago."""
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
    sender.send_messages(ServiceBusMessage("before", time_to_live=1200))
    assert [str(message) for message in receiver.receive_messages(max_wait_time=60)] == ["before"]
    sender.send_messages(ServiceBusMessage("mortal", time_to_live=1200))
    sender.schedule_messages(ServiceBusMessage("scheduled"), datetime.now(timezone.utc) + timedelta(minutes=30))
    step(runtime.redis_url, parse_settings(untended).namespace, "q", 3600)
    # The received message comes again: its lock is over by that clock.
    assert sorted(map(str, receive_all(receiver, 2, settle=False))) == ["before", "mortal"]
    assert [message.state for message in client.get_queue_receiver("q").peek_messages(3)][-1] == State.SCHEDULED
    advance(runtime.redis_url, parse_settings(untended).namespace, "q", 1805)
    assert [str(message) for message in receive_all(receiver, 1)][-1:] == ["scheduled"]


def test_a_clock_that_is_set_back_holds_no_lock_longer(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """Time passes for the ledger as it did before, and also after the clock is set right again."""
    client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
    namespace = parse_settings(untended).namespace
    for delivery in range(3):
        (message,) = client.get_queue_receiver("q").receive_messages(max_wait_time=60)
        assert message.delivery_count == delivery
        step(runtime.redis_url, namespace, "q", -3600)
        advance(runtime.redis_url, namespace, "q", 50)
        assert client.get_queue_receiver("q").receive_messages(max_wait_time=0.5) == []
        advance(runtime.redis_url, namespace, "q", 11)


@pytest.mark.parametrize("wrong", [3600.0, -3600.0])
def test_the_clock_of_a_client_decides_nothing(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """The clock of the client's machine may be an hour wrong, or set while a message is locked."""
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
    sender.send_messages(ServiceBusMessage("before", time_to_live=1200))
    (before,) = receiver.receive_messages(max_wait_time=60)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong)
    sender.send_messages(ServiceBusMessage("mortal", time_to_live=1200))
    sender.schedule_messages(ServiceBusMessage("scheduled"), datetime.now(timezone.utc) + timedelta(minutes=30))
    assert [str(message) for message in receive_all(receiver, 1)] == ["mortal"]
    assert receiver.receive_messages(max_wait_time=0.5) == []
    receiver.complete_message(before)
    assert [message.state for message in receiver.peek_messages(3)] == [State.SCHEDULED]


async def test_a_clock_that_is_set_forward_deletes_nothing(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """By that clock the queue was idle for an hour."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.update_queue(administration.get_queue("q"), auto_delete_on_idle="PT5M")
    client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
    context, namespace = ClientContext(parse_settings(untended)), parse_settings(untended).namespace
    try:
        for seconds in (0, 3600, -3600):
            step(runtime.redis_url, namespace, "q", seconds)
            assert not await _is_retiring(context)
        advance(runtime.redis_url, namespace, "q", 301)
        assert await _is_retiring(context)
    finally:
        await context.close()


async def _is_retiring(context: ClientContext) -> bool:
    """Return whether a queue ``q`` refuses all clients because it was idle, once upkeep has looked."""
    entity = await context.catalog.entity_anew(await context.catalog.entity(EntityPath("q")))
    await Idleness(context).look(entity)
    return (await context.catalog.entity_anew(entity)).description.retiring_at is not None


async def test_the_first_request_after_a_clock_was_set_enqueues_nothing_early(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """No reply has shown yet that the clock was set."""
    client.get_queue_sender("q").schedule_messages(
        ServiceBusMessage("scheduled"), datetime.now(timezone.utc) + timedelta(minutes=30)
    )
    context, namespace = ClientContext(parse_settings(untended)), parse_settings(untended).namespace
    try:
        entity = await context.catalog.entity(EntityPath("q"))
        assert await context.transfers.activate(entity, 0, 0) == 0
        step(runtime.redis_url, namespace, "q", 3600)
        assert await context.transfers.activate(entity, 0, 0) == 0
        step(runtime.redis_url, namespace, "q", -3600)
        assert await context.transfers.activate(entity, 0, 0) == 0
        advance(runtime.redis_url, namespace, "q", 1805)
        # The first of them learns of the time that has passed.
        assert [await context.transfers.activate(entity, 0, 0) for _ in range(2)] == [0, 1]
    finally:
        await context.close()
