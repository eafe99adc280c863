"""Reading ahead on an entity's logs, for all receivers of a client.

Any client may read any partition; only a claim gives a message to a receiver. Records that were read and not claimed stay
here for the next call. One receiver of a client at a time reads and claims; affinity alone decides which partitions it
reads first.
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafkabus._async.compat import Lock, ThreadBell, acquire, longest_wait, try_acquire
from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.disposition import Dispositions
from kafkabus._async.dispositions.duplicate_scan import DuplicateScan
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.ledger_marks import LedgerMarks
from kafkabus._async.entities.recovery import CALM_TOPIC_AGE, TOPIC_AGE, EntityRecovery
from kafkabus._async.entities.upkeep_watch import UpkeepWatch
from kafkabus._async.kafka.partition_fetcher import FetchFrom, OffsetNotInLogError, PartitionFetcher
from kafkabus._async.receiving.granted_records import GrantedRecords
from kafkabus._async.receiving.undelivered import UndeliveredGrants
from kafkabus._async.redis.notifications import Notifications
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.duplicate_detection import detect_duplicates
from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import PartitionView, Plan, home_partitions
from kafkabus._core.record import Record, part_scheduled
from kafkabus._ledger.operations import Claim, DetectDuplicates, Granted, LedgerState, Purge, ScheduleHeld, Seen
from kafkabus._ledger.ranges import Range

LOGGER = logging.getLogger("kafkabus.reader")

POLL_SLICE = 0.1
"""Longest wait, in seconds, of a reader that has reason to look again."""
SLOW_POLL = 1.0
"""How often, in seconds, a reader asks all ledgers for messages whose notification was lost."""
SLOWEST_POLL = 30.0
"""How often an idle reader does: nothing becomes available unheard while upkeep looks after the namespace."""
RECEIVING = 1.0
"""For how long, in seconds, after a call a client counts as one that receives."""


@dataclass(frozen=True, slots=True)
class ReaderParts:
    """The parts of a client that its readers work with.

    Attributes:
        connections: The client's connections.
        catalog: The client's entities.
        recovery: The repair of lost logs and ledgers.
        marks: The marks that ledgers need of messages.
        archive: The records that are kept apart from their logs.
        duplicate_scan: The search for duplicates.
        transfers: The transfers of messages.
        dispositions: The dispositions of messages that no receiver gets.
        notifications: The notifications of ledgers.
        upkeep_watch: The look at whether upkeep runs.
    """

    connections: Connections
    catalog: EntityCatalog
    recovery: EntityRecovery
    marks: LedgerMarks
    archive: RecordArchive
    duplicate_scan: DuplicateScan
    transfers: Transfers
    dispositions: Dispositions
    notifications: Notifications
    upkeep_watch: UpkeepWatch


class LogListener(Protocol):
    """The reader of messages, or of sessions, that a log reader works for."""

    def on_notification(self, partition: int) -> None:
        """Note that messages may have become available."""
        ...

    def on_note(self, partition: int, granted: Granted) -> None:
        """Note the answer of a partition's ledger."""
        ...

    def needed_partitions(self) -> Iterable[int]:
        """Return the partitions that this client must read, also if another client is at home there."""
        ...

    def on_suspected_truncation(self) -> None:
        """Note that a log may have been truncated, or that the brokers did not say where logs end."""
        ...

    def on_activity(self) -> None:
        """Note that something happened after nothing had happened for a while."""
        ...

    async def slow_poll(self, *, idle: bool) -> None:
        """Do what is due with a slow poll.

        Args:
            idle: Whether nothing happened for a while.
        """
        ...

    def on_release(self) -> None:
        """Note that the consumer was closed until the next call."""
        ...


@dataclass(slots=True)
class _News:
    """Notes of the notifications' worker, for the next turn.

    Attributes:
        partitions: The partitions of which messages may have become available.
        lost_notifications: Whether notifications may have been lost.
        clients: The clients that receive from the entity; None if that is not known.
        listens: Whether the worker notes anything for the reader.
    """

    partitions: set[int] = field(default_factory=set[int])
    lost_notifications: bool = False
    clients: list[str] | None = None
    listens: bool = False


