"""Reports over an entity's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

HOT_OVER: Final = 1.5
"""A partition is hot if it holds more than this many times the mean of all partitions."""
_TOTAL: Final = "_total"
_ROWS: Final = "_rows"


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
    held, total = F.col("messages"), F.col(_TOTAL)
    return (
        _beside_total(by_partition, "messages")
        .select(
            "partition_id",
            "messages",
            "bytes",
            "mean_value",
            F.coalesce(F.try_divide(held, total), F.lit(0.0)).alias("share"),
            (held > total / F.col(_ROWS) * hot_over).alias("hot"),
            "keys",
            F.coalesce(
                F.transform("top", lambda entry: entry["key"]),
                F.array().cast("array<struct<key:string,messages:bigint>>"),
            ).alias("top_keys"),
        )
        .orderBy("partition_id")
    )


def partition_history(
    messages: DataFrame,
    *,
    every: str = "1 hour",
    partitions: int | None = None,
    time: Column | None = None,
    hot_over: float = HOT_OVER,
) -> DataFrame:
    """Report which partitions of an entity are hot when: partitions that balance over a day may be hot for an hour.

    ================ ================================= ===========================================================
    Column           Type                              Meaning
    ================ ================================= ===========================================================
    ``time``         timestamp                         Begin of the period; the rows are in this order, then by partition
    ``partition_id`` int                               Entity partition; without rows for periods in which it got nothing
    ``messages``     bigint                            Number of messages
    ``share``        double                            Share of the period's messages, 0 to 1
    ``hot``          boolean                           Whether it got more than ``hot_over`` times the mean of the period
    ================ ================================= ===========================================================

    Args:
        messages: An entity's messages, as ``read`` returns them, or any part of them.
        every: The length of a period, as Spark's ``window`` takes it, such as ``"1 minute"``.
        partitions: How many partitions the entity has (``partition_count``); default those that got messages in a period.
        time: The time of a message; default ``enqueued_time_utc``. Messages for which it is null are left out.
        hot_over: The multiple of the mean above which a partition is hot.
    """
    counted = _each_period(messages, every, time, F.col("partition_id"), "partition_id").agg(
        F.count("*").alias("messages")
    )
    of_period = Window.partitionBy("time")
    held, total = F.col("messages"), F.sum("messages").over(of_period)
    count = F.count("*").over(of_period) if partitions is None else F.lit(partitions)
    return counted.select(
        "time",
        "partition_id",
        "messages",
        (held / total).alias("share"),
        (held > total / count * hot_over).alias("hot"),
    ).orderBy("time", "partition_id")


def session_history(
    messages: DataFrame, *, every: str = "1 hour", session: Column | None = None, time: Column | None = None
) -> DataFrame:
    """Report how unevenly messages fall on sessions, and when: a session is received by one receiver at a time.

    ================ ================================= ===========================================================
    Column           Type                              Meaning
    ================ ================================= ===========================================================
    ``time``         timestamp                         Begin of the period; the rows are in this order
    ``sessions``     bigint                            Number of different sessions
    ``messages``     bigint                            Number of their messages
    ``largest``      string                            The session with the most messages
    ``in_largest``   bigint                            Number of its messages
    ``skew``         double                            How many times the mean of all sessions that is; 1 is even
    ================ ================================= ===========================================================

    Args:
        messages: An entity's messages, as ``read`` returns them, or any part of them.
        every: The length of a period, as Spark's ``window`` takes it.
        session: The session of a message; default ``session_id``. Messages for which it is null are left out.
        time: The time of a message; default ``enqueued_time_utc``. Messages for which it is null are left out.
    """
    key = (F.col("session_id") if session is None else session).cast("string")
    counted = _each_period(messages, every, time, key, "session").agg(F.count("*").alias("messages"))
    by_period = (
        counted.where(F.col("session").isNotNull())
        .groupBy("time")
        .agg(
            F.count("*").alias("sessions"),
            F.sum("messages").alias("messages"),
            # Of sessions with the same number, the first one.
            F.min(F.struct((-F.col("messages")).alias("negative"), "session")).alias("first"),
        )
    )
    largest = -F.col("first.negative")
    return by_period.select(
        "time",
        "sessions",
        "messages",
        F.col("first.session").alias("largest"),
        largest.alias("in_largest"),
        (largest / (F.col("messages") / F.col("sessions"))).alias("skew"),
    ).orderBy("time")


def dead_letter_report(dead: DataFrame) -> DataFrame:
    """Report why messages were dead-lettered.

    ==================== ============================= ===========================================================
    Column               Type                          Meaning
    ==================== ============================= ===========================================================
    ``reason``           string                        The reason; the rows with the most dead letters come first
    ``source``           string                        The entity that forwarded them; null for the entity's own
    ``dead_letters``     bigint                        Number of dead letters
    ``share``            double                        Share of all dead letters, 0 to 1
    ``first``, ``last``  timestamp                     When the first and the last of them were dead-lettered
    ``descriptions``     bigint                        Number of different descriptions
    ``description``      string                        The most frequent one
    ``example``          bigint                        The lowest sequence number, in the dead-letter queue
    ==================== ============================= ===========================================================

    Args:
        dead: Dead letters, as ``dead_letters`` returns them, or any part of them.
    """
    reason, source = F.col("dead_letter_reason").alias("reason"), F.col("dead_letter_source").alias("source")
    text = F.col("dead_letter_error_description").alias("description")
    each = (
        dead.select(reason, source, text, "enqueued_time_utc", "sequence_number")
        .groupBy("reason", "source", "description")
        .agg(
            F.count("*").alias("dead_letters"),
            F.min("enqueued_time_utc").alias("first"),
            F.max("enqueued_time_utc").alias("last"),
            F.min("sequence_number").alias("example"),
        )
    )
    by_reason = each.groupBy("reason", "source").agg(
        F.sum("dead_letters").alias("dead_letters"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.count("description").alias("descriptions"),
        F.max_by("description", "dead_letters").alias("description"),
        F.min("example").alias("example"),
    )
    return (
        _beside_total(by_reason, "dead_letters")
        .select(
            "reason",
            "source",
            "dead_letters",
            (F.col("dead_letters") / F.col(_TOTAL)).alias("share"),
            "first",
            "last",
            "descriptions",
            "description",
            "example",
        )
        .orderBy(F.desc("dead_letters"), "reason", "source")
    )


def _each_period(messages: DataFrame, every: str, time: Column | None, key: Column, name: str) -> GroupedData:
    """Return messages in groups of a period and a key."""
    moment = F.col("enqueued_time_utc") if time is None else time
    # A window of null is null, and such rows are left out.
    periods = messages.select(F.window(moment, every).alias("period"), key.alias("key"))
    return periods.select(F.col("period.start").alias("time"), F.col("key").alias(name)).groupBy("time", name)


def _beside_total(rows: DataFrame, column: str) -> DataFrame:
    """Return a report's rows, each with the sum of a column over all rows, and with their number.

    A window over all rows does the same, but Spark warns of it in each task, because frames may be larger than reports are.
    """
    totals = rows.agg(
        F.collect_list(F.struct(*rows.columns)).alias("rows"), F.sum(column).alias(_TOTAL), F.count("*").alias(_ROWS)
    )
    return totals.select(F.inline("rows"), _TOTAL, _ROWS)
