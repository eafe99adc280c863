"""Messages become files, each once, and small files become large ones."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus_spark import TableFormat, tables
from kafkabus_spark.hadoop import Hadoop
from tests.queues import new_queue
from tests.spark.marks import SPARK

pytestmark = SPARK

PATIENCE = 240
LATER = datetime.now(timezone.utc).date() + timedelta(days=2)


@pytest.fixture
def queue(runtime: RunningNamespace) -> str:
    """The name of a queue with 40 messages."""
    name = new_queue(runtime.connection_string, enable_partitioning=True)
    send(runtime.connection_string, name, range(40))
    return name


def send(connection: str, queue: str, numbers: range) -> None:
    """Send messages whose ids are numbers."""
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(
            [
                ServiceBusMessage(f"{number}", message_id=f"{number}", time_to_live=timedelta(minutes=90))
                for number in numbers
            ]
        )


def capture(
    spark: SparkSession, connection: str, queue: str, folder: Path, table_format: TableFormat = TableFormat.PARQUET
) -> None:
    """Write what is there, 10 messages at a time."""
    query = kafkabus_spark.capture(
        spark,
        connection,
        queue,
        str(folder / "table"),
        checkpoint_location=str(folder / "checkpoint"),
        table_format=table_format,
        max_messages_per_trigger=10,
    )
    assert query.awaitTermination(PATIENCE)


def ids(spark: SparkSession, folder: Path) -> list[int]:
    """Return the ids of the table's messages, in order."""
    rows = kafkabus_spark.captured(spark, str(folder / "table")).select(F.col("message_id").cast("int")).collect()
    return sorted(row[0] for row in rows)


def test_a_micro_batch_that_is_repeated_writes_its_messages_once(
    runtime: RunningNamespace, spark: SparkSession, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query dies after it wrote the files, and before the checkpoint says so; the files hold what ``read`` returns."""
    died: list[int] = []
    store = tables._store

    def store_and_die(batch: DataFrame, number: int, folder: str) -> None:
        store(batch, number, folder)
        if number not in died:
            died.append(number)
            raise InterruptedError("killed")

    monkeypatch.setattr(tables, "_store", store_and_die)
    before = -1
    while len(died) > before:
        before = len(died)
        with suppress(StreamingQueryException):
            capture(spark, runtime.connection_string, queue, tmp_path)
    assert died == list(range(len(died)))
    assert len(died) > 2
    assert ids(spark, tmp_path) == list(range(40))
    table = kafkabus_spark.captured(spark, str(tmp_path / "table"))
    messages = kafkabus_spark.read(spark, runtime.connection_string, queue).drop("headers")
    assert table.drop(tables.DATE).schema.names == messages.schema.names
    assert rows_of(table.drop(tables.DATE)) == rows_of(messages)


def rows_of(messages: DataFrame) -> dict[int, Any]:
    """Return rows by their sequence numbers."""
    return {row["sequence_number"]: row for row in messages.collect()}


@pytest.mark.parametrize("killed", ["never", "before", "amid"])
def test_small_files_are_merged(
    runtime: RunningNamespace,
    spark: SparkSession,
    queue: str,
    tmp_path: Path,
    killed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A merge that was cut off is finished; files of today stay; the query goes on."""
    connection, table, checkpoint = runtime.connection_string, tmp_path / "table", str(tmp_path / "checkpoint")
    capture(spark, connection, queue, tmp_path)
    before = files(table)
    assert len(before) > 1

    def compact(before: date | None = LATER) -> kafkabus_spark.Compaction:
        return kafkabus_spark.compact(spark, str(table), checkpoint_location=checkpoint, before=before)

    assert compact(None) == kafkabus_spark.Compaction(0, 0)
    if killed != "never":
        move, delete = Hadoop.move, Hadoop.delete

        def die(*_: object) -> None:
            raise InterruptedError("killed")

        monkeypatch.setattr(Hadoop, "move" if killed == "amid" else "delete", die)
        with pytest.raises(InterruptedError):
            compact()
        monkeypatch.setattr(Hadoop, "move", move)
        monkeypatch.setattr(Hadoop, "delete", delete)
        compact()
    else:
        assert compact() == kafkabus_spark.Compaction(len(before), 1)
    assert len(files(table)) == 1
    assert ids(spark, tmp_path) == list(range(40))
    send(connection, queue, range(40, 45))
    capture(spark, connection, queue, tmp_path)
    assert ids(spark, tmp_path) == list(range(45))


def test_a_delta_table_has_the_same(runtime: RunningNamespace, spark: SparkSession, queue: str, tmp_path: Path) -> None:
    """Delta has no intervals; ``captured`` returns them all the same, also after the small files were merged."""
    capture(spark, runtime.connection_string, queue, tmp_path, TableFormat.DELTA)
    folder, delta = str(tmp_path / "table"), TableFormat.DELTA
    messages = rows_of(kafkabus_spark.read(spark, runtime.connection_string, queue).drop("headers"))
    assert rows_of(kafkabus_spark.captured(spark, folder, table_format=delta).drop(tables.DATE)) == messages
    done = kafkabus_spark.compact(
        spark, folder, checkpoint_location=str(tmp_path / "checkpoint"), table_format=delta, before=LATER
    )
    assert done.before > done.after == 1
    assert rows_of(kafkabus_spark.captured(spark, folder, table_format=delta).drop(tables.DATE)) == messages


def files(table: Path) -> list[Path]:
    """Return the table's Parquet files."""
    return list(table.glob(f"{tables.DATE}=*/{tables.PART}=*/*.parquet"))


def test_a_table_of_another_kind_is_named(runtime: RunningNamespace, spark: SparkSession, tmp_path: Path) -> None:
    """The errors come before a query starts."""
    with pytest.raises(ValueError, match=r"table_format 'csv': choose from \['parquet', 'delta'\]"):
        kafkabus_spark.capture(spark, runtime.connection_string, "x", "y", checkpoint_location="z", table_format="csv")
    with pytest.raises(ValueError, match="holds no checkpoint of a stream: name that of the query that writes"):
        kafkabus_spark.compact(spark, str(tmp_path), checkpoint_location=str(tmp_path))
