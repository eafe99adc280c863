"""Receiving in sessions, against receiving without; and the memory in Redis of a message that waits in a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus import NEXT_AVAILABLE_SESSION
from kafkabus.aio import ServiceBusClient as AsyncClient

SESSIONS = 1_000
BATCH = 100
AT_ONCE = 16
_MEMORY_BUDGET = 24.0
"""The budget for each message, in bytes."""


def sessions(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``receive_messages(100)`` and ``complete_messages`` in 1,000 interleaved sessions of 100 messages.

    One thread opens the next available session, receives and completes its messages, closes it, and opens the next. The
    reference is the same work on a queue without sessions, with one receiver. Both begin with a new client. A second row
    measures 16 asyncio tasks, which share round trips: opening and closing a session takes one round trip each.
    """
    count = scale.count(SESSIONS * BATCH, multiple_of=SESSIONS)
    measured = interleave(
        {
            "plain": lambda messages: _receive(bench, messages, in_sessions=False),
            "sessions": lambda messages: _receive(bench, messages, in_sessions=True),
            "plain tasks": lambda messages: _receive_at_once(bench, messages, in_sessions=False),
            "session tasks": lambda messages: _receive_at_once(bench, messages, in_sessions=True),
        },
        count,
        scale,
    )
    name = f"receive and complete in {SESSIONS:,} sessions, batches of {BATCH}, 1 KB"
    yield compare(
        f"{name}: without sessions", MESSAGES_PER_SECOND, measured["sessions"], measured["plain"], Budget(0.5)
    )
    yield compare(
        f"{name}, {AT_ONCE} tasks: without sessions",
        MESSAGES_PER_SECOND,
        measured["session tasks"],
        measured["plain tasks"],
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
    """Return the messages per second of one receiver at a time."""
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


def _receive_at_once(bench: Workbench, count: int, *, in_sessions: bool) -> float:
    """Return the messages per second of several concurrent receivers of one client."""
    with bench.queue(count, sessions=SESSIONS if in_sessions else 0) as queue:
        return asyncio.run(_by_tasks(bench.connection_string, queue, count, in_sessions))


async def _by_tasks(connection_string: str, queue: str, count: int, in_sessions: bool) -> float:
    done = 0

    async def receive_from_next(client: AsyncClient) -> None:
        nonlocal done
        async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION if in_sessions else None) as one:
            while done < count:
                messages = await one.receive_messages(BATCH)
                await one.complete_messages(messages)
                done += len(messages)
                if in_sessions:
                    return

    async def receive_all(client: AsyncClient) -> None:
        while done < count:
            await receive_from_next(client)

    async with AsyncClient.from_connection_string(connection_string) as client:
        began = time.perf_counter()
        tasks = [asyncio.create_task(receive_all(client)) for _ in range(AT_ONCE)]
        # When the first task ends, all messages are done; the others may wait for a session in vain.
        ended, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        measured = rate(count, began)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for task in ended:
            task.result()
        return measured


def _memory(bench: Workbench, count: int) -> int:
    """Return how many additional bytes Redis uses once all messages are filed."""
    with bench.queue(count, sessions=SESSIONS) as queue, bench.client() as client:
        before = bench.redis_memory()
        list(client.list_queue_sessions(queue))
        return bench.redis_memory() - before
