"""A ledger is written down, and made again from its checkpoint."""

from __future__ import annotations

from tests.integration.ledger.bench import LOCK_MS, Bench


def prepared(bench: Bench) -> None:
    """Have a message in each state.

    0 completed, 1 returned, 2 leased, 3 renewed, 4 deferred, 5 deferred and locked, 6 moving, 7 moved, 8 not granted.
    """
    held = bench.claim(8, upto=12)
    bench.settle("complete", held, (0, 0))
    bench.settle("abandon", held, (1, 1))
    bench.settle("renew", held, (3, 3))
    bench.settle("defer", held, (4, 5))
    bench.recall((5, 5))
    bench.begin(held, (6, 7), intent="there|and:back")
    bench.moved(7, 70)
    bench.skip(9)
    bench.seize((10, 10))


def test_all_that_is_not_settled_is_written_down(bench: Bench) -> None:
    """A delivery under way is counted, because its lock is lost with Redis."""
    prepared(bench)
    snapshot = bench.snapshot_to_keep()
    assert (snapshot.cursor, snapshot.watermark, snapshot.has_message_ttl) == (8, 1, False)
    assert snapshot.waiting == [(1, 3, 1)]
    assert snapshot.deferred == [(4, 4, 0), (5, 5, 1)]
    assert snapshot.moving == [(6, 0, "there|and:back")]
    assert snapshot.skipped == [9]


def test_a_ledger_made_anew_holds_what_was_written_down(bench: Bench) -> None:
    """Nothing is lost, and no settled message comes again; the next receiver finishes transfers."""
    prepared(bench)
    snapshot = bench.snapshot_to_keep()
    before = bench.in_flight
    bench.lose_everything()
    assert bench.restore(snapshot)
    # Messages that were seized beyond the cursor wait again.
    assert (bench.cursor, bench.in_flight) == (8, before - 1)
    assert bench.snapshot_to_keep().version > snapshot.version
    assert bench.adopt() == [6]
    assert bench.moved(6, 60) == 60
    assert bench.recall((4, 5))[0].counts == {4: 0, 5: 1}
    assert bench.claim(10, upto=12).counts == {1: 1, 2: 1, 3: 1, 8: 0, 10: 0, 11: 0}


def test_a_ledger_that_is_there_is_left_alone(bench: Bench) -> None:
    """The first client that made the ledger again counts."""
    held = bench.claim(2, upto=2)
    snapshot = bench.snapshot_to_keep()
    bench.settle("complete", held)
    assert not bench.restore(snapshot)
    bench.pass_time(LOCK_MS + 1)
    assert bench.drain(2) == {}


def test_what_a_script_that_died_left_behind_is_removed(bench: Bench) -> None:
    """A ledger without its head does not exist."""
    bench.claim(2, upto=2)
    snapshot = bench.snapshot_to_keep()
    bench.store.delete(bench.keys.meta)
    assert bench.restore(snapshot)
    assert bench.drain(2) == {0: 1, 1: 1}
    assert (bench.in_flight, bench.store.exists(*bench.keys.shared[1:])) == (0, 0)


def test_the_mark_of_times_to_live_is_kept(bench: Bench) -> None:
    """Messages in the log bring the mark with them still."""
    bench.store.hset(bench.keys.meta, "has_message_ttl", "1")
    snapshot = bench.snapshot_to_keep()
    bench.lose_everything()
    bench.restore(snapshot)
    (state,) = bench.ledger_client.states([bench.ledger])
    assert state is not None
    assert state.has_message_ttl
