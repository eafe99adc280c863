"""The results as Markdown, between two markers of a page whose rest is written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.results import Result

BEGIN = "<!-- results -->"
END = "<!-- /results -->"
_ABSENT = "-"


def with_results(page: str, facts: Mapping[str, str], results: Sequence[Result]) -> str:
    """A page with its results replaced.

    Args:
        page: The page; it holds both markers, once each.
        facts: What is to be known of the machine.
        results: All rows.

    Raises:
        ValueError: The markers are not there, not in order, or there more than once.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head or END in tail:
        raise ValueError(f"the page must hold {BEGIN} and {END}, in this order and once each")
    return f"{head}{BEGIN}\n\n{markdown(facts, results)}\n{END}{tail}"


def markdown(facts: Mapping[str, str], results: Sequence[Result]) -> str:
    """The facts and the rows as two tables."""
    lines = ["| Work: reference | kafkabus | Reference | Ratio | Budget | Met |", "|---|---:|---:|---:|---:|---|"]
    lines += [f"| {' | '.join(cells(result))} |" for result in results]
    lines += ["", "| The run | |", "|---|---|"]
    lines += [f"| {name} | {fact} |" for name, fact in facts.items()]
    return "\n".join(lines) + "\n"


def cells(result: Result) -> list[str]:
    """A row's cells: name, value, reference, ratio, budget, verdict."""
    ratio = _ABSENT if result.ratio is None else f"{result.ratio:.2f}"
    return [
        f"{result.name} ({result.note})" if result.note else result.name,
        _quantity(result.value, result.unit),
        _quantity(result.reference, result.unit),
        ratio,
        _ABSENT if result.budget is None else str(result.budget),
        {None: _ABSENT, True: "yes", False: "**no**"}[result.met],
    ]


def _quantity(number: float | None, unit: str) -> str:
    if number is None:
        return _ABSENT
    # Three digits: more would claim a precision that no run has.
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f} {unit}" if rounded >= 100 else f"{rounded:g} {unit}"
