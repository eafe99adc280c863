"""The last records of a namespace's compacted topics, which each have one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kafkabus_spark.kafka import FETCHING, SparkLocation, connector_options, load_records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def latest(spark: SparkSession, location: SparkLocation, topic: str, wanted: Column) -> dict[str, tuple[str, int]]:
    """Return the last values of some keys, and when they were written, in ms since 1970; without keys that were deleted.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.
        topic: The topic.
        wanted: A condition over ``key``, which is text.
    """
    key = F.col("key").cast("string").alias("key")
    records = _records(spark, location, topic).select(
        "offset", key, "value", F.unix_millis("timestamp").alias("written")
    )
    # To group them, Spark would need a second stage, which takes longer than to collect what compaction left.
    found = {row["key"]: row for row in sorted(records.where(wanted).collect(), key=lambda row: int(row["offset"]))}
    return {
        name: (bytes(row["value"]).decode(), row["written"]) for name, row in found.items() if row["value"] is not None
    }


def latest_records(spark: SparkSession, location: SparkLocation, topic: str, wanted: Column) -> DataFrame:
    """Return the last values of some keys as a frame, for a topic that may be large; see ``latest``."""
    records = _records(spark, location, topic).withColumn("key", F.col("key").cast("string")).where(wanted)
    last = records.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("last"))
    return last.select("key", F.col("last.value").alias("value")).where(F.col("value").isNotNull())


def _records(spark: SparkSession, location: SparkLocation, topic: str) -> DataFrame:
    return load_records(spark, connector_options(location, FETCHING) | {"subscribe": topic})
