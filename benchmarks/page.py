"""The results as Markdown, between two markers of a page that is otherwise written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.results import Result

BEGIN = "<!-- results -->"
END = "<!-- /results -->"
_ABSENT = "-"
_HEAD = (
    "| Work: reference | kafkabus | Reference | Ratio | Budget | Met | Measured |",
    "|---|---:|---:|---:|---:|---|---|",
)


def with_results(page: str, facts: Mapping[str, str], results: Sequence[Result], *, keep_others: bool = False) -> str:
    """Return a page with its results replaced.

    Args:
        page: The page, which contains each marker once.
        facts: Facts about the machine, and the day as ``Date``.
        results: All rows.
        keep_others: Whether rows with other names stay unchanged, because this run did not measure them.

    Raises:
        ValueError: The markers are missing, in the wrong order, or repeated.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head or END in tail:
        raise ValueError(f"the page must hold {BEGIN} and {END}, in this order and once each")
    rows = [f"| {' | '.join([*cells(result), facts['Date']])} |" for result in results]
    if keep_others:
        rows = _merged(_rows(rest), rows)
    tables = [*_HEAD, *rows, "", "| The last run | |", "|---|---|"]
    tables += [f"| {name} | {fact} |" for name, fact in facts.items()]
    return "\n".join([f"{head}{BEGIN}", "", *tables, "", f"{END}{tail}"])


def _rows(results: str) -> list[str]:
    """Return the rows of results that were written before."""
    table = results.strip().partition("\n\n")[0].splitlines()
    return table[len(_HEAD) :]


def _merged(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the earlier rows, each replaced by the new one of its name, followed by rows with new names."""
    new = {_name(row): row for row in now}
    return [new.pop(_name(row), row) for row in before] + list(new.values())


def _name(row: str) -> str:
    return row.split("|")[1].strip()


def cells(result: Result) -> list[str]:
    """Return a row's cells: name, value, reference, ratio, budget, verdict."""
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
    # Three digits, because no run is more precise.
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f} {unit}" if rounded >= 100 else f"{rounded:g} {unit}"
