"""Tending one entity: expired locks, half-made moves, messages delivered too often, and times to live."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.disposition import delivered_too_often
from kafkabus._async.dispositions.duplicate_scan import SCAN_FOR
from kafkabus._async.entities.recovery import marks_of
from kafkabus._core.duplicate_detection import detect_duplicates
from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.record import Record, is_expired, without
from kafkabus._ledger.operations import (
    Claim,
    Keep,
    Ledger,
    LedgerState,
    Look,
    Mark,
    Peek,
    Purge,
    Seen,
    Seize,
    new_lease,
)
from kafkabus._ledger.ranges import Range, merge_offsets, minus, offsets_of
from kafkabus._ledger.snapshot import VERSIONS_AHEAD, Snapshot
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.upkeep.expiry_index import Expiries
from kafkabus.upkeep.first_look import Quiet, is_urgent
from kafkabus.upkeep.holes import Holes
from kafkabus.upkeep.idleness import Idleness
from kafkabus.upkeep.quota import Quota
from kafkabus.upkeep.stuck_logs import StuckLogs
from kafkabus_mapping.entities import EntityStatus, SubscriptionDescription, generation_of
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.upkeep")

AGAIN = 0.5
"""After how many seconds to tend an entity again if something was not done for a reason that passes."""
AT_ONCE = 500
"""How many messages are taken at a time."""
CHECKPOINT_EVERY = 5.0
"""How often, in seconds, to write down where the ledgers stand."""
TRIM_EVERY = 30.0
"""How often, in seconds, to delete records that are not needed any more."""
TRIM_LATER = 3600.0
"""How often, in seconds, at least, to look whether settled records are old enough to be deleted."""
CALM_AFTER = 60.0
"""How long, in seconds, after an entity was tended, its logs are watched as closely as can be."""
SHARE_EVERY = 10.0
"""How often, in seconds, to look whether a topic's subscriptions go by what the topic has."""
MARKERS_BEHIND = 5_000
"""How many transactions of the namespace a checkpoint may be behind, even if the ledger is as it was."""
PINNED = 10
"""How many records, at least, become deletable for each deferred or scheduled message that is kept apart."""
KEPT_AT_ONCE = 500
"""How many messages of a partition are kept apart in one go."""
LOOKED_AT_ONCE = 2_000
"""How many records are searched in one go for scheduled ones."""
LEFT_HALF_CHANGED = 10.0
"""After how many seconds a change of rules counts as cut off."""
SHORT_FOR = 10.0
"""For how long, in seconds, a log is shorter than a topic knew it before the topic goes on with what is left."""
READY_BEFORE = 2.0
"""How long before a message is due, in seconds, to see that the brokers' clock is known."""
LOCK_MS = 60_000
"""For how long, in milliseconds, messages that were taken are locked; then other instances take them."""


class _Mark(NamedTuple):
    """A checkpoint that was written; if duplicates are detected, all that was stored before it was judged.

    Attributes:
        watermark: The offset below which all is settled by it.
        written_at: When its writing began, on the monotonic clock.
    """

    watermark: int
    written_at: float


