"""Compare the real scripts with the ledger of the in-memory namespace, by steps that Hypothesis makes up.

Both do the same steps, and their answers must be the same. They differ inside: the scripts keep ranges and bits, the
other one keeps a state for each message.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar, cast

import pytest
import redis
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kafkabus._ledger.operations import (
    MARKS,
    GetState,
    Granted,
    GrantNext,
    Mark,
    MarkName,
    NoteStoredState,
    SetState,
    Settlement,
    Tail,
)
from kafkabus._ledger.prepared_settlement import Prepared
from kafkabus._ledger.ranges import Range, merge_offsets
from kafkabus._ledger.scripts import Script, request_script
from kafkabus._ledger.snapshot import Snapshot
from kafkabus._ledger.verbs import PreparedVerb, SettlementVerb
from kafkabus.testing.store import MemoryRedis, Store
from tests.effort import SEED, effort
from tests.integration.ledger.bench import LOCK_MS, ORPHAN_MS, WINDOW_MS, Bench, Full, SettlementBatch

T = TypeVar("T")

LOG_END = 40
BEGINNING = 1_000_000
OFFSET = st.integers(0, LOG_END - 1)
LIMIT = st.sampled_from([1000, 1000, 4, 9])
WHO = st.integers(0, 2)
VERB = st.sampled_from(["complete", "abandon", "defer"])
TRANSACTION = st.sampled_from(["t", "t", "u"])
CHANGE = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(['"x"', "1", "null"]), min_size=1)
DELAY = st.sampled_from([None, None, 0, 7_003, 3_600_002])
"""For how long abandoned messages are postponed, in ms; None: as the retry policy says."""
TICK_MS = 5
WAIT = st.sampled_from([-3_600_000, -60_000, 14_500, 14_500, 3_600_000])
"""How long it is until a message is due, in ms: far enough off that the duration of a test does not matter."""
COUNTS: dict[str, int] = {}


class Both(RuleBasedStateMachine):
    """Three clients of a ledger in Redis and, in step with them, of one in memory."""

    store: ClassVar[redis.Redis]
    scripts: ClassVar[Scripts]
    """The scripts that Redis runs."""
    has_sessions: ClassVar[bool] = False
    detects: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGINNING
        self.began = round(time.time() * 1000)
        memory = cast("redis.Redis", MemoryRedis(Store(lambda: self.now)))
        self.sides = [self.clients_of(self.store), self.clients_of(memory)]
        for client in self.sides[0]:
            client.ledger_client._script_for = self.scripts.of
        for clients in self.sides:
            # The third one does not say who it is.
            clients[0].by, clients[1].by = "first", "the%20second"
        self.leases: list[tuple[SettlementBatch, SettlementBatch]] = []
        self.marked: set[MarkName] = set()
        self.written: list[tuple[Snapshot, Snapshot]] = []
        self.rules_version = 0
        self.changes: dict[str, Any] = {}
        COUNTS["examples"] = COUNTS.get("examples", 0) + 1

    @classmethod
    def clients_of(cls, store: redis.Redis) -> list[Bench]:
        """Return three clients of a new ledger."""
        first = Bench(store, uuid.uuid4().hex, sessions=cls.has_sessions, detects=cls.detects)
        return [first, first.another(), first.another()]

    def both(self, act: Callable[[int], T]) -> tuple[T, T]:
        """Do a step on either side, a while after the last step: nothing expires at the same moment."""
        self.pass_time(TICK_MS)
        return act(0), act(1)

    def same(self, act: Callable[[int], Any]) -> Any:
        """Do a step on either side, and assert that the results are the same."""
        real, memory = self.both(act)
        assert real == memory
        return real

    def keep(self, real: SettlementBatch, memory: SettlementBatch) -> None:
        """Keep the messages that either side granted, and assert that they are the same."""
        assert _granted(real) == _granted(memory)
        if real.offsets:
            self.leases.append((real, memory))

    def drawn(self, data: st.DataObject, offset: int) -> tuple[tuple[SettlementBatch, SettlementBatch], int]:
        """Return a lease and an offset: any, or more likely one of the latest and one that it was granted."""
        if data.draw(st.integers(0, 3)) == 0:
            return data.draw(st.sampled_from(self.leases)), offset
        pair = data.draw(st.sampled_from(self.leases[-2:]))
        return pair, data.draw(st.sampled_from(pair[0].offsets))

    @precondition(lambda self: not self.has_sessions)
    @rule(
        who=WHO,
        want=st.integers(0, 9),
        read=st.integers(0, 12),
        behind=st.integers(-1, 3),
        holes=st.sets(OFFSET, max_size=4),
        settle_on_claim=st.booleans(),
        epoch=st.none() | st.integers(0, 3),
        epoch_to=st.none() | OFFSET,
        limit=LIMIT,
        exclusive=st.booleans(),
    )
    def claim(
        self,
        who: int,
        want: int,
        read: int,
        behind: int,
        holes: set[int],
        settle_on_claim: bool,
        epoch: int | None,
        epoch_to: int | None,
        limit: int,
        exclusive: bool,
    ) -> None:
        """Claim messages that were read, from the cursor on, from before it, or from beyond it."""
        start = max(0, self.sides[0][0].cursor - behind)
        upto = max(start, min(LOG_END, start + read))
        runs = merge_offsets(set(range(start, upto)) - holes)
        real, memory = self.both(
            lambda side: self.sides[side][who].claim(
                want,
                start=start,
                upto=upto,
                runs=runs,
                settle_on_claim=settle_on_claim,
                epoch=epoch,
                epoch_to=epoch_to,
                limit=limit,
                exclusive=exclusive,
            )
        )
        self.keep_claimed(real, memory)

    @precondition(lambda self: not self.has_sessions)
    @rule(
        who=WHO, want=st.integers(0, 9), upto=st.integers(0, LOG_END), epoch=st.none() | st.integers(0, 3), limit=LIMIT
    )
    def claim_ahead(self, who: int, want: int, upto: int, epoch: int | None, limit: int) -> None:
        """Claim messages before any client has read them."""
        tail = Tail(upto, epoch)
        self.keep_claimed(*self.both(lambda side: self.sides[side][who].claim(want, ahead=tail, limit=limit)))

    def keep_claimed(self, real: SettlementBatch, memory: SettlementBatch) -> None:
        """Keep the messages of a claim, and assert that either side answered alike."""
        for field in (
            "cursor",
            "ahead",
            "moves",
            "limited",
            "epoch_mismatch",
            "free",
            "overdue",
            "stale_rules",
        ):
            assert getattr(real.granted, field) == getattr(memory.granted, field)
        assert (real.granted.redeliverable > 0) == (memory.granted.redeliverable > 0)
        assert (real.granted.due_in is None) == (memory.granted.due_in is None)
        self.keep(real, memory)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        who=WHO,
        verb=st.sampled_from(["complete", "abandon", "release", "renew", "defer", "begin"]),
        first=OFFSET,
        more=st.integers(0, 6),
        change=CHANGE,
        delay=DELAY,
    )
    def settle(
        self,
        data: st.DataObject,
        who: int,
        verb: Literal[SettlementVerb, "begin"],
        first: int,
        more: int,
        change: dict[str, str] | None,
        delay: int | None,
    ) -> None:
        """Settle any range with any token ever given out, stale ones too.

        Returned messages may get other properties, and abandoned ones may be postponed.
        """
        pair, first = self.drawn(data, first)
        part = (first, min(LOG_END - 1, first + more))
        change = change if verb in {"abandon", "defer", "begin"} else None
        delay = delay if verb in {"abandon", "release"} else None

        def act(side: int) -> list[int] | str:
            client, held = self.sides[side][who], pair[side]
            try:
                if verb == "begin":
                    return _offsets(client.begin(held, part, change=change))
                return _offsets(client.settle(verb, held, part, change=change, delay_ms=delay))
            except Full:
                return "full"

        self.same(act)

    @rule(delays=st.sampled_from([(), (), (7_003,), (0, 3_600_002)]), most=st.integers(1, 4))
    def change_policy(self, delays: tuple[int, ...], most: int) -> None:
        """Change the entity's retry policy, or remove it; the clients know it at once."""
        for clients in self.sides:
            for client in clients:
                client.use_policy(*delays, most=most)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), who=WHO, late=st.booleans())
    def complete_granted(self, data: st.DataObject, who: int, late: bool) -> None:
        """Complete the last grant, or some of it, as its holder does it: in time or not."""
        pair = self.leases[-1]
        chosen = data.draw(st.just(set(pair[0].offsets)) | st.sets(st.sampled_from(pair[0].offsets), min_size=1))
        if late:
            self.pass_time(LOCK_MS)
        ranges = merge_offsets(chosen)
        self.same(lambda side: _offsets(self.sides[side][who].settle("complete", pair[side], *ranges)))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), who=WHO, verb=st.sampled_from(["complete", "abandon"]), first=OFFSET)
    def settle_twice(self, data: st.DataObject, who: int, verb: SettlementVerb, first: int) -> None:
        """Settle twice: a copy of a settlement arrives after it, changes nothing, and is answered alike."""
        pair, first = self.drawn(data, first)

        def act(side: int) -> list[int]:
            client, held = self.sides[side][who], pair[side]
            settlement, copy = (Settlement(client.ledger, verb, held.lease, [(first, first + 1)]) for _ in range(2))
            client.ledger_client.execute(settlement)
            answer: Any = client.send(client.ledger.number, copy)
            copy.resolve(answer["replies"][0])
            assert copy.lost == settlement.lost
            return _offsets(copy.lost)

        self.same(act)

    @rule(who=WHO, chosen=st.sets(OFFSET, min_size=1, max_size=4), likely=st.booleans(), data=st.data())
    def recall(self, who: int, chosen: set[int], likely: bool, data: st.DataObject) -> None:
        """Lock deferred messages by offset: all of them or none."""
        found = self.sides[0][0].peek(0, LOG_END).found
        deferred = [offset for one in found if one.deferred for offset in range(one.first, one.last + 1)]
        if deferred and likely:
            chosen = set(data.draw(st.lists(st.sampled_from(deferred), min_size=1, max_size=4)))
        (real, lost), (memory, lost_too) = self.both(
            lambda side: self.sides[side][who].recall(*[(offset, offset) for offset in sorted(chosen)])
        )
        assert (_offsets(lost), real.granted.stale_rules) == (_offsets(lost_too), memory.granted.stale_rules)
        self.keep(real, memory)

    @rule(start=st.integers(0, LOG_END), limit=st.integers(1, 10))
    def peek(self, start: int, limit: int) -> None:
        """Peek at the messages that are not settled."""

        def act(side: int) -> Any:
            peek = self.sides[side][0].peek(start, limit)
            found = {
                (at, one.deferred, one.scheduled, one.postponed_until is None, one.locked_until is None, one.count)
                for one in peek.found
                for at in range(one.first, one.last + 1)
            }
            return peek.cursor, found, peek.skipped

        self.same(act)

    @rule(start=st.integers(0, LOG_END), limit=st.integers(1, 10))
    def list_locks(self, start: int, limit: int) -> None:
        """List the locks, page by page: who has which messages, and which sessions."""

        def act(side: int) -> Any:
            at, found = start, dict[int, Any]()
            while True:
                listed = self.sides[side][0].locks(at, limit)
                assert len(listed.found) <= limit
                found |= {
                    offset: (one.count, one.deferred, one.lock.session, one.lock.by, one.lock.since is None)
                    for one in listed.found
                    for offset in range(one.first, one.last + 1)
                }
                if not listed.has_more:
                    return found, {(lock.session, lock.by, lock.since is None) for lock in listed.sessions}
                at = listed.found[-1].last + 1

        (real, sessions), (memory, others) = self.both(act)
        assert sessions == others
        assert {offset: lock[:3] for offset, lock in real.items()} == {
            offset: lock[:3] for offset, lock in memory.items()
        }
        for offset, lock in real.items():
            # The scripts forget who had the messages of a lease that a transaction left empty, and rolled back.
            assert lock[3:] in {memory[offset][3:], ("", True)}

    @rule(who=WHO, first=OFFSET, likely=st.booleans(), data=st.data())
    def break_lock(self, who: int, first: int, likely: bool, data: st.DataObject) -> None:
        """Break the lock of a message, which is locked or not."""
        locked = [one.first for one in self.sides[0][0].locks().found]
        if locked and likely:
            first = data.draw(st.sampled_from(locked))
        self.same(lambda side: self.sides[side][who].break_lock(first))

    @rule(
        who=WHO,
        first=OFFSET,
        more=st.integers(0, 6),
        seen=st.booleans(),
        epoch=st.none() | st.integers(0, 3),
        epoch_to=st.none() | OFFSET,
        ahead_limit=st.sampled_from([None, None, 2, 5]),
    )
    def seize(
        self,
        who: int,
        first: int,
        more: int,
        seen: bool,
        epoch: int | None,
        epoch_to: int | None,
        ahead_limit: int | None,
    ) -> None:
        """Lock all waiting messages in a range, beyond the cursor too, unless these are too many."""
        if seen:
            first = min(first, self.sides[0][0].cursor)
        last = min(LOG_END - 1, first + more)
        self.keep(
            *self.both(
                lambda side: self.sides[side][who].seize(
                    (first, last),
                    seen=(first, last + 1) if seen else None,
                    epoch=epoch,
                    epoch_to=epoch_to,
                    ahead_limit=ahead_limit,
                )
            )
        )

    @rule(who=WHO, count=st.integers(1, 3))
    def seize_hopeless(self, who: int, count: int) -> None:
        """Lock messages that were delivered too often."""
        self.keep(*self.both(lambda side: self.sides[side][who].seize_hopeless(count)))

    @rule(who=WHO, end=st.integers(0, LOG_END), behind=st.integers(0, 1), learned=st.sets(WHO, min_size=1))
    def change_rules(self, who: int, end: int, behind: int, learned: set[int]) -> None:
        """Change a subscription's rules, or report a change once more; not all clients know."""
        self.rules_version += 1 - behind
        self.same(lambda side: self.sides[side][who].rule(self.rules_version, end))
        for clients in self.sides:
            for one in learned:
                clients[one].rules = self.rules_version

    @rule(upto=st.integers(0, LOG_END), limit=st.integers(1, 3))
    def purge(self, upto: int, limit: int) -> None:
        """Delete waiting messages, in as many calls as it takes."""

        def act(side: int) -> int:
            purged = 0
            while (purge := self.sides[side][0].purge(upto, limit)).more:
                purged += purge.purged
            return purged + purge.purged

        self.same(act)

    @rule(who=WHO, offset=OFFSET, at=st.integers(500, 502))
    def moved(self, who: int, offset: int, at: int) -> None:
        """End a transfer, even one that was never begun, or that another client ended."""
        self.same(lambda side: self.sides[side][who].moved(offset, at))

    @rule(who=WHO)
    def adopt(self, who: int) -> None:
        """Adopt all late transfers, and note that the destination of the first one refuses its copy."""

        def act(side: int) -> list[int]:
            client = self.sides[side][who]
            adopted = client.adopt()
            return [*adopted, *(client.refused(offset, 7) for offset in adopted[:1])]

        self.same(act)

    @rule(
        who=WHO,
        offset=OFFSET,
        likely=st.booleans(),
        intent=st.sampled_from(["intent", "intent", "another"]),
        gone=st.booleans(),
    )
    def retreat(self, who: int, offset: int, likely: bool, intent: str, gone: bool) -> None:
        """Give up a transfer, even one that was never begun, has ended, or is another one."""
        moving = [one[0] for one in self.both(lambda side: self.sides[side][0].snapshot_to_keep())[0].moving]
        self.both(
            lambda side: self.sides[side][who].retreat(moving[0] if moving and likely else offset, intent, gone=gone)
        )

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        who=WHO,
        first=OFFSET,
        more=st.integers(0, 6),
        verbs=st.lists(VERB, min_size=1, max_size=2),
        transaction=TRANSACTION,
        change=CHANGE,
    )
    def prepare(
        self,
        data: st.DataObject,
        who: int,
        first: int,
        more: int,
        verbs: list[PreparedVerb],
        transaction: str,
        change: dict[str, str] | None,
    ) -> None:
        """Prepare settlements with any tokens ever given out, stale ones too: all of them, or none."""
        items = []
        for verb in verbs:
            pair, offset = self.drawn(data, first)
            items.append((verb, pair, [(offset, min(LOG_END - 1, offset + more))]))

        def act(side: int) -> list[list[int]] | str:
            wanted = [(verb, pair[side], ranges) for verb, pair, ranges in items]
            try:
                lost = self.sides[side][who].prepare(*wanted, transaction=transaction, change=change)
                return list(map(_offsets, lost))
            except Full:
                return "full"

        self.same(act)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        who=WHO,
        verb=VERB,
        transaction=TRANSACTION,
        ended=TRANSACTION,
        late=st.booleans(),
        committed=st.booleans(),
    )
    def transact(
        self,
        data: st.DataObject,
        who: int,
        verb: PreparedVerb,
        transaction: str,
        ended: str,
        late: bool,
        committed: bool,
    ) -> None:
        """Settle some of the last grant in a transaction; its end, or another one's, is reported in time or not."""
        pair = self.leases[-1]
        ranges = merge_offsets(data.draw(st.sets(st.sampled_from(pair[0].offsets), min_size=1)))

        def act(side: int) -> list[list[int]] | str:
            try:
                return list(
                    map(_offsets, self.sides[side][who].prepare((verb, pair[side], ranges), transaction=transaction))
                )
            except Full:
                return "full"

        self.same(act)
        if late:
            self.pass_time(LOCK_MS)
        self.resolve(who, ranges[0][0], ranges[-1][1] - ranges[0][0], ended, committed)

    @rule(who=WHO, first=OFFSET, more=st.integers(0, 9), transaction=TRANSACTION, committed=st.booleans())
    def resolve(self, who: int, first: int, more: int, transaction: str, committed: bool) -> None:
        """Report the outcome of a transaction, even if it prepared nothing, or was reported before."""
        part = (first, min(LOG_END - 1, first + more))
        self.both(lambda side: self.sides[side][who].resolve(part, transaction=transaction, committed=committed))

    @rule(who=WHO, offset=OFFSET)
    def skip(self, who: int, offset: int) -> None:
        """Skip a record."""
        self.same(lambda side: self.sides[side][who].skip(offset))

    @rule(name=st.sampled_from(MARKS))
    def mark(self, name: MarkName) -> None:
        """Report what senders report before they store it."""
        self.marked.add(name)
        self.both(lambda side: self.sides[side][0].ledger_client.execute(Mark(self.sides[side][0].ledger, name)))

    @rule(who=WHO, first=st.integers(-1, 3), waits=st.lists(WAIT, min_size=1, max_size=5))
    def schedule(self, who: int, first: int, waits: list[int]) -> None:
        """Report which stored records are not due yet, at the cursor or before or behind it."""
        start = max(0, self.sides[0][0].cursor + first)
        self.both(
            lambda side: self.sides[side][who].schedule(self.items(side, range(start, start + len(waits)), waits))
        )

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), who=WHO, first=OFFSET, waits=st.lists(WAIT, min_size=1, max_size=5))
    def schedule_held(self, data: st.DataObject, who: int, first: int, waits: list[int]) -> None:
        """Have granted messages that turn out to be scheduled wait for their time."""
        pair, first = self.drawn(data, first)

        def act(side: int) -> list[int]:
            items = self.items(side, range(first, first + len(waits)), waits)
            return _offsets(self.sides[side][who].schedule_held(pair[side], items))

        self.same(act)

    def items(self, side: int, offsets: Iterable[int], waits: Sequence[int]) -> list[tuple[int, int]]:
        """Return offsets and times, on the clock of one side."""
        now = self.now if side else self.began + self.now - BEGINNING
        return [(offset, now + wait) for offset, wait in zip(offsets, waits, strict=True)]

    @rule(who=WHO, offsets=st.lists(OFFSET, min_size=1, max_size=4, unique=True), likely=st.booleans())
    def cancel(self, who: int, offsets: list[int], likely: bool) -> None:
        """Settle messages that are scheduled, or are not."""
        found = [one.first for one in self.sides[0][0].peek(0, LOG_END).found if one.scheduled]
        chosen = found[:2] if likely and found else offsets
        self.same(lambda side: self.sides[side][who].cancel(*chosen))

    @rule(who=WHO, limit=st.integers(1, 4))
    def activate(self, who: int, limit: int) -> None:
        """Begin transfers of due messages, in order of their times."""
        self.same(lambda side: self.sides[side][who].activate(limit))

    @rule(who=WHO)
    def read_changes(self, who: int) -> None:
        """Read all changed properties."""
        self.same(lambda side: self.sides[side][who].changes((0, LOG_END - 1)))

    @rule(one_in_ten=st.integers(0, 9), window_start=st.integers(0, LOG_END), back=st.integers(0, 3))
    def write_down(self, one_in_ten: int, window_start: int, back: int) -> None:
        """Write the same checkpoint on both sides, and restore it, or an earlier one with the senders' marks since."""
        snapshots = self.both(lambda side: self.sides[side][0].snapshot_to_keep())
        assert _written(snapshots[0]) == _written(snapshots[1])
        self.written.append(snapshots)
        if one_in_ten == 0:
            chosen = self.written[max(0, len(self.written) - 1 - back)]
            for clients, snapshot in zip(self.sides, chosen, strict=True):
                clients[0].lose_everything()
                decided = snapshot.after(lambda transaction: transaction == "t", [])
                assert clients[0].restore(decided.marked(self.marked), window_start=window_start)
            self.changes.clear()
            self.sides[0][0].look()
            self.sides[0][0].pass_time(self.now - BEGINNING)

    @rule(knows=st.booleans())
    def look(self, knows: bool) -> None:
        """Look as upkeep does, with the last change written down or not. The same last change means the same content."""
        looks = self.both(lambda side: self.sides[side][0].look(self.sides[side][0].look().changed if knows else None))
        real, memory = ((look.due_in is None, (look.due_in or 0) < 0, look.state.cursor) for look in looks)
        assert real == memory
        # Of both sides: a snapshot forgets changed properties of messages that are settled.
        written = _written(self.both(lambda side: self.sides[side][0].snapshot_to_keep())[0])
        assert self.changes.setdefault(looks[0].changed, written) == written

    @rule(ms=st.sampled_from([1_000, 7_000, ORPHAN_MS, LOCK_MS, 3_600_000]))
    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        self.sides[0][0].pass_time(ms)

    @invariant()
    def agree(self) -> None:
        """Both sides have the same state and the same figures, and the real one has all marks."""
        COUNTS["steps"] = COUNTS.get("steps", 0) + 1
        real, memory = self.both(lambda side: self.sides[side][0].state)
        assert all(getattr(real, name) for name in self.marked)
        assert self.sides[0][0].is_told()
        assert real.skipped or not memory.skipped  # the scripts clear it where a claim finds that none is left
        assert replace(real, version=0, skipped=False) == replace(memory, version=0, skipped=False)
        figures = self.both(lambda side: replace(self.sides[side][0].figures(), changed=""))
        assert figures[0] == figures[1]


