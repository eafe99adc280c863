"""Spark's decoder has the same results as the facade's."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, topic_name
from tests.spark.expected import expected_row, read_floats
from tests.spark.kafka import write
from tests.spark.marks import SPARK
from tests.spark.records import generate_records

pytestmark = SPARK

RECORDS = 4000
COMPILED = 8000
"""The most bytes of a method that Java compiles (``HugeMethodLimit``)."""


def test_spark_decodes_as_the_facade_does(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Spark's columns of every record, even foreign and broken ones, are those that ``decode_headers`` returns."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue("decoded", enable_partitioning=True)
    topic = topic_name("tests", EntityPath("decoded"))
    records = list(generate_records(seed=20130101, count=RECORDS))
    write(runtime.bootstrap_servers, topic, 16, ((str(n).encode(), record) for n, record in enumerate(records)))

    messages = kafkabus_spark.read(spark, runtime.connection_string, "decoded")
    # Milliseconds, because collecting a timestamp turns it into the machine's local time.
    moment = F.unix_millis("scheduled_enqueue_time_utc").alias("scheduled_enqueue_time_utc")
    rows = messages.withColumn("scheduled_enqueue_time_utc", moment).collect()

    assert sorted(int(bytes(row["body"])) for row in rows) == list(range(RECORDS))
    for row in rows:
        got: dict[str, Any] = row.asDict()
        headers = [(one["key"], None if one["value"] is None else bytes(one["value"])) for one in row["headers"] or ()]
        key = records[int(bytes(row["body"]))].key
        place = row["partition_id"], row["offset"]
        expected = expected_row(headers, key, topic, *place, body=bytes(row["body"]))
        properties = read_floats(row["application_properties"], expected["application_properties"])
        got["application_properties"] = properties
        assert {name: got[name] for name in expected} == expected, headers


def test_java_compiles_what_spark_generates(untended: str, spark: SparkSession) -> None:
    """A method beyond Java's limit is interpreted, and everything takes twice as long."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
    messages = kafkabus_spark.read(spark, untended, "orders")
    java: Any = spark._jvm
    mode = java.org.apache.spark.sql.execution.ExplainMode.fromString("codegen")
    frames: list[Any] = [messages, messages.drop("application_properties"), messages.select("message_id", "body")]
    for frame in frames:
        code = frame._jdf.queryExecution().explainString(mode)
        sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", code)]
        assert sizes
        assert max(sizes) < COMPILED
