"""The times at which messages of a log expire, by stretches of offsets, without I/O."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kafkabus._core.record import Record, expires_at
from kafkabus._ledger.ranges import Range

STRETCH = 1000
"""How many offsets a stretch has at the most."""
DUE_AT_ONCE = 16
"""How many stretches are looked into at a time."""


class Expiries:
    """The time at which the first message of each stretch of a log expires.

    The index has a thousandth of the log's size, whatever the messages are; which messages of a stretch expire is found by
    reading it again.

    Args:
        start: The offset of the log's first message that is not settled.
    """

    def __init__(self, start: int) -> None:
        self._read_to = start
        self._stretches: list[tuple[int, int, int]] = []

    def unread(self, end: int) -> Range | None:
        """Return first and last offset of the next stretch to add, in a log that ends at ``end``; None if all was added."""
        if self._read_to >= end:
            return None
        return self._read_to, min(end, self._read_to + STRETCH) - 1

    def add(self, first: int, last: int, records: Sequence[Record], life_ms: int | None) -> None:
        """Add a stretch that was read, with those of its records that may still expire.

        Args:
            first: The stretch's first offset.
            last: The stretch's last offset.
            records: The records.
            life_ms: The entity's time to live, in milliseconds; None: for ever.
        """
        self._read_to = max(self._read_to, last + 1)
        moments = [moment for record in records if (moment := expires_at(record, life_ms)) is not None]
        if moments:
            heapq.heappush(self._stretches, (min(moments), first, last))

    @property
    def next_at(self) -> int | None:
        """When the next stretch is due, ms since 1970; None if none ever is."""
        return self._stretches[0][0] if self._stretches else None

    def due(self, now_ms: int) -> list[Range]:
        """Take out stretches in which a message has expired, and return them: add them again."""
        due: list[Range] = []
        while self._stretches and self._stretches[0][0] <= now_ms and len(due) < DUE_AT_ONCE:
            _, first, last = heapq.heappop(self._stretches)
            due.append((first, last))
        return due
