"""Redis's memory is nearly full: granted messages are settled, and none is granted until there is room."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.management import ServiceBusAdministrationClient
from tests.redis_server import serving

BALLAST = 100_000_000
"""How many bytes of Redis's memory are used up."""


def test_nothing_new_is_granted_and_what_was_is_settled(
    runtime: RunningNamespace, untended: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That holds for a receiver that was at work before. Once there is room, the rest comes. Some waits take seconds."""
    queue = "orders"
    with serving(find_redis(), tmp_path) as port, redis.Redis(HOST, port) as server:
        connection_string = untended.replace(runtime.redis_url, f"redis://{HOST}:{port}/0")
        _fill_up(server, connection_string, queue)
    assert "redis_full" in caplog.text


def _fill_up(server: redis.Redis, connection_string: str, queue: str) -> None:
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
        ServiceBusClient.from_connection_string(connection_string) as other,
    ):
        administration.create_queue(queue)
        with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
            first, second, third = receiver.receive_messages(3, max_wait_time=60)
            # Beside this, other changes of memory are small.
            server.setrange("ballast", BALLAST, b"-")
            server.config_set("maxmemory", int(server.info("memory")["used_memory"] * 1.05))
            try:
                with other.get_queue_receiver(queue, max_wait_time=2) as newcomer:
                    assert newcomer.receive_messages(5) == []
                    receiver.complete_message(first)
                    receiver.abandon_message(second)
                    (again,) = newcomer.receive_messages(5)
                    assert (str(again), again.delivery_count) == (str(second), 1)
                    newcomer.complete_message(again)
                    assert newcomer.receive_messages(5) == []
                assert receiver.receive_messages(5, max_wait_time=2) == []
                sender.send_messages(ServiceBusMessage("20"))
            finally:
                server.config_set("maxmemory", 0)
                server.delete("ballast")
            receiver.complete_message(third)
            rest: list[str] = []
            while len(rest) < 18:
                messages = receiver.receive_messages(20, max_wait_time=60)
                receiver.complete_messages(messages)
                rest += map(str, messages)
            assert sorted(map(int, rest)) == list(range(3, 21))
