"""Finding the duplicates among what nobody has read yet, where somebody looks at it before it is received."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from kafkabus._async.connections import Connections
from kafkabus._core.duplicate_detection import detect_duplicates
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import LedgerState

LOGGER = logging.getLogger("kafkabus")

SCAN_FOR = 1.0
"""For how long, in seconds, that is done in one partition before what it is done for."""
SCANNED_AT_ONCE = 2_000
"""How many records are looked at in one go."""
LOOK_BACK = 100
"""How many offsets before them are looked at: whether those are still the records that were judged."""


class DuplicateScan:
    """Finds duplicates before anybody reads them.

    Args:
        connections: The client's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def scan(self, entity: Entity, partition: int, at: int, end: int) -> int:
        """Find the duplicates in one partition, as far as that goes in ``SCAN_FOR``.

        Args:
            entity: Whose records are looked at.
            partition: Where.
            at: Up to which offset that is known, as far as the caller knows.
            end: Up to where it is to be known, at the most where the log ends.

        Returns:
            Up to which offset it is known now which records are duplicates.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        until = time.monotonic() + SCAN_FOR
        if at < end and await self._connections.ledger_client.is_full():
            # What is settled needs room, too.
            return at
        while at < end and time.monotonic() < until:
            upto = min(end, at + SCANNED_AT_ONCE)
            records = await self._connections.offset_reader.read(
                entity.topic, partition, max(0, at - LOOK_BACK), upto - 1
            )
            one = detect_duplicates(entity, partition, at, upto, records)
            await self._connections.ledger_client.execute(one)
            at = one.dedup_upto
            if one.log_truncated is not None:
                # Whoever reads on from the cursor finds out from where on.
                LOGGER.warning(
                    "log_truncated entity=%s partition=%d scanned_to=%d: its log was truncated",
                    entity.path,
                    partition,
                    at,
                )
                break
        return at

    async def scan_to(
        self, entity: Entity, states: Mapping[int, LedgerState | None], ends: Mapping[int, int]
    ) -> dict[int, int]:
        """Likewise in several partitions, up to their ends; returns up to where it is known of each.

        Args:
            entity: Whose records are looked at.
            states: Of the ledgers of the partitions.
            ends: Of their logs.
        """
        upto: dict[int, int] = {}
        for partition, state in states.items():
            at = 0 if state is None or state.dedup_upto is None else state.dedup_upto
            upto[partition] = min(ends[partition], await self.scan(entity, partition, at, ends[partition]))
        return upto

    async def scan_all(self, entity: Entity, partitions: Sequence[int]) -> None:
        """Likewise, of whoever did not ask for states and ends; nothing where no duplicates are detected."""
        if entity.detects_duplicates:
            states = await self._connections.ledger_client.states(
                [entity.ledgers[partition] for partition in partitions]
            )
            ends = await self._connections.pool.run(self._connections.topics.ends, entity.topic, partitions)
            await self.scan_to(entity, dict(zip(partitions, states, strict=True)), ends)
