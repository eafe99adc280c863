"""Sending to a queue that detects duplicates, against sending to one that does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count as numbers

from confluent_kafka import Producer

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.rows.send import BATCH, flush_each_batch, send_batches
from benchmarks.workbench import BODY, PARTITIONS, Workbench, batch_of
from kafkabus import ServiceBusSender
from kafkabus_mapping.keys import partition_of

_MESSAGES = 20_000
_BUDGET = Budget(0.6)


def duplicates(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure batches of 100 messages of 1 KB with different ids, which one thread sends one after the other.

    With duplicate detection the ids are keys, so a batch goes to all 16 partitions of a partitioned queue. Without it, a batch
    without keys goes to one partition. Therefore three pairs are compared: queues with one partition; partitioned queues, the
    reference with a different key for each message; and partitioned queues, the reference without keys. For information: the
    same difference, 16 partitions or one, for Kafka's own producer.
    """
    options = {**bench.reference_options, "enable.idempotence": True, "acks": "all"}
    with (
        bench.queue() as spread,
        bench.queue(detecting=True) as spread_detecting,
        bench.queue(partitions=1) as single,
        bench.queue(partitions=1, detecting=True) as single_detecting,
        bench.client() as client,
        client.get_queue_sender(spread) as to_spread,
        client.get_queue_sender(spread_detecting) as to_spread_detecting,
        client.get_queue_sender(single) as to_single,
        client.get_queue_sender(single_detecting) as to_single_detecting,
    ):
        topic, producer = bench.topic(spread), Producer(options)
        measured = interleave(
            {
                "single": lambda count: send_batches(to_single, count),
                "single, detecting": lambda count: send_batches(to_single_detecting, count),
                "keyless": lambda count: send_batches(to_spread, count),
                "keyed": lambda count: _send_with_keys(to_spread, count),
                "detecting": lambda count: send_batches(to_spread_detecting, count),
                "producer": lambda count: flush_each_batch(producer, topic, count),
                "producer, spread": lambda count: _flush_spread_batches(producer, topic, count),
            },
            scale.count(_MESSAGES, multiple_of=BATCH),
            scale,
        )
    for name, ours, reference, budget in (
        ("send with duplicate detection, not partitioned: without", "single, detecting", "single", _BUDGET),
        ("send with duplicate detection: with keys instead", "detecting", "keyed", _BUDGET),
        ("send with duplicate detection: with neither", "detecting", "keyless", _BUDGET),
        ("Kafka producer, batches to 16 partitions: to one", "producer, spread", "producer", None),
    ):
        yield compare(name, MESSAGES_PER_SECOND, measured[ours], measured[reference], budget)


def _send_with_keys(sender: ServiceBusSender, count: int) -> float:
    """Send as ``send_batches`` does, but each message with a different key."""
    keys, began = numbers(), time.perf_counter()
    for _ in range(count // BATCH):
        messages = batch_of(BATCH)
        for message in messages:
            message.partition_key = f"key-{next(keys)}"
        sender.send_messages(messages)
    return rate(count, began)


def _flush_spread_batches(producer: Producer, topic: str, count: int) -> float:
    """Send as ``flush_each_batch`` does, but each record to the partition of a different key."""
    keys, began = numbers(), time.perf_counter()
    for _ in range(count // BATCH):
        for _ in range(BATCH):
            producer.produce(topic, BODY, partition=partition_of(f"key-{next(keys)}", PARTITIONS))
        producer.flush()
    return rate(count, began)
