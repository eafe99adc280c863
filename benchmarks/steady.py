"""Timing of receivers in their steady state."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.rounds import rate
from benchmarks.workbench import Workbench

SETTLING_IN = 10_000
"""The number of messages that a new client receives before it is timed; by then its fetches are steady."""


def receive_new(bench: Workbench, queue: str, batch: int, settling_in: int, count: int) -> float:
    """Return the messages per second that a new receiver receives and completes.

    Args:
        bench: The workbench of the queue.
        queue: The queue, which must hold more messages than are received.
        batch: The maximum number of messages in a call.
        settling_in: The number of messages to receive first, untimed.
        count: The number of messages to time.
    """
    with bench.client() as client, client.get_queue_receiver(queue) as receiver:

        def receive() -> int:
            messages = receiver.receive_messages(batch)
            receiver.complete_messages(messages)
            return len(messages)

        return timed_steadily(receive, settling_in, count)


def timed_steadily(step: Callable[[], int], settling_in: int, count: int) -> float:
    """Return the messages per second of a repeated step, timed in its steady state.

    Args:
        step: A function that works on some messages and returns their number.
        settling_in: The number of messages to work on first, untimed.
        count: The minimum number of messages to time.
    """
    _repeat(step, settling_in)
    began = time.perf_counter()
    return rate(_repeat(step, count), began)


def _repeat(step: Callable[[], int], wanted: int) -> int:
    done = 0
    while done < wanted:
        done += step()
    return done
