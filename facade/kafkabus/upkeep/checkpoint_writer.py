"""Writing checkpoints of an entity's ledgers, and noticing ledgers that are behind theirs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import Look, TakeSnapshot
from kafkabus._ledger.snapshot import Snapshot, denies
from kafkabus.exceptions import ServiceBusError

CHECKPOINT_EVERY = 5.0
"""How long after the last checkpoints, in seconds, at least, to write the next ones.

Upkeep also gives it to ``lua/look.lua``: within so many seconds it looks again at a ledger that was changed since its last
checkpoint, so that no request to that ledger has to notify it before. ``WRITTEN_WITHIN`` of ``lua/request.lua`` is the same.
"""
MARKERS_BEHIND = 5_000
"""How many transactions of the namespace a checkpoint may be behind, even if the ledger has not changed."""


class CheckpointWriter:
    """Writes checkpoints of one entity's ledgers, when the entity is maintained and the next ones are due.

    It has no timer. An entity is maintained because of its checkpoints

    - if a request changes a ledger: the ledger notifies upkeep, unless its ``look_at`` says that upkeep looks in time anyway
      (``lua/request.lua``; ``lua/look.lua`` sets it);
    - at ``next_at``, if a ledger was changed since its last checkpoint (``EntityMaintainer._set_deadline``), or if records
      cannot be deleted before the next one is written (``Trimmer.trim``).

    Args:
        context: The service's parts.

    Attributes:
        snapshots: The last checkpoints, by partition.
        next_at: When to write the next ones, on the monotonic clock.
        written_at: When the writing of the last ones began, on the monotonic clock.
    """

    __slots__ = ("_context", "_seen_unwritten_at", "_versions", "next_at", "snapshots", "written_at")

    def __init__(self, context: ClientContext) -> None:
        self.snapshots: dict[int, Snapshot] = {}
        self.next_at = 0.0
        self.written_at = self._seen_unwritten_at = time.monotonic()
        self._context = context
        # The texts that name the last change of each ledger when its checkpoint was written.
        self._versions: dict[int, str] = {}

    def reset(self) -> None:
        """Forget all checkpoints: the entity is another one."""
        self._versions, self.snapshots = {}, {}

    def skip(self, changed: Sequence[str]) -> None:
        """Write nothing of ledgers that hold nothing, until they change again.

        Args:
            changed: The text that names the last change of each ledger.
        """
        # The last checkpoints may name other changes, but nothing would be lost with these ledgers.
        self._versions = dict(enumerate(changed))

    @property
    def is_due(self) -> bool:
        """Whether it is time to write the next checkpoints."""
        return time.monotonic() >= self.next_at

    def last_change(self, partition: int) -> str | None:
        """Return the text that named a ledger's last change when its checkpoint was written; None if there is none."""
        return self._versions.get(partition)

    def is_changed(self, partition: int, look: Look | None) -> bool:
        """Return whether a ledger was changed since its last checkpoint."""
        return look is not None and look.changed != self._versions.get(partition)

    def unwritten_for(self, changed: Sequence[str | None]) -> float:
        """Return for how long, in seconds, changes of the ledgers have not been in a checkpoint; 0 if all are.

        Args:
            changed: The text that names the last change of each ledger now; None: Redis lost it.
        """
        if all(text is None or text == self._versions.get(partition) for partition, text in enumerate(changed)):
            self._seen_unwritten_at = math.inf
            return 0.0
        now = time.monotonic()
        self._seen_unwritten_at = min(self._seen_unwritten_at, now)
        return now - max(self.written_at, self._seen_unwritten_at)

    async def write(self, entity: Entity, looks: Sequence[Look | None]) -> bool:
        """Write checkpoints of the ledgers that were changed; bring those forward that are behind their last one.

        Args:
            entity: The entity.
            looks: Its ledgers, by partition; None: Redis lost it.

        Returns:
            Whether there was anything new to write.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        context, began = self._context, time.monotonic()
        self.next_at = began + CHECKPOINT_EVERY
        changed = {
            partition: look.changed
            for partition, look in enumerate(looks)
            if look is not None and self.is_changed(partition, look)
        }
        keeps = [TakeSnapshot(entity.ledgers[partition]) for partition in changed]
        before = await self._read_last(keeps)
        # Asked for before the ledgers, so that the marker of each transaction that they do not know of yet lies beyond.
        markers = await context.stores.markers.end() if keeps else None
        await context.ledger_client.execute(*keeps)
        await context.ledger_client.add_changes(keeps)
        behind = {
            keep.ledger.partition: last
            for keep, last in zip(keeps, before, strict=True)
            if last is not None
            # A ledger of a lower version can have a checkpoint only after it had reached that one.
            and (keep.snapshot.version < last.version or keep.snapshot.merged(last) is not keep.snapshot)
        }
        behind |= await self._find_unaware(keeps, before, markers or 0)
        if behind:
            await context.maintenance.recovery.recover_from_rollback(entity, behind)
        changes = self._take_changes(keeps, changed, markers)
        try:
            outdated = await context.stores.checkpoints.write(changes)
        except ServiceBusError:
            self.reset()
            raise
        for keep in keeps:
            if keep.ledger.keys.prefix in outdated:
                # Another instance has written a later checkpoint, which is read the next time.
                del self._versions[keep.ledger.partition], self.snapshots[keep.ledger.partition]
        self.written_at = began
        return bool(changes)

    def _take_changes(
        self, keeps: Sequence[TakeSnapshot], changed: Mapping[int, str], markers: int | None
    ) -> dict[str, Snapshot]:
        """Note the ledgers' checkpoints; return those that say something new, by the prefix of the ledger's keys."""
        changes: dict[str, Snapshot] = {}
        for keep in keeps:
            partition, snapshot = keep.ledger.partition, replace(keep.snapshot, markers=markers)
            self._versions[partition] = changed[partition]
            last = self.snapshots.get(partition)
            if not is_same(snapshot, last) or (markers or 0) - (last.markers or 0 if last else 0) > MARKERS_BEHIND:
                changes[keep.ledger.keys.prefix] = snapshot
                self.snapshots[partition] = snapshot
        return changes

    async def _find_unaware(
        self, keeps: Sequence[TakeSnapshot], before: Sequence[Snapshot | None], markers: int
    ) -> dict[int, Snapshot]:
        """Return the last checkpoints of ledgers that do not know of transactions that settled messages before.

        Those ledgers went back, though not to before the checkpoint before the last.
        """
        begins = {
            keep.ledger.keys.prefix: last.markers
            for keep, last in zip(keeps, before, strict=True)
            if last is not None and last.markers is not None and last.markers < markers
        }
        if not begins:
            return {}
        settled = await self._context.stores.markers.read_settlements(begins, markers)
        return {
            keep.ledger.partition: last
            for keep, last in zip(keeps, before, strict=True)
            if last is not None
            and any(
                denies(keep.snapshot, settlement.verb, settlement.ranges)
                for settlement in settled.get(keep.ledger.keys.prefix, ())
            )
        }

    async def _read_last(self, keeps: Sequence[TakeSnapshot]) -> list[Snapshot | None]:
        """Return the last checkpoint of each ledger. Read before the ledger itself, it never knows more than that."""
        return [
            self.snapshots.get(keep.ledger.partition)
            or await self._context.stores.checkpoints.read(keep.ledger.keys.prefix)
            for keep in keeps
        ]


def is_same(snapshot: Snapshot, other: Snapshot | None) -> bool:
    """Return whether two snapshots say the same, whenever they were taken.

    With changed properties, which transactions they account for is part of that: a transaction's change would come again over a
    later one.
    """
    if other is None or (snapshot.changes and snapshot.markers != other.markers):
        return False
    return replace(snapshot, version=0, markers=0) == replace(other, version=0, markers=0)
