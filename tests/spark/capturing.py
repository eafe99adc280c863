"""A program that captures a queue as messages come, until it is killed.

Usage: ``python -m tests.spark.capturing QUEUE FOLDER FORMAT [once]``; the namespace is that of
``KAFKABUS_CONNECTION_STRING``. With ``once`` it ends when it has written what is there, and prints how often each message is
in the table.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus.embedded.java import spark_java_home
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

AT_ONCE = 200
"""How many messages a micro-batch has."""


def main(queue: str, folder: str, table_format: str, *, once: bool) -> None:
    """Capture the queue."""
    config = kafkabus_spark.delta_settings() if table_format == "delta" else {}
    spark = kafkabus_spark.session("capturing", master="local[2]", java_home=spark_java_home(), config=config)
    query = kafkabus_spark.capture(
        spark,
        os.environ[CONNECTION_STRING_VARIABLE],
        queue,
        f"{folder}/table",
        checkpoint_location=f"{folder}/checkpoint",
        table_format=table_format,
        trigger={"availableNow": True} if once else {"processingTime": "0 seconds"},
        max_messages_per_trigger=AT_ONCE,
    )
    query.awaitTermination()
    table = kafkabus_spark.captured(spark, f"{folder}/table", table_format=table_format)
    counts = table.groupBy("message_id").count().groupBy(F.col("count").alias("copies")).count().collect()
    sys.stdout.write(json.dumps({row["copies"]: row["count"] for row in counts}) + "\n")
    kafkabus_spark.stop(spark)


if __name__ == "__main__":
    main(*sys.argv[1:4], once="once" in sys.argv[4:])
