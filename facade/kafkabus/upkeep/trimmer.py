"""Deleting records that are settled and old enough."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from datetime import timedelta
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._core.duplicate_detection import detect_duplicates
from kafkabus._core.entity import Entity
from kafkabus._ledger.snapshot import Snapshot
from kafkabus.upkeep.checkpoint_writer import CheckpointWriter
from kafkabus.upkeep.deadline import Deadline
from kafkabus.upkeep.record_archiver import RecordArchiver
from kafkabus_mapping.entities import SubscriptionDescription
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.upkeep")

TRIM_EVERY = 30.0
"""How often, in seconds, to delete records that are not needed any more."""
TRIM_LATER = 3600.0
"""How often, in seconds, at least, to check whether settled records are old enough to be deleted."""


class _Watermark(NamedTuple):
    """A partition's part of a checkpoint; if duplicates are detected, all messages before it were judged.

    Attributes:
        offset: The offset below which all is settled.
        written_at: When the writing of the checkpoint began, on the monotonic clock.
    """

    offset: int
    written_at: float


class Trimmer:
    """Deletes records of one entity that the checkpoint before the last says are settled.

    A subscription's records are its topic's: they are deleted when all subscriptions have settled them.

    Args:
        context: The service's parts.
        checkpoints: Writes the entity's checkpoints.
        deadline: When the entity is maintained next.
    """

    __slots__ = (
        "_archiver",
        "_checkpoints",
        "_context",
        "_deadline",
        "_ends",
        "_ends_before",
        "_needed",
        "_next_at",
        "_trimmed",
        "_watermarks",
    )

    def __init__(self, context: ClientContext, checkpoints: CheckpointWriter, deadline: Deadline) -> None:
        self._context = context
        self._checkpoints = checkpoints
        self._deadline = deadline
        self._archiver = RecordArchiver(context)
        self._next_at = 0.0
        # The last two of each partition.
        self._watermarks: dict[int, tuple[_Watermark, ...]] = {}
        self._trimmed: dict[int, int] = {}
        # The logs' ends at the last round, and at the last one before the last checkpoints.
        self._ends: dict[int, int] = {}
        self._ends_before: dict[int, int] = {}
        self._needed: dict[tuple[str, int], int] = {}

    def reset(self) -> None:
        """Forget all checkpoints: the entity is another one."""
        self._watermarks, self._ends, self._ends_before = {}, {}, {}
        self._archiver.reset()

    async def note_checkpoints(self, entity: Entity, *, are_new: bool, judged: Set[int]) -> None:
        """Note that checkpoints were written; have a subscription's topic trimmed.

        Args:
            entity: The entity.
            are_new: Whether they say something new.
            judged: The partitions in which all messages are known to be duplicates or not.

        Raises:
            ServiceBusError: Redis cannot be reached.
        """
        if are_new and isinstance(entity.description, SubscriptionDescription):
            topic = EntityPath(entity.description.topic_entity)
            await self._context.ledger_client.ask_upkeep(entity.namespace, topic, TRIM_EVERY)
        snapshots = self._checkpoints.snapshots
        await self._archiver.drop_settled(entity, snapshots)
        for partition, snapshot in snapshots.items():
            if snapshot.dedup_upto is None or partition in judged:
                offset = snapshot.watermark_without(self._archiver.kept_offsets(partition))
                last = self._watermarks.get(partition, ())[-1:]
                self._watermarks[partition] = (*last, _Watermark(offset, self._checkpoints.written_at))
        # These ends were asked for before the ledgers were.
        self._ends_before = self._ends

    async def trim(self, entity: Entity, ends: Mapping[int, int]) -> None:
        """Delete records, if it is time to.

        Args:
            entity: The entity.
            ends: The ends of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        self._ends = dict(ends)
        # Records are deleted by the checkpoint before the last, so the last one is made once more.
        if any(len(two) < 2 or two[0].offset != two[1].offset for two in self._watermarks.values()) or (
            entity.is_topic and self._ends_before != self._ends
        ):
            self._deadline.advance(self._checkpoints.next_at)
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + TRIM_EVERY
            self._trimmed = {partition: two[0].offset for partition, two in self._watermarks.items() if len(two) > 1}
            await self._trim(entity)
        if any(two[0].offset != self._trimmed.get(partition, 0) for partition, two in self._watermarks.items()):
            self._deadline.advance(self._next_at)

    async def _trim(self, entity: Entity) -> None:
        context = self._context
        watermarks = {partition: two[0] for partition, two in self._watermarks.items() if len(two) > 1}
        safe = {partition: watermark.offset for partition, watermark in watermarks.items()}
        if entity.is_topic:
            safe = await self._settled_by_all(entity, safe)
        safe = {partition: offset for partition, offset in safe.items() if offset > 0}
        now = await context.stores.clock_skew.now_ms(entity, 0) if watermarks else None
        if now is None:
            if watermarks:
                self._deadline.advance_within(TRIM_EVERY)
            return
        moment = now - entity.description.settled_retention // timedelta(milliseconds=1)
        await self._archiver.keep_apart(entity, self._checkpoints.snapshots, moment)
        if entity.subscription_filter is not None:
            if entity.detects_duplicates:
                # Its topic has trimmed the log up to there: no client asks for those any more.
                starts = await context.topics.starts(entity.topic, range(entity.partitions))
                await self._forget_duplicates(entity, starts)
            return
        if entity.detects_duplicates:
            oldest = min(watermark.written_at for watermark in watermarks.values())
            safe = await self._keep_window(entity, safe, now, oldest)
        await self._delete(entity, safe, moment)

    async def _keep_window(self, entity: Entity, safe: Mapping[int, int], now: int, oldest: float) -> dict[int, int]:
        """Return the offsets without those of the window for duplicates; forget duplicates before them.

        If Redis is lost, the window that was open when a ledger's checkpoint was written is read once more.

        Args:
            entity: The entity.
            safe: The offset of each partition below which nothing else is needed.
            now: The time on the brokers' clock, ms since 1970.
            oldest: When the oldest of the checkpoints was written, on the monotonic clock.
        """
        context = self._context
        window = entity.window_ms + round((time.monotonic() - oldest) * 1000)
        counts_from = await context.topics.offsets_at(entity.topic, list(safe), now - window)
        safe = {partition: min(offset, counts_from[partition]) for partition, offset in safe.items()}
        await self._forget_duplicates(entity, safe)
        return safe

    async def _delete(self, entity: Entity, safe: Mapping[int, int], moment: int) -> None:
        """Delete the records below some offsets that were stored before a moment, ms since 1970."""
        context = self._context
        old = await context.topics.offsets_at(entity.topic, list(safe), moment)
        if any(old[partition] < offset for partition, offset in safe.items()):
            retention = entity.description.settled_retention.total_seconds()
            self._deadline.advance_within(min(max(TRIM_EVERY, retention / 50), TRIM_LATER))
        starts = await context.topics.starts(entity.topic, list(safe))
        upto = {partition: min(offset, old[partition]) for partition, offset in safe.items()}
        upto = {partition: offset for partition, offset in upto.items() if offset > starts[partition]}
        await context.topics.delete_records(entity.topic, upto)
        if upto:
            LOGGER.info("trimmed entity=%s partitions=%s", entity.path, upto)

    async def _forget_duplicates(self, entity: Entity, upto: Mapping[int, int]) -> None:
        """Forget the duplicates below an offset of each partition."""
        await self._context.ledger_client.execute(
            *(detect_duplicates(entity, partition, 0, 0, [], log_start=offset) for partition, offset in upto.items())
        )

    async def _settled_by_all(self, entity: Entity, own: Mapping[int, int]) -> dict[int, int]:
        """Return the offset up to which all subscriptions have settled each of a topic's logs, and need no more of it.

        Their checkpoints said so at the last trim: a later one may have been written since.

        Args:
            entity: The topic.
            own: The same offsets of the topic's own ledgers, which know of scheduled messages.
        """
        context, found = self._context, dict[tuple[str, int], int]()
        # So that no subscription is missing.
        await context.descriptions.catch_up()
        for reader in await context.catalog.readers_of(entity):
            for ledger in reader.ledgers:
                found[ledger.keys.prefix, ledger.partition] = await context.maintenance.recovery.first_needed_offset(
                    reader, ledger
                )
        before, self._needed = self._needed, found
        if found != before:
            self._deadline.advance_within(TRIM_EVERY)
        # The ends were asked for before the subscriptions, and before it was looked up whether anything is scheduled: a
        # subscription that is created later gets the records behind them, and records that are scheduled later stay.
        snapshots = self._checkpoints.snapshots
        settled = {
            partition: own.get(partition, 0)
            if entity.description.schedules or _may_schedule(snapshots.get(partition))
            else end
            for partition, end in self._ends_before.items()
        }
        for prefix, partition in found:
            settled[partition] = min(settled.get(partition, 0), before.get((prefix, partition), 0))
        return settled


def _may_schedule(snapshot: Snapshot | None) -> bool:
    return snapshot is None or snapshot.schedules
