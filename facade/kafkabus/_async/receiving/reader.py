"""Reading ahead on an entity's logs and claiming what was read, for all receivers of a client.

Anyone may read any partition; only a claim makes a message somebody's. What was read and not claimed stays here for the
next call. One receiver of a client at a time polls and claims; which partitions it reads first is a matter of affinity
alone.
"""

from __future__ import annotations

import logging
import math
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import methodcaller

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkabus._async.compat import Lock, acquire, sleep, try_acquire, uninterrupted
from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.disposition import Dispositions
from kafkabus._async.dispositions.duplicate_scan import DuplicateScan
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.ledger_marks import LedgerMarks
from kafkabus._async.entities.recovery import EntityRecovery
from kafkabus._async.kafka.offset_reader import READ_TIMEOUT, SILENCE, LogTruncatedError, UnfinishedReadError
from kafkabus._async.redis.notifications import ClaimNotifications
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.duplicate_detection import detect_duplicates, home_of
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._core.fetch_plan import PartitionView, Plan, PlannedClaim, home_partitions, runs_of, sweeps
from kafkabus._core.record import Record, part_scheduled, schedule_of
from kafkabus._kafka.client_factory import open_consumer
from kafkabus._kafka.client_options import LOGGER as KAFKA_LOGGER
from kafkabus._kafka.client_options import PASSING, consumer_options
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus._ledger.operations import (
    IN_FLIGHT_LIMIT,
    Claim,
    DetectDuplicates,
    Granted,
    LedgerState,
    Postpone,
    Purge,
    Seen,
    Settlement,
    new_lease,
)
from kafkabus._ledger.ranges import Range, common, merge_offsets, offsets_of

LOGGER = logging.getLogger("kafkabus.reader")

POLL_SLICE = 0.1
"""Longest time, in seconds, that one poll of an idle reader takes: so late it sees a notification."""
SLOW_POLL = 1.0
"""How often, in seconds, all ledgers are asked for what a lost notification did not announce, and the heartbeat is given."""
HEARTBEAT_LIFETIME = 5.0
"""How long, in seconds, a client that is not heard of keeps its home partitions."""
LEAVE_ALONE = 2.0
"""For how long, in seconds, another client's partition is left alone after a lost race."""
SWEPT_AT_ONCE = 1_000
"""How many offsets one read of messages that were granted before spans at the most."""
AHEAD_FROM = 50
"""How many messages must be wanted, and wait, for it to be worth claiming them before they are read."""
TAILS_TIMEOUT = 1.0
"""For how long, in seconds, brokers are asked where logs end."""
NOT_AHEAD = 10.0
"""For how long, in seconds, nothing is claimed ahead after they did not answer, or another leader took over."""
GRANTED_READ = 5.0
"""For how long, in seconds, what was granted is read by offset; what does not come is given back."""
LEAVE_SILENT = 10.0
"""For how long, in seconds, nothing is read by offset in a partition of which nothing came."""
CHOSEN_AT_ONCE = 200
"""How many records at least are read in one go where not all are wanted: few enough to stay in the processor's cache."""
CHOOSE_FOR = 0.5
"""For how long, in seconds, is read in one go there."""
GATHER = 0.005
"""How long, in seconds, a batch waits for records that are known to be there."""


_PARTITION_OF = methodcaller("partition")


@dataclass(frozen=True, slots=True)
class ReaderParts:
    """What a client's readers work with.

    Attributes:
        connections: The client's.
        catalog: The client's entities.
        recovery: For logs and ledgers that were lost.
        marks: What ledgers are told of messages.
        archive: Records that are kept apart from their logs.
        duplicate_scan: Finds duplicates.
        transfers: Move messages.
        dispositions: For messages that nobody gets.
    """

    connections: Connections
    catalog: EntityCatalog
    recovery: EntityRecovery
    marks: LedgerMarks
    archive: RecordArchive
    duplicate_scan: DuplicateScan
    transfers: Transfers
    dispositions: Dispositions


_TRUNCATED = re.compile(r"truncation.*broker end offset is (-?\d+)")
"""What Kafka's client says where the records before an offset are others than when it was read, and from where on."""


class _OutOfLogError(Exception):
    """A log does not hold the offset at which it was to be read on."""

    def __init__(self, view: PartitionView, reason: str) -> None:
        super().__init__(reason)
        self.view = view


