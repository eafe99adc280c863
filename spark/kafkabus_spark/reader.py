"""An entity as a DataFrame, in batch and as a stream."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kafkabus_mapping.connection import KafkaLocation, parse_kafka_location
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.names import (
    EntityPath,
    SubQueue,
    check_entity,
    split_subscription,
    subscription_name,
    topic_name,
)
from kafkabus_spark.columns import Choice, decoded
from kafkabus_spark.descriptions import check_format, described_subscription
from kafkabus_spark.kafka import KAFKA_SCHEMA, check_connector, java_options, look_up, read_text
from kafkabus_spark.subscriptions import choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FETCHING: Final = {"fetch.max.wait.ms": "10", "max.poll.records": "5000"}
"""Fetch options of Kafka's client for Spark, which fetches only records that it knows to exist.

After each poll Spark asks, on the same connection, for the begin and the end of the log. At the end of the log this request
waits behind the fetch that the client has begun meanwhile: with Kafka's default of 500 ms, half a second in every task. Spark
then seeks, which discards the records that were fetched but not polled: with Kafka's default of 500 records, half of each
megabyte of small messages.
"""


def read(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    starting_offsets: str = "earliest",
    ending_offsets: str = "latest",
    fail_on_data_loss: bool = True,
    min_partitions: int | None = None,
    default_time_to_live: timedelta | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return all messages of an entity that Kafka still holds, including settled ones.

    Only committed messages are read (``read_committed``). Columns that a query does not use cost nothing.

    ================================= ======================== ======================================================
    Column                            Type                     Meaning
    ================================= ======================== ======================================================
    ``body``                          binary                   The body as sent
    ``message_id``                    string                   ``topic/partition/offset`` if the sender set none
    ``session_id``, ``partition_key`` string                   The partition key of a foreign record is the record's key
    ``correlation_id``, ``subject``,  string                   As sent
    ``content_type``, ``to``,
    ``reply_to``,
    ``reply_to_session_id``
    ``time_to_live``                  interval day to second   The message's own
    ``scheduled_enqueue_time_utc``    timestamp                As sent; a scheduled message is stored twice, before its
                                                               time and at it, then with ``sb-transfer-source`` in
                                                               ``headers``
    ``sequence_number``               bigint                   ``partition << 48 | (offset + 1)``
    ``partition_id``, ``offset``      int, bigint              Partition and offset of its record in Kafka
    ``enqueued_time_utc``             timestamp                The broker's clock, exact to the millisecond
    ``expires_at_utc``                timestamp                Null if it never expires, and in a dead-letter queue
    ``dead_letter_reason``,           string                   Set in a dead-letter queue and on copies from one
    ``dead_letter_error_description``
    ``dead_letter_source``
    ``enqueued_sequence_number``      bigint                   Its number in the entity where it was first enqueued
    ``body_type``                     string                   ``sequence`` or ``value`` for JSON bodies, null for bytes
    ``application_properties``        map<string,string>       Includes foreign headers; tagged values as plain text
    ``application_properties_json``   string                   Its header as written, valid or not
    ``headers``                       array<struct>            The record's headers, raw
    ================================= ======================== ======================================================

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic, to read only its messages. Its rules at the time of this call
            select them; for messages sent before the rules were changed, the earlier rules do. Default all records of the
            topic's log: the messages sent, and copies for one subscription, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for the dead-letter queue, which is empty until a message is dead-lettered.
        starting_offsets: As for Spark's Kafka source: ``earliest`` or JSON per partition.
        ending_offsets: As for Spark's Kafka source: ``latest`` or JSON per partition.
        fail_on_data_loss: Whether a query fails if records that it should read were deleted.
        min_partitions: The minimum number of Spark tasks to read with; default one for each entity partition.
        default_time_to_live: The default of the queue or topic, for ``expires_at_utc``; default for ever. For a subscription,
            the shortest of this, its own and its topic's default applies.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.

    Raises:
        ValueError: The connection string, or a name, is malformed; or the string is for another entity; or a rule of the
            subscription that counts for any message has an action.
        EntityNotFoundError: Kafka has no such topic, or there is no such subscription.
        NamespaceFormatError: The namespace is stored in a format that this version does not read.
        NamespaceUnreachableError: Kafka does not answer.
        ConnectorMissingError: The session has no Kafka connector.
    """
    location = _location(connection, environment)
    path, wanted, lives = _meant(
        spark, location, entity_path(location, entity, sub_queue, subscription), default_time_to_live
    )
    options = _source_options(spark, location, path) | {
        "startingOffsets": starting_offsets,
        "endingOffsets": ending_offsets,
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    _, has_topic = look_up(spark, location, path)
    kafka = spark.read.format("kafka").options(**options)
    source = kafka.load() if has_topic else spark.createDataFrame([], KAFKA_SCHEMA)
    return decoded(source, default_time_to_live=lives, expires=not path.is_dead_letter, wanted=wanted)


def read_stream(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    starting_offsets: str = "earliest",
    fail_on_data_loss: bool = True,
    max_offsets_per_trigger: int | None = None,
    default_time_to_live: timedelta | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a stream of an entity's messages: those that Kafka holds, then new ones; settled messages are included.

    Columns and errors are those of ``read``.

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic, to read only its messages. Its rules at the time of this call
            select them; for messages sent before the rules were changed, the earlier rules do. Default all records of the
            topic's log: the messages sent, and copies for one subscription, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for the dead-letter queue, which may still have no message.
        starting_offsets: The offsets at which a query without a checkpoint begins: ``earliest``, ``latest`` or JSON per
            partition.
        fail_on_data_loss: Whether the query fails if records that it should read were deleted: settled records are trimmed
            once they are older than the queue's ``settled_retention``.
        max_offsets_per_trigger: The maximum number of messages in a micro-batch; default no limit.
        default_time_to_live: The default of the queue or topic, for ``expires_at_utc``; default for ever. For a subscription,
            the shortest of this, its own and its topic's default applies.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.
    """
    location = _location(connection, environment)
    path, wanted, lives = _meant(
        spark, location, entity_path(location, entity, sub_queue, subscription), default_time_to_live
    )
    options = _source_options(spark, location, path) | {
        "startingOffsets": starting_offsets,
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    _, has_topic = look_up(spark, location, path)
    if not has_topic:
        # A pattern finds the topic once it is created.
        options["subscribePattern"] = re.escape(options.pop("subscribe"))
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    source = spark.readStream.format("kafka").options(**options).load()
    return decoded(source, default_time_to_live=lives, expires=not path.is_dead_letter, wanted=wanted)


def partition_count(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    sub_queue: SubQueue | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Return how many partitions an entity has; arguments and errors are those of ``read``."""
    location = _location(connection, environment)
    partitions, _ = look_up(spark, location, entity_path(location, entity, sub_queue))
    return partitions


def entity_path(
    location: KafkaLocation, entity: str, sub_queue: SubQueue | str | None, subscription: str | None = None
) -> EntityPath:
    """Return the entity that the arguments name.

    Raises:
        ValueError: A name or the sub-queue is malformed, or the connection string is for another entity.
    """
    try:
        wanted = SubQueue(sub_queue or "")
    except ValueError:
        choices = [choice.value for choice in SubQueue if choice.value]
        raise ValueError(f"sub_queue {sub_queue!r}: choose from {choices}, or None for the entity itself") from None
    name = check_entity(entity) if subscription is None else subscription_name(entity, subscription)
    if location.entity_path is not None and location.entity_path.lower() not in {entity.lower(), name.lower()}:
        raise ValueError(f"the connection string is for {location.entity_path!r} alone (EntityPath), not for {name!r}")
    return EntityPath(name, wanted)


def _meant(
    spark: SparkSession, location: KafkaLocation, path: EntityPath, default_time_to_live: timedelta | None
) -> tuple[EntityPath, Choice | None, timedelta | None]:
    """Return the entity whose log to read, the selection of its messages, and the default time to live.

    Raises:
        EntityNotFoundError: The subscription does not exist.
        NamespaceFormatError: The namespace is stored in a format that this version does not read.
        ValueError: A rule of the subscription has an action, which Spark cannot compute.
    """
    check_connector(spark)
    check_format(spark, location)
    if split_subscription(path.name) is None or path.is_dead_letter:
        return path, None, default_time_to_live
    described = described_subscription(spark, location, path.name)
    lives = [one for one in (described.default_message_time_to_live, described.topic_time_to_live) if one < FOREVER]
    if default_time_to_live is not None:
        lives.append(default_time_to_live)
    return EntityPath(described.topic_entity), choice(described), min(lives, default=None)


def _location(connection: str, environment: Mapping[str, str] | None) -> KafkaLocation:
    return parse_kafka_location(connection, os.environ if environment is None else environment, read_text)


def _source_options(spark: SparkSession, location: KafkaLocation, path: EntityPath) -> dict[str, str]:
    check_connector(spark)
    client = FETCHING | java_options(location)
    return {f"kafka.{name}": value for name, value in client.items()} | {
        "subscribe": topic_name(location.namespace, path),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
