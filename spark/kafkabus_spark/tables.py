"""Messages as files: Parquet, of which each message is in one, or a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import functions as F

from kafkabus_mapping.names import SubQueue
from kafkabus_spark.columns import interval
from kafkabus_spark.copying import AVAILABLE_NOW
from kafkabus_spark.encoding import HEADERS, TIME_TO_LIVE, microseconds
from kafkabus_spark.errors import SparkError
from kafkabus_spark.hadoop import Hadoop
from kafkabus_spark.reader import read_stream
from kafkabus_spark.session import connector_package

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DATE: Final = "enqueued_date"
"""The column by which files are divided into folders: the day on which a message was enqueued, in UTC."""
PART: Final = "part"
"""The column of Parquet files, in folders below that: the number of the micro-batch that wrote them."""
_MERGED: Final = "_merged"
"""The folder of files that are not in their place yet; Spark reads no folder whose name begins with an underscore."""
_DONE: Final = "_SUCCESS"
_LIVES: Final = "time_to_live_ms"
FILE_BYTES: Final = 128 * 2**20
"""The size of merged files, in bytes."""
_DELTA_VERSIONS: Final = {"4.0": "4.0.0", "4.1": "4.1.0"}
"""Delta's version by that of Spark."""


class TableFormat(str, Enum):
    """The format of a table."""

    PARQUET = "parquet"
    DELTA = "delta"


