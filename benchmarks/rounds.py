"""Measuring several sides in turn, so that the machine is in the same state for all sides of a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Measure = Callable[[int], float]
"""A function that works on a number of messages and returns the result in the row's unit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The extent of a run.

    Attributes:
        rounds: Rounds of each row, besides those to warm up.
        part: The fraction of the full number of messages.
        patience: The time after which a row begins no further round, in seconds.
    """

    rounds: int = 7
    part: float = 1.0
    patience: float = 90.0

    def count(self, full: int, *, multiple_of: int = 1) -> int:
        """Return the number of messages if a full run has ``full``: a multiple of the batch size, at least two batches."""
        return max(2, round(full * self.part / multiple_of)) * multiple_of


QUICK = Scale(rounds=2, part=0.05, patience=20.0)
"""A short run, which checks that all rows work; its figures mean little."""

JAVA_WARM_UP = 3
"""Rounds to warm up of a row whose sides run in Spark: Java compiles Spark's programs in its first rounds."""


def interleave(sides: Mapping[str, Measure], count: int, scale: Scale, *, warm_up: int = 1) -> dict[str, list[float]]:
    """Measure all sides to warm up and then in turn: A B A B, and so on.

    Args:
        sides: The functions to measure, by name, in this order.
        count: The number of messages for each side in each round.
        scale: The number of rounds, and the time after which none begins; one is measured in any case.
        warm_up: The number of rounds that are not measured, at most as many as are.

    Returns:
        Each side's measurements, one a round.
    """
    for _ in range(min(warm_up, scale.rounds)):
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
    """Return the messages per second since ``began``, a reading of ``time.perf_counter``."""
    return count / (time.perf_counter() - began)
