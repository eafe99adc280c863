"""A script that dies between two writes may deliver twice, and never loses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from kafkabus._ledger.verbs import PreparedVerb, SettlementVerb
from kafkabus.exceptions import LedgerError
from tests.integration.ledger.bench import LOCK_MS, ORPHAN_MS, Bench, SettlementBatch

KEPT_MS = 120_000
"""For how long the bench has a ledger remember which copy counted."""
END = 12
"""End of the log; offsets below are messages."""

DELAY_MS = 5_000

Step = Callable[[Bench, SettlementBatch], object]

STEPS: dict[str, Step] = {
    "claim of new messages": lambda bench, _: bench.claim(4, upto=END),
    "claim that splits a returned range": lambda bench, _: bench.claim(1, upto=END),
    "claim of returned and new messages": lambda bench, _: bench.claim(6, upto=END),
    "claim past voids": lambda bench, _: (bench.skip(9), bench.claim(9, upto=END)),
    "abandon": lambda bench, held: bench.settle("abandon", held, (5, 6)),
    "abandon of all": lambda bench, held: bench.settle("abandon", held),
    "postponement": lambda bench, held: bench.settle("abandon", held, (5, 6), delay_ms=DELAY_MS),
    "postponement by a policy": lambda bench, _: expired_by_policy(bench),
    "end of a postponement": lambda bench, held: postponed(bench, held, wait=True).claim(0),
    "seizure of a postponed message": lambda bench, held: postponed(bench, held).seize((5, 6)),
    "purge of postponed messages": lambda bench, held: postponed(bench, held).purge(6),
    "release": lambda bench, held: bench.settle("release", held, (4, 5)),
    "complete of a part": lambda bench, held: bench.settle("complete", held, (4, 4)),
    "renewal of a part": lambda bench, held: bench.settle("renew", held, (5, 6)),
    "deferral": lambda bench, held: bench.settle("defer", held, (5, 6)),
    "recall": lambda bench, held: (bench.settle("defer", held, (5, 6)), bench.recall((5, 6))),
    "abandon of a recalled message": lambda bench, held: recalled(bench, held, "abandon"),
    "expiry of a recalled message": lambda bench, held: recalled(bench, held, "expire"),
    "seizure": lambda bench, _: bench.seize((1, 2), (9, 10)),
    "seizure of all that was read": lambda bench, _: bench.seize((2, 2), (8, 9), seen=(8, 10)),
    "seizure of what was delivered too often": lambda bench, _: bench.seize_hopeless(1),
    "purge": lambda bench, _: bench.purge(3),
    "begin of a transfer": lambda bench, held: bench.begin(held, (4, 5)),
    "refusal of a copy": lambda bench, held: (bench.begin(held, (4, 5)), bench.refused(4, 7)),
    "preparation": lambda bench, held: bench.prepare(("complete", held, [(4, 5)]), ("defer", held, [(6, 6)])),
    "rollback": lambda bench, held: transacted(bench, held, committed=False),
    "rollback of what expired": lambda bench, held: transacted(bench, held, committed=False, late=True),
    "commit of an abandonment": lambda bench, held: transacted(bench, held, verb="abandon"),
    "commit of a deferral": lambda bench, held: transacted(bench, held, verb="defer"),
    "void of a returned message": lambda bench, _: bench.skip(1),
    "expiry": lambda bench, _: bench.expire(),
}


def postponed(bench: Bench, held: SettlementBatch, *, wait: bool = False) -> Bench:
    """Postpone two messages, and return the ledger, perhaps when their time has come."""
    bench.settle("abandon", held, (5, 6), delay_ms=DELAY_MS)
    if wait:
        bench.pass_time(DELAY_MS + 1)
    return bench


def expired_by_policy(bench: Bench) -> None:
    """Have all leases expire, and their messages be postponed by a policy."""
    bench.use_policy(DELAY_MS)
    bench.expire()


def recalled(bench: Bench, held: SettlementBatch, verb: Literal[SettlementVerb, "expire"]) -> SettlementBatch:
    """Defer two messages, lock them again and settle one, unless an earlier attempt did."""
    bench.settle("defer", held, (5, 6))
    again, missing = bench.recall((5, 6))
    if verb == "expire":
        bench.expire()
    elif not missing:
        bench.settle(verb, again, (6, 6))
    return again


def transacted(
    bench: Bench, held: SettlementBatch, *, verb: PreparedVerb = "complete", committed: bool = True, late: bool = False
) -> None:
    """Settle two messages in a transaction, unless an earlier attempt did."""
    bench.prepare((verb, held, [(5, 6)]))
    if late:
        bench.pass_time(LOCK_MS + 1)
    bench.resolve((5, 6), committed=committed)


def prepared(bench: Bench) -> SettlementBatch:
    """0 completed, 1 to 3 returned, 4 to 7 leased, 8 to 11 not granted."""
    held = bench.claim(4, upto=END)
    bench.settle("complete", held, (0, 0))
    bench.settle("abandon", held, (1, 3))
    passed = bench.claim(7, upto=END)
    bench.settle("release", passed, (1, 3))
    assert bench.cursor == 8
    return passed


def recovered(bench: Bench) -> set[int]:
    """Let everything expire; return all offsets that are still delivered or moved on."""
    bench.break_after(0)
    bench.pass_time(max(LOCK_MS, ORPHAN_MS) + 1)
    moved = set(bench.adopt())
    there = moved | set(bench.drain(END))
    return there | {offset for one in bench.peek(0, 100).found for offset in range(one.first, one.last + 1)}


@pytest.mark.parametrize("name", STEPS)
def test_no_write_at_which_a_script_dies_loses_a_message(bench: Bench, name: str) -> None:
    """The script dies at each write of each step in turn, with the request made again afterwards and without."""
    settled = {
        "complete of a part": {4},
        "void of a returned message": {1},
        "claim past voids": {9},
        "purge": {1, 2},
        "purge of postponed messages": {1, 2, 3, 5},
    }.get(name, set())
    for again in (False, True):
        for write in range(1, 40):
            ledger = Bench(bench.store, f"{bench.topic_id}-{again}-{write}")
            held = prepared(ledger)
            ledger.break_after(write)
            try:
                STEPS[name](ledger, held)
                finished = True
            except LedgerError:
                finished = False
                ledger.break_after(0)
                if again:
                    STEPS[name](ledger, held)
            found = recovered(ledger)
            assert set(range(1, END)) - settled <= found, f"lost after write {write} of {name}"
            if finished:
                assert write > 1, "the step writes nothing, so this tests nothing"
                break
        else:
            pytest.fail("the step has more writes than were tried")


def test_a_transfer_whose_end_died_is_ended_by_the_next_end(bench: Bench) -> None:
    """The script may die at any write. Nothing of the transfer is left, or it would be adopted for ever."""
    for write in range(1, 10):
        ledger = Bench(bench.store, f"{bench.topic_id}-{write}")
        held = prepared(ledger)
        ledger.begin(held, (4, 4))
        ledger.break_after(write)
        try:
            ledger.moved(4, 20)
        except LedgerError:
            ledger.break_after(0)
            assert ledger.moved(4, 20) == 20
            ledger.pass_time(KEPT_MS + 1)
            assert ledger.adopt() == [], f"after write {write}"
        else:
            assert write > 3, "so few writes that this tests nothing"
            return
    pytest.fail("it has more writes than were tried")
