"""Keeping records of deferred and scheduled messages apart, so that the records around them can be deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._ledger.ranges import merge_offsets, minus, offsets_of
from kafkabus._ledger.snapshot import Snapshot
from kafkabus.exceptions import ServiceBusError

LOGGER = logging.getLogger("kafkabus.upkeep")

PINNED = 10
"""How many records, at least, become deletable for each deferred or scheduled message that is kept apart."""
ARCHIVED_AT_ONCE = 500
"""How many messages of a partition are kept apart in one go."""


class RecordArchiver:
    """Copies records of one entity into the archive, and drops them from it when their messages are settled.

    If the archive cannot be read or written, a warning is logged, and records stay in the log for longer.

    Args:
        context: The service's parts.
    """

    __slots__ = ("_context", "_kept", "_too_large")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._kept: dict[int, set[int]] = {}
        self._too_large: set[tuple[int, int]] = set()

    def reset(self) -> None:
        """Forget what is kept apart: the entity is another one."""
        self._kept, self._too_large = {}, set()

    def kept_offsets(self, partition: int) -> Set[int]:
        """Return the offsets of a partition whose records are known to be kept apart."""
        return self._kept.get(partition, frozenset())

    async def drop_settled(self, entity: Entity, snapshots: Mapping[int, Snapshot]) -> None:
        """Drop records whose messages are settled by the checkpoints.

        Args:
            entity: The entity.
            snapshots: The last checkpoints, by partition.
        """
        archive = self._context.stores.archive
        try:
            for partition, snapshot in snapshots.items():
                if self._kept.get(partition, True):
                    kept = set(await archive.find_archived(entity, partition))
                    # Set even if the drop fails: these records are all stored.
                    self._kept[partition] = kept
                    settled = set(offsets_of(minus(merge_offsets(kept), snapshot.unsettled)))
                    await archive.drop(entity, partition, settled)
                    self._kept[partition] = kept - settled
        except ServiceBusError as error:
            LOGGER.warning("archive entity=%s error=%s", entity.path, error)

    async def keep_apart(self, entity: Entity, snapshots: Mapping[int, Snapshot], moment: int) -> None:
        """Copy records of deferred and scheduled messages, if a few of these keep many records from being deleted.

        Args:
            entity: The entity.
            snapshots: The last checkpoints, by partition.
            moment: Records stored before it may be deleted, ms since 1970.
        """
        context, archive = self._context, self._context.stores.archive
        pinned: dict[int, list[int]] = {}
        for partition, snapshot in snapshots.items():
            if waiting := self._pinning_offsets(partition, snapshot):
                pinned[partition] = waiting
        try:
            old = await context.topics.offsets_at(entity.topic, list(pinned), moment)
            for partition, offsets in pinned.items():
                chosen = [offset for offset in offsets if offset < old[partition]][:ARCHIVED_AT_ONCE]
                for first, last in merge_offsets(chosen):
                    records = await archive.read_as_stored(entity, partition, first, last)
                    too_large = await archive.keep(entity, partition, records)
                    self._too_large |= {(partition, offset) for offset in too_large}
                self._kept[partition] = set(await archive.find_archived(entity, partition))
        except ServiceBusError as error:
            LOGGER.warning("archive entity=%s error=%s", entity.path, error)

    def _pinning_offsets(self, partition: int, snapshot: Snapshot) -> list[int]:
        """Return the offsets of a partition that keep many records from being deleted; [] if they are not worth a copy."""
        kept, aside = self.kept_offsets(partition), snapshot.aside
        upto = snapshot.watermark_without({*aside, *kept})
        waiting = [offset for offset in aside if offset < upto and offset not in kept]
        # Behind a record that cannot be kept apart, nothing is gained.
        stop = next((at for at, offset in enumerate(waiting) if (partition, offset) in self._too_large), len(waiting))
        waiting = waiting[:stop]
        return waiting if waiting and len(waiting) * PINNED <= upto - waiting[0] else []
