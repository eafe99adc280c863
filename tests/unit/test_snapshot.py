"""Snapshots of ledgers are split into blocks and joined again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus._ledger.ranges import Counted
from kafkabus._ledger.snapshot import Snapshot, Written, denies, read_snapshot, with_delays
from kafkabus._ledger.verbs import PreparedVerb
from kafkabus_mapping.checkpoints import BLOCK, block_text


def written(snapshot: Snapshot) -> tuple[str, dict[int, str]]:
    """Return head and blocks as they are stored."""
    blocks = {block: block_text(snapshot.version, content) for block, content in snapshot.blocks().items()}
    return snapshot.head(dict.fromkeys(blocks, snapshot.version)), blocks


def offsets(snapshot: Snapshot) -> dict[int, tuple[str, int]]:
    """Return each offset that is not settled, with its state and its delivery count."""
    found = {offset: ("waiting", count) for first, last, count in snapshot.waiting for offset in range(first, last + 1)}
    return found | {
        offset: ("deferred", count) for first, last, count in snapshot.deferred for offset in range(first, last + 1)
    }


@given(
    st.dictionaries(
        st.integers(0, 3 * BLOCK), st.tuples(st.sampled_from(["waiting", "deferred"]), st.integers(0, 9)), max_size=30
    ),
    st.integers(0, 3 * BLOCK),
)
def test_what_was_put_apart_comes_together_again(states: dict[int, tuple[str, int]], cursor: int) -> None:
    """The offsets may be in any block; those beyond the cursor wait without being named."""
    ranges = {
        kind: [(offset, offset, count) for offset, (where, count) in states.items() if where == kind]
        for kind in ("waiting", "deferred")
    }
    snapshot = Snapshot(cursor, 7, waiting=ranges["waiting"], deferred=ranges["deferred"])
    again = read_snapshot(*written(snapshot))
    assert again == snapshot or offsets(again) == offsets(snapshot)
    assert offsets(again) == {offset: state for offset, state in states.items() if offset < cursor}
    assert (again.cursor, again.version, again.watermark) == (cursor, 7, min([cursor, *offsets(again)]))


def test_a_range_over_several_blocks_is_in_each() -> None:
    """Its parts are joined again."""
    snapshot = Snapshot(4 * BLOCK, 1, waiting=[(10, 3 * BLOCK, 2)])
    assert set(snapshot.blocks()) == {0, 1, 2, 3}
    assert len(offsets(read_snapshot(*written(snapshot)))) == 3 * BLOCK - 9


def test_a_block_older_than_the_head_knows_is_no_answer() -> None:
    """A writer that was paused leaves such a block: all offsets from there on count as never granted."""
    older = Snapshot(BLOCK + 10, 5, waiting=[(BLOCK + 3, BLOCK + 3, 1)])
    newer = Snapshot(BLOCK + 90, 9, waiting=[(7, 7, 1), (BLOCK + 50, BLOCK + 60, 1)])
    head, blocks = written(newer)
    for stale in ({**blocks, 1: written(older)[1][1]}, {0: blocks[0]}):
        again = read_snapshot(head, stale)
        assert (again.cursor, set(offsets(again))) == (BLOCK, {7})
    again = read_snapshot(head, {1: blocks[1]})
    assert (again.cursor, set(offsets(again))) == (7, set())


def test_a_block_newer_than_the_head_is_true() -> None:
    """A writer that was cut off before it wrote the head leaves such a block: its settlements hold."""
    older = Snapshot(50, 5, waiting=[(1, 4, 1)])
    newer = Snapshot(90, 9, waiting=[(2, 2, 1), (60, 70, 1)], deferred=[(BLOCK * 0 + 3, 3, 0)])
    head, _ = written(older)
    again = read_snapshot(head, written(newer)[1])
    assert (again.cursor, set(offsets(again))) == (50, {2, 3})


def test_a_block_that_the_head_knows_to_be_empty_is_left_over() -> None:
    """Its offsets are not delivered again."""
    head, _ = written(Snapshot(50, 9))
    assert offsets(read_snapshot(head, written(Snapshot(40, 5, waiting=[(1, 4, 1)]))[1])) == {}


def test_what_was_seized_beyond_the_cursor_simply_waits() -> None:
    """Other skipped records stay: copies that lost."""
    snapshot = Snapshot(10, 1, waiting=[(12, 12, 1)], moving=[(14, 0, "i")], skipped=[5, 12, 13, 14])
    assert (snapshot.waiting, snapshot.skipped) == ([], [13, 14])


def test_a_snapshot_is_fitted_to_the_log() -> None:
    """Trimmed offsets are dropped; truncated ones were never granted."""
    snapshot = Snapshot(
        100, 3, waiting=[(5, 15, 1), (60, 70, 2)], deferred=[(8, 8, 0)], moving=[(2, 0, "a"), (80, 1, "b")]
    )
    within = snapshot.within(10, 65)
    assert (within.cursor, within.waiting, within.deferred, within.moving) == (65, [(10, 15, 1), (60, 64, 2)], [], [])
    assert snapshot.within(200, 300).cursor == 200


END = 24


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw any state of a short log."""
    cursor = draw(st.integers(0, END))
    states = draw(st.dictionaries(st.integers(0, END - 1), st.sampled_from("wdmv"), max_size=END))
    below = [(offset, state) for offset, state in states.items() if offset < cursor]
    return Snapshot(
        cursor,
        draw(st.integers(1, 9)),
        waiting=[(offset, offset, 1) for offset, state in below if state == "w"],
        deferred=[(offset, offset, 2) for offset, state in below if state == "d"],
        moving=[(offset, 0, "i") for offset, state in below if state == "m"],
        skipped=[offset for offset, state in states.items() if state == "v"],
    )


