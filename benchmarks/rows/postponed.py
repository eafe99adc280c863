"""Messages that are given back with a delay: how late they come again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from statistics import quantiles

from benchmarks.results import MILLISECONDS, Result, target
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench
from kafkabus import ServiceBusReceivedMessage

_MESSAGES = 100_000
_BATCH = 200
_POSTPONED = 1_500.0
"""A rate at which messages can certainly be received and postponed, per second."""
_COMING = 2_000.0
"""How many messages a second come again."""
_WANTED = 100.0
"""The target: how late they come, ms, p99."""


def come_late(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Postpone messages of 1 KB of a partitioned queue, all at once, and measure how much later than asked each is received.

    All of them are postponed before the first one comes. Then 2,000 a second come again, in groups of 200 with one time, to
    one receiver, which completes them. The reference is the project's own target.
    """
    messages = scale.count(_MESSAGES, multiple_of=_BATCH)
    late = _lateness(bench, messages)
    value = quantiles(late, n=100, method="inclusive")[-1]
    yield target(f"{messages:,} postponed messages, 1 KB, late, p99: {_WANTED:g} ms", MILLISECONDS, value, _WANTED)


def _lateness(bench: Workbench, messages: int) -> list[float]:
    with bench.queue(messages) as queue, bench.client() as client, client.get_queue_receiver(queue) as receiver:
        first = time.time() + 5 + messages / _POSTPONED
        due: dict[int, float] = {}
        for group in count():
            batch: list[ServiceBusReceivedMessage] = []
            while len(batch) < _BATCH and len(due) + len(batch) < messages:
                batch += receiver.receive_messages(_BATCH - len(batch), max_wait_time=10)
            if not batch:
                break
            begun, at = time.time(), first + group * _BATCH / _COMING
            receiver.abandon_messages(batch, delay=at - begun)
            # The ledgers begin to count when they are asked.
            due |= dict.fromkeys((message.sequence_number for message in batch), at + time.time() - begun)
        if time.time() > first:
            raise TimeoutError(f"{messages} messages took longer to postpone than they wait")
        late: list[float] = []
        while len(late) < messages:
            came = receiver.receive_messages(_BATCH, max_wait_time=10)
            now = time.time()
            late += [(now - due[message.sequence_number]) * 1000 for message in came]
            receiver.complete_messages(came)
        return late
