"""The demo's analysis: Spark reads the same topics, and writes its report as messages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from rich.progress import Progress

import kafkabus_spark
from demo.flights import CANCELLED, QUEUE
from demo.interrupt import Interrupt
from kafkabus.embedded.java import spark_java_home

CHECKPOINTED_WITHIN = 60.0
"""How long upkeep may take to write down what the receivers settled, in seconds."""
REPORTS = "partition-reports"
"""The topic that gets the report, a message for each partition, with the properties ``partition_id`` and ``hot``."""


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
        completed: Messages that were completed, by the queue's log and the checkpoints of its ledgers.
        dead_lettered: Messages that were dead-lettered, by the same.
        waiting: Messages that are not settled, by the same.
    """

    in_queue: int
    cancelled: int
    completed: int
    dead_lettered: int
    waiting: int

    def differences(self, sent: int, dead_lettered: int) -> list[str]:
        """Return how these numbers differ from those of the senders and receivers; an empty list if they agree."""
        found: list[str] = []
        if (self.in_queue, self.cancelled) != (sent, dead_lettered):
            found.append(
                f"Spark sees {self.in_queue:,} messages and {self.cancelled:,} cancelled ones, "
                f"not {sent:,} and {dead_lettered:,}"
            )
        if (self.completed, self.dead_lettered, self.waiting) != (sent - dead_lettered, dead_lettered, 0):
            found.append(
                f"by log and checkpoints, {self.completed:,} were completed, {self.dead_lettered:,} dead-lettered, and "
                f"{self.waiting:,} wait"
            )
        return found


def analyse(connection: str, folder: Path, progress: Progress, interrupt: Interrupt) -> tuple[list[Partition], Seen]:
    """Read the queue and its dead-letter queue through Spark's Kafka source, and send the report to a topic.

    Args:
        connection: The namespace's connection string.
        folder: The folder for Java's output and Spark's scratch files.
        progress: The progress bar.
        interrupt: The handler of Ctrl-C, which is installed again after pyspark has replaced it.
    """
    task = progress.add_task("start Spark", total=5)
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
        report = kafkabus_spark.partition_report(flights, partitions=number, value=delay).persist()
        rows = report.collect()
        progress.update(task, completed=2, description="read the dead-letter queue with Spark")
        dead = kafkabus_spark.read(spark, connection, QUEUE, sub_queue="deadletter")
        cancelled = dead.where(F.col("dead_letter_reason") == CANCELLED).count()
        progress.update(task, completed=3, description="reconcile log and checkpoints with Spark")
        outcomes = _reconciled(spark, connection, interrupt)
        progress.update(task, completed=4, description="send the report to a topic with Spark")
        messages = report.select(
            F.to_json(F.struct("*")).alias("body"),
            F.lit("application/json").alias("content_type"),
            F.struct("partition_id", "hot").alias("application_properties"),
        )
        kafkabus_spark.write(messages, connection, REPORTS)
        progress.update(task, completed=5, description="read both queues with Spark, and send the report")
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
    seen = Seen(
        sum(partition.messages for partition in partitions),
        cancelled,
        sum(row["completed"] for row in outcomes),
        sum(row["dead_lettered"] for row in outcomes),
        _waiting(outcomes),
    )
    return partitions, seen


def _reconciled(spark: SparkSession, connection: str, interrupt: Interrupt) -> list[Row]:
    """Reconcile the queue; again while messages wait, because upkeep writes checkpoints every five seconds."""
    deadline = time.monotonic() + CHECKPOINTED_WITHIN
    while True:
        interrupt.check()
        outcomes = kafkabus_spark.reconcile(spark, connection, QUEUE).collect()
        if not _waiting(outcomes) or time.monotonic() >= deadline:
            return outcomes


def _waiting(outcomes: list[Row]) -> int:
    return sum(row["active"] + row["deferred"] + row["scheduled"] for row in outcomes)
