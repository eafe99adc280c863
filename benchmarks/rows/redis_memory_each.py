"""The memory in Redis of each thing that a ledger remembers, by which a Redis can be sized."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial

from benchmarks.results import Result
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench, batch_of
from kafkabus.management import ServiceBusAdministrationClient

_QUEUES = 200
_MESSAGES = 10_000
_BATCH = 100
_PATIENCE = 60.0

Kept = Callable[[Workbench, str, int], AbstractContextManager[None]]
"""A context in which Redis remembers so many things of a queue."""


def redis_memory_each(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure how Redis's memory grows with the number of things of one kind."""
    yield Result("Redis memory of a queue of one partition that was used and is idle", _of_queue(bench, scale), "bytes")
    count = scale.count(_MESSAGES, multiple_of=_BATCH * 10)
    for kind, (kept, detecting) in _KINDS.items():
        few, many = (_used_with(bench, kept, number, detecting=detecting) for number in (count // 10, count))
        yield Result(f"Redis memory of {kind}", (many - few) / (count - count // 10), "bytes")


def _of_queue(bench: Workbench, scale: Scale) -> float:
    count = scale.count(_QUEUES, multiple_of=10)
    names = [f"idle-{number}" for number in range(count)]
    with (
        ServiceBusAdministrationClient.from_connection_string(bench.connection_string) as administration,
        bench.client() as client,
    ):
        used: list[int] = []
        for number, name in enumerate(names, 1):
            administration.create_queue(name)
            with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
                sender.send_messages(batch_of(1))
                receiver.complete_messages(receiver.receive_messages(1, _PATIENCE))
            if number in {count // 10, count}:
                used.append(bench.redis_memory())
        for name in names:
            administration.delete_queue(name)
    few, many = used
    return (many - few) / (count - count // 10)


def _used_with(bench: Workbench, kept: Kept, count: int, *, detecting: bool) -> int:
    with bench.queue(detecting=detecting) as queue, kept(bench, queue, count):
        return bench.redis_memory()


@contextmanager
def _locked(bench: Workbench, queue: str, count: int, *, batch: int, defer: bool = False) -> Generator[None]:
    """Receive all messages, a batch at a time, and keep them, or defer every second one and complete the others."""
    bench.fill(queue, messages=count)
    with bench.client() as client, client.get_queue_receiver(queue) as receiver:
        left = count
        while left:
            messages = receiver.receive_messages(min(batch, left), _PATIENCE)
            left -= len(messages)
            if defer:
                receiver.defer_messages(messages[::2])
                receiver.complete_messages(messages[1::2])
        yield


@contextmanager
def _scheduled(bench: Workbench, queue: str, count: int) -> Generator[None]:
    with bench.client() as client, client.get_queue_sender(queue) as sender:
        for _ in range(0, count, _BATCH):
            sender.schedule_messages(batch_of(_BATCH), datetime.now(timezone.utc) + timedelta(days=1))
        yield


@contextmanager
def _detected(bench: Workbench, queue: str, count: int) -> Generator[None]:
    """Receive and complete messages whose ids the window remembers."""
    bench.fill(queue, messages=count)
    with bench.client() as client, client.get_queue_receiver(queue) as receiver:
        left = count
        while left:
            messages = receiver.receive_messages(min(_BATCH, left), _PATIENCE)
            left -= len(messages)
            receiver.complete_messages(messages)
        yield


_KINDS: Mapping[str, tuple[Kept, bool]] = {
    "a lease: the locked messages of one partition that were received at once": (partial(_locked, batch=1), False),
    "two messages of which one is deferred": (partial(_locked, batch=_BATCH, defer=True), False),
    "a scheduled message": (_scheduled, False),
    "an id of 32 characters in the window of duplicate detection": (_detected, True),
}
"""Things by name, with the context in which Redis remembers them, and whether the queue detects duplicates."""
