"""The rows of the benchmarks, and their computation from measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

MESSAGES_PER_SECOND = "messages/s"
MILLISECONDS = "ms"
NOT_INSTALLED = "not installed"
"""The note of a row whose reference is missing on this machine."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The bound of a ratio.

    Attributes:
        limit: The minimum of the ratio, or its maximum if ``at_most`` is set.
        at_most: Whether smaller is better, as for latencies.
    """

    limit: float
    at_most: bool = False

    def met_by(self, ratio: float) -> bool:
        """Return whether a ratio keeps to the budget."""
        return ratio <= self.limit if self.at_most else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure as a function of how many things there are; a plot shows it.

    Attributes:
        title: The figure, with its unit.
        over: The things that are counted.
        points: Numbers of things, in rising order, each with the figure.
    """

    title: str
    over: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the results.

    Attributes:
        name: The work and its reference.
        value: kafkabus's result, or None if it was not measured.
        unit: The unit of ``value`` and ``reference``.
        reference: The reference's result in the same run, or None if there is no reference.
        ratio: The ratio of ``value`` to ``reference``, the median over the rounds.
        budget: The bound of the ratio, or None for rows that only inform.
        note: A remark that a reader needs beside the numbers.
        curve: The figure at several numbers of things, if it was measured at several.
    """

    name: str
    value: float | None
    unit: str
    reference: float | None = None
    ratio: float | None = None
    budget: Budget | None = None
    note: str = ""
    curve: Curve | None = None

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept, or None if there is no budget or no reference."""
        if self.budget is None or self.ratio is None:
            return None
        return self.budget.met_by(self.ratio)

    def as_json(self) -> dict[str, object]:
        """Return the row as ``latest.json`` holds it."""
        curve = None if self.curve is None else asdict(self.curve)
        return {
            "name": self.name,
            "value": _short(self.value),
            "unit": self.unit,
            "reference": _short(self.reference),
            "ratio": _short(self.ratio),
            "budget": None if self.budget is None else self.budget.limit,
            "met": self.met,
            **({} if curve is None else {"curve": curve}),
        }


def ratio_of(ours: Sequence[float], reference: Sequence[float]) -> float:
    """Return the median of the rounds' ratios; a temporary disturbance of the machine affects both sides of a round.

    Args:
        ours: kafkabus's result in each round.
        reference: The reference's result in each round.

    Raises:
        ValueError: There are no rounds, or the sides have different numbers of rounds.
    """
    if not ours:
        raise ValueError("there are no rounds to compare")
    return median(mine / theirs for mine, theirs in zip(ours, reference, strict=True))


def target(name: str, unit: str, value: float, wanted: float, curve: Curve | None = None) -> Result:
    """Return the row of a figure that is to be no more than a target of the project's own.

    Args:
        name: The work and the target.
        unit: The unit of both.
        value: The figure.
        wanted: The target.
        curve: The figure at several numbers of things.
    """
    return Result(name, value, unit, wanted, value / wanted, Budget(1.0, at_most=True), curve=curve)


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    reference: Sequence[float],
    budget: Budget | None = None,
    note: str = "",
) -> Result:
    """Return the row that compares two sides measured in the same rounds.

    Args:
        name: The work and its reference.
        unit: The unit of both results.
        ours: kafkabus's result in each round.
        reference: The reference's result in each round.
        budget: The bound of the ratio; by default the row only informs.
        note: A remark that a reader needs beside the numbers.
    """
    return Result(name, median(ours), unit, median(reference), ratio_of(ours, reference), budget, note)


def to_json(results: Sequence[Result], day: str, before: str = "[]") -> str:
    """Return all rows as the text of ``latest.json``.

    Args:
        results: The rows of this run.
        day: The day of the run, as ``2026-01-31``.
        before: The previous text; its rows with other names are kept.
    """
    new = {result.name: {**result.as_json(), "measured": day} for result in results}
    rows = [new.pop(row["name"], row) for row in json.loads(before)]
    return json.dumps([*rows, *new.values()], indent=2) + "\n"


def _short(number: float | None) -> float | None:
    """Round a number to the digits that a measurement supports."""
    return None if number is None else float(f"{number:.4g}")
