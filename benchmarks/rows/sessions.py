"""Receiving in sessions, against receiving without; and what a message that waits in a session takes in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator

import redis

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus import NEXT_AVAILABLE_SESSION

SESSIONS = 1_000
BATCH = 100
_MEMORY_BUDGET = 24.0
"""Bytes for each message."""


def sessions(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """1,000 sessions, whose messages lie between each other's, 100 of each; ``receive_messages(100)``, ``complete_messages``.

    One thread opens the next available session, receives and completes what it has, closes it, and opens the next. The
    reference is the same work on a queue without sessions, by one receiver. Both begin with a new client.
    """
    count = scale.count(SESSIONS * BATCH, multiple_of=SESSIONS)
    measured = interleave(
        {
            "plain": lambda messages: _receive(bench, messages, in_sessions=False),
            "sessions": lambda messages: _receive(bench, messages, in_sessions=True),
        },
        count,
        scale,
    )
    yield compare(
        f"receive and complete in {SESSIONS:,} sessions, batches of {BATCH}, 1 KB: without sessions",
        MESSAGES_PER_SECOND,
        measured["sessions"],
        measured["plain"],
        Budget(0.5),
    )
    taken = _memory(bench, count) / count
    yield Result(
        f"Redis memory of a message that waits in one of {SESSIONS:,} sessions: as designed",
        taken,
        "bytes",
        _MEMORY_BUDGET,
        taken / _MEMORY_BUDGET,
        Budget(1, at_most=True),
    )


def _receive(bench: Workbench, count: int, *, in_sessions: bool) -> float:
    """Messages per second."""
    with bench.queue(count, sessions=SESSIONS if in_sessions else 0) as queue, bench.client() as client:
        done, began = 0, time.perf_counter()
        if not in_sessions:
            receiver = client.get_queue_receiver(queue)
            while done < count:
                messages = receiver.receive_messages(BATCH)
                receiver.complete_messages(messages)
                done += len(messages)
        while done < count:
            with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as one:
                messages = one.receive_messages(BATCH)
                one.complete_messages(messages)
                done += len(messages)
        return rate(count, began)


def _memory(bench: Workbench, count: int) -> int:
    """How many bytes Redis uses more once all messages are filed."""
    with (
        bench.queue(count, sessions=SESSIONS) as queue,
        bench.client() as client,
        redis.Redis.from_url(bench.redis_url) as server,
    ):
        server.memory_purge()
        before = int(server.info("memory")["used_memory"])
        list(client.list_queue_sessions(queue))
        server.memory_purge()
        return int(server.info("memory")["used_memory"]) - before
