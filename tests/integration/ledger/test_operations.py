"""The ledger's operations one by one, on a real Redis."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import cast

import pytest
import redis

from kafkabus._ledger.operations import Claim, Seen, Seize, Settlement, Tail
from kafkabus.exceptions import LedgerError
from kafkabus.testing.store import MemoryRedis, Store
from tests.integration.ledger import bench as ledger_bench
from tests.integration.ledger.bench import DEFERRED_LIMIT, LOCK_MS, ORPHAN_MS, Bench, Full

pytestmark = pytest.mark.core


def test_a_claim_grants_what_was_read_and_moves_the_cursor(bench: Bench) -> None:
    """It grants from the cursor on, and at most the wanted number."""
    held = bench.claim(3, upto=10)
    assert (held.offsets, held.granted.cursor, bench.in_flight) == ([0, 1, 2], 3, 3)
    held = bench.claim(100, upto=10)
    assert (held.offsets, bench.cursor) == ([3, 4, 5, 6, 7, 8, 9], 10)
    assert bench.claim(100, upto=10).offsets == []


def test_nothing_is_jumped_over(bench: Bench) -> None:
    """A client that read only from beyond the cursor is granted nothing, and the reply says that it is ahead."""
    held = bench.claim(5, start=3, upto=10)
    assert (held.granted.ahead, held.offsets, bench.cursor) == (True, [], 0)


def test_who_lags_behind_is_told_where_the_cursor_is(bench: Bench) -> None:
    """Messages that others were granted are left out; messages beyond the cursor are granted."""
    bench.claim(5, upto=10)
    assert bench.another().claim(10, start=0, upto=4).offsets == []
    assert bench.another().claim(10, start=0, upto=10).offsets == [5, 6, 7, 8, 9]


def test_holes_are_skipped_and_never_delivered(bench: Bench) -> None:
    """The cursor passes them; neither completion nor expiry brings them back."""
    held = bench.claim(10, start=0, upto=10, runs=[(1, 2), (5, 5)])
    assert (held.offsets, bench.cursor, bench.in_flight) == ([1, 2, 5], 10, 3)
    assert bench.drain(10) == {1: 1, 2: 1, 5: 1}


def test_the_cursor_waits_before_the_first_message_not_granted(bench: Bench) -> None:
    """The cursor passes holes behind the last granted message only together with the message that follows them."""
    assert bench.claim(2, start=0, upto=10, runs=[(0, 1), (5, 5)]).granted.cursor == 5
    assert bench.claim(1, start=5, upto=10, runs=[(5, 5)]).granted.cursor == 10
    assert bench.claim(0, start=10, upto=12, runs=[]).granted.cursor == 12


def test_completing_takes_out_what_it_names(bench: Bench) -> None:
    """Ranges are completed whole, in parts, or twice. Missing offsets are reported, and nothing changes for them."""
    held = bench.claim(10, upto=10)
    assert bench.settle("complete", held, (2, 4)) == []
    assert bench.settle("complete", held, (0, 5)) == [(2, 4)]
    assert bench.settle("complete", held, (8, 12)) == [(10, 12)]
    assert (bench.in_flight, bench.store.hlen(bench.keys.shared[1])) == (2, 1)
    assert bench.settle("complete", held, (6, 7)) == []
    assert bench.settle("complete", held, (6, 7)) == [(6, 7)]
    assert (bench.in_flight, bench.store.exists(*bench.keys.shared[1:])) == (0, 0)


def test_a_made_up_lease_settles_nothing(bench: Bench) -> None:
    """The token of another delivery is refused."""
    held = bench.claim(2, upto=2)
    held.lease = "0" * 16
    assert bench.settle("complete", held) == [(0, 1)]
    assert bench.drain(2) == {0: 1, 1: 1}


def test_abandoned_and_released_messages_come_back(bench: Bench) -> None:
    """An abandoned one is counted, a released one is not. They come oldest first, before any new message."""
    held = bench.claim(4, upto=4)
    assert bench.settle("abandon", held, (2, 3)) == []
    assert bench.settle("release", held, (0, 0)) == []
    again = bench.claim(10, upto=6)
    assert again.counts == {0: 0, 2: 1, 3: 1, 4: 0, 5: 0}
    assert bench.settle("complete", held, (2, 3)) == [(2, 3)]
    assert bench.settle("complete", again) == []


def test_a_release_of_the_rest_gives_back_all_that_is_left(bench: Bench) -> None:
    """Without ranges it releases whatever the lease still holds."""
    held = bench.claim(5, upto=5)
    bench.settle("complete", held, (1, 1))
    bench.ledger_client.execute(Settlement(bench.ledger, "release", held.lease, None))
    assert bench.claim(10).counts == {0: 0, 2: 0, 3: 0, 4: 0}


def test_an_expired_lease_comes_back_as_a_range(bench: Bench) -> None:
    """A range of any size takes one entry; each delivery counts, and settled messages are left out."""
    held = bench.claim(2000, upto=2000)
    bench.settle("complete", held, (500, 500))
    bench.pass_time(LOCK_MS + 1)
    assert bench.settle("complete", held, (0, 10)) == [(0, 10)]
    assert bench.claim(0).granted.redeliverable == 2
    again = bench.claim(600)
    assert (again.granted.again, again.granted.redeliverable) == ([(0, 499, 1), (501, 600, 1)], 1)


def test_a_renewed_message_outlives_the_rest_of_its_lease(bench: Bench) -> None:
    """Its token stays. Other messages expire and come back, and the renewed one may be renewed again."""
    held = bench.claim(6, upto=6)
    bench.pass_time(LOCK_MS // 2)
    assert bench.settle("renew", held, (2, 3)) == []
    bench.pass_time(LOCK_MS // 2)
    assert bench.claim(10).counts == {0: 1, 1: 1, 4: 1, 5: 1}
    assert bench.settle("complete", held, (0, 2)) == [(0, 1)]
    assert bench.settle("renew", held, (3, 3)) == []
    bench.pass_time(LOCK_MS - 5000)
    assert bench.settle("renew", held, (3, 3)) == []
    bench.pass_time(LOCK_MS)
    assert bench.settle("renew", held, (3, 3)) == [(3, 3)]
    assert bench.drain(6) == {0: 2, 1: 2, 3: 1, 4: 2, 5: 2}


def test_messages_renewed_one_by_one_and_settled_meanwhile_stay_one_by_one(bench: Bench) -> None:
    """Each has its own expiry, whichever messages around it were completed."""
    held = bench.claim(8, upto=8)
    for offset in (1, 3, 5):
        bench.pass_time(1000)
        assert bench.settle("renew", held, (offset, offset)) == []
        assert bench.settle("complete", held, (offset + 1, offset + 1)) == []
    assert bench.settle("renew", held, (0, 7)) == [(2, 2), (4, 4), (6, 6)]
    bench.pass_time(LOCK_MS - 5000)
    assert bench.settle("complete", held, (0, 7)) == [(2, 2), (4, 4), (6, 6)]
    assert (bench.in_flight, bench.store.exists(*bench.keys.shared[1:])) == (0, 0)


def test_the_next_expiry_is_known_after_a_renewal(bench: Bench) -> None:
    """A claim names the time of the next useful claim, not the time that was put off for long."""
    held = bench.claim(1, upto=1)
    bench.pass_time(LOCK_MS - 1000)
    bench.settle("renew", held)
    due = bench.claim(0).granted.due_in
    assert due is not None
    assert due > LOCK_MS / 1000 - 5


def test_a_deferred_message_is_had_by_offset_only(bench: Bench) -> None:
    """It is not granted again, counts as held, and comes back under its own lock. Its first token is over."""
    held = bench.claim(3, upto=3)
    assert bench.settle("defer", held, (1, 1)) == []
    assert bench.settle("complete", held, (0, 2)) == [(1, 1)]
    assert (bench.drain(3), bench.in_flight) == ({}, 1)
    again, missing = bench.recall((1, 1))
    assert (missing, again.counts) == ([], {1: 0})
    assert bench.recall((1, 1))[1] == [(1, 1)]
    assert bench.settle("complete", again) == []
    assert (bench.in_flight, bench.store.exists(*bench.keys.shared[1:])) == (0, 0)


def test_a_deferred_message_goes_back_to_where_it_was(bench: Bench) -> None:
    """Abandoned or expired, it is deferred still, with one delivery counted. Released, it is deferred, uncounted."""
    held = bench.claim(3, upto=3)
    bench.settle("defer", held)
    again, _ = bench.recall((0, 2))
    assert bench.settle("abandon", again, (0, 0)) == []
    assert bench.settle("release", again, (1, 1)) == []
    bench.expire()
    assert bench.drain(3) == {}
    assert bench.recall((0, 2))[0].counts == {0: 1, 1: 0, 2: 1}


def test_deferred_messages_are_had_together_or_not_at_all(bench: Bench) -> None:
    """A missing one leaves the others as they were."""
    held = bench.claim(3, upto=3)
    bench.settle("defer", held, (0, 1))
    assert bench.recall((0, 2))[1] == [(2, 2)]
    assert bench.recall((0, 1))[1] == []


def test_a_ledger_defers_so_many_and_no_more(bench: Bench) -> None:
    """A deferral that exceeds the limit is refused as a whole, and its messages stay locked."""
    held = bench.claim(DEFERRED_LIMIT + 1, upto=100)
    bench.settle("defer", held, (0, DEFERRED_LIMIT - 2))
    with pytest.raises(Full):
        bench.settle("defer", held, (DEFERRED_LIMIT - 1, DEFERRED_LIMIT))
    assert bench.settle("defer", held, (DEFERRED_LIMIT, DEFERRED_LIMIT)) == []
    assert bench.settle("complete", held, (DEFERRED_LIMIT - 1, DEFERRED_LIMIT - 1)) == []


def test_what_waits_can_be_seized_wherever_it_waits(bench: Bench) -> None:
    """Messages wait if they were given back or deferred, or never granted; locked and settled ones stay as they are."""
    held = bench.claim(6, upto=6)
    bench.settle("complete", held, (0, 0))
    bench.settle("abandon", held, (1, 3))
    bench.settle("defer", held, (4, 4))
    seized = bench.seize((0, 0), (2, 2), (4, 7))
    assert seized.counts == {2: 1, 4: 0, 6: 0, 7: 0}
    assert (bench.cursor, bench.in_flight) == (6, 7)
    assert bench.claim(10, upto=10).counts == {1: 1, 3: 1, 8: 0, 9: 0}
    assert bench.settle("complete", seized, (2, 2), (6, 6)) == []
    bench.expire()
    assert bench.recall((4, 4))[0].counts == {4: 1}
    assert bench.drain(10) == {1: 2, 3: 2, 5: 1, 7: 1, 8: 1, 9: 1}


def test_seizing_all_that_was_read_moves_the_cursor(bench: Bench) -> None:
    """Holes are passed, and the cursor passes no message that the seizer has not seen."""
    bench.skip(2)
    seized = bench.seize((0, 0), (2, 4), seen=(0, 6))
    assert (seized.offsets, bench.cursor, bench.in_flight) == ([0, 3, 4], 6, 3)
    seized = bench.seize((9, 9), seen=(8, 12))
    assert (seized.offsets, bench.cursor) == ([9], 6)
    assert bench.claim(10, upto=10).offsets == [6, 7, 8]


def test_what_was_seized_beyond_the_cursor_and_expired_comes_once(bench: Bench) -> None:
    """It comes once, before and after the cursor passes it."""
    bench.seize((3, 3))
    bench.expire()
    assert bench.claim(1).counts == {3: 1}
    bench.expire()
    assert bench.claim(10, upto=5).counts == {0: 0, 1: 0, 2: 0, 3: 2, 4: 0}
    assert bench.in_flight == 5


def test_what_was_delivered_too_often_can_be_seized(bench: Bench) -> None:
    """No other message is seized."""
    held = bench.claim(4, upto=4)
    bench.settle("abandon", held, (1, 2))
    again = bench.claim(1, upto=4)
    bench.settle("abandon", again)
    assert bench.seize_hopeless(3).offsets == []
    assert bench.seize_hopeless(2).counts == {1: 2}
    assert bench.seize_hopeless(1).counts == {2: 1}


def test_looking_shows_everything_that_is_not_settled(bench: Bench) -> None:
    """It shows locked, deferred and returned messages, by offset, and the cursor."""
    bench.skip(9)
    held = bench.claim(8, upto=8)
    bench.settle("complete", held, (0, 1))
    bench.settle("abandon", held, (2, 3))
    bench.settle("defer", held, (5, 5))
    before = bench.snapshot()
    peek = bench.peek(3, 10)
    assert bench.snapshot() == before
    assert [(one.first, one.last, one.deferred, one.count) for one in peek.found] == [
        (3, 3, False, 1),
        (4, 4, False, 0),
        (5, 5, True, 0),
        (6, 7, False, 0),
    ]
    assert (peek.cursor, peek.skipped) == (8, {9})
    assert [(one.first, one.last) for one in bench.peek(0, 3).found] == [(2, 3), (4, 4)]


def test_figures_count_what_is_not_settled(bench: Bench) -> None:
    """They count deferred and returned messages apart, and records that no claim grants; they change nothing."""
    bench.skip(9)
    held = bench.claim(8, upto=8)
    bench.settle("complete", held, (0, 1))
    bench.settle("abandon", held, (2, 3))
    bench.settle("defer", held, (5, 5))
    before = bench.snapshot()
    figures = bench.figures()
    assert bench.snapshot() == before
    assert (figures.cursor, figures.in_flight, figures.skipped) == (8, 6, 1)
    assert (figures.deferred, figures.waiting, figures.locked, figures.returned) == (1, 2, 3, 2)
    bench.settle("release", bench.claim(1))
    bench.pass_time(LOCK_MS + 1)
    bench.claim(1)
    assert bench.figures().returned == 5


def test_a_purge_settles_what_waits_and_nothing_else(bench: Bench) -> None:
    """Returned and new messages go, in as many calls as it takes. Leased and deferred ones stay."""
    held = bench.claim(9, upto=9)
    bench.settle("abandon", held, (0, 1))
    bench.settle("release", held, (3, 5))
    bench.settle("defer", held, (6, 6))
    purge = bench.purge(5, limit=1)
    assert (purge.purged, purge.more) == (2, True)
    purge = bench.purge(5, limit=2)
    assert (purge.purged, purge.more, bench.in_flight) == (2, False, 5)
    assert (bench.purge(20).purged, bench.cursor, bench.in_flight) == (12, 20, 4)
    assert bench.drain(20) == {2: 1, 7: 1, 8: 1}


def test_no_more_than_a_limit_is_in_flight(bench: Bench) -> None:
    """Only new messages wait. A message that was granted before is granted again, so that it can be settled."""
    first = bench.claim(10, upto=20, limit=6)
    assert (first.offsets, first.granted.cursor, first.granted.limited) == ([0, 1, 2, 3, 4, 5], 6, True)
    assert bench.claim(10, upto=20, limit=6).granted.limited
    bench.settle("abandon", first, (0, 1))
    again = bench.claim(10, upto=20, limit=6)
    assert (again.counts, again.granted.cursor, again.granted.limited) == ({0: 1, 1: 1}, 6, True)
    bench.settle("complete", again)
    more = bench.claim(10, upto=20, limit=6)
    assert (more.offsets, more.granted.limited) == ([6, 7], True)
    bench.settle("defer", first, (2, 3))
    assert bench.claim(10, upto=20, limit=6).offsets == [8, 9]
    assert bench.claim(10, upto=20, limit=6, settle_on_claim=True).offsets == list(range(10, 20))
    assert not bench.claim(10, upto=20, limit=6).granted.limited


def test_what_is_claimed_ahead_is_leased_unseen(bench: Bench) -> None:
    """The claim leases as many offsets as are wanted, up to the log's end, without skipped ones."""
    bench.skip(3)
    held = bench.claim(5, ahead=Tail(6, 7))
    assert (held.granted.fresh, held.granted.cursor, bench.state.epoch) == ([(0, 2), (4, 4)], 5, 7)
    rest = bench.claim(5, ahead=Tail(6, 7))
    assert (rest.granted.fresh, rest.granted.cursor) == ([(5, 5)], 6)
    late = bench.claim(5, ahead=Tail(6, 7))
    assert (late.offsets, late.granted.cursor, late.granted.ahead) == ([], 6, False)
    bench.settle("release", held)
    assert bench.claim(6, ahead=Tail(9, 7)).counts == {0: 0, 1: 0, 2: 0, 4: 0, 6: 0, 7: 0}


