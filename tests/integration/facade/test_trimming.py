"""Settled records are deleted, and another program deletes records of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.operations import TakeSnapshot
from kafkabus._ledger.snapshot import Snapshot
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.upkeep import hasten


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client of a namespace without upkeep, with two plain queues: ``short`` keeps nothing, ``long`` a day."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("short", settled_retention=timedelta(0))
        administration.create_queue("long")
        with ServiceBusClient.from_connection_string(untended) as opened:
            yield opened
        for name in ("short", "long"):
            administration.delete_queue(name)


@pytest.fixture
def topics(untended: str) -> Topics:
    """Return the cluster's topics."""
    return Topics(parse_settings(untended))


def start_of(topics: Topics, untended: str, queue: str) -> int:
    """Return the offset at which a queue's log begins."""
    return topics.starts(f"{parse_settings(untended).namespace}.{queue}", [0])[0]


def tend(untended: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after a queue for long enough that two checkpoints are written and records are deleted."""
    hasten(monkeypatch)

    async def look_after() -> None:
        context = ClientContext(parse_settings(untended))
        one = EntityMaintainer(context, EntityPath(queue))
        for _ in range(3):
            await one.maintain()
        await context.close()

    asyncio.run(look_after())


def test_what_is_settled_and_old_enough_is_deleted(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are deleted up to the first unsettled message, even a deferred one. Receivers go on, and nothing is lost."""
    receiver = client.get_queue_receiver("short")
    client.get_queue_sender("short").send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    messages = receiver.receive_messages(8, max_wait_time=60)
    receiver.complete_messages([*messages[:4], *messages[5:]])
    receiver.defer_message(messages[4])
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 4
    receiver.complete_messages(receiver.receive_deferred_messages(messages[4].sequence_number))
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 8
    rest = receiver.receive_messages(5, max_wait_time=60)
    assert [str(message) for message in rest] == ["8", "9"]
    with ServiceBusClient.from_connection_string(untended) as late:
        receiver.abandon_messages(rest)
        assert len(late.get_queue_receiver("short").receive_messages(5, max_wait_time=60)) == 2


def test_ids_in_the_window_stay_readable(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that Redis lost is made again from them. Older records are deleted, and duplicates are forgotten."""
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
            receiver.complete_messages(receiver.receive_messages(3, max_wait_time=60))
            tend(untended, "ids", monkeypatch)
            assert start_of(topics, untended, "ids") == 0
            assert snapshot(untended, "ids").duplicates == [(1, 2)]
            # The test pretends that the window had gone by.
            monkeypatch.setattr(Entity, "window_ms", 0)
            tend(untended, "ids", monkeypatch)
            assert start_of(topics, untended, "ids") == 3
            assert snapshot(untended, "ids").duplicates == []
        finally:
            administration.delete_queue("ids")


def snapshot(untended: str, queue: str) -> Snapshot:
    """Return the checkpoint to write for a plain queue."""

    async def ask() -> Snapshot:
        context = ClientContext(parse_settings(untended))
        keep = TakeSnapshot((await context.catalog.entity(EntityPath(queue))).ledgers[0])
        await context.ledger_client.execute(keep)
        await context.close()
        return keep.snapshot

    return asyncio.run(ask())


def test_what_is_young_stays_readable(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark and replay need them."""
    receiver = client.get_queue_receiver("long")
    client.get_queue_sender("long").send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    receiver.complete_messages(receiver.receive_messages(10, max_wait_time=60))
    tend(untended, "long", monkeypatch)
    assert start_of(topics, untended, "long") == 0


def test_records_that_somebody_else_deleted_are_told_of(
    untended: str, client: ServiceBusClient, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver goes on behind them, even one that had begun to read. An error in the log has their number."""
    sender, receiver = client.get_queue_sender("long"), client.get_queue_receiver("long")
    assert receiver.receive_messages(1, max_wait_time=0.5) == []
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    topics.delete_records(f"{parse_settings(untended).namespace}.long", {0: 6})
    with ServiceBusClient.from_connection_string(untended) as other:
        messages = other.get_queue_receiver("long").receive_messages(10, max_wait_time=60)
    assert [str(message) for message in messages] == ["6", "7", "8", "9"]
    assert "lost_by_the_log" in caplog.text
    assert "(0, 5)" in caplog.text
    sender.send_messages(ServiceBusMessage("next"))
    assert [str(message) for message in receiver.receive_messages(10, max_wait_time=60)] == ["next"]


def lose(untended: str, queue: str) -> None:
    """Have Redis lose the ledger of a plain queue."""
    context = ClientContext(parse_settings(untended))

    async def delete() -> None:
        entity = await context.catalog.entity(EntityPath(queue))
        await context.ledger_client.forget(list(entity.ledgers))
        await context.close()

    asyncio.run(delete())


def kept_apart(untended: str, queue: str) -> set[int]:
    """Return the offsets of a plain queue's records that are kept apart."""

    async def look() -> set[int]:
        context = ClientContext(parse_settings(untended))
        try:
            return set(await context.stores.archive.find_archived(await context.catalog.entity(EntityPath(queue)), 0))
        finally:
            await context.close()

    return asyncio.run(look())


@pytest.mark.parametrize("lost", [False, True], ids=["", "Redis lost the ledger"])
def test_a_deferred_message_does_not_keep_its_log(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Its record is kept apart: it is peeked, received by its number, deferred again and settled as before."""
    receiver = client.get_queue_receiver("short")
    sender = client.get_queue_sender("short")
    sender.send_messages(
        [
            ServiceBusMessage(str(number), subject=f"s{number}", application_properties={"n": number})
            for number in range(60)
        ]
    )
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < 60:
        messages += receiver.receive_messages(60 - len(messages), max_wait_time=60)
    receiver.defer_messages([messages[3], messages[7]])
    receiver.complete_messages([one for one in messages if one not in {messages[3], messages[7]}])
    tend(untended, "short", monkeypatch)
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 60
    assert kept_apart(untended, "short") == {3, 7}
    if lost:
        lose(untended, "short")
    number = messages[3].sequence_number
    with ServiceBusClient.from_connection_string(untended) as late, late.get_queue_receiver("short") as another:
        assert [str(one) for one in another.peek_messages(10)] == ["3", "7"]
        (deferred,) = another.receive_deferred_messages(number)
        assert (str(deferred), deferred.subject, deferred.application_properties) == ("3", "s3", {b"n": 3})
        assert (deferred.sequence_number, deferred.enqueued_time_utc) == (number, messages[3].enqueued_time_utc)
        another.abandon_message(deferred)
        tend(untended, "short", monkeypatch)
        assert kept_apart(untended, "short") == {3, 7}
        another.dead_letter_message(another.receive_deferred_messages(number)[0], "why")
        (letter,) = late.get_queue_receiver("short", sub_queue="deadletter").receive_messages(max_wait_time=60)
        assert (str(letter), letter.dead_letter_reason) == ("3", "why")
        another.complete_messages(another.receive_deferred_messages(messages[7].sequence_number))
        tend(untended, "short", monkeypatch)
        tend(untended, "short", monkeypatch)
        assert kept_apart(untended, "short") == set()
        sender.send_messages(ServiceBusMessage("later"))
        assert [str(one) for one in another.receive_messages(5, max_wait_time=60)] == ["later"]


def test_a_scheduled_message_does_not_keep_its_log(
    untended: str, client: ServiceBusClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes at its time."""
    receiver, sender = client.get_queue_receiver("short"), client.get_queue_sender("short")
    due = datetime.now(timezone.utc) + timedelta(seconds=1000)
    sender.schedule_messages(ServiceBusMessage("scheduled"), due)
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(30)])
    received = 0
    while received < 30:
        messages = receiver.receive_messages(30, max_wait_time=60)
        receiver.complete_messages(messages)
        received += len(messages)
    tend(untended, "short", monkeypatch)
    tend(untended, "short", monkeypatch)
    assert start_of(topics, untended, "short") == 31
    (peeked,) = client.get_queue_receiver("short").peek_messages(10)
    assert str(peeked) == "scheduled"
    settings = parse_settings(untended)
    advance(settings.redis_url.reveal(), settings.namespace, "short", 1001)
    tend(untended, "short", monkeypatch)
    (message,) = receiver.receive_messages(5, max_wait_time=60)
    assert str(message) == "scheduled"
    receiver.complete_message(message)
    tend(untended, "short", monkeypatch)
    tend(untended, "short", monkeypatch)
    assert kept_apart(untended, "short") == set()
