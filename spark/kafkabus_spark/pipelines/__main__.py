"""``python -m kafkabus_spark.pipelines``: the pipelines of an entity, for a shell, a scheduler or ``spark-submit``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

app = typer.Typer(
    help="Pipelines over the messages of a queue, topic or subscription, with Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _check_picture(path: Path | None) -> Path | None:
    """Check before Spark starts that a picture can be drawn."""
    if path is not None and find_spec("matplotlib") is None:
        raise typer.BadParameter("it needs matplotlib: pip install 'kafkabus[pictures]'")
    return path


Connection = Annotated[
    str, typer.Option("--connection", envvar=CONNECTION_STRING_VARIABLE, help="The namespace's connection string.")
]
Entity = Annotated[str, typer.Argument(help="The name of a queue or topic.")]
Subscription = Annotated[str | None, typer.Option("--subscription", "-s", help="A subscription of the topic.")]
SubQueueName = Annotated[str | None, typer.Option("--sub-queue", help="'deadletter' for the dead-letter queue.")]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", help="The folder in which the pipeline keeps how far it has come.")
]
Format = Annotated[str, typer.Option("--format", help="'parquet' or 'delta'.")]
Every = Annotated[str, typer.Option("--every", help="The length of a period, such as '1 minute'.")]
Picture = Annotated[
    Path | None, typer.Option("--picture", callback=_check_picture, help="A PNG file to draw the report into.")
]
From = Annotated[
    datetime | None, typer.Option("--from", help="Messages that were enqueued at this time (UTC) or later.")
]
Until = Annotated[datetime | None, typer.Option("--until", help="Messages that were enqueued before this time (UTC).")]
Time = Annotated[
    str,
    typer.Option(
        "--time", help="The time of a message, in SQL over the columns of read(), such as one of the body's JSON."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with messages that come later, until Ctrl-C.")]
BatchLimit = Annotated[int | None, typer.Option("--batch", min=1, help="The maximum number of messages at a time.")]


@app.command("capture")
def capture_command(
    entity: Entity,
    folder: Annotated[str, typer.Argument(help="The folder of the table.")],
    checkpoint: Checkpoint,
    connection: Connection,
    table_format: Format = "parquet",
    subscription: Subscription = None,
    sub_queue: SubQueueName = None,
    follow: Follow = False,
    batch: BatchLimit = None,
) -> None:
    """Write messages to Parquet files or a Delta table, each once."""
    from kafkabus_spark.tables import capture, captured, delta_settings

    with _spark(delta_settings() if table_format == "delta" else {}) as spark:
        query = capture(
            spark,
            connection,
            entity,
            folder,
            checkpoint_location=checkpoint,
            table_format=table_format,
            subscription=subscription,
            sub_queue=sub_queue,
            trigger=_trigger(follow=follow),
            max_messages_per_trigger=batch,
        )
        query.awaitTermination()
        typer.echo(f"{folder} has {captured(spark, folder, table_format=table_format).count():,} messages of {entity}.")


@app.command("compact")
def compact_command(
    folder: Annotated[str, typer.Argument(help="The folder of the table.")],
    checkpoint: Checkpoint,
    table_format: Format = "parquet",
    before: Annotated[
        datetime | None, typer.Option("--before", help="The first day not to merge; default today.")
    ] = None,
) -> None:
    """Merge the small files of past days of a table."""
    from kafkabus_spark.tables import compact, delta_settings

    with _spark(delta_settings() if table_format == "delta" else {}) as spark:
        day = None if before is None else before.date()
        done = compact(spark, folder, checkpoint_location=checkpoint, table_format=table_format, before=day)
        typer.echo(f"{done.before:,} files became {done.after:,}.")


@app.command("partitions")
def partitions_command(
    entity: Entity,
    connection: Connection,
    every: Every = "1 hour",
    time: Time = "enqueued_time_utc",
    subscription: Subscription = None,
    sub_queue: SubQueueName = None,
    start: From = None,
    end: Until = None,
    picture: Picture = None,
) -> None:
    """Report which partitions are hot, and when."""
    from pyspark.sql import functions as F

    from kafkabus_spark import partition_count, partition_history, read

    with _spark() as spark:
        messages = read(
            spark,
            connection,
            entity,
            subscription=subscription,
            sub_queue=sub_queue,
            starting_timestamp=start,
            ending_timestamp=end,
        )
        count = partition_count(spark, connection, entity, sub_queue=sub_queue)
        report = partition_history(messages, every=every, partitions=count, time=F.expr(time))
        _draw("draw_partition_history", _show(report), picture, f"Messages of {entity} by partition", count)


@app.command("sessions")
def sessions_command(
    entity: Entity,
    connection: Connection,
    session: Annotated[
        str, typer.Option("--session", help="The session of a message, in SQL over the columns of read().")
    ] = "session_id",
    every: Every = "1 hour",
    time: Time = "enqueued_time_utc",
    subscription: Subscription = None,
    start: From = None,
    end: Until = None,
    picture: Picture = None,
) -> None:
    """Report how unevenly messages fall on sessions, and when."""
    from pyspark.sql import functions as F

    from kafkabus_spark import read, session_history

    with _spark() as spark:
        messages = read(
            spark, connection, entity, subscription=subscription, starting_timestamp=start, ending_timestamp=end
        )
        report = session_history(messages, every=every, session=F.expr(session), time=F.expr(time))
        _draw("draw_session_history", _show(report), picture, f"Sessions of {entity}")


@app.command("dead-letters")
def dead_letters_command(
    entity: Entity, connection: Connection, subscription: Subscription = None, picture: Picture = None
) -> None:
    """Report why messages were dead-lettered."""
    from kafkabus_spark import dead_letter_report, read

    with _spark() as spark:
        dead = read(spark, connection, entity, subscription=subscription, sub_queue="deadletter")
        _draw("draw_dead_letters", _show(dead_letter_report(dead)), picture, f"Dead letters of {entity}")


@app.command("resubmit")
def resubmit_command(
    entity: Entity,
    checkpoint: Checkpoint,
    connection: Connection,
    subscription: Subscription = None,
    target: Annotated[str | None, typer.Option("--target", help="Another queue or topic to send to.")] = None,
    follow: Follow = False,
    batch: BatchLimit = None,
) -> None:
    """Send dead letters to their entity again, each once; they stay in the dead-letter queue."""
    from kafkabus_spark import resubmit

    sent: list[int] = []
    with _spark() as spark:
        query = resubmit(
            spark,
            connection,
            entity,
            checkpoint_location=checkpoint,
            subscription=subscription,
            target=target,
            # They stay: this only counts those that were sent.
            settle=lambda numbers: sent.append(len(numbers)),
            trigger=_trigger(follow=follow),
            max_messages_per_trigger=batch,
        )
        query.awaitTermination()
        typer.echo(f"{sum(sent):,} dead letters were sent to {target or entity}.")


@app.command("replay")
def replay_command(
    entity: Entity,
    target: Annotated[str, typer.Argument(help="The queue or topic to send to.")],
    connection: Connection,
    subscription: Subscription = None,
    sub_queue: SubQueueName = None,
    start: From = None,
    end: Until = None,
) -> None:
    """Send the messages of a time range to another entity."""
    from kafkabus_spark import replay

    with _spark() as spark:
        count = replay(
            spark,
            connection,
            entity,
            target,
            subscription=subscription,
            sub_queue=sub_queue,
            starting_timestamp=start,
            ending_timestamp=end,
        )
        typer.echo(f"{count:,} messages were sent to {target}.")


@app.command("reconcile")
def reconcile_command(
    entity: Entity, connection: Connection, subscription: Subscription = None, picture: Picture = None
) -> None:
    """Count what became of the messages, from the log and the checkpoints alone."""
    from kafkabus_spark import reconcile

    with _spark() as spark:
        rows = _show(reconcile(spark, connection, entity, subscription=subscription))
        totals = (
            {name: sum(row[name] for row in rows) for name in rows[0].asDict() if name != "partition_id"}
            if rows
            else {}
        )
        typer.echo(", ".join(f"{name.replace('_', '-')} {count:,}" for name, count in totals.items()) or "no messages")
        _draw("draw_reconciliation", rows, picture, f"Outcomes of the messages of {entity}")


@contextmanager
def _spark(config: dict[str, str] | None = None) -> Generator[SparkSession]:
    """Start Spark, unless ``spark-submit`` did; end it afterwards."""
    from pyspark.sql import SparkSession

    from kafkabus_spark import session, stop

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Its options say where Spark runs.
        yield SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
        return
    spark = session("kafkabus pipelines", config=config)
    try:
        yield spark
    finally:
        stop(spark)


def _trigger(*, follow: bool) -> Mapping[str, str | bool]:
    from kafkabus_spark.copying import AVAILABLE_NOW

    return {"processingTime": "10 seconds"} if follow else AVAILABLE_NOW


def _show(report: DataFrame) -> list[Row]:
    """Print a report, and return its rows."""
    report = report.persist()
    try:
        rows = report.collect()
        report.show(max(1, len(rows)), truncate=60)
    finally:
        report.unpersist()
    return rows


def _draw(function: str, rows: list[Row], picture: Path | None, title: str, *arguments: object) -> None:
    """Draw a report by a function of ``pictures``, if a picture was asked for."""
    if picture is not None:
        from kafkabus_spark.pipelines import pictures

        getattr(pictures, function)(rows, picture, title, *arguments)
        typer.echo(f"Picture: {picture}")


def main(run: Callable[[], object] = app) -> None:
    """Run the program; an error of a pipeline is one line on standard error."""
    from kafkabus_spark.errors import SparkError

    try:
        run()
    except (SparkError, ValueError) as error:
        sys.exit(f"kafkabus: {error}")


if __name__ == "__main__":
    main()
