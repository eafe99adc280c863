# Generated from facade/kafkabus/_async/receiving/session_reader.py by tools/generate_blocking.py. Do not edit.
"""Reading an entity whose messages have sessions: what is read is filed, and granted to whoever has locked its session.

A receiver asks its ledger for the next messages of its session. Where there are none, one receiver of a client at a time
reads on and files what it reads, for all of them and for other clients. Records that were filed a moment ago are kept, as
they are likely to be asked for soon; others are read again by offset.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

from typing_extensions import override

from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import OperationTimeoutError, SessionLockLostError
from kafkabus._core.fetch_plan import PartitionView, runs_of, sweeps
from kafkabus._core.record import Record, scheduled_for, session_of
from kafkabus._ledger.operations import (
    Accept,
    Claim,
    Filing,
    Granted,
    Leave,
    Ledger,
    Next,
    Place,
    Settlement,
    new_lease,
)
from kafkabus._ledger.ranges import NEVER, Range, common, merge_offsets, offsets_of
from kafkabus._sync.compat import acquire, sleep
from kafkabus._sync.dispositions.disposition import delivered_too_often
from kafkabus._sync.receiving.reader import POLL_SLICE, SLOW_POLL, SWEPT_AT_ONCE, Reader, ReaderParts
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath

FILED_AT_ONCE = 2_000
"""How many messages are read, and then filed, in one go."""
KEPT = 100_000
"""How many records that were filed are kept in case they are asked for."""
KEPT_BYTES = 128 * 1024 * 1024
"""How much they may take, keys and headers not counted."""
FILL_UP = 0.05
"""For how long, in seconds, more is filed for a receiver that has some messages of its session, and wants more."""
PLACED_AT_ONCE = 1_000
"""How many returned messages are placed in their sessions in one go."""
NO_SESSION = "SessionIdMissing", "it is received in sessions alone, and the message has no session_id"
"""Reason and description of a message that belongs to no session."""
ELSEWHERE = (
    "SessionElsewhere",
    "it was stored in another partition than its session's: no sender of ours stored it",
)
"""Reason and description of a message of a subscription whose session is in another partition."""


@dataclass(slots=True)
class SessionLock:
    """A session that a receiver has locked.

    Attributes:
        session: Its name.
        partition: Where it is.
        lease: Lease id of the lock, and of all messages that it is granted.
        expiry: When the lock expires, ms since 1970 on the ledger's clock.
        lost: Whether it is known to have expired.
    """

    session: str
    partition: int
    lease: str
    expiry: int
    lost: bool = False


class SessionReader(Reader):
    """Reads an entity with sessions for all receivers of one client.

    Args:
        parts: What it works with.
        entity: What to read.
    """

    def __init__(self, parts: ReaderParts, entity: Entity) -> None:
        super().__init__(parts, entity)
        # Partitions that are nobody's home, or another client's, are read as soon as the homes are dry.
        self._small_batches_until = math.inf
        self._kept = _Kept()
        self._awaited: Counter[int] = Counter()
        self._news: Counter[int] = Counter()
        self._free: set[int] = set()

    def accept(
        self, session: str | None, timeout: float, closed: Callable[[], bool]
    ) -> tuple[SessionLock | None, bool]:
        """Lock a session.

        Args:
            session: Its name; None: whichever has waited longest.
            timeout: Longest wait for one that has messages, in seconds; one that is named need not have any.
            closed: Whether nobody wants it any more.

        Returns:
            The lock, None where there is none; and whether somebody else has the session that was named.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        if session is not None:
            return self._lock(self._entity.ledgers[partition_of(session, self._entity.partitions)], session)
        deadline = time.monotonic() + timeout
        while not (self._closed or closed()):
            news = self._news.total()
            for partition in sorted(self._free, key=lambda one: not self._plan.views[one].home):
                lock, _ = self._lock(self._entity.ledgers[partition], None)
                if lock is not None:
                    return lock, False
                self._free.discard(partition)
            if time.monotonic() >= deadline:
                break
            self._advance(None, deadline, lambda news=news: self._news.total() != news)  # type: ignore[misc]
        return None, False

    def _lock(self, ledger: Ledger, session: str | None) -> tuple[SessionLock | None, bool]:
        accept = Accept(ledger, new_lease(), session, self._entity.lock_ms, self._entity.max_deliveries)
        try:
            self._connections.ledger_client.execute(accept)
        except BaseException:
            # Where it was granted all the same, it is given up now, not with whoever comes next.
            self.put_back([])
            raise
        if accept.accepted is None:
            return None, accept.held
        return SessionLock(accept.accepted, ledger.partition, accept.lease, accept.expiry), False

    def file_all(self, timeout: float) -> None:
        """Have all filed that is stored by now, as far as this client can.

        Args:
            timeout: How long that may take, in seconds.

        Raises:
            OperationTimeoutError: It took longer.
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        deadline = time.monotonic() + timeout
        ends = self._connections.pool.run(
            self._connections.topics.ends, self._entity.topic, range(self._entity.partitions)
        )
        (*states,) = self._connections.ledger_client.states(self._entity.ledgers)
        for view, state in zip(self._plan.views, states, strict=True):
            end, cursor = ends[view.partition], 0 if state is None else state.cursor
            while cursor < end:
                if time.monotonic() >= deadline:
                    raise OperationTimeoutError(
                        f"{self._entity.path}: not all messages could be looked at within {timeout:g} s: partition "
                        f"{view.partition} is known up to offset {cursor} of {end}"
                    )
                self._advance(view.partition, time.monotonic() + POLL_SLICE, lambda: False)
                cursor = view.cursor

    @override
    def _let_go(self) -> None:
        super()._let_go()
        self._kept = _Kept()

    def leave(self, lock: SessionLock) -> None:
        """Give a session up; what was granted and not settled goes back to it, no delivery counted.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; the lock expires by itself.
        """
        self._connections.ledger_client.execute(Leave(self._entity.ledgers[lock.partition], lock.lease))

    def receive_next(self, lock: SessionLock, want: int, timeout: float, closed: Callable[[], bool]) -> list[Grant]:
        """The next messages of a locked session, in order, waiting until at least one is there.

        Args:
            lock: The session's.
            want: How many at the most.
            timeout: Longest wait for the first, in seconds.
            closed: Whether nobody wants them any more.

        Returns:
            What was granted; nothing where time ran out.

        Raises:
            SessionLockLostError: The lock has expired.
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        deadline = time.monotonic() + timeout
        grants, fill_until = self._taken_of(lock.session, want), 0.0
        try:
            while not (self._closed or closed()):
                news = self._news[lock.partition]
                left = want - sum(len(grant.records) for grant in grants)
                if left > 0:
                    self._grant_next(lock, left, grants)
                left = want - sum(len(grant.records) for grant in grants)
                enough = grants and (self._is_late(grants) or not self._goes_on(lock.partition))
                if left <= 0 or enough or time.monotonic() >= deadline:
                    return grants

                def is_new(news: int = news) -> bool:
                    return self._news[lock.partition] != news

                if grants:
                    fill_until = fill_until or time.monotonic() + FILL_UP
                self._advance(lock.partition, min(fill_until, deadline) if fill_until else deadline, is_new)
                if fill_until and (not is_new() or time.monotonic() >= fill_until):
                    return grants
        except BaseException:
            self.put_back(grants)
            raise
        self.put_back(grants)
        return []

    def _taken_of(self, session: str, want: int) -> list[Grant]:
        """What an earlier call settled of a session and could not hand out."""
        others = [grant for grant in self._taken if session_of(grant.records[0]) != session]
        self._taken = [grant for grant in self._taken if grant not in others]
        taken = self._taken_before(want)
        self._taken += others
        return taken

    def _grant_next(self, lock: SessionLock, want: int, grants: list[Grant]) -> None:
        """Ask once for the next messages."""
        following = Next(self._entity.ledgers[lock.partition], lock.lease, want, self._entity.rules_version)
        self._connections.ledger_client.execute(following)
        if following.gone:
            lock.lost = True
            raise lock_lost(lock.session, self._entity.path)
        if following.unfiled:
            self._plan.views[lock.partition].redeliverable = True
            return
        lock.expiry = following.expiry
        try:
            if following.stale_rules:
                self._learn_rules()
            self._add_following(lock, following, grants)
        except BaseException:
            self._connections.ledger_client.enqueue(following.undo())
            raise

    def _add_following(self, lock: SessionLock, following: Next, grants: list[Grant]) -> None:
        """Read what was granted."""
        for count, ranges in groupby(following.again, key=itemgetter(2)):
            delivery = self._entity.delivery(lock.partition, lock.lease, lock.expiry, count, session=True)
            records, cut = self._records(delivery, [(first, last) for first, last, _ in ranges])
            if records:
                grants.append(Grant(delivery, records))
            if cut is not None:
                rest = common([(first, last) for first, last, _ in following.again], [(cut, NEVER)])
                self._connections.ledger_client.execute(Settlement(following.ledger, "release", lock.lease, rest))
                return

    def _records(self, delivery: Delivery, ranges: Sequence[Range]) -> tuple[list[Record], int | None]:
        """The records of ranges that a session's lease holds: those that are kept, and the others by offset.

        Where one did not come, those behind it must wait for it: none of them, and its offset.
        """
        offsets = offsets_of(ranges)
        kept, missing = self._kept.take(delivery.partition, offsets)
        found = self._entity.granted(kept)
        if missing:
            for sweep in sweeps(merge_offsets(missing), lambda one: one, at_once=SWEPT_AT_ONCE):
                found += self.read_again(delivery, sweep)
            found.sort(key=lambda record: record.offset() or 0)
        came = {record.offset() for record in found}
        cut = min((offset for offset in missing if offset not in came), default=None)
        if cut is None:
            return found, None
        return [record for record in found if (record.offset() or 0) < cut], cut

    def _goes_on(self, partition: int) -> bool:
        """Whether more of a log is at hand that is not filed yet, and may be kept."""
        view = self._plan.views[partition]
        return view.assigned and not view.at_end and not self._kept.full and self._more_in(view)

    def _advance(self, partition: int | None, deadline: float, is_new: Callable[[], bool]) -> None:
        """Read on and file, or wait while another receiver does, until there are news or time is over.

        Args:
            partition: Which must be read; None: those that are this client's.
            deadline: On the monotonic clock; past: read what is at hand.
            is_new: Whether there are news.
        """
        if partition is not None:
            self._awaited[partition] += 1
            self._plan.views[partition].home = True
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                if acquire(self._turn, min(left, POLL_SLICE)):
                    try:
                        if not is_new():
                            self._read_and_file(deadline)
                    finally:
                        self._release()
                if is_new() or self._closed or time.monotonic() >= deadline:
                    return
        finally:
            if partition is not None:
                self._awaited[partition] -= 1

    def _read_and_file(self, deadline: float) -> None:
        try:
            self._tend(idle=not self._plan.buffered)
            view = self._plan.redeliverable
            if view is not None:
                self._place(view)
            elif self._full:
                sleep(self._patience(deadline))
            elif self._read_on(FILED_AT_ONCE, self._patience(deadline)):
                self._file()
        except BaseException:
            self._needs_resync = True
            raise

    @override
    def _tend(self, *, idle: bool) -> None:
        slow = time.monotonic() >= self._next_slow_poll
        super()._tend(idle=idle)
        if slow:
            # A notification may have been lost.
            self._news.update(range(self._entity.partitions))

    @override
    def _hear(self, partition: int) -> None:
        self._news[partition] += 1
        self._free.add(partition)

    @override
    def _note(self, view: PartitionView, granted: Granted) -> None:
        super()._note(view, granted)
        (self._free.add if granted.free else self._free.discard)(view.partition)

    @override
    def _find_homes(self) -> None:
        super()._find_homes()
        for partition, count in self._awaited.items():
            if count > 0:
                self._plan.views[partition].home = True

    @override
    def _claim_no_more_ahead(self) -> None:
        """It never is."""

    @override
    def _look_around(self) -> None:
        """Nothing is claimed ahead: whose a message is, is known once it was read."""

    def _file(self) -> None:
        """File all that was read."""
        views = [view for view in self._plan.views if view.assigned and view.seen_to > view.seen_from]
        filings = [self._filing(view) for view in views]
        if not filings:
            return
        self._parts.marks.tell_topic(self._entity, self._subscription_filter)
        detections = self._detections(zip(views, (filing.seen for filing in filings), strict=True))
        self._connections.ledger_client.execute(*detections, *filings)
        self._follow_detections(detections)
        for view, filing in zip(views, filings, strict=True):
            granted = filing.granted
            if granted.ahead or granted.cursor > filing.seen.upto:
                self._plan.lost_race(view, time.monotonic() + 2 * SLOW_POLL)
            self._go_to(view, granted)
            if granted.stale_rules:
                self._learn_rules()
            self._note(view, granted)
            if filing.sessions:
                self._hear(view.partition)
            self._give_up_strays(filing, granted)

    def _filing(self, view: PartitionView) -> Filing:
        """What to file of a partition; its records are kept."""
        records = view.records
        sessions, strays = self._by_session(view.partition, records)
        self._kept.put(view.partition, records)
        ledger = self._entity.ledgers[view.partition]
        seen = view.seen(len(records))
        return Filing(
            ledger,
            new_lease(),
            seen,
            sessions,
            strays,
            self._entity.lock_ms,
            rules=self._rules_version,
        )

    def _by_session(self, partition: int, records: Sequence[Record]) -> tuple[dict[str, list[int]], list[Range]]:
        """The offsets of each session among records, and runs of those that belong to none here."""
        offsets: dict[str | None, list[int]] = defaultdict(list)
        for record in records:
            session = None if scheduled_for(record) is not None else session_of(record)
            if (
                session is not None
                and session not in offsets
                and partition_of(session, self._entity.partitions) != partition
            ):
                session = None
            if (
                session is not None
                and self._subscription_filter is not None
                and self._subscription_filter.sets_apart(record)
            ):
                session = None
            offsets[session].append(record.offset() or 0)
        strays = merge_offsets(offsets.pop(None, ()))
        return {name: several for name, several in offsets.items() if name is not None}, strays

    def _give_up_strays(self, filing: Filing, granted: Granted) -> None:
        for first, last, _ in granted.again:
            delivery = self._entity.delivery(filing.ledger.partition, filing.lease, granted.expiry, 0)
            records, _ = self._kept.take(filing.ledger.partition, range(first, last + 1))
            self._lead_away(delivery, records)

    def _lead_away(self, delivery: Delivery, strays: Sequence[Record]) -> None:
        """Messages that are nobody's here: into their sessions' partitions, or into the dead-letter queue.

        Where that fails, it is tried again once their locks have expired.
        """
        by_partition: dict[int | None, list[Record]] = defaultdict(list)
        strays = self._postpone(delivery, strays)
        for record in self._parts.dispositions.as_received(self._entity, delivery, strays):
            session = session_of(record)
            by_partition[None if session is None else partition_of(session, self._entity.partitions)].append(record)
        for there, records in by_partition.items():
            if there is None:
                self._parts.dispositions.give_up(self._entity, delivery, records, *NO_SESSION)
            elif self._subscription_filter is not None:
                # Other subscriptions read the same log.
                self._parts.dispositions.give_up(self._entity, delivery, records, *ELSEWHERE)
            else:
                self._parts.dispositions.move(self._entity, delivery, there, records)

    def _place(self, view: PartitionView) -> None:
        """Read what waits to be placed in its session, and place it."""
        claim = Claim(
            self._entity.ledgers[view.partition],
            new_lease(),
            want=PLACED_AT_ONCE,
            lock_ms=self._entity.lock_ms,
            rules=self._entity.rules_version,
        )
        self._connections.ledger_client.execute(claim)
        try:
            if claim.granted.stale_rules:
                self._learn_rules()
            self._place_claimed(claim)
        except BaseException:
            # Nothing is granted to anybody while somebody holds these.
            self._connections.ledger_client.enqueue(claim.undo())
            self.put_back([])
            raise
        self._note(view, claim.granted)
        if claim.granted.again:
            self._hear(view.partition)

    def _place_claimed(self, claim: Claim) -> None:
        ledger = claim.ledger
        for sweep in sweeps(sorted(claim.granted.again), lambda one: one[:2], at_once=SWEPT_AT_ONCE):
            for count, several in groupby(sweep, key=itemgetter(2)):
                records = self.read_again(self._delivery(claim, count), [one[:2] for one in several])
                exceeded = count >= self._entity.max_deliveries
                sessions, strays = ({}, runs_of(records)) if exceeded else self._by_session(ledger.partition, records)
                place = Place(ledger, claim.lease, sessions, strays, self._entity.lock_ms)
                self._connections.ledger_client.execute(place)
                stray_offsets = set(offsets_of(strays))
                stray = [record for record in records if record.offset() in stray_offsets]
                delivery = self._entity.delivery(ledger.partition, place.apart, place.expiry, count)
                if exceeded:
                    reason = delivered_too_often(self._entity, count)
                    self._parts.dispositions.give_up(self._entity, delivery, stray, *reason)
                else:
                    self._lead_away(delivery, stray)


