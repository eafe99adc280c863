# Generated from facade/kafkabus/_async/receiving/recent_records.py by tools/generate_blocking.py. Do not edit.
"""Records that were filed a moment ago, in memory, because receivers are likely to be granted them soon."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import islice

from kafkabus._core.record import Record

FILED_AT_ONCE = 2_000
"""How many messages are read, and then filed, in one go."""
KEPT = 100_000
"""How many records that were filed are kept."""
KEPT_BYTES = 128 * 1024 * 1024
"""How much memory their bodies may take, in bytes."""


class RecentRecords:
    """Records that were filed a moment ago, by place; the oldest are dropped first.

    Receivers take the records that they were granted while another receiver files.
    """

    __slots__ = ("_bytes", "_changing", "_records")

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._bytes = 0
        self._changing = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether the next records would drop others."""
        return len(self._records) > KEPT - FILED_AT_ONCE or self._bytes > KEPT_BYTES

    def clear(self) -> None:
        """Keep none of the records."""
        with self._changing:
            self._records.clear()
            self._bytes = 0

    def put(self, partition: int, records: Sequence[Record]) -> None:
        """Keep records of a partition."""
        places = [_place(partition, record.offset() or 0) for record in records]
        with self._changing:
            self._take(places)  # A record that was read before counts once.
            self._records.update(zip(places, records, strict=True))
            self._bytes += _size(records)
            while len(self._records) > KEPT or self._bytes > KEPT_BYTES:
                self._take(list(islice(self._records, max(100, len(self._records) - KEPT))))

    def take(self, partition: int, offsets: Sequence[int]) -> tuple[list[Record], list[int]]:
        """Return the records at offsets, which are kept no longer, and the offsets of which none was kept."""
        with self._changing:
            found = self._take([_place(partition, offset) for offset in offsets])
        missing = [offset for offset, record in zip(offsets, found, strict=True) if record is None]
        return [record for record in found if record is not None], missing

    def _take(self, places: Iterable[int]) -> list[Record | None]:
        pop = self._records.pop
        found = [pop(place, None) for place in places]
        self._bytes -= _size(record for record in found if record is not None)
        return found


def _place(partition: int, offset: int) -> int:
    return offset << 16 | partition


def _size(records: Iterable[Record]) -> int:
    return sum([len(record.value() or b"") for record in records])
