"""The real scripts against a model of them in a few lines, by steps that Hypothesis makes up."""

from __future__ import annotations

import os
import uuid
from typing import ClassVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kafkabus.embedded import EmbeddedRuntime
from kafkabus.ledger.operations import Range
from tests.integration.ledger.bench import DEFERRED_LIMIT, LOCK_MS, ORPHAN_MS, Bench, Full, Held

NEW, AVAILABLE, LOCKED, DEFERRED, MOVING, GONE = "new", "available", "locked", "deferred", "moving", "gone"
LOG_END = 40


class Model(RuleBasedStateMachine):
    """Each message has a state, a count and a holder; the scripts must agree after every step."""

    store: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.clients = [Bench(self.store, uuid.uuid4().hex)]
        self.clients += [self.clients[0].another(), self.clients[0].another()]
        self.cursor = 0
        self.state: dict[int, str] = {}
        self.count: dict[int, int] = {}
        self.holder: dict[int, str] = {}
        self.until: dict[int, int] = {}
        self.origin: dict[int, str] = {}
        self.leases: list[Held] = []
        self.due: dict[int, int] = {}
        self.now = 0

    @rule(
        who=st.integers(0, 2),
        want=st.integers(0, 9),
        read=st.integers(0, 12),
        behind=st.integers(0, 3),
        take=st.booleans(),
    )
    def claim(self, who: int, want: int, read: int, behind: int, take: bool) -> None:
        """Claim what was read from at or before the cursor on."""
        start = max(0, self.cursor - behind)
        upto = min(LOG_END, start + read)
        held = self.clients[who].claim(want, start=start, upto=max(start, upto), take=take)
        self.expire()
        waiting = sorted(offset for offset, state in self.state.items() if state == AVAILABLE)[:want]
        assert [offset for first, last, _ in held.granted.again for offset in range(first, last + 1)] == waiting
        assert {offset: held.counts[offset] for offset in waiting} == {offset: self.count[offset] for offset in waiting}
        room = want - len(waiting)
        new = [offset for offset in range(self.cursor, upto) if offset not in self.state]
        fresh, rest = new[: max(0, room)], new[max(0, room) :]
        assert _offsets(held.granted.fresh) == fresh
        self.cursor = rest[0] if rest else max(self.cursor, upto)
        self.lock(held, waiting, AVAILABLE)
        self.lock(held, fresh, AVAILABLE)
        for offset in fresh:
            self.state[offset], self.count[offset] = (GONE if take else LOCKED), 0

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        who=st.integers(0, 2),
        verb=st.sampled_from(["complete", "abandon", "release", "renew", "defer", "begin"]),
        first=st.integers(0, LOG_END - 1),
        more=st.integers(0, 6),
    )
    def settle(self, data: st.DataObject, who: int, verb: str, first: int, more: int) -> None:
        """Settle any range with any token ever given out, stale ones too."""
        held = data.draw(st.sampled_from(self.leases))
        last = min(LOG_END - 1, first + more)
        mine = [
            offset
            for offset in range(first, last + 1)
            if self.state.get(offset) == LOCKED and self.holder[offset] == held.lease and self.until[offset] > self.now
        ]
        client = self.clients[who]
        try:
            lost = client.begin(held, (first, last)) if verb == "begin" else client.settle(verb, held, (first, last))
        except Full:
            assert list(self.state.values()).count(DEFERRED) + last - first + 1 > DEFERRED_LIMIT
            return
        assert _offsets(lost) == [offset for offset in range(first, last + 1) if offset not in mine]
        for offset in mine:
            if verb == "renew":
                self.until[offset] = self.now + LOCK_MS
                continue
            self.state[offset] = {"complete": GONE, "begin": MOVING, "defer": DEFERRED}.get(verb, self.origin[offset])
            self.count[offset] += verb == "abandon"
            if verb == "begin":
                self.due[offset] = self.now + ORPHAN_MS

    @rule(
        who=st.integers(0, 2),
        chosen=st.sets(st.integers(0, LOG_END - 1), min_size=1, max_size=4),
        likely=st.booleans(),
        data=st.data(),
    )
    def recall(self, who: int, chosen: set[int], likely: bool, data: st.DataObject) -> None:
        """Lock deferred messages by offset: all of them or none."""
        self.expire()
        deferred = sorted(offset for offset, state in self.state.items() if state == DEFERRED)
        if deferred and likely:
            chosen = set(data.draw(st.lists(st.sampled_from(deferred), min_size=1, max_size=4)))
        held, missing = self.clients[who].recall(*[(offset, offset) for offset in sorted(chosen)])
        assert _offsets(missing) == sorted(chosen - set(deferred))
        if not missing:
            assert held.counts == {offset: self.count[offset] for offset in chosen}
            self.lock(held, sorted(chosen), DEFERRED)

    @rule(who=st.integers(0, 2), start=st.integers(0, LOG_END), limit=st.integers(1, 10))
    def peek(self, who: int, start: int, limit: int) -> None:
        """Everything that is not settled is seen, and nothing changes."""
        found = self.clients[who].peek(start, limit).found
        seen = {offset: (one.deferred, one.count) for one in found for offset in range(one.first, one.last + 1)}
        there = [
            offset
            for offset, state in sorted(self.state.items())
            if offset >= start and state in {AVAILABLE, LOCKED, DEFERRED}
        ][:limit]
        assert seen == {
            offset: (
                DEFERRED in {self.state[offset], self.origin[offset] if self.state[offset] == LOCKED else None},
                self.count[offset],
            )
            for offset in there
        }

    @rule(who=st.integers(0, 2), first=st.integers(0, LOG_END - 1), more=st.integers(0, 6), seen=st.booleans())
    def seize(self, who: int, first: int, more: int, seen: bool) -> None:
        """Lock whatever waits in a range, beyond the cursor too."""
        self.expire()
        if seen:
            first = min(first, self.cursor)
        last = min(LOG_END - 1, first + more)
        held = self.clients[who].seize((first, last), seen=(first, last + 1) if seen else None)
        waiting = [
            offset for offset in range(first, last + 1) if self.state.get(offset, NEW) in {NEW, AVAILABLE, DEFERRED}
        ]
        assert held.counts == {offset: self.count.get(offset, 0) for offset in waiting}
        for offset in waiting:
            origin = self.state.get(offset, AVAILABLE)
            self.count.setdefault(offset, 0)
            self.lock(held, [offset], origin)
        if seen:
            self.cursor = max(self.cursor, last + 1)

    @rule(who=st.integers(0, 2), upto=st.integers(0, LOG_END), limit=st.integers(1, 3))
    def purge(self, who: int, upto: int, limit: int) -> None:
        """What waits is thrown away, in as many goes as it takes; what is locked or deferred stays."""
        waiting = [offset for offset, state in self.state.items() if state == AVAILABLE and offset < upto]
        beyond = range(self.cursor, upto)
        purged = 0
        while (purge := self.clients[who].purge(upto, limit)).more:
            purged += purge.purged
        assert purged + purge.purged == len(waiting) + len(beyond)
        for offset in [*waiting, *(offset for offset in beyond if offset not in self.state)]:
            self.state[offset] = GONE
        self.cursor = max(self.cursor, upto)

    @rule(who=st.integers(0, 2), offset=st.integers(0, LOG_END - 1))
    def end(self, who: int, offset: int) -> None:
        """End a transfer, also one that was never begun."""
        winner = self.clients[who].moved(offset, 500 + offset)
        if self.state.get(offset) == MOVING:
            assert winner == 500 + offset
            self.state[offset] = GONE
            del self.due[offset]

    @rule(who=st.integers(0, 2))
    def adopt(self, who: int) -> None:
        """Whoever adopts gets all late transfers, and nobody else does for a while."""
        late = sorted(offset for offset, due in self.due.items() if due <= self.now)
        assert sorted(self.clients[who].adopt()) == late
        for offset in late:
            self.due[offset] = self.now + ORPHAN_MS

    @rule(ms=st.sampled_from([1_000, ORPHAN_MS, LOCK_MS]))
    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        self.clients[0].pass_time(ms)

    @invariant()
    def agrees(self) -> None:
        """Cursor and number of held messages are the model's."""
        assert self.clients[0].cursor == self.cursor
        assert self.clients[0].held == sum(state != GONE for state in self.state.values())

    def lock(self, held: Held, offsets: list[int], origin: str) -> None:
        """Offsets belong to a lease from now on."""
        for offset in offsets:
            self.state[offset], self.origin[offset] = LOCKED, origin
            self.holder[offset], self.until[offset] = held.lease, self.now + LOCK_MS
        if held.offsets:
            self.leases.append(held)

    def expire(self) -> None:
        """What a claim does first."""
        for offset, state in self.state.items():
            if state == LOCKED and self.until[offset] <= self.now:
                self.state[offset] = self.origin[offset]
                self.count[offset] += 1


def _offsets(ranges: list[Range]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


@pytest.mark.timeout(600)
def test_the_scripts_agree_with_the_model(runtime: EmbeddedRuntime) -> None:
    """Claims, settlements, transfers and expiry in any order, by three clients, with fresh and stale tokens."""
    examples = int(os.environ.get("KAFKABUS_HYPOTHESIS_EXAMPLES", "60"))
    with redis.Redis.from_url(runtime.redis_url, decode_responses=True) as store:
        Model.store = store
        run_state_machine_as_test(
            Model,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
                print_blob=True,
            ),
        )
