"""Receiving a backlog to its end, while more messages are sent."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Curve, Result
from benchmarks.rounds import Scale, rate
from benchmarks.steady import SETTLING_IN
from benchmarks.workbench import BODY, Workbench, batch_of

_WAITING = (100_000, 1_000_000, 10_000_000)
_BATCH = 500
_SENT = 100
"""How many messages are sent after each batch."""
_BODY = BODY[:100]


def backlog(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``receive_messages(500)`` and ``complete_messages`` until as many were received as waited at first.

    After each batch the same thread sends 100 messages. The reference is a hundredth of the messages.
    """
    speeds = {
        count: _receive_all(bench, count) for count in (scale.count(full, multiple_of=_SENT) for full in _WAITING)
    }
    fewest, most = min(speeds), max(speeds)
    yield Result(
        f"receive and complete {most:,} waiting messages, 100 bytes, while more are sent: {fewest:,}",
        speeds[most],
        MESSAGES_PER_SECOND,
        speeds[fewest],
        speeds[most] / speeds[fewest],
        Budget(0.8),
        curve=Curve("receive a backlog, messages/s", "messages that wait", tuple(speeds.items())),
    )


def _receive_all(bench: Workbench, waiting: int) -> float:
    settling_in = min(SETTLING_IN, waiting // 2)
    with bench.queue() as queue, bench.client() as client, client.get_queue_sender(queue) as sender:
        for _ in range(waiting // _SENT):
            sender.send_messages(batch_of(_SENT, _BODY))
        with client.get_queue_receiver(queue, max_wait_time=60) as receiver:
            received, began = 0, 0.0
            while received < waiting:
                messages = receiver.receive_messages(_BATCH)
                receiver.complete_messages(messages)
                sender.send_messages(batch_of(_SENT, _BODY))
                received += len(messages)
                if not began and received >= settling_in:
                    began, settling_in = time.perf_counter(), received
        return rate(received - settling_in, began)
