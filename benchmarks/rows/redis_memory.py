"""The memory that a backlog takes in Redis."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Producer

from benchmarks.results import Budget, Result
from benchmarks.rounds import Scale
from benchmarks.workbench import PARTITIONS, Workbench

_SMALL, _LARGE = 10_000, 10_000_000
_BODY = b"0123456789"
_RECEIVED = 1_000


def redis_memory(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure Redis's memory while many messages wait; some of them were completed and some are locked.

    The reference is the memory with a thousandth of the messages. Plain records of 10 bytes replace messages, because the
    ledger's data in Redis does not depend on a message's content.
    """
    large = scale.count(_LARGE, multiple_of=PARTITIONS)
    few, many = _used(bench, _SMALL), _used(bench, large)
    name = f"Redis memory, {large:,} messages waiting: {_SMALL:,}"
    yield Result(name, many / 1e6, "MB", few / 1e6, many / few, Budget(1.1, at_most=True))


def _used(bench: Workbench, waiting: int) -> int:
    """Return how many bytes Redis uses with one queue."""
    with (
        bench.queue() as queue,
        bench.client() as client,
        client.get_queue_receiver(queue, max_wait_time=30) as receiver,
    ):
        _produce(bench, queue, waiting)
        for settle in (True, False):
            left = _RECEIVED
            while left:
                messages = receiver.receive_messages(left)
                left -= len(messages)
                if settle:
                    receiver.complete_messages(messages)
        return bench.redis_memory()


def _produce(bench: Workbench, queue: str, count: int) -> None:
    producer = Producer({**bench.reference_options, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    topic = bench.topic(queue)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, _BODY, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