def unsettled(snapshot: Snapshot) -> set[int]:
    """Return the unsettled offsets of the short log."""
    named = set(offsets(snapshot)) | {move[0] for move in snapshot.moving}
    return named | set(range(snapshot.cursor, END)) - set(snapshot.skipped)


@given(snapshots(), snapshots())
def test_what_either_of_two_knows_to_be_settled_is_settled(later: Snapshot, earlier: Snapshot) -> None:
    """No other offset is settled. If one of them set an offset aside or moves it, that holds."""
    merged = later.merged(earlier)
    assert unsettled(merged) == unsettled(later) & unsettled(earlier)
    assert (merged is later) == (unsettled(later) <= unsettled(earlier))
    assert merged.cursor == (later.cursor if merged is later else max(later.cursor, earlier.cursor))
    if merged is not later:
        moving = {move[0] for move in (*later.moving, *earlier.moving)} & unsettled(merged)
        assert {move[0] for move in merged.moving} == moving
        aside = {offset for one in (later, earlier) for offset, (kind, _) in offsets(one).items() if kind == "deferred"}
        assert {offset for offset, (kind, _) in offsets(merged).items() if kind == "deferred"} == (
            aside & unsettled(merged) - moving
        )


def test_a_ledger_that_knows_more_than_was_written_down_stays_as_it_is() -> None:
    """Every ledger that did not go back is such a ledger."""
    written_down = Snapshot(10, 3, waiting=[(4, 9, 1)], skipped=[12])
    now = Snapshot(20, 9, waiting=[(6, 6, 2), (15, 19, 1)])
    assert now.merged(written_down) is now
    assert written_down.merged(now) == Snapshot(20, 9, waiting=[(6, 6, 1), (15, 19, 1)])


def test_duplicates_stand_in_blocks() -> None:
    """Any number of them fits. If a block is missing, the known duplicates end before it.

    From the missing block on, records are judged again.
    """
    duplicates = [(one, one) for one in range(0, 3 * BLOCK, 2)]
    snapshot = Snapshot(2 * BLOCK, 7, dedup_upto=3 * BLOCK, dedup_epoch=4, duplicates=duplicates)
    head, blocks = written(snapshot)
    assert len(head) < 300
    assert read_snapshot(head, blocks) == snapshot
    again = read_snapshot(head, {0: blocks[0], 2: blocks[2]})
    assert (again.dedup_upto, again.dedup_epoch) == (BLOCK, 4)
    assert again.duplicates == [one for one in duplicates if one[0] < BLOCK]


def prepared(verb: str, transaction: str, kind: str = "n") -> str:
    """Return the intent of a message that a transaction prepared."""
    return f"prepared:{verb}:0123456789abcdef:{kind}:1795360252811:{transaction}"


