"""Finding out which partitions of a queue are full."""

from __future__ import annotations

import bisect
import logging
import math
import time
from collections.abc import Mapping, Sequence

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.record import Record, size_of
from kafkabus._ledger.keys import full_key
from kafkabus._ledger.operations import LedgerState

LOGGER = logging.getLogger("kafkabus.upkeep")

LOOK_EVERY = 2.0
"""How often, in seconds, to look whether a queue is full."""
TELL_EVERY = 20.0
"""How often, in seconds, to say again that a queue is full, which Redis forgets after a while."""
PROBES = 16
"""At how many places of a log the size of its messages is sampled."""
WORTH_MEASURING = 4
"""From which part of its limit on a partition is measured: below a fourth, its size is estimated."""
READ_AT_ONCE = 500
"""How many offsets are measured in one go."""
MEASURED_FOR = 0.5
"""For how long, in seconds, a queue is measured at a time."""
SPAN = 50
"""For how many messages together sizes are kept."""
MEGABYTE = 1 << 20


class Sizes:
    """How many bytes the records of a log have, from some offset on; kept for several records together.

    Args:
        start: The first offset that counts.

    Attributes:
        start: As given, or later.
        upto: The offset up to which they are known.
    """

    def __init__(self, start: int) -> None:
        self.start = self.upto = start
        self._offsets = [start]
        self._totals = [0]

    def add(self, upto: int, records: Sequence[Record]) -> None:
        """Add the records that follow those already added, up to before an offset."""
        total = self._totals[-1]
        for index, record in enumerate(records, 1):
            total += size_of(record)
            if index % SPAN == 0:
                self._offsets.append((record.offset() or 0) + 1)
                self._totals.append(total)
        self.upto = upto
        if self._offsets[-1] < upto:
            self._offsets.append(upto)
            self._totals.append(total)

    def bytes_since(self, offset: int) -> float:
        """Return the bytes from an offset to ``upto``; of records that are kept together, their share."""
        place = bisect.bisect_right(self._offsets, offset)
        if place == len(self._offsets):
            return 0
        behind = self._totals[-1] - self._totals[place]
        if place == 0:
            return behind
        before, after = self._offsets[place - 1], self._offsets[place]
        return behind + (self._totals[place] - self._totals[place - 1]) * (after - offset) / (after - before)

    def forget(self, offset: int) -> None:
        """Forget the records before an offset, which are not asked for any more."""
        place = max(0, bisect.bisect_right(self._offsets, offset) - 1)
        del self._offsets[:place], self._totals[:place]
        self.start = self._offsets[0]


class Quota:
    """Notifies senders which partitions of one queue hold as much as they may.

    Kafka does not report to clients how large a log is, and settled messages do not count. So messages that are not settled are
    counted; if as many would fit, were each as large as it may be, that is all. Else some of them are sampled, and if they may
    take a fourth of a partition's limit, all that have not been received yet are measured, each once. Messages that were
    received and not settled count with the mean size of the others.

    Args:
        context: The service's parts.

    Attributes:
        next_at: When to look again, on the monotonic clock.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.next_at = math.inf
        self._look_at = 0.0
        self._told: tuple[str, frozenset[int]] | None = None
        self._sizes: dict[int, Sizes] = {}
        self._means: dict[int, tuple[int, float]] = {}

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() >= self._look_at

    def postpone(self) -> None:
        """Look when it is time to."""
        self.next_at = self._look_at

    async def look(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Check how full a queue is, now and then, and notify senders.

        Args:
            entity: The queue.
            states: The states of its ledgers.
            ends: The ends of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        if entity.path.is_dead_letter or not self.is_due:
            return
        generation = entity.generation
        if self._told is None or self._told[0] != generation:
            self._sizes, self._means = {}, {}
        limit, until = entity.description.max_size_in_megabytes * MEGABYTE, time.monotonic() + MEASURED_FOR
        try:
            full = frozenset(
                [
                    partition
                    for partition, state in enumerate(states)
                    if state is not None
                    and await self._size(entity, state, partition, ends[partition], limit, until) >= limit
                ]
            )
        finally:
            self._look_at = time.monotonic() + LOOK_EVERY
        if full or self._told != (generation, full):
            if full:
                LOGGER.warning("full entity=%s partitions=%s limit_mb=%d", entity.path, sorted(full), limit // MEGABYTE)
            await self._context.ledger_client.tell_full(full_key(entity.namespace, entity.path, generation), full)
            self._told = generation, full
        self.next_at = time.monotonic() + TELL_EVERY if full else math.inf

    async def _size(
        self, entity: Entity, state: LedgerState, partition: int, end: int, limit: int, until: float
    ) -> float:
        """Return about how many bytes of a partition are not settled; 0 if they surely fit."""
        waiting = max(0, end - state.cursor)
        # Scheduled messages that the cursor has not passed are held and wait, too.
        held = max(0, state.in_flight - min(state.scheduled, waiting))
        count = waiting + held
        if (
            count * entity.max_message_bytes < limit
            or count * await self._mean(entity, partition, end, count) * WORTH_MEASURING < limit
        ):
            self._sizes.pop(partition, None)
            return 0
        start = (await self._context.topics.starts(entity.topic, [partition]))[partition]
        # If all were received, those before the cursor show how large they are.
        first = max(start, min(state.cursor, end - READ_AT_ONCE))
        sizes = self._sizes.get(partition)
        if sizes is None or not sizes.start <= first <= sizes.upto <= end:
            sizes = self._sizes[partition] = Sizes(first)
        sizes.forget(first)
        while sizes.upto < end and sizes.bytes_since(state.cursor) < limit and time.monotonic() < until:
            upto = min(end, sizes.upto + READ_AT_ONCE)
            sizes.add(upto, await self._read(entity, partition, sizes.upto, upto - 1))
        mean = sizes.bytes_since(first) / max(1, sizes.upto - first)
        return sizes.bytes_since(state.cursor) + mean * (max(0, end - max(sizes.upto, state.cursor)) + held)

    async def _mean(self, entity: Entity, partition: int, end: int, count: int) -> float:
        """Return the mean size of a few evenly spread messages; the last one known if there are about as many as then."""
        known, mean = self._means.get(partition, (0, 0.0))
        if not known * 0.8 < count < known * 1.25:
            first = max(0, end - count)
            sizes: list[int] = []
            for probe in range(PROBES):
                at = first + (end - first) * probe // PROBES
                sizes += map(size_of, await self._read(entity, partition, at, at))
            mean = sum(sizes) / len(sizes) if sizes else 0.0
            self._means[partition] = count, mean
        return mean

    async def _read(self, entity: Entity, partition: int, first: int, last: int) -> list[Record]:
        return await self._context.connections.offset_reader.read(entity.topic, partition, first, last)
