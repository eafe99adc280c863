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
    """Numbers wrap around. Of each delivery, the first state that the peer reports counts."""
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


@given(first=firsts, settled=st.sets(st.integers(0, 9)), transacted=st.sets(st.integers(0, 9)))
def test_a_transaction_settles_known_deliveries_alone(first: int, settled: set[int], transacted: set[int]) -> None:
    """Those that were sent settled are known, and those that it settled before; numbers go round."""
    numbers = SentNumbers[str](first)
    added = [numbers.add("link", settled=place in settled) for place in range(10)]
    known = set(settled)
    for place in transacted:
        found = [number for number, _ in numbers.take_stateless(added[place], 1)]
        assert numbers.note_transaction(added[place], 1, found, b"one")
        known.add(place)
    found = [number for number, _ in numbers.take_stateless(added[0], 10)]
    assert len(found) == 10 - len(known)
    # Deliveries of another transaction are not those of this one.
    assert numbers.note_transaction(added[0], 10, found, b"two") == (known <= settled)
