"""The growth of memory in a program that runs for long."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import psutil

from benchmarks.results import Budget, Result
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench, batch_of

BATCH = 200
_HANDLES, _MESSAGES = 10_000, 1_000_000
_WARM = 0.2
"""The part of the work after which the program has allocated all the memory that it needs."""


def soak(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure this process's memory after much work, against that after a fifth of the work.

    Half of the handles are senders that send one message, half are receivers that receive and complete one; then messages
    are sent, received and completed in batches of 200.
    """
    handles, messages = scale.count(_HANDLES), scale.count(_MESSAGES, multiple_of=BATCH)
    with bench.queue() as queue, bench.client() as client:

        def open_and_close() -> None:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(batch_of(1))
            with client.get_queue_receiver(queue, max_wait_time=30) as receiver:
                receiver.complete_messages(receiver.receive_messages(1))

        yield _grown(f"memory after {handles:,} senders and receivers: after a fifth", open_and_close, handles // 2)
        with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue, max_wait_time=30) as receiver:

            def exchange() -> None:
                sender.send_messages(batch_of(BATCH))
                left = BATCH
                while left:
                    received = receiver.receive_messages(left)
                    receiver.complete_messages(received)
                    left -= len(received)

            yield _grown(f"memory after {messages:,} messages: after a fifth", exchange, messages // BATCH)


def _grown(name: str, work: Callable[[], None], times: int) -> Result:
    warm = max(1, int(times * _WARM))
    for _ in range(warm):
        work()
    before = _megabytes()
    for _ in range(times - warm):
        work()
    after = _megabytes()
    return Result(name, after, "MB", before, after / before, Budget(1.1, at_most=True))


def _megabytes() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 1e6
