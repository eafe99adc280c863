"""The texts in which requests and replies name offsets."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence

from kafkabus._ledger.ranges import Counted, Range, joined, merge_offsets

_RUN = re.compile(r"(\d+)(?:-(\d+))?(?:\*(\d+))?")


def words_of(ranges: Iterable[Range]) -> str:
    """Ranges as the scripts of settling read them: ``"17,20-22"``."""
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in ranges])


def words_of_offsets(ascending: Sequence[int]) -> str:
    """Likewise, of offsets in ascending order."""
    if _are_apart(ascending):
        return ",".join(map(str, ascending))
    return words_of(merge_offsets(ascending))


def _are_apart(ascending: Sequence[int]) -> bool:
    """Whether no offset follows another one at once: such come, message for message, where sessions take turns."""
    return 1 not in map(operator.sub, ascending[1:], ascending)


def read_runs(words: str) -> list[Counted]:
    """Counted ranges as the scripts have them: ``"17,20-22*1"``; those that touch and have the same count are one."""
    if words and "-" not in words and "*" not in words:
        offsets = list(map(int, words.split(",")))
        if _are_apart(offsets):
            return [(offset, offset, 0) for offset in offsets]
    return joined((int(first), int(last or first), int(count or 0)) for first, last, count in _RUN.findall(words))


def read_ranges(reply: Iterable[Sequence[str]]) -> list[Range]:
    """Ranges out of a reply; Lua writes an empty list as an empty object."""
    return [(int(first), int(last)) for first, last in reply]
