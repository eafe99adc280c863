"""A ledger's state as it is written down, in blocks, so that the ledger can be rebuilt; without I/O.

A snapshot says which offsets below its cursor are not settled. These are stored in blocks of offsets, each a separate record,
so that only changed blocks are written; the head has the rest, and names the version of each block that belongs to it. A writer
that was paused for long may overwrite later records: if a block is older than the head's version of it, all offsets from
there on count as never granted. A block that is newer than the head is true all the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kafkabus._ledger.prepared_settlement import Prepared
from kafkabus._ledger.ranges import NEVER, Counted, Range, common, cut, joined, minus, offsets_of, union
from kafkabus._ledger.verbs import PreparedVerb
from kafkabus_mapping.checkpoints import BLOCK, read_checkpoint

CHUNK_BYTES = 900_000
"""How many bytes of changed properties of several messages are written down in one record; Kafka takes 2,000,000."""
VERSIONS_AHEAD = 1_000_000
"""How much higher the version of a rebuilt ledger is than its snapshot's: no request since the snapshot had such a version."""


Change = Mapping[str, str]
"""Application properties that messages have from now on, beside their others: name to JSON text; see ``write_changes``."""
Changed = tuple[int, dict[str, str], bool]
"""A message's offset, its changed application properties (name to JSON text), and whether only a transaction that is not over
would change them."""


class StoredState(NamedTuple):
    """A state that an application keeps of a session, as its record holds it.

    Attributes:
        session: The session's name.
        version: A later state has a higher one.
        updated: When it was set, ms since 1970 on Redis's clock.
        value: The state, in base 64.
    """

    session: str
    version: int
    updated: int
    value: str


