"""Output to the terminal, a file or a pipe.

Results go to stdout, as plain text if a program may read them; messages to the user go to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from kafkabus.cli.exits import OutputClosed

_QUICK_S = 0.5
"""The duration up to which work has no progress bar, in seconds."""
# Characters that could move the cursor, recolour the terminal or retitle its window; tab and newline are text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise OutputClosed


def is_interactive() -> bool:
    """Return whether a user can be asked for input."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(text: str) -> None:
    """Write a message to the user, on stderr."""
    # Names and paths are shown unchanged: without markup, colours or additional line breaks.
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def write(text: str) -> None:
    """Write a line of the result.

    Raises:
        OutputClosed: The reader has closed the output.
    """
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        raise OutputClosed from None


def flush() -> None:
    """Flush the output.

    Raises:
        OutputClosed: The reader has closed the output.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def write_json(value: object) -> None:
    """Write a JSON document."""
    write(json.dumps(value, ensure_ascii=False, indent=2))


def printable(body: bytes) -> str:
    """Return a body as text: without control characters for a terminal; for a program only broken UTF-8 is replaced."""
    text = body.decode("utf-8", "backslashreplace")
    return escape_controls(text) if sys.stdout.isatty() else text


def escape_controls(text: str) -> str:
    """Return a text that is safe for a terminal: control characters are escaped."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def write_table(
    columns: Mapping[str, bool], rows: Sequence[Sequence[str]], *, total: Sequence[str] | None = None
) -> None:
    """Write a table.

    Args:
        columns: Headings, and whether each column holds numbers.
        rows: Cells as text.
        total: A last row below a line.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=total is not None, footer_style="bold")
    for index, (heading, numbers) in enumerate(columns.items()):
        table.add_column(
            heading,
            justify="right" if numbers else "left",
            footer="" if total is None else total[index],
            overflow="fold",
            no_wrap=numbers,
        )
    for row in rows:
        table.add_row(*row)
    # Without a terminal, no line is folded.
    width = None if sys.stdout.isatty() else 10_000
    _Console(width=width, highlight=False, markup=False).print(table)


def write_fields(fields: Mapping[str, str]) -> None:
    """Write names with their values, one per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        write(f"{name:<{width}}  {value}".rstrip())


@contextlib.contextmanager
def activity() -> Generator[Callable[[str], None], None, None]:
    """Show the current step of work: with a spinner in a terminal, else with a line for each step."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield say
        return
    with console.status("") as status:
        yield lambda text: status.update(f"[dim]{text}")


@contextlib.contextmanager
def show_progress(what: str, total: int | None) -> Generator[Callable[[int], None], None, None]:
    """Show a progress bar in a terminal, once the work has taken a while.

    Args:
        what: The description of the work.
        total: The total amount of work; None if it is unknown.

    Yields:
        A function to call with the amount of work done since the last call.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    quick_until = time.monotonic() + _QUICK_S

    def advance(count: int) -> None:
        bar.advance(task, count)
        if time.monotonic() > quick_until:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def discard_output() -> None:
    """Discard unwritten output, because the interpreter would report an error about it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