def capture(
    spark: SparkSession,
    connection: str,
    entity: str,
    folder: str,
    *,
    checkpoint_location: str,
    table_format: TableFormat | str = TableFormat.PARQUET,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    fail_on_data_loss: bool = True,
    trigger: Mapping[str, str | bool] = AVAILABLE_NOW,
    max_messages_per_trigger: int | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Write an entity's messages to files, each once however often the query is killed; return the running query.

    The table has the columns of ``read`` without ``headers``, with ``time_to_live_ms`` for ``time_to_live``, and with
    ``enqueued_date``, by which its files are divided into folders; ``captured`` reads it.

    A micro-batch writes Parquet files to separate folders, ``enqueued_date=…/part=…``. If it is repeated, it has the same
    messages, and replaces what it wrote. A Delta table is written by Delta's own sink, which does the same in a transaction.

    Args:
        spark: A session with the Kafka connector, and for Delta with ``delta_settings()``.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        folder: The table's folder: a path, or an address that Hadoop understands.
        checkpoint_location: The folder of the checkpoint. It belongs to the table: with another checkpoint, another query
            would write all messages once more.
        table_format: ``parquet`` or ``delta``.
        subscription: As for ``read_stream``.
        sub_queue: As for ``read_stream``.
        fail_on_data_loss: As for ``read_stream``.
        trigger: As for ``write_stream``; default until all messages are written that are there.
        max_messages_per_trigger: The maximum number of messages in a micro-batch; default no limit.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: There is no such format; or see ``read``.
        SparkError: See ``read``.
    """
    chosen = _format(table_format)
    messages = read_stream(
        spark,
        connection,
        entity,
        subscription=subscription,
        sub_queue=sub_queue,
        fail_on_data_loss=fail_on_data_loss,
        max_messages_per_trigger=max_messages_per_trigger,
        checkpoint_location=checkpoint_location,
        kafka_options=kafka_options,
        environment=environment,
    )
    rows = _to_table_columns(messages)
    if chosen is TableFormat.DELTA:
        query = rows.writeStream.format("delta").partitionBy(DATE).option("path", folder)
    else:
        query = rows.writeStream.foreachBatch(lambda batch, number: _store(batch, number, folder))
    query = query.option("checkpointLocation", checkpoint_location)
    return query.trigger(**trigger).start()  # type: ignore[arg-type]  # pyspark has one signature for each trigger


def captured(spark: SparkSession, folder: str, *, table_format: TableFormat | str = TableFormat.PARQUET) -> DataFrame:
    """Return the messages of a table that ``capture`` writes, with the columns of ``read`` but for ``headers``.

    Args:
        spark: A session, for Delta with ``delta_settings()``.
        folder: The table's folder.
        table_format: ``parquet`` or ``delta``.

    Raises:
        ValueError: There is no such format.
    """
    messages = spark.read.format(_format(table_format).value).load(folder)
    lives = interval(F.col(_LIVES)).alias(TIME_TO_LIVE)
    return messages.select(*(lives if name == _LIVES else name for name in messages.columns)).drop(PART)


@dataclass(frozen=True)
class Compaction:
    """The outcome of a compaction.

    Attributes:
        before: The number of files that were merged.
        after: The number of files that hold their messages now.
    """

    before: int
    after: int


def compact(
    spark: SparkSession,
    folder: str,
    *,
    checkpoint_location: str,
    table_format: TableFormat | str = TableFormat.PARQUET,
    before: date | None = None,
    file_bytes: int = FILE_BYTES,
) -> Compaction:
    """Merge the small files of past days, which micro-batches leave.

    ``capture`` may run at the same time. A Delta table is changed in one transaction (``OPTIMIZE``). For Parquet, merged files
    of a day replace the others in two steps, between which a job that reads the table misses them: run this when none
    reads. If it is killed, it finishes what it began when it is called again.

    Args:
        spark: A session, for Delta with ``delta_settings()``.
        folder: The table's folder.
        checkpoint_location: The checkpoint of the query that writes the table: files of a micro-batch that may be repeated are
            not merged.
        table_format: ``parquet`` or ``delta``.
        before: The first day not to merge; default today, in UTC.
        file_bytes: The size of the merged files; default 128 MiB. Delta goes by its own setting.

    Raises:
        ValueError: There is no such format, or no checkpoint in the folder.
    """
    day = before or datetime.now(timezone.utc).date()
    if _format(table_format) is TableFormat.DELTA:
        (metrics,) = spark.sql(f"OPTIMIZE delta.`{folder}` WHERE {DATE} < DATE'{day}'").select("metrics.*").collect()
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])
    files = _Files(spark, folder)
    files.finish()
    last = _last_batch(spark, checkpoint_location)
    merged = [
        files.merge(name, parts, file_bytes)
        for name, parts in files.parts(last).items()
        if date.fromisoformat(name.partition("=")[2]) < day and len(parts) > 1
    ]
    return Compaction(sum(merge.before for merge in merged), sum(merge.after for merge in merged))


def delta_settings() -> dict[str, str]:
    """Return the settings of a session that reads and writes Delta tables; give them as ``session(config=…)``.

    Raises:
        SparkError: Delta's version for the installed pyspark is not known.
    """
    spark = ".".join(pyspark.__version__.split(".")[:2])
    if spark not in _DELTA_VERSIONS:
        raise SparkError(
            f"Delta's version for Spark {spark} is not known to this version of kafkabus, which knows that for Spark "
            f"{' and '.join(_DELTA_VERSIONS)}: give session(config=) the settings that Delta's own documentation names"
        )
    return {
        "spark.jars.packages": f"{connector_package()},io.delta:delta-spark_2.13:{_DELTA_VERSIONS[spark]}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _format(name: TableFormat | str) -> TableFormat:
    try:
        return TableFormat(name)
    except ValueError:
        raise ValueError(f"table_format {name!r}: choose from {[choice.value for choice in TableFormat]}") from None


def _to_table_columns(messages: DataFrame) -> DataFrame:
    """Return messages with the columns of the table. Delta has no intervals."""
    lives = F.floor(microseconds(F.col(TIME_TO_LIVE)) / 1000).alias(_LIVES)
    columns = [lives if name == TIME_TO_LIVE else name for name in messages.columns if name != HEADERS]
    # Not as a date of the session's time zone.
    day = F.expr("date_from_unix_date(CAST(unix_seconds(enqueued_time_utc) DIV 86400 AS int))")
    return messages.select(*columns, day.alias(DATE))


def _store(batch: DataFrame, number: int, folder: str) -> None:
    """Write a micro-batch to separate folders, in place of what an earlier attempt wrote."""
    rows = batch.withColumn(PART, F.lit(number))
    rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(DATE, PART).parquet(folder)


def _last_batch(spark: SparkSession, checkpoint_location: str) -> int:
    """Return the number of the last micro-batch that is not repeated any more; -1 if there is none.

    Raises:
        ValueError: There is no checkpoint.
    """
    files = Hadoop(spark, checkpoint_location)
    if not files.exists("metadata"):
        raise ValueError(
            f"{checkpoint_location!r} holds no checkpoint of a stream: name that of the query that writes the table"
        )
    return max((int(name) for name in files.names("commits") if name.isdecimal()), default=-1)


class _Files:
    """The Parquet files of a table.

    A day's files are merged aside, into ``_merged/enqueued_date=…/part=N``, where N is the last of the parts that were
    merged. Once that is complete, the parts up to N make way for it.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._hadoop = Hadoop(spark, folder)

    def parts(self, last: int) -> dict[str, list[int]]:
        """Return the numbers of each day's parts, up to a number."""
        days = [name for name in self._hadoop.names("") if name.startswith(f"{DATE}=")]
        return {day: [number for number in self._numbers(day) if number <= last] for day in days}

    def merge(self, day: str, parts: list[int], file_bytes: int) -> Compaction:
        """Merge parts of a day; return how many files they had, and have now."""
        folder, aside = self._hadoop.folder, f"{_MERGED}/{day}"
        names = [f"{day}/{PART}={number}" for number in parts]
        sizes = [size for name in names for file, size in self._hadoop.sizes(name).items() if file.endswith(".parquet")]
        rows = self._spark.read.parquet(*(f"{folder}/{name}" for name in names))
        rows = rows.coalesce(max(1, round(sum(sizes) / file_bytes))).sortWithinPartitions("partition_id", "offset")
        rows.write.mode("overwrite").parquet(f"{folder}/{aside}/{PART}={parts[-1]}")
        self._put_into_place(day)
        merged = self._hadoop.names(f"{day}/{PART}={parts[-1]}")
        return Compaction(len(sizes), sum(file.endswith(".parquet") for file in merged))

    def finish(self) -> None:
        """Finish merges that were cut off."""
        for day in self._hadoop.names(_MERGED):
            self._put_into_place(day)

    def _put_into_place(self, day: str) -> None:
        for number in self._numbers(f"{_MERGED}/{day}"):
            aside = f"{_MERGED}/{day}/{PART}={number}"
            if self._hadoop.exists(f"{aside}/{_DONE}"):
                for old in self._numbers(day):
                    if old <= number:
                        self._hadoop.delete(f"{day}/{PART}={old}")
                self._hadoop.move(aside, f"{day}/{PART}={number}")
        self._hadoop.delete(f"{_MERGED}/{day}")

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name.partition("=")[2]) for name in self._hadoop.names(folder) if name.startswith(f"{PART}="))
