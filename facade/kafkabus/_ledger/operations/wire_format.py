"""The texts in which requests and replies name offsets."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from kafkabus._ledger.layout import RUN
from kafkabus._ledger.ranges import Counted, Range, joined, merge_offsets

_RUN = RUN.regex


def words_of(ranges: Iterable[Range]) -> str:
    """Return ranges as the scripts of settling read them: ``"17,20-22"``."""
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in ranges])


def words_of_offsets(ascending: Sequence[int]) -> str:
    """Return offsets, which are ascending, in the same form."""
    if _are_apart(ascending):
        return ",".join(map(str, ascending))
    return words_of(merge_offsets(ascending))


def _are_apart(ascending: Sequence[int]) -> bool:
    """Return whether no offset directly follows another one, as when sessions take turns message by message."""
    return 1 not in map(operator.sub, ascending[1:], ascending)


def read_runs(words: str) -> list[Counted]:
    """Read counted ranges as the scripts have them: ``"17,20-22*1"``; join those that touch and have the same count."""
    if words and "-" not in words and "*" not in words:
        offsets = list(map(int, words.split(",")))
        if _are_apart(offsets):
            return [(offset, offset, 0) for offset in offsets]
    return joined((int(first), int(last or first), int(count or 0)) for first, last, count in _RUN.findall(words))


def read_ranges(reply: Iterable[Sequence[str]]) -> list[Range]:
    """Read ranges out of a reply; Lua writes an empty list as an empty object."""
    return [(int(first), int(last)) for first, last in reply]
