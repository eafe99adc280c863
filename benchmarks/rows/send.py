"""Sending batches, against Kafka's own producer."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Producer

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import BODY, PARTITIONS, Workbench, batch_of
from kafkabus import ServiceBusSender

BATCH = 100
_MESSAGES = 20_000


def send(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure batches of 100 messages of 1 KB, which one thread sends one after the other.

    The reference is an idempotent producer on the same topic that puts 100 records into one partition, the next partition
    for each batch, and flushes. For information: the same producer when it never waits.
    """
    options = {**bench.reference_options, "enable.idempotence": True, "acks": "all"}
    with bench.queue() as queue, bench.client() as client, client.get_queue_sender(queue) as sender:
        topic = bench.topic(queue)
        waiting, streaming = Producer(options), Producer(options)
        measured = interleave(
            {
                "producer": lambda count: flush_each_batch(waiting, topic, count),
                "kafkabus": lambda count: send_batches(sender, count),
                "stream": lambda count: _stream(streaming, topic, count),
            },
            scale.count(_MESSAGES, multiple_of=BATCH),
            scale,
        )
    ours = measured["kafkabus"]
    name = f"send, batches of {BATCH}, 1 KB"
    yield compare(
        f"{name}: Kafka producer that flushes each batch",
        MESSAGES_PER_SECOND,
        ours,
        measured["producer"],
        Budget(0.6),
    )
    yield compare(f"{name}: Kafka producer that never waits", MESSAGES_PER_SECOND, ours, measured["stream"])


def send_batches(sender: ServiceBusSender, count: int) -> float:
    """Send messages, wait for each batch, and return the messages per second."""
    began = time.perf_counter()
    for _ in range(count // BATCH):
        sender.send_messages(batch_of(BATCH))
    return rate(count, began)


def flush_each_batch(producer: Producer, topic: str, count: int) -> float:
    """Send records with Kafka's producer, flush after each batch, and return the messages per second."""
    began = time.perf_counter()
    for number in range(count // BATCH):
        for _ in range(BATCH):
            producer.produce(topic, BODY, partition=number % PARTITIONS)
        producer.flush()
    return rate(count, began)


def _stream(producer: Producer, topic: str, count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        producer.produce(topic, BODY, partition=number // BATCH % PARTITIONS)
    producer.flush()
    return rate(count, began)