def test_nothing_is_claimed_ahead_of_another_leader(bench: Bench) -> None:
    """The log may have been truncated before the cursor, and have grown beyond it again."""
    bench.claim(2, upto=4, epoch=7)
    for tail in (Tail(9, 8), Tail(9)):
        held = bench.claim(5, ahead=tail)
        assert (held.offsets, held.granted.cursor, held.granted.epoch_mismatch, bench.state.epoch) == ([], 2, True, 7)
    held = bench.claim(5, ahead=Tail(9, 7))
    assert (held.offsets, held.granted.epoch_mismatch) == ([2, 3, 4, 5, 6], False)
    bench.claim(1, upto=8)
    assert bench.claim(5, ahead=Tail(9, 8)).granted.epoch_mismatch
    bench.claim(1, upto=9, epoch=8)
    assert bench.claim(5, ahead=Tail(10, 8)).offsets == [9]


def test_a_leader_is_remembered_behind_offsets_without_a_message(bench: Bench) -> None:
    """The epoch of the record right before the cursor is not known then, but the log's earlier leader is."""
    bench.claim(5, upto=4, runs=[(0, 2)], epoch=7)
    assert (bench.cursor, bench.state.epoch) == (4, None)
    assert bench.claim(5, ahead=Tail(9, 8)).granted.epoch_mismatch
    assert bench.claim(5, ahead=Tail(9, 7)).offsets == [4, 5, 6, 7, 8]