def test_nothing_is_prepared_once_it_is_known_what_became_of_transactions() -> None:
    """Committed settlements are done, others come again, counted; transfers go on."""
    moving = [
        (1, 0, prepared("complete", "7@a")),
        (2, 1, prepared("abandon", "7@a")),
        (3, 2, prepared("defer", "7@a")),
        (4, 3, prepared("complete", "9@b")),
        (5, 4, prepared("defer", "9@b", "d")),
        (6, 0, "a transfer"),
    ]
    after = Snapshot(10, 1, moving=moving).after(lambda transaction: transaction == "7@a", [])
    assert (after.waiting, after.deferred, after.moving) == (
        [(2, 2, 2), (4, 4, 4)],
        [(3, 3, 2), (5, 5, 5)],
        [moving[5]],
    )


def test_what_markers_say_is_settled_is() -> None:
    """It lies below the cursor or beyond it, and may be reported several times.

    Transfers given up since are settled, too.
    """
    snapshot = Snapshot(10, 1, waiting=[(0, 4, 1)], deferred=[(6, 7, 0)], moving=[(8, 0, "a transfer")], skipped=[15])
    settled: list[tuple[PreparedVerb, list[tuple[int, int]], dict[str, str]]] = [
        ("complete", [(1, 2), (6, 6), (8, 8), (12, 13)], {}),
        ("defer", [(4, 4), (14, 14)], {}),
        ("abandon", [(0, 0)], {}),
    ]
    after = snapshot.after(lambda _: False, [*settled, *settled])
    assert (after.waiting, after.moving, after.skipped) == ([(0, 0, 1), (3, 3, 1)], [], [12, 13, 14, 15])
    assert after.deferred == [(4, 4, 1), (7, 7, 0), (14, 14, 0)]
    again = read_snapshot(*written(after))
    assert offsets(again) == offsets(after)
    assert unsettled(after.merged(Snapshot(12, 2))) == {14, *range(16, END)}


def test_a_snapshot_that_knows_less_than_markers() -> None:
    """If the snapshot still has an offset that a marker settled, the ledger went back."""
    snapshot = Snapshot(10, 1, waiting=[(0, 4, 1)], deferred=[(6, 7, 0)], moving=[(8, 0, prepared("complete", "1@a"))])
    assert denies(snapshot, "complete", [(2, 2)])
    assert denies(snapshot, "complete", [(6, 6)])
    assert denies(snapshot, "complete", [(10, 10)])
    assert not denies(snapshot, "complete", [(5, 5), (8, 9)])
    assert not denies(snapshot, "defer", [(6, 7)])
    assert not denies(snapshot, "abandon", [(0, 4)])


def test_an_outdated_block_has_all_markers_told_anew() -> None:
    """Settlements that the block held are not known any more."""
    older, newer = Snapshot(BLOCK + 10, 5), Snapshot(BLOCK + 90, 9, waiting=[(BLOCK + 50, BLOCK + 60, 1)], markers=77)
    head, blocks = written(newer)
    assert read_snapshot(head, blocks).markers == 77
    assert read_snapshot(head, {1: block_text(older.version, blocks[1].partition(" ")[2])}).markers == 0


def test_what_is_kept_apart_outlasts_a_rebuild() -> None:
    """Later messages, which the checkpoint does not know, wait or are scheduled still."""
    snapshot = Snapshot(
        10, 1, deferred=[(3, 4, 1)], scheduled=[(5, 77), (6, 78)], skipped=[12], moving=[(7, 0, "m"), (8, 0, "n")]
    )
    within = snapshot.within(20, kept={3: None, 5: 77, 7: None, 11: None, 12: None, 13: 99})
    assert (within.cursor, within.waiting, within.deferred) == (20, [(11, 11, 0)], [(3, 3, 1)])
    assert (within.scheduled, within.moving) == ([(5, 77), (13, 99)], [(7, 0, "m")])
    assert Snapshot(0, 0).within(20, kept={3: None, 5: 77}).unsettled[:2] == [(3, 3), (5, 5)]
    assert snapshot.watermark_without({3, 4, 5, 6, 7, 8}) == 10
    assert snapshot.watermark_without({3, 5}) == 4


CHANGES = [
    (3, {"a": "1", "b": '"x"'}, False),
    (8, {"a": "2"}, False),
    (8, {"a": "3"}, True),
    (BLOCK, {"a": "4"}, False),
]


