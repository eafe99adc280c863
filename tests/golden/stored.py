"""All that a namespace stores, as text: taken from its topics and keys, and stored again elsewhere.

A topic that is created again has another id, which keys and descriptions contain: ids are replaced everywhere, as is the
namespace's name. Each record gets its offset and its time back; offsets of transactions' marks are filled with such marks.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from redis import Redis

from kafkabus._core.record import Record, StoredRecord
from kafkabus._core.settings import Settings, parse_settings
from kafkabus._kafka.client_factory import open_topics
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC, ENTITY_TOPIC, MARKER_TOPIC, Topics
from tests.kafka_log import KAFKA_LOG

PATIENCE = 60.0
VOLATILE = ("CLOCK",)
"""Topics of the namespace that hold nothing that has to outlive them."""

JsonBytes = str | dict[str, str] | None
"""A key, value or header: text, base 64 if it is no UTF-8, or nothing."""


def take(connection_string: str) -> dict[str, Any]:
    """Return all that a namespace stores, as JSON has it; nothing may be under way."""
    settings = parse_settings(connection_string)
    with _topics(settings) as topics, Redis.from_url(settings.redis_url.reveal(), decode_responses=True) as redis:
        own = [name for name in sorted(topics.names()) if name.startswith(f"{settings.namespace}.")]
        return {
            "namespace": settings.namespace,
            "topics": [_topic(settings, topics, name) for name in own if name.partition(".")[2] not in VOLATILE],
            "redis": dict(_keys(redis, settings.namespace)),
        }


def put(stored: dict[str, Any], connection_string: str, *, redis: bool, same_topics: bool = True) -> dict[str, Any]:
    """Store all of it in an empty namespace, whatever its name is; return it with the ids and the name that it has now.

    Args:
        stored: As ``take`` returned it.
        connection_string: The namespace.
        redis: Whether to store the keys of Redis as well.
        same_topics: Whether to replace the topics' ids. Without that, topics and descriptions are like those that a plain copy
            of records leaves.
    """
    settings = parse_settings(connection_string)
    text = json.dumps(stored)
    # Names of topics, keys and channels begin with it, and hash tags contain it.
    for before, behind in (('"', "."), ('"', '"'), ("{", "/"), ("{", "}"), (":", "/")):
        text = text.replace(f"{before}{stored['namespace']}{behind}", f"{before}{settings.namespace}{behind}")
    with _topics(settings) as topics:
        for topic in json.loads(text)["topics"]:
            topics.create(topic["name"], topic["partitions"], _settings_of(topic["name"]))
            if same_topics:
                text = text.replace(topic["id"], topics.wait_for(topic["name"]).topic_id)
        wanted: dict[str, Any] = json.loads(text)
        writer = _Writer(settings)
        for topic in wanted["topics"]:
            writer.write(topic)
            if _is_entity(topic["name"]):
                topics.configure_entity(topic["name"])
            topics.delete_records(
                topic["name"], {partition: start for partition, start in enumerate(topic["starts"]) if start}
            )
    if redis:
        with Redis.from_url(settings.redis_url.reveal(), decode_responses=True) as store:
            _put_keys(store, wanted["redis"])
    return wanted


@contextmanager
def _topics(settings: Settings) -> Generator[Topics]:
    topics = open_topics(settings)
    try:
        yield topics
    finally:
        topics.close()


def _is_entity(topic: str) -> bool:
    # Those of the namespace's own have a purpose in capitals there.
    return not topic.partition(".")[2].isupper()


def _settings_of(topic: str) -> dict[str, str]:
    if _is_entity(topic):
        return {**ENTITY_TOPIC, "message.timestamp.type": "CreateTime"}
    # Old markers would be deleted soon.
    return dict(MARKER_TOPIC if topic.endswith(".TRANSACTIONS") else COMPACTED_TOPIC)


def _topic(settings: Settings, topics: Topics, name: str) -> dict[str, Any]:
    described = topics.describe(name)
    assert described is not None
    partitions = range(described.partitions)
    ends = topics.stored_ends(name, partitions)
    assert ends == topics.ends(name, partitions), f"a transaction of {name} is open"
    starts = topics.starts(name, partitions)
    return {
        "name": name,
        "id": described.topic_id,
        "partitions": described.partitions,
        "starts": [starts[partition] for partition in partitions],
        "ends": [ends[partition] for partition in partitions],
        "records": list(_records(settings, name, described.partitions)),
    }


def _records(settings: Settings, topic: str, partitions: int) -> Iterator[list[Any]]:
    """Yield partition, offset, time, key, value and headers of each committed record."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "group.id": "golden",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    for partition in range(partitions):
        consumer = Consumer(options, logger=KAFKA_LOG)
        consumer.assign([TopicPartition(topic, partition, 0)])
        try:
            while True:
                record = consumer.poll(PATIENCE)
                assert record is not None, f"{topic} does not end"
                error = record.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                (_, _, offset), (key, value, headers), (_, moment) = StoredRecord.copy(cast("Record", record))
                named = [[name, _as_json(content)] for name, content in headers]
                yield [partition, offset, moment, _as_json(key), _as_json(value), named]
        finally:
            consumer.close()


