"""Transactions, against those of Kafka's client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from confluent_kafka import Producer

from benchmarks.results import MILLISECONDS, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.workbench import BODY, Workbench
from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage

_EACH = 10
"""The number of messages that a transaction sends, and of those that it completes."""
_TRANSACTIONS = 200
"""The number of transactions in a round."""


def transact(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure a transaction of ten sends and ten completions, 1 KB each; the reference only stores the ten records."""
    count = scale.count(_TRANSACTIONS)
    measured = interleave({"kafka": lambda n: _bare(bench, n), "kafkabus": lambda n: _ours(bench, n)}, count, scale)
    name = "transaction of 10 sends and 10 completions, 1 KB, p50: Kafka's alone of the sends"
    yield compare(name, MILLISECONDS, measured["kafkabus"], measured["kafka"], Budget(3.0, at_most=True))


def _bare(bench: Workbench, count: int) -> float:
    """Return how long a transaction of Kafka's client takes, in milliseconds."""
    with bench.queue() as queue:
        topic = bench.topic(queue)
        producer = Producer({**bench.reference_options, "transactional.id": topic, "linger.ms": 5})
        producer.init_transactions(30)
        times: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            producer.begin_transaction()
            for _ in range(_EACH):
                producer.produce(topic, BODY, partition=0)
            producer.commit_transaction(30)
            times.append(time.perf_counter() - began)
        return median(times) * 1000


def _ours(bench: Workbench, count: int) -> float:
    """Return how long a kafkabus transaction takes from the beginning of its block to its end, in milliseconds."""
    with (
        bench.queue(count * _EACH, partitions=1) as source,
        bench.queue() as destination,
        bench.client() as client,
        client.get_queue_receiver(source) as receiver,
        client.get_queue_sender(destination) as sender,
    ):
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < count * _EACH:
            messages += receiver.receive_messages(count * _EACH - len(messages), max_wait_time=30)
        times: list[float] = []
        for first in range(0, len(messages), _EACH):
            began = time.perf_counter()
            with client.transaction() as transaction:
                sends = [ServiceBusMessage(BODY, partition_key="k") for _ in range(_EACH)]
                sender.send_messages(sends, transaction=transaction)
                receiver.complete_messages(messages[first : first + _EACH], transaction=transaction)
            times.append(time.perf_counter() - began)
        return median(times) * 1000