@dataclass(slots=True)
class _Pace:
    """How often a reader asks all ledgers: more and more rarely while nothing happens.

    Attributes:
        maintained_at: When a receiver last had its turn, on the monotonic clock.
        next_slow_poll: When the next slow poll is due, on the monotonic clock.
        slow_poll_every: The time between slow polls, in seconds.
        was_active: Whether anything happened since the last slow poll.
    """

    maintained_at: float = 0.0
    next_slow_poll: float = 0.0
    slow_poll_every: float = SLOW_POLL
    was_active: bool = True

    @property
    def is_calm(self) -> bool:
        """Whether nothing has happened for a while."""
        return self.slow_poll_every > SLOW_POLL and not self.was_active


class LogReader:
    """Reads the logs of an entity for all receivers of one client.

    It implements ``RecordSink``: fetched records go into the plan; and ``NotificationListener``: it is notified of messages
    that came back.

    Args:
        parts: The parts of the client.
        entity: The entity to read.
        listener: The reader that claims or files what is read.
        in_order: Whether the messages have to arrive in the order of the log.

    Attributes:
        entity: The entity, as it is described now.
        subscription_filter: The filter that chose the records in the plan; None if all records are messages.
        rules_version: The version of its rules.
        plan: The records that were read and not claimed, and the state of each partition.
        is_full: Whether Redis is nearly full, so that nothing new is claimed.
        is_closed: Whether the reader was closed.
        granted: Reads the records of granted messages, as they are stored.
        undelivered: The messages that were granted and reached no receiver.
    """

    def __init__(self, parts: ReaderParts, entity: Entity, listener: LogListener, *, in_order: bool = False) -> None:
        self._parts = parts
        self._connections = parts.connections
        self._listener = listener
        self.entity = entity
        self.subscription_filter, self.rules_version = entity.subscription_filter, entity.rules_version
        # Clients without a home partition do not all begin with the same one.
        self.plan = Plan(entity.partitions, zlib.crc32(parts.connections.client_id.encode()))
        self.is_full = False
        self.is_closed = False
        self._turn = Lock()
        self._news = _News()
        self._pace = _Pace()
        self._changes: Sequence[str | None] = [None] * entity.partitions
        self._bell = ThreadBell()
        self._fetcher = PartitionFetcher(
            parts.connections.consumers,
            parts.connections.settings,
            parts.connections.pool,
            entity.topic,
            str(entity.path),
            sink=self,
            bell=self._bell,
        )
        self.granted = GrantedRecords(
            parts.connections, parts.archive, lambda: self.entity, self.plan.views, self._doubt, in_order=in_order
        )
        self.undelivered = UndeliveredGrants(parts.connections, lambda: self.entity)
        self._doubted: set[int] = set()
        self._needs_resync = False

    # The turn of a receiver.

    async def acquire(self, timeout: float) -> bool:
        """Wait for the turn to read and claim, up to a time in seconds; return whether it came."""
        return await acquire(self._turn, timeout)

    async def release(self) -> None:
        """End the turn."""
        self._turn.release()
        if self.is_closed:
            self.undelivered.report_lost()
            await self.rest()

    def resync(self) -> None:
        """Read on from the ledgers' cursors: the consumer's position, and what it has read, are not known for sure."""
        self._needs_resync = True

    def follow(self, entity: Entity) -> None:
        """Use a later description of the entity, with the same ledgers, unless later rules are known."""
        if entity.rules_version >= self.entity.rules_version:
            self.entity = entity

    @property
    def is_awake(self) -> bool:
        """Whether anything is fetched or listened to for this reader."""
        return self._fetcher.is_fetching or self._news.listens

    @property
    def is_calm(self) -> bool:
        """Whether nothing has happened for a while."""
        return self._pace.is_calm

    @property
    def slice(self) -> float:
        """The longest wait of a receiver, in seconds, after which it has to ask whether the topic is still the same."""
        return CALM_TOPIC_AGE if self.is_calm else TOPIC_AGE

    def wake(self) -> None:
        """Have the receiver that waits look whether it still wants messages."""
        self._bell.ring()

    # NotificationListener.

    @property
    def is_receiving(self) -> bool:
        """Whether any receiver waits, or did a moment ago."""
        return self._turn.locked() or time.monotonic() - self._pace.maintained_at < RECEIVING

    def on_notification(self, partition: int) -> None:
        """Note that messages of a partition may have become available."""
        self._news.partitions.add(partition)
        self._bell.ring()

    def on_lost_notifications(self) -> None:
        """Note that notifications may have been lost: all ledgers are asked."""
        self._news.lost_notifications = True
        self._bell.ring()

    def on_clients(self, clients: list[str]) -> None:
        """Note which clients receive from the entity."""
        if self._news.clients is not None and set(clients) != set(self._news.clients):
            self._news.clients = clients
            self.on_lost_notifications()

    async def rest(self) -> None:
        """Fetch and hear nothing until the next call; while a call is under way, do nothing."""
        if await try_acquire(self._turn):
            try:
                await self._release()
            finally:
                self._turn.release()

    async def close(self) -> None:
        """Stop reading; receivers that wait get nothing.

        Records that were read and not claimed belong to no receiver, so there is nothing to give back.
        """
        self.is_closed = True
        self.wake()
        async with self._turn:
            self.undelivered.report_lost()
            await self._release()

    async def give_up(self) -> None:
        """Stop reading without waiting for the call that is under way, which stops it when it ends."""
        self.is_closed = True
        self.wake()
        self.undelivered.report_lost()
        await self.rest()

    async def _release(self) -> None:
        for view in self.plan.views:
            view.stop()
        self._needs_resync, self._pace.next_slow_poll = False, 0.0
        self._listener.on_release()
        self._parts.notifications.leave(self)
        self._news.listens, self._news.clients = False, None
        self._pace.slow_poll_every, self._pace.was_active = SLOW_POLL, True
        self._fetcher.unassign_all()

    # Reading.

    def patience(self, deadline: float) -> float:
        """Return how long the next poll may wait, in seconds.

        The time is rounded up to the next millisecond, because Kafka's client rounds it down.
        """
        now = time.monotonic()
        until = min(deadline, self._pace.next_slow_poll, now + longest_wait())
        due = self.plan.next_due()
        if due is not None:
            until = min(until, due)
        if self.is_full or self.plan.is_resting or self.plan.claims_unread:
            until = min(until, now + POLL_SLICE)
        return max(0, math.ceil((until - now) * 1000)) / 1000

    async def maintain(self, *, idle: bool) -> None:
        """Keep the plan true: rules, home partitions, notifications, expired leases; begin and stop reading.

        Args:
            idle: Whether nothing is at hand, so that notifications are looked for.
        """
        now = self._pace.maintained_at = time.monotonic()
        await self._apply_changes()
        if not self._news.listens:
            self._news.listens = True
            self._parts.notifications.listen(self)
        if self._pace.was_active:
            self._pace.next_slow_poll = min(self._pace.next_slow_poll, now + SLOW_POLL)
            if self._pace.slow_poll_every > SLOW_POLL:
                self._listener.on_activity()
        if now >= self._pace.next_slow_poll or (self._news.lost_notifications and idle):
            await self._slow_poll(now)
        elif idle:
            while self._news.partitions:
                partition = self._news.partitions.pop()
                # A queue of the same name that was created again may have more partitions.
                if partition < len(self.plan.views):
                    self._pace.was_active = True
                    self._listener.on_notification(partition)
        self.plan.expire(now)
        # Homes that seem to be at their ends may have got records while no receiver looked.
        begin, stop = self.plan.choose_reading(now, unread=self._fetcher.has_news)
        for view in stop:
            view.stop()
        self._fetcher.unassign(view.partition for view in self.plan.views if not view.state.is_read)
        if begin:
            await self._start_reading(begin)

    async def _slow_poll(self, now: float) -> None:
        """Ask all ledgers, and look around; more and more rarely while nothing happens."""
        calm = not (self._pace.was_active or self.is_full or self.plan.is_resting) and all(
            view.state.is_verified for view in self.plan.views
        )
        if calm and await self._parts.upkeep_watch.is_heard():
            self._pace.slow_poll_every = min(2 * self._pace.slow_poll_every, SLOWEST_POLL)
        else:
            self._pace.slow_poll_every = SLOW_POLL
        self._pace.next_slow_poll = now + self._pace.slow_poll_every
        self._pace.was_active = self._news.lost_notifications = False
        self.plan.clear_backoff(now)
        await self._find_homes()
        await self._ask_for_returned(changed_only=self.is_calm)
        await self._listener.slow_poll(idle=self.is_calm)
        await self._look_at_memory()

    async def _apply_changes(self) -> None:
        """Stop reading if the records in the plan, or the consumer's position, may be wrong since the last turn."""
        entity = self.entity
        if entity.subscription_filter is not self.subscription_filter:
            # Other rules, or settings, chose the records in the plan.
            self.subscription_filter, self.rules_version = entity.subscription_filter, entity.rules_version
            self._needs_resync = True
        while self._doubted:
            self.mark_unverified(self.plan.views[self._doubted.pop()])
        if self._needs_resync:
            self._fetcher.unassign_all()
            for view in self.plan.views:
                view.stop()
            self._needs_resync = False

    async def read_on(self, want: int, wait: float) -> bool:
        """Read until ``want`` messages are in the plan, if reading is what comes next.

        The fetcher hands records to ``add``, by which a subscription's filter chooses.

        Args:
            want: The number of messages.
            wait: The longest wait for the first, in seconds.

        Returns:
            False if a log has to be read from elsewhere, and nothing was read.
        """
        if want <= 0 or self.plan.claims_unread or self.plan.redeliverable is not None:
            return True
        buffered = self.plan.buffer_length
        try:
            await self._fetcher.fetch(
                want - buffered, None if buffered else wait, chooses=self.subscription_filter is not None
            )
        except OffsetNotInLogError as error:
            await self._find_way_back(error)
            return False
        return True

    def has_more(self, view: PartitionView) -> bool:
        """Return whether a log that is read is known to have more records."""
        return self._fetcher.has_more(view.partition)

    def add(self, partition: int, records: Sequence[Record]) -> int:
        """Put records into the plan; return how many were messages."""
        view = self.plan.views[partition]
        self._pace.was_active = True
        if not view.state.is_read:
            return 0
        return view.add(records, self.subscription_filter, keep_all=self.entity.detects_duplicates)

    def end(self, partition: int, offset: int) -> None:
        """Note the end of a log."""
        view = self.plan.views[partition]
        if view.state.is_read:
            view.end(offset)

    def buffered_partitions(self) -> Iterable[int]:
        """Return the partitions with messages that were read and not claimed."""
        return [view.partition for view in self.plan.views if view.buffer_length]

    def position(self, partition: int) -> int:
        """Return the offset behind the last record that was read."""
        return self.plan.views[partition].seen_to

    async def _start_reading(self, views: Sequence[PartitionView]) -> None:
        """Begin at each ledger's cursor: the ledger has granted the messages before it."""
        states = await self._connections.ledger_client.states([self.entity.ledgers[view.partition] for view in views])
        places: list[FetchFrom] = []
        for view, state in zip(views, states, strict=True):
            cursor, epoch = (0, None) if state is None else (state.cursor, state.epoch)
            places.append(FetchFrom(view.partition, cursor, None if view.unverifiable_at == cursor else epoch))
            view.start(cursor)
        try:
            await self._fetcher.assign(places)
        except BaseException:
            self._needs_resync = True
            raise

    async def _find_homes(self) -> None:
        entity = self.entity
        if self._news.clients is None:
            self._news.clients = await self._parts.notifications.meet(entity)
        client_id = self._connections.client_id
        self.plan.crowded = len(self._news.clients) > entity.partitions
        homes = home_partitions(client_id, self._news.clients, entity.partitions).union(
            self._listener.needed_partitions()
        )
        for view in self.plan.views:
            view.home = view.partition in homes

    async def _ask_for_returned(self, *, changed_only: bool) -> None:
        """Ask ledgers, without claiming, for ranges to be granted again.

        Args:
            changed_only: Whether to ask only those that have changed since they were asked last.
        """
        ledgers, client = self.entity.ledgers, self._connections.ledger_client
        changes: Sequence[str | None] = await client.changes(ledgers) if changed_only else [None] * len(ledgers)
        claims = [
            (view, Claim.poll(ledger))
            for view, ledger, then, now in zip(self.plan.views, ledgers, self._changes, changes, strict=True)
            if now is None or now != then
        ]
        if claims:
            await client.execute(*(claim for _, claim in claims))
        for view, claim in claims:
            if view.state.is_read:
                await self.follow_cursor(view, claim.granted)
            await self.note(view, claim.granted)
        # Not before: ledgers whose answers did not come, or were not heeded, are asked again.
        self._changes = changes

    async def _look_at_memory(self) -> None:
        """While Redis is nearly full, claim nothing new; settling, and what was granted before, go on."""
        full = await self._connections.ledger_client.is_full()
        if full != self.is_full:
            LOGGER.warning("redis_full entity=%s full=%s: nothing new is received while it is", self.entity.path, full)
        self.is_full = full

    async def read_again(self, delivery: Delivery, ranges: Sequence[Range]) -> list[Record]:
        """Read the messages of ranges that a lease holds, as receivers get them; see ``GrantedRecords.read``."""
        return self.entity.change_granted(await self.granted.read(delivery, ranges))

    def is_late(self, grants: Sequence[Grant]) -> bool:
        """Return whether to hand out what was granted now, because a quarter of its lock is over."""
        ledgers, most = self.entity.ledgers, self.entity.lock_ms * 0.75 / 1000
        return any(
            grant.delivery.lease and ledgers[grant.delivery.partition].seconds_until(grant.delivery.expiry) < most
            for grant in grants
        )

    async def schedule_held(self, delivery: Delivery, records: Sequence[Record]) -> list[Record]:
        """Have scheduled messages, also those of plain producers, wait for their time; return the others."""
        items, unscheduled = part_scheduled(records)
        if items:
            await self._connections.ledger_client.execute(
                ScheduleHeld(self.entity.ledgers[delivery.partition], delivery.lease, items)
            )
        return unscheduled

    # The answers of ledgers.

    async def note(self, view: PartitionView, granted: Granted) -> None:
        """Note the answer of a partition's ledger, and do what it asks for."""
        view.cursor = granted.cursor
        view.redeliverable = granted.redeliverable > 0
        view.due_at = None if granted.due_in is None else time.monotonic() + granted.due_in
        self._listener.on_note(view.partition, granted)
        if granted.moves:
            await self._parts.transfers.finish(self.entity, view.partition)
        if granted.overdue:
            await self._parts.dispositions.activate(self.entity, view.partition)

    async def follow_cursor(self, view: PartitionView, granted: Granted) -> None:
        """Read on from the ledger's cursor if it is elsewhere."""
        elsewhere = view.follow(granted)
        if elsewhere is not None:
            await self._fetcher.seek(view.partition, elsewhere)

    async def learn_rules(self) -> None:
        """Look up the rules of the subscription, which were changed; they choose what is read and granted from now on."""
        self.entity = await self._parts.catalog.entity_anew(self.entity)

    def detections(self, seen: Iterable[tuple[PartitionView, Seen | None]]) -> list[DetectDuplicates]:
        """Return the operations that find the duplicates among records that were read and are to be granted."""
        if not self.entity.detects_duplicates:
            return []
        return [
            detect_duplicates(
                self.entity,
                view.partition,
                min(max(view.dedup_upto, part.start), part.upto),
                part.upto,
                view.records_before(part.upto),
            )
            for view, part in seen
            if part is not None
        ]

    async def follow_detections(self, detections: Sequence[DetectDuplicates]) -> None:
        """Note up to where duplicates are known, and search the records before if the ledger asks for it.

        Raises:
            ServiceBusError: A log was truncated, and the entity goes on with other ledgers.
        """
        for detection in detections:
            view = self.plan.views[detection.ledger.partition]
            view.dedup_upto = detection.dedup_upto
            if detection.log_truncated is not None:
                cut = view.first_later(detection.log_truncated)
                await self._parts.recovery.recover_from_truncation(self.entity, view.partition, cut)
            elif detection.ahead:
                # A rebuilt ledger looks at the window once more.
                upto = min(detection.start, view.seen_from)
                view.dedup_upto = await self._parts.duplicate_scan.scan(
                    self.entity, view.partition, detection.dedup_upto, upto
                )

    # Logs that were trimmed or truncated.

    def mark_unverified(self, view: PartitionView) -> None:
        """Read a log from its ledger's cursor before anything else: the brokers say then whether it was truncated.

        The caller has the turn.
        """
        view.mark_unverified()
        self._listener.on_suspected_truncation()

    def is_verified(self, partition: int) -> bool:
        """Return whether no truncation of a log is to be looked for first."""
        return partition not in self._doubted and self.plan.views[partition].state.is_verified

    def _doubt(self, view: PartitionView) -> None:
        """Mark a log unverified when the next turn begins: a receiver without the turn may read by offset."""
        self._doubted.add(view.partition)

    async def _find_way_back(self, error: OffsetNotInLogError) -> None:
        """Go on with a log that does not hold the offset at which it was to be read on.

        Raises:
            ServiceBusError: The log was truncated, and the entity goes on with other ledgers.
        """
        connections, topic, partition = self._connections, self.entity.topic, error.partition
        ledger = self.entity.ledgers[partition]
        # The cursor before the end: it is never beyond an end that is asked for afterwards. A subscription's may be beyond the
        # committed end if it was created while a transaction was open.
        (state,) = await connections.ledger_client.states([ledger])
        start = (await connections.topics.starts(topic, [partition]))[partition]
        end = (await connections.topics.stored_ends(topic, [partition]))[partition]
        if state is not None:
            await self._check_end(self.plan.views[partition], state, start, end, error.truncated_to)
            if state.cursor < start:
                await connections.ledger_client.execute(Purge(ledger, start))
                LOGGER.error(
                    "lost_by_the_log entity=%s partition=%d offsets=%s: deleted before a client received them",
                    self.entity.path,
                    partition,
                    [(state.cursor, start - 1)],
                )
            if state.dedup_upto is not None and state.dedup_upto < start:
                await connections.ledger_client.execute(
                    detect_duplicates(self.entity, partition, 0, 0, [], log_start=start)
                )
        # Otherwise only this reader lagged behind the messages that other clients settled.
        self._needs_resync = True

    async def _check_end(
        self, view: PartitionView, state: LedgerState, start: int, end: int, truncated_to: int | None
    ) -> None:
        """If a log was truncated, have the entity go on from there.

        Args:
            view: The partition.
            state: The state of its ledger.
            start: The first offset of the log.
            end: The end of the log.
            truncated_to: See ``OffsetNotInLogError``.

        Raises:
            ServiceBusError: The log was truncated, and the entity goes on with other ledgers.
        """
        recovery = self._parts.recovery
        if truncated_to is not None and truncated_to >= 0:
            await recovery.recover_from_truncation(self.entity, view.partition, truncated_to)
        elif truncated_to is not None and start == end == state.cursor:
            # The brokers know no epoch of a log without records; none was lost.
            view.unverifiable_at = state.cursor
        elif truncated_to is not None or (state.cursor > end and (state.epoch is None or view.maybe_truncated)):
            await recovery.recover_from_truncation(self.entity, view.partition, None)
        elif state.cursor > end:
            # If it begins again at the cursor, Kafka's client asks where the log was truncated.
            view.maybe_truncated = True
