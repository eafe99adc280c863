"""Timing receivers once they go steadily."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.rounds import rate
from benchmarks.workbench import Workbench

SETTLING_IN = 10_000
"""Messages that a new client receives before it is timed: by then it fetches as it will go on."""


def receive_new(bench: Workbench, queue: str, batch: int, settling_in: int, count: int) -> float:
    """Messages per second that a new receiver receives and completes.

    Args:
        bench: Where.
        queue: Of what; it must hold more than this receives.
        batch: Most messages in a call.
        settling_in: Messages to receive first, untimed.
        count: Messages to time.
    """
    with bench.client() as client, client.get_queue_receiver(queue) as receiver:

        def receive() -> int:
            messages = receiver.receive_messages(batch)
            receiver.complete_messages(messages)
            return len(messages)

        return timed_steadily(receive, settling_in, count)


def timed_steadily(step: Callable[[], int], settling_in: int, count: int) -> float:
    """Messages per second of a step that is repeated, timed once it has settled in.

    Args:
        step: Does the work on some messages and says on how many.
        settling_in: Messages to work on first, untimed.
        count: Messages to time, at least.
    """
    _repeat(step, settling_in)
    began = time.perf_counter()
    return rate(_repeat(step, count), began)


def _repeat(step: Callable[[], int], wanted: int) -> int:
    done = 0
    while done < wanted:
        done += step()
    return done
