"""Receiving from an entity with sessions: messages are filed under their sessions, and granted to the locks of those.

A receiver asks its ledger for the next messages of its session. If there are none, one receiver of a client at a time reads
on and files what it reads, for all receivers of this client and of others. Records that were filed a moment ago are kept,
because receivers are likely to be granted them soon; others are read again by offset.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from kafkabus._async.compat import longest_wait, sleep
from kafkabus._async.receiving.filed_records import read_filed
from kafkabus._async.receiving.log_reader import POLL_SLICE, LogReader, ReaderParts
from kafkabus._async.receiving.recent_records import FILED_AT_ONCE, RecentRecords
from kafkabus._async.receiving.session_filer import SessionFiler
from kafkabus._async.receiving.waiting_line import Waiter, WaitingLine
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import OperationTimeoutError, SessionLockLostError
from kafkabus._core.fetch_plan import PartitionState
from kafkabus._core.record import session_of
from kafkabus._ledger.operations import Accept, Granted, GrantNext, Leave, Ledger, Settlement, new_lease
from kafkabus._ledger.ranges import NEVER, common
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath

FILL_UP = 0.05
"""For how long, in seconds, more is filed for a receiver that has some messages of its session, and wants more."""
LONGEST_SLEEP = 30.0
"""After how many seconds a receiver that another one reads for looks whether it still wants something."""


@dataclass(slots=True)
class SessionLock:
    """A session that a receiver has locked.

    Attributes:
        session: The session's id.
        partition: The session's partition.
        lease: The lease id of the lock, and of all messages that it is granted.
        expiry: When the lock expires, ms since 1970 on the ledger's clock.
        lost: Whether the lock is known to have expired.
    """

    session: str
    partition: int
    lease: str
    expiry: int
    lost: bool = False


class SessionReader:
    """Receives from an entity with sessions for all receivers of one client; it implements ``LogListener``.

    Args:
        parts: The parts of the client.
        entity: The entity to receive from.

    Attributes:
        log: The reader of the entity's logs.
    """

    def __init__(self, parts: ReaderParts, entity: Entity) -> None:
        self._connections = parts.connections
        self._kept = RecentRecords()
        self._awaited: Counter[int] = Counter()
        self._counting = threading.Lock()
        self._news: Counter[int] = Counter()
        self.log = LogReader(parts, entity, self)
        self._line = WaitingLine(self.log.wake)
        self._filer = SessionFiler(parts, self.log, self._kept, self.on_notification)
        self._plan = self.log.plan
        # Nothing is claimed ahead, because a message has to be read to know its session. Partitions that are at home at no
        # client, or at another, are read as soon as the home partitions are dry.
        self._plan.small_batches = True

    async def accept(
        self, session: str | None, timeout: float, closed: Callable[[], bool], holder: str | None
    ) -> tuple[SessionLock | None, bool]:
        """Lock a session.

        Args:
            session: The session's id; None: the session that has waited longest.
            timeout: The longest wait for a session that has messages, in seconds; one that is named need not have any.
            closed: Whether the receiver was closed, and wants none any more.
            holder: The receiver, as leases name it; None if they do not.

        Returns:
            The lock, None if there is none; and whether another receiver holds the session that was named.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        if session is not None:
            return await self._lock(
                self.log.entity.ledgers[partition_of(session, self.log.entity.partitions)], session, holder
            )
        deadline = time.monotonic() + timeout
        waiter = self._line.enter(None)
        try:
            while not (self.log.is_closed or closed()):
                lock = await self._lock_free(waiter, holder) if waiter.is_invited else None
                if lock is not None:
                    self._line.pass_on()
                    return lock, False
                if time.monotonic() >= deadline:
                    break
                await self._advance_at(waiter, deadline, lambda: waiter.is_invited or closed())
        finally:
            self._line.leave(waiter)
        return None, False

    async def _lock_free(self, waiter: Waiter, holder: str | None) -> SessionLock | None:
        """Lock the next session of a partition that may have one, the home partitions of this client first."""
        while free := self._line.free(waiter):
            partition = min(free, key=lambda candidate: (not self._plan.views[candidate].home, candidate))
            lock, _ = await self._lock(self.log.entity.ledgers[partition], None, holder)
            if lock is not None:
                return lock
            self._line.note_taken(partition, free[partition])
        return None

    async def _lock(self, ledger: Ledger, session: str | None, holder: str | None) -> tuple[SessionLock | None, bool]:
        entity = self.log.entity
        accept = Accept(ledger, new_lease(), session, entity.lock_ms, entity.max_deliveries, by=holder)
        try:
            await self._connections.ledger_client.execute(accept)
        except BaseException:
            # If it was granted all the same, it is given up now, not with the next request.
            await self.log.undelivered.put_back([])
            raise
        if accept.accepted is None:
            return None, accept.held
        return SessionLock(accept.accepted, ledger.partition, accept.lease, accept.expiry), False

    async def file_upto(self, ends: Mapping[int, int], timeout: float) -> None:
        """File the messages of some partitions that are stored before these offsets.

        Args:
            ends: The offsets, by partition.
            timeout: How long that may take, in seconds.

        Raises:
            OperationTimeoutError: It took longer.
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        entity, deadline = self.log.entity, time.monotonic() + timeout
        (*states,) = await self._connections.ledger_client.states([entity.ledgers[partition] for partition in ends])
        for (partition, end), state in zip(ends.items(), states, strict=True):
            cursor = 0 if state is None else state.cursor
            while cursor < end:
                if time.monotonic() >= deadline:
                    raise OperationTimeoutError(
                        f"{entity.path}: not all messages could be looked at within {timeout:g} s: partition {partition} is "
                        f"known up to offset {cursor} of {end}"
                    )
                await self._advance(partition, time.monotonic() + POLL_SLICE, lambda: False)
                cursor = self._plan.views[partition].cursor

    async def leave(self, lock: SessionLock) -> None:
        """Give a session up; its messages that were granted and not settled go back to it, and no delivery is counted.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; the lock expires by itself.
        """
        await self._connections.ledger_client.execute(Leave(self.log.entity.ledgers[lock.partition], lock.lease))

    async def receive_next(
        self, lock: SessionLock, want: int, timeout: float, closed: Callable[[], bool]
    ) -> list[Grant]:
        """Claim the next messages of a locked session, in order, waiting until at least one is there.

        Args:
            lock: The session's lock.
            want: The most messages to claim.
            timeout: The longest wait for the first, in seconds.
            closed: Whether the receiver was closed, and wants none any more.

        Returns:
            The messages that were granted; none if time ran out.

        Raises:
            SessionLockLostError: The lock has expired.
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        deadline, undelivered = time.monotonic() + timeout, self.log.undelivered
        grants = undelivered.take(want, lambda grant: session_of(grant.records[0]) == lock.session)
        fill_until, due_in = 0.0, math.inf
        try:
            while not (self.log.is_closed or closed()):
                news = self._news[lock.partition]
                left = want - sum(len(grant.records) for grant in grants)
                if not self.log.is_verified(lock.partition):
                    # The log may have been truncated: reading it shows whether the ledger has to be replaced first.
                    await self._advance(lock.partition, time.monotonic() + POLL_SLICE, lambda: False)
                elif left > 0:
                    due_in = await self._grant_next(lock, left, grants)
                left = want - sum(len(grant.records) for grant in grants)
                enough = grants and (self.log.is_late(grants) or not self._goes_on(lock.partition))
                if left <= 0 or enough or time.monotonic() >= deadline:
                    return grants

                def is_new(news: int = news) -> bool:
                    return self._news[lock.partition] != news

                if grants:
                    fill_until = fill_until or time.monotonic() + FILL_UP
                until = min(deadline, fill_until or deadline, time.monotonic() + due_in)
                await self._advance(lock.partition, until, is_new)
                if fill_until and (not is_new() or time.monotonic() >= fill_until):
                    return grants
        except BaseException:
            await undelivered.put_back(grants)
            raise
        await undelivered.put_back(grants)
        return []

    # LogListener.

    def on_notification(self, partition: int) -> None:
        """Note that a partition has news, and that one of its sessions may be free."""
        self._news[partition] += 1
        self._line.note_free(partition)
        self._line.ring(partition)

    def on_note(self, partition: int, granted: Granted) -> None:
        """Note whether the partition has a free session with messages."""
        if granted.free:
            self._line.note_free(partition)
        else:
            self._line.note_taken(partition)

    def needed_partitions(self) -> Iterable[int]:
        """Return the partitions whose sessions receivers of this client wait for."""
        with self._counting:
            return [partition for partition, count in self._awaited.items() if count > 0]

    def on_suspected_truncation(self) -> None:
        """Do nothing: messages are never claimed ahead."""

    def on_activity(self) -> None:
        """Do nothing: all partitions are read in any case."""

    async def slow_poll(self, *, idle: bool) -> None:  # noqa: ARG002 - all partitions are read in any case
        """Have all receivers ask again, because a notification may have been lost."""
        self._news.update(range(self.log.entity.partitions))
        self._line.ring(None)

    def on_release(self) -> None:
        """Keep no records that were filed."""
        self._kept.clear()

    # The messages of a locked session.

    async def _grant_next(self, lock: SessionLock, want: int, grants: list[Grant]) -> float:
        """Ask once for the next messages; return in how many seconds there may be another one that is postponed."""
        entity = self.log.entity
        following = GrantNext(entity.ledgers[lock.partition], lock.lease, want, entity.rules_version)
        await self._connections.ledger_client.execute(following)
        if following.gone:
            lock.lost = True
            raise lock_lost(lock.session, entity.path)
        if following.unfiled:
            self._plan.views[lock.partition].redeliverable = True
            return math.inf
        lock.expiry = following.expiry
        try:
            if following.stale_rules:
                await self.log.learn_rules()
            await self._add_following(lock, following, grants)
        except BaseException:
            self._connections.ledger_client.enqueue(following.undo())
            raise
        return math.inf if following.due_in is None else following.due_in

    async def _add_following(self, lock: SessionLock, following: GrantNext, grants: list[Grant]) -> None:
        """Read the messages that were granted."""
        for count, ranges in groupby(following.again, key=itemgetter(2)):
            delivery = self.log.entity.delivery(lock.partition, lock.lease, lock.expiry, count, session=True)
            records, cut = await read_filed(
                self.log, self._kept, delivery, [(first, last) for first, last, _ in ranges]
            )
            if records:
                grants.append(Grant(delivery, await as_changed(self._connections, following.ledger, records)))
            if cut is not None:
                rest = common([(first, last) for first, last, _ in following.again], [(cut, NEVER)])
                await self._connections.ledger_client.execute(Settlement(following.ledger, "release", lock.lease, rest))
                return

    def _goes_on(self, partition: int) -> bool:
        """Return whether more of a log is at hand that is not filed yet, and there is room to keep it."""
        view = self._plan.views[partition]
        return view.state is PartitionState.READING and not self._kept.full and self.log.has_more(view)

    # Filing.

    async def _advance(self, partition: int, deadline: float, is_new: Callable[[], bool]) -> None:
        """Read a partition on and file, or wait while another receiver does, until there are news or time is over.

        Args:
            partition: The partition.
            deadline: On the monotonic clock; past: only records that are at hand are read.
            is_new: Whether there are news.
        """
        self._await(partition, 1)
        if not self._plan.views[partition].home:
            # The receiver that reads on for all begins to read it.
            self._plan.views[partition].home = True
            self.log.wake()
        waiter = self._line.enter(partition)
        try:
            await self._advance_at(waiter, deadline, is_new)
        finally:
            self._line.leave(waiter)
            self._await(partition, -1)

    async def _advance_at(self, waiter: Waiter, deadline: float, is_new: Callable[[], bool]) -> None:
        """Read on and file if the receiver is the one that does, else wait; see ``_advance``."""
        while not (is_new() or self.log.is_closed):
            left = max(0.0, deadline - time.monotonic())
            if not self._line.leads(waiter):
                await waiter.bell.wait(min(left, LONGEST_SLEEP, longest_wait()))
            elif await self.log.acquire(min(left, POLL_SLICE)):
                try:
                    if not is_new():
                        await self._read_and_file(deadline)
                finally:
                    await self.log.release()
            if time.monotonic() >= deadline:
                return

    def _await(self, partition: int, more: int) -> None:
        """Count the receivers that wait for messages of a partition."""
        with self._counting:
            self._awaited[partition] += more

    async def _read_and_file(self, deadline: float) -> None:
        log = self.log
        try:
            await log.maintain(idle=not self._plan.buffer_length)
            view = self._plan.redeliverable
            if view is not None:
                await self._filer.place(view)
            elif log.is_full:
                await sleep(log.patience(deadline))
            elif await log.read_on(FILED_AT_ONCE, log.patience(deadline)):
                await self._filer.file()
        except BaseException:
            log.resync()
            raise


def lock_lost(session: str | None, path: EntityPath, why: Exception | None = None) -> SessionLockLostError:
    """Return the error for a session whose lock has expired."""
    return SessionLockLostError(
        f"the lock of session {session!r} of {path} has expired: what was not settled is delivered again; open another "
        "receiver to go on",
        error=why,
    )
