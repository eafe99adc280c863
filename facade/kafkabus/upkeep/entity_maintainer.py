"""Maintaining one entity: the order of the work, and when it is done again."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence, Set

from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.disposition import delivered_too_often
from kafkabus._async.entities.recovery import marks_of
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import Claim, Ledger, LedgerState, Look, Mark, Seize, new_lease
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.upkeep import checkpoint_writer
from kafkabus.upkeep.checkpoint_writer import CheckpointWriter
from kafkabus.upkeep.deadline import RETRY_AFTER, Deadline
from kafkabus.upkeep.first_look import Quiet, is_urgent
from kafkabus.upkeep.holes import Holes
from kafkabus.upkeep.idleness import Idleness
from kafkabus.upkeep.message_expiry import AT_ONCE, LOCK_MS, MessageExpiry
from kafkabus.upkeep.quota import Quota
from kafkabus.upkeep.rule_change_recovery import RuleChangeRecovery
from kafkabus.upkeep.scheduled_messages import ScheduledMessages
from kafkabus.upkeep.stuck_logs import StuckLogs
from kafkabus.upkeep.topic_maintenance import TopicMaintenance
from kafkabus.upkeep.trimmer import Trimmer
from kafkabus_mapping.entities import EntityStatus, generation_of
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.upkeep")

CALM_AFTER = 60.0
"""For how long, in seconds, after an entity was maintained, its logs are watched as closely as can be."""


class EntityMaintainer:
    """Maintains one entity.

    Args:
        context: The service's parts.
        path: The entity.

    Attributes:
        path: As given.
        ends: The ends of its logs when it was maintained last, by partition.
        entity: The entity as it was maintained last; None before that.
    """

    def __init__(self, context: ClientContext, path: EntityPath) -> None:
        self.path = path
        self.ends: Mapping[int, int] = {}
        self.entity: Entity | None = None
        self._context = context
        self._generation = ""
        self._began = 0.0
        self._overdue = 0
        self._is_urgent = True
        self._deadline = Deadline()
        self._checkpoints = CheckpointWriter(context)
        self._trimmer = Trimmer(context, self._checkpoints, self._deadline)
        self._expiry = MessageExpiry(context, self._deadline)
        self._scheduled = ScheduledMessages(context, self._deadline)
        self._rule_changes = RuleChangeRecovery(context, self._deadline)
        self._topic = TopicMaintenance(context, self._deadline, self._scheduled)
        self._idleness = Idleness(context)
        self._quota = Quota(context)
        self._holes = Holes(context)
        self._stuck = StuckLogs(context)

    @property
    def next_at(self) -> float:
        """When to maintain the entity again, on the monotonic clock, even if no ledger or log reports a change before."""
        return self._deadline.at

    async def maintain(self) -> Entity | None:
        """Do the work that is due.

        Returns:
            The entity; None if it is a dead-letter queue that was not needed yet.

        Raises:
            MessagingEntityNotFoundError: The entity is gone.
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        context = self._context
        self._began = time.monotonic()
        self._deadline.reset(self._began + RETRY_AFTER)
        entity = await self._look_up()
        if entity is None:
            return None
        self._deadline.reset()
        self.entity = entity
        await self._rule_changes.run(entity)
        looks = await self._look_at_ledgers(entity)
        self._is_urgent = is_urgent(entity, looks)
        if await self._restore_marks(entity, looks) or await self._rebuild_lost(entity, looks):
            looks = await self._look_at_ledgers(entity)
        states = [None if look is None else look.state for look in looks]
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        self.ends = await context.topics.ends(entity.topic, range(entity.partitions))
        if entity.is_topic:
            await self._topic.check_ends(entity, states, self.ends)
        # Before anything expires, because a duplicate does not expire.
        ends = await self._find_duplicates(entity, states, self.ends) if entity.detects_duplicates else self.ends
        if entity.is_topic:
            await self._topic.run(entity, looks, ends)
        else:
            await self._settle_due(entity, looks, ends)
        judged = {partition for partition, end in self.ends.items() if ends[partition] == end}
        await self._write_checkpoints(entity, looks, judged)
        await self._run_checks(entity, states)
        await self._set_deadline(entity, looks)
        return entity

    def begin_quiet(self, quiet: Quiet) -> None:
        """Note an entity that needs nothing done until a ledger or a log reports a change; see ``FirstLook``."""
        self.entity, self.ends, self._is_urgent = quiet.entity, quiet.ends, quiet.is_urgent
        self._deadline.reset()
        self._checkpoints.skip(quiet.changed)

    def is_calm(self, now: float) -> bool:
        """Return whether nothing was due for a while, and new messages may wait for a while until upkeep notices them.

        Args:
            now: The time on the monotonic clock.
        """
        return not self._is_urgent and now - self._began >= CALM_AFTER

    def last_change(self, ledger: Ledger) -> str | None:
        """Return the text that named a ledger's last change when its checkpoint was written; None if there is none."""
        return self._checkpoints.last_change(ledger.partition)

    def retry_later(self) -> None:
        """Have the entity maintained again soon: something was not done for a reason that passes."""
        self._deadline.advance_within(RETRY_AFTER)

    def unwritten_for(self, changed: Sequence[str | None]) -> float:
        """Return for how long, in seconds, changes of the ledgers have not been in a checkpoint; 0 if all are.

        Args:
            changed: The text that names the last change of each ledger now; None: Redis lost it.
        """
        return self._checkpoints.unwritten_for(changed)

    def first_unsettled(self, partition: int) -> int | None:
        """Return the first offset of a partition that was not settled by the last checkpoint; None if there is none yet.

        Deferred and scheduled messages do not count.
        """
        snapshot = self._checkpoints.snapshots.get(partition)
        return None if snapshot is None else snapshot.watermark_without(snapshot.aside)

    def holes(self, partition: int, cursor: int) -> int:
        """Return how many offsets of a partition hold no message, of those that wait if its ledger has this cursor."""
        return self._holes.count_beyond(partition, cursor)

    async def _look_up(self) -> Entity | None:
        """Return the entity; None if it is a dead-letter queue that was not needed yet."""
        # Asked for each time: a deleted topic would be waited for, like a new one that not all brokers know yet.
        description = await self._context.descriptions.get(self.path.name)
        if description is None or description.status is EntityStatus.DELETING:
            raise MessagingEntityNotFoundError(f"{self.path} was deleted")
        if self.path.is_dead_letter and not self._generation and not await self._context.catalog.exists(self.path):
            return None
        entity = await self._context.catalog.entity(self.path)
        await self._context.maintenance.recovery.check_topic(entity)
        if entity.generation != self._generation:
            self._generation = entity.generation
            for part in (self._checkpoints, self._trimmer, self._expiry, self._scheduled, self._topic):
                part.reset()
        # The catalog's entity may be older than the description; a change of where messages move on to counts at once.
        if generation_of(entity.path, description, entity.topic_id) == entity.generation:
            entity = entity.with_description(description)
        if self.entity is not None and entity.rules_version != self.entity.rules_version:
            # The records read so far were chosen by other rules.
            self._expiry.reset()
        return entity

    async def _look_at_ledgers(self, entity: Entity) -> list[Look | None]:
        """Return the ledgers; from now on they notify upkeep if they need it before it looks again.

        Raises:
            ServiceBusError: Redis cannot be reached.
        """
        written = [self._checkpoints.last_change(partition) for partition in range(entity.partitions)]
        # Tests set another time in that module.
        return await self._context.ledger_client.look(entity.ledgers, written, checkpoint_writer.CHECKPOINT_EVERY)

    async def _restore_marks(self, entity: Entity, looks: Sequence[Look | None]) -> bool:
        """Set senders' marks again in ledgers that forgot them, which rebuilds lost ones; return whether there were any."""
        marks = [
            Mark(entity.ledgers[partition], name)
            for name in marks_of(entity, entity.description)
            for partition, look in enumerate(looks)
            if look is None or not getattr(look.state, name)
        ]
        if marks:
            await self._context.ledger_client.execute(*marks)
        return bool(marks)

    async def _rebuild_lost(self, entity: Entity, looks: Sequence[Look | None]) -> bool:
        """Rebuild ledgers that Redis lost, as any request does; return whether there were any."""
        lost = [Claim.poll(entity.ledgers[partition]) for partition, look in enumerate(looks) if look is None]
        if lost:
            await self._context.ledger_client.execute(*lost)
        return bool(lost)

    async def _find_duplicates(
        self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Find duplicates; return the offset of each partition up to which all messages are judged."""
        upto = await self._context.duplicate_scan.scan_to(entity, dict(enumerate(states)), ends)
        if any(upto[partition] != end for partition, end in ends.items()):
            self._deadline.advance_within(0)
        return upto

    async def _settle_due(self, entity: Entity, looks: Sequence[Look | None], ends: Mapping[int, int]) -> None:
        """Enqueue scheduled messages, end expired locks, finish transfers, dead-letter messages, and let them expire.

        Args:
            entity: A queue or subscription.
            looks: Its ledgers, by partition; None: Redis lost it.
            ends: The offset of each partition up to which all messages are judged.
        """
        busy = [
            partition
            for partition, look in enumerate(looks)
            if look is None or look.is_due or look.state.in_flight or look.state.cursor < self.ends[partition]
        ]
        known = dict(ends)
        for partition, look in enumerate(looks):
            if look is not None and look.state.schedules:
                await self._scheduled.enqueue(entity, look.state, partition, known[partition])
                # Records that were not searched yet may be scheduled, and expire later.
                searched = max(self._scheduled.search_end(partition), look.state.cursor)
                known[partition] = min(known[partition], searched)
        if not busy:
            return
        # Messages whose locks have expired go back, and the answer says what else is due.
        claims = {partition: Claim.poll(entity.ledgers[partition]) for partition in busy}
        await self._context.ledger_client.execute(*claims.values())
        for partition, claim in claims.items():
            if claim.granted.moves:
                await self._context.transfers.finish(entity, partition)
            if claim.granted.redeliverable and entity.expires:
                await self._dead_letter_exceeded(entity, partition)
        if entity.expires:
            await self._expiry.expire(entity, looks, known, claims, self._began)

    async def _dead_letter_exceeded(self, entity: Entity, partition: int) -> None:
        """Dead-letter messages that were delivered too often, and whose last receiver let its lock expire."""
        seize = Seize.undeliverable(entity.ledgers[partition], new_lease(), entity.max_deliveries, LOCK_MS, AT_ONCE)
        await self._context.ledger_client.execute(seize)
        reader = await self._context.receiving.readers.reader_of(entity)
        for first, last, count, deferred in seize.again:
            delivery = entity.delivery(partition, seize.lease, seize.expiry, count, deferred=deferred)
            records = await reader.log.read_again(delivery, [(first, last)])
            reason = delivered_too_often(entity, count)
            if records:
                await self._context.dispositions.dead_letter(entity, delivery, records, *reason)

    async def _write_checkpoints(self, entity: Entity, looks: Sequence[Look | None], judged: Set[int]) -> None:
        """Write checkpoints, if they are due, and delete records that are not needed any more.

        Checkpoints are due ``CHECKPOINT_EVERY`` seconds after the last ones. Only ledgers that were changed since then get one.
        ``Trimmer.trim`` has the time at which records are deleted.
        """
        if self._checkpoints.is_due:
            are_new = await self._checkpoints.write(entity, looks)
            await self._trimmer.note_checkpoints(entity, are_new=are_new, judged=judged)
        await self._trimmer.trim(entity, self.ends)

    async def _run_checks(self, entity: Entity, states: Sequence[LedgerState | None]) -> None:
        """Check how full the queue is, which logs are stuck, which offsets hold no message, and whether any client uses it.

        A failure of that keeps nothing else from being done.
        """
        try:
            await self._stuck.look(entity, self.ends)
            if not entity.is_topic:
                await self._holes.look(entity, states, self.ends)
            if entity.subscription_filter is None and self._quota.is_due:
                # A topic holds the messages that the slowest of its subscriptions has not settled.
                holders = await self._topic.slowest(entity) if entity.is_topic else states
                await self._quota.look(entity, holders, self.ends)
            elif entity.subscription_filter is None:
                self._quota.postpone()
            await self._idleness.look(entity)
        except MessagingEntityNotFoundError:
            raise
        except ServiceBusError as error:
            LOGGER.warning("upkeep_entity entity=%s error=%s", self.path, error)
            self.retry_later()
        for part in (self._stuck, self._holes, self._quota, self._idleness):
            self._deadline.advance(part.next_at)

    async def _set_deadline(self, entity: Entity, looks: Sequence[Look | None]) -> None:
        """Bring the deadline forward to when the ledgers are due next, as they are now that all is done."""
        before = looks
        if any(self._checkpoints.is_changed(partition, look) for partition, look in enumerate(looks)) or any(
            look is not None and look.is_due for look in looks
        ):
            looks = await self._look_at_ledgers(entity)
        due_in = [look.due_in for look in looks if look is not None and look.due_in is not None]
        # A ledger that stays due, and did not change, waits for something that passes.
        is_waiting = any(
            look is not None and look.is_due and earlier is not None and look.changed == earlier.changed
            for look, earlier in zip(looks, before, strict=True)
        )
        self._overdue = self._overdue + 1 if is_waiting else 0
        for seconds in due_in:
            pause = min(RETRY_AFTER, 0.01 * 2 ** min(self._overdue, 10))
            self._deadline.advance_to_event(seconds if seconds > 0 else pause)
        if None in looks:
            self.retry_later()
        if any(self._checkpoints.is_changed(partition, look) for partition, look in enumerate(looks)):
            self._deadline.advance(self._checkpoints.next_at)
