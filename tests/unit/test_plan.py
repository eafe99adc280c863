"""Plan reads and claims, without Kafka."""

from __future__ import annotations

import pytest

from kafkabus._core.fetch_plan import PartitionState, PartitionView, Plan, home_partitions, runs_of, sweeps
from kafkabus._core.record import StoredRecord
from kafkabus._ledger.operations import Granted, Seen, Tail
from kafkabus._ledger.ranges import merge_offsets


def record(offset: int, partition: int = 0) -> StoredRecord:
    """Return a record at an offset."""
    return StoredRecord(("t", partition, offset), (None, b"x", []), (1, 0))


def granted(cursor: int, fresh: list[tuple[int, int]] | None = None, *, ahead: bool = False) -> Granted:
    """Return a ledger's answer."""
    return Granted(
        again=[],
        fresh=fresh or [],
        cursor=cursor,
        ahead=ahead,
        now=0,
        expiry=0,
        redeliverable=0,
        due_in=None,
        moves=False,
    )


def plan_with(records: dict[int, list[int]], partitions: int = 4) -> Plan:
    """Return a plan whose partitions are read and hold these offsets."""
    plan = Plan(partitions)
    for view in plan.views:
        view.redeliverable = False
        view.home = True
        view.start(0)
        if offsets := records.get(view.partition):
            assert view.add([record(offset, view.partition) for offset in offsets]) == len(offsets)
    return plan


def test_runs_have_no_holes() -> None:
    """The ranges ascend and have only existing offsets."""
    assert runs_of([]) == []
    assert runs_of([record(3), record(4)]) == [(3, 4)]
    assert runs_of([record(1), record(2), record(5), record(7), record(8)]) == [(1, 2), (5, 5), (7, 8)]


def test_offsets_merge_into_ranges() -> None:
    """The offsets come in any order, with repetitions."""
    assert merge_offsets([5, 1, 2, 2, 9, 10]) == [(1, 2), (5, 5), (9, 10)]
    assert merge_offsets([]) == []


def test_claims_never_want_more_than_was_asked_for() -> None:
    """The wanted number is spread over the partitions that have messages."""
    plan = plan_with({0: [0, 1, 2], 2: [0, 1], 3: [0, 1, 2]})
    claims = plan.claims(6)
    assert [(claim.view.partition, claim.want) for claim in claims] == [(0, 3), (2, 2), (3, 1)]
    assert claims[2].seen == Seen(0, 1, [(0, 0)])


def test_a_partition_with_returned_ranges_is_asked_first_and_alone() -> None:
    """The client cannot know how many messages that partition will grant."""
    plan = plan_with({0: [0, 1]})
    plan.views[3].redeliverable = True
    (claim,) = plan.claims(10)
    assert (claim.view.partition, claim.want, claim.seen) == (3, 10, Seen(0, 0, []))
    plan.views[3].stop()
    assert plan.claims(10)[0].seen is None


def test_partitions_take_turns() -> None:
    """No partition starves while another one always has enough."""
    plan = plan_with({0: list(range(10)), 1: list(range(10)), 2: list(range(10))})
    order = []
    for _ in range(4):
        (claim,) = plan.claims(10)
        order.append(claim.view.partition)
    assert order == [0, 1, 2, 0]


def test_while_messages_are_claimed_ahead_no_log_is_read() -> None:
    """The home's messages are claimed first, one partition at a time, up to the end of its log."""
    plan = plan_with({0: [0, 1]})
    for view, (cursor, end) in zip(plan.views, [(0, 9), (5, 5), (3, 8), (8, 8)], strict=True):
        view.cursor, view.tail, view.home = cursor, Tail(end), view.partition == 2
    plan.claims_unread = True
    (claim,) = plan.claims(10)
    assert (claim.view.partition, claim.want, claim.seen, claim.ahead) == (2, 10, None, Tail(8))
    plan.views[2].cursor = 8
    assert plan.claims(10)[0].view.partition == 0
    assert plan.claims(10, fresh=False) == []
    plan.views[0].cursor = 9
    assert plan.claims(10) == []
    assert plan.choose_reading(0.0) == ([], plan.views)
    plan.claims_unread = False
    assert plan.choose_reading(0.0) == ([], [view for view in plan.views if not view.home])


def test_nothing_is_claimed_ahead_where_a_log_may_have_been_truncated() -> None:
    """A log is suspect if it ends before its ledger's cursor, or is to be read first. Few messages do not suffice, either."""
    plan = plan_with({}, partitions=2)

    def is_ahead(*ends: int) -> bool:
        plan.look({partition: Tail(end) for partition, end in enumerate(ends)}, 50)
        return plan.claims_unread

    plan.views[1].cursor = 5
    assert not is_ahead(60, 5)
    plan.crowded = True
    assert is_ahead(60, 5)
    assert not is_ahead(40, 5)
    assert not is_ahead(60, 4)
    plan.views[0].mark_unverified()
    assert not is_ahead(60, 5)
    plan.views[0].start(0)
    plan.views[0].end(0)
    plan.small_batches = True
    assert not is_ahead(60, 5)


