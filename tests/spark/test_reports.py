"""The report names hot partitions and the reason."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafkabus_spark import partition_report
from tests.spark.marks import SPARK

pytestmark = SPARK

SCHEMA = "partition_id int, partition_key string, body binary, delay double"
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