class EntityMaintainer:
    """Tends one entity.

    Args:
        context: The service's parts.
        path: The entity.

    Attributes:
        path: As given.
        next_at: When to tend the entity again, on the monotonic clock, even if no ledger or log tells of a change before.
        ends: The ends of its logs at the last look, by partition.
        entity: The entity as it was tended last; None before that.
    """

    def __init__(self, context: ClientContext, path: EntityPath) -> None:
        self.path = path
        self.next_at = 0.0
        self.ends: Mapping[int, int] = {}
        self.entity: Entity | None = None
        self._context = context
        self._generation = ""
        self._began = 0.0
        self._overdue = 0
        self._write_at = 0.0
        self._trim_at = 0.0
        self._trimmed: dict[int, int] = {}
        self._share_at = 0.0
        self._settled: dict[int, tuple[_Mark, ...]] = {}
        self._scanned_to_the_end: set[int] = set()
        self._kept: dict[int, set[int]] = {}
        self._too_large: set[tuple[int, int]] = set()
        self._clean: dict[int, str] = {}
        self._written: dict[int, Snapshot] = {}
        self._expiries: dict[int, Expiries] = {}
        self._looked_at: dict[int, tuple[int, int]] = {}
        self._rules_version = 0
        self._changing_since: tuple[int, float] | None = None
        self._short_since: dict[int, float] = {}
        self._last_ends: dict[int, int] = {}
        self._ends_before: dict[int, int] = {}
        self._needed: dict[tuple[str, int], int] = {}
        self._written_at = self._seen_unwritten_at = time.monotonic()
        self._is_urgent = True
        self._idleness = Idleness(context)
        self._quota = Quota(context)
        self._holes = Holes(context)
        self._stuck = StuckLogs(context)

    async def tend(self) -> Entity | None:
        """Do what is to be done now.

        Returns:
            The entity; None if it is a dead-letter queue that was not needed yet.

        Raises:
            MessagingEntityNotFoundError: The entity is gone.
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        context = self._context
        self._began = time.monotonic()
        self.next_at = self._began + AGAIN
        entity = await self._entity()
        if entity is None:
            return None
        self.next_at = math.inf
        self.entity = entity
        await self._settle_rules(entity)
        looks = await self._look(entity)
        self._is_urgent = is_urgent(entity, looks)
        if await self._mark(entity, looks) or await self._rebuild(entity, looks):
            looks = await self._look(entity)
        states = [None if look is None else look.state for look in looks]
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        ends = await context.pool.run(context.topics.ends, entity.topic, range(entity.partitions))
        self.ends = ends
        busy = [
            partition
            for partition, look in enumerate(looks)
            if look is None or _is_due(look) or look.state.in_flight or look.state.cursor < ends[partition]
        ]
        if entity.is_topic:
            await self._check_ends(entity, states, ends)
        log_ends = ends
        if entity.detects_duplicates:
            # Before anything expires, because a duplicate does not expire.
            upto = await context.duplicate_scan.scan_to(entity, dict(enumerate(states)), ends)
            self._scanned_to_the_end = {partition for partition, end in ends.items() if upto[partition] == end}
            if len(self._scanned_to_the_end) < len(ends):
                self.wake_in(0)
            ends = upto
        if entity.is_topic:
            await self._tend_topic(entity, looks, ends)
            await self._look_after(entity, looks, log_ends)
            return entity
        for partition, state in enumerate(states):
            if state is not None and state.schedules:
                await self._enqueue_scheduled(entity, state, partition, ends[partition])
                # Records that were not looked at yet may be scheduled, and expire later.
                ends = {**ends, partition: min(ends[partition], max(self._looked_at[partition][0], state.cursor))}
        if busy:
            await self._clear_away(entity, states, ends, busy)
        await self._look_after(entity, looks, log_ends)
        return entity

    def begin_quiet(self, quiet: Quiet) -> None:
        """Note an entity that needs nothing done until a ledger or a log tells of a change; see ``FirstLook``."""
        self.entity, self.ends, self.next_at, self._is_urgent = quiet.entity, quiet.ends, math.inf, quiet.is_urgent
        # Another text may have been written down, but nothing would be lost with this one.
        self._clean = dict(enumerate(quiet.changed))

    def is_calm(self, now: float) -> bool:
        """Return whether nothing was to be done for a while, and new messages may wait for a while until upkeep notices them.

        Args:
            now: The time on the monotonic clock.
        """
        return not self._is_urgent and now - self._began >= CALM_AFTER

    def written(self, ledger: Ledger) -> str | None:
        """Return the text that names a ledger's last change when the ledger was written down; None if it was not."""
        return self._clean.get(ledger.partition)

    def wake_in(self, seconds: float) -> None:
        """Have the entity tended again after some seconds at the latest."""
        self.next_at = min(self.next_at, time.monotonic() + seconds)

    def unwritten_for(self, changed: Sequence[str | None]) -> float:
        """Return for how long, in seconds, changes of the ledgers have not been written down; 0 if all are.

        Args:
            changed: The text that names the last change of each ledger now; None: Redis lost it.
        """
        if all(text is None or text == self._clean.get(partition) for partition, text in enumerate(changed)):
            self._seen_unwritten_at = math.inf
            return 0.0
        now = time.monotonic()
        self._seen_unwritten_at = min(self._seen_unwritten_at, now)
        return now - max(self._written_at, self._seen_unwritten_at)

    def first_unsettled(self, partition: int) -> int | None:
        """Return the first offset of a partition that was not settled by the last checkpoint; None if there is none yet.

        Deferred and scheduled messages do not count.
        """
        snapshot = self._written.get(partition)
        return None if snapshot is None else snapshot.watermark_without(snapshot.aside)

    def holes(self, partition: int, cursor: int) -> int:
        """Return how many offsets of a partition hold no message, of those that wait if its ledger has this cursor."""
        return self._holes.beyond(partition, cursor)

    def _wake_ready(self, seconds: float) -> None:
        """Have the entity tended again after some seconds, and before, so that the brokers' clock is known by then."""
        self.wake_in(seconds - READY_BEFORE if seconds > 2 * READY_BEFORE else seconds)

    async def _look(self, entity: Entity) -> list[Look | None]:
        """Look at the ledgers, which from now on tell if they are due before this is done again."""
        written = [self._clean.get(partition) for partition in range(entity.partitions)]
        return await self._context.ledger_client.look(entity.ledgers, written, CHECKPOINT_EVERY)

    def _is_changed(self, partition: int, look: Look | None) -> bool:
        """Return whether a ledger was changed since it was last written down."""
        return look is not None and look.changed != self._clean.get(partition)

    async def _look_ahead(self, entity: Entity, looks: Sequence[Look | None]) -> None:
        """Note when the ledgers are due next, as they are now that all is done."""
        if any(self._is_changed(partition, look) or _is_due(look) for partition, look in enumerate(looks)):
            looks = await self._look(entity)
        due = [look.due_in for look in looks if look is not None and look.due_in is not None]
        # A ledger that stays due waits for something that passes.
        self._overdue = self._overdue + 1 if any(one <= 0 for one in due) else 0
        for one in due:
            self._wake_ready(one if one > 0 else min(AGAIN, 0.01 * 2 ** min(self._overdue, 10)))
        if None in looks:
            self.wake_in(AGAIN)
        if any(self._is_changed(partition, look) for partition, look in enumerate(looks)):
            self.next_at = min(self.next_at, self._write_at)

    async def _mark(self, entity: Entity, looks: Sequence[Look | None]) -> bool:
        """Set senders' marks again in ledgers that forgot them; that rebuilds ledgers that are gone.

        Returns:
            Whether there were such ledgers.
        """
        marks = [
            Mark(entity.ledgers[partition], name)
            for name in marks_of(entity, entity.description)
            for partition, look in enumerate(looks)
            if look is None or not getattr(look.state, name)
        ]
        if marks:
            await self._context.ledger_client.execute(*marks)
        return bool(marks)

    async def _rebuild(self, entity: Entity, looks: Sequence[Look | None]) -> bool:
        """Rebuild ledgers that Redis lost, as any request does; return whether there were any."""
        lost = [Claim.poll(entity.ledgers[partition]) for partition, look in enumerate(looks) if look is None]
        if lost:
            await self._context.ledger_client.execute(*lost)
        return bool(lost)

    async def _settle_rules(self, entity: Entity) -> None:
        """Go on with a change of rules that was cut off."""
        description = entity.description
        if (
            entity.subscription_filter is None
            or not isinstance(description, SubscriptionDescription)
            or description.changing is None
        ):
            self._changing_since = None
            return
        change = description.rules_version
        if self._changing_since is None or self._changing_since[0] != change:
            self._changing_since = change, time.monotonic()
            self.wake_in(LEFT_HALF_CHANGED)
        elif time.monotonic() - self._changing_since[1] >= LEFT_HALF_CHANGED:
            async with self._context.descriptions.changing(self.path.name) as lock:
                known = await self._context.descriptions.get(self.path.name)
                if isinstance(known, SubscriptionDescription) and known.rules_version == change:
                    LOGGER.warning("rules_settled entity=%s: a change of its rules was cut off", self.path)
                    await self._context.rule_changes.settle(lock, known)
        else:
            self.wake_in(AGAIN)

    async def _check_ends(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Have a topic go on with what is left of a log that is shorter than the topic knew it.

        A subscription's reader knows better from where on, and is given time to do so first.
        """
        now = time.monotonic()
        short = [partition for partition, state in enumerate(states) if state and state.cursor > ends[partition]]
        self._short_since = {partition: self._short_since.get(partition, now) for partition in short}
        for partition, since in self._short_since.items():
            if now - since >= SHORT_FOR:
                await self._context.recovery.recover_from_truncation(entity, partition, None)
            self.wake_in(AGAIN)

    async def _tend_topic(self, entity: Entity, looks: Sequence[Look | None], ends: Mapping[int, int]) -> None:
        """Tend a topic itself: its scheduled messages are its own, all others its subscriptions'."""
        context = self._context
        if time.monotonic() >= self._share_at:
            self._share_at = time.monotonic() + SHARE_EVERY
            await context.lifecycle.share(entity.description)
        else:
            self.next_at = min(self.next_at, self._share_at)
        for partition, look in enumerate(looks):
            state = None if look is None else look.state
            if state is None or not (state.schedules or entity.detects_duplicates):
                continue
            if state.moving or _is_due(look):
                await context.transfers.finish(entity, partition)
            await self._enqueue_scheduled(entity, state, partition, ends[partition])
            looked_at, _ = self._looked_at[partition]
            if looked_at > state.cursor:
                # The other records among them are no concern of the topic's own ledger.
                seize = Seize(entity.ledgers[partition], new_lease(), [], 1, Seen(state.cursor, looked_at, ()))
                await context.ledger_client.execute(seize)

    async def _clear_away(
        self, entity: Entity, states: Sequence[LedgerState | None], ends: dict[int, int], busy: Sequence[int]
    ) -> None:
        """End expired locks, finish half-made moves, dead-letter messages delivered too often, and let messages expire."""
        context = self._context
        # Messages whose locks have expired go back, and the answer says what else is to be done.
        claims = [Claim.poll(entity.ledgers[partition]) for partition in busy]
        await context.ledger_client.execute(*claims)
        for claim in claims:
            if claim.granted.moves:
                await context.transfers.finish(entity, claim.ledger.partition)
            if claim.granted.redeliverable and entity.expires:
                await self._give_up_exceeded(entity, claim.ledger.partition)
        if entity.expires:
            await self._expire(entity, states, ends, {claim.ledger.partition: claim for claim in claims})

    async def _look_after(self, entity: Entity, looks: Sequence[Look | None], ends: Mapping[int, int]) -> None:
        """Write down where the ledgers stand, then see to the entity as a whole, and to when to tend it again."""
        await self._keep(entity, looks, ends)
        await self._look_around(entity, [None if look is None else look.state for look in looks], ends)
        await self._look_ahead(entity, looks)

    async def _look_around(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Look how full the queue is, which logs are stuck, which offsets hold no message, and whether any client uses it.

        A failure of that keeps nothing else from being done.
        """
        try:
            await self._stuck.look(entity, ends)
            if not entity.is_topic:
                await self._holes.look(entity, states, ends)
            if entity.subscription_filter is None and self._quota.is_due:
                # A topic holds the messages that the slowest of its subscriptions has not settled.
                holders = await self._slowest(entity) if entity.is_topic else states
                await self._quota.look(entity, holders, ends)
            elif entity.subscription_filter is None:
                self._quota.postpone()
            await self._idleness.look(entity)
        except MessagingEntityNotFoundError:
            raise
        except ServiceBusError as error:
            LOGGER.warning("upkeep_entity entity=%s error=%s", self.path, error)
            self.wake_in(AGAIN)
        self.next_at = min(
            self.next_at, *(part.next_at for part in (self._stuck, self._holes, self._quota, self._idleness))
        )

    async def _slowest(self, entity: Entity) -> list[LedgerState | None]:
        """Return, for each of a topic's partitions, the ledger of the subscription with the most to receive; None: none."""
        readers = await self._context.catalog.readers_of(entity)
        states = [await self._context.ledger_client.states(reader.ledgers) for reader in readers]
        return [
            min((state for state in several if state is not None), key=lambda state: state.cursor, default=None)
            for several in zip(*states, strict=True)
        ] or [None] * entity.partitions

    async def _entity(self) -> Entity | None:
        """Return the entity; None if it is a dead-letter queue that was not needed yet."""
        # Asked for each time: a deleted topic would be waited for, like a new one that not all brokers know yet.
        description = await self._context.descriptions.get(self.path.name)
        if description is None or description.status is EntityStatus.DELETING:
            raise MessagingEntityNotFoundError(f"{self.path} was deleted")
        if self.path.is_dead_letter and not self._generation and not await self._context.catalog.exists(self.path):
            return None
        entity = await self._context.catalog.entity(self.path)
        await self._context.recovery.check_topic(entity)
        if entity.generation != self._generation:
            self._generation, self._expiries = entity.generation, {}
            self._clean, self._written, self._settled, self._looked_at = {}, {}, {}, {}
            self._last_ends, self._ends_before, self._short_since = {}, {}, {}
            self._kept, self._too_large = {}, set()
        # The catalog's entity may be older than the description; a change of where messages move on to counts at once.
        if generation_of(entity.path, description, entity.topic_id) == entity.generation:
            entity = entity.described_as(description)
        if entity.rules_version != self._rules_version:
            # The records read so far were chosen by other rules.
            self._rules_version, self._expiries = entity.rules_version, {}
        return entity

    async def _keep(self, entity: Entity, looks: Sequence[Look | None], log_ends: Mapping[int, int]) -> None:
        """Now and then, write down where the ledgers stand, and delete records that are not needed any more."""
        if time.monotonic() >= self._write_at:
            self._write_at = time.monotonic() + CHECKPOINT_EVERY
            await self._write_down(entity, looks)
            # These ends were asked for before the ledgers were.
            self._ends_before = self._last_ends
        self._last_ends = dict(log_ends)
        # Records are deleted by the checkpoint before the last, so the last one is made once more.
        marks = {partition: marks for partition, marks in self._settled.items() if marks}
        if any(len(two) < 2 or two[0].watermark != two[1].watermark for two in marks.values()) or (
            entity.is_topic and self._ends_before != self._last_ends
        ):
            self.next_at = min(self.next_at, self._write_at)
        if time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + TRIM_EVERY
            self._trimmed = {partition: two[0].watermark for partition, two in marks.items() if len(two) > 1}
            await self._trim(entity)
        if any(two[0].watermark != self._trimmed.get(partition, 0) for partition, two in marks.items()):
            self.next_at = min(self.next_at, self._trim_at)

    async def _enqueue_scheduled(self, entity: Entity, state: LedgerState, partition: int, end: int) -> None:
        """Enqueue scheduled messages whose time has come; first find those whose senders did not get to tell of them."""
        looked_at, version = self._looked_at.get(partition, (0, 0))
        # A rebuilt ledger may know of fewer scheduled messages.
        at = state.cursor if state.version - version >= VERSIONS_AHEAD else max(state.cursor, looked_at)
        until = time.monotonic() + SCAN_FOR
        while at < end and time.monotonic() < until:
            upto = min(end, at + LOOKED_AT_ONCE)
            await self._context.dispositions.put_off(
                entity, partition, await self._read(entity, partition, at, upto - 1)
            )
            at = upto
        self._looked_at[partition] = (at, state.version)
        if at < end:
            self.wake_in(0)
        if state.scheduled:
            # Messages that are activated may have expired.
            await self._context.clock_skew.now_ms(entity, partition)
            await self._context.dispositions.activate(entity, partition)

    async def _write_down(self, entity: Entity, looks: Sequence[Look | None]) -> None:
        """Write checkpoints of the ledgers in which anything happened."""
        changed = {
            partition: look.changed
            for partition, look in enumerate(looks)
            if look is not None and self._is_changed(partition, look)
        }
        keeps = [Keep(entity.ledgers[partition]) for partition in changed]
        began = time.monotonic()
        written = await self._last_written(keeps)
        # Asked for before the ledgers, so that the marker of each transaction that they do not know of yet lies beyond.
        markers = await self._context.markers.end() if keeps else None
        await self._context.ledger_client.execute(*keeps)
        await self._context.ledger_client.add_changes(keeps)
        behind = {
            keep.ledger.partition: last
            for keep, last in zip(keeps, written, strict=True)
            if last is not None
            # A ledger of a lower version can have been written down only after it had reached that one.
            and (keep.snapshot.version < last.version or keep.snapshot.merged(last) is not keep.snapshot)
        }
        behind |= await self._denied(keeps, written, markers or 0)
        if behind:
            await self._context.recovery.recover_from_rollback(entity, behind)
        news: dict[str, Snapshot] = {}
        for keep in keeps:
            partition, snapshot = keep.ledger.partition, replace(keep.snapshot, markers=markers)
            self._clean[partition] = changed[partition]
            last = self._written.get(partition)
            if not same(snapshot, last) or (markers or 0) - (last.markers or 0 if last else 0) > MARKERS_BEHIND:
                news[keep.ledger.keys.prefix] = snapshot
                self._written[partition] = snapshot
        try:
            outdated = await self._context.checkpoints.write(news)
        except ServiceBusError:
            self._clean, self._written = {}, {}
            raise
        for keep in keeps:
            if keep.ledger.keys.prefix in outdated:
                # Another instance has written a later checkpoint: the next round looks at it.
                del self._clean[keep.ledger.partition], self._written[keep.ledger.partition]
        if news and isinstance(entity.description, SubscriptionDescription):
            # Records that all subscriptions have settled are their topic's to delete.
            topic = EntityPath(entity.description.topic_entity)
            await self._context.ledger_client.ask_upkeep(entity.namespace, topic, TRIM_EVERY)
        self._written_at = began
        await self._drop_settled(entity)
        for partition, snapshot in self._written.items():
            if snapshot.dedup_upto is None or partition in self._scanned_to_the_end:
                mark = _Mark(snapshot.watermark_without(self._kept.get(partition, ())), began)
                self._settled[partition] = (*self._settled.get(partition, ())[-1:], mark)

    async def _denied(
        self, keeps: Sequence[Keep], written: Sequence[Snapshot | None], markers: int
    ) -> dict[int, Snapshot]:
        """Return the last checkpoints of ledgers that do not know of transactions that settled messages before.

        Those ledgers went back, though not as far as the checkpoint before the last.
        """
        begins = {
            keep.ledger.keys.prefix: last.markers
            for keep, last in zip(keeps, written, strict=True)
            if last is not None and last.markers is not None and last.markers < markers
        }
        if not begins:
            return {}
        settled = await self._context.markers.settled_since(begins, markers)
        return {
            keep.ledger.partition: last
            for keep, last in zip(keeps, written, strict=True)
            if last is not None
            and any(keep.snapshot.denies(one.verb, one.ranges) for one in settled.get(keep.ledger.keys.prefix, ()))
        }

    async def _last_written(self, keeps: Sequence[Keep]) -> list[Snapshot | None]:
        """Return the last checkpoint of each ledger. Asked for before the ledger itself, it never knows more than that."""
        return [
            self._written.get(keep.ledger.partition) or await self._context.checkpoints.read(keep.ledger.keys.prefix)
            for keep in keeps
        ]

    async def _drop_settled(self, entity: Entity) -> None:
        """Drop records that were kept apart and whose messages are settled by the checkpoints."""
        archive = self._context.archive
        try:
            for partition, snapshot in self._written.items():
                if self._kept.get(partition, True):
                    kept = set(await archive.of(entity, partition))
                    # Set even if the drop fails: these records are all stored.
                    self._kept[partition] = kept
                    settled = set(offsets_of(minus(merge_offsets(kept), snapshot.unsettled)))
                    await archive.drop(entity, partition, settled)
                    self._kept[partition] = kept - settled
        except ServiceBusError as error:
            LOGGER.warning("archive entity=%s error=%s", self.path, error)

    async def _keep_apart(self, entity: Entity, moment: int) -> None:
        """Keep records of deferred and scheduled messages apart, if a few of these keep many records from being deleted."""
        context = self._context
        pinned: dict[int, list[int]] = {}
        for partition, snapshot in self._written.items():
            kept, aside = self._kept.get(partition, set()), snapshot.aside
            upto = snapshot.watermark_without({*aside, *kept})
            waiting = [offset for offset in aside if offset < upto and offset not in kept]
            # Behind a record that cannot be kept apart, nothing is gained.
            waiting = waiting[
                : next((at for at, one in enumerate(waiting) if (partition, one) in self._too_large), len(waiting))
            ]
            if waiting and len(waiting) * PINNED <= upto - waiting[0]:
                pinned[partition] = waiting
        try:
            old = await context.pool.run(context.topics.offsets_at, entity.topic, list(pinned), moment)
            for partition, offsets in pinned.items():
                chosen = [offset for offset in offsets if offset < old[partition]][:KEPT_AT_ONCE]
                for first, last in merge_offsets(chosen):
                    records = await context.archive.read_as_stored(entity, partition, first, last)
                    too_large = await context.archive.keep(entity, partition, records)
                    self._too_large |= {(partition, offset) for offset in too_large}
                self._kept[partition] = set(await context.archive.of(entity, partition))
        except ServiceBusError as error:
            LOGGER.warning("archive entity=%s error=%s", self.path, error)

    async def _trim(self, entity: Entity) -> None:
        """Delete records that are settled by the checkpoint before the last, and old enough.

        A subscription's records are its topic's; upkeep of the topic asks for what all subscriptions have settled.
        """
        context = self._context
        marks = {partition: marks[0] for partition, marks in self._settled.items() if len(marks) > 1}
        safe = {partition: mark.watermark for partition, mark in marks.items()}
        if entity.is_topic:
            safe = await self._settled_by_all(entity, safe)
        safe = {partition: offset for partition, offset in safe.items() if offset > 0}
        now = await context.clock_skew.now_ms(entity, 0) if marks else None
        if now is None:
            if marks:
                self.wake_in(TRIM_EVERY)
            return
        moment = now - entity.description.settled_retention // timedelta(milliseconds=1)
        await self._keep_apart(entity, moment)
        if entity.subscription_filter is not None:
            await self._forget_duplicates(entity)
            return
        if entity.detects_duplicates:
            # If Redis is lost, the window that was open when a ledger was last written down is read once more.
            oldest = min(mark.written_at for mark in marks.values())
            window = entity.window_ms + round((time.monotonic() - oldest) * 1000)
            counts_from = await context.pool.run(context.topics.offsets_at, entity.topic, list(safe), now - window)
            safe = {partition: min(offset, counts_from[partition]) for partition, offset in safe.items()}
            await context.ledger_client.execute(
                *(
                    detect_duplicates(entity, partition, 0, 0, [], log_start=offset)
                    for partition, offset in safe.items()
                )
            )
        old = await context.pool.run(context.topics.offsets_at, entity.topic, list(safe), moment)
        if any(old[partition] < offset for partition, offset in safe.items()):
            retention = entity.description.settled_retention.total_seconds()
            self.wake_in(min(max(TRIM_EVERY, retention / 50), TRIM_LATER))
        starts = await context.pool.run(context.topics.starts, entity.topic, list(safe))
        upto = {partition: min(offset, old[partition]) for partition, offset in safe.items()}
        upto = {partition: offset for partition, offset in upto.items() if offset > starts[partition]}
        await context.pool.run(context.topics.delete_records, entity.topic, upto)
        if upto:
            LOGGER.info("trimmed entity=%s partitions=%s", entity.path, upto)

    async def _forget_duplicates(self, entity: Entity) -> None:
        """Forget duplicates in the part of a subscription's log that its topic has trimmed: no client asks for those."""
        if entity.detects_duplicates:
            context = self._context
            starts = await context.pool.run(context.topics.starts, entity.topic, range(entity.partitions))
            await context.ledger_client.execute(
                *(
                    detect_duplicates(entity, partition, 0, 0, [], log_start=start)
                    for partition, start in starts.items()
                )
            )

    async def _settled_by_all(self, entity: Entity, own: Mapping[int, int]) -> dict[int, int]:
        """Return the offset up to which all subscriptions have settled each of a topic's logs, and need no more of it.

        Their checkpoints said so when they were looked at before: a later one may have been written meanwhile.

        Args:
            entity: The topic.
            own: The same offsets of the topic's own ledgers, which know of scheduled messages.
        """
        context, found = self._context, dict[tuple[str, int], int]()
        # So that no subscription is missing.
        await context.descriptions.catch_up()
        for reader in await context.catalog.readers_of(entity):
            for ledger in reader.ledgers:
                found[ledger.keys.prefix, ledger.partition] = await context.recovery.needed_from(reader, ledger)
        before, self._needed = self._needed, found
        if found != before:
            self.wake_in(TRIM_EVERY)
        # The ends were asked for before the subscriptions, and before it was looked up whether anything is scheduled: a
        # subscription that is created meanwhile gets the records behind them, and records that are scheduled meanwhile stay.
        settled = {
            partition: own.get(partition, 0)
            if entity.description.schedules or (last := self._written.get(partition)) is None or last.schedules
            else end
            for partition, end in self._ends_before.items()
        }
        for prefix, partition in found:
            settled[partition] = min(settled.get(partition, 0), before.get((prefix, partition), 0))
        return settled

    async def _give_up_exceeded(self, entity: Entity, partition: int) -> None:
        """Dead-letter messages that were delivered too often, and whose last receiver let its lock expire."""
        seize = Seize.max_deliveries_exceeded(
            entity.ledgers[partition], new_lease(), entity.max_deliveries, LOCK_MS, AT_ONCE
        )
        await self._context.ledger_client.execute(seize)
        reader = await self._context.readers.of(entity)
        for first, last, count, deferred in seize.again:
            delivery = entity.delivery(partition, seize.lease, seize.expiry, count, deferred=deferred)
            records = await reader.log.read_again(delivery, [(first, last)])
            reason = delivered_too_often(entity, count)
            if records:
                await self._context.dispositions.dead_letter(entity, delivery, records, *reason)

    async def _expire(
        self,
        entity: Entity,
        states: Sequence[LedgerState | None],
        ends: dict[int, int],
        claims: dict[int, Claim],
    ) -> None:
        """Let messages expire whose time to live is over, though no receiver has touched them."""
        with_ttl = {partition for partition in claims if (state := states[partition]) is None or state.has_message_ttl}
        if not with_ttl and entity.life_ms is None:
            return
        times = {partition: await self._context.clock_skew.now_ms(entity, partition) for partition in claims}
        known = {partition: now for partition, now in times.items() if now is not None}
        if len(known) < len(times):
            self.wake_in(AGAIN)
        for partition in sorted(with_ttl & known.keys()):
            await self._expire_each(entity, partition, ends[partition], known[partition])
        uniform = {partition: claims[partition] for partition in known if partition not in with_ttl}
        if uniform and entity.life_ms is not None:
            now = min(known[partition] for partition in uniform)
            await self._expire_by_time(entity, uniform, ends, now - entity.life_ms)

    async def _expire_by_time(
        self, entity: Entity, claims: dict[int, Claim], ends: dict[int, int], moment: int
    ) -> None:
        """Let messages enqueued up to a moment expire, as all have one time to live; the broker knows where these end."""
        context = self._context
        upto = await context.pool.run(context.topics.first_after, entity.topic, list(claims), moment + 1)
        for partition, (expired, stored_at) in upto.items():
            end = min(expired, ends[partition])
            if stored_at is not None:
                self._expires_in(stored_at - moment)
            ledger, granted = entity.ledgers[partition], claims[partition].granted
            peek = Peek(ledger, 0, AT_ONCE)
            await context.ledger_client.execute(peek)
            # If expired messages are not kept, those that wait need not be read.
            kept = [one for one in peek.found if one.first < end and (entity.keeps_expired or one.deferred)]
            if kept:
                await self._take(entity, partition, [(one.first, min(one.last, end - 1)) for one in kept])
            if entity.keeps_expired and peek.cursor < end:
                await self._take_from_log(entity, partition, peek.cursor, min(end, peek.cursor + AT_ONCE))
            waits = granted.redeliverable or any(one.first < end and not one.deferred for one in peek.found)
            if not entity.keeps_expired and (peek.cursor < end or waits):
                await context.ledger_client.execute(Purge(ledger, end))

    async def _expire_each(self, entity: Entity, partition: int, end: int, now: int) -> None:
        """Let messages with times to live of their own expire; an index says when the first of each stretch is over."""
        expiries = self._expiries.get(partition)
        if expiries is None:
            expiries = await self._first_look(entity, partition)
            self._expiries[partition] = expiries
        while (stretch := expiries.unread(end)) is not None:
            expiries.add(*stretch, await self._read(entity, partition, stretch[0], stretch[1]), entity.life_ms)
        for first, last in expiries.due(now):
            records = await self._read(entity, partition, first, last)
            records = await self._context.dispositions.put_off(entity, partition, records)
            expired = [record for record in records if is_expired(record, entity.life_ms, now)]
            if expired:
                await self._take(entity, partition, runs_of(expired), expired)
            expiries.add(first, last, without(records, expired), entity.life_ms)
        if expiries.next_at is not None:
            self._expires_in(expiries.next_at - now)

    def _expires_in(self, ms: int) -> None:
        """Have the entity tended again when a message expires, in so many ms, but rest as long as this time took."""
        self._wake_ready(max(time.monotonic() - self._began, ms / 1000))

    async def _first_look(self, entity: Entity, partition: int) -> Expiries:
        """Return the index of a log that was not looked at yet, with the records of it that are kept apart."""
        context = self._context
        peek = Peek(entity.ledgers[partition], 0, 1)
        await context.ledger_client.execute(peek)
        first = peek.found[0].first if peek.found else peek.cursor
        start = (await context.pool.run(context.topics.starts, entity.topic, [partition]))[partition]
        expiries = Expiries(max(first, start))
        for offset in await context.archive.of(entity, partition) if first < start else ():
            expiries.add(offset, offset, await self._read(entity, partition, offset, offset), entity.life_ms)
        return expiries

    async def _take_from_log(self, entity: Entity, partition: int, first: int, upto: int) -> None:
        """Take messages that were never granted, from the cursor on, and let them expire."""
        records = await self._read(entity, partition, first, upto - 1)
        await self._context.marks.tell_topic(entity, entity.subscription_filter)
        records = await self._context.dispositions.put_off(entity, partition, records)
        await self._take(entity, partition, runs_of(records), records, (first, upto))

    async def _take(
        self,
        entity: Entity,
        partition: int,
        ranges: list[Range],
        records: Sequence[Record] | None = None,
        seen: Range | None = None,
    ) -> None:
        """Lock messages that wait in ranges, and let them expire; ``records`` are theirs if they were read already."""
        read = None if seen is None else Seen(*seen, ())
        seize = Seize(entity.ledgers[partition], new_lease(), ranges, LOCK_MS, read, entity.rules_version)
        await self._context.ledger_client.execute(seize)
        reader = await self._context.readers.of(entity)
        for first, last, count, deferred in seize.again:
            delivery = entity.delivery(partition, seize.lease, seize.expiry, count, deferred=deferred)
            if records is None:
                taken = await reader.log.read_again(delivery, [(first, last)])
            else:
                taken = [record for record in records if first <= (record.offset() or 0) <= last]
            await self._context.dispositions.expire(entity, delivery, taken)

    async def _read(self, entity: Entity, partition: int, first: int, last: int) -> list[Record]:
        return await self._context.archive.read(entity, partition, first, last)


def _is_due(look: Look | None) -> bool:
    """Return whether the time of a lock, a transfer or a scheduled message of a ledger has come."""
    return look is not None and look.due_in is not None and look.due_in <= 0


def same(snapshot: Snapshot, other: Snapshot | None) -> bool:
    """Return whether two snapshots say the same, whenever they were taken.

    With changed properties, which transactions they account for is part of that: a transaction's change would come again over a
    later one.
    """
    if other is None or (snapshot.changes and snapshot.markers != other.markers):
        return False
    return replace(snapshot, version=0, markers=0) == replace(other, version=0, markers=0)
