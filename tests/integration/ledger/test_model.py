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
from tests.integration.ledger.bench import LOCK_MS, ORPHAN_MS, Bench, Held

AVAILABLE, LOCKED, MOVING, GONE = "available", "locked", "moving", "gone"
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
        self.leases: list[tuple[Held, int]] = []
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
        fresh = list(range(self.cursor, upto))[: max(0, room)]
        assert [offset for first, last in held.granted.fresh for offset in range(first, last + 1)] == fresh
        self.cursor = max(self.cursor, fresh[-1] + 1 if fresh else 0)
        for offset in waiting:
            self.state[offset], self.holder[offset] = LOCKED, held.lease
        for offset in fresh:
            self.state[offset], self.holder[offset], self.count[offset] = (GONE if take else LOCKED), held.lease, 0
        if held.offsets:
            self.leases.append((held, self.now + LOCK_MS))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), who=st.integers(0, 2), verb=st.sampled_from(["complete", "abandon", "release", "begin"]))
    def settle(self, data: st.DataObject, who: int, verb: str) -> None:
        """Settle any range with any token ever given out, stale ones too."""
        held, expiry = data.draw(st.sampled_from(self.leases))
        first = data.draw(st.integers(0, LOG_END - 1))
        last = data.draw(st.integers(first, min(LOG_END - 1, first + 6)))
        mine = [
            offset
            for offset in range(first, last + 1)
            if expiry > self.now and self.state.get(offset) == LOCKED and self.holder[offset] == held.lease
        ]
        client = self.clients[who]
        lost = client.begin(held, (first, last)) if verb == "begin" else client.settle(verb, held, (first, last))
        assert [offset for a, b in lost for offset in range(a, b + 1)] == [
            offset for offset in range(first, last + 1) if offset not in mine
        ]
        for offset in mine:
            self.state[offset] = {"complete": GONE, "begin": MOVING}.get(verb, AVAILABLE)
            self.count[offset] += verb == "abandon"
            if verb == "begin":
                self.due[offset] = self.now + ORPHAN_MS

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

    def expire(self) -> None:
        """What a claim does first."""
        for held, expiry in self.leases:
            if expiry <= self.now:
                for offset in held.offsets:
                    if self.state[offset] == LOCKED and self.holder[offset] == held.lease:
                        self.state[offset] = AVAILABLE
                        self.count[offset] += 1


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