@dataclass(slots=True)
class Snapshot:
    """A ledger as it was at one time.

    Attributes:
        cursor: The next offset never granted.
        version: The ledger's version; a later snapshot has a higher one.
        has_message_ttl: Whether messages with individual times to live were sent.
        epoch: Leader epoch of the record right before the cursor, if it is known.
        waiting: Ranges to be granted again, with delivery counts, ascending.
        deferred: Deferred ranges, with delivery counts, ascending.
        moving: Offset, delivery count and intent of transfers that have not ended, ascending.
        skipped: Offsets beyond the cursor that are no messages, ascending.
        dedup_upto: The offset up to which it is known which records are duplicates; None if duplicates are not detected.
        dedup_epoch: Leader epoch of the last record below that, if it is known.
        duplicates: Ranges of the duplicates among those records that are in the window, ascending.
        schedules: Whether the log holds records of scheduled messages.
        scheduled: Offset of each message that waits for its time, and that time, ms since 1970, ascending.
        postponed: Offset of each waiting message that is not granted again before a time, and that time, ms since 1970,
            ascending.
        markers: An offset in the log of the namespace's transactions: the snapshot accounts for each transaction whose record
            is below it, or has it prepared, so that its messages are moving. None if this was not looked up.
        changes: Offset and changed application properties (name to JSON text) of each message that has some, ascending; and
            whether a transaction that is not over would change them.
        written_at: When it was written down, ms since 1970; None if it was not: it is of a ledger that exists.
    """

    cursor: int
    version: int
    has_message_ttl: bool = False
    waiting: list[Counted] = field(default_factory=list)
    deferred: list[Counted] = field(default_factory=list)
    moving: list[tuple[int, int, str]] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    epoch: int | None = None
    dedup_upto: int | None = None
    dedup_epoch: int | None = None
    duplicates: list[Range] = field(default_factory=list)
    schedules: bool = False
    scheduled: list[tuple[int, int]] = field(default_factory=list)
    postponed: list[tuple[int, int]] = field(default_factory=list)
    markers: int | None = None
    changes: list[Changed] = field(default_factory=list)
    written_at: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # Messages seized beyond the cursor are void for claims while they are held; in a rebuilt ledger they simply wait.
        held = {offset for first, last, _ in self.waiting for offset in range(max(first, self.cursor), last + 1)}
        held |= {offset for offset, _ in self.scheduled}
        self.skipped = sorted(offset for offset in set(self.skipped) - held if offset >= self.cursor)
        ahead = [entry for entry in self.postponed if entry[0] >= self.cursor]
        self.waiting = joined(
            [
                *_below(self.waiting, self.cursor),
                # These are passed over by claims as long as they are postponed.
                *cut(self.waiting, union((offset, offset) for offset, _ in ahead)),
            ]
        )
        # Offsets below the cursor, and those beyond it that claims pass over.
        passed_over = union([(0, self.cursor - 1), *((offset, offset) for offset in self.skipped)])
        self.deferred = joined(cut(self.deferred, passed_over))
        self.moving = sorted(self.moving)
        self.scheduled = sorted(self.scheduled)
        self.postponed = _of_waiting(self.postponed, self.waiting)
        # Redis has the properties of a message in no order.
        self.changes = sorted(
            ((offset, dict(sorted(change.items())), prepared) for offset, change, prepared in self.changes),
            key=itemgetter(0, 2),
        )

    @property
    def watermark(self) -> int:
        """The offset below which all is settled."""
        return self.watermark_without(())

    def watermark_without(self, kept: Collection[int]) -> int:
        """Return the offset below which all is settled, or its record is kept elsewhere."""
        ranges = [entry[:2] for entries in (self.waiting, self.deferred) for entry in entries]
        ranges += [(entry[0], entry[0]) for entries in (self.moving, self.scheduled) for entry in entries]
        return min([self.cursor, *(first for first, _ in minus(ranges, [(offset, offset) for offset in kept]))])

    @property
    def aside(self) -> list[int]:
        """Offsets of deferred and scheduled messages, which may stay for long, ascending."""
        return sorted([*offsets_of(entry[:2] for entry in self.deferred), *(offset for offset, _ in self.scheduled)])

    @property
    def prepared(self) -> set[str]:
        """Names of the transactions that prepared messages of it."""
        intents = [Prepared.from_text(intent) for _, _, intent in self.moving]
        return {intent.transaction for intent in intents if intent is not None}

    def head(self, versions: Mapping[int, int], changes: Mapping[str, int] | None = None) -> str:
        """Return all but the blocks, as text.

        Args:
            versions: The versions of the blocks that hold anything, as they are written.
            changes: Those of the parts of changed properties.
        """
        return json.dumps(
            {
                "blocks": {str(block): version for block, version in sorted(versions.items())},
                "cursor": self.cursor,
                "version": self.version,
                "has_message_ttl": self.has_message_ttl,
                "epoch": self.epoch,
                "watermark": self.watermark,
                "moving": self.moving,
                "skipped": self.skipped,
            }
            | ({"changes": dict(changes)} if changes else {})
            | ({"schedules": True} if self.schedules else {})
            | ({} if self.markers is None else {"markers": self.markers})
            | ({} if self.dedup_upto is None else {"dedup_upto": self.dedup_upto, "dedup_epoch": self.dedup_epoch}),
            separators=(",", ":"),
        )

    def blocks(self) -> dict[int, str]:
        """Return the content of each block that holds anything, by its number."""
        parts: dict[int, dict[str, list[tuple[int, ...]]]] = defaultdict(lambda: {"waiting": [], "deferred": []})
        kinds = (("waiting", self.waiting), ("deferred", self.deferred), ("duplicates", self.duplicates))
        for kind, ranges in kinds:
            for first, last, *count in ranges:
                for block in range(first // BLOCK, last // BLOCK + 1):
                    part = (max(first, block * BLOCK), min(last, block * BLOCK + BLOCK - 1), *count)
                    parts[block].setdefault(kind, []).append(part)
        for offset, when in self.scheduled:
            parts[offset // BLOCK].setdefault("scheduled", []).append((offset, when))
        for offset, until in self.postponed:
            parts[offset // BLOCK].setdefault("postponed", []).append((offset, until))
        return {block: json.dumps(part, separators=(",", ":")) for block, part in parts.items()}

    def change_chunks(self) -> dict[str, str]:
        """Return the changed properties in parts, none too large for a record, by the first offset and the size of each."""
        return dict(_chunks(self.changes, 0, NEVER))

    def within(self, start: int, end: int = NEVER, kept: Mapping[int, int | None] | None = None) -> Snapshot:
        """Return the part that is true of a log with these ends: records before were trimmed, those beyond are others.

        Args:
            start: The first offset of the log.
            end: The end of the log.
            kept: Offsets of records that were trimmed and are kept elsewhere, with the times of scheduled ones. Those beyond
                the snapshot's cursor were granted since, and nothing else is known of them: they wait, or are still scheduled.
        """
        kept = kept or {}
        unknown = {offset: due for offset, due in kept.items() if self.cursor <= offset < start}
        for offset in (*self.skipped, *(entry[0] for entry in self.moving), *(entry[0] for entry in self.scheduled)):
            unknown.pop(offset, None)
        there = union([(start, NEVER), *((offset, offset) for offset in kept)])
        cursor = max(start, min(self.cursor, end))

        def stays(offset: int) -> bool:
            return (offset >= start or offset in kept) and offset < end

        return Snapshot(
            cursor=cursor,
            version=self.version,
            has_message_ttl=self.has_message_ttl,
            waiting=cut(
                [*self.waiting, *((offset, offset, 0) for offset, due in unknown.items() if due is None)], there
            ),
            deferred=cut(self.deferred, there),
            moving=[entry for entry in self.moving if stays(entry[0])],
            skipped=[offset for offset in self.skipped if offset < end],
            epoch=self.epoch if cursor == self.cursor else None,
            dedup_upto=None if self.dedup_upto is None else max(start, min(self.dedup_upto, end)),
            dedup_epoch=self.dedup_epoch,
            duplicates=common(self.duplicates, [(start, end - 1)]),
            schedules=self.schedules,
            scheduled=[
                *(entry for entry in self.scheduled if stays(entry[0])),
                *((offset, due) for offset, due in unknown.items() if due is not None),
            ],
            postponed=[entry for entry in self.postponed if stays(entry[0])],
            markers=self.markers,
            changes=[entry for entry in self.changes if stays(entry[0])],
            written_at=self.written_at,
        )

    @property
    def unsettled(self) -> list[Range]:
        """Ranges that are not settled, ascending; the last range has no end."""
        waiting = [(first, last) for entries in (self.waiting, self.deferred) for first, last, _ in entries]
        moving = [(entry[0], entry[0]) for entries in (self.moving, self.scheduled) for entry in entries]
        beyond = minus([(self.cursor, NEVER)], [(offset, offset) for offset in self.skipped])
        return union([*waiting, *moving, *beyond])

    def merged(self, earlier: Snapshot) -> Snapshot:
        """Return this snapshot with all settled that an earlier one says is settled; ``self`` if it says so already.

        A ledger that knows less than was written down of it went back to an earlier state, as Redis does when a lagging replica
        is promoted.
        """
        open_ones = common(self.unsettled, earlier.unsettled)
        changes = _still_changed([*earlier.changes, *self.changes], open_ones)
        if open_ones == self.unsettled:
            known = replace(self, changes=changes)
            return self if known.changes == self.changes else known
        ahead = self if self.cursor >= earlier.cursor else earlier
        moves = {move[0]: move for move in (*self.moving, *earlier.moving)}
        moving = [moves[offset] for offset, _ in common([(offset, offset) for offset in moves], open_ones)]
        times = dict([*earlier.scheduled, *self.scheduled])
        still = minus([(offset, offset) for offset in sorted(times)], [(move[0], move[0]) for move in moving])
        scheduled = [(offset, times[offset]) for offset in offsets_of(common(still, open_ones))]
        apart = union((entry[0], entry[0]) for entries in (moving, scheduled) for entry in entries)
        aside = [(first, last) for first, last, _ in (*self.deferred, *earlier.deferred)]
        aside += [(offset, offset) for offset, _ in (*self.postponed, *earlier.postponed)]
        rest = minus(common(open_ones, union([(0, ahead.cursor - 1), *aside])), apart)
        homes: list[list[Counted]] = []
        for pair in ((earlier.deferred, self.deferred), (self.waiting, earlier.waiting)):
            home: list[Counted] = []
            for ranges in pair:
                part = cut(ranges, rest)
                rest = minus(rest, [(first, last) for first, last, _ in part])
                home += part
            homes.append(sorted(home))
        return Snapshot(
            cursor=ahead.cursor,
            version=max(self.version, earlier.version),
            has_message_ttl=self.has_message_ttl or earlier.has_message_ttl,
            waiting=homes[1],
            deferred=homes[0],
            moving=moving,
            skipped=[*self.skipped, *earlier.skipped],
            epoch=ahead.epoch,
            # A ledger that forgot some of what it had judged may have judged records wrong since.
            dedup_upto=earlier.dedup_upto,
            dedup_epoch=earlier.dedup_epoch,
            duplicates=earlier.duplicates,
            schedules=self.schedules or earlier.schedules,
            scheduled=scheduled,
            # Of two times, the later one was set later: a message is not locked before the first one.
            postponed=sorted([*earlier.postponed, *self.postponed]),
            markers=earlier.markers,
            changes=changes,
            written_at=earlier.written_at,
        )

    def marked(self, names: Collection[str]) -> Snapshot:
        """Return this snapshot with the marks that senders may have set after it; see ``operations.MARKS``."""
        return replace(
            self,
            has_message_ttl=self.has_message_ttl or "has_message_ttl" in names,
            schedules=self.schedules or "schedules" in names,
        )

    def after(
        self, committed: Callable[[str], bool], settled: Iterable[tuple[PreparedVerb, Sequence[Range], Change]]
    ) -> Snapshot:
        """Return this snapshot as it is once the outcomes of transactions are known: nothing is prepared any more.

        Args:
            committed: Whether a transaction was committed, by its name in intents; if it was not, it never will be.
            settled: Verb, offsets and changed properties of settlements by other committed transactions, since the snapshot or
                before it.
        """
        waiting, deferred, skipped = list(self.waiting), list(self.deferred), list(self.skipped)
        changes: dict[int, dict[str, str]] = {
            offset: change for offset, change, prepared in self.changes if not prepared
        }
        coming = {offset: change for offset, change, prepared in self.changes if prepared}
        moving: list[tuple[int, int, str]] = []
        for offset, count, intent in self.moving:
            prepared = Prepared.from_text(intent)
            if prepared is not None and offset in coming and committed(prepared.transaction):
                changes[offset] = changes.get(offset, {}) | coming[offset]
            if prepared is None:
                moving.append((offset, count, intent))
            elif not committed(prepared.transaction) or prepared.verb == "abandon":
                (deferred if prepared.deferred else waiting).append((offset, offset, count + 1))
            elif prepared.verb == "defer":
                deferred.append((offset, offset, count))
        waiting, deferred = sorted(waiting), sorted(deferred)
        for verb, ranges, change in settled:
            for offset in offsets_of(ranges) if change else ():
                changes[offset] = changes.get(offset, {}) | dict(change)
            if verb == "abandon":
                continue
            rest, ahead = minus([(0, NEVER)], ranges), common(ranges, [(self.cursor, NEVER)])
            if verb == "defer":
                aside = cut([(*entry, 0) for entry in ahead], minus([(0, NEVER)], [entry[:2] for entry in deferred]))
                deferred = sorted([*deferred, *cut(waiting, ranges), *aside])
            else:
                deferred = cut(deferred, rest)
            waiting = cut(waiting, rest)
            # If a moving message was settled, its transfer was given up since.
            moving = [entry for entry in moving if common([(entry[0], entry[0])], rest)]
            skipped += offsets_of(ahead)
        held = union(
            [
                (self.cursor, NEVER),
                *(entry[:2] for entry in (*waiting, *deferred)),
                *((entry[0], entry[0]) for entry in moving),
            ]
        )
        still = _still_changed(((offset, change, False) for offset, change in changes.items()), held)
        return replace(self, waiting=waiting, deferred=deferred, moving=moving, skipped=skipped, changes=still)


@dataclass(frozen=True, slots=True)
class Written:
    """The state from which a ledger is rebuilt.

    Attributes:
        snapshot: The ledger's snapshot that was written down.
        states: The states of its sessions.
        window_start: If it detects duplicates, the first offset whose id may still count; None if no id that was judged
            counts.
        rules_version: Version of a subscription's rules; 0 if the ledger is no subscription's.
    """

    snapshot: Snapshot
    states: Iterable[StoredState] = ()
    window_start: int | None = None
    rules_version: int = 0

    def to_script(self, *, sessions: bool = False) -> str:
        """Return the text that ``lua/restore.lua`` reads.

        Args:
            sessions: Whether the ledger files messages in sessions; postponed ones wait in these then.
        """
        snapshot = self.snapshot
        apart = union((offset, offset) for offset, _ in snapshot.postponed)
        counts = {first: count for first, _, count in cut(snapshot.waiting, [(at, at) for at in offsets_of(apart)])}
        waiting = snapshot.waiting if sessions or not apart else cut(snapshot.waiting, minus([(0, NEVER)], apart))
        known: dict[str, object] = {} if snapshot.epoch is None else {"epoch": str(snapshot.epoch)}
        if snapshot.dedup_upto is not None:
            dedup_upto = (
                snapshot.dedup_upto if self.window_start is None else min(snapshot.dedup_upto, self.window_start)
            )
            known |= {"dedup_upto": str(dedup_upto), "dedup_checkpoint": str(snapshot.dedup_upto)}
            known |= {"duplicates": [list(map(str, part)) for part in snapshot.duplicates]}
            known |= {} if snapshot.dedup_epoch is None else {"dedup_epoch": str(snapshot.dedup_epoch)}
        if snapshot.changes:
            known["changes"] = [(str(offset), change, prepared) for offset, change, prepared in snapshot.changes]
        if self.rules_version:
            known["rules"] = str(self.rules_version)
        return json.dumps(
            known
            | {
                "cursor": str(snapshot.cursor),
                "version": str(snapshot.version + VERSIONS_AHEAD),
                "has_message_ttl": snapshot.has_message_ttl,
                "waiting": [list(map(str, part)) for part in waiting],
                "postponed": [(str(offset), str(counts[offset]), str(until)) for offset, until in snapshot.postponed],
                "deferred": [list(map(str, part)) for part in snapshot.deferred],
                "moving": [list(map(str, part)) for part in snapshot.moving],
                "skipped": list(map(str, snapshot.skipped)),
                "schedules": snapshot.schedules,
                "scheduled": [(str(offset), str(when)) for offset, when in snapshot.scheduled],
                "states": [
                    (state.session, str(state.version), str(state.updated), state.value) for state in self.states
                ],
            },
            separators=(",", ":"),
        )


def denies(snapshot: Snapshot, verb: PreparedVerb, ranges: Sequence[Range]) -> bool:
    """Return whether messages that a transaction had settled before can, by a snapshot, still be received.

    Args:
        snapshot: The snapshot.
        verb: The transaction's settlement, see ``Snapshot.after``.
        ranges: Offsets of the messages.
    """
    if verb == "abandon":
        return False
    still = [(first, last) for first, last, _ in snapshot.waiting]
    still += [] if verb == "defer" else [(first, last) for first, last, _ in snapshot.deferred]
    still += minus([(snapshot.cursor, NEVER)], [(offset, offset) for offset in snapshot.skipped])
    return bool(common(still, ranges))


def with_delays(snapshot: Snapshot, delays: Iterable[tuple[Sequence[Counted], int]]) -> Snapshot:
    """Return a snapshot with delays that applications have asked for since, or shortly before.

    A delay counts if the snapshot knows of no later delivery of the message.

    Args:
        snapshot: The snapshot.
        delays: The messages' offsets, with the number of deliveries that each had then; and the time until which they are
            postponed, ms since 1970.
    """
    latest: dict[int, tuple[int, int]] = {}
    for ranges, until in delays:
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                if count >= latest.get(offset, (0, 0))[0]:
                    latest[offset] = count, until
    asked = union((offset, offset) for offset in latest)
    skipped = [(offset, offset) for offset in snapshot.skipped]
    # Nothing is known of messages that were granted since.
    known = [(first, last, 0) for first, last in minus(common(asked, [(snapshot.cursor, NEVER)]), skipped)]
    chosen = [
        offset
        for first, last, deliveries in [*cut(snapshot.waiting, asked), *known]
        for offset in range(first, last + 1)
        if deliveries <= latest[offset][0]
    ]
    others = cut(snapshot.waiting, minus([(0, NEVER)], union((offset, offset) for offset in chosen)))
    return replace(
        snapshot,
        waiting=joined([*others, *((offset, offset, latest[offset][0]) for offset in chosen)]),
        postponed=list((dict(snapshot.postponed) | {offset: latest[offset][1] for offset in chosen}).items()),
    )


def read_snapshot(head: str, blocks: Mapping[int, str], changes: Mapping[str, str] | None = None) -> Snapshot:
    """Put a snapshot together from its head, its blocks and its changed properties; see ``read_checkpoint``.

    Raises:
        ValueError: A text was not written as a head or a block.
    """
    read = read_checkpoint(head, blocks, changes)
    duplicates = common(union(read.duplicates), [(0, (read.dedup_upto or 0) - 1)])
    return Snapshot(**read._replace(duplicates=duplicates)._asdict())


def _still_changed(changes: Iterable[Changed], held: Sequence[Range]) -> list[Changed]:
    """Return the changes of messages in ranges of offsets, joined; of one property, the last one counts."""
    joint: dict[tuple[int, bool], dict[str, str]] = {}
    for offset, change, prepared in changes:
        joint[offset, prepared] = joint.get((offset, prepared), {}) | change
    there = set(offsets_of(common(union((offset, offset) for offset, _ in joint), held)))
    return [(offset, change, prepared) for (offset, prepared), change in joint.items() if offset in there]


def _chunks(changes: Sequence[Changed], first: int, size: int) -> Iterator[tuple[str, str]]:
    """Return parts of changed properties by names that stay while a part is small enough, so that few are written again."""
    text = json.dumps(changes, ensure_ascii=False, separators=(",", ":"))
    if size <= BLOCK and (len(changes) == 1 or len(text.encode()) <= CHUNK_BYTES):
        mark = "?" if size == 1 and changes[0][2] else ""
        yield f"{first}+{size}{mark}", text
        return
    # Blocks of offsets, then halves of these; of one message, at last, what a transaction would change.
    part = BLOCK if size > BLOCK else max(size // 2, 1)
    for (begin, _), group in groupby(changes, lambda change: (change[0] // part * part, size == 1 and change[2])):
        yield from _chunks(list(group), begin, part)


def _of_waiting(postponed: Iterable[tuple[int, int]], waiting: Sequence[Counted]) -> list[tuple[int, int]]:
    """Return the postponed messages that wait, ascending; of two times, the later one."""
    latest: dict[int, int] = {}
    for offset, until in postponed:
        latest[offset] = max(until, latest.get(offset, 0))
    there = common(union((offset, offset) for offset in latest), union((first, last) for first, last, _ in waiting))
    return [(offset, latest[offset]) for offset in offsets_of(there)] if latest else []


def _below(ranges: list[Counted], cursor: int) -> list[Counted]:
    return joined((first, min(last, cursor - 1), count) for first, last, count in ranges if first < cursor)