def test_what_others_read_is_claimed_ahead_while_the_homes_are_dry() -> None:
    """One partition at a time is claimed from, in turns. It is not read, unless few messages are wanted."""
    plan = plan_with({0: [0]}, partitions=3)
    home, *others = plan.views
    for view in others:
        view.home = False
        view.stop()
    plan.look({0: Tail(1), 1: Tail(9), 2: Tail(9)}, 50)
    assert [claim.view for claim in plan.claims(100)] == [home]
    home.take([(0, 0)])
    home.start(1)
    assert plan.claims(100) == []
    home.end(1)
    assert [(claim.view, claim.ahead) for claim in plan.claims(100)] == [(others[0], Tail(9))]
    assert [claim.view for claim in plan.claims(100)] == [others[1]]
    assert plan.choose_reading(0.0) == ([], [])
    plan.small_batches = True
    assert plan.claims(1) == []
    assert plan.choose_reading(0.0) == (others, [])


def test_a_doubtful_log_is_read_before_what_it_gave_back_is_asked_for() -> None:
    """That holds for a foreign partition, too, until one of its records came, or its end."""
    plan = plan_with({0: [0, 1]}, partitions=2)
    view = plan.views[1]
    view.redeliverable, view.home, view.leave_until = True, False, 9.0
    view.mark_unverified()
    before = plan.redeliverable
    assert plan.choose_reading(0.0) == ([view], [])
    view.start(0)
    while_it_is_read = plan.redeliverable
    view.end(7)
    assert (before, while_it_is_read, plan.redeliverable) == (None, None, view)


def test_a_resting_partition_is_not_read() -> None:
    """It does not keep other partitions from being read."""
    plan = plan_with({0: [0, 1]}, partitions=3)
    plan.small_batches = True
    plan.views[0].rest()
    plan.views[1].end(0)
    plan.views[2].home = False
    plan.views[2].stop()
    assert (plan.choose_reading(0.0), plan.is_resting) == (([plan.views[2]], []), True)
    plan.clear_backoff(0.0)
    assert (plan.choose_reading(0.0), plan.is_resting) == (([plan.views[0]], []), False)


def test_holes_are_named_and_the_end_is_passed() -> None:
    """The offsets between the last record and the log's end hold no message."""
    view = plan_with({0: [2, 3, 6]}).views[0]
    view.end(9)
    assert view.seen_part(2) == Seen(0, 6, [(2, 3)])
    assert view.seen_part(3) == Seen(0, 9, [(2, 3), (6, 6)])
    assert [r.offset() for r in view.take([(2, 3), (6, 6)])] == [2, 3, 6]
    assert view.follow(granted(9)) is None
    assert (view.buffer_length, view.seen_from) == (0, 9)


def test_a_record_seen_before_is_left_out() -> None:
    """It comes again after reading on from an earlier place."""
    view = plan_with({0: [5]}).views[0]
    assert view.add([record(4), record(5)]) == 0
    assert (view.buffer_length, view.seen_to) == (1, 6)
    assert view.add([record(4), record(5), record(6), record(8)]) == 2
    assert view.seen_part(9) == Seen(0, 9, [(5, 6), (8, 8)])


def test_others_grants_are_dropped_from_the_buffer() -> None:
    """The cursor says up to where."""
    view = plan_with({0: [0, 1, 2, 3]}).views[0]
    assert view.follow(granted(2)) is None
    assert (view.buffer_length, view.seen_part(9)) == (2, Seen(2, 4, [(2, 3)]))


@pytest.mark.parametrize(("cursor", "ahead"), [(9, False), (0, True)])
def test_a_reader_goes_where_the_cursor_is(cursor: int, ahead: bool) -> None:
    """It goes forward if others are further, and back if it read from beyond the cursor: nothing is jumped over."""
    view = plan_with({0: [4, 5]}).views[0]
    assert view.follow(granted(cursor, ahead=ahead)) == cursor
    assert (view.buffer_length, view.seen_from, view.seen_to) == (0, cursor, cursor)


def test_a_grant_that_was_not_read_is_an_error() -> None:
    """The case is impossible, so the error is loud."""
    with pytest.raises(RuntimeError, match="granted 0-5"):
        plan_with({0: [0, 1]}).views[0].take([(0, 5)])


def test_foreign_partitions_are_read_only_while_the_homes_are_dry() -> None:
    """They are left alone for a while after another client was faster."""
    plan = plan_with({0: [0]})
    plan.small_batches = True
    for view in plan.views[2:]:
        view.home = False
        view.stop()
    assert plan.choose_reading(0.0) == ([], [])
    plan.views[0].take([(0, 0)])
    plan.views[0].follow(granted(1))
    for view in plan.views[:2]:
        view.end(1)
    assert plan.choose_reading(0.0, unread=True) == ([], []), "homes may have unread records"
    assert plan.choose_reading(0.0) == (plan.views[2:], [])
    plan.views[2].start(0)
    plan.lost_race(plan.views[2], until=5.0)
    plan.lost_race(plan.views[0], until=5.0)
    assert plan.choose_reading(1.0) == ([plan.views[3]], [plan.views[2]])
    plan.views[2].stop()
    assert plan.choose_reading(5.0) == (plan.views[2:], [])


