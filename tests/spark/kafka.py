"""Write to an entity's topic as any Kafka producer may, and read what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from kafkabus_mapping.codec import Headers
from tests.kafka_log import KAFKA_LOG
from tests.spark.records import WrittenRecord


def write(bootstrap_servers: str, topic: str, partitions: int, records: Iterable[tuple[bytes, WrittenRecord]]) -> None:
    """Store bodies with their records, over the partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20}, logger=KAFKA_LOG)
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


@dataclass(frozen=True)
class StoredRecord:
    """A record of a topic, or one that is expected there, where None means any partition."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def stored(bootstrap_servers: str, topic: str, partitions: int) -> list[StoredRecord]:
    """Return all records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "none", "isolation.level": "read_committed"},
        logger=KAFKA_LOG,
    )
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
        consumer.assign([place for place in places if ends[place.partition]])
        found: list[StoredRecord] = []
        left = sum(ends.values())
        while left:
            for message in consumer.consume(left, 30):
                assert message.error() is None
                number, key, value = message.partition(), message.key(), message.value()
                found.append(StoredRecord(number, key, value, message.headers() or []))  # type: ignore[arg-type]
                left -= 1
        return found
    finally:
        consumer.close()
