"""Receiving with locks and completing, against RabbitMQ."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks.rabbit import PREFETCH, Rabbit, RabbitPrograms, find_rabbit, running_rabbit
from benchmarks.results import MESSAGES_PER_SECOND, NOT_INSTALLED, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.steady import SETTLING_IN, receive_new
from benchmarks.workbench import Workbench

BATCH = 500
_MESSAGES = 30_000
_RABBIT_PART = 3
"""The divisor of RabbitMQ's number of messages, so that both sides of a round take about as long."""
_QUEUE = "benchmarks"
_BUDGET = Budget(5)
_NAME = f"receive and complete, batches of {BATCH}, 1 KB: RabbitMQ quorum queue"


def rabbitmq(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure ``receive_messages(500)`` and ``complete_messages`` of the received messages, in one thread.

    The reference is a quorum queue of RabbitMQ and a consumer of pika's blocking connection with a prefetch of 1,000,
    which acknowledges every 500 messages at once. For information: the same consumer when it acknowledges each message
    separately. If RabbitMQ is not installed, the row has no reference.
    """
    programs = find_rabbit()
    if programs is None:
        yield Result(_NAME, None, MESSAGES_PER_SECOND, budget=_BUDGET, note=NOT_INSTALLED)
        return
    yield from _compare(bench, scale, programs)


def _compare(bench: Workbench, scale: Scale, programs: RabbitPrograms) -> Iterator[Result]:
    count, settling_in = (scale.count(full, multiple_of=BATCH) for full in (_MESSAGES, SETTLING_IN))
    rounds = scale.rounds + 1
    with (
        running_rabbit(programs, bench.scratch / "rabbitmq") as rabbit,
        bench.queue((rounds + 1) * (count + settling_in)) as queue,
    ):
        rabbit.fill(_QUEUE, 2 * rounds * (count // _RABBIT_PART + 2 * PREFETCH))
        measured = interleave(
            {
                "rabbitmq": lambda timed: _consume(rabbit, timed // _RABBIT_PART, BATCH),
                "kafkabus": lambda timed: receive_new(bench, queue, BATCH, settling_in, timed),
                "one by one": lambda timed: _consume(rabbit, timed // _RABBIT_PART, 1),
            },
            count,
            scale,
        )
        note = f"RabbitMQ {rabbit.version}"
    ours = measured["kafkabus"]
    yield compare(_NAME, MESSAGES_PER_SECOND, ours, measured["rabbitmq"], _BUDGET, note)
    yield compare(f"{_NAME}, each acknowledged by itself", MESSAGES_PER_SECOND, ours, measured["one by one"], note=note)


def _consume(rabbit: Rabbit, count: int, together: int) -> float:
    """Return messages per second if ``together`` are acknowledged at once, timed once a whole prefetch was received."""
    connection = rabbit.connect()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    received, began = 0, 0.0

    def receive(
        channel: BlockingChannel, method: spec.Basic.Deliver, _properties: spec.BasicProperties, _body: bytes
    ) -> None:
        nonlocal received, began
        received += 1
        if received % together == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if received == PREFETCH:
            began = time.perf_counter()
        if received == PREFETCH + count:
            channel.stop_consuming()

    channel.basic_consume(_QUEUE, receive)
    channel.start_consuming()
    measured = rate(count, began)
    connection.close()
    return measured
