"""The plan of a client's reads and claims, from its view of an entity's logs; without I/O."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeVar

from kafkabus._core.record import Record, size_of
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.operations import Granted, Seen, Tail
from kafkabus._ledger.ranges import Range, merge_offsets

T = TypeVar("T")

PASSED_OVER = 5_000
"""After how many records without a message of the entity they are reported to its ledger, if nothing else is."""
SWEPT_GAP = 100
"""How many records between two wanted ones are read over rather than jumped over."""


class PartitionState(Enum):
    """The states of a reader's work on one partition's log; ``docs/explanation/states.md`` draws the transitions.

    Attributes:
        IDLE: The log is not read: another client reads it, or messages are claimed before they are read.
        READING: The log is read; more of it may be there.
        AT_END: The log was read to its end.
        RESTING: Nothing new is asked for until the next slow poll, because the ledger refused: too many messages are in
            flight, or the rules of the subscription are being changed.
        UNVERIFIED: The log may have been truncated. It will be read from the ledger's cursor before any claim.
        VERIFYING: The log is read from there, and nothing came yet: neither a record, nor the end of the log, nor the
            broker's answer that it was truncated.
        is_read: Whether the log is read in this state.
        is_verified: Whether no truncation of the log is to be looked for first.
    """

    IDLE = "idle", False, True
    READING = "reading", True, True
    AT_END = "at end", True, True
    RESTING = "resting", False, True
    UNVERIFIED = "unverified", False, False
    VERIFYING = "verifying", True, False

    def __init__(self, _name: str, is_read: bool, is_verified: bool) -> None:
        # Plain attributes: the plan asks each partition for them in each round.
        self.is_read = is_read
        self.is_verified = is_verified


_RESTING, _AT_END = PartitionState.RESTING, PartitionState.AT_END
"""Names that a loop over all partitions looks up faster than members of the class."""


class PartitionView:
    """A client's view of one partition: the records of its log that were read and not claimed, and its state.

    Attributes:
        partition: The number of the partition.
        state: The state of the reader's work on the log.
        home: Whether this client should read it first.
        redeliverable: Whether ranges are known to wait to be granted again.
        cursor: The ledger's last known cursor.
        dedup_upto: The offset up to which the ledger knows the duplicates, if the entity detects them.
        tail: The last known end of the log.
        limited: Whether so many messages are in flight that the ledger granted nothing new.
        silent: Whether nothing came when records were read by offset, so that none are read by offset for a while.
        due_at: When the ledger's next lease expires, on the monotonic clock; None if there is none.
        leave_until: Until when the client leaves the partition to another client, on the monotonic clock.
        maybe_truncated: Whether the cursor was beyond the end of the log when the reader looked last.
        unverifiable_at: The cursor if the brokers know no leader epoch before it, because the log has no records; else None.
        seen_from: The offset of the first record that was read and not claimed.
        seen_to: The offset behind the last record that was read.
    """

    __slots__ = (
        "_all",
        "_epoch",
        "_read_to",
        "_records",
        "cursor",
        "dedup_upto",
        "due_at",
        "home",
        "leave_until",
        "limited",
        "maybe_truncated",
        "partition",
        "redeliverable",
        "seen_from",
        "seen_to",
        "silent",
        "silent_until",
        "state",
        "tail",
        "unverifiable_at",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.state = PartitionState.IDLE
        self.home = False
        self.redeliverable = True
        self.cursor = 0
        self.dedup_upto = 0
        self.tail = Tail(0)
        self.limited = False
        self.silent = False
        self.silent_until = 0.0
        self.due_at: float | None = None
        self.leave_until = 0.0
        self.maybe_truncated = False
        self.unverifiable_at: int | None = None
        self.seen_from = 0
        self.seen_to = 0
        self._records: list[Record] = []
        self._all: list[Record] = []
        self._epoch: int | None = None
        self._read_to = 0

    @property
    def buffer_length(self) -> int:
        """The number of messages that were read and not claimed."""
        return len(self._records)

    @property
    def records(self) -> Sequence[Record]:
        """The messages that were read and not claimed."""
        return self._records

    @property
    def backlog(self) -> int:
        """The number of offsets that, by the last known ends, were never granted; negative if the log lost some."""
        return self.tail.end - self.cursor

    def fall_silent(self, until: float) -> None:
        """Read no records by offset until a time on the monotonic clock, because none came."""
        self.silent, self.silent_until = True, until

    # Transitions of the state.

    def start(self, offset: int) -> None:
        """Read the log from an offset on."""
        self._drop(offset)
        self.state = PartitionState.READING if self.state.is_verified else PartitionState.VERIFYING

    def stop(self) -> None:
        """Read the log no more; the records that were not claimed are dropped."""
        self._drop(self.seen_from)
        if self.state is PartitionState.VERIFYING:
            self.state = PartitionState.UNVERIFIED
        elif self.state.is_read:
            self.state = PartitionState.IDLE

    def rest(self) -> None:
        """Ask for nothing new until ``wake``."""
        if self.state.is_verified:
            self._drop(self.seen_from)
            self.state = PartitionState.RESTING

    def wake(self) -> None:
        """Ask for new messages again."""
        if self.state is PartitionState.RESTING:
            self.state = PartitionState.IDLE

    def mark_unverified(self) -> None:
        """Look for a truncation of the log before anything else is claimed."""
        self._drop(self.seen_from)
        self.state = PartitionState.UNVERIFIED

    def _drop(self, offset: int) -> None:
        """Drop the records that were not claimed; the next one is that of an offset."""
        self.seen_from = self.seen_to = offset
        self._records, self._all = [], []
        self._epoch = None

    def add(
        self,
        records: Sequence[Record],
        subscription_filter: SubscriptionFilter | None = None,
        *,
        keep_all: bool = False,
    ) -> int:
        """Add records, in the log's order; return how many messages they are, without those that were seen before.

        Args:
            records: The records.
            subscription_filter: The filter that decides which of them are messages; None if all are.
            keep_all: Whether to keep the others, too, for ``records_before``.
        """
        last = _offset(records[-1])
        if last < self.seen_to:
            return 0
        if _offset(records[0]) < self.seen_to:
            records = [record for record in records if _offset(record) >= self.seen_to]
        if subscription_filter is not None:
            # The leader epoch never falls along a log: no earlier record has a later one.
            self._epoch, self._read_to = records[-1].leader_epoch(), last + 1
            if keep_all:
                self._all += records
            records = subscription_filter.select_wanted(records)
        self._records += records
        self.seen_to = last + 1
        self.maybe_truncated, self.state = False, PartitionState.READING
        return len(records)

    def end(self, offset: int) -> None:
        """Note that the log ends here for now; the offsets between the last record and here are holes."""
        if offset >= self.seen_to:
            self.seen_to, self.state = offset, PartitionState.AT_END

    def count_within(self, want: int, most_bytes: float) -> tuple[int, float]:
        """Return how many of the first ``want`` records have so many bytes together, or one, and how many bytes are left."""
        if most_bytes == inf:
            return min(want, len(self._records)), inf
        for count, record in enumerate(self._records[:want]):
            size = size_of(record)
            if count and size > most_bytes:
                return count, 0
            most_bytes -= size
        return min(want, len(self._records)), most_bytes

    def seen_part(self, want: int) -> Seen:
        """Return the read part of the log from which to claim ``want`` messages."""
        records = self._records[:want]
        upto = self.seen_to if want >= len(self._records) else _offset(self._records[want])
        if self._epoch is not None and self._epoch >= 0:
            return Seen(self.seen_from, upto, runs_of(records), self._epoch, self._read_to)
        return Seen(self.seen_from, upto, runs_of(records), _epoch(records))

    def records_before(self, upto: int) -> Sequence[Record]:
        """Return the records below an offset that were read and not claimed; also those without a message, if they are kept."""
        if self._all:
            return self._all[: bisect_left(self._all, upto, key=_offset)]
        return self._records[: self._index(upto)]

    def first_later(self, epoch: int) -> int:
        """Return the offset of the first record that was read and not claimed and has a later leader epoch than this one."""
        return _offset(next(record for record in self._all or self._records if (record.leader_epoch() or 0) > epoch))

    def take(self, ranges: Sequence[Range]) -> list[Record]:
        """Return the buffered records of granted ranges; they stay in the buffer until ``follow`` removes them.

        Raises:
            RuntimeError: A granted record is not in the buffer.
        """
        records = self._records
        taken: list[Record] = []
        for first, last in ranges:
            begin = self._index(first)
            stop = begin + last - first + 1
            if stop > len(records) or _offset(records[begin]) != first or _offset(records[stop - 1]) != last:
                raise RuntimeError(f"granted {first}-{last} of partition {self.partition}, which was not read")
            taken += records[begin:stop]
        return taken

    def follow(self, granted: Granted) -> int | None:
        """Follow the ledger's cursor; return the offset to read on from, or None if the reader need not go elsewhere."""
        cursor = granted.cursor
        # A cursor that went back belongs to a ledger that was rebuilt.
        if granted.ahead or cursor > self.seen_to or cursor < self.seen_from:
            if self.state.is_read:
                self.start(cursor)
            else:
                self._drop(cursor)
            return cursor
        if cursor > self.seen_from:
            del self._records[: self._index(cursor)]
            del self._all[: bisect_left(self._all, cursor, key=_offset)]
            self.seen_from = cursor
        return None

    def _index(self, offset: int) -> int:
        records = self._records
        if not records:
            return 0
        # Without holes, as nearly always, the offset gives the index.
        guess = offset - _offset(records[0])
        if 0 <= guess < len(records) and _offset(records[guess]) == offset:
            return guess
        return bisect_left(records, offset, key=_offset)


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A claim to make.

    Attributes:
        view: The partition.
        want: How many messages to claim at the most.
        seen: The part of the log that was read; None if only ranges that were granted before are wanted, or messages ahead.
        ahead: The end of the log, up to which messages are claimed unseen; None if only ranges that were granted before are
            wanted, or messages that were read.
    """

    view: PartitionView
    want: int
    seen: Seen | None = None
    ahead: Tail | None = None


class Plan:
    """A client's view of all logs of an entity.

    Args:
        partitions: How many partitions the entity has.
        first: The partition to begin with.

    Attributes:
        views: One for each partition.
        crowded: Whether more clients receive than there are partitions.
        small_batches: Whether few messages are wanted at a time, so that claiming unread ones is not worth it.
        claims_unread: Whether all messages are claimed before they are read. Then only the holder reads a message;
            otherwise all clients that share a log read all of it.
    """

    def __init__(self, partitions: int, first: int = 0) -> None:
        self.views = [PartitionView(partition) for partition in range(partitions)]
        self.crowded = False
        self.small_batches = False
        self.claims_unread = False
        self._first = first % partitions

    @property
    def buffer_length(self) -> int:
        """How many messages were read and not claimed."""
        return sum(view.buffer_length for view in self.views)

    @property
    def redeliverable(self) -> PartitionView | None:
        """A partition where ranges are known to wait to be granted again."""
        return next(
            (view for view in self._in_turn() if view.redeliverable and view.state.is_verified and not view.silent),
            None,
        )

    @property
    def homes_dry(self) -> bool:
        """Whether all home partitions were read to their ends, so that others may be looked at."""
        return all(
            view.state is _RESTING or (view.state is _AT_END and not view.buffer_length)
            for view in self.views
            if view.home
        )

    @property
    def sole_reader(self) -> bool:
        """Whether all partitions are homes of this client, and of no other client."""
        return not self.crowded and all(view.home for view in self.views)

    def look(self, tails: Mapping[int, Tail], enough: int) -> None:
        """Note the ends of the logs. If clients are crowded and enough messages wait, all are claimed before they are read."""
        for view in self.views:
            view.tail = tails[view.partition]
        sound = all(view.state.is_verified and view.backlog >= 0 for view in self.views)
        self.claims_unread = (
            self.crowded and not self.small_batches and sound and sum(view.backlog for view in self.views) >= enough
        )

    def claims(
        self, want: int, *, fresh: bool = True, most_bytes: float = inf, unread: int | None = None
    ) -> list[PlannedClaim]:
        """Return the claims of the next round trip, which together never grant more than ``want`` messages.

        If ranges wait to be granted again, the client does not know how many messages they hold: it asks such a partition
        alone, for all that is wanted. Without ``fresh``, messages that were never granted stay where they are. Of messages that
        were read, those that are claimed have ``most_bytes`` together, or there is only one; of others, there are up to
        ``unread``, by default all that are wanted.
        """
        if want <= 0:
            return []
        unread, view = want if unread is None else unread, self.redeliverable
        if view is not None:
            part, _ = view.count_within(unread, most_bytes)
            return [PlannedClaim(view, unread, view.seen_part(part) if view.state.is_read and fresh else None)]
        if self.claims_unread:
            return self._claims_ahead(unread) if fresh else []
        planned = self._claims_of_read(want, most_bytes) if fresh else []
        if not planned and fresh and self.homes_dry:
            return self._claims_ahead(unread)
        planned += [
            PlannedClaim(view, 0, view.seen_part(0))
            for view in self.views
            if fresh and not view.buffer_length and view.seen_to - view.seen_from >= PASSED_OVER
        ]
        if planned:
            # The next round begins with the partition that this one ended with, or behind it if all is claimed: none starves.
            self._first = (planned[-1].view.partition + (planned[-1].view.buffer_length == planned[-1].want)) % len(
                self.views
            )
        return planned

    def _claims_of_read(self, want: int, most_bytes: float) -> list[PlannedClaim]:
        """Return claims of messages that were read."""
        planned: list[PlannedClaim] = []
        for view in self._in_turn():
            if want <= 0 or most_bytes <= 0:
                break
            if view.buffer_length:
                part, most_bytes = view.count_within(want, most_bytes)
                planned.append(PlannedClaim(view, part, view.seen_part(part)))
                want -= part
        return planned

    @property
    def backlog(self) -> list[PartitionView]:
        """The partitions with messages that may be claimed ahead, homes first; homes only if all is claimed ahead."""
        backlogged = [
            view
            for view in self._in_turn()
            if view.backlog > 0
            and view.state.is_verified
            and not (view.state is _RESTING or view.silent)
            and (self.claims_unread or not view.home)
        ]
        return [] if self.small_batches else sorted(backlogged, key=lambda view: not view.home)

    def _claims_ahead(self, want: int) -> list[PlannedClaim]:
        """Return a claim ahead, if one may be made."""
        for view in self.backlog:
            # The next round begins behind it, so that none starves.
            self._first = (view.partition + 1) % len(self.views)
            return [PlannedClaim(view, want, ahead=view.tail)]
        return []

    @property
    def is_resting(self) -> bool:
        """Whether the client asks some partitions for nothing new, or for nothing at all, for a moment."""
        return any(view.state is _RESTING or view.silent for view in self.views)

    def clear_backoff(self, now: float) -> None:
        """Let resting partitions be asked again; each silent one when its own time is over."""
        for view in self.views:
            view.wake()
            view.silent = now < view.silent_until

    def next_due(self) -> float | None:
        """Return when the next lease expires, on the monotonic clock; None if no lease is held."""
        return min((view.due_at for view in self.views if view.due_at is not None), default=None)

    def expire(self, now: float) -> None:
        """Note that leases that were due have expired: their partitions are asked again."""
        for view in self.views:
            if view.due_at is not None and view.due_at <= now:
                view.due_at = None
                view.redeliverable = True

    def choose_reading(self, now: float, *, unread: bool = False) -> tuple[list[PartitionView], list[PartitionView]]:
        """Return the partitions to begin reading, and those to stop reading.

        Home partitions are always read, except while they rest, or while all is claimed ahead; the same holds for partitions
        whose log may have been truncated. Others are read while the homes are dry and few messages are wanted, unless another
        client was faster a moment ago. The client gives them up once another client turns out to read them, or once many
        messages are wanted, which it claims ahead.

        Args:
            now: The time, on the monotonic clock.
            unread: Whether records were fetched that are not in the plan yet: then the homes may be less dry than they seem.
        """

        def is_wanted(view: PartitionView) -> bool:
            if self.claims_unread or view.state is _RESTING:
                return False
            return view.home or not view.state.is_verified or (self.small_batches and view.leave_until <= now)

        dry = self.homes_dry and not unread
        begin = [
            view
            for view in self.views
            if not view.state.is_read and is_wanted(view) and (view.home or not view.state.is_verified or dry)
        ]
        return begin, [view for view in self.views if view.state.is_read and not is_wanted(view)]

    def lost_race(self, view: PartitionView, until: float) -> None:
        """Leave a partition alone for a while that another client reads and that is not this client's home."""
        if not view.home:
            view.leave_until = until

    def _in_turn(self) -> Iterator[PartitionView]:
        yield from self.views[self._first :]
        yield from self.views[: self._first]