def test_a_claim_knows_when_the_next_lease_expires(bench: Bench) -> None:
    """An idle receiver therefore asks again in time."""
    assert bench.claim(0).granted.due_in is None
    bench.claim(1, upto=1)
    due = bench.claim(0).granted.due_in
    assert due is not None
    assert LOCK_MS / 1000 - 5 < due <= LOCK_MS / 1000


def test_taking_settles_what_is_new_and_leases_what_came_back(bench: Bench) -> None:
    """In receive-and-delete mode new messages leave no trace. Those to be read again are held until they are read."""
    bench.settle("abandon", bench.claim(1, upto=1))
    held = bench.claim(5, upto=4, settle_on_claim=True)
    assert (held.granted.again, held.granted.fresh, bench.in_flight) == ([(0, 0, 1)], [(1, 3)], 1)
    assert bench.drain(4) == {0: 2}


def test_a_lease_id_claimed_twice_keeps_both_grants(bench: Bench) -> None:
    """A request may fail half-way and be made again: the messages that the lease held expire and do not vanish."""
    bench.claim(2, upto=10, lease="ab" * 8)
    bench.claim(2, upto=10, lease="ab" * 8)
    assert bench.drain(4) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_repeated_request_has_the_same_reply_and_no_effect(bench: Bench) -> None:
    """That is the case when the first reply was lost."""
    claim = Claim(bench.ledger, "aa" * 8, want=3, lock_ms=LOCK_MS, seen=Seen(0, 10, [(0, 9)]))
    first = bench.send(7, claim)
    before = bench.snapshot()
    assert bench.send(7, claim) == first
    assert bench.snapshot() == before
    assert bench.cursor == 3


