"""Topics: the cost of a selective filter for the reader, and of many subscriptions for the sender."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave
from benchmarks.rows.receive_and_delete import consume
from benchmarks.rows.send import send_batches
from benchmarks.steady import SETTLING_IN, timed_steadily
from benchmarks.workbench import BODY, BODY_SIZE, PARTITIONS, Workbench
from kafkabus import ServiceBusMessage, ServiceBusSender
from kafkabus.management import CorrelationRuleFilter, ServiceBusAdministrationClient

BATCH = 100
ONE_IN = 100
"""The filter passes one message in this many."""
_READ = 1_000_000
_SENT = 20_000
_MANY = 20
"""The number of subscriptions of the topic with many."""


def topics(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure a subscription whose correlation filter passes 1 message in 100, and sending to 20 subscriptions."""
    with ServiceBusAdministrationClient.from_connection_string(bench.connection_string) as administration:
        yield _read_by_a_filter(bench, scale, administration)
        yield from _send_to_many(bench, scale, administration)


def _read_by_a_filter(bench: Workbench, scale: Scale, administration: ServiceBusAdministrationClient) -> Result:
    """Measure receiving and completing batches of 100 until 1,000,000 records were read, with a new subscription each round."""
    topic, names = "read-by-a-filter", (f"s{number}" for number in itertools.count())
    administration.create_topic(topic, enable_partitioning=True)
    try:
        waiting = [next(names) for _ in range(scale.rounds + 1)]
        for name in waiting:
            administration.create_subscription(topic, name)
            administration.create_rule(topic, name, "mine", filter=CorrelationRuleFilter(label="0"))
            administration.delete_rule(topic, name, "$Default")
        settling_in, count = (scale.count(full, multiple_of=BATCH * ONE_IN) for full in (SETTLING_IN, _READ))
        # The records behind the last wanted message are more than a reader fetches ahead.
        _fill(bench, topic, settling_in + count + BATCH * ONE_IN)
        measured = interleave(
            {
                "consumer": lambda timed: consume(bench, bench.topic(topic), settling_in, timed),
                "kafkabus": lambda timed: _receive(bench, topic, waiting.pop(), settling_in, timed),
            },
            count,
            scale,
        )
    finally:
        administration.delete_topic(topic)
    return compare(
        f"read with a correlation filter that passes 1 in {ONE_IN}, 1 KB: Kafka consumer",
        MESSAGES_PER_SECOND,
        measured["kafkabus"],
        measured["consumer"],
        Budget(0.5),
    )


def _fill(bench: Workbench, topic: str, count: int) -> None:
    with bench.client() as client, client.get_topic_sender(topic) as sender:
        for _ in range(count // BATCH):
            sender.send_messages([ServiceBusMessage(BODY, subject=str(number % ONE_IN)) for number in range(BATCH)])


def _receive(bench: Workbench, topic: str, subscription: str, settling_in: int, count: int) -> float:
    with bench.client() as client, client.get_subscription_receiver(topic, subscription) as receiver:

        def receive() -> int:
            messages = receiver.receive_messages(BATCH)
            receiver.complete_messages(messages)
            return len(messages) * ONE_IN

        return timed_steadily(receive, settling_in, count)


def _send_to_many(bench: Workbench, scale: Scale, administration: ServiceBusAdministrationClient) -> Iterator[Result]:
    """Measure batches of 100, as in the row ``send``, to a topic with 20 subscriptions and to a topic with one."""
    with bench.client() as client:
        senders: dict[str, ServiceBusSender] = {}
        for topic, subscriptions in (("one", 1), ("many", _MANY)):
            administration.create_topic(topic, enable_partitioning=True)
            for number in range(subscriptions):
                administration.create_subscription(topic, f"s{number}")
            senders[topic] = client.get_topic_sender(topic)
        sent = dict.fromkeys(senders, 0)

        def send(topic: str, count: int) -> float:
            sent[topic] += count
            return send_batches(senders[topic], count)

        measured = interleave(
            {topic: lambda count, topic=topic: send(topic, count) for topic in senders},  # type: ignore[misc]
            scale.count(_SENT, multiple_of=BATCH),
            scale,
        )
        stored = {topic: _stored(bench, topic) / sent[topic] for topic in senders}
        for topic in senders:
            administration.delete_topic(topic)
    name = f"send to a topic with {_MANY} subscriptions, batches of {BATCH}, 1 KB"
    yield compare(f"{name}: with one", MESSAGES_PER_SECOND, measured["many"], measured["one"], Budget(0.95))
    yield Result(
        f"{name}, bytes that Kafka stores for each: with one",
        stored["many"],
        "bytes",
        stored["one"],
        stored["many"] / stored["one"],
        Budget(1.01, at_most=True),
        f"of which {BODY_SIZE} are the body",
    )


def _stored(bench: Workbench, topic: str) -> int:
    """Return the size of the segments of a topic's logs, in bytes."""
    folders: Iterator[Path] = bench.scratch.glob(f"runtime/broker-*/records/{bench.topic(topic)}-*")
    partitions = [folder for folder in folders if folder.name.rpartition("-")[2].isdecimal()]
    if len(partitions) != PARTITIONS:
        raise RuntimeError(f"{topic} has {len(partitions)} folders of partitions under {bench.scratch}")
    return sum(segment.stat().st_size for folder in partitions for segment in folder.glob("*.log"))
