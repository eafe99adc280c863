"""Duplicate detection in the ledger: the window's edges, the kept ids, and a ledger that is made again."""

from __future__ import annotations

from kafkabus._ledger.operations import Claim, DetectDuplicates, Seen, Seize
from kafkabus._ledger.ranges import offsets_of
from tests.integration.ledger.bench import LOCK_MS, WINDOW_MS, Bench

NOON = 1_700_000_000_000
"""When the tests begin, ms since 1970."""


def dedup_upto(bench: Bench, *records: tuple[int, str, int]) -> list[int]:
    """Have the ledger see records one by one; return the duplicates that are known then."""
    for offset, name, at in records:
        assert not bench.detect_duplicates(offset, offset + 1, [(offset, name, NOON + at)]).ahead
    return duplicates(bench)


def duplicates(bench: Bench) -> list[int]:
    """Return the known duplicates."""
    return offsets_of(bench.snapshot_to_keep().duplicates)


def test_the_window_counts_from_the_first_of_an_id(detecting: Bench) -> None:
    """It does not count from a duplicate. At its end an id is new."""
    records = [(0, "a", 0), (1, "a", WINDOW_MS - 1), (2, "a", WINDOW_MS), (3, "a", 2 * WINDOW_MS - 1)]
    assert dedup_upto(detecting, *records) == [1, 3]


def test_ids_are_dropped_when_the_window_is_over(detecting: Bench) -> None:
    """No more are kept than the window has, and a third of it, however many come."""
    step = WINDOW_MS // 100
    for offset in range(1000):
        dedup_upto(detecting, (offset, f"id {offset}", offset * step))
    kept = sum(detecting.store.hlen(key) for key in detecting.keys.shared[-4:])
    assert 100 <= kept <= 140


def test_a_window_that_was_made_longer_counts_from_then_on(detecting: Bench) -> None:
    """Messages that the shorter window still held are not dropped."""
    dedup_upto(detecting, (0, "a", 0))
    for offset in range(1, 50):
        at = offset * WINDOW_MS // 3
        assert not detecting.detect_duplicates(
            offset, offset + 1, [(offset, f"{offset}", NOON + at)], window_ms=20 * WINDOW_MS
        ).ahead
    again = [(50, "a", NOON + 17 * WINDOW_MS)]
    assert not detecting.detect_duplicates(50, 51, again, window_ms=20 * WINDOW_MS).ahead
    assert duplicates(detecting) == [50]


def test_a_duplicate_is_not_taken_for_a_first_one_by_a_ledger_made_anew(detecting: Bench) -> None:
    """The first one lies before the records that are read once more."""
    records = [(0, "a", 0), (1, "a", WINDOW_MS - 1), (2, "b", WINDOW_MS)]
    assert dedup_upto(detecting, *records) == [1]
    snapshot = detecting.snapshot_to_keep()
    detecting.lose_everything()
    assert detecting.restore(snapshot, window_start=1)
    assert detecting.claim(9, start=0, upto=3).granted.fresh == []
    again = [*records[1:], (3, "b", WINDOW_MS + 1), (4, "a", WINDOW_MS + 2)]
    assert dedup_upto(detecting, *again) == [1, 3]
    assert detecting.claim(9, start=0, upto=5).granted.fresh == [(0, 0), (2, 2), (4, 4)]


def test_copies_of_one_message_are_no_duplicates_of_each_other(detecting: Bench) -> None:
    """The mover of the message skips all copies but one; a copy of another message is a duplicate."""
    detecting.detect_duplicates(
        0, 3, [(0, "a", NOON, "source"), (1, "a", NOON + 1, "source"), (2, "a", NOON + 2, "other")]
    )
    assert duplicates(detecting) == [2]


def test_a_log_that_was_cut_below_what_was_judged_is_noticed(detecting: Bench) -> None:
    """Results for the records that it held before do not hold for the new records, even after Redis was lost."""
    detecting.detect_duplicates(0, 3, [(offset, "a", NOON) for offset in range(3)], epochs=[(0, 1), (2, 4)])
    assert duplicates(detecting) == [1, 2]
    snapshot = detecting.snapshot_to_keep()
    for made_anew in (False, True):
        if made_anew:
            detecting.lose_everything()
            assert detecting.restore(snapshot, window_start=0)
        assert detecting.detect_duplicates(0, 2, [], epochs=[(0, 1)]).log_truncated is None
        log_truncated = detecting.detect_duplicates(1, 2, [(1, "b", NOON)], epochs=[(1, 5)])
        assert (log_truncated.log_truncated, duplicates(detecting)) == (4, [1, 2])
    # Another leader's records behind the scanned ones are no sign of it.
    detecting.detect_duplicates(2, 3, [], epochs=[(2, 4)])
    assert detecting.detect_duplicates(3, 5, [(3, "c", NOON)], epochs=[(3, 5)]).log_truncated is None


def test_nothing_is_granted_in_the_same_request_where_the_log_was_cut(detecting: Bench) -> None:
    """Messages are neither claimed nor seized."""
    detecting.detect_duplicates(0, 5, [], epochs=[(0, 1)])
    ledger = detecting.ledger
    claim = Claim(ledger, "aa" * 8, want=2, lock_ms=LOCK_MS, seen=Seen(0, 2, [(0, 1)]))
    seize = Seize(ledger, "bb" * 8, [(0, 1)], LOCK_MS, Seen(0, 2, ()))
    detecting.ledger_client.execute(DetectDuplicates(ledger, 2, 2, [], [(0, 2)], WINDOW_MS), claim, seize)
    assert (claim.granted.fresh, seize.again, detecting.cursor) == ([], [], 0)


def test_what_is_not_judged_is_not_seized(detecting: Bench) -> None:
    """A duplicate does not expire, and the cursor does not pass it."""
    detecting.detect_duplicates(0, 2, [])
    assert detecting.seize((0, 3), seen=(0, 4)).offsets == [0, 1]
    assert detecting.cursor == 0


def test_a_scheduled_message_that_was_not_scanned_is_not_activated(detecting: Bench) -> None:
    """Its copy may be stored after the window: if it were a duplicate, the ledger would not find that."""
    detecting.schedule([(0, NOON), (1, NOON)])
    assert detecting.activate() == []
    dedup_upto(detecting, (0, "a", 0), (1, "a", 1))
    assert detecting.activate() == [0]
