"""Sending to a queue that detects duplicates, against sending to one that does not."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.rows.send import BATCH, send_batches
from benchmarks.workbench import Workbench

_MESSAGES = 20_000


def duplicates(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Batches of 100 messages of 1 KB with ids of their own, each waited for, by one thread.

    With duplicate detection the ids are keys, so a batch goes to all 16 partitions; the reference sends the same messages to a
    queue without, where a batch goes to one partition, the next with each batch.
    """
    with (
        bench.queue() as plain,
        bench.queue(detecting=True) as detecting,
        bench.client() as client,
        client.get_queue_sender(plain) as plain_sender,
        client.get_queue_sender(detecting) as sender,
    ):
        measured = interleave(
            {
                "plain": lambda count: send_batches(plain_sender, count),
                "detecting": lambda count: send_batches(sender, count),
            },
            scale.count(_MESSAGES, multiple_of=BATCH),
            scale,
        )
    yield compare(
        f"send with duplicate detection, batches of {BATCH}, 1 KB: without",
        MESSAGES_PER_SECOND,
        measured["detecting"],
        measured["plain"],
        Budget(0.6),
    )