class Reader:
    """Reads an entity for all receivers of one client.

    Args:
        parts: What it works with.
        entity: What to read.
        in_order: Whether nothing is received of a partition while anything else of it is under way, and nothing new before
            what came back, so that the order of messages holds that have to arrive somewhere.
    """

    def __init__(self, parts: ReaderParts, entity: Entity, *, in_order: bool = False) -> None:
        self._parts = parts
        self._connections = parts.connections
        self._entity = entity
        self._subscription_filter, self._rules_version = entity.subscription_filter, entity.rules_version
        self._in_order = in_order
        # Those without a home partition do not all begin with the same one.
        self._plan = Plan(entity.partitions, zlib.crc32(parts.connections.client_id.encode()))
        self._turn = Lock()
        self._bell = ClaimNotifications(parts.connections.redis, entity.channel)
        self._consumer: Consumer | None = None
        self._next_slow_poll = 0.0
        self._closed = False
        self._needs_resync = False
        self._maybe_truncated: set[int] = set()
        self._unverified: dict[int, int] = {}
        self._full = False
        self._looked_at = 0.0
        # What may be a duplicate, or is not wanted by a subscription, is read before it is claimed.
        self._small_batches_until = (
            math.inf if entity.detects_duplicates or entity.subscription_filter is not None else 0.0
        )
        self._taken: list[Grant] = []

    def go_by(self, entity: Entity) -> None:
        """The entity is described so from now on, unless later rules are known; it is the same one, with the same ledgers."""
        if entity.rules_version >= self._entity.rules_version:
            self._entity = entity

    async def receive(
        self, want: int, timeout: float, closed: Callable[[], bool], *, take: bool = False
    ) -> list[Grant]:
        """Claim up to ``want`` messages, waiting until at least one is there.

        Args:
            want: How many at the most.
            timeout: Longest wait for the first, in seconds.
            closed: Whether nobody wants them any more.
            take: Whether they are received and deleted. Those never granted before are settled by the claim itself, except
                where expired ones are dead-lettered: there none is before that is known.

        Returns:
            What was granted; nothing where time ran out.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        deadline = time.monotonic() + timeout
        if want < AHEAD_FROM:
            self._small_batches_until = max(self._small_batches_until, time.monotonic() + 2 * SLOW_POLL)
        if not await acquire(self._turn, timeout):
            return []
        grants: list[Grant] = []
        try:
            if take:
                grants = self._taken_before(want)
            while not self._closed and not closed():
                left = (
                    0
                    if self._is_late(grants) or (self._in_order and grants)
                    else want - sum(len(grant.records) for grant in grants)
                )
                await self._tend(idle=not self._plan.buffered and not grants)
                if not await self._read_on(left, 0.0 if grants else self._patience(deadline)):
                    continue
                planned = self._plan.claims(left, fresh=not self._full)
                if planned:
                    await self._claim(planned, take, grants)
                    looks = self._entity.detects_duplicates or self._subscription_filter is not None
                    if looks and not grants and time.monotonic() >= deadline:
                        # However much there is that is to be looked at first, or no message.
                        return grants
                elif grants or await self._is_out_of_time(deadline):
                    return grants
                else:
                    await self._rest()
            await self.put_back(grants)
            return []
        except BaseException:
            # Where the consumer stands, and what it has read, is no longer known for sure.
            self._needs_resync = True
            await self.put_back(grants)
            raise
        finally:
            await self._release()

    async def _read_on(self, want: int, wait: float) -> bool:
        """Read up to ``want`` messages, where that is what comes next; False where the log is to be read from elsewhere."""
        if want <= 0 or self._plan.claims_unread or self._plan.redeliverable is not None:
            return True
        if self._consumer is None:
            # Others are at home in all partitions, and none was read yet.
            await sleep(wait)
            return True
        try:
            await self._connections.pool.run(self._fill, want, wait)
        except _OutOfLogError as error:
            await self._find_way_back(error.view, error)
            return False
        return True

    async def _is_out_of_time(self, deadline: float) -> bool:
        """Whether time ran out, and nothing waits that may be claimed ahead."""
        now, plan = time.monotonic(), self._plan
        if now < deadline:
            return False
        if self._full or plan.small_batches or plan.sole_reader or self._looked_at >= min(deadline, now - POLL_SLICE):
            return True
        await self._look_around()
        return not plan.backlogged

    async def _rest(self) -> None:
        """Nothing is at hand."""
        if self._full or self._plan.resting:
            await sleep(POLL_SLICE)
        elif self._plan.claims_unread:
            await self._look_around()

    async def _find_way_back(self, view: PartitionView, error: Exception) -> None:
        """The log does not hold the offset at which it was to be read on: it was trimmed or truncated.

        Raises:
            ServiceBusError: It was truncated; who comes again is served.
        """
        connections, topic, partition = self._connections, self._entity.topic, view.partition
        ledger = self._entity.ledgers[partition]
        # The cursor before the end: it is never beyond an end that is asked for afterwards. A subscription's may be beyond what
        # is committed, where it was created while a transaction was open.
        (state,) = await connections.ledger_client.states([ledger])
        start = (await connections.pool.run(connections.topics.starts, topic, [partition]))[partition]
        end = (await connections.pool.run(connections.topics.stored_ends, topic, [partition]))[partition]
        if state is not None:
            cut = _TRUNCATED.search(str(error))
            await self._check_end(partition, state, start, end, None if cut is None else int(cut[1]))
            if state.cursor < start:
                await connections.ledger_client.execute(Purge(ledger, start))
                LOGGER.error(
                    "lost_by_the_log entity=%s partition=%d offsets=%s: deleted before anybody received them",
                    self._entity.path,
                    partition,
                    [(state.cursor, start - 1)],
                )
            if state.dedup_upto is not None and state.dedup_upto < start:
                await connections.ledger_client.execute(
                    detect_duplicates(self._entity, partition, 0, 0, [], log_start=start)
                )
        # Else only this reader lagged behind what others settled.
        self._needs_resync = True

    async def _check_end(self, partition: int, state: LedgerState, start: int, end: int, cut: int | None) -> None:
        """Where the log was truncated, have the entity go on from there.

        Args:
            partition: Of the log.
            state: Of its ledger.
            start: Where the log begins.
            end: Where it ends.
            cut: Where the brokers say that it was truncated, negative where they do not know; None where they said nothing.

        Raises:
            ServiceBusError: It was.
        """
        if cut is not None and cut >= 0:
            await self._parts.recovery.recover_from_truncation(self._entity, partition, cut)
        elif cut is not None and start == end == state.cursor:
            # The brokers know no epoch of a log without records; none was lost.
            self._unverified[partition] = state.cursor
        elif cut is not None or (state.cursor > end and (state.epoch is None or partition in self._maybe_truncated)):
            await self._parts.recovery.recover_from_truncation(self._entity, partition, None)
        elif state.cursor > end:
            # Begun anew at the cursor, Kafka's client asks where the log was truncated.
            self._maybe_truncated.add(partition)

    async def put_back(self, grants: Sequence[Grant]) -> None:
        """Messages that were granted and reached nobody: others get them, and no delivery is counted.

        What receive and delete settled already is kept for its next call.
        """
        for grant in grants:
            if grant.delivery.lease:
                ledger = self._entity.ledgers[grant.delivery.partition]
                # A session's lease holds what was handed out before, too.
                ranges = runs_of(grant.records) if grant.delivery.session else None
                self._connections.ledger_client.enqueue(Settlement(ledger, "release", grant.delivery.lease, ranges))
            else:
                self._taken.append(grant)
        self._connections.pool.soon(self._flush())  # aio-only

    def _taken_before(self, want: int) -> list[Grant]:
        """Up to ``want`` messages that an earlier call settled and could not hand out."""
        grants: list[Grant] = []
        while self._taken and want > 0:
            grant = self._taken.pop()
            part, rest = grant.records[:want], grant.records[want:]
            want -= len(part)
            grants.append(replace(grant, records=part))
            if rest:
                self._taken.append(replace(grant, records=rest))
        return grants

    async def _flush(self) -> None:
        try:
            await self._connections.ledger_client.flush()
        except ServiceBusError as error:
            LOGGER.warning("put_back entity=%s error=%s", self._entity.path, error)

    @property
    def is_awake(self) -> bool:
        """Whether it has connections of its own."""
        return self._consumer is not None or self._bell.is_listening

    async def give_up(self) -> None:
        """Stop reading, without waiting for the call that is under way: that lets go when it ends."""
        self._closed = True
        self._tell_lost()
        await self.rest()

    async def _release(self) -> None:
        """The end of a call that read."""
        self._turn.release()
        if self._closed:
            await self.rest()

    async def rest(self) -> None:
        """Close consumer and notifications until the next call; while one is under way, nothing happens."""
        if await try_acquire(self._turn):
            try:
                await self._let_go()
            finally:
                self._turn.release()

    async def _let_go(self) -> None:
        for view in self._plan.views:
            view.start(view.seen_from)
            view.assigned = False
        self._needs_resync, self._next_slow_poll = False, 0.0
        await self._bell.close()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await self._connections.pool.run(consumer.close)

    async def close(self) -> None:
        """Stop reading; whoever waits receives nothing.

        What was read and not claimed was nobody's, so there is nothing to give back.
        """
        self._closed = True
        async with self._turn:
            self._tell_lost()
            await self._let_go()

    def _tell_lost(self) -> None:
        for grant in self._taken:
            LOGGER.error(
                "lost_by_receive_and_delete entity=%s partition=%d offsets=%s: settled, and handed to nobody",
                self._entity.path,
                grant.delivery.partition,
                runs_of(grant.records),
            )

    def _patience(self, deadline: float) -> float:
        """How long the next poll may wait, in seconds, up to the next millisecond: of less, Kafka's client makes nothing."""
        now = time.monotonic()
        due = self._plan.next_due()
        until = min(deadline, now + POLL_SLICE, self._next_slow_poll, now + POLL_SLICE if due is None else due)
        return max(0, math.ceil((until - now) * 1000)) / 1000

    async def _tend(self, *, idle: bool) -> None:
        """Whatever keeps the plan true beside the records: rules, heartbeat, homes, notifications, leases that expired."""
        now = time.monotonic()
        if self._entity.subscription_filter is not self._subscription_filter:
            # What was read was chosen by other rules, or settings.
            self._subscription_filter, self._rules_version = (
                self._entity.subscription_filter,
                self._entity.rules_version,
            )
            self._needs_resync = True
        if self._needs_resync:
            await self._connections.pool.run(self._stop_reading, [view for view in self._plan.views if view.assigned])
            self._needs_resync = False
        if now >= self._next_slow_poll:
            self._next_slow_poll = now + SLOW_POLL
            self._plan.clear_backoff(now)
            self._plan.small_batches = now < self._small_batches_until
            await self._find_homes()
            await self._ask_for_returned()
            await self._look_around()
            await self._look_at_memory()
        elif idle:
            for partition in await self._bell.rung():
                # A queue of the same name that was made anew may have more.
                if partition < len(self._plan.views):
                    self._hear(partition)
        self._plan.expire(now)
        begin, stop = self._plan.wanted(now)
        if stop:
            await self._connections.pool.run(self._stop_reading, stop)
        if begin:
            await self._start_reading(begin)

    def _hear(self, partition: int) -> None:
        """A notification came: messages may have become available."""
        self._plan.views[partition].redeliverable = True

    async def _find_homes(self) -> None:
        connections, entity = self._connections, self._entity
        clients = await connections.ledger_client.heartbeat(
            entity.receivers_key, connections.client_id, HEARTBEAT_LIFETIME
        )
        self._plan.crowded = len(clients) > entity.partitions
        homes = home_partitions(connections.client_id, clients, entity.partitions)
        for view in self._plan.views:
            view.home = view.partition in homes

    async def _ask_for_returned(self) -> None:
        """Ask every ledger, without claiming, for ranges to be granted again."""
        claims = [(view, Claim.poll(self._entity.ledgers[view.partition])) for view in self._plan.views]
        await self._connections.ledger_client.execute(*(claim for _, claim in claims))
        for view, claim in claims:
            if view.assigned:
                await self._go_to(view, claim.granted)
            await self._note(view, claim.granted)

    async def _look_around(self) -> None:
        """See what waits in partitions that others read, and whether to claim all before it is read."""
        plan, connections = self._plan, self._connections
        plan.claims_unread = False
        if plan.sole_reader or plan.small_batches:
            return
        try:
            tails = await connections.pool.run(
                connections.topics.tails, self._entity.topic, range(len(plan.views)), TAILS_TIMEOUT
            )
        except ServiceBusError as error:
            # As where a partition has no leader: to ask each second would hold up the others.
            LOGGER.warning("not_ahead entity=%s error=%s", self._entity.path, error)
            self._claim_no_more_ahead()
        else:
            plan.look(tails, AHEAD_FROM)
        self._looked_at = time.monotonic()

    def _claim_no_more_ahead(self) -> None:
        self._small_batches_until = max(self._small_batches_until, time.monotonic() + NOT_AHEAD)
        self._plan.small_batches, self._plan.claims_unread = True, False

    async def _look_at_memory(self) -> None:
        """While Redis is nearly full, nothing new is claimed; settling and what was granted before go on."""
        full = await self._connections.ledger_client.is_full()
        if full != self._full:
            LOGGER.warning("redis_full entity=%s full=%s: nothing new is received while it is", self._entity.path, full)
        self._full = full

    async def _note(self, view: PartitionView, granted: Granted) -> None:
        view.cursor = granted.cursor
        view.redeliverable = granted.redeliverable > 0
        view.due_at = None if granted.due_in is None else time.monotonic() + granted.due_in
        if granted.moves:
            await self._parts.transfers.finish(self._entity, view.partition)
        if granted.overdue:
            await self._parts.dispositions.activate(self._entity, view.partition)

    async def _claim(self, planned: Sequence[PlannedClaim], take: bool, grants: list[Grant]) -> None:
        """One round trip of claims; what was granted, with its records, is added to ``grants``."""
        await self._parts.marks.tell_topic(self._entity, self._subscription_filter)
        lock_ms, known = self._entity.lock_ms, len(grants)
        claims = [
            Claim(
                self._entity.ledgers[plan.view.partition],
                new_lease(),
                want=plan.want,
                lock_ms=lock_ms,
                seen=plan.seen,
                ahead=plan.ahead,
                # Records that are yet to be read are settled afterwards, and those that wait for their time not at all.
                settle_on_claim=take
                and plan.ahead is None
                and not self._entity.keeps_expired
                and not self._looks_at_granted
                and not schedule_of(plan.view.records[: plan.want]),
                limit=IN_FLIGHT_LIMIT,
                exclusive=self._in_order,
                rules=self._rules_version,
            )
            for plan in planned
        ]
        detections = self._detections((plan.view, plan.seen) for plan in planned)
        try:
            if take:
                # What is settled by being granted must be seen to arrive, also by a task that is cancelled.
                await uninterrupted(
                    self._connections.ledger_client.execute(*detections, *claims)  # type: ignore[func-returns-value, unused-ignore]
                )
            else:
                await self._connections.ledger_client.execute(*detections, *claims)
        finally:
            # Nothing is waited for until all that is here already is in the list, where no error can lose it.
            settled = [(plan, claim) for plan, claim in zip(planned, claims, strict=True) if claim.was_granted]
            for plan, claim in settled:
                self._add_fresh(plan, claim, grants)
        await self._follow_detections(detections)
        for plan, claim in settled:
            await self._add_unseen(claim, grants)
            await self._add_again(claim, grants)
            await self._follow(plan, claim)
        for grant in [grant for grant in grants[known:] if grant.records and grant.delivery.lease]:
            grant.records = await self._postpone(grant.delivery, grant.records)
            if self._has_strays:
                await self._lead_strays_away(grant)
            grant.records = await self._parts.dispositions.as_received(self._entity, grant.delivery, grant.records)
            if not grant.records:
                grants.remove(grant)

    async def _postpone(self, delivery: Delivery, records: Sequence[Record]) -> list[Record]:
        """Scheduled messages wait for their time from now on, also those of plain producers. Returns the others."""
        items, others = part_scheduled(records)
        if items:
            await self._connections.ledger_client.execute(
                Postpone(self._entity.ledgers[delivery.partition], delivery.lease, items)
            )
        return others

    @property
    def _has_strays(self) -> bool:
        """Whether plain producers may have stored messages in other partitions than those where their ids belong."""
        return self._entity.detects_duplicates and self._entity.partitions > 1 and self._subscription_filter is None

    @property
    def _looks_at_granted(self) -> bool:
        """Whether what was granted may have to go elsewhere all the same."""
        return self._has_strays or (self._subscription_filter is not None and self._subscription_filter.may_fail)

    async def _lead_strays_away(self, grant: Grant) -> None:
        """Such messages go where they belong, and are judged there."""
        here, by_home = grant.delivery.partition, defaultdict[int, list[Record]](list)
        for record in grant.records:
            home = home_of(self._entity, record)
            by_home[here if home is None else home].append(record)
        grant.records = by_home.pop(here, [])
        for home, strays in by_home.items():
            await self._parts.dispositions.move(self._entity, grant.delivery, home, strays)

    def _detections(self, seen: Iterable[tuple[PartitionView, Seen | None]]) -> list[DetectDuplicates]:
        """What has ledgers find the duplicates among what was read and is to be granted."""
        if not self._entity.detects_duplicates:
            return []
        return [
            detect_duplicates(
                self._entity,
                view.partition,
                min(max(view.dedup_upto, one.start), one.upto),
                one.upto,
                view.before(one.upto),
            )
            for view, one in seen
            if one is not None
        ]

    async def _follow_detections(self, detections: Sequence[DetectDuplicates]) -> None:
        """Note what is judged, and look at what has to be before.

        Raises:
            ServiceBusError: A log was truncated; who comes again is served.
        """
        for one in detections:
            view = self._plan.views[one.ledger.partition]
            view.dedup_upto = one.dedup_upto
            if one.log_truncated is not None:
                cut = view.first_later(one.log_truncated)
                await self._parts.recovery.recover_from_truncation(self._entity, view.partition, cut)
            elif one.ahead:
                # A ledger made anew looks at the window once more.
                upto = min(one.start, view.seen_from)
                view.dedup_upto = await self._parts.duplicate_scan.scan(
                    self._entity, view.partition, one.dedup_upto, upto
                )

    def _add_fresh(self, plan: PlannedClaim, claim: Claim, grants: list[Grant]) -> None:
        """What was granted out of the buffer; and a place for what must be read again, which holds its lease till then."""
        granted = claim.granted
        delivery = self._delivery(claim, 0)
        if granted.fresh and not claim.unseen:
            fresh = replace(delivery, lease="", expiry=0) if claim.settle_on_claim else delivery
            grants.append(Grant(fresh, plan.view.take(granted.fresh)))
        if granted.again or claim.unseen:
            grants.append(Grant(delivery, []))

    async def _add_unseen(self, claim: Claim, grants: list[Grant]) -> None:
        """Read what was claimed ahead."""
        if not claim.unseen:
            return
        ledger, delivery = claim.ledger, self._delivery(claim, 0)
        records = await self._read_granted(delivery, claim.unseen)
        LOGGER.debug("claim_ahead entity=%s partition=%d ranges=%s", self._entity.path, ledger.partition, claim.unseen)
        if records:
            grants.append(Grant(delivery, records))
        else:
            # Where many offsets hold no message, reading passes them faster.
            self._plan.claims_unread = False

    async def _add_again(self, claim: Claim, grants: list[Grant]) -> None:
        for sweep in sweeps(sorted(claim.granted.again), lambda one: one[:2], at_once=SWEPT_AT_ONCE):
            wanted = [(first, last) for first, last, _ in sweep]
            records = await self._read_granted(self._delivery(claim, 0), wanted)
            for first, last, count in sweep:
                part = [record for record in records if first <= (record.offset() or 0) <= last]
                if part:
                    grants.append(Grant(self._delivery(claim, count), part))

    def _delivery(self, claim: Claim, count: int) -> Delivery:
        return self._entity.delivery(claim.ledger.partition, claim.lease, claim.granted.expiry, count)

    async def _follow(self, plan: PlannedClaim, claim: Claim) -> None:
        """Go where the ledger's cursor is, and note what else it said."""
        view, granted, seen = plan.view, claim.granted, plan.seen
        if seen is not None:
            passed_over = seen.runs and not granted.fresh and not granted.limited
            if granted.ahead or granted.cursor > seen.upto or passed_over:
                self._plan.lost_race(view, time.monotonic() + LEAVE_ALONE)
            await self._go_to(view, granted)
        if granted.epoch_mismatch:
            self._mark_unverified(view)
        if granted.stale_rules:
            await self._learn_rules()
            # While they are being changed, nothing new is granted.
            view.resting = self._entity.rules_version == self._rules_version
        self._limit(view, granted)
        await self._note(view, granted)

    async def _learn_rules(self) -> None:
        """The rules were changed: whatever is granted is known by those that count now, and read on by them."""
        self._entity = await self._parts.catalog.entity_anew(self._entity)

    def _mark_unverified(self, view: PartitionView) -> None:
        """Read a log from its ledger's cursor before anything else: Kafka's client says then whether it was truncated."""
        view.epoch_mismatch = True
        self._needs_resync = True
        self._claim_no_more_ahead()

    def _limit(self, view: PartitionView, granted: Granted) -> None:
        """Leave a partition alone for a moment where too much of it is in flight, and say so once."""
        view.resting = granted.limited or (view.resting and granted.stale_rules)
        if granted.limited and not view.limited and not self._in_order:
            LOGGER.warning(
                "in_flight_limit entity=%s partition=%d limit=%d: nothing new is received there until some are settled",
                self._entity.path,
                view.partition,
                IN_FLIGHT_LIMIT,
            )
        view.limited = granted.limited or (view.limited and not granted.fresh)

    async def _go_to(self, view: PartitionView, granted: Granted) -> None:
        elsewhere = view.moved(granted)
        if elsewhere is not None:
            await self._connections.pool.run(self._seek, view.partition, elsewhere)

    def _is_late(self, grants: Sequence[Grant]) -> bool:
        """Whether what was granted should be handed out now: a quarter of its lock is over."""
        ledgers, most = self._entity.ledgers, self._entity.lock_ms * 0.75 / 1000
        return any(
            grant.delivery.lease and ledgers[grant.delivery.partition].seconds_until(grant.delivery.expiry) < most
            for grant in grants
        )

    async def read_again(self, delivery: Delivery, ranges: Sequence[Range]) -> list[Record]:
        """The messages of ranges that a lease holds, by offset, in one go: as many as come in time, the rest is given back.

        What was leased unseen may hold offsets without a message, as of a transaction's marker: they are settled. So is
        what the log lost, loudly. Of deferred messages all must come, and an offset without a message is an error.

        Args:
            delivery: With the lease.
            ranges: Ascending.

        Raises:
            ServiceBusError: They cannot be read.
        """
        return self._entity.granted(await self._read_granted(delivery, ranges))

    async def _read_granted(self, delivery: Delivery, ranges: Sequence[Range]) -> list[Record]:
        """Likewise, their records as they are stored."""
        ledger, topics = self._entity.ledgers[delivery.partition], self._connections.topics
        read, upto = await self._read_in_time(delivery, ranges)
        wanted = set(offsets_of(common(ranges, [(0, upto)])))
        records = [record for record in read if record.offset() in wanted]
        if len(records) == len(wanted):
            return records
        gone = merge_offsets(wanted - {record.offset() or 0 for record in records})
        start = (await self._connections.pool.run(topics.starts, self._entity.topic, [ledger.partition], GRANTED_READ))[
            ledger.partition
        ]
        if delivery.deferred and gone[-1][1] >= start:
            raise ServiceBusError(
                f"{self._entity.path}, partition {ledger.partition}: offset {gone[-1][1]} holds a message that cannot be "
                "read, and the log was not trimmed up to there; nothing is skipped silently"
            )
        lost = common(gone, [(0, start - 1)])
        if lost:
            LOGGER.error("lost_by_the_log entity=%s partition=%d offsets=%s", self._entity.path, ledger.partition, lost)
        else:
            LOGGER.debug("no_messages entity=%s partition=%d offsets=%s", self._entity.path, ledger.partition, gone)
        await self._connections.ledger_client.execute(Settlement(ledger, "complete", delivery.lease, gone))
        return records

    async def _read_in_time(self, delivery: Delivery, ranges: Sequence[Range]) -> tuple[list[Record], int]:
        """The records from the first offset of ranges to the last one that was read, and that; the rest is given back."""
        entity, view = self._entity, self._plan.views[delivery.partition]
        ledger, first, last = entity.ledgers[view.partition], ranges[0][0], ranges[-1][1]
        # Half of the lock is for who receives them, and they are given back in time not to count as delivered.
        most = READ_TIMEOUT if delivery.deferred else GRANTED_READ
        timeout = min(most, ledger.seconds_until(delivery.expiry) / 2)
        try:
            read = await self._parts.archive.read_as_stored(entity, view.partition, first, last, timeout)
        except LogTruncatedError:
            self._mark_unverified(view)
            raise
        except UnfinishedReadError as error:
            if delivery.deferred or self._in_order:
                raise
            LOGGER.warning("given_back entity=%s error=%s", entity.path, error)
            if not error.records and timeout > SILENCE:
                view.fall_silent(time.monotonic() + LEAVE_SILENT)
            upto = (error.records[-1].offset() or 0) if error.records else first - 1
            rest = common(ranges, [(upto + 1, last)])
            await self._connections.ledger_client.execute(Settlement(ledger, "release", delivery.lease, rest))
            return error.records, upto
        return read, last

    async def _start_reading(self, views: Sequence[PartitionView]) -> None:
        """Begin at each ledger's cursor: what lies before it was granted already."""
        states = await self._connections.ledger_client.states([self._entity.ledgers[view.partition] for view in views])
        await self._connections.pool.run(
            self._assign,
            [
                (view, 0, None)
                if state is None
                else (view, state.cursor, None if view.partition in self._unverified else state.epoch)
                for view, state in zip(views, states, strict=True)
            ],
        )

    # What follows blocks, and runs where Pool lets it.

    def _assign(self, places: Sequence[tuple[PartitionView, int, int | None]]) -> None:
        if self._consumer is None:
            settings = self._connections.settings
            self._consumer = open_consumer(settings, consumer_options(settings, f"kafkabus.{self._entity.topic}"))
        self._consumer.incremental_assign(
            [
                # With an epoch, Kafka's client asks first whether the log still holds what it held before that offset.
                TopicPartition(self._entity.topic, view.partition, cursor)
                if epoch is None
                else TopicPartition(self._entity.topic, view.partition, cursor, "", epoch)
                for view, cursor, epoch in places
            ]
        )
        for view, cursor, _ in places:
            view.start(cursor)
            view.assigned = True

    def _stop_reading(self, views: Sequence[PartitionView]) -> None:
        if self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(self._entity.topic, v.partition) for v in views])
        for view in views:
            view.start(view.seen_from)
            view.assigned = False

    def _seek(self, partition: int, offset: int) -> None:
        where = TopicPartition(self._entity.topic, partition, offset)
        if self._consumer is None:
            return
        try:
            self._consumer.seek(where)
        except KafkaException:
            # Not fetching yet: assigning it anew does the same.
            self._consumer.incremental_unassign([where])
            self._consumer.incremental_assign([where])

    def _fill(self, want: int, timeout: float) -> None:
        """Poll until ``want`` messages are buffered, or until none is at hand and ``timeout`` is over."""
        consumer, plan = self._consumer, self._plan
        missing = want - plan.buffered
        if consumer is None or missing <= 0:
            return
        if missing == want:
            message = consumer.poll(timeout)
            if message is None:
                return
            missing -= self._add([message])
        gathering, until = 0.0, time.monotonic() + CHOOSE_FOR
        while missing > 0 and (self._subscription_filter is None or time.monotonic() < until):
            # Of many records few may be wanted.
            count = missing if self._subscription_filter is None else max(missing, CHOSEN_AT_ONCE)
            messages = consumer.consume(min(count, 10_000), gathering)
            if messages:
                missing -= self._add(messages)
                gathering = 0.0
            elif gathering or not self._more_at_hand():
                return
            else:
                gathering = GATHER

    def _add(self, messages: Sequence[Message]) -> int:
        """Put records into the plan; returns how many were messages."""
        views, added = self._plan.views, 0
        events: list[tuple[PartitionView, Message]] = []
        for partition, group in groupby(messages, _PARTITION_OF):
            view, records = views[partition], list(group)
            found = [record for record in records if record.error() is not None]
            if found:
                events += [(view, event) for event in found]
                records = [record for record in records if record.error() is None]
            if records and view.assigned:
                added += view.add(records, self._subscription_filter, keep_all=self._entity.detects_duplicates)
        # An error is raised only now: what came with it must not be taken for a hole.
        for view, event in events:
            self._take_event(view, event)
        return added

    def _take_event(self, view: PartitionView, event: Message) -> None:
        error = event.error()
        code = error.code() if error is not None else None
        if code == KafkaError._PARTITION_EOF:
            if view.assigned and (event.offset() or 0) >= view.seen_to:
                view.end(event.offset() or 0)
        elif code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}:
            raise MessagingEntityNotFoundError(
                f"{self._entity.path} was deleted: its topic {self._entity.topic} is gone"
            )
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}:
            raise _OutOfLogError(view, str(error))
        elif code in PASSING:
            KAFKA_LOGGER.warning("consume entity=%s partition=%d error=%s", self._entity.path, view.partition, error)
        elif error is not None and code in NO_RIGHTS:
            servers = self._connections.settings.bootstrap_servers
            raise no_rights(servers, f"read topic {self._entity.topic!r}", error)
        else:
            # Kafka's client would go on behind what it cannot read, and that would be settled as a hole.
            raise ServiceBusError(
                f"reading {self._entity.path}, partition {view.partition}, from offset {view.seen_to} failed: {error}"
            )

    def _more_at_hand(self) -> bool:
        """Whether the brokers are known to hold records beyond those read, so that waiting a moment is worth it."""
        return any(view.buffered and self._more_in(view) for view in self._plan.views)

    def _more_in(self, view: PartitionView) -> bool:
        """Likewise, of a partition."""
        if self._consumer is None or not view.assigned:
            return False
        where = TopicPartition(self._entity.topic, view.partition)
        _, end = self._consumer.get_watermark_offsets(where, cached=True)
        return bool(end > view.seen_to)
