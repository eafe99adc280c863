"""The latency of one message through an idle queue, against produce and poll."""

from __future__ import annotations

import queue as threads
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.results import MILLISECONDS, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.workbench import BODY, PARTITIONS, Workbench, batch_of
from kafkabus import ServiceBusReceiver, ServiceBusSender

_MESSAGES = 300
_PATIENCE_S = 30.0


def latency(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure single messages of 1 KB that one thread sends and receives, from before the send until after the receive.

    The reference produces and flushes, then polls a consumer to which all partitions of another topic of the same kind
    are assigned. Completing the message before the next is sent is not timed. The p50 is compared with a budget. For
    information: the p99 over the messages of all rounds, and the p50 with a second thread that already waits in its receive,
    from before the send until that receive returns.
    """
    every: dict[str, list[float]] = {"kafka": [], "kafkabus": []}
    count = scale.count(_MESSAGES)
    with (
        bench.queue() as ours,
        bench.queue() as other,
        bench.client() as client,
        client.get_queue_sender(ours) as sender,
        client.get_queue_receiver(ours) as receiver,
        _produce_and_poll(bench, bench.topic(other)) as produce_and_poll,
        _sent_to_waiting(sender, receiver) as send_to_waiting,
    ):
        measured = interleave(
            {
                "kafka": lambda count: _p50(produce_and_poll, count, every["kafka"]),
                "kafkabus": lambda count: _p50(lambda: _send_and_receive(sender, receiver), count, every["kafkabus"]),
                "waiting": lambda count: _p50(send_to_waiting, count, []),
            },
            count,
            scale,
        )
    name, kafka = "send to receive, idle, 1 KB", measured["kafka"]
    yield compare(
        f"{name}, p50: Kafka produce and poll", MILLISECONDS, measured["kafkabus"], kafka, Budget(3, at_most=True)
    )
    # Without the messages of the warm-up.
    tails = {side: [_p99(took[count:])] for side, took in every.items()}
    yield compare(f"{name}, p99: Kafka produce and poll", MILLISECONDS, tails["kafkabus"], tails["kafka"])
    yield compare(f"{name}, p50, receiver waiting: Kafka produce and poll", MILLISECONDS, measured["waiting"], kafka)


def _p50(once: Callable[[], float], count: int, kept: list[float]) -> float:
    """Return the median of ``count`` measurements in milliseconds, and append them to ``kept``."""
    took = [once() for _ in range(count)]
    kept += took
    return median(took)


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100, method="inclusive")[-1]


def _send_and_receive(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> float:
    began = time.perf_counter()
    sender.send_messages(batch_of(1)[0])
    messages = receiver.receive_messages(1, _PATIENCE_S)
    took = (time.perf_counter() - began) * 1000
    receiver.complete_messages(messages)
    return took


@contextmanager
def _sent_to_waiting(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> Generator[Callable[[], float]]:
    """Yield a function that sends to a thread waiting in its receive, and returns the milliseconds until that returned."""
    wanted, arrived = threads.Queue[bool](), threads.Queue[float]()

    def receive() -> None:
        while wanted.get():
            messages = receiver.receive_messages(1, _PATIENCE_S)
            arrived.put(time.perf_counter())
            receiver.complete_messages(messages)

    def send() -> float:
        wanted.put(True)
        # Long enough for the thread to be waiting; no condition shows this from outside.
        time.sleep(0.005)
        began = time.perf_counter()
        sender.send_messages(batch_of(1)[0])
        return (arrived.get(timeout=2 * _PATIENCE_S) - began) * 1000

    thread = threading.Thread(target=receive, name="waiting receiver")
    thread.start()
    try:
        yield send
    finally:
        wanted.put(False)
        thread.join()


@contextmanager
def _produce_and_poll(bench: Workbench, topic: str) -> Generator[Callable[[], float]]:
    producer = Producer({**bench.reference_options, "enable.idempotence": True, "acks": "all", "linger.ms": 0})
    consumer = Consumer(
        {
            **bench.reference_options,
            "group.id": "benchmarks.latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    sent = 0

    def once() -> float:
        nonlocal sent
        sent += 1
        began = time.perf_counter()
        producer.produce(topic, BODY, partition=sent % PARTITIONS)
        producer.flush()
        message = consumer.poll(_PATIENCE_S)
        took = (time.perf_counter() - began) * 1000
        if message is None or message.error() is not None:
            raise RuntimeError("a message that was produced did not arrive")
        return took

    try:
        yield once
    finally:
        consumer.close()
