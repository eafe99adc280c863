"""Receiving without locks, against Kafka's own consumer."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.steady import SETTLING_IN, timed_steadily
from benchmarks.workbench import PARTITIONS, Workbench
from kafkabus import ServiceBusReceiveMode

BATCH = 500
_MESSAGES = 150_000
"""The number of messages: so many that each side fetches most of them while it is timed, not before."""


def receive_and_delete(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``receive_messages(500)`` in receive-and-delete mode, in one thread.

    The reference reads the same log with ``consume(500)``, all partitions assigned, nothing committed. Each side begins
    each round with a new client, so that nothing was fetched while the other was timed, and receives some thousand
    messages before it is timed.
    """
    count, settling_in = (scale.count(full, multiple_of=BATCH) for full in (_MESSAGES, SETTLING_IN))
    with bench.queue((scale.rounds + 2) * (count + settling_in)) as queue:
        measured = interleave(
            {
                "consumer": lambda timed: consume(bench, bench.topic(queue), settling_in, timed),
                "kafkabus": lambda timed: _receive(bench, queue, settling_in, timed),
            },
            count,
            scale,
        )
    yield compare(
        "receive and delete, batches of 500, 1 KB: Kafka consumer",
        MESSAGES_PER_SECOND,
        measured["kafkabus"],
        measured["consumer"],
        Budget(0.4),
    )


def _receive(bench: Workbench, queue: str, settling_in: int, count: int) -> float:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bench.client() as client, client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        return timed_steadily(lambda: len(receiver.receive_messages(BATCH)), settling_in, count)


def consume(bench: Workbench, topic: str, settling_in: int, count: int) -> float:
    """Return the records per second that Kafka's consumer reads from a topic with 16 partitions."""
    options = {
        **bench.reference_options,
        "group.id": "benchmarks.consumer",
        "enable.auto.commit": False,
        # With the default of a second, a consumer whose queue was full waits without need.
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])

    def read() -> int:
        return sum(message.error() is None for message in consumer.consume(BATCH, 10.0))

    try:
        return timed_steadily(read, settling_in, count)
    finally:
        consumer.close()
