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
from kafkabus_spark.kafka import KAFKA_SCHEMA, check_connector, java_options, look_up
from kafkabus_spark.subscriptions import choice, described_subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FETCHING: Final = {"fetch.max.wait.ms": "10", "max.poll.records": "5000"}
"""How Kafka's client fetches for Spark, which fetches nothing but what it knows to be there.

After each poll Spark asks, on the same connection, where the log begins and ends. At the end of the log that question waits
behind the fetch that the client began meanwhile: with Kafka's default of 500 ms, half a second in every task. And it ends
with a seek, which throws away what was fetched and not polled: with Kafka's default of 500 records, half of each megabyte
of small messages.
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
    """All messages of an entity that Kafka still holds, settled ones included.

    Only committed messages are read (``read_committed``). Columns that a query does not use cost nothing.

    ================================= ======================== ======================================================
    Column                            Type                     Meaning
    ================================= ======================== ======================================================
    ``body``                          binary                   The body as it was sent
    ``message_id``                    string                   ``topic/partition/offset`` where no facade wrote it
    ``session_id``, ``partition_key`` string                   A foreign record's key reads as its partition key
    ``correlation_id``, ``subject``,  string                   As sent
    ``content_type``, ``to``,
    ``reply_to``,
    ``reply_to_session_id``
    ``time_to_live``                  interval day to second   The message's own
    ``scheduled_enqueue_time_utc``    timestamp                As sent; a scheduled message is stored twice, before its
                                                               time and at it, then with ``sb-transfer-source`` in
                                                               ``headers``
    ``sequence_number``               bigint                   ``partition << 48 | (offset + 1)``
    ``partition_id``, ``offset``      int, bigint              Where Kafka holds it
    ``enqueued_time_utc``             timestamp                The broker's clock, exact to the millisecond
    ``expires_at_utc``                timestamp                Null where that is never, and in a dead-letter queue
    ``dead_letter_reason``,           string                   In a dead-letter queue, and where one was copied from
    ``dead_letter_error_description``
    ``dead_letter_source``
    ``enqueued_sequence_number``      bigint                   Its number where it was first enqueued
    ``body_type``                     string                   ``sequence`` or ``value`` for JSON bodies, null for bytes
    ``application_properties``        map<string,string>       Foreign headers too; tagged values show their content
    ``application_properties_json``   string                   Its header as it was written, valid or not
    ``headers``                       array<struct>            The record's headers, raw
    ================================= ======================== ======================================================

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; Redis need not be named in it.
        entity: Name of the queue or topic.
        subscription: Name of one of the topic's subscriptions: only what that gets, by the rules that it has when this is
            called and, for messages that were sent before those were changed, by the rules of then. Default all that the
            topic's log holds: what was sent, and copies for one subscription alone, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for its dead-letter queue; empty as long as nothing was dead-lettered.
        starting_offsets: As for Spark's Kafka source: ``earliest`` or JSON per partition.
        ending_offsets: As for Spark's Kafka source: ``latest`` or JSON per partition.
        fail_on_data_loss: Whether a query fails when records that it was to read are gone.
        min_partitions: Fewest Spark tasks to read with; default one for each entity partition.
        default_time_to_live: The queue's or topic's, for ``expires_at_utc``; default for ever. A subscription's own and its
            topic's count besides: the shortest of them.
        environment: ``KAFKABUS_…`` variables, for what the string leaves out; default the process's.

    Raises:
        ValueError: The connection string, or a name, is malformed; or the string is for another entity; or a rule of the
            subscription that counts for any message has an action.
        EntityNotFoundError: Kafka has no such topic, or there is no such subscription.
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
    """An entity's messages as they come, after those that Kafka holds; settling does not take them away.

    Columns and errors are those of ``read``.

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; Redis need not be named in it.
        entity: Name of the queue or topic.
        subscription: Name of one of the topic's subscriptions: only what that gets, by the rules that it has when this is
            called and, for messages that were sent before those were changed, by the rules of then. Default all that the
            topic's log holds: what was sent, and copies for one subscription alone, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for its dead-letter queue, also before its first message.
        starting_offsets: Where a query without a checkpoint begins: ``earliest``, ``latest`` or JSON per partition.
        fail_on_data_loss: Whether the query fails when records that it was to read are gone: a queue trims what is settled
            and older than its ``settled_retention``.
        max_offsets_per_trigger: Most messages in a micro-batch; default no limit.
        default_time_to_live: The queue's or topic's, for ``expires_at_utc``; default for ever. A subscription's own and its
            topic's count besides: the shortest of them.
        environment: ``KAFKABUS_…`` variables, for what the string leaves out; default the process's.
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
        # A pattern finds the topic when it comes.
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
    """How many partitions an entity has; arguments and errors are those of ``read``."""
    location = _location(connection, environment)
    partitions, _ = look_up(spark, location, entity_path(location, entity, sub_queue))
    return partitions


def entity_path(
    location: KafkaLocation, entity: str, sub_queue: SubQueue | str | None, subscription: str | None = None
) -> EntityPath:
    """The entity that is meant.

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
    """Whose log is read, what of it is wanted, and how long messages live that do not say so.

    Raises:
        EntityNotFoundError: There is no such subscription.
        ValueError: What its rules make of messages cannot be computed here.
    """
    if split_subscription(path.name) is None or path.is_dead_letter:
        return path, None, default_time_to_live
    check_connector(spark)
    described = described_subscription(spark, location, path.name)
    lives = [one for one in (described.default_message_time_to_live, described.topic_time_to_live) if one < FOREVER]
    if default_time_to_live is not None:
        lives.append(default_time_to_live)
    return EntityPath(described.topic_entity), choice(described), min(lives, default=None)


def _location(connection: str, environment: Mapping[str, str] | None) -> KafkaLocation:
    return parse_kafka_location(connection, os.environ if environment is None else environment)


def _source_options(spark: SparkSession, location: KafkaLocation, path: EntityPath) -> dict[str, str]:
    check_connector(spark)
    client = FETCHING | java_options(location)
    return {f"kafka.{name}": value for name, value in client.items()} | {
        "subscribe": topic_name(location.namespace, path),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