def _as_json(content: bytes | None) -> JsonBytes:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _as_bytes(content: JsonBytes) -> bytes | None:
    if isinstance(content, dict):
        return base64.b64decode(content["base64"])
    return None if content is None else content.encode()


class _Writer:
    """Writes the records of topics, each at its offset.

    Args:
        settings: The namespace.
    """

    def __init__(self, settings: Settings) -> None:
        servers = {"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 0}
        self._plain = Producer({**servers, "acks": "all"}, logger=KAFKA_LOG)
        self._transactional = Producer(
            {**servers, "transactional.id": f"golden-{settings.namespace}"}, logger=KAFKA_LOG
        )
        self._transactional.init_transactions(PATIENCE)
        self._topic = ""

    def write(self, topic: dict[str, Any]) -> None:
        """Write all records of a topic, as ``take`` returned it."""
        self._topic = topic["name"]
        records: defaultdict[int, list[list[Any]]] = defaultdict(list)
        for record in topic["records"]:
            records[record[0]].append(record)
        for partition, (start, end) in enumerate(zip(topic["starts"], topic["ends"], strict=True)):
            its = records[partition]
            self._fill(partition, its[0][1] if its else end, trimmed=start)
            followings = [*(one[1] for one in its), end][1:]
            for record, following in zip(its, followings, strict=True):
                self._store(record, following - record[1] - 1)

    def _store(self, record: list[Any], gap: int) -> None:
        """Store a record, and something in its stead at so many offsets behind it."""
        partition, offset, moment, key, value, headers = record
        content: dict[str, Any] = {
            "key": _as_bytes(key),
            "value": _as_bytes(value),
            "headers": [(name, _as_bytes(one)) for name, one in headers],
            "partition": partition,
            "timestamp": moment,
        }
        if gap == 1:
            # The mark of the transaction that stored it.
            with self._transaction(commit=True) as producer:
                self._produce(producer, offset, content)
            return
        self._produce(self._plain, offset, content)
        self._fill(partition, gap)

    def _fill(self, partition: int, gap: int, trimmed: int = 0) -> None:
        """Fill so many offsets with records that no client sees."""
        if not gap:
            return
        if gap <= trimmed:
            for _ in range(gap):
                self._produce(self._plain, None, {"value": b"trimmed", "partition": partition})
            return
        assert gap > 1, f"one offset of {self._topic} is missing"
        with self._transaction(commit=False) as producer:
            for _ in range(gap - 1):
                self._produce(producer, None, {"value": b"aborted", "partition": partition})

    @contextmanager
    def _transaction(self, *, commit: bool) -> Generator[Producer]:
        producer = self._transactional
        producer.begin_transaction()
        yield producer
        if commit:
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)

    def _produce(self, producer: Producer, offset: int | None, content: dict[str, Any]) -> None:
        stored: list[int | None] = []

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            stored.append(message.offset())

        producer.produce(self._topic, on_delivery=note, **content)
        assert producer.flush(PATIENCE) == 0
        assert offset is None or stored == [offset], f"{self._topic}: {stored} is not {offset}"


def _keys(redis: Redis, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    patterns = (f"{{{namespace}}}*", f"{{{namespace}/*")
    keys: list[str] = sorted(str(key) for pattern in patterns for key in redis.scan_iter(pattern))
    for key in keys:
        kind = redis.type(key)
        value: Any = redis.get(key) if kind == "string" else redis.hgetall(key) if kind == "hash" else None
        if kind == "zset":
            value = redis.zrange(key, 0, -1, withscores=True)
        assert value is not None, f"{key} is a {kind!r}"
        yield key, {"type": kind, "value": value, "ttl": redis.pttl(key)}


def _put_keys(redis: Redis, keys: dict[str, dict[str, Any]]) -> None:
    for key, one in keys.items():
        if one["type"] == "hash":
            redis.hset(key, mapping=one["value"])
        elif one["type"] == "zset":
            redis.zadd(key, dict(one["value"]))
        else:
            redis.set(key, one["value"])
        if one["ttl"] > 0:
            redis.pexpire(key, one["ttl"])
