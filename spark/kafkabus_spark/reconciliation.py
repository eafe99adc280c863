"""Counts of an entity's messages by their outcomes, from its log and the checkpoints alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kafkabus_mapping import headers as h
from kafkabus_mapping.names import SubQueue
from kafkabus_spark.columns import last_value
from kafkabus_spark.dead_letters import source_number
from kafkabus_spark.reader import read
from kafkabus_spark.states import Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def reconcile(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Count what became of the messages of a queue or subscription that Kafka still holds; no Redis is asked.

    Each message is in one of the columns behind ``messages``, which is their sum. The states are those of the last checkpoints,
    which upkeep writes every five seconds: a message that was settled since counts as it was before.

    ================== ================= ======================================================================================
    Column             Type              Meaning
    ================== ================= ======================================================================================
    ``partition_id``   int               Entity partition; the rows are in this order
    ``messages``       bigint            Number of messages
    ``completed``      bigint            Settled in another way than into the dead-letter queue: completed, forwarded, expired,
                                         or a duplicate
    ``dead_lettered``  bigint            Settled, and in the dead-letter queue's log
    ``active``         bigint            To be received, or locked
    ``deferred``       bigint            Deferred
    ``scheduled``      bigint            Scheduled for a time that has not come
    ================== ================= ======================================================================================

    Settled messages are deleted once they are older than the entity's ``settled_retention``, and dead letters that were settled
    as well: a message whose dead letter is deleted counts as completed. A scheduled message that was activated counts once; one
    that was cancelled does not count.

    Args:
        spark: A session with the Kafka connector.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: See ``read``; the entity is a topic.
        SparkError: See ``read``.
    """

    def messages(sub_queue: SubQueue | None, state: Selection | None) -> DataFrame:
        return read(
            spark,
            connection,
            entity,
            subscription=subscription,
            sub_queue=sub_queue,
            state=state,
            kafka_options=kafka_options,
            environment=environment,
        )

    sent = messages(None, Selection.ALL).where(F.col("state").isNotNull() | ~is_scheduled_copy())
    number = source_number(connection, entity, subscription, kafka_options, environment).alias("_number")
    # A message may be dead-lettered twice if its first move was cut off; the ledger drops one of the copies.
    dead = messages(SubQueue.DEAD_LETTER, None).select(number).where(F.col("_number").isNotNull()).distinct()
    found = sent.join(dead.withColumn("_dead", F.lit(True)), F.col("sequence_number") == F.col("_number"), "left")
    settled, is_dead = F.col("settled"), F.col("_dead").isNotNull()
    kinds = {
        "completed": settled & ~is_dead,
        "dead_lettered": settled & is_dead,
        **{name: F.col("state") == name for name in ("active", "deferred", "scheduled")},
    }
    counts = [F.count_if(condition).alias(name) for name, condition in kinds.items()]
    return found.groupBy("partition_id").agg(F.count("*").alias("messages"), *counts).orderBy("partition_id")


def is_scheduled_copy() -> Column:
    """Return whether a record holds a scheduled message before its time: another record holds it from then on."""
    waits = F.col("scheduled_enqueue_time_utc") > F.col("enqueued_time_utc")
    return F.coalesce(waits, F.lit(False)) & last_value(h.TRANSFER_SOURCE).isNull()
