"""The beginning and the end of a job in an entity's log, as options of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Literal

from kafkabus_mapping.codec import to_milliseconds
from kafkabus_mapping.numbers import split_sequence_number

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_NUMBERS: Final = {"starting": -2, "ending": -1}
"""How Spark writes the place of a partition for which none is given: the beginning of its log, or its end."""

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
        offsets = _offsets_of(side, sequence_numbers)
    if offsets is None:
        return {}
    if isinstance(offsets, str):
        return {f"{side}Offsets": offsets}
    return {f"{side}Offsets": json.dumps({topic: _each(side, offsets, partitions)})}


def _offsets_of(side: Side, numbers: int | Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number in [numbers] if isinstance(numbers, int) else numbers:
        partition, offset = split_sequence_number(number)
        if partition in found:
            raise ValueError(
                f"{side}_sequence_numbers has two messages of partition {partition}, one of them {number}: give one for each"
            )
        found[partition] = offset if side == "starting" else offset + 1
    return found


def _each(side: Side, offsets: Mapping[int, int], partitions: int) -> dict[str, int]:
    """Return an offset for each partition, as Spark demands it."""
    unknown = [number for number in offsets if not 0 <= number < partitions]
    if unknown:
        raise ValueError(
            f"{side}: there is no partition {unknown[0]}; the entity has {partitions}, which are counted from 0"
        )
    negative = {number: offset for number, offset in offsets.items() if offset < 0}
    if negative:
        raise ValueError(f"{side}: offsets {negative} are negative; leave a partition out to read all of it")
    return {str(number): offsets.get(number, _NUMBERS[side]) for number in range(partitions)}