class BothDetecting(Both):
    """The same as ``Both``, with duplicate detection."""

    detects = True

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[int, tuple[object, ...]] = {}
        self.stored_at = 0

    @rule(data=st.data(), who=WHO, read=st.integers(1, 8), want=st.integers(1, 9))
    def receive(self, data: st.DataObject, who: int, read: int, want: int) -> None:
        """Find duplicates among the read records, and claim them."""
        self.detect_duplicates(data, who, read, 0, None, None)
        self.claim(who, want, read, 0, set(), False, None, None, 1000, False)

    @rule(
        data=st.data(),
        who=WHO,
        read=st.integers(0, 8),
        behind=st.integers(-1, 3),
        log_start=st.none() | st.integers(0, LOG_END),
        epoch=st.none() | st.integers(0, 5),
    )
    def detect_duplicates(
        self, data: st.DataObject, who: int, read: int, behind: int, log_start: int | None, epoch: int | None
    ) -> None:
        """Find duplicates from the scanned end on, from before it, or from beyond it."""
        dedup_upto = self.sides[0][0].state.dedup_upto
        assert dedup_upto is not None
        start = max(0, dedup_upto - behind)
        upto = max(start, min(LOG_END, start + read))
        for offset in range(start, upto):
            self.log.setdefault(offset, self.stored(data, offset))
        if log_start is not None and log_start > dedup_upto:
            log_start = None
        self.judge_logged(who, start, upto, log_start, [] if epoch is None else [(start, epoch)])

    @rule(data=st.data(), who=WHO, more=st.integers(1, 3))
    def make_anew(self, data: st.DataObject, who: int, more: int) -> None:
        """Lose a ledger, restore it with a window that begins at a duplicate, and have it scan more records of that id."""
        dedup_upto, known = self.sides[0][0].state.dedup_upto or 0, self.sides[0][0].snapshot_to_keep().duplicates
        known = [(first, last) for first, last in known if first in self.log]
        if not known or any(offset not in self.log for offset in range(known[0][0], dedup_upto)):
            return
        start = known[0][0]
        for clients in self.sides:
            snapshot = clients[0].snapshot_to_keep().after(lambda transaction: transaction == "t", [])
            clients[0].lose_everything()
            assert clients[0].restore(snapshot, window_start=start)
        self.changes.clear()
        self.sides[0][0].look()
        self.sides[0][0].pass_time(self.now - BEGINNING)
        upto = min(LOG_END, dedup_upto + more)
        for offset in range(dedup_upto, upto):
            self.log.setdefault(offset, self.stored(data, offset, str(self.log[start][1])))
        self.judge_logged(who, start, upto, None, [])

    def judge_logged(
        self, who: int, start: int, upto: int, log_start: int | None, epochs: list[tuple[int, int]]
    ) -> None:
        """Find duplicates among the records of the log."""
        ids = [self.log[offset] for offset in range(start, upto)]

        def act(side: int) -> tuple[bool, int, int | None]:
            one = self.sides[side][who].detect_duplicates(
                start, upto, [one for one in ids if one[1]], log_start, epochs=epochs
            )
            return one.ahead, one.dedup_upto, one.log_truncated

        self.same(act)
        self.same(lambda side: self.sides[side][0].snapshot_to_keep().duplicates)

    def stored(self, data: st.DataObject, offset: int, name: str = "") -> tuple[object, ...]:
        """Return a record: offset, id, when it was stored, and its original if it is a copy."""
        self.stored_at += data.draw(st.sampled_from([0, 1, WINDOW_MS // 4, WINDOW_MS // 3, WINDOW_MS - 1, WINDOW_MS]))
        name = name or data.draw(st.sampled_from(["a", "b", "c", ""]))
        copied = data.draw(st.sampled_from([(), (), ("s",), ("t",)]))
        return (offset, name, self.stored_at, *copied)


SESSION = st.sampled_from(["a", "b", "c", ""])


class BothWithSessions(Both):
    """The same as ``Both``, with messages in sessions."""

    has_sessions = True

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[tuple[str, str]] = []
        self.session_of: dict[int, str] = {}
        self.states: list[tuple[str, tuple[int, int]]] = []

    @rule(who=WHO, want=st.integers(0, 9))
    def claim_returned(self, who: int, want: int) -> None:
        """Lease messages that are to be placed in their sessions."""
        self.keep_claimed(*self.both(lambda side: self.sides[side][who].claim(want)))

    @rule(
        data=st.data(),
        who=WHO,
        read=st.integers(0, 12),
        behind=st.integers(-1, 3),
        holes=st.sets(OFFSET, max_size=4),
        strays=st.sets(OFFSET, max_size=3),
        epoch=st.none() | st.integers(0, 3),
        epoch_to=st.none() | OFFSET,
    )
    def file(
        self,
        data: st.DataObject,
        who: int,
        read: int,
        behind: int,
        holes: set[int],
        strays: set[int],
        epoch: int | None,
        epoch_to: int | None,
    ) -> None:
        """File records that were read, from the cursor on, from before it, or from beyond it."""
        start = max(0, self.sides[0][0].cursor - behind)
        upto = max(start, min(LOG_END, start + read))
        offsets = set(range(start, upto)) - holes
        sessions: dict[str, list[int]] = {}
        for offset in sorted(offsets - strays):
            sessions.setdefault(self.session_of.setdefault(offset, data.draw(SESSION)), []).append(offset)
        self.keep_claimed(
            *self.both(
                lambda side: self.sides[side][who].file(
                    sessions, start=start, upto=upto, strays=sorted(strays & offsets), epoch=epoch, epoch_to=epoch_to
                )
            )
        )

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), who=WHO, first=OFFSET)
    def place(self, data: st.DataObject, who: int, first: int) -> None:
        """Place messages of any lease in their sessions."""
        pair, _ = self.drawn(data, first)
        strays = data.draw(st.sets(st.sampled_from(pair[0].offsets), max_size=2)) if pair[0].offsets else set()
        rest = [offset for offset in pair[0].offsets if offset not in strays]
        names = {offset: self.session_of.setdefault(offset, data.draw(SESSION)) for offset in rest}
        real, memory = self.both(lambda side: self.sides[side][who].place(pair[side], names, merge_offsets(strays)))
        assert _offsets(real.lost) == _offsets(memory.lost)
        counts = pair[0].counts
        apart = [(offset, offset, counts[offset]) for offset in sorted(strays)]
        self.keep(
            *(
                SettlementBatch(place.apart, Granted(apart, [], 0, False, 0, place.expiry, 0, None, False))
                for place in (real, memory)
            )
        )

    @rule(who=WHO, session=st.none() | SESSION, most=st.sampled_from([2, 9]))
    def accept(self, who: int, session: str | None, most: int) -> None:
        """Lock a session, or any waiting one."""
        real, memory = self.both(lambda side: self.sides[side][who].accept(session, most))
        assert (real.accepted, real.held) == (memory.accepted, memory.held)
        if real.accepted is not None:
            self.locks.append((real.lease, memory.lease))

    @rule(who=WHO, most=st.sampled_from([2, 9]), want=st.integers(1, 9))
    def receive(self, who: int, most: int, want: int) -> None:
        """Lock any waiting session, and claim its messages."""
        locked = len(self.locks)
        self.accept(who, None, most)
        if len(self.locks) > locked:
            self.next_of(self.locks[-1], who, want)

    @rule(data=st.data(), who=WHO, read=st.integers(1, 5), want=st.integers(1, 9))
    def receive_after_loss(self, data: st.DataObject, who: int, read: int, want: int) -> None:
        """Restore a checkpoint, file the read records, and ask for messages of any waiting session."""
        self.write_down(0, 0, 0)
        self.file(data, who, read, 0, set(), set(), None, None)
        self.receive(who, 9, want)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO, want=st.integers(0, 9))
    def next(self, data: st.DataObject, who: int, want: int) -> None:
        """Claim a session's messages, with any lock ever given out."""
        self.next_of(data.draw(st.sampled_from(self.locks[-3:])), who, want)

    def next_of(self, locks: tuple[str, str], who: int, want: int) -> None:
        """Claim messages on either side, and assert that they are the same."""
        real, memory = self.both(lambda side: self.sides[side][who].next(locks[side], want))
        for field in ("gone", "unfiled", "cursor", "stale_rules"):
            assert getattr(real, field) == getattr(memory, field)
        assert _offsets(one[:2] for one in real.again) == _offsets(one[:2] for one in memory.again)
        self.keep(*(_next(lock, one) for lock, one in zip(locks, (real, memory), strict=True)))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO)
    def extend(self, data: st.DataObject, who: int) -> None:
        """Renew the lock of a session, with one of the last leases."""
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        self.same(lambda side: self.sides[side][who].extend(locks[side]))

    @rule(who=WHO, session=SESSION)
    def break_session(self, who: int, session: str) -> None:
        """Break the lock of a session, which is locked or not."""
        self.same(lambda side: self.sides[side][who].break_lock(session))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO)
    def leave(self, data: st.DataObject, who: int) -> None:
        """Give a session up."""
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        self.same(lambda side: self.sides[side][who].leave(locks[side]))

    @precondition(lambda self: self.locks and self.leases)
    @rule(who=WHO, most=st.integers(2, 4))
    def give_back_one_by_one(self, who: int, most: int) -> None:
        """Give messages of a session back one by one, and claim them again."""
        pair = self.leases[-1]

        def abandon(offset: int) -> None:
            part = (offset, offset)
            self.same(lambda side: _offsets(self.sides[side][who].settle("abandon", pair[side], part)))

        for offset in sorted(pair[0].offsets)[:most]:
            abandon(offset)
        self.next_of(self.locks[-1], who, 9)

    @precondition(lambda self: self.locks and self.leases)
    @rule(data=st.data(), who=WHO, verb=VERB, leaves=st.booleans(), committed=st.booleans())
    def end_in_doubt(self, data: st.DataObject, who: int, verb: PreparedVerb, leaves: bool, committed: bool) -> None:
        """End a session's lock while a transaction is to settle some of it: until its end no client gets the session."""
        locks, pair = self.locks[-1], self.leases[-1]
        chosen = merge_offsets(data.draw(st.sets(st.sampled_from(pair[0].offsets), min_size=1)))

        def act(side: int) -> list[list[int]] | str:
            try:
                return list(map(_offsets, self.sides[side][who].prepare((verb, pair[side], chosen))))
            except Full:
                return "full"

        self.same(act)
        if leaves:
            self.same(lambda side: self.sides[side][who].leave(locks[side]))
        else:
            self.pass_time(LOCK_MS)
        session = self.session_of.get(pair[0].offsets[0])
        self.accept(who, session, 9)
        self.resolve(who, 0, LOG_END, "t", committed)
        self.accept(who, session, 9)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO, chosen=st.sets(OFFSET, min_size=1, max_size=3))
    def recall_in_session(self, data: st.DataObject, who: int, chosen: set[int]) -> None:
        """Lock deferred messages by a session's lease."""
        found = self.sides[0][0].peek(0, LOG_END).found
        deferred = [offset for one in found if one.deferred for offset in range(one.first, one.last + 1)]
        if deferred:
            chosen = set(data.draw(st.lists(st.sampled_from(deferred), min_size=1, max_size=3)))
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        ranges = [(offset, offset) for offset in sorted(chosen)]
        (real, lost), (memory, lost_too) = self.both(
            lambda side: self.sides[side][who].recall(*ranges, lease=locks[side])
        )
        assert (_offsets(lost), real.granted.stale_rules) == (_offsets(lost_too), memory.granted.stale_rules)
        self.keep(real, memory)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO, first=OFFSET, more=st.integers(0, 6))
    def seize_in_session(self, data: st.DataObject, who: int, first: int, more: int) -> None:
        """Lock all waiting messages in a range while a session is locked."""
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        last = min(LOG_END - 1, first + more)
        self.keep(*self.both(lambda side: self.sides[side][who].seize((first, last), session=locks[side])))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO, value=st.sampled_from(["eA==", "", None]))
    def set_state(self, data: st.DataObject, who: int, value: str | None) -> None:
        """Set the state of a session."""
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        real, memory = self.both(lambda side: self.sides[side][who].set_state(locks[side], value))
        assert _state(real) == _state(memory)
        if real.state is not None and memory.state is not None:
            self.states.append((real.state.session, (real.state.version, memory.state.version)))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO)
    def set_two_states(self, data: st.DataObject, who: int) -> None:
        """Set the state of a session twice; then report the first as stored."""
        before = len(self.states)
        for value in ("eA==", "eQ=="):
            self.set_state(data, who, value)
        if len(self.states) > before:
            session, versions = self.states[before]
            real, memory = self.both(lambda side: self.sides[side][who].state_stored(session, versions[side]))
            assert (*_state(real), real.lost) == (*_state(memory), memory.lost)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), who=WHO)
    def get_state(self, data: st.DataObject, who: int) -> None:
        """Ask for the state of a session."""
        locks = data.draw(st.sampled_from(self.locks[-3:]))
        self.same(lambda side: _state(self.sides[side][who].get_state(locks[side])))

    @precondition(lambda self: self.states)
    @rule(data=st.data(), who=WHO)
    def state_stored(self, data: st.DataObject, who: int) -> None:
        """Report that a state was stored, the latest or one before."""
        session, versions = data.draw(st.sampled_from(self.states[-3:]))
        real, memory = self.both(lambda side: self.sides[side][who].state_stored(session, versions[side]))
        assert (*_state(real), real.lost) == (*_state(memory), memory.lost)
        if real.state is not None and memory.state is not None:
            self.states.append((session, (real.state.version, memory.state.version)))

    @rule()
    def look_at_states(self) -> None:
        """Look at the sessions with states: all are known."""
        self.same(lambda side: self.sides[side][0].states_updated(-1))

    @rule(session=SESSION)
    def look(self, session: str) -> None:
        """Look at the sessions: all are known, and what may be in one of them."""
        self.same(lambda side: self.sides[side][0].sessions())

        def found(side: int) -> Any:
            peek = self.sides[side][0].peek(0, LOG_END, session)
            return {(at, one.deferred, one.count) for one in peek.found for at in range(one.first, one.last + 1)}

        self.same(found)


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_lost_state_is_told_from_the_one_in_its_place(store: redis.Redis, in_memory: bool) -> None:
    """A stored state that the ledger does not have is lost, even if the empty state in its place has the same version."""
    side = cast("redis.Redis", MemoryRedis(Store(lambda: BEGINNING))) if in_memory else store
    bench = Bench(side, uuid.uuid4().hex, sessions=True)
    bench.claim(0)
    for more in range(1, 6):
        session = f"s{more}"
        asked = bench.state_stored(session, bench.state.version + more)
        assert (_state(asked), asked.lost) == ((False, (session, None, False)), True)


