"""The demo's analysis: Spark reads the same topics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import functions as F
from rich.progress import Progress

import kafkabus_spark
from demo.flights import CANCELLED, QUEUE
from demo.interrupt import Interrupt
from kafkabus.embedded.java import spark_java_home


@dataclass(frozen=True)
class Partition:
    """An entity partition.

    Attributes:
        number: The partition's number.
        messages: The number of its messages.
        size: The size of their bodies, in bytes.
        mean_delay: The mean delay of departure, in minutes; None if no flight in it departed.
        share: The share of all messages, 0 to 1.
        hot: Whether the partition is hot.
        keys: The carriers with the most flights in it, and the numbers of these.
    """

    number: int
    messages: int
    size: int
    mean_delay: float | None
    share: float
    hot: bool
    keys: tuple[tuple[str | None, int], ...]


@dataclass(frozen=True)
class Seen:
    """Numbers of messages that Spark reads.

    Attributes:
        in_queue: Messages in the queue's topic, settled ones included.
        cancelled: Messages in the dead-letter queue's topic with the reason ``Cancelled``.
    """

    in_queue: int
    cancelled: int


def analyse(connection: str, folder: Path, progress: Progress, interrupt: Interrupt) -> tuple[list[Partition], Seen]:
    """Read the queue and its dead-letter queue through Spark's Kafka source.

    Args:
        connection: The namespace's connection string.
        folder: The folder for Java's output and Spark's scratch files.
        progress: The progress bar.
        interrupt: The handler of Ctrl-C, which is installed again after pyspark has replaced it.
    """
    task = progress.add_task("start Spark", total=3)
    spark = kafkabus_spark.session(
        "kafkabus demo",
        java_home=spark_java_home(),
        java_log=folder / "spark.log",
        config={"spark.local.dir": str(folder / "spark")},
    )
    interrupt.install()
    interrupt.check()
    try:
        progress.update(task, completed=1, description="read the queue with Spark")
        flights = kafkabus_spark.read(spark, connection, QUEUE)
        delay = F.get_json_object(F.col("body").cast("string"), "$.dep_delay").cast("double")
        number = kafkabus_spark.partition_count(spark, connection, QUEUE)
        rows = kafkabus_spark.partition_report(flights, partitions=number, value=delay).collect()
        progress.update(task, completed=2, description="read the dead-letter queue with Spark")
        dead = kafkabus_spark.read(spark, connection, QUEUE, sub_queue="deadletter")
        cancelled = dead.where(F.col("dead_letter_reason") == CANCELLED).count()
        progress.update(task, completed=3, description="read both queues with Spark")
    finally:
        # After an interrupt the demo does not wait for the job: Java ends with the program.
        if not interrupt.requested:
            kafkabus_spark.stop(spark)
    partitions = [
        Partition(
            row["partition_id"],
            row["messages"],
            row["bytes"],
            row["mean_value"],
            row["share"],
            row["hot"],
            tuple((key["key"], key["messages"]) for key in row["top_keys"]),
        )
        for row in rows
    ]
    return partitions, Seen(sum(one.messages for one in partitions), cancelled)