def test_a_late_copy_of_a_request_is_refused(bench: Bench) -> None:
    """Once a later request was served, a copy of an earlier one changes nothing."""
    claim = Claim(bench.ledger, "aa" * 8, want=3, lock_ms=LOCK_MS, seen=Seen(0, 10, [(0, 9)]))
    bench.send(1, claim)
    abandon = Settlement(bench.ledger, "abandon", "aa" * 8, [(0, 2)])
    bench.send(2, abandon)
    again = Claim(bench.ledger, "bb" * 8, want=3, lock_ms=LOCK_MS)
    bench.send(3, again)
    before = bench.snapshot()
    for number, operation in ((1, claim), (2, abandon)):
        assert bench.send(number, operation) == {"status": "stale"}
    assert bench.snapshot() == before


def test_settlements_go_before_claims(bench: Bench) -> None:
    """If one caller gives a message back, another caller's claim in the same round trip gets it."""
    held = bench.claim(1, upto=1)
    claim = Claim(bench.ledger, "cc" * 8, want=5, lock_ms=LOCK_MS)
    abandon = Settlement(bench.ledger, "abandon", held.lease, [(0, 0)])
    bench.ledger_client.execute(claim, abandon)
    assert claim.granted.again == [(0, 0, 1)]


def test_a_transfer_ends_once_and_the_first_end_counts(bench: Bench) -> None:
    """It is held until its end. Later ends learn the winner, and forgotten ones learn nothing."""
    held = bench.claim(2, upto=2)
    assert bench.begin(held, (0, 0)) == []
    assert bench.begin(held, (0, 0)) == [(0, 0)]
    assert bench.settle("complete", held, (0, 0)) == [(0, 0)]
    assert bench.in_flight == 2
    assert bench.moved(0, 77) == 77
    assert bench.moved(0, 99) == 77
    assert (bench.moved(1, 5), bench.in_flight) == (None, 1)
    bench.pass_time(120_001)
    assert bench.claim(0).granted.moves
    assert bench.adopt() == []
    assert bench.moved(0, 99) is None


