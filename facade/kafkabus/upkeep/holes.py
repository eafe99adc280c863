"""Offsets that wait to be received and hold no message: where a Kafka transaction ended, and what it stored and took back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkabus.entity import Entity
from kafkabus.ledger.keys import holes_key
from kafkabus.ledger.operations import LedgerState, Seize, new_lease

if TYPE_CHECKING:
    from kafkabus.aio.services import Services

READ_AT_ONCE = 2_000
"""How many records are looked at in one go."""
LOOK_FOR = 0.2
"""How long, in seconds, it is looked for holes of one log in one go."""
TELL_EVERY = 20.0
"""How often, in seconds, it is said how many there are, also where that is what was said before."""


class Holes:
    """Tells how many there are, so that they are not counted as messages; each record is looked at once.

    Args:
        services: The service's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[int, tuple[int, list[int]]] = {}
        self._generation = ""
        self._told: dict[int, int] = {}
        self._tell_at = 0.0

    async def look(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Look for holes beyond the cursors, and say how many there are.

        Args:
            entity: Whose.
            states: Of its ledgers.
            ends: Of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        if entity.generation != self._generation:
            self._generation, self._known, self._told = entity.generation, {}, {}
        counts: dict[int, int] = {}
        for partition, state in enumerate(states):
            if state is None or not state.transacts or state.cursor >= ends[partition]:
                self._known.pop(partition, None)
                continue
            holes = await self._find(entity, partition, state.cursor, ends[partition])
            if len(holes) == ends[partition] - state.cursor:
                # Nobody who receives passes them before another message comes.
                seen = state.cursor, ends[partition]
                await self._services.courier.ask(Seize(entity.ledgers[partition], new_lease(), [], 1, seen))
            elif holes:
                counts[partition] = len(holes)
        if counts != self._told or (counts and time.monotonic() >= self._tell_at):
            self._tell_at = time.monotonic() + TELL_EVERY
            key = holes_key(entity.namespace, entity.path, entity.generation)
            await self._services.courier.tell_holes(key, counts)
            self._told = counts

    async def _find(self, entity: Entity, partition: int, cursor: int, end: int) -> list[int]:
        """The holes from the cursor on, as far as there was time to look."""
        upto, holes = self._known.get(partition, (cursor, []))
        at, until = max(upto, cursor), time.monotonic() + LOOK_FOR
        if upto > end:
            at, holes = cursor, []
        while at < end and time.monotonic() < until:
            last = min(end, at + READ_AT_ONCE) - 1
            records = await self._services.points.read(entity.topic, partition, at, last)
            there = {record.offset() for record in records}
            holes += [offset for offset in range(at, last + 1) if offset not in there]
            at = last + 1
        holes = [offset for offset in holes if offset >= cursor]
        self._known[partition] = at, holes
        return holes
