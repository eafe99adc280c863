"""The beginning and the end of a job in an entity's log, as options of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafkabus_mapping.codec import from_milliseconds, to_milliseconds
from kafkabus_mapping.numbers import split_sequence_number
from kafkabus_spark.kafka import LogPlaces

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BEGINNING, _END = -2, -1
"""How Spark writes the beginning of a partition's log, and its end."""
_WORDS: Final = {EARLIEST: _BEGINNING, LATEST: _END}
_NUMBERS: Final = {"starting": _BEGINNING, "ending": _END}
"""The place of a partition for which none is given."""
_BEYOND: Final = 2**63 - 1

Side = Literal["starting", "ending"]
Offsets = str | Mapping[int, int]
"""``earliest``, ``latest``, JSON as Spark's Kafka source takes it, or an offset for some partitions."""


def position(
    side: Side,
    topic: str,
    partitions: int,
    offsets: Offsets | None,
    timestamp: datetime | None,
    sequence_numbers: int | Iterable[int] | None,
) -> dict[str, str]:
    """Return the options for one side of a range of the log.

    Args:
        side: Whether it is the beginning or the end of the range.
        topic: The topic.
        partitions: The number of its partitions.
        offsets: The offset of each partition: the first to read, or the one behind the last to read. A mapping may leave out
            partitions, which are then read from the beginning of their log, or to its end.
        timestamp: The time at which messages were enqueued: of the first to read, or the one behind the last to read.
        sequence_numbers: The first message to read, or the last one, of some partitions.

    Raises:
        ValueError: More than one of them is given, or a partition or a number is wrong.
    """
    given = {
        f"{side}_offsets": offsets,
        f"{side}_timestamp": timestamp,
        f"{side}_sequence_numbers": sequence_numbers,
    }
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} contradict each other: give one of them")
    if timestamp is not None:
        # Without a message of that time or later, a partition is read from its end on, or to its end.
        strategy = {"startingOffsetsByTimestampStrategy": LATEST} if side == "starting" else {}
        return {f"{side}Timestamp": str(to_milliseconds(timestamp)), **strategy}
    if sequence_numbers is not None:
        offsets = _places_of(side, sequence_numbers)
    if offsets is None:
        return {}
    if isinstance(offsets, str):
        return {f"{side}Offsets": _check_position(side, offsets, topic)}
    return options_at(side, topic, _each(side, offsets, partitions))


def _check_position(side: Side, text: str, topic: str) -> str:
    """Return a text that Spark's Kafka source takes."""
    if text in _WORDS:
        return text
    try:
        places = json.loads(text)[topic]
        if isinstance(places, dict) and all(isinstance(place, int) for place in places.values()):
            return text
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f'{side}_offsets {text!r} is neither {EARLIEST!r}, {LATEST!r} nor JSON like {{"{topic}": {{"0": 17}}}}: '
        "give one of them, or a mapping of partitions to offsets"
    )


def _places_of(side: Side, numbers: int | Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number in [numbers] if isinstance(numbers, int) else numbers:
        partition, offset = split_sequence_number(number)
        if partition in found:
            raise ValueError(
                f"{side}_sequence_numbers has two messages of partition {partition}, one of them {number}: give one for each"
            )
        found[partition] = offset if side == "starting" else offset + 1
    return found


def _each(side: Side, offsets: Mapping[int, int], partitions: int) -> list[int]:
    """Return an offset for each partition, as Spark demands it."""
    unknown = [number for number in offsets if not 0 <= number < partitions]
    if unknown:
        raise ValueError(
            f"{side}: there is no partition {unknown[0]}; the entity has {partitions}, which are counted from 0"
        )
    negative = {number: offset for number, offset in offsets.items() if offset < 0}
    if negative:
        raise ValueError(f"{side}: offsets {negative} are negative; leave a partition out to read all of it")
    return [offsets.get(number, _NUMBERS[side]) for number in range(partitions)]


def options_at(side: Side, topic: str, offsets: Sequence[int]) -> dict[str, str]:
    """Return the options for one side of a range of the log, by the offset of each partition."""
    return {f"{side}Offsets": json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})}


def moment_of(side: Side, options: Mapping[str, str]) -> datetime:
    """Return the time that one side of a range is given by; 1970 if it is given otherwise."""
    return from_milliseconds(int(options.get(f"{side}Timestamp", "0")))


def offsets_of(side: Side, options: Mapping[str, str], topic: str, places: Sequence[LogPlaces]) -> list[int]:
    """Return the offset of one side of a range in each partition's log; the end of the log is that of now.

    Args:
        side: Whether it is the beginning or the end of the range.
        options: The options of the range, as ``position`` returns them.
        topic: The topic.
        places: The places of each partition, for the moment ``moment_of(side, options)``.
    """
    if f"{side}Timestamp" in options:
        return [place.young for place in places]
    given = _read_offsets(side, options, topic, len(places))
    return [
        {_BEGINNING: place.start, _END: place.end}.get(offset, offset)
        for offset, place in zip(given, places, strict=True)
    ]


def is_within(options: Mapping[str, str], topic: str, partitions: int) -> Column:
    """Return whether a record that was deleted from its log lies in a range of it, over the columns of Spark's Kafka source."""
    starting, ending = (_edge(side, options, topic, partitions) for side in ("starting", "ending"))
    return starting & ~ending


def _edge(side: Side, options: Mapping[str, str], topic: str, partitions: int) -> Column:
    """Return whether a record lies on a side of a range or behind that."""
    moment = options.get(f"{side}Timestamp")
    if moment is not None:
        return F.col("timestamp") >= F.timestamp_millis(F.lit(int(moment)))
    given = _read_offsets(side, options, topic, partitions)
    return F.col("offset") >= of_partition(
        [F.lit({_BEGINNING: 0, _END: _BEYOND}.get(offset, offset)) for offset in given]
    )


def _read_offsets(side: Side, options: Mapping[str, str], topic: str, partitions: int) -> list[int]:
    text = options.get(f"{side}Offsets")
    if text is None or text in _WORDS:
        return [_NUMBERS[side] if text is None else _WORDS[text]] * partitions
    places = json.loads(text)[topic]
    return [places.get(str(number), _NUMBERS[side]) for number in range(partitions)]


def of_partition(values: Sequence[Column]) -> Column:
    """Return the one of several values that belongs to a record's partition."""
    return F.get(F.array(*values), F.col("partition"))
