"""Completing messages one at a time in many threads or tasks, against one thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus import ServiceBusReceivedMessage, ServiceBusReceiver
from kafkabus.aio import ServiceBusClient as AsyncClient
from kafkabus.aio import ServiceBusReceiver as AsyncReceiver

WORKERS = 16
_MESSAGES = 3_200
_SIDES = 3

T = TypeVar("T")


def complete_one_by_one(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``complete_message``, called in 16 threads or 16 asyncio tasks that share one receiver.

    The reference is one thread. The messages were received before, in batches; only their completion is timed.
    """
    count = scale.count(_MESSAGES, multiple_of=WORKERS)
    with (
        bench.queue((scale.rounds + 1) * _SIDES * count) as queue,
        bench.client() as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        measured = interleave(
            {
                "one": lambda timed: _by_threads(receiver, timed, 1),
                "threads": lambda timed: _by_threads(receiver, timed, WORKERS),
                "tasks": lambda timed: asyncio.run(_by_tasks(bench, queue, timed, WORKERS)),
            },
            count,
            scale,
        )
    name = "complete one by one"
    yield compare(
        f"{name}, {WORKERS} threads: one thread", MESSAGES_PER_SECOND, measured["threads"], measured["one"], Budget(3)
    )
    yield compare(
        f"{name}, {WORKERS} asyncio tasks: one thread",
        MESSAGES_PER_SECOND,
        measured["tasks"],
        measured["one"],
        Budget(5),
    )


def _by_threads(receiver: ServiceBusReceiver, count: int, workers: int) -> float:
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        messages += receiver.receive_messages(min(500, count - len(messages)))

    def complete(share: Sequence[ServiceBusReceivedMessage]) -> None:
        for message in share:
            receiver.complete_message(message)

    with ThreadPoolExecutor(workers) as threads:
        # The threads are started before the clock.
        list(threads.map(time.sleep, [0.01] * workers))
        began = time.perf_counter()
        list(threads.map(complete, _shares(messages, workers)))
        return rate(count, began)


async def _by_tasks(bench: Workbench, queue: str, count: int, workers: int) -> float:
    async with (
        AsyncClient.from_connection_string(bench.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < count:
            messages += await receiver.receive_messages(min(500, count - len(messages)))
        began = time.perf_counter()
        await asyncio.gather(*(_complete(receiver, share) for share in _shares(messages, workers)))
        return rate(count, began)


async def _complete(receiver: AsyncReceiver, share: Sequence[ServiceBusReceivedMessage]) -> None:
    for message in share:
        await receiver.complete_message(message)


def _shares(messages: Sequence[T], workers: int) -> list[Sequence[T]]:
    """Deal the messages out to the workers in turn."""
    return [messages[worker::workers] for worker in range(workers)]
