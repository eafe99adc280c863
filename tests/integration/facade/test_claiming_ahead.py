"""If a log has several readers that want many messages, they claim messages before they read them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._core.record import Record
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.operations import Claim, Tail, new_lease
from kafkabus._sync.context import ClientContext
from kafkabus._sync.kafka.offset_reader import OffsetReader, UnfinishedReadError
from kafkabus._sync.receiving.log_reader import LogReader
from kafkabus._sync.receiving.message_reader import AHEAD_FROM
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath
from tests.integration.facade.test_logs import transact
from tests.queues import new_queue

BATCH = 2 * AHEAD_FROM
PATIENCE = 60.0


@pytest.fixture
def queue(runtime: RunningNamespace) -> str:
    """A new plain queue, whose locks are short: one log."""
    return new_queue(runtime.connection_string, lock_duration=timedelta(seconds=5))


@pytest.fixture
def clients(runtime: RunningNamespace, queue: str, crowded: Callable[[str], None]) -> Iterator[list[ServiceBusClient]]:
    """Six clients; that the queue has many readers is known before the first one receives."""
    crowded(queue)
    with ExitStack() as stack:
        yield [
            stack.enter_context(ServiceBusClient.from_connection_string(runtime.connection_string)) for _ in range(6)
        ]


def send(client: ServiceBusClient, queue: str, count: int, *, start: int = 0) -> None:
    """Send numbered messages."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(start, start + count)])


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages."""
    return [str(message) for message in messages]


def left_in(runtime: RunningNamespace, queue: str) -> int:
    """Return how many messages the queue is said to hold."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        return administration.get_queue_runtime_properties(queue).total_message_count


def claimed_ahead(caplog: pytest.LogCaptureFixture) -> int:
    """Return how many claims were made before their messages were read."""
    return sum("claim_ahead" in record.getMessage() for record in caplog.records)


