"""What a row of the benchmarks says, and how it follows from what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MESSAGES_PER_SECOND = "messages/s"
MILLISECONDS = "ms"
NOT_INSTALLED = "not installed"
"""The note of a row whose reference is missing on this machine."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a ratio must be.

    Attributes:
        limit: The least ratio; the most where ``at_most`` is set.
        at_most: Whether smaller is better, as for latencies.
    """

    limit: float
    at_most: bool = False

    def met_by(self, ratio: float) -> bool:
        """Whether a ratio keeps to the budget."""
        return ratio <= self.limit if self.at_most else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Result:
    """One row.

    Attributes:
        name: What was done, and against what.
        value: What kafkabus achieved, None where it was not measured.
        unit: Of ``value`` and ``reference``.
        reference: What the reference achieved in the same run, None where there is none.
        ratio: Of ``value`` to ``reference``, the median over the rounds.
        budget: What the ratio must be, None for rows that only inform.
        note: What a reader must know beside the numbers.
    """

    name: str
    value: float | None
    unit: str
    reference: float | None = None
    ratio: float | None = None
    budget: Budget | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None where there is none or nothing to compare with."""
        if self.budget is None or self.ratio is None:
            return None
        return self.budget.met_by(self.ratio)

    def as_json(self) -> dict[str, str | float | bool | None]:
        """The row as ``latest.json`` holds it."""
        return {
            "name": self.name,
            "value": _short(self.value),
            "unit": self.unit,
            "reference": _short(self.reference),
            "ratio": _short(self.ratio),
            "budget": None if self.budget is None else self.budget.limit,
            "met": self.met,
        }


def ratio_of(ours: Sequence[float], reference: Sequence[float]) -> float:
    """The median of the rounds' ratios: what disturbs the machine for a while hits both sides of a round.

    Args:
        ours: What kafkabus achieved in each round.
        reference: What the reference achieved in each round.

    Raises:
        ValueError: There are no rounds, or not as many on both sides.
    """
    if not ours:
        raise ValueError("there are no rounds to compare")
    return median(mine / theirs for mine, theirs in zip(ours, reference, strict=True))


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    reference: Sequence[float],
    budget: Budget | None = None,
    note: str = "",
) -> Result:
    """The row of two sides that were measured in the same rounds.

    Args:
        name: What was done, and against what.
        unit: Of both.
        ours: What kafkabus achieved in each round.
        reference: What the reference achieved in each round.
        budget: What the ratio must be; by default the row only informs.
        note: What a reader must know beside the numbers.
    """
    return Result(name, median(ours), unit, median(reference), ratio_of(ours, reference), budget, note)


def to_json(results: Sequence[Result], day: str, before: str = "[]") -> str:
    """All rows as the text of ``latest.json``.

    Args:
        results: What was measured.
        day: When, as ``2026-01-31``.
        before: That text as it was, whose rows of other names stay.
    """
    new = {result.name: {**result.as_json(), "measured": day} for result in results}
    rows = [new.pop(row["name"], row) for row in json.loads(before)]
    return json.dumps([*rows, *new.values()], indent=2) + "\n"


def _short(number: float | None) -> float | None:
    """A number without digits that no measurement has."""
    return None if number is None else float(f"{number:.4g}")
