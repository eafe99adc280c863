"""Dead letters, each with its reason, its source and the message that it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kafkabus_mapping import headers as h
from kafkabus_mapping.names import SubQueue
from kafkabus_spark.columns import last_value
from kafkabus_spark.kafka import location_of
from kafkabus_spark.reader import entity_path, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kafkabus_spark.states import Selection

ORIGINAL: Final = "original"
"""The column with the message as it was sent."""


def dead_letters(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    state: Selection | str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the dead letters of a queue or subscription, beside the messages that they were.

    The columns are those of ``read(…, sub_queue="deadletter")``, and ``original``: a struct of the columns of ``read`` for the
    message in the entity itself, with its sequence number, time and headers. It is null if its record was deleted, or if
    another entity forwarded its dead letters to this one.

    Args:
        spark: A session with the Kafka connector.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic.
        state: As for ``read``: ``unsettled`` for dead letters that still wait.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: See ``read``.
        SparkError: See ``read``.
    """
    dead = read(
        spark,
        connection,
        entity,
        subscription=subscription,
        sub_queue=SubQueue.DEAD_LETTER,
        state=state,
        kafka_options=kafka_options,
        environment=environment,
    )
    sent = read(spark, connection, entity, kafka_options=kafka_options, environment=environment)
    originals = sent.select(F.col("sequence_number").alias("_number"), F.struct(*sent.columns).alias(ORIGINAL))
    number = source_number(connection, entity, subscription, kafka_options, environment)
    return (
        dead.withColumn("_source", number)
        .join(originals, F.col("_source") == F.col("_number"), "left")
        .select(*dead.columns, ORIGINAL)
    )


def source_number(
    connection: str,
    entity: str,
    subscription: str | None,
    kafka_options: Mapping[str, str] | None,
    environment: Mapping[str, str] | None,
) -> Column:
    """Return the sequence number in the entity itself that a dead letter of it had; null if it came from elsewhere.

    The arguments are those of ``dead_letters``.
    """
    location = location_of(connection, environment, kafka_options)
    ledgers = f"{{{location.namespace}/{entity_path(location, entity, None, subscription).key}/"
    # The header is "<ledger>@<sequence number>".
    source = last_value(h.TRANSFER_SOURCE).cast("string")
    return F.when(source.startswith(ledgers), F.substring_index(source, "@", -1).try_cast("bigint"))
