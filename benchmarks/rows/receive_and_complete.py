"""Receiving with locks and completing, against Kafka's own queues: share groups."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.steady import SETTLING_IN, receive_new, timed_steadily
from benchmarks.workbench import Workbench

BATCH = 500

_LARGE_BATCH = 2_000
"""The maximum number of locks that a share group grants in a partition."""
_MESSAGES = 30_000
_GROUP_SETTINGS = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}


def receive_and_complete(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``receive_messages(500)`` and ``complete_messages`` of the received messages, in one thread.

    The reference is a share consumer over the same log that polls batches of the same size, acknowledges each record
    and commits synchronously. For information: both with batches of 2,000, which suit the share consumer better.

    kafkabus begins each round with a new client and receives some thousand messages before it is timed, so that it does
    not profit from messages fetched while the other side was timed. A share consumer takes seconds to join its group, so it
    is kept for all rounds; it too receives some thousand messages before it is timed.
    """
    count, settling_in = (scale.count(full, multiple_of=_LARGE_BATCH) for full in (_MESSAGES, SETTLING_IN))
    messages = (2 * (scale.rounds + 1) + 1) * (count + settling_in)
    with (
        bench.queue(messages) as queue,
        _share_consumer(bench, queue, BATCH) as small,
        _share_consumer(bench, queue, _LARGE_BATCH) as large,
    ):
        measured = interleave(
            {
                "share consumer": lambda timed: timed_steadily(_sharing(small), settling_in, timed),
                "kafkabus": lambda timed: receive_new(bench, queue, BATCH, settling_in, timed),
                "large, share consumer": lambda timed: timed_steadily(_sharing(large), settling_in, timed),
                "large, kafkabus": lambda timed: receive_new(bench, queue, _LARGE_BATCH, settling_in, timed),
            },
            count,
            scale,
        )
    yield compare(
        f"receive and complete, batches of {BATCH}, 1 KB: Kafka share consumer",
        MESSAGES_PER_SECOND,
        measured["kafkabus"],
        measured["share consumer"],
        Budget(1.2),
    )
    yield compare(
        f"receive and complete, batches of {_LARGE_BATCH}, 1 KB: Kafka share consumer",
        MESSAGES_PER_SECOND,
        measured["large, kafkabus"],
        measured["large, share consumer"],
    )


def _sharing(consumer: ShareConsumer) -> Callable[[], int]:
    def receive() -> int:
        messages = consumer.poll(10.0)
        for message in messages:
            consumer.acknowledge(message)
        for error in consumer.commit_sync().values():
            if error is not None:
                raise error
        return len(messages)

    return receive


@contextmanager
def _share_consumer(bench: Workbench, queue: str, batch: int) -> Generator[ShareConsumer]:
    group = f"benchmarks.share.{batch}"
    settings = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in _GROUP_SETTINGS.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=settings)
    administration = AdminClient(bench.reference_options)
    for change in administration.incremental_alter_configs([resource]).values():
        change.result()
    options = {
        **bench.reference_options,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": batch,
    }
    with ShareConsumer(options) as consumer:
        consumer.subscribe([bench.topic(queue)])
        yield consumer
