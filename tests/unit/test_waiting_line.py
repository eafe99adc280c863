"""The line of receivers that wait for an entity's sessions: who reads, and whom a free session wakes."""

from __future__ import annotations

from kafkabus._async.receiving.waiting_line import Waiter, WaitingLine


class Line(WaitingLine):
    """A line that counts how often it wakes its reader."""

    def __init__(self) -> None:
        self.wakes = 0
        super().__init__(self._wake)

    def _wake(self) -> None:
        self.wakes += 1


def invited(waiters: list[Waiter]) -> list[int]:
    """Return the numbers of the receivers that look for a session."""
    return [number for number, waiter in enumerate(waiters) if waiter.is_invited]


def test_one_receiver_reads_on_for_all() -> None:
    """The one that has waited longest, and the next one after it."""
    line = Line()
    first, second, third = line.enter(None), line.enter(0), line.enter(None)
    assert [line.leads(one) for one in (first, second, third)] == [True, False, False]
    line.leave(second)
    assert line.leads(first)
    line.leave(first)
    assert line.leads(third)


def test_a_free_session_wakes_the_receiver_that_has_waited_longest() -> None:
    """It wakes two more if it gets a session, and none if it gets none; then it keeps its place."""
    line = Line()
    waiters = [line.enter(None) for _ in range(9)]
    line.note_free(3)
    assert invited(waiters) == [0]
    line.pass_on()
    line.leave(waiters[0])
    # The last one is invited in place of the one that left, which may have been cancelled.
    assert invited(waiters[1:]) == [0, 1, 2]
    line.note_taken(3)
    assert [line.free(one) for one in waiters[1:]] == [{}] * 8
    assert invited(waiters[1:]) == []
    line.note_free(2)
    assert invited(waiters[1:]) == [0]
    assert list(line.free(waiters[1])) == [2]


def test_the_reader_is_woken_if_it_is_to_look() -> None:
    """It waits for records, not for its bell."""
    line = Line()
    line.note_free(0)
    first, second = line.enter(None), line.enter(None)
    line.note_taken(0)
    assert (line.free(first), line.free(second), line.wakes) == ({}, {}, 1)
    line.note_free(0)
    assert (invited([first, second]), line.wakes) == ([0], 2)


def test_news_that_come_while_a_ledger_is_asked_count() -> None:
    """Its answer may be older than they are."""
    line = Line()
    waiter = line.enter(None)
    line.note_free(1)
    seen = line.free(waiter)[1]
    line.note_free(1)
    line.note_taken(1, seen)
    assert list(line.free(waiter)) == [1]


def test_a_receiver_that_leaves_passes_its_invitation_on() -> None:
    """A session that it did not take is not forgotten."""
    line = Line()
    first, second = line.enter(None), line.enter(None)
    line.note_free(0)
    assert invited([first, second]) == [0]
    line.leave(first)
    assert invited([second]) == [0]


async def test_a_leader_that_leaves_rings_the_next() -> None:
    """And news of a partition ring for the receivers of its sessions alone."""
    line = Line()
    first, second, third = line.enter(None), line.enter(5), line.enter(6)
    line.leave(first)
    await second.bell.wait()
    line.ring(6)
    await third.bell.wait()
    line.ring(None)
    await second.bell.wait()
    await third.bell.wait()