def _state(asked: GetState | SetState | NoteStoredState) -> Any:
    state = asked.state
    return asked.gone, state and (state.session, state.value, state.stored)


def _next(lease: str, following: GrantNext) -> SettlementBatch:
    return SettlementBatch(lease, Granted(following.again, [], 0, False, 0, following.expiry, 0, None, False))


def _granted(held: SettlementBatch) -> tuple[dict[int, int], list[int]]:
    return held.counts, _offsets(held.granted.fresh)


def _written(snapshot: Snapshot) -> Any:
    waiting, deferred = (
        {offset: count for first, last, count in several for offset in range(first, last + 1)}
        for several in (snapshot.waiting, snapshot.deferred)
    )
    rest: tuple[object, ...] = (
        # Leases and expiries of prepared settlements are each side's own.
        [(offset, count, Prepared.from_text(intent) or intent) for offset, count, intent in snapshot.moving],
        snapshot.skipped,
        snapshot.dedup_upto,
        snapshot.duplicates,
        snapshot.schedules,
        snapshot.changes,
    )
    rest = (*rest, [offset for offset, _ in snapshot.scheduled], [offset for offset, _ in snapshot.postponed])
    return snapshot.cursor, snapshot.has_message_ttl, snapshot.epoch, waiting, deferred, *rest


