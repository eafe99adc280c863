"""Planning what to read and what to claim: a client's view of an entity's logs, without I/O."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafkabus._core.record import Record
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.operations import Granted, Seen, Tail
from kafkabus._ledger.ranges import Range, merge_offsets

T = TypeVar("T")

PASSED_OVER = 5_000
"""How many records that are none of an entity's messages are read before its ledger is told, where nothing else is."""
SWEPT_GAP = 100
"""How many records between two that are wanted are read over rather than jumped over."""

Offsets = dict[int, int]
"""Where to read on, by partition."""


class PartitionView:
    """What a client has read of one partition's log and not claimed.

    Attributes:
        partition: Its number.
        home: Whether this client is the one that should read it first.
        assigned: Whether its log is being read.
        at_end: Whether all of the log was read when it was last heard of.
        redeliverable: Whether ranges wait there to be granted again, as far as is known.
        cursor: The ledger's, as far as is known.
        dedup_upto: Up to where it is known which records are duplicates, where they are detected.
        tail: Where the log ends, as far as is known.
        epoch_mismatch: Whether the log is to be read from the cursor before anything else: it may have been truncated.
        limited: Whether so many messages are in flight there that nothing new was granted.
        resting: Whether nothing new is asked for there for a moment.
        silent: Whether nothing came when records were read by offset, so that none are for a while.
        due_at: When the ledger's next lease expires, on the monotonic clock; None where none is held.
        leave_until: Until when another client's partition is left alone, on the monotonic clock.
    """

    __slots__ = (
        "_all",
        "_epoch",
        "_read_to",
        "_records",
        "assigned",
        "at_end",
        "cursor",
        "dedup_upto",
        "due_at",
        "epoch_mismatch",
        "home",
        "leave_until",
        "limited",
        "partition",
        "redeliverable",
        "resting",
        "seen_from",
        "seen_to",
        "silent",
        "silent_until",
        "tail",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.home = False
        self.assigned = False
        self.at_end = False
        self.redeliverable = True
        self.cursor = 0
        self.dedup_upto = 0
        self.tail = Tail(0)
        self.epoch_mismatch = False
        self.limited = False
        self.resting = False
        self.silent = False
        self.silent_until = 0.0
        self.due_at: float | None = None
        self.leave_until = 0.0
        self.seen_from = 0
        self.seen_to = 0
        self._records: list[Record] = []
        self._all: list[Record] = []
        self._epoch: int | None = None
        self._read_to = 0

    @property
    def buffered(self) -> int:
        """How many messages were read and not claimed."""
        return len(self._records)

    @property
    def records(self) -> Sequence[Record]:
        """What was read and not claimed."""
        return self._records

    @property
    def backlog(self) -> int:
        """How many offsets of the log were never granted, as far as is known; negative where the log lost some."""
        return self.tail.end - self.cursor

    def fall_silent(self, until: float) -> None:
        """Nothing came when records were read by offset: let it be until a time on the monotonic clock."""
        self.silent, self.silent_until = True, until

    def start(self, offset: int) -> None:
        """The log is read from this offset now."""
        self.seen_from = self.seen_to = offset
        self._records, self._all = [], []
        self._epoch = None
        self.at_end = False

    def add(
        self,
        records: Sequence[Record],
        subscription_filter: SubscriptionFilter | None = None,
        *,
        keep_all: bool = False,
    ) -> int:
        """Records came, in the log's order; returns how many messages, without those that were seen before.

        Args:
            records: They.
            subscription_filter: What tells which of them are messages, where not all are.
            keep_all: Whether the others are kept, too, for ``before``.
        """
        last = _offset(records[-1])
        if last < self.seen_to:
            return 0
        if _offset(records[0]) < self.seen_to:
            records = [record for record in records if _offset(record) >= self.seen_to]
        if subscription_filter is not None:
            # It never falls along a log: no record before is of a later one.
            self._epoch, self._read_to = records[-1].leader_epoch(), last + 1
            if keep_all:
                self._all += records
            records = subscription_filter.wanted(records)
        self._records += records
        self.seen_to = last + 1
        self.at_end = self.epoch_mismatch = False
        return len(records)

    def end(self, offset: int) -> None:
        """The log ends here for now; what lies between the last record and here are holes."""
        self.seen_to = max(self.seen_to, offset)
        self.at_end = True
        self.epoch_mismatch = False

    def seen(self, want: int) -> Seen:
        """What to claim for ``want`` messages."""
        records = self._records[:want]
        upto = self.seen_to if want >= len(self._records) else _offset(self._records[want])
        if self._epoch is not None and self._epoch >= 0:
            return Seen(self.seen_from, upto, runs_of(records), self._epoch, self._read_to)
        return Seen(self.seen_from, upto, runs_of(records), _epoch(records))

    def before(self, upto: int) -> Sequence[Record]:
        """What was read below an offset and not claimed, and what of it is no message where that is kept."""
        if self._all:
            return self._all[: bisect_left(self._all, upto, key=_offset)]
        return self._records[: self._index(upto)]

    def first_later(self, epoch: int) -> int:
        """The offset of the first record that was read and not claimed whose leader epoch is a later one."""
        return _offset(next(record for record in self._all or self._records if (record.leader_epoch() or 0) > epoch))

    def take(self, ranges: Sequence[Range]) -> list[Record]:
        """The buffered records of granted ranges; the buffer keeps what lies behind them.

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

    def moved(self, granted: Granted) -> int | None:
        """The ledger's cursor is known; returns the offset to read on from where the reader must go elsewhere."""
        cursor = granted.cursor
        # A cursor that went back is that of a ledger made anew.
        if granted.ahead or cursor > self.seen_to or cursor < self.seen_from:
            self.start(cursor)
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
        # Without holes, which is nearly always, the place is known.
        guess = offset - _offset(records[0])
        if 0 <= guess < len(records) and _offset(records[guess]) == offset:
            return guess
        return bisect_left(records, offset, key=_offset)


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A claim to make.

    Attributes:
        view: The partition.
        want: How many messages at the most.
        seen: What was read there; None where only ranges are wanted that were granted before, or what is ahead.
        ahead: Where the log ends, to be claimed unseen up to there; None where only ranges are wanted that were granted before,
            or what was read.
    """

    view: PartitionView
    want: int
    seen: Seen | None = None
    ahead: Tail | None = None


class Plan:
    """A client's view of all logs of an entity.

    Args:
        partitions: How many the entity has.
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
    def buffered(self) -> int:
        """How many messages were read and not claimed."""
        return sum(view.buffered for view in self.views)

    @property
    def redeliverable(self) -> PartitionView | None:
        """A partition where ranges wait to be granted again, as far as is known."""
        return next(
            (view for view in self._in_turn() if view.redeliverable and not (view.epoch_mismatch or view.silent)), None
        )

    @property
    def homes_dry(self) -> bool:
        """Whether all home partitions were read to their ends, so that others may be looked at."""
        return all(
            view.resting or (view.assigned and view.at_end and not view.buffered) for view in self.views if view.home
        )

    @property
    def sole_reader(self) -> bool:
        """Whether all partitions are this client's homes, and nobody else's."""
        return not self.crowded and all(view.home for view in self.views)

    def look(self, tails: Mapping[int, Tail], enough: int) -> None:
        """The logs end as said here. Where clients crowd, and enough waits, all is claimed before it is read."""
        for view in self.views:
            view.tail = tails[view.partition]
        sound = not any(view.epoch_mismatch or view.backlog < 0 for view in self.views)
        self.claims_unread = (
            self.crowded and not self.small_batches and sound and sum(view.backlog for view in self.views) >= enough
        )

    def claims(self, want: int, *, fresh: bool = True) -> list[PlannedClaim]:
        """The claims of the next round trip, which together never grant more than ``want`` messages.

        Where ranges wait to be granted again, nobody knows how many messages they hold: such a partition is asked for all
        that is wanted, alone. Without ``fresh``, messages that were never granted stay where they are.
        """
        if want <= 0:
            return []
        view = self.redeliverable
        if view is not None:
            return [PlannedClaim(view, want, view.seen(want) if view.assigned and fresh else None)]
        if self.claims_unread:
            return self._claims_ahead(want) if fresh else []
        planned: list[PlannedClaim] = []
        for view in self._in_turn():
            if want <= 0 or not fresh:
                break
            if view.buffered and not view.resting:
                part = min(want, view.buffered)
                planned.append(PlannedClaim(view, part, view.seen(part)))
                want -= part
        if not planned and fresh and self.homes_dry:
            return self._claims_ahead(want)
        planned += [
            PlannedClaim(view, 0, view.seen(0))
            for view in self.views
            if fresh and not view.buffered and not view.resting and view.seen_to - view.seen_from >= PASSED_OVER
        ]
        if planned:
            # The next round begins behind the partition that this one ended with, so that none starves.
            self._first = (planned[-1].view.partition + (planned[-1].view.buffered == planned[-1].want)) % len(
                self.views
            )
        return planned

    @property
    def backlogged(self) -> list[PartitionView]:
        """Where something waits that may be claimed ahead, homes first: in homes only where all is claimed so."""
        backlogged = [
            view
            for view in self._in_turn()
            if view.backlog > 0
            and not (view.resting or view.epoch_mismatch or view.silent)
            and (self.claims_unread or not view.home)
        ]
        return [] if self.small_batches else sorted(backlogged, key=lambda view: not view.home)

    def _claims_ahead(self, want: int) -> list[PlannedClaim]:
        """A claim ahead, where one may be made."""
        for view in self.backlogged:
            # The next round begins behind it, so that none starves.
            self._first = (view.partition + 1) % len(self.views)
            return [PlannedClaim(view, want, ahead=view.tail)]
        return []

    @property
    def resting(self) -> bool:
        """Whether nothing new, or nothing at all, is asked for in some partitions for a moment."""
        return any(view.resting or view.silent for view in self.views)

    def clear_backoff(self, now: float) -> None:
        """That moment is over; where a partition was silent, at its own time."""
        for view in self.views:
            view.resting = False
            view.silent = now < view.silent_until

    def next_due(self) -> float | None:
        """When the next lease expires, on the monotonic clock."""
        return min((view.due_at for view in self.views if view.due_at is not None), default=None)

    def expire(self, now: float) -> None:
        """Leases that were due have expired: their partitions are asked again."""
        for view in self.views:
            if view.due_at is not None and view.due_at <= now:
                view.due_at = None
                view.redeliverable = True

    def wanted(self, now: float) -> tuple[list[PartitionView], list[PartitionView]]:
        """Partitions to begin reading and to stop reading.

        Home partitions are always read, except while they rest, or while all is claimed ahead. Others are read while the homes
        are dry and few messages are wanted, except where another client was faster a moment ago; they are given up once
        another client turns out to read them, or many are wanted: those are claimed ahead.
        """

        def is_read(view: PartitionView) -> bool:
            if self.claims_unread or view.resting:
                return False
            return view.home or view.epoch_mismatch or (self.small_batches and view.leave_until <= now)

        dry = self.homes_dry
        begin = [
            view
            for view in self.views
            if not view.assigned and is_read(view) and (view.home or view.epoch_mismatch or dry)
        ]
        return begin, [view for view in self.views if view.assigned and not is_read(view)]

    def lost_race(self, view: PartitionView, until: float) -> None:
        """Another client reads a partition that is not this one's home: leave it alone for a while."""
        if not view.home:
            view.leave_until = until

    def _in_turn(self) -> Iterator[PartitionView]:
        yield from self.views[self._first :]
        yield from self.views[: self._first]


def runs_of(records: Sequence[Record]) -> list[Range]:
    """Offsets of records as ascending ranges without holes."""
    if not records:
        return []
    first, last = _offset(records[0]), _offset(records[-1])
    if last - first + 1 == len(records):
        return [(first, last)]
    return merge_offsets(map(_offset, records))


def sweeps(ranges: Iterable[T], place: Callable[[T], Range], *, at_once: int, gap: int = SWEPT_GAP) -> list[list[T]]:
    """Ranges in groups, each to be read in one go: what lies between near ones is read over, which is faster than a jump.

    Args:
        ranges: Ascending.
        place: First and last offset of one.
        at_once: How many offsets a group spans at the most, where it has more than one range.
        gap: How many offsets between two ranges are read over at the most.
    """
    groups: list[list[T]] = []
    for one in ranges:
        first, last = place(one)
        near = groups and first - place(groups[-1][-1])[1] <= gap + 1
        if near and last - place(groups[-1][0])[0] < at_once:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def home_partitions(client_id: str, clients: Iterable[str], partitions: int) -> set[int]:
    """The partitions that a client should read first: rendezvous hashing, so that few change homes with a client.

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
    """The leader epoch of records in the log's order; None where they have several."""
    if not records:
        return None
    # It never falls along a log.
    epoch = records[0].leader_epoch()
    return epoch if epoch is not None and epoch >= 0 and epoch == records[-1].leader_epoch() else None


def _offset(record: Record) -> int:
    return record.offset()  # type: ignore[return-value]  # a consumed record has an offset