def runs_of(records: Sequence[Record]) -> list[Range]:
    """Return the offsets of records as ascending ranges without holes."""
    if not records:
        return []
    first, last = _offset(records[0]), _offset(records[-1])
    if last - first + 1 == len(records):
        return [(first, last)]
    return merge_offsets(map(_offset, records))


def sweeps(ranges: Iterable[T], place: Callable[[T], Range], *, at_once: int, gap: int = SWEPT_GAP) -> list[list[T]]:
    """Return ranges in groups, each to be read in one go: reading over the gap between near ranges is faster than a jump.

    Args:
        ranges: The ranges, ascending.
        place: A function that returns the first and the last offset of a range.
        at_once: How many offsets a group spans at the most, if it has more than one range.
        gap: How many offsets between two ranges are read over at the most.
    """
    groups: list[list[T]] = []
    for item in ranges:
        first, last = place(item)
        near = groups and first - place(groups[-1][-1])[1] <= gap + 1
        if near and last - place(groups[-1][0])[0] < at_once:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def home_partitions(client_id: str, clients: Iterable[str], partitions: int) -> set[int]:
    """Return the partitions that a client should read first, by rendezvous hashing: few change homes if a client comes or goes.

    Each client gets its fair share and no more: partitions go, in order of preference, to the client that still has room.
    """
    everyone = sorted(set(clients) | {client_id})
    room = -(-partitions // len(everyone))
    preferences = sorted(
        (-zlib.crc32(f"{client}/{partition}".encode()), partition, client)
        for client in everyone
        for partition in range(partitions)
    )
    owner: dict[int, str] = {}
    load = dict.fromkeys(everyone, 0)
    for _, partition, client in preferences:
        if partition not in owner and load[client] < room:
            owner[partition] = client
            load[client] += 1
    return {partition for partition, client in owner.items() if client == client_id}


def _epoch(records: Sequence[Record]) -> int | None:
    """Return the leader epoch of records in the log's order; None if they have several, or it is not known."""
    if not records:
        return None
    # The leader epoch never falls along a log.
    epoch = records[0].leader_epoch()
    return epoch if epoch is not None and epoch >= 0 and epoch == records[-1].leader_epoch() else None


def _offset(record: Record) -> int:
    return record.offset()  # type: ignore[return-value]  # a consumed record has an offset