def _offsets(ranges: Iterable[Sequence[int] | Range]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def text_of(machine: type[Both], names: frozenset[str] | None = None) -> str:
    """Return a script in which a few messages of a session already fill a chunk."""
    long, text = "local CHUNK = 500", request_script(names).text
    assert long in text
    return text.replace(long, "local CHUNK = 8" if machine.has_sessions else long)


class Scripts:
    """The texts of the scripts that Redis runs for a request, by the names of its operations."""

    def __init__(self, store: redis.Redis, machine: type[Both], instead: Script | None) -> None:
        self._store = store
        self._machine = machine
        self._instead = instead
        self._known: dict[frozenset[str], Script] = {}

    def of(self, names: frozenset[str]) -> Script:
        """Return the real script, but for the length of chunks; or the one script that runs instead, if any."""
        if self._instead is not None:
            return self._instead
        if names not in self._known:
            text = text_of(self._machine, names)
            self._known[names] = Script(text, self._store.script_load(text))
        return self._known[names]


def run(
    store: redis.Redis,
    script: Script | None = None,
    machine: type[Both] = Both,
    number: int | None = None,
    **options: Any,
) -> None:
    """Have the scripts and the ledger in memory do the same steps for a while.

    Args:
        store: The Redis that the scripts run on.
        script: A script that runs there instead of them.
        machine: The steps to do.
        number: A seed, with which the same steps are done every time; None: other steps each time.
        **options: Hypothesis's settings.

    Raises:
        AssertionError: Their results differed.
    """
    COUNTS.clear()

    Both.store, Both.scripts = store, Scripts(store, machine, script)
    if number is not None:
        # Earlier findings are not tried first: the run would be another one.
        machine, options = seed(number)(type(machine.__name__, (machine,), {})), options | {"database": None}
    run_state_machine_as_test(
        machine,
        settings=settings(
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            **options,
        ),
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [Both, BothWithSessions, BothDetecting])
def test_the_scripts_do_what_the_ledger_in_memory_does(
    store: redis.Redis, capsys: pytest.CaptureFixture[str], machine: type[Both]
) -> None:
    """Three clients do everything that a ledger does, in any order, with fresh and stale tokens."""
    run(store, machine=machine, number=SEED, max_examples=effort(60, 500))
    with capsys.disabled():
        print(f" {COUNTS['steps']} steps in {COUNTS['examples']} examples")  # noqa: T201 - a figure of the run
