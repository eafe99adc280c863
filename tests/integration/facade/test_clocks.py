"""Times to live where Redis's clock is a minute off the broker's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from confluent_kafka import Producer

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.connection_string import parse_settings
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from tests.clock import advance


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client of a namespace with a queue ``q``, whose messages nobody else expires."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("q", dead_lettering_on_message_expiration=True)
        with ServiceBusClient.from_connection_string(untended) as opened:
            yield opened
        administration.delete_queue("q")


def test_a_ledger_whose_clock_is_ahead_expires_nothing_early(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient, caplog: pytest.LogCaptureFixture
) -> None:
    """By its own clock the message is over as soon as it is stored; somebody is told of the clocks."""
    advance(runtime.redis_url, parse_settings(untended).namespace, "q", 60)
    client.get_queue_sender("q").send_messages(ServiceBusMessage("x", time_to_live=30))
    (message,) = client.get_queue_receiver("q").receive_messages(max_wait_time=10)
    assert str(message) == "x"
    assert "clocks_differ" in caplog.text


def test_a_ledger_whose_clock_is_behind_expires_nothing_late(
    runtime: RunningNamespace, untended: str, client: ServiceBusClient
) -> None:
    """By its own clock the message has a minute left."""
    advance(runtime.redis_url, parse_settings(untended).namespace, "q", -60)
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
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers})
    producer.produce(f"{parse_settings(untended).namespace}.q", b"x", headers={"sb-time-to-live": b"1"})
    producer.flush()
    receiver = client.get_queue_receiver("q")
    (peeked,) = receiver.peek_messages()
    assert str(peeked) == "x"
    assert receiver.receive_messages(max_wait_time=1) == []