def test_a_late_transfer_is_adopted_by_one(bench: Bench) -> None:
    """No client adopts it before its time, and then only one does."""
    bench.begin(bench.claim(3, upto=3), (0, 1))
    assert not bench.claim(0).granted.moves
    assert bench.adopt() == []
    bench.pass_time(ORPHAN_MS)
    assert bench.claim(0).granted.moves
    assert bench.adopt() == [0, 1]
    assert bench.another().adopt() == []
    bench.pass_time(ORPHAN_MS)
    assert bench.another().adopt() == [0, 1]


def test_a_refused_copy_is_noted_until_its_transfer_ends(bench: Bench) -> None:
    """It is new once. The messages of a log that is granted in order wait for other transfers, and not for this one."""
    bench.begin(bench.claim(3, upto=5), (0, 2))
    assert not bench.refused(3, 7), "it is not moving"
    assert [bench.refused(offset, 7) for offset in (0, 0, 1)] == [True, False, True]
    bench.pass_time(max(LOCK_MS, ORPHAN_MS) + 1)
    assert bench.claim(1, exclusive=True).granted.limited
    assert bench.adopt() == [0, 1, 2]
    assert [bench.refused(0, 8), bench.refused(2, 9)] == [False, True]
    assert dict(bench.figures().refused) == {0: 8, 1: 7, 2: 9}
    assert bench.claim(1, upto=5, exclusive=True).offsets == [3]
    bench.moved(0, 77)
    bench.retreat(1, "intent")
    assert bench.figures().refused == ((2, 9),)
    kept = bench.snapshot_to_keep()
    bench.lose_everything()
    assert bench.restore(kept)
    assert bench.figures().refused == ()


