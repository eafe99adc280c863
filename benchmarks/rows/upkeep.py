"""Messages that the upkeep service moves: scheduled messages that are due, and forwarded messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from statistics import median

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result
from benchmarks.rounds import Scale, rate
from benchmarks.workbench import Workbench, batch_of
from kafkabus.management import QueueRuntimeProperties, ServiceBusAdministrationClient

_MESSAGES = 20_000
_BATCH = 200
_WANTED = 5_000.0
"""The target: scheduled messages enqueued per second."""
_STORING = 2_000.0
"""A rate at which messages can certainly be scheduled, per second."""
_LOOK_EVERY = 0.02


def enqueue_scheduled(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure messages of 1 KB scheduled for one moment, from that moment until the last one waits in its queue.

    The reference is the project's own target.
    """
    count = scale.count(_MESSAGES, multiple_of=_BATCH)
    measured = [_enqueue(bench, count) for _ in range(scale.rounds + 1)][1:]
    value = median(measured)
    yield Result(
        f"scheduled messages, 1 KB, enqueued at their time: {_WANTED:,.0f} a second",
        value,
        MESSAGES_PER_SECOND,
        _WANTED,
        value / _WANTED,
        Budget(1.0),
    )


def forward(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure messages of 1 KB without keys that are forwarded from one partitioned queue to another, until the last one."""
    count = scale.count(_MESSAGES, multiple_of=_BATCH)
    measured = [_forward(bench, count) for _ in range(scale.rounds + 1)][1:]
    yield Result("forwarded from one queue to another, 1 KB", median(measured), MESSAGES_PER_SECOND)


def _enqueue(bench: Workbench, count: int) -> float:
    with bench.queue() as queue, bench.client() as client, client.get_queue_sender(queue) as sender:
        due = datetime.now(timezone.utc) + timedelta(seconds=1 + count / _STORING)
        for _ in range(0, count, _BATCH):
            sender.schedule_messages(batch_of(_BATCH), due)
        left = (due - datetime.now(timezone.utc)).total_seconds()
        if left <= 0:
            raise TimeoutError(f"{count} messages took longer to schedule than they wait")
        time.sleep(left)
        began = time.perf_counter()
        _wait(bench, queue, lambda counts: counts.active_message_count == count)
        return rate(count, began)


def _forward(bench: Workbench, count: int) -> float:
    with (
        bench.queue() as destination,
        bench.queue(count) as queue,
        ServiceBusAdministrationClient.from_connection_string(bench.connection_string) as administration,
    ):
        administration.update_queue(administration.get_queue(queue), forward_to=destination)
        # Timed from the first message on, to exclude the time until the setting takes effect.
        _wait(bench, destination, lambda counts: counts.active_message_count > 0)
        before = administration.get_queue_runtime_properties(destination).active_message_count
        began = time.perf_counter()
        _wait(bench, destination, lambda counts: counts.active_message_count >= count)
        return rate(count - before, began)


def _wait(bench: Workbench, queue: str, done: Callable[[QueueRuntimeProperties], bool]) -> None:
    with ServiceBusAdministrationClient.from_connection_string(bench.connection_string) as administration:
        while not done(administration.get_queue_runtime_properties(queue)):
            time.sleep(_LOOK_EVERY)