class _Kept:
    """Records that were filed a moment ago, by place; those that were filed first go first.

    Receivers take what they were granted while another one files.
    """

    __slots__ = ("_bytes", "_changing", "_records")

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._bytes = 0
        self._changing = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether those that were kept first go once more come."""
        return len(self._records) > KEPT - FILED_AT_ONCE or self._bytes > KEPT_BYTES

    def put(self, partition: int, records: Sequence[Record]) -> None:
        """Keep records of a partition."""
        places = [_place(partition, record.offset() or 0) for record in records]
        with self._changing:
            self._take(places)  # What was read before counts once.
            self._records.update(zip(places, records, strict=True))
            self._bytes += _size(records)
            while len(self._records) > KEPT or self._bytes > KEPT_BYTES:
                self._take(list(islice(self._records, max(100, len(self._records) - KEPT))))

    def take(self, partition: int, offsets: Sequence[int]) -> tuple[list[Record], list[int]]:
        """The records of places, which are not kept any longer; and the offsets of those that were not."""
        with self._changing:
            found = self._take([_place(partition, offset) for offset in offsets])
        missing = [offset for offset, record in zip(offsets, found, strict=True) if record is None]
        return [record for record in found if record is not None], missing

    def _take(self, places: Iterable[int]) -> list[Record | None]:
        pop = self._records.pop
        found = [pop(place, None) for place in places]
        self._bytes -= _size(record for record in found if record is not None)
        return found


def _place(partition: int, offset: int) -> int:
    return offset << 16 | partition


def _size(records: Iterable[Record]) -> int:
    return sum([len(record.value() or b"") for record in records])


def lock_lost(session: str | None, path: EntityPath, why: Exception | None = None) -> SessionLockLostError:
    """What is said of a session whose lock has expired."""
    return SessionLockLostError(
        f"the lock of session {session!r} of {path} has expired: what was not settled is delivered again; open another "
        "receiver to go on",
        error=why,
    )
