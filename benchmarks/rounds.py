"""Measuring several sides in turns, so that each round sees the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Measure = Callable[[int], float]
"""Does a piece of work on so many messages and says how well that went, in the row's unit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a run does.

    Attributes:
        rounds: Rounds of each row, beside the one that warms up.
        part: Part of the full number of messages.
        patience: After how many seconds a row begins no further round.
    """

    rounds: int = 7
    part: float = 1.0
    patience: float = 90.0

    def count(self, full: int, *, multiple_of: int = 1) -> int:
        """How many messages, where a full run takes ``full``: a multiple of a batch, and at least two of them."""
        return max(2, round(full * self.part / multiple_of)) * multiple_of


QUICK = Scale(rounds=2, part=0.05, patience=20.0)
"""Shows that all rows work; its figures say little."""


def interleave(sides: Mapping[str, Measure], count: int, scale: Scale) -> dict[str, list[float]]:
    """Measure all sides once to warm up and then in turns: A B A B, and so on.

    Args:
        sides: What to measure, by name, in this order.
        count: The number of messages that each is given in each round.
        scale: How many rounds, and after which time none begins; one is measured in any case.

    Returns:
        Each side's measurements, one a round.
    """
    for measure in sides.values():
        measure(count)
    measured: dict[str, list[float]] = {name: [] for name in sides}
    end = time.monotonic() + scale.patience
    for _ in range(scale.rounds):
        for name, measure in sides.items():
            measured[name].append(measure(count))
        if time.monotonic() > end:
            break
    return measured


def rate(count: int, began: float) -> float:
    """Messages per second since ``began``, a reading of ``time.perf_counter``."""
    return count / (time.perf_counter() - began)
