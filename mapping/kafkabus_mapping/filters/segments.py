"""Segments of LIKE patterns: the characters between two ``%``; the time of a search depends only on the text's length."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

SHORT = 128
"""The maximum length of a segment that ``re`` searches for, trying each place in turn; others are searched with Shift-And."""


class Segment:
    """Consecutive characters to find in a text.

    Args:
        characters: The characters; None matches any character.

    Attributes:
        length: The number of characters.
    """

    def __init__(self, characters: Sequence[str | None]) -> None:
        self.length = len(characters)
        self._characters = characters
        given = [place for place, character in enumerate(characters) if character is not None]
        # Wildcards at the ends need no search: the part that is searched begins and ends with a given character.
        self._before = given[0] if given else self.length
        core = characters[given[0] : given[-1] + 1] if given else ()
        self._after = self.length - self._before - len(core)
        self._end_of_core = _finder(core)

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return _expression(self._characters)

    def stands_at(self, text: str, place: int) -> bool:
        """Return whether a text has these characters from a place on."""
        return self._whole.match(text, place) is not None

    def find(self, text: str, start: int) -> int:
        """Return the end of the first occurrence in a text from ``start`` on, or -1 if there is none."""
        end = self._end_of_core(text, start + self._before)
        # A later place would leave even less room behind it.
        return -1 if end < 0 or end + self._after > len(text) else end + self._after


def _finder(core: Sequence[str | None]) -> Callable[[str, int], int]:
    """Return a function that returns the end of the first occurrence of characters in a text, or -1 if there is none.

    A short segment is tried at each place; a long one is matched at all places at once, so that no search takes a time
    proportional to the product of both lengths.
    """
    if None in core:
        return _try_each_place(core) if len(core) <= SHORT else _follow_core(core)
    wanted = "".join(character or "" for character in core)

    def find(text: str, start: int) -> int:
        found = text.find(wanted, start)
        return -1 if found < 0 else found + len(wanted)

    return find


def _try_each_place(core: Sequence[str | None]) -> Callable[[str, int], int]:
    expression = _expression(core)

    def find(text: str, start: int) -> int:
        found = expression.search(text, start)
        return -1 if found is None else found.end()

    return find


def _follow_core(core: Sequence[str | None]) -> Callable[[str, int], int]:
    """Search with Shift-And (Baeza-Yates and Gonnet 1992): bit n is set if the last n + 1 characters are the core's first."""
    any_one = sum(1 << place for place, character in enumerate(core) if character is None)
    places: dict[str, int] = {}
    for place, character in enumerate(core):
        if character is not None:
            places[character] = places.get(character, any_one) | 1 << place
    last = 1 << (len(core) - 1)

    def find(text: str, start: int) -> int:
        state = 0
        for place, character in enumerate(text[start:], start):
            state = (state << 1 | 1) & places.get(character, any_one)
            if state & last:
                return place + 1
        return -1

    return find


def _expression(characters: Sequence[str | None]) -> re.Pattern[str]:
    return re.compile(
        "".join("." if character is None else re.escape(character) for character in characters), re.DOTALL
    )
