"""Write to an entity's topic as any Kafka producer may."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from tests.spark.records import WrittenRecord


def write(bootstrap_servers: str, topic: str, partitions: int, records: Iterable[tuple[bytes, WrittenRecord]]) -> None:
    """Store bodies with their records, over the partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    failures: list[object] = []
    for number, (body, record) in enumerate(records):
        producer.produce(
            topic,
            key=record.key,
            value=body,
            headers=list(record.headers),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []
