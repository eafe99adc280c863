"""Which messages are settled, by the last checkpoints of their ledgers, which Kafka holds: no Redis is asked."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkabus_mapping.archive import ARCHIVE
from kafkabus_mapping.checkpoints import CHANGES as CHANGES_BEGIN
from kafkabus_mapping.checkpoints import CHECKPOINTS, SEPARATOR, Checkpoint, ledger_prefix, read_checkpoint
from kafkabus_mapping.codec import from_milliseconds, to_milliseconds
from kafkabus_mapping.entities import EntityDescription, TopicDescription, generation_of, holder_id_of
from kafkabus_mapping.names import EntityPath, compacted_topic_name, topic_name
from kafkabus_spark.compacted import latest, latest_records
from kafkabus_spark.errors import SparkError
from kafkabus_spark.kafka import (
    HEADERS_TYPE,
    KAFKA_SCHEMA,
    LogPlaces,
    SparkLocation,
    has_topic,
    load_records,
    log_places,
    topic_id,
)
from kafkabus_spark.positions import is_within, moment_of, of_partition, offsets_of, options_at

SETTLED, STATE, CHECKPOINT_TIME = COLUMNS = ("settled", "state", "checkpoint_time")
"""The columns that give the state of a message; see ``read``."""
CHANGES: Final = "changes"
"""The column with changed application properties of a message, name to JSON text; only if any message has some."""
AS_OF: Final = "checkpoint_time"
"""The key in the metadata of the column ``settled``: the time of the oldest of the checkpoints, in ISO 8601."""

_BUCKET_BITS: Final = 8
"""Ranges are joined with the log by buckets of 256 offsets, so that each record is compared with few ranges."""
_RANGES: Final = "of_partition int, first bigint, last bigint, of_state string"

Ranges = list[tuple[int, int, int, "str | None"]]
"""Partition, first and last offset, and state; None for settled ones."""


class Selection(str, Enum):
    """The messages to read, by what became of them."""

    UNSETTLED = "unsettled"
    SETTLED = "settled"
    ALL = "all"

    @classmethod
    def parse(cls, state: Selection | str) -> Selection:
        """Return the selection of a name.

        Raises:
            ValueError: There is none of this name.
        """
        try:
            return cls(state)
        except ValueError:
            raise ValueError(
                f"state {state!r}: choose from {[choice.value for choice in cls]}, or None to read all without their states"
            ) from None


@dataclass(frozen=True)
class States:
    """The states of an entity's messages, as its ledgers' checkpoints give them.

    Attributes:
        cursors: The offset of each partition from which on messages were not granted, but for those in ``ranges``.
        times: When the checkpoint of each partition was written; None if there is none yet.
        ranges: Offsets that are not settled below the cursors, and those that are beyond.
        changes: Application properties that were changed, name to JSON text, by partition and offset of their message.
    """

    cursors: Sequence[int]
    times: Sequence[datetime | None]
    ranges: Ranges
    changes: Mapping[tuple[int, int], Mapping[str, str]]


def select(
    spark: SparkSession,
    location: SparkLocation,
    path: EntityPath,
    description: EntityDescription,
    selection: Selection,
    options: Mapping[str, str] | None,
) -> DataFrame:
    """Return records of an entity's log, and those that are kept elsewhere, with the columns ``COLUMNS`` and maybe ``CHANGES``.

    The states are those of now, and so is the range. A job that comes after upkeep has deleted records that are not settled now
    fails: they may be kept elsewhere by then, where this function did not look.

    Args:
        spark: The session.
        location: The namespace, and the Kafka cluster that holds it.
        path: The path of the entity: a queue, a subscription, or one of their dead-letter queues.
        description: The description of the queue or subscription.
        selection: The records to keep.
        options: The options of Spark's Kafka source for a range of the log; None: the log is not there yet.

    Raises:
        ValueError: The entity is a topic.
        SparkError: This is Spark Connect, which gives no access to Kafka's Java client.
    """
    if isinstance(description, TopicDescription):
        raise ValueError(
            f"{path.name!r} is a topic, whose messages are settled in its subscriptions: give subscription= the name of one"
        )
    topic = topic_name(location.namespace, path.log)
    own_id = topic_id(spark, location, topic) if path.is_dead_letter else description.topic_id
    generation = generation_of(path, description, own_id)
    prefixes = [ledger_prefix(location.namespace, path, generation, number) for number in range(description.partitions)]
    if options is None:
        records = spark.createDataFrame([], KAFKA_SCHEMA)
        return _with_states(records, _states(_checkpoints(spark, location, prefixes), prefixes))
    # Before the checkpoints, as upkeep writes them before it deletes records.
    places = log_places(spark, location, topic, moment_of("starting", options))
    if not places:
        raise SparkError(
            "state= needs a session that runs in this process: Spark Connect gives no access to Kafka's Java client, which "
            "reports where logs begin"
        )
    end = moment_of("ending", options)
    at_end = places if end == moment_of("starting", options) else log_places(spark, location, topic, end)
    states = _states(_checkpoints(spark, location, prefixes), prefixes)
    begins, ends = offsets_of("starting", options, topic, places), offsets_of("ending", options, topic, at_end)
    ends = list(map(max, begins, ends))
    unsettled = list(map(min, map(max, begins, _first_unsettled(states, places)), ends))
    loaded = _load_parts(spark, options, topic, (begins, unsettled, ends), selection)
    archived = _load_archived(spark, location, holder_id_of(path, description, own_id))
    if archived is not None:
        deleted = F.col("offset") < of_partition([F.lit(place.start) for place in places])
        loaded.append(archived.where(deleted & is_within(options, topic, len(places))))
    found = _with_states(reduce(DataFrame.unionByName, loaded), states)
    return found if selection is Selection.ALL else found.where(F.col(SETTLED) == F.lit(selection is Selection.SETTLED))


def _load_parts(
    spark: SparkSession,
    options: Mapping[str, str],
    topic: str,
    places: tuple[list[int], list[int], list[int]],
    selection: Selection,
) -> list[DataFrame]:
    """Return the records of a range of the log, in parts that do not overlap.

    Args:
        spark: The session.
        options: The options of Spark's Kafka source for the range.
        topic: The topic.
        places: The offset of each partition where the range begins, from which on messages may be unsettled, and where it ends.
        selection: The records to keep.
    """
    begins, unsettled, ends = places
    # Settled messages may be deleted before the job begins, unless they were asked for by their places.
    may_miss = {} if any(name.startswith("starting") for name in options) else {"failOnDataLoss": "false"}
    parts: list[tuple[list[int], list[int], dict[str, str]]] = [(unsettled, ends, {})]
    if selection is Selection.ALL:
        parts.append((begins, unsettled, may_miss))
    elif selection is Selection.SETTLED:
        parts = [(begins, ends, may_miss)]
    independent = {name: value for name, value in options.items() if not name.startswith(("starting", "ending"))}
    return [
        load_records(
            spark, independent | rule | options_at("starting", topic, first) | options_at("ending", topic, upto)
        )
        for first, upto, rule in parts
    ]


def _first_unsettled(states: States, places: Sequence[LogPlaces]) -> list[int]:
    """Return the offset in each partition's log before which all messages are settled."""
    found = [max(cursor, place.start) for cursor, place in zip(states.cursors, places, strict=True)]
    for partition, first, last, state in states.ranges:
        start = places[partition].start
        if state is not None and last >= start:
            found[partition] = min(found[partition], max(first, start))
    return found


def _with_states(records: DataFrame, states: States) -> DataFrame:
    known = [time.isoformat() for time in states.times if time is not None]
    as_of = min(known) if len(known) == len(states.times) else None
    ranges = records.sparkSession.createDataFrame(states.ranges, _RANGES)
    buckets = F.sequence(F.shiftright("first", _BUCKET_BITS), F.shiftright("last", _BUCKET_BITS))
    within = (
        (F.col("of_partition") == F.col("partition"))
        & (F.col("bucket") == F.shiftright("offset", _BUCKET_BITS))
        & F.col("offset").between(F.col("first"), F.col("last"))
    )
    joined = records.join(ranges.withColumn("bucket", F.explode(buckets)), within, "left")
    beyond = F.col("offset") >= of_partition([F.lit(cursor) for cursor in states.cursors])
    state = F.when(F.col("of_partition").isNotNull(), F.col("of_state")).when(beyond, F.lit("active"))
    changes: list[Column] = []
    if states.changes:
        rows = [(*place, dict(change)) for place, change in states.changes.items()]
        changed = records.sparkSession.createDataFrame(
            rows, f"in_partition int, at bigint, {CHANGES} map<string,string>"
        )
        here = (F.col("in_partition") == F.col("partition")) & (F.col("at") == F.col("offset"))
        joined, changes = joined.join(F.broadcast(changed), here, "left"), [F.col(CHANGES)]
    times = [F.timestamp_millis(F.lit(None if time is None else to_milliseconds(time))) for time in states.times]
    return joined.select(
        *records.columns,
        state.isNull().alias(SETTLED, metadata={} if as_of is None else {AS_OF: as_of}),
        state.alias(STATE),
        of_partition(times).alias(CHECKPOINT_TIME),
        *changes,
    )


def _states(found: dict[str, tuple[Checkpoint, datetime]], prefixes: Sequence[str]) -> States:
    """Return the states that checkpoints give; a partition without one has granted nothing yet."""
    cursors: list[int] = []
    times: list[datetime | None] = []
    ranges: Ranges = []
    changes: dict[tuple[int, int], Mapping[str, str]] = {}
    for partition, prefix in enumerate(prefixes):
        checkpoint, time = found.get(prefix, (None, None))
        cursors.append(0 if checkpoint is None else checkpoint.cursor)
        times.append(time)
        if checkpoint is not None:
            ranges += [(partition, first, last, state) for first, last, state in ranges_of(checkpoint)]
            changes |= {(partition, offset): change for offset, change, prepared in checkpoint.changes if not prepared}
    return States(cursors, times, ranges, changes)


def ranges_of(checkpoint: Checkpoint) -> list[tuple[int, int, str | None]]:
    """Return ranges of offsets with their states, each offset in one of them at most; None is settled.

    Offsets in no range are settled below the cursor, and active from there on.
    """
    held = [(first, last, "active") for first, last, _ in checkpoint.waiting]
    held += [(first, last, "deferred") for first, last, _ in checkpoint.deferred]
    held += [(offset, offset, "active") for offset, _, _ in checkpoint.moving]
    held += [(offset, offset, "scheduled") for offset, _ in checkpoint.scheduled]
    found: list[tuple[int, int, str | None]] = []
    upto = -1
    for first, last, state in sorted(held):
        # Blocks of different age may overlap.
        begin = max(first, upto + 1)
        if begin <= last:
            found.append((begin, last, state))
            upto = last
    begins = [first for first, _, _ in found]
    settled = [
        (offset, offset, None)
        for offset in checkpoint.skipped
        if offset >= checkpoint.cursor and not _is_in(found, bisect_right(begins, offset) - 1, offset)
    ]
    return [*found, *settled]


def _is_in(ranges: list[tuple[int, int, str | None]], position: int, offset: int) -> bool:
    return position >= 0 and offset <= ranges[position][1]


def _checkpoints(
    spark: SparkSession, location: SparkLocation, prefixes: Sequence[str]
) -> dict[str, tuple[Checkpoint, datetime]]:
    """Return the last checkpoints of ledgers, and when they were written, by prefix."""
    topic = compacted_topic_name(location.namespace, CHECKPOINTS)
    if not has_topic(spark, location, topic):
        return {}
    heads: dict[str, tuple[str, datetime]] = {}
    blocks: defaultdict[str, dict[int, str]] = defaultdict(dict)
    changes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    wanted = F.split_part(F.col("key"), F.lit(SEPARATOR), F.lit(1)).isin(*prefixes)
    for key, (text, written) in latest(spark, location, topic, wanted).items():
        prefix, separator, block = key.partition(SEPARATOR)
        if block.startswith(CHANGES_BEGIN):
            changes[prefix][block.removeprefix(CHANGES_BEGIN)] = text
        elif separator:
            blocks[prefix][int(block)] = text
        else:
            heads[prefix] = text, from_milliseconds(written)
    return {
        prefix: (read_checkpoint(head, blocks[prefix], changes[prefix]), time) for prefix, (head, time) in heads.items()
    }


def _load_archived(spark: SparkSession, location: SparkLocation, holder_id: str) -> DataFrame | None:
    """Return copies of records that are kept apart from their log; None if there is no place for them."""
    archive = compacted_topic_name(location.namespace, ARCHIVE)
    if not has_topic(spark, location, archive):
        return None
    copies = latest_records(spark, location, archive, F.col("key").startswith(f"{holder_id}/"))
    record = copies.select(F.parse_json(F.col("value").cast("string")).alias("record"))
    headers = F.variant_get("record", "$[1][2]", "array<variant>")
    return record.select(
        F.unbase64(F.variant_get("record", "$[1][0]", "string")).alias("key"),
        F.unbase64(F.variant_get("record", "$[1][1]", "string")).alias("value"),
        F.variant_get("record", "$[0][0]", "string").alias("topic"),
        F.variant_get("record", "$[0][1]", "int").alias("partition"),
        F.variant_get("record", "$[0][2]", "bigint").alias("offset"),
        F.timestamp_millis(F.variant_get("record", "$[2][1]", "bigint")).alias("timestamp"),
        F.variant_get("record", "$[2][0]", "int").alias("timestampType"),
        F.transform(headers, _header).cast(HEADERS_TYPE).alias("headers"),
    )


def _header(header: Column) -> Column:
    name, content = (F.variant_get(header, path, "string") for path in ("$[0]", "$[1]"))
    return F.struct(name.alias("key"), F.unbase64(content).alias("value"))
