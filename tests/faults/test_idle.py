"""Connections of idle handles are closed after minutes of silence, as servers and firewalls do it."""

from __future__ import annotations

import os
import signal

import pytest
import redis
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


@retry(
    retry=retry_if_exception_type((AssertionError, ServiceBusError)),
    stop=stop_after_delay(150),
    wait=wait_fixed(0.1),
    reraise=True,
)
def wait_for_another(runtime: EmbeddedRuntime, broker: int) -> None:
    """Wait until a new broker serves the queue's log; how long that takes depends on the machine."""
    assert runtime.processes.get("broker-1", broker) != broker
    Topics(parse_settings(runtime.connection_string)).ends("idle.orders", [0])


def test_idle_handles_go_on() -> None:
    """A sender still sends; a receiver still renews, completes and receives."""
    with (
        EmbeddedRuntime(namespace="idle") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        redis.Redis.from_url(runtime.redis_url) as server,
    ):
        administration.create_queue("orders", lock_duration="PT5M")
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
        first, second = receiver.receive_messages(2, max_wait_time=30)

        assert server.client_kill_filter(_type="normal", skipme=True) > 0
        server.client_kill_filter(_type="pubsub")
        broker = runtime.processes["broker-1"]
        os.kill(broker, signal.SIGKILL)
        wait_for_another(runtime, broker)

        until = receiver.renew_message_lock(first)
        assert until >= (second.locked_until_utc or until)
        receiver.complete_message(first)
        sender.send_messages(ServiceBusMessage("third"))
        (third,) = receiver.receive_messages(1, max_wait_time=60)
        assert str(third) == "third"
        receiver.complete_messages([second, third])
        assert administration.get_queue_runtime_properties("orders").total_message_count == 0
