"""Reports over an entity's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOT_OVER: Final = 1.5
"""A partition is hot if it holds more than this many times the mean of all partitions."""


def partition_report(
    messages: DataFrame,
    *,
    partitions: int | None = None,
    value: Column | None = None,
    hot_over: float = HOT_OVER,
    top_keys: int = 3,
) -> DataFrame:
    """Report which partitions of an entity are hot, with the keys that explain it.

    A partition is hot if it holds more than ``hot_over`` times the mean number of messages per partition. Messages with the
    same key share a partition, so the keys with the most messages explain why. The messages are read once.

    ================ ================================= ===========================================================
    Column           Type                              Meaning
    ================ ================================= ===========================================================
    ``partition_id`` int                               Entity partition; the rows are in this order
    ``messages``     bigint                            Number of its messages
    ``bytes``        bigint                            Total size of their bodies
    ``mean_value``   double                            Mean of ``value``, nulls left out; null without ``value``
    ``share``        double                            Share of all messages, 0 to 1
    ``hot``          boolean                           Whether it is hot, as defined above
    ``keys``         bigint                            Number of different partition keys in it
    ``top_keys``     array<struct<key, messages>>      Its keys with the most messages; null for messages without one
    ================ ================================= ===========================================================

    Args:
        messages: An entity's messages, as ``read`` returns them, or any part of them.
        partitions: How many partitions the entity has (``partition_count``), so that empty ones count in the mean and get a
            row; default only those that hold messages.
        value: A column over ``messages`` whose mean to report.
        hot_over: The multiple of the mean above which a partition is hot.
        top_keys: How many keys to list for each partition.
    """
    number = F.lit(None).cast("double") if value is None else value.cast("double")
    by_key = (
        messages.select("partition_id", "partition_key", F.length("body").alias("size"), number.alias("number"))
        .groupBy("partition_id", "partition_key")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.sum("number").alias("total"),
            F.count("number").alias("counted"),
        )
    )
    largest_first = Window.partitionBy("partition_id").orderBy(F.desc("messages"), F.asc("partition_key"))
    key = F.struct(F.col("partition_key").alias("key"), F.col("messages"))
    by_partition = (
        by_key.withColumn("rank", F.row_number().over(largest_first))
        .groupBy("partition_id")
        .agg(
            F.sum("messages").alias("messages"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
            (F.sum("total") / F.nullif(F.sum("counted"), F.lit(0))).alias("mean_value"),
            F.count("*").alias("keys"),
            F.sort_array(F.collect_list(F.when(F.col("rank") <= top_keys, F.struct("rank", key.alias("key"))))).alias(
                "top"
            ),
        )
    )
    if partitions is not None:
        every = messages.sparkSession.range(partitions).select(F.col("id").cast("int").alias("partition_id"))
        by_partition = every.join(by_partition, "partition_id", "left").fillna(0, ["messages", "bytes", "keys"])
    everywhere = Window.partitionBy(F.lit(0))
    held = F.col("messages")
    return by_partition.select(
        "partition_id",
        "messages",
        "bytes",
        "mean_value",
        F.coalesce(F.try_divide(held, F.sum(held).over(everywhere)), F.lit(0.0)).alias("share"),
        (held > F.avg(held).over(everywhere) * hot_over).alias("hot"),
        "keys",
        F.coalesce(
            F.transform("top", lambda one: one["key"]), F.array().cast("array<struct<key:string,messages:bigint>>")
        ).alias("top_keys"),
    ).orderBy("partition_id")
