"""One ledger as tests drive it: with several clients, and with its clock and its faults in hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import redis

from kafkabus._ledger.keys import LedgerKeys
from kafkabus._ledger.operations import (
    IN_FLIGHT_LIMIT,
    Accept,
    Activate,
    AdoptTransfers,
    BeginTransfer,
    BreakLock,
    Cancel,
    Claim,
    Deferral,
    DetectDuplicates,
    EndTransfer,
    Extend,
    FileMessages,
    GetState,
    Granted,
    GrantNext,
    Leave,
    Ledger,
    LedgerFigures,
    LedgerState,
    ListLocks,
    ListSessions,
    ListUpdatedStates,
    Look,
    NoteRefusal,
    NoteStoredState,
    Operation,
    Orphan,
    Peek,
    PlaceMessages,
    Prepare,
    PreparedVerb,
    Purge,
    Recall,
    Renewal,
    Resolve,
    Retreat,
    Schedule,
    ScheduleHeld,
    Seen,
    Seize,
    SetRulesVersion,
    SetState,
    Settlement,
    SettlementVerb,
    SkipRecord,
    Tail,
    TakeSnapshot,
)
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus._ledger.snapshot import Snapshot, StoredState, Written
from kafkabus._sync.redis.connection import RedisConnection
from kafkabus._sync.redis.ledger_client import LedgerClient
from kafkabus.exceptions import ServiceBusError
from kafkabus_mapping.names import EntityPath

LOCK_MS = 60_000
ORPHAN_MS = 30_000
DEFERRED_LIMIT = 12
WINDOW_MS = 20_000
LONGEST_DELAY_MS = 7 * 24 * 3_600_000


class Full(Exception):
    """More messages would have been deferred than the ledger takes."""


@dataclass
class SettlementBatch:
    """A granted range, as its holder knows it."""

    lease: str
    granted: Granted

    @property
    def offsets(self) -> list[int]:
        """Return all offsets of the batch, those granted before first."""
        ranges = [(first, last) for first, last, _ in self.granted.again] + self.granted.fresh
        return [offset for first, last in ranges for offset in range(first, last + 1)]

    @property
    def counts(self) -> dict[int, int]:
        """Return the delivery count of each offset."""
        counts = {offset: 0 for first, last in self.granted.fresh for offset in range(first, last + 1)}
        for first, last, count in self.granted.again:
            counts |= dict.fromkeys(range(first, last + 1), count)
        return counts


class Bench:
    """A ledger and one client's way to it; ``another`` is a second client of the same ledger."""

    def __init__(self, store: redis.Redis, topic_id: str, *, sessions: bool = False, detects: bool = False) -> None:
        self.store = store
        self.topic_id = topic_id
        self.keys = LedgerKeys.of("ledgers", EntityPath("q"), topic_id, 0, sessions=sessions, detects=detects)
        self.client_id = uuid.uuid4().hex
        self.ledger = Ledger(self.keys, partition=0, channel=f"kafkabus:ledgers/{topic_id}", client_id=self.client_id)
        connection = RedisConnection(store, address="redis", namespace="ledgers", retry_for=1)
        self.ledger_client = LedgerClient(connection, rebuild=self._missing)
        self.ledger_client.create(self.ledger, 0)
        self.rules = 0
        """The version of a subscription's rules that this client follows."""
        self.by: str | None = None
        """The receiver that its leases name; None: they name none."""

    def another(self) -> Bench:
        """Return the same ledger as another client sees it."""
        return Bench(self.store, self.topic_id, sessions=self.keys.has_sessions, detects=self.keys.detects)

    def claim(
        self,
        want: int,
        *,
        upto: int | None = None,
        start: int | None = None,
        runs: list[Range] | None = None,
        settle_on_claim: bool = False,
        lease: str | None = None,
        epoch: int | None = None,
        epoch_to: int | None = None,
        ahead: Tail | None = None,
        limit: int = IN_FLIGHT_LIMIT,
        exclusive: bool = False,
    ) -> SettlementBatch:
        """Claim; ``upto`` is the end of what was read from the cursor on, all messages unless ``runs`` says otherwise."""
        seen = None
        if upto is not None:
            begin = self.cursor if start is None else start
            messages = runs if runs is not None else [(begin, upto - 1)] if begin < upto else []
            seen = Seen(begin, upto, messages, epoch, epoch_to)
        lease = lease or uuid.uuid4().hex[:16]
        claim = Claim(
            self.ledger,
            lease,
            want=want,
            lock_ms=LOCK_MS,
            seen=seen,
            ahead=ahead,
            settle_on_claim=settle_on_claim,
            limit=limit,
            exclusive=exclusive,
            rules=self.rules,
            by=self.by,
        )
        self.ledger_client.execute(claim)
        return SettlementBatch(lease, claim.granted)

    def settle(
        self,
        verb: SettlementVerb,
        held: SettlementBatch,
        *ranges: Range,
        change: Mapping[str, str] | None = None,
        delay_ms: int | None = None,
    ) -> list[Range]:
        """Complete, abandon, release, renew or defer ranges (all held ones by default); return the lost ones.

        Abandoned and deferred messages may get other properties, all the same. Abandoned ones may be postponed.
        """
        offsets = sorted(set(held.offsets))
        chosen = list(ranges) or _ranges(offsets)
        settlement: Settlement
        if verb == "renew":
            settlement = Renewal(self.ledger, held.lease, chosen, LOCK_MS)
        elif verb == "defer":
            settlement = Deferral(self.ledger, held.lease, chosen, DEFERRED_LIMIT, change)
        else:
            settlement = Settlement(self.ledger, verb, held.lease, chosen, change, delay_ms)
        self.ledger_client.execute(settlement)
        if isinstance(settlement, Deferral) and settlement.full:
            raise Full
        return settlement.lost

    def recall(self, *ranges: Range, lease: str | None = None) -> tuple[SettlementBatch, list[Range]]:
        """Lock deferred messages, by a session's lease or alone; return the held ones, and those that are not deferred."""
        lease, session = lease or uuid.uuid4().hex[:16], lease is not None
        recall = Recall(self.ledger, lease, list(ranges), LOCK_MS, session=session, rules=self.rules, by=self.by)
        self.ledger_client.execute(recall)
        granted = Granted(
            recall.again, [], self.cursor, False, 0, recall.expiry, 0, None, False, stale_rules=recall.stale_rules
        )
        return SettlementBatch(recall.lease, granted), recall.missing

    def seize(
        self,
        *ranges: Range,
        seen: Range | None = None,
        epoch: int | None = None,
        epoch_to: int | None = None,
        session: str | None = None,
        ahead_limit: int | None = None,
    ) -> SettlementBatch:
        """Lock waiting messages in ranges, with a session's lease only while it locks one."""
        read = None if seen is None else Seen(*seen, (), epoch, epoch_to)
        return self._seized(
            Seize(
                self.ledger,
                uuid.uuid4().hex[:16],
                list(ranges),
                LOCK_MS,
                read,
                self.rules,
                session=session,
                ahead_limit=ahead_limit,
                by=self.by,
            )
        )

    def seize_hopeless(self, count: int, limit: int = 100) -> SettlementBatch:
        """Lock messages that were delivered too often."""
        return self._seized(Seize.undeliverable(self.ledger, uuid.uuid4().hex[:16], count, LOCK_MS, limit))

    def _seized(self, seize: Seize) -> SettlementBatch:
        self.ledger_client.execute(seize)
        again = [(first, last, count) for first, last, count, _ in seize.again]
        return SettlementBatch(seize.lease, Granted(again, [], self.cursor, False, 0, seize.expiry, 0, None, False))

    def locks(self, start: int = 0, limit: int = 1_000) -> ListLocks:
        """List the locks of messages from an offset on, and those of sessions."""
        listed = ListLocks(self.ledger, start, limit)
        self.ledger_client.execute(listed)
        return listed

    def break_lock(self, target: int | str) -> tuple[bool, str | None]:
        """Break the lock of a message, or of a session; return whether there was one, and the session that has it."""
        broken = BreakLock(self.ledger, target)
        self.ledger_client.execute(broken)
        return broken.is_broken, broken.session

    def file(
        self,
        sessions: Mapping[str, Sequence[int]],
        *,
        upto: int,
        start: int | None = None,
        strays: Sequence[int] = (),
        epoch: int | None = None,
        epoch_to: int | None = None,
    ) -> SettlementBatch:
        """File offsets under sessions; return the strays, which are leased."""
        offsets = sorted({*strays, *(offset for several in sessions.values() for offset in several)})
        seen = Seen(self.cursor if start is None else start, upto, merge_offsets(offsets), epoch, epoch_to)
        by_session = {name: sorted(several) for name, several in sessions.items()}
        lease, runs = uuid.uuid4().hex[:16], merge_offsets(strays)
        filing = FileMessages(self.ledger, lease, seen, by_session, runs, LOCK_MS, rules=self.rules)
        self.ledger_client.execute(filing)
        return SettlementBatch(filing.lease, filing.granted)

    def rule(self, version: int, end: int) -> int:
        """Report that rules of a subscription were changed; return the offset from which they count."""
        rule = SetRulesVersion(self.ledger, version, end)
        self.ledger_client.execute(rule)
        return rule.counts_from

    def place(self, held: SettlementBatch, names: Mapping[int, str], strays: Sequence[Range] = ()) -> PlaceMessages:
        """Return messages of a lease to their sessions, and lease strays again."""
        sessions = {name: sorted(one for one in names if names[one] == name) for name in names.values()}
        place = PlaceMessages(self.ledger, held.lease, sessions, strays, LOCK_MS)
        self.ledger_client.execute(place)
        return place

    def detect_duplicates(
        self,
        start: int,
        upto: int,
        ids: Sequence[Sequence[object]],
        log_start: int | None = None,
        window_ms: int = WINDOW_MS,
        epochs: Sequence[tuple[int, int]] = (),
    ) -> DetectDuplicates:
        """Have the ledger find the duplicates among records."""
        detect_duplicates = DetectDuplicates(self.ledger, start, upto, ids, epochs, window_ms, log_start)
        self.ledger_client.execute(detect_duplicates)
        return detect_duplicates

    def schedule(self, items: Sequence[tuple[int, int]]) -> None:
        """Report which records wait for their time."""
        self.ledger_client.execute(Schedule(self.ledger, items))

    def schedule_held(self, held: SettlementBatch, items: Sequence[tuple[int, int]]) -> list[Range]:
        """Report the same for granted messages; return those that were not held."""
        schedule_held = ScheduleHeld(self.ledger, held.lease, items)
        self.ledger_client.execute(schedule_held)
        return schedule_held.lost

    def cancel(self, *offsets: int) -> list[int]:
        """Settle scheduled messages; return those that were not scheduled."""
        cancel = Cancel(self.ledger, offsets)
        self.ledger_client.execute(cancel)
        return cancel.missing

    def activate(self, limit: int = 100) -> list[int]:
        """Begin transfers of due messages."""
        activate = Activate(self.ledger, limit, "intent", ORPHAN_MS)
        self.ledger_client.execute(activate)
        return activate.begun

    def accept(self, session: str | None = None, most: int = 10) -> Accept:
        """Lock a session."""
        accept = Accept(self.ledger, uuid.uuid4().hex[:16], session, LOCK_MS, most, by=self.by)
        self.ledger_client.execute(accept)
        return accept

    def next(self, lease: str, want: int) -> GrantNext:
        """Claim the next messages of a locked session."""
        following = GrantNext(self.ledger, lease, want, self.rules)
        self.ledger_client.execute(following)
        return following

    def extend(self, lease: str) -> bool:
        """Renew a session's lock; return False if it has expired."""
        extend = Extend(self.ledger, lease, LOCK_MS)
        self.ledger_client.execute(extend)
        return extend.expiry is not None

    def leave(self, lease: str) -> None:
        """Give a session up."""
        self.ledger_client.execute(Leave(self.ledger, lease))

    def get_state(self, lease: str) -> GetState:
        """Ask for the state of a locked session."""
        get = GetState(self.ledger, lease)
        self.ledger_client.execute(get)
        return get

    def set_state(self, lease: str, value: str | None) -> SetState:
        """Set the state of a locked session."""
        change = SetState(self.ledger, lease, value)
        self.ledger_client.execute(change)
        return change

    def state_stored(self, session: str, version: int) -> NoteStoredState:
        """Report that a state was stored."""
        stored = NoteStoredState(self.ledger, session, version)
        self.ledger_client.execute(stored)
        return stored

    def states_updated(self, after: int) -> list[str]:
        """Return the sessions whose states were set after a moment."""
        updated = ListUpdatedStates(self.ledger, after)
        self.ledger_client.execute(updated)
        return sorted(updated.names)

    def sessions(self) -> list[str]:
        """Return all known sessions."""
        sessions = ListSessions(self.ledger)
        self.ledger_client.execute(sessions)
        return sorted(sessions.names)

    def peek(self, start: int, limit: int, session: str | None = None) -> Peek:
        """Return the messages that are not settled."""
        peek = Peek(self.ledger, start, limit, session)
        self.ledger_client.execute(peek)
        return peek

    def snapshot_to_keep(self) -> Snapshot:
        """Return the snapshot to write."""
        keep = TakeSnapshot(self.ledger)
        self.ledger_client.execute(keep)
        self.ledger_client.add_changes([keep])
        return keep.snapshot

    def changes(self, *ranges: Range) -> dict[int, dict[str, str]]:
        """Return the changed properties of messages; a client knows that there are some by the answer to its last request."""
        self.ledger_client.execute(Claim.poll(self.ledger))
        found = self.ledger_client.changed_properties(self.ledger, offsets_of(ranges))
        assert not found or self.ledger.has_changes
        return found

    def lose_everything(self) -> None:
        """Lose everything, as an emptied Redis does."""
        self.store.delete(*self.keys.shared, self.keys.slot(self.client_id))

    def purge(self, upto: int, limit: int = 1000) -> Purge:
        """Delete waiting messages."""
        purge = Purge(self.ledger, upto, limit)
        self.ledger_client.execute(purge)
        return purge

    def begin(
        self,
        held: SettlementBatch,
        *ranges: Range,
        intent: str = "intent",
        change: Mapping[str, str] | None = None,
    ) -> list[Range]:
        """Begin a transfer of ranges, whose messages may get other properties; return the lost ones."""
        begin = BeginTransfer(self.ledger, held.lease, list(ranges), intent, ORPHAN_MS, change)
        self.ledger_client.execute(begin)
        return begin.lost

    def moved(self, offset: int, at: int) -> int | None:
        """End a transfer; return the winner."""
        moved = EndTransfer(self.ledger, offset, at, 120_000)
        self.ledger_client.execute(moved)
        return moved.winner

    def adopt(self) -> list[int]:
        """Adopt late transfers; return their offsets."""
        adopt = AdoptTransfers(self.ledger, 100, ORPHAN_MS)
        self.ledger_client.execute(adopt)
        return [orphan.offset for orphan in adopt.orphans]

    def refused(self, offset: int, size: int) -> bool:
        """Note that a destination refuses a copy of this size; return whether that is new."""
        refused = NoteRefusal(self.ledger, offset, size)
        self.ledger_client.execute(refused)
        return refused.new

    def retreat(self, offset: int, intent: str, *, gone: bool = False) -> None:
        """Give up a transfer that has this intent."""
        self.ledger_client.execute(Retreat(self.ledger, Orphan(offset, 0, intent), gone=gone))

    def prepare(
        self,
        *items: tuple[PreparedVerb, SettlementBatch, Sequence[Range]],
        transaction: str = "t",
        change: Mapping[str, str] | None = None,
    ) -> list[list[Range]]:
        """Prepare settlements, each a verb, a batch and ranges; return the lost ranges of each.

        As the SDK does, a completed message is not changed.
        """
        wanted: list[tuple[PreparedVerb, str, Sequence[Range], Mapping[str, str]]] = [
            (verb, held.lease, ranges, {} if change is None or verb == "complete" else change)
            for verb, held, ranges in items
        ]
        prepare = Prepare(self.ledger, wanted, transaction, ORPHAN_MS, DEFERRED_LIMIT)
        self.ledger_client.execute(prepare)
        if prepare.full:
            raise Full
        return prepare.lost

    def resolve(self, *ranges: Range, transaction: str = "t", committed: bool = True) -> None:
        """Settle the messages that a transaction prepared, or take the settlements back."""
        self.ledger_client.execute(Resolve(self.ledger, list(ranges), transaction, committed=committed))

    def skip(self, offset: int) -> bool:
        """Skip a record; return whether the call was in time."""
        skip = SkipRecord(self.ledger, offset)
        self.ledger_client.execute(skip)
        return skip.skipped

    def restore(
        self, snapshot: Snapshot, states: Iterable[StoredState] = (), *, window_start: int | None = None
    ) -> bool:
        """Make the ledger again; return False if it existed."""
        written = Written(snapshot, states, window_start, self.rules)
        made = self.ledger_client.restore([self.ledger], lambda ledgers: dict.fromkeys(ledgers, written))[self.ledger]
        assert not isinstance(made, ServiceBusError)
        return made is not None

    @property
    def cursor(self) -> int:
        """The ledger's cursor."""
        return self.state.cursor

    @property
    def in_flight(self) -> int:
        """How many messages the ledger says are granted and not settled."""
        return self.state.in_flight

    @property
    def state(self) -> LedgerState:
        """Return the ledger's state."""
        (state,) = self.ledger_client.states([self.ledger])
        assert state is not None
        return state

    def figures(self) -> LedgerFigures:
        """Return the ledger's figures."""
        (figures,) = self.ledger_client.figures([self.ledger])
        assert figures is not None
        return figures

    def look(self, written: str | None = None) -> Look:
        """Look at the ledger as upkeep does, which wrote down the change of this name last."""
        (look,) = self.ledger_client.look([self.ledger], [written], 5.0)
        assert look is not None
        return look

    def is_told(self) -> bool:
        """Return whether upkeep looks no later than a lock, a transfer, a scheduled or a postponed message is due."""
        firsts: list[float] = []
        for key in self.keys.shared:
            if key.rsplit(":", 1)[1] in {"expiries", "moves", "due", "wakes"}:
                firsts += [float(one[1]) for one in self.store.zrange(key, 0, 0, withscores=True)]
        (look_at,) = self.store.hmget(self.keys.meta, ["look_at"])
        return not firsts or (look_at is not None and float(look_at) <= min(firsts))

    def pass_time(self, ms: int) -> None:
        """Move the ledger's clock on by this much."""
        self.store.hincrby(self.keys.meta, "test:skew", ms)

    def use_policy(self, *delays: int, most: int = 10) -> None:
        """Have this client follow a retry policy, or none if there are no delays."""
        self.ledger.retries = json.dumps({"delays": delays, "most": most}) if delays else None

    def expire(self) -> None:
        """Have all leases expire, and a claim find them."""
        self.pass_time(LOCK_MS + 1)
        self.claim(0)

    def break_after(self, writes: int) -> None:
        """Have the next requests fail after so many writes; 0: none fails."""
        self.store.hset(self.keys.meta, "test:fault", writes)

    def send(self, number: int, *operations: Operation) -> dict[str, object]:
        """Send a request under a number of the test's own, as a copy on the wire would arrive."""
        arguments = [operation.arguments() for operation in operations]
        payload, names = json.dumps(arguments), frozenset(one["op"] for one in arguments)
        keys = self.ledger.script_keys
        return json.loads(  # type: ignore[no-any-return]
            self.store.eval(
                self.ledger_client._script_for(names).text, len(keys), *keys, number, self.ledger.channel, 0, payload
            )
        )

    def snapshot(self) -> dict[str, object]:
        """Return the contents of the ledger's keys, but for what a request leaves behind in any case."""
        state: dict[str, object] = {}
        for key in self.keys.shared:
            kind = self.store.type(key)
            if kind == "hash":
                fields = self.store.hgetall(key).items()
                state[key] = {name: value for name, value in fields if name not in {"version", "clock"}}
            elif kind == "zset":
                state[key] = self.store.zrange(key, 0, -1, withscores=True)
        return state

    def drain(self, end: int) -> dict[int, int]:
        """Return all messages that can still be delivered, by offset, with their counts.

        Before that all locks expire, all transfers become late, and the time of all postponed messages comes.
        """
        self.pass_time(LOCK_MS + 1)
        self.use_policy()
        self.claim(0)
        self.pass_time(LONGEST_DELAY_MS)
        found: dict[int, int] = {}
        while True:
            held = self.claim(1000, upto=max(end, self.cursor))
            if not held.offsets:
                return found
            found |= held.counts
            self.settle("complete", held)

    @staticmethod
    def _missing(ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
        raise AssertionError(f"{[ledger.keys.prefix for ledger in ledgers]} are missing")


def _ranges(offsets: list[int]) -> list[Range]:
    ranges: list[Range] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return ranges