def test_as_many_late_transfers_are_noted_as_requests_can_bear(bench: Bench) -> None:
    """Each request reads the notes."""
    bench.begin(bench.claim(103, upto=103), (0, 102))
    assert [bench.refused(offset, 7) for offset in range(101)] == [True] * 100 + [False]
    assert len(bench.figures().refused) == 100
    bench.moved(0, 77)
    assert bench.refused(101, 7)


def test_a_void_record_is_never_granted(bench: Bench) -> None:
    """The record may lie beyond the cursor or be given back; a locked one stays its receiver's."""
    assert bench.skip(2)
    assert bench.skip(4)
    held = bench.claim(3, upto=5)
    assert (held.offsets, bench.cursor) == ([0, 1, 3], 5)
    assert not bench.skip(0)
    bench.settle("abandon", held)
    assert bench.skip(1)
    assert bench.skip(3)
    assert (bench.drain(5), bench.in_flight) == ({0: 1}, 0)


def test_giving_back_rings_the_bell(bench: Bench) -> None:
    """The message has the partition's number."""
    listening = bench.store.pubsub(ignore_subscribe_messages=True)
    listening.subscribe(bench.ledger.channel)
    while listening.get_message(timeout=5) is not None:
        pass
    held = bench.claim(1, upto=1)
    bench.settle("abandon", held)
    heard = listening.get_message(timeout=5)
    listening.close()
    assert heard is not None
    assert heard["data"] == "0"