def test_an_expired_lease_makes_its_partition_worth_asking() -> None:
    """It is asked once the lease's time has come."""
    plan = plan_with({})
    plan.views[1].due_at = 3.0
    assert plan.next_due() == 3.0
    plan.expire(2.9)
    assert not plan.views[1].redeliverable
    plan.expire(3.0)
    assert (plan.views[1].redeliverable, plan.next_due()) == (True, None)


@pytest.mark.parametrize("clients", [1, 2, 3, 5, 16, 40])
def test_homes_are_shared_out_evenly(clients: int) -> None:
    """Every partition has one home, and no client has more than its share."""
    names = [f"client-{number}" for number in range(clients)]
    homes = [home_partitions(name, names, 16) for name in names]
    assert sorted(partition for home in homes for partition in home) == list(range(16))
    assert max(map(len, homes)) == -(-16 // clients)


def test_few_homes_move_when_a_client_comes() -> None:
    """Most partitions keep their home."""
    names = ["a", "b", "c"]
    before = {name: home_partitions(name, names, 64) for name in names}
    after = {name: home_partitions(name, [*names, "d"], 64) for name in names}
    kept = sum(len(before[name] & after[name]) for name in names)
    assert kept >= 64 * 0.55


def test_near_ranges_are_read_in_one_go() -> None:
    """Ranges are joined up to a gap, and up to a span. A long range stays whole."""
    ranges = [(0, 4), (6, 6), (110, 111), (300, 2000), (2001, 2001), (2002, 2010)]
    assert sweeps(ranges, lambda one: one, at_once=200, gap=103) == [
        [(0, 4), (6, 6), (110, 111)],
        [(300, 2000)],
        [(2001, 2001), (2002, 2010)],
    ]
    assert sweeps(ranges[:3], lambda one: one, at_once=200, gap=102) == [[(0, 4), (6, 6)], [(110, 111)]]


def test_a_cursor_that_went_back_is_followed() -> None:
    """A rebuilt ledger has such a cursor: the records that were read are not the next to claim."""
    plan = plan_with({0: [5, 6]})
    view = plan.views[0]
    view.follow(granted(7))
    assert (view.seen_from, view.buffer_length) == (7, 0)
    assert view.follow(granted(3)) == 3
    assert (view.seen_from, view.seen_to) == (3, 3)


TRANSITIONS = {
    "start": {
        "IDLE": "READING",
        "READING": "READING",
        "AT_END": "READING",
        "UNVERIFIED": "VERIFYING",
        "VERIFYING": "VERIFYING",
    },
    "add": {"READING": "READING", "AT_END": "READING", "VERIFYING": "READING"},
    "end": {"READING": "AT_END", "AT_END": "AT_END", "VERIFYING": "AT_END"},
    "stop": {
        "IDLE": "IDLE",
        "READING": "IDLE",
        "AT_END": "IDLE",
        "RESTING": "RESTING",
        "UNVERIFIED": "UNVERIFIED",
        "VERIFYING": "UNVERIFIED",
    },
    "rest": {
        "IDLE": "RESTING",
        "READING": "RESTING",
        "AT_END": "RESTING",
        "RESTING": "RESTING",
        "UNVERIFIED": "UNVERIFIED",
        "VERIFYING": "VERIFYING",
    },
    "wake": {
        "IDLE": "IDLE",
        "READING": "READING",
        "AT_END": "AT_END",
        "RESTING": "IDLE",
        "UNVERIFIED": "UNVERIFIED",
        "VERIFYING": "VERIFYING",
    },
    "mark_unverified": dict.fromkeys(PartitionState.__members__, "UNVERIFIED"),
}
"""The state after each transition, by the state before; docs/explanation/states.md draws them."""
ARGUMENTS = {"start": (3,), "add": ([record(5)],), "end": (5,)}


@pytest.mark.parametrize(
    ("transition", "before"), [(name, state) for name in TRANSITIONS for state in TRANSITIONS[name]]
)
def test_a_transition_leads_to_one_state(transition: str, before: str) -> None:
    """A partition that is not read has no records."""
    view = PartitionView(0)
    view.state = PartitionState[before]
    if view.state.is_read:
        view.add([record(3)])
        view.state = PartitionState[before]
    getattr(view, transition)(*ARGUMENTS.get(transition, ()))
    assert view.state.name == TRANSITIONS[transition][before]
    assert view.state.is_read or not view.buffer_length


def test_an_end_before_the_cursor_verifies_nothing() -> None:
    """The log is shorter than its ledger knows: it may have been truncated."""
    view = PartitionView(0)
    view.mark_unverified()
    view.start(7)
    view.end(6)
    assert view.state is PartitionState.VERIFYING