def parts(snapshot: Snapshot) -> dict[str, str]:
    """Return the parts with changed properties as they are stored."""
    return {name: block_text(snapshot.version, content) for name, content in snapshot.change_chunks().items()}


def stored(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it is once it was written and read."""
    blocks, changes = written(snapshot)[1], parts(snapshot)
    head = snapshot.head(dict.fromkeys(blocks, snapshot.version), dict.fromkeys(changes, snapshot.version))
    return read_snapshot(head, blocks, changes)


def test_changed_properties_are_written_down() -> None:
    """Also those of a message that is moving, which is in no block. They go with their message."""
    moving = [(8, 0, prepared("abandon", "7@a")), (BLOCK, 1, "a transfer")]
    snapshot = Snapshot(2 * BLOCK, 7, waiting=[(3, 3, 1)], moving=moving, changes=list(reversed(CHANGES)))
    assert snapshot.changes == CHANGES
    assert stored(snapshot) == snapshot
    assert snapshot.within(8).changes == CHANGES[1:]
    settled = snapshot.merged(Snapshot(2 * BLOCK, 8, waiting=[(3, 3, 1)]))
    assert settled.changes == CHANGES[:1]


def test_changed_properties_of_any_size_are_written_down() -> None:
    """In records that Kafka takes, of which one is written again when one message is settled."""
    changes = [(offset, {"a": '"' + "x" * 5_000 + '"'}, False) for offset in range(0, 2 * BLOCK, 100)]
    changes.append((2 * BLOCK - 1, {"a": "x" * 1_500_000}, False))
    snapshot = Snapshot(2 * BLOCK, 7, waiting=[(0, 2 * BLOCK - 1, 1)], changes=changes)
    before = parts(snapshot)
    assert max(len(text) for text in before.values()) < 1_600_000
    assert len(before) < 40
    assert stored(snapshot) == snapshot
    after = parts(Snapshot(2 * BLOCK, 7, waiting=[(0, 2 * BLOCK - 1, 1)], changes=[*changes[:77], *changes[78:]]))
    assert sum(before.get(name) != text for name, text in after.items()) == 1


def test_a_change_of_a_transaction_has_a_record_of_its_own_if_it_is_large() -> None:
    """Both that are known of a message fit into the records that Kafka takes."""
    moving = [(3, 0, prepared("abandon", "7@a"))]
    both = [(3, {"a": "x" * 1_400_000}, False), (3, {"b": "y" * 1_400_000}, True)]
    snapshot = Snapshot(9, 7, moving=moving, changes=both)
    assert max(map(len, parts(snapshot).values())) < 1_600_000
    assert stored(snapshot) == snapshot


def test_a_part_that_a_paused_writer_put_back_tells_nothing() -> None:
    """Its messages are as they were sent; others keep their changes."""
    snapshot = Snapshot(2 * BLOCK, 7, waiting=[(0, 2 * BLOCK - 1, 1)], changes=[CHANGES[0], CHANGES[3]])
    blocks, changes = written(snapshot)[1], parts(snapshot)
    head = snapshot.head(dict.fromkeys(blocks, 7), dict.fromkeys(changes, 7))
    outdated = {name: text.replace("7 ", "6 ", 1) if name.startswith("0+") else text for name, text in changes.items()}
    assert read_snapshot(head, blocks, outdated).changes == CHANGES[3:]


def test_a_ledger_that_went_back_has_its_changes_again() -> None:
    """Also if nothing else was settled since; a property that was changed later stays so."""
    kept = Snapshot(9, 7, waiting=[(3, 3, 1)], changes=[(3, {"a": "1", "b": "2"}, False)])
    for now in (Snapshot(9, 8, waiting=[(3, 3, 1)]), Snapshot(9, 8, waiting=[(3, 4, 1)])):
        assert now.merged(kept).changes == kept.changes
        later = Snapshot(9, 8, waiting=now.waiting, changes=[(3, {"b": "3"}, False)]).merged(kept)
        assert later.changes == [(3, {"a": "1", "b": "3"}, False)]
    assert kept.merged(kept) is kept


def test_changed_properties_share_the_fate_of_their_transaction() -> None:
    """Committed ones add to earlier ones; others are dropped; those of settled messages are forgotten."""
    moving = [(8, 0, prepared("abandon", "7@a"))]
    snapshot = Snapshot(9, 7, waiting=[(3, 3, 1)], moving=moving, changes=CHANGES[:3])
    assert snapshot.after(lambda _: False, []).changes == CHANGES[:2]
    after = snapshot.after(lambda _: True, [("defer", [(3, 3), (12, 12)], {"b": "true"}), ("complete", [(8, 8)], {})])
    assert after.changes == [(3, {"a": "1", "b": "true"}, False), (12, {"b": "true"}, False)]
    assert snapshot.after(lambda _: True, []).changes == [CHANGES[0], (8, {"a": "3"}, False)]


# Postponed messages.


def test_postponed_messages_are_written_down() -> None:
    """They wait, and beside that have a time; of those that do not wait, nothing is known."""
    snapshot = Snapshot(10, 5, waiting=[(2, 4, 1)], postponed=[(3, 1_000), (7, 2_000)])
    assert snapshot.postponed == [(3, 1_000)]
    assert read_snapshot(*written(snapshot)) == snapshot


def test_a_message_beyond_the_cursor_can_be_postponed() -> None:
    """It was seized there; claims pass it over as long as it is postponed, as the script that restores it sees to."""
    snapshot = Snapshot(10, 5, waiting=[(12, 13, 1)], postponed=[(12, 1_000)], skipped=[12, 13])
    assert (snapshot.waiting, snapshot.skipped) == ([(12, 12, 1)], [])
    assert read_snapshot(*written(snapshot)) == snapshot
    assert snapshot.within(0, 12).postponed == []


@pytest.mark.parametrize(
    ("ranges", "postponed", "waiting"),
    [
        ([(2, 2, 1)], [(2, 500)], [(2, 2, 1), (3, 4, 0)]),
        ([(2, 4, 2)], [(2, 500), (3, 500), (4, 500)], [(2, 4, 2)]),
        # They were delivered again since.
        ([(6, 7, 1)], [], [(2, 4, 0)]),
        # They are settled.
        ([(0, 1, 1)], [], [(2, 4, 0)]),
        # They were granted after the snapshot.
        ([(12, 12, 1)], [(12, 500)], [(2, 4, 0), (12, 12, 1)]),
        # They are deferred, moving, or no messages.
        ([(5, 5, 1), (8, 8, 1), (11, 11, 1)], [], [(2, 4, 0)]),
    ],
)
def test_delays_that_a_snapshot_does_not_have(
    ranges: list[Counted], postponed: list[tuple[int, int]], waiting: list[Counted]
) -> None:
    """They count for messages that may still be received, and were not delivered since."""
    snapshot = Snapshot(10, 5, waiting=[(2, 4, 0), (6, 7, 3)], deferred=[(5, 5, 0)], moving=[(8, 0, "x")], skipped=[11])
    known = with_delays(snapshot, [(ranges, 500)])
    assert known.postponed == postponed
    assert known.waiting == sorted([*waiting, (6, 7, 3)])


def test_of_two_delays_the_later_one_counts() -> None:
    """The last record is the latest; one that is over makes the message available."""
    snapshot = Snapshot(10, 5, waiting=[(2, 2, 0)], postponed=[(2, 100)])
    assert with_delays(snapshot, [([(2, 2, 1)], 900), ([(2, 2, 2)], 500)]).postponed == [(2, 500)]


def test_a_ledger_that_went_back_is_as_patient_as_it_was() -> None:
    """Of two times, the later one counts."""
    later = Snapshot(10, 5, waiting=[(2, 2, 1), (4, 4, 1)], postponed=[(2, 900), (4, 100)])
    earlier = Snapshot(10, 6, waiting=[(2, 2, 2)], postponed=[(2, 500)])
    assert later.merged(earlier).postponed == [(2, 900)]


def test_the_script_gets_postponed_messages_with_their_deliveries() -> None:
    """Beside the waiting ones, or with sessions among them."""
    written_down = Written(Snapshot(10, 5, waiting=[(2, 4, 1)], postponed=[(3, 1_000)]))
    plain, with_sessions = (json.loads(written_down.to_script(sessions=sessions)) for sessions in (False, True))
    assert plain["postponed"] == with_sessions["postponed"] == [["3", "1", "1000"]]
    assert plain["waiting"] == [["2", "2", "1"], ["4", "4", "1"]]
    assert with_sessions["waiting"] == [["2", "4", "1"]]