def test_a_missing_ledger_says_so(bench: Bench) -> None:
    """A script never creates a ledger."""
    bench.store.delete(bench.keys.meta)
    assert bench.send(1, Claim(bench.ledger, "aa" * 8, want=1, lock_ms=1)) == {"status": "missing"}


def test_creation_leaves_a_ledger_alone_that_is_there(bench: Bench) -> None:
    """The operation creates a ledger only if it is absent."""
    bench.claim(5, upto=5)
    assert not bench.ledger_client.create(bench.ledger, 0)
    assert bench.cursor == 5


def test_a_broken_script_is_an_error_for_its_callers_alone(bench: Bench) -> None:
    """The next request goes through."""
    bench.break_after(1)
    with pytest.raises(LedgerError, match="injected fault"):
        bench.claim(1, upto=1)
    bench.break_after(0)
    assert bench.claim(1, upto=1).offsets == [0]


def test_offsets_beyond_what_lua_prints_stay_exact(bench: Bench) -> None:
    """Lua's own conversion keeps 14 digits; offsets have up to 15."""
    far = (1 << 47) - 10
    bench.store.hset(bench.keys.meta, "cursor", far)
    held = bench.claim(3, start=far, upto=far + 5, runs=[(far, far + 4)])
    assert held.offsets == [far, far + 1, far + 2]
    assert bench.settle("abandon", held, (far + 1, far + 1)) == []
    assert bench.claim(1).granted.again == [(far + 1, far + 1, 1)]
    assert bench.cursor == far + 3


def test_a_batch_of_500_costs_a_handful_of_commands_and_one_entry(bench: Bench, store: redis.Redis) -> None:
    """Commands inside the scripts count, too. A completed batch leaves nothing behind."""
    bench.settle("complete", bench.claim(1, upto=1))
    empty = sum(store.memory_usage(key) or 0 for key in bench.keys.shared)

    def calls() -> int:
        stats: dict[str, dict[str, int]] = store.info("commandstats")
        return sum(numbers["calls"] for numbers in stats.values())

    cost_of_asking = -(calls() - calls())
    before = calls()
    held = bench.claim(500, start=1, upto=501, runs=[(1, 500)])
    assert len(held.offsets) == 500
    claimed = calls() - before - cost_of_asking
    leased = sum(store.memory_usage(key) or 0 for key in bench.keys.shared)
    before = calls()
    bench.settle("complete", held)
    completed = calls() - before - cost_of_asking
    assert claimed <= 20
    assert completed <= 15
    assert leased - empty < 500
    assert sum(store.memory_usage(key) or 0 for key in bench.keys.shared) <= empty + 64


def test_a_hundred_contenders_win_each_message_once(bench: Bench) -> None:
    """All clients read the same records and claim as fast as they can."""
    total, won, guard = 1000, [], threading.Lock()

    def contend() -> None:
        mine = bench.another()
        while True:
            held = mine.claim(7, start=0, upto=total, runs=[(0, total - 1)])
            if not held.offsets:
                return
            assert mine.settle("complete", held) == []
            with guard:
                won.extend(held.offsets)

    threads = [threading.Thread(target=contend) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(total))
    assert bench.in_flight == 0


