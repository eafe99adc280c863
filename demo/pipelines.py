"""``python -m demo.pipelines FOLDER``: every pipeline on the demo's flights, its figures checked, and its picture."""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import Progress

import kafkabus_spark
from demo.flights import QUEUE, load_flights
from demo.interrupt import Interrupt
from demo.outcome import Outcome
from demo.run import send_and_receive
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.java import spark_java_home
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_spark.pipelines import pictures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AGAIN, REPLAYED = "flights-again", "flights-replayed"
"""The queues for dead letters that are sent again, and for the replay."""


def main() -> int:
    """Run the pipelines; return the exit status: 0, or 1 if a figure differs from the demo's totals."""
    parser = argparse.ArgumentParser(prog="python -m demo.pipelines", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to draw the pictures")
    parser.add_argument("--limit", type=int, metavar="N", help="send the first N flights only; default all 336,776")
    arguments = parser.parse_args()
    console = Console()
    with EmbeddedRuntime() as runtime, tempfile.TemporaryDirectory() as scratch:
        connection = runtime.connection_string
        with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
            for name in (QUEUE, AGAIN, REPLAYED):
                administration.create_queue(name, enable_partitioning=True)
        with Progress(console=console) as progress:
            outcome = send_and_receive(connection, load_flights(arguments.limit), progress, Interrupt())
        config = {**kafkabus_spark.delta_settings(), "spark.local.dir": scratch}
        spark = kafkabus_spark.session("kafkabus pipelines", java_home=spark_java_home(), config=config)
        try:
            return _Pipelines(console, spark, connection, arguments.folder, Path(scratch), outcome).run()
        finally:
            kafkabus_spark.stop(spark)


class _Pipelines:
    """The pipelines, one after the other.

    Args:
        console: The console to print to.
        spark: A session.
        connection: The namespace's connection string.
        folder: The folder of the pictures.
        scratch: A folder for tables and checkpoints.
        outcome: The totals of the demo's senders and receivers.
    """

    def __init__(
        self, console: Console, spark: SparkSession, connection: str, folder: Path, scratch: Path, outcome: Outcome
    ) -> None:
        self._console, self._spark, self._connection = console, spark, connection
        self._folder, self._scratch = folder, scratch
        self._sent, self._dead = outcome.sent, outcome.counts.dead_lettered
        self._differs = False

    def run(self) -> int:
        """Run them all; return the exit status."""
        for pipeline in (self._capture, self._partitions, self._sessions, self._dead_letters, self._reconcile):
            pipeline()
        self._resubmit()
        self._replay()
        return 1 if self._differs else 0

    def _check(self, what: str, *counts: tuple[int, int]) -> None:
        """Print counts; the second of each pair is the demo's."""
        same = all(ours == theirs for ours, theirs in counts)
        self._differs |= not same
        shown = ", ".join(
            f"{ours:,}" if ours == theirs else f"{ours:,} instead of {theirs:,}" for ours, theirs in counts
        )
        self._console.print(f"{'[green]agrees[/]' if same else '[bold red]DIFFERS[/]'} {what}: {shown}")

    def _flights(self) -> DataFrame:
        return kafkabus_spark.read(self._spark, self._connection, QUEUE)

    def _capture(self) -> None:
        for table_format in kafkabus_spark.TableFormat:
            table, checkpoint = (
                str(self._scratch / f"{table_format.value}-{name}") for name in ("table", "checkpoint")
            )
            query = kafkabus_spark.capture(
                self._spark,
                self._connection,
                QUEUE,
                table,
                checkpoint_location=checkpoint,
                table_format=table_format,
                max_messages_per_trigger=100_000,
            )
            query.awaitTermination()
            held = kafkabus_spark.captured(self._spark, table, table_format=table_format)
            self._check(
                f"capture to {table_format.value}: messages, different ones",
                (held.count(), self._sent),
                (held.select("message_id").distinct().count(), self._sent),
            )

    def _partitions(self) -> None:
        count = kafkabus_spark.partition_count(self._spark, self._connection, QUEUE)
        day = F.to_timestamp(F.get_json_object(F.col("body").cast("string"), "$.time_hour"))
        rows = kafkabus_spark.partition_history(self._flights(), every="7 days", partitions=count, time=day).collect()
        self._check("hot partitions by week: messages", (sum(row["messages"] for row in rows), self._sent))
        pictures.draw_partition_history(
            rows, self._folder / "pipelines-partitions.png", "Flights by partition and week of departure", count
        )

    def _sessions(self) -> None:
        body = F.col("body").cast("string")
        history = kafkabus_spark.session_history(
            self._flights(),
            every="7 days",
            session=F.get_json_object(body, "$.dest"),
            time=F.to_timestamp(F.get_json_object(body, "$.time_hour")),
        )
        rows = history.collect()
        self._check("skew of destinations by week: messages", (sum(row["messages"] for row in rows), self._sent))
        pictures.draw_session_history(
            rows, self._folder / "pipelines-sessions.png", "Flights by week, with the destination as the session"
        )

    def _dead_letters(self) -> None:
        dead = kafkabus_spark.dead_letters(self._spark, self._connection, QUEUE)
        rows = kafkabus_spark.dead_letter_report(dead).collect()
        self._check("dead letters by reason", (sum(row["dead_letters"] for row in rows), self._dead))
        pictures.draw_dead_letters(rows, self._folder / "pipelines-dead-letters.png", "Dead letters of the flights")

    def _reconcile(self) -> None:
        rows = kafkabus_spark.reconcile(self._spark, self._connection, QUEUE).collect()
        total = {name: sum(row[name] for row in rows) for name in ("messages", "completed", "dead_lettered")}
        self._check(
            "reconciliation: sent, completed, dead-lettered",
            (total["messages"], self._sent),
            (total["completed"], self._sent - self._dead),
            (total["dead_lettered"], self._dead),
        )
        pictures.draw_reconciliation(
            rows, self._folder / "pipelines-reconciliation.png", "Completed and dead-lettered flights, by partition"
        )

    def _resubmit(self) -> None:
        query = kafkabus_spark.resubmit(
            self._spark,
            self._connection,
            QUEUE,
            checkpoint_location=str(self._scratch / "resubmit"),
            target=AGAIN,
            transform=lambda dead: dead.withColumn("subject", F.lit("again")),
        )
        query.awaitTermination()
        again = kafkabus_spark.read(self._spark, self._connection, AGAIN).where("subject = 'again'")
        self._check("dead letters sent again", (again.select("message_id").distinct().count(), self._dead))

    def _replay(self) -> None:
        (row,) = self._flights().agg(F.percentile_approx(F.unix_millis("enqueued_time_utc"), 0.5).alias("ms")).collect()
        middle = datetime.fromtimestamp(row["ms"] / 1000, timezone.utc)
        counts = [
            kafkabus_spark.replay(
                self._spark, self._connection, QUEUE, REPLAYED, starting_timestamp=start, ending_timestamp=end
            )
            for start, end in ((None, middle), (middle, None))
        ]
        replayed = kafkabus_spark.read(self._spark, self._connection, REPLAYED)
        self._check(
            f"replay of two time ranges, {counts[0]:,} and {counts[1]:,} messages: all, different ones",
            (sum(counts), self._sent),
            (replayed.select("message_id").distinct().count(), self._sent),
        )


if __name__ == "__main__":
    sys.exit(main())
