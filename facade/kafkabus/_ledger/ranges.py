"""Ranges of offsets: unions, common parts and differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NEVER = 1 << 62
"""Beyond every offset, and every number of deliveries."""

Range = tuple[int, int]
"""First and last offset."""
Counted = tuple[int, int, int]
"""First and last offset, and delivery count."""


def offsets_of(ranges: Iterable[Range]) -> list[int]:
    """Return the offsets of ranges, one by one."""
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def merge_offsets(offsets: Iterable[int]) -> list[Range]:
    """Return offsets as ascending, disjoint ranges."""
    ascending = sorted(set(offsets))
    if not ascending:
        return []
    first = previous = ascending[0]
    if ascending[-1] - first + 1 == len(ascending):
        return [(first, ascending[-1])]
    ranges: list[Range] = []
    for offset in ascending[1:]:
        if offset != previous + 1:
            ranges.append((first, previous))
            first = offset
        previous = offset
    ranges.append((first, previous))
    return ranges


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges as ascending ones that neither overlap nor touch."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def joined(ranges: Iterable[Counted]) -> list[Counted]:
    """Return disjoint, counted ranges in ascending order; join those that touch and were delivered equally often."""
    ascending: list[Counted] = []
    for first, last, count in sorted(ranges):
        if ascending and (ascending[-1][1] + 1, ascending[-1][2]) == (first, count):
            ascending[-1] = (ascending[-1][0], last, count)
        else:
            ascending.append((first, last, count))
    return ascending


def minus(ranges: Iterable[Range], removed: Iterable[Range]) -> list[Range]:
    """Return the parts of disjoint ranges that are not in others."""
    gaps, start = list[Range](), 0
    for first, last in union(removed):
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    return common(ranges, [*gaps, (start, NEVER)])


def common(ranges: Iterable[Range], limits: Sequence[Range]) -> list[Range]:
    """Return the parts that disjoint ranges have in common with ascending, disjoint others."""
    return [(first, last) for first, last, _ in cut([(*run, 0) for run in ranges], limits)]


def cut(ranges: Iterable[Counted], limits: Sequence[Range]) -> list[Counted]:
    """Return the parts that disjoint, counted ranges have in common with ascending, disjoint others."""
    parts: list[Counted] = []
    index = 0
    for first, last, count in sorted(ranges):
        while index < len(limits) and limits[index][1] < first:
            index += 1
        at = index
        while at < len(limits) and limits[at][0] <= last:
            parts.append((max(first, limits[at][0]), min(last, limits[at][1]), count))
            at += 1
    return parts
