"""The command line: measures the rows and writes the results."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from benchmarks.machine import machine_facts
from benchmarks.page import cells, with_results
from benchmarks.plots import draw
from benchmarks.results import Result, to_json
from benchmarks.rounds import QUICK, Scale
from benchmarks.rows import WORKS
from benchmarks.workbench import open_workbench

ROOT = Path(__file__).resolve().parent.parent
LATEST = ROOT / "benchmarks" / "latest.json"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "images" / "scale.svg"

_HEADINGS = ("Work: reference", "kafkabus", "Reference", "Ratio", "Budget", "Met")


def main() -> None:
    """Run the command line."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    app()


def run(
    quick: Annotated[bool, typer.Option("--quick", help="Check that all rows work, with few messages.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help=f"Measure only this row; may be repeated: {', '.join(WORKS)}.")
    ] = None,
    write: Annotated[
        bool | None,
        typer.Option(help="Write latest.json and the page, keeping rows that were not measured; not with --quick."),
    ] = None,
) -> None:
    """Measure kafkabus and its references in one run, and write benchmarks/latest.json, docs/performance.md and its plots."""
    chosen = _chosen(only)
    facts, results = _measure(chosen, QUICK if quick else Scale())
    if write if write is not None else not quick:
        before = LATEST.read_text(encoding="utf-8") if only else "[]"
        after = to_json(results, facts["Date"], before)
        LATEST.write_text(after, encoding="utf-8")
        draw(after, PLOTS)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_results(page, facts, results, keep_others=bool(only)), encoding="utf-8")


def _chosen(only: Sequence[str] | None) -> list[str]:
    unknown = set(only or ()) - set(WORKS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(WORKS)}", param_hint="--only")
    return [name for name in WORKS if not only or name in only]


def _measure(chosen: Sequence[str], scale: Scale) -> tuple[Mapping[str, str], Sequence[Result]]:
    """Measure the chosen rows, and show each as soon as it is measured."""
    # Without a terminal, a line need not fit a window.
    console, results = Console(width=None if sys.stdout.isatty() else 160), list[Result]()
    # Libraries of references and plots are no part of the measured work: for them, each of Python's many pauses to collect
    # garbage would take 50 ms.
    gc.collect()
    gc.freeze()
    with open_workbench() as bench:
        facts = machine_facts(bench.redis_url, data_in_memory=bench.in_memory)
        with Live(_table(results, "starting"), console=console, auto_refresh=False) as live:
            for name in chosen:
                live.update(_table(results, f"measuring: {name}"), refresh=True)
                for result in WORKS[name](bench, scale):
                    results.append(result)
                    live.update(_table(results, f"measuring: {name}"), refresh=True)
                # A reference's client that only a reference cycle keeps alive would go on fetching during the next row.
                gc.collect()
            live.update(_table(results, ""), refresh=True)
    return facts, results


def _table(results: Sequence[Result], caption: str) -> Table:
    table = Table(caption=caption)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in {_HEADINGS[0], _HEADINGS[-1]} else "right")
    for result in results:
        table.add_row(*(cell.replace("**", "") for cell in cells(result)))
    return table
