"""More messages in flight than a partition may have."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.operations import Tail
from kafkabus._sync.receiving import message_reader
from kafkabus._sync.receiving.log_reader import POLL_SLICE
from kafkabus.embedded import RunningNamespace
from tests.queues import crowd

LIMIT = 10


@pytest.mark.parametrize("others", [False, True])
def test_new_messages_wait_until_some_are_settled(
    runtime: RunningNamespace,
    queue: str,
    others: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Messages that were given back are received anyway. Nothing is lost or hangs, and one warning reports the limit."""
    monkeypatch.setattr(message_reader, "IN_FLIGHT_LIMIT", LIMIT)
    caplog.set_level(logging.WARNING, "kafkabus.reader")
    if others:
        crowd(runtime.connection_string, queue)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(100)])
        held = receiver.receive_messages(100, max_wait_time=60)
        assert [str(message) for message in held] == [str(number) for number in range(LIMIT)]
        assert receiver.receive_messages(100, max_wait_time=0.5) == []
        receiver.abandon_message(held[0])
        (again,) = receiver.receive_messages(100, max_wait_time=60)
        assert (str(again), again.delivery_count) == ("0", 1)
        receiver.complete_messages([again, *held[1:4]])
        assert [str(message) for message in receiver.receive_messages(100, max_wait_time=60)] == [
            "10",
            "11",
            "12",
            "13",
        ]
        assert sum("in_flight_limit" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.timeout(60)
def test_a_receive_ends_where_nothing_new_may_be_had(
    runtime: RunningNamespace, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That holds even if the brokers take their time to say how much waits."""
    monkeypatch.setattr(message_reader, "IN_FLIGHT_LIMIT", LIMIT)
    crowd(runtime.connection_string, queue)
    tails = Topics.tails

    def slowly(topics: Topics, name: str, partitions: Iterable[int], timeout: float) -> dict[int, Tail]:
        found = tails(topics, name, partitions, timeout)
        time.sleep(1.5 * POLL_SLICE)
        return found

    monkeypatch.setattr(Topics, "tails", slowly)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(100)])
        assert len(receiver.receive_messages(100, max_wait_time=60)) == LIMIT
        assert receiver.receive_messages(100, max_wait_time=0.5) == []
