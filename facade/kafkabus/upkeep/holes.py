"""Offsets that wait to be received and hold no message.

A Kafka transaction ended there, or the record there is an aborted transaction's, or a subscription's rules do not want it.
"""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.record import Record
from kafkabus._ledger.keys import holes_key
from kafkabus._ledger.operations import LedgerState, Peek, Seen, Seize, new_lease
from kafkabus._ledger.ranges import NEVER

READ_AT_ONCE = 2_000
"""How many records are looked at in one go."""
LOOK_FOR = 0.2
"""How long, in seconds, to look for holes of one log in one go."""
PASSED_OVER = 1_000
"""How many holes, from the cursor on, are passed over before a message that waits."""
TELL_EVERY = 20.0
"""How often, in seconds, to report how many there are, even if the number has not changed."""


class Holes:
    """Reports how many holes there are, so that they are not counted as messages; each record is looked at once.

    Args:
        context: The service's parts.

    Attributes:
        next_at: When to look again, on the monotonic clock.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.next_at = math.inf
        self._known: dict[int, _Looked] = {}
        self._generation = ""
        self._told: dict[int, int] = {}
        self._tell_at = 0.0

    def count_beyond(self, partition: int, cursor: int) -> int:
        """Return how many holes of a partition a ledger with this cursor has not passed, of those at the last look."""
        looked = self._known.get(partition)
        passed = 0 if looked is None else bisect_left(looked.holes, cursor)
        return max(0, self._told.get(partition, 0) - passed)

    async def look(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Look for holes beyond the cursors, and report how many there are.

        Args:
            entity: The entity.
            states: The states of its ledgers.
            ends: The ends of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        generation = f"{entity.generation} {entity.rules_version}"
        if generation != self._generation:
            self._generation, self._known, self._told = generation, {}, {}
        counts: dict[int, int] = {}
        for partition, state in enumerate(states):
            if state is None or not state.transacts or state.cursor >= ends[partition]:
                self._known.pop(partition, None)
                continue
            ledger, looked = (
                entity.ledgers[partition],
                await self._find(entity, partition, state.cursor, ends[partition]),
            )
            first, left = _first_not_in(looked.holes, state.cursor), len(looked.holes)
            if first == ends[partition] or first - state.cursor >= PASSED_OVER:
                # Receivers do not pass them before another message comes, or there are no receivers at all.
                seize = Seize(ledger, new_lease(), [], 1, looked.seen_part(state.cursor, first), entity.rules_version)
                await self._context.marks.tell_topic(entity, entity.subscription_filter)
                await self._context.ledger_client.execute(seize)
                left -= first - state.cursor
            if left and entity.detects_duplicates:
                # A duplicate that a subscription's rules do not want is counted as a duplicate.
                peek = Peek(ledger, NEVER, 1)
                await self._context.ledger_client.execute(peek)
                left -= len({offset for offset in peek.skipped if offset >= first}.intersection(looked.holes))
            if left:
                counts[partition] = left
        if counts != self._told or (counts and time.monotonic() >= self._tell_at):
            self._tell_at = time.monotonic() + TELL_EVERY
            key = holes_key(entity.namespace, entity.path, entity.generation)
            await self._context.ledger_client.tell_holes(key, counts)
            self._told = counts
        unread = any(looked.upto < ends[partition] for partition, looked in self._known.items())
        self.next_at = time.monotonic() if unread else self._tell_at if counts else math.inf

    async def _find(self, entity: Entity, partition: int, cursor: int, end: int) -> _Looked:
        """Return what is known of the log from the cursor on, up to the place that there was time to read."""
        looked = self._known.get(partition) or _Looked(cursor)
        if not cursor <= looked.upto <= end:
            looked = _Looked(cursor)
        until = time.monotonic() + LOOK_FOR
        while looked.upto < end and time.monotonic() < until:
            first = looked.upto if looked.last is None else looked.last[0]
            last = min(end, looked.upto + READ_AT_ONCE) - 1
            records = await self._context.connections.offset_reader.read(entity.topic, partition, first, last)
            if looked.last is not None and (not records or _place(records[0]) != looked.last):
                # The log was truncated, or trimmed up to there.
                looked = _Looked(cursor)
                continue
            there = {record.offset() for record in entity.select_received(records)}
            looked.holes.extend(offset for offset in range(looked.upto, last + 1) if offset not in there)
            looked.upto = last + 1
            looked.last = _place(records[-1]) if records else looked.last
        del looked.holes[: bisect_left(looked.holes, cursor)]
        self._known[partition] = looked
        return looked


@dataclass(slots=True)
class _Looked:
    """The part of a log that was looked at.

    Attributes:
        upto: The offset up to which it was looked at.
        holes: Offsets of holes, ascending.
        last: Offset and leader epoch of the last record, whether message or not.
    """

    upto: int
    holes: array[int] = field(default_factory=lambda: array("q"))
    last: tuple[int, int] | None = None

    def seen_part(self, cursor: int, upto: int) -> Seen:
        """Return the ``Seen`` of a claimer that found no message from the cursor on up to an offset."""
        if self.last is None or self.last[1] < 0:
            return Seen(cursor, upto, ())
        return Seen(cursor, upto, (), self.last[1], self.last[0] + 1)


def _place(record: Record) -> tuple[int, int]:
    epoch = record.leader_epoch()
    return record.offset() or 0, -1 if epoch is None else epoch


def _first_not_in(holes: Sequence[int], cursor: int) -> int:
    """Return the first offset from the cursor on that is none of the holes, which are ascending."""
    low, high = 0, len(holes)
    while low < high:
        middle = (low + high) // 2
        if holes[middle] == cursor + middle:
            low = middle + 1
        else:
            high = middle
    return cursor + low
