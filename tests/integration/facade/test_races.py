"""Many receivers and senders at once, in one client and in many."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient


@pytest.fixture
def queue(runtime: RunningNamespace, request: pytest.FixtureRequest) -> str:
    """A new partitioned queue."""
    name = f"races-{abs(hash(request.node.name)):x}"
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue(name, enable_partitioning=True)
    return name


def run_all(threads: list[threading.Thread]) -> None:
    """Start and join threads."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clients", [1, 20])
def test_a_hundred_receivers_race_for_ten_thousand_messages(
    runtime: RunningNamespace, queue: str, clients: int
) -> None:
    """Each message is delivered once and none is left, whether the receivers share a client or not."""
    total = 10_000
    connections = [ServiceBusClient.from_connection_string(runtime.connection_string) for _ in range(clients)]
    with connections[0].get_queue_sender(queue) as sender:
        for start in range(0, total, 500):
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(start, start + 500)])
    received: list[str] = []
    redelivered: list[int] = []
    failures: list[BaseException] = []

    def receive(client: ServiceBusClient) -> None:
        try:
            with client.get_queue_receiver(queue) as receiver:
                while len(received) < total:
                    messages = receiver.receive_messages(37, max_wait_time=1)
                    receiver.complete_messages(messages)
                    received.extend(str(message) for message in messages)
                    redelivered.extend(message.delivery_count for message in messages if message.delivery_count)
        except BaseException as error:
            failures.append(error)
            raise

    run_all([threading.Thread(target=receive, args=(connections[number % clients],)) for number in range(100)])
    for connection in connections:
        connection.close()
    assert failures == []
    assert Counter(received) == Counter(str(number) for number in range(total))
    assert redelivered == []
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        assert administration.get_queue_runtime_properties(queue).total_message_count == 0


@pytest.mark.timeout(300)
def test_handles_are_shared_by_threads(runtime: RunningNamespace, queue: str) -> None:
    """32 threads send through one sender, and 32 receive and settle one by one through one receiver."""
    each = 20
    seen: list[str] = []
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):

        def send(thread: int) -> None:
            for number in range(each):
                sender.send_messages(ServiceBusMessage(f"{thread}-{number}"))

        def receive() -> None:
            while len(seen) < 32 * each:
                for message in receiver.receive_messages(1, max_wait_time=0.5):
                    receiver.complete_message(message)
                    seen.append(str(message))

        run_all(
            [threading.Thread(target=send, args=(number,)) for number in range(32)]
            + [threading.Thread(target=receive) for _ in range(32)]
        )
    assert Counter(seen) == Counter(f"{thread}-{number}" for thread in range(32) for number in range(each))


def test_of_several_threads_that_would_ask_for_topics_one_asks(runtime: RunningNamespace) -> None:
    """The others find nothing left to ask for."""
    context = ClientContext(parse_settings(runtime.connection_string))
    try:
        context.maintenance.recovery._ask_for_topics(time.monotonic())
    finally:
        context.close()