def test_what_is_claimed_ahead_is_delivered_in_order_and_holes_are_settled(
    runtime: RunningNamespace, clients: list[ServiceBusClient], queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """TransactionMarkers and aborted records belong to no receiver, in the middle of a batch and at its end."""
    topic = f"tests.{queue}"
    send(clients[0], queue, BATCH // 2)
    transact(runtime, topic, ["never"] * 3, commit=False)
    transact(runtime, topic, [str(number) for number in range(BATCH // 2, BATCH)], commit=True)
    send(clients[0], queue, BATCH, start=BATCH)
    transact(runtime, topic, ["never"], commit=False)
    with clients[-1].get_queue_receiver(queue, max_wait_time=60) as receiver:
        received: list[ServiceBusReceivedMessage] = []
        while len(received) < 2 * BATCH:
            messages = receiver.receive_messages(BATCH)
            receiver.complete_messages(messages)
            received += messages
        assert bodies(received) == [str(number) for number in range(2 * BATCH)]
        assert {message.delivery_count for message in received} == {0}
        assert claimed_ahead(caplog) >= 2
        deadline = time.monotonic() + PATIENCE
        while left_in(runtime, queue):
            assert time.monotonic() < deadline
            # Holes that were claimed are settled once they were read; those that were read, with the next message.
            send(clients[0], queue, 1)
            receiver.complete_messages(receiver.receive_messages(BATCH))
        # If few messages are claimed at a time, and at the log's end, all is as it is for one reader.
        send(clients[0], queue, 2, start=7)
        assert bodies(receiver.receive_messages(2)) == ["7", "8"]


def test_what_was_claimed_ahead_and_never_read_comes_again(
    runtime: RunningNamespace, clients: list[ServiceBusClient], queue: str
) -> None:
    """The claimer died. The next reader of the messages finds the holes."""
    topic = f"tests.{queue}"
    send(clients[0], queue, BATCH)
    transact(runtime, topic, ["never"], commit=False)
    transact(runtime, topic, ["x"], commit=True)
    context = ClientContext(parse_settings(runtime.connection_string))
    try:
        entity = context.catalog.entity(EntityPath(queue))
        end = context.topics.ends(topic, [0])[0]
        claim = Claim(entity.ledgers[0], new_lease(), want=BATCH * 2, lock_ms=entity.lock_ms, ahead=Tail(end))
        context.ledger_client.execute(claim)
        assert claim.granted.fresh == [(0, end - 1)]
    finally:
        context.close()
    with clients[-1].get_queue_receiver(queue, max_wait_time=20) as receiver:
        received: list[ServiceBusReceivedMessage] = []
        while len(received) < BATCH + 1:
            messages = receiver.receive_messages(BATCH * 2)
            receiver.complete_messages(messages)
            received += messages
    assert bodies(received) == [*map(str, range(BATCH)), "x"]
    assert {message.delivery_count for message in received} == {1}
    assert left_in(runtime, queue) == 0


@pytest.mark.timeout(120)
def test_readers_of_one_log_race_and_each_message_is_delivered_once(
    runtime: RunningNamespace, clients: list[ServiceBusClient], queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Some readers settle their messages, some give them back at first."""
    total = 40 * BATCH
    for start in range(0, total, 10 * BATCH):
        send(clients[0], queue, 10 * BATCH, start=start)
    received: list[str] = []
    failures: list[BaseException] = []

    def receive(number: int) -> None:
        try:
            with clients[number].get_queue_receiver(queue, max_wait_time=1) as receiver:
                if number % 2:
                    receiver.abandon_messages(receiver.receive_messages(BATCH))
                while len(received) < total:
                    messages = receiver.receive_messages(BATCH)
                    receiver.complete_messages(messages)
                    received.extend(bodies(messages))
        except BaseException as error:
            failures.append(error)
            raise

    with clients[-1].get_queue_receiver(queue, max_wait_time=60) as receiver:
        messages = receiver.receive_messages(BATCH)
        receiver.complete_messages(messages)
        received.extend(bodies(messages))
    assert claimed_ahead(caplog)
    threads = [threading.Thread(target=receive, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Counter(received) == Counter(map(str, range(total)))
    assert left_in(runtime, queue) == 0


def test_the_brokers_say_who_leads(runtime: RunningNamespace, clients: list[ServiceBusClient], queue: str) -> None:
    """The first leader's epoch is 0, and known."""
    send(clients[0], queue, 3)
    assert Topics(parse_settings(runtime.connection_string)).tails(f"tests.{queue}", [0], 10) == {0: Tail(3, 0)}


def test_what_was_read_by_one_client_is_claimed_ahead_by_another(
    clients: list[ServiceBusClient], queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger knows the first reader's leader, which still leads."""
    send(clients[0], queue, 2 * BATCH)
    with clients[0].get_queue_receiver(queue, max_wait_time=60) as few:
        assert bodies(few.receive_messages(1)) == ["0"]
    with clients[1].get_queue_receiver(queue, max_wait_time=60) as many:
        assert bodies(many.receive_messages(BATCH)) == [str(number) for number in range(1, BATCH + 1)]
    assert claimed_ahead(caplog) == 1


def test_a_client_that_reads_nothing_waits(
    clients: list[ServiceBusClient], queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If other clients have the partition as their home, it asks a few times a second for messages, and no more often."""
    looks: list[float] = []
    tend = LogReader.maintain

    def count(reader: LogReader, *, idle: bool) -> None:
        looks.append(time.monotonic())
        tend(reader, idle=idle)

    monkeypatch.setattr(LogReader, "maintain", count)
    with clients[0].get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(BATCH, max_wait_time=1) == []
        assert len(looks) < 20
        looks.clear()
        for _ in range(20):
            # Kafka's client counts in milliseconds.
            assert receiver.receive_messages(BATCH, max_wait_time=0.0009) == []
    assert len(looks) < 100


@pytest.mark.parametrize("came", [0, 30])
def test_what_does_not_come_in_time_is_given_back_and_comes_again(
    clients: list[ServiceBusClient],
    queue: str,
    came: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no delivery.

    The other messages are delivered; after an empty read the partition is left alone for a moment.
    """
    monkeypatch.setattr("kafkabus._sync.receiving.granted_records.LEAVE_SILENT", 1.0)
    read, cut = OffsetReader.read, [came]

    def read_in_part(points: OffsetReader, *arguments: Any, **more: Any) -> list[Record]:
        records = read(points, *arguments, **more)
        if cut:
            raise UnfinishedReadError(f"{came} came", records[: cut.pop()])
        return records

    monkeypatch.setattr(OffsetReader, "read", read_in_part)
    send(clients[0], queue, BATCH)
    with clients[0].get_queue_receiver(queue, max_wait_time=20) as receiver:
        received = receiver.receive_messages(BATCH)
        assert "given_back" in caplog.text
        assert bodies(received[:came]) == [str(number) for number in range(came)]
        while len(received) < BATCH:
            received += receiver.receive_messages(BATCH)
    assert bodies(received) == [str(number) for number in range(BATCH)]
    assert {message.delivery_count for message in received} == {0}
