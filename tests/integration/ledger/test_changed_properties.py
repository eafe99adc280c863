"""Changed application properties in a ledger: how many there may be, and when they are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from kafkabus._ledger.operations import BeginTransfer, Deferral, Prepare, Settlement, TakeSnapshot
from kafkabus._ledger.snapshot import Snapshot
from tests.integration.ledger.bench import ORPHAN_MS, Bench, SettlementBatch

MIB = 1024 * 1024
TOO_LARGE = {"a": '"' + "x" * 1_600_000 + '"'}
LARGE = {"a": '"' + "x" * (MIB - 100) + '"'}


def settlement(bench: Bench, verb: str, held: SettlementBatch, offset: int, change: dict[str, str]) -> Any:
    """Return an operation that changes a message."""
    ranges = [(offset, offset)]
    if verb == "defer":
        return Deferral(bench.ledger, held.lease, ranges, 100, change)
    if verb == "begin":
        return BeginTransfer(bench.ledger, held.lease, ranges, "intent", ORPHAN_MS, change)
    if verb == "prepare":
        return Prepare(bench.ledger, [("abandon", held.lease, ranges, change)], "t", ORPHAN_MS, 100)
    return Settlement(bench.ledger, "abandon", held.lease, ranges, change)


@pytest.mark.parametrize("verb", ["abandon", "defer", "begin", "prepare"])
def test_there_is_a_limit_of_their_bytes(bench: Bench, verb: str) -> None:
    """For one message, as a record of a checkpoint holds it, and for all. Beyond it, nothing is done, and all stays locked."""
    held = bench.claim(20, upto=20)
    one = settlement(bench, verb, held, 0, TOO_LARGE)
    bench.ledger_client.execute(one)
    assert one.too_much == 1_500_000
    for offset in range(16):
        one = settlement(bench, verb, held, offset, LARGE)
        bench.ledger_client.execute(one)
        assert one.too_much is None
    one = settlement(bench, verb, held, 16, LARGE)
    bench.ledger_client.execute(one)
    assert one.too_much == 16 * MIB
    assert bench.settle("complete", held, (16, 19)) == []
    assert len(bench.snapshot_to_keep().changes) == 16


@pytest.mark.parametrize("verb", ["abandon", "defer", "begin", "prepare"])
def test_changes_of_one_message_count_together(bench: Bench, verb: str) -> None:
    """Also before a transaction that would add to them is over."""
    held = bench.claim(1, upto=1)
    bench.settle("abandon", held, change=LARGE)
    again = bench.claim(1)
    one = settlement(bench, verb, again, 0, {"b": LARGE["a"]})
    bench.ledger_client.execute(one)
    assert one.too_much == 1_500_000
    assert bench.settle("complete", again) == []


def test_there_is_room_again_once_they_are_settled(bench: Bench) -> None:
    """At once for those that are completed, else with the next checkpoint."""
    held = bench.claim(20, upto=20)
    for offset in range(16):
        bench.settle("abandon", held, (offset, offset), change=LARGE)
    again = bench.claim(16)
    assert again.offsets == [*range(16)]
    assert bench.settle("complete", again, (0, 0)) == []
    assert bench.settle("abandon", held, (16, 16), change=LARGE) == []
    assert bench.settle("release", again, (1, 15)) == []
    bench.purge(17)
    assert bench.snapshot_to_keep().changes == []
    assert bench.settle("abandon", held, (17, 17), change=LARGE) == []
    assert bench.changes((0, 19)) == {17: LARGE}


def test_a_claim_does_not_settle_what_may_have_changed(bench: Bench) -> None:
    """A rebuilt ledger may know changes of messages that it grants for the first time."""
    bench.lose_everything()
    assert bench.restore(Snapshot(0, 1, changes=[(1, {"a": "1"}, False)]))
    batch = bench.claim(3, upto=3, settle_on_claim=True)
    assert batch.granted.fresh == [(0, 2)]
    assert bench.changes((0, 2)) == {1: {"a": "1"}}
    assert bench.settle("complete", batch) == []
    assert bench.changes((0, 2)) == {}


def test_a_transaction_that_was_rolled_back_leaves_no_change(bench: Bench) -> None:
    """Not to the next one that prepares the message either."""
    held = bench.claim(1, upto=1)
    bench.prepare(("abandon", held, [(0, 0)]), change={"a": "1"})
    bench.resolve((0, 0), committed=False)
    bench.prepare(("abandon", held, [(0, 0)]), transaction="u", change={"b": "2"})
    assert bench.changes((0, 0)) == {}
    bench.resolve((0, 0), transaction="u")
    assert bench.changes((0, 0)) == {0: {"b": "2"}}


def test_changes_that_are_made_again_take_no_more_room(bench: Bench) -> None:
    """A message that is abandoned with the same change again and again, say."""
    for _ in range(40):
        assert bench.settle("abandon", bench.claim(1, upto=1), change=LARGE) == []
    assert bench.changes((0, 0)) == {0: LARGE}


def test_a_change_after_a_commit_while_a_checkpoint_is_taken_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's does not come over it."""
    bench.prepare(("abandon", bench.claim(1, upto=1), [(0, 0)]), change={"a": "1"})
    keep = TakeSnapshot(bench.ledger)
    bench.ledger_client.execute(keep)
    read = bench.ledger_client.changed_properties

    def read_and_commit(*args: Any, **more: Any) -> dict[int, dict[str, str]]:
        found = read(*args, **more)
        monkeypatch.undo()
        bench.resolve((0, 0))
        bench.settle("abandon", bench.claim(1), change={"a": "2"})
        return found

    monkeypatch.setattr(bench.ledger_client, "changed_properties", read_and_commit)
    bench.ledger_client.add_changes([keep])
    assert bench.changes((0, 0)) == {0: {"a": "2"}}
    assert keep.snapshot.after(lambda _: True, []).changes == [(0, {"a": "2"}, False)]


def test_a_commit_while_a_checkpoint_is_taken_loses_no_change(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are read after the snapshot, and a commit moves a change from one field to another."""
    held = bench.claim(1, upto=1)
    bench.prepare(("abandon", held, [(0, 0)]), change={"a": "1"})
    keep = TakeSnapshot(bench.ledger)
    bench.ledger_client.execute(keep)
    read = bench.ledger_client.changed_properties

    def read_and_commit(*args: Any, **more: Any) -> dict[int, dict[str, str]]:
        found = read(*args, **more)
        bench.resolve((0, 0))
        return found

    monkeypatch.setattr(bench.ledger_client, "changed_properties", read_and_commit)
    bench.ledger_client.add_changes([keep])
    assert keep.snapshot.after(lambda _: True, []).changes == [(0, {"a": "1"}, False)]