class Upkeep:
    """A subscriber of the channel on which ledgers notify upkeep."""

    CHANNEL = "kafkabus:ledgers/$upkeep"

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._listening = store.pubsub(ignore_subscribe_messages=True)
        self._listening.subscribe(self.CHANNEL)

    def told(self) -> list[int]:
        """Return within how many ms upkeep has to look, for each notification since the last call."""
        self._store.publish(self.CHANNEL, "end")
        heard: list[int] = []
        while True:
            message = self._listening.get_message(timeout=60)
            text = "" if message is None else str(message["data"])
            if text == "end":
                return heard
            if text:
                heard.append(int(text.partition(" ")[0]))

    def close(self) -> None:
        """Hear nothing more."""
        self._listening.close()


@pytest.fixture
def upkeep(bench: Bench) -> Iterator[Upkeep]:
    """Upkeep of the ledger, which looks when the test has it look."""
    listening = Upkeep(bench.store)
    yield listening
    listening.close()


def test_upkeep_is_told_of_a_change_once_until_it_looks(bench: Bench, upkeep: Upkeep) -> None:
    """It has 5 s to look. The next notification comes with the first change after a look that found all written down."""
    bench.claim(1, upto=9)
    held = bench.claim(1, upto=9)
    assert upkeep.told() == [5_000]
    assert bench.look("another").due_in == pytest.approx(LOCK_MS / 1000, abs=30)
    bench.settle("complete", held)
    assert upkeep.told() == []
    bench.look(bench.look().changed)
    bench.claim(0, upto=1)
    bench.peek(0, 9)
    assert upkeep.told() == []
    bench.claim(1, upto=9)
    assert upkeep.told() == [5_000]


def test_upkeep_is_told_of_what_is_due_soon(bench: Bench, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is a lock, a transfer or a scheduled message that is due within 5 s."""
    held = bench.claim(1, upto=9)
    monkeypatch.setattr(ledger_bench, "ORPHAN_MS", 4_000)
    monkeypatch.setattr(ledger_bench, "LOCK_MS", 3_000)
    bench.begin(held, (0, 0))
    bench.claim(1, upto=9)
    assert upkeep.told() == [5_000, 4_000, 3_000]
    bench.schedule([(7, held.granted.now + 1_000)])
    (soon,) = upkeep.told()
    assert 0 <= soon <= 1_000
    assert bench.look().due_in == pytest.approx(1.0, abs=30)
    assert bench.is_told()


def test_upkeep_is_told_when_locks_expired(bench: Bench, upkeep: Upkeep) -> None:
    """Messages may have been delivered too often then."""
    bench.claim(1, upto=9)
    bench.store.hset(bench.keys.meta, "look_at", str(1 << 50))
    upkeep.told()
    bench.expire()
    assert upkeep.told() == [0]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_seizure_that_no_caller_has_seen_leaves_its_session_alone(store: redis.Redis, in_memory: bool) -> None:
    """It is undone by its own messages: the session's lease holds those that its receiver has."""
    side = cast("redis.Redis", MemoryRedis(Store(lambda: 1_000_000))) if in_memory else store
    bench = Bench(side, uuid.uuid4().hex, sessions=True)
    bench.file({"a": [0, 1, 2]}, upto=3)
    lease = bench.accept("a").lease
    assert bench.next(lease, 1).again == [(0, 0, 0)]
    seize = Seize(bench.ledger, lease, [(2, 2)], LOCK_MS, session=lease)
    bench.ledger_client.execute(seize)
    assert seize.again == [(2, 2, 0, False)]
    bench.ledger_client.execute(seize.undo())
    complete = Settlement(bench.ledger, "complete", lease, [(0, 0)])
    bench.ledger_client.execute(complete)
    assert complete.lost == []
    assert bench.next(lease, 9).again == [(1, 2, 0)]
