"""The report names hot partitions and the reason."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafkabus_spark import dead_letter_report, partition_history, partition_report, session_history
from tests.spark.marks import SPARK

pytestmark = SPARK

SCHEMA = "partition_id int, partition_key string, body binary, delay double"
LETTERS = (
    "dead_letter_reason string, dead_letter_source string, dead_letter_error_description string, "
    "enqueued_time_utc timestamp, sequence_number bigint"
)
MESSAGES = [
    *[(0, "UA", b"12345", 10.0)] * 6,
    *[(0, "B6", b"1", None)] * 2,
    (0, None, None, 0.0),
    (2, "AA", b"123", None),
]


def test_hot_partitions_are_named_with_their_keys(spark: SparkSession) -> None:
    """A partition above the bound is hot; its largest keys come first; nulls are left out of the mean."""
    report = partition_report(spark.createDataFrame(MESSAGES, SCHEMA), value=F.col("delay"), top_keys=2)
    hot, cold = report.collect()
    assert (hot["partition_id"], hot["messages"], hot["bytes"], hot["keys"]) == (0, 9, 32, 3)
    assert hot["mean_value"] == pytest.approx(60 / 7)
    assert (hot["share"], hot["hot"], cold["hot"]) == (0.9, True, False)
    assert [tuple(key) for key in hot["top_keys"]] == [("UA", 6), ("B6", 2)]
    assert cold["mean_value"] is None


def test_empty_partitions_count_in_the_mean(spark: SparkSession) -> None:
    """With the number of partitions given, empty ones have rows, and lower the bound: 9 > 1.5 * 10 / 3."""
    rows = partition_report(spark.createDataFrame(MESSAGES, SCHEMA), partitions=3).collect()
    assert [(row["partition_id"], row["messages"], row["hot"]) for row in rows] == [
        (0, 9, True),
        (1, 0, False),
        (2, 1, False),
    ]
    assert rows[1]["top_keys"] == []


def test_the_report_of_an_empty_entity_has_no_hot_partition(spark: SparkSession) -> None:
    """Without messages there are no shares, and no partition is hot."""
    rows = partition_report(spark.createDataFrame([], SCHEMA), partitions=2).collect()
    assert [(row["messages"], row["share"], row["hot"]) for row in rows] == [(0, 0.0, False)] * 2


def at(hour: int, minute: int = 0) -> datetime:
    """Return a time of a day."""
    return datetime(2026, 1, 2, hour, minute, tzinfo=timezone.utc)


def test_a_partition_is_hot_in_some_periods(spark: SparkSession) -> None:
    """Each period has its own mean, which counts partitions without messages if their number is given."""
    messages = [(0, at(1))] * 3 + [(1, at(1, 59))] * 1 + [(0, at(2))] * 2 + [(1, at(2))] * 2 + [(1, None)]
    frame = spark.createDataFrame(messages, "partition_id int, enqueued_time_utc timestamp")
    rows = partition_history(frame).collect()
    found = [(utc(row["time"]), row["partition_id"], row["messages"], row["share"], row["hot"]) for row in rows]
    assert found == [
        (at(1), 0, 3, 0.75, False),
        (at(1), 1, 1, 0.25, False),
        (at(2), 0, 2, 0.5, False),
        (at(2), 1, 2, 0.5, False),
    ]
    assert [row["hot"] for row in partition_history(frame, partitions=4).collect()] == [True, False, True, True]
    (half,) = partition_history(frame.where("partition_id = 0"), every="1 day").collect()
    assert (utc(half["time"]), half["messages"]) == (at(0), 5)


def test_sessions_may_be_skewed_in_some_periods(spark: SparkSession) -> None:
    """The largest session is named; of two that are alike, the first one."""
    messages = [("a", at(1))] * 4 + [("b", at(1))] * 2 + [("c", at(2)), ("b", at(2)), (None, at(2))]
    frame = spark.createDataFrame(messages, "session_id string, enqueued_time_utc timestamp")
    rows = session_history(frame).collect()
    found = [(row["sessions"], row["messages"], row["largest"], row["in_largest"], row["skew"]) for row in rows]
    assert found == [(2, 6, "a", 4, pytest.approx(4 / 3)), (2, 2, "b", 1, 1.0)]
    assert [utc(row["time"]) for row in rows] == [at(1), at(2)]


def test_dead_letters_are_counted_by_reason(spark: SparkSession) -> None:
    """The most frequent reason and description come first; a null is a reason, too."""
    letters = [
        *(("Late", None, text, at(hour), number) for number, (text, hour) in enumerate([("x", 3), ("y", 1), ("y", 2)])),
        (None, None, None, at(5), 7),
        ("Late", "other", "x", at(6), 9),
    ]
    late, *others = dead_letter_report(spark.createDataFrame(letters, LETTERS)).collect()
    assert (late["reason"], late["source"], late["dead_letters"], late["share"]) == ("Late", None, 3, 0.6)
    assert (utc(late["first"]), utc(late["last"])) == (at(1), at(3))
    assert (late["descriptions"], late["description"], late["example"]) == (2, "y", 0)
    assert [(row["reason"], row["source"], row["dead_letters"]) for row in others] == [
        (None, None, 1),
        ("Late", "other", 1),
    ]


def utc(moment: datetime) -> datetime:
    """Return a time of a row, which pyspark gives in the machine's zone, in UTC."""
    return moment.astimezone(timezone.utc)


def test_spark_has_no_window_over_all_rows_to_warn_of(spark: SparkSession) -> None:
    """Of the report on partitions, the window over the keys of each one is left."""
    messages = spark.createDataFrame([], f"{SCHEMA}, {LETTERS}")
    for report, windows in ((partition_report(messages), 1), (dead_letter_report(messages), 0)):
        query: Any = report._jdf
        assert query.queryExecution().optimizedPlan().toString().count("Window [") == windows
