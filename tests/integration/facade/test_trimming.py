"""Deleting settled records, and logs whose records somebody else deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.aio.services import Services
from kafkabus.connection_string import parse_settings
from kafkabus.entity import Entity
from kafkabus.ledger.operations import Keep
from kafkabus.ledger.snapshot import Snapshot
from kafkabus.log.topics import Topics
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep import tender
from kafkabus_mapping.names import EntityPath


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client of a namespace with two plain queues that nobody looks after: ``short`` keeps nothing, ``long`` a day."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("short", settled_retention=timedelta(0))
        administration.create_queue("long")
        with ServiceBusClient.from_connection_string(untended) as opened:
            yield opened
        for name in ("short", "long"):
            administration.delete_queue(name)


@pytest.fixture
def topics(untended: str) -> Topics:
    """The cluster's topics."""
    return Topics(parse_settings(untended))


def start_of(topics: Topics, untended: str, queue: str) -> int:
    """Where a queue's log begins."""
    return topics.starts(f"{parse_settings(untended).namespace}.{queue}", [0])[0]


def tend(untended: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after a queue for long enough that two checkpoints are written and records are deleted."""
    monkeypatch.setattr(tender, "CHECKPOINT_EVERY", 0.0)
    monkeypatch.setattr(tender, "TRIM_EVERY", 0.0)

    async def look_after() -> None:
        services = Services(parse_settings(untended))
        one = tender.Tender(services, EntityPath(queue))
        for _ in range(3):
            await one.tend()
        await services.close()

    asyncio.run(look_after())


def test_what_is_settled_and_old_enough_is_deleted(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the first message that is not settled, deferred ones too; receivers go on, and nothing is lost."""
    receiver = client.get_queue_receiver("short")
    client.get_queue_sender("short").send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    messages = receiver.receive_messages(8, max_wait_time=10)
    receiver.complete_messages([*messages[:4], *messages[5:]])
    receiver.defer_message(messages[4])
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 4
    receiver.complete_messages(receiver.receive_deferred_messages(messages[4].sequence_number))
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 8
    rest = receiver.receive_messages(5, max_wait_time=10)
    assert [str(message) for message in rest] == ["8", "9"]
    with ServiceBusClient.from_connection_string(untended) as late:
        receiver.abandon_messages(rest)
        assert len(late.get_queue_receiver("short").receive_messages(5, max_wait_time=10)) == 2


def test_ids_in_the_window_stay_readable(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that Redis lost is made anew of them; what is older is deleted, and what was a duplicate is forgotten."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue(
            "ids",
            settled_retention=timedelta(0),
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(seconds=20),
        )
        try:
            client.get_queue_sender("ids").send_messages([ServiceBusMessage("a", message_id="a") for _ in range(3)])
            receiver = client.get_queue_receiver("ids")
            receiver.complete_messages(receiver.receive_messages(3, max_wait_time=10))
            tend(untended, "ids", monkeypatch)
            assert start_of(topics, untended, "ids") == 0
            assert snapshot(untended, "ids").duplicates == [(1, 2)]
            # As if that window had gone by.
            monkeypatch.setattr(Entity, "window_ms", 0)
            tend(untended, "ids", monkeypatch)
            assert start_of(topics, untended, "ids") == 3
            assert snapshot(untended, "ids").duplicates == []
        finally:
            administration.delete_queue("ids")


def snapshot(untended: str, queue: str) -> Snapshot:
    """What is to be written down of a plain queue."""

    async def ask() -> Snapshot:
        services = Services(parse_settings(untended))
        keep = Keep((await services.entity(EntityPath(queue))).ledgers[0])
        await services.courier.ask(keep)
        await services.close()
        return keep.snapshot

    return asyncio.run(ask())


def test_what_is_young_stays_readable(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Spark and for replay."""
    receiver = client.get_queue_receiver("long")
    client.get_queue_sender("long").send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    receiver.complete_messages(receiver.receive_messages(10, max_wait_time=10))
    tend(untended, "long", monkeypatch)
    assert start_of(topics, untended, "long") == 0


def test_records_that_somebody_else_deleted_are_told_of(
    untended: str, client: ServiceBusClient, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver goes on behind them, also one that had begun to read; the number is said loudly."""
    sender, receiver = client.get_queue_sender("long"), client.get_queue_receiver("long")
    assert receiver.receive_messages(1, max_wait_time=0.5) == []
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    topics.delete_records(f"{parse_settings(untended).namespace}.long", {0: 6})
    with ServiceBusClient.from_connection_string(untended) as other:
        messages = other.get_queue_receiver("long").receive_messages(10, max_wait_time=10)
    assert [str(message) for message in messages] == ["6", "7", "8", "9"]
    assert "lost_by_the_log" in caplog.text
    assert "(0, 5)" in caplog.text
    sender.send_messages(ServiceBusMessage("next"))
    assert [str(message) for message in receiver.receive_messages(10, max_wait_time=10)] == ["next"]
