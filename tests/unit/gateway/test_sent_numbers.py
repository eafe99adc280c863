"""The numbers of deliveries that a session sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkabus.gateway.amqp.sent_numbers import NUMBERS, SentNumbers

firsts = st.sampled_from([0, NUMBERS - 5])


@given(
    first=firsts, steps=st.lists(st.tuples(st.integers(-3, 25), st.sampled_from([1, 2, 5, 2**31, 2**32])), max_size=8)
)
def test_states_are_told_of_the_numbers_of_a_range(first: int, steps: list[tuple[int, int]]) -> None:
    """Numbers go round; of each delivery, one state is told."""
    numbers = SentNumbers[str](first)
    added = {numbers.add("ab"[step % 2], settled=step % 7 == 3): step for step in range(20)}
    assert list(added) == [(first + step) % NUMBERS for step in range(20)]
    stateless = {number for number, step in added.items() if step % 7 != 3}
    for step, count in steps:
        start = (first + step) % NUMBERS
        within = {number for number in stateless if (number - start) % NUMBERS < count}
        found = numbers.take_stateless(start, count)
        assert sorted(found) == sorted((number, "ab"[added[number] % 2]) for number in within)
        stateless -= within


@given(first=firsts, removed=st.sets(st.integers(0, 9)), gone=st.sets(st.integers(0, 9)))
def test_settled_deliveries_have_no_state(first: int, removed: set[int], gone: set[int]) -> None:
    """Neither have those of a link that is gone."""
    numbers = SentNumbers[str](first)
    added = [numbers.add("link", settled=False) for _ in range(10)]
    for place in removed:
        numbers.remove(added[place])
    numbers.remove_all({added[place] for place in gone})
    left = [(added[place], "link") for place in range(10) if place not in removed | gone]
    assert sorted(numbers.take_stateless(first, 10)) == sorted(left)
