"""Errors of the embedded runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkabus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 4096
_TAIL_LINES = 15
_LONGEST_LINE = 300


class EmbeddedRuntimeError(ServiceBusError):
    """The embedded Kafka or Redis cannot be provided.

    The error says what failed and what to do about it, and shows the end of the log that says why.
    """


def last_line(log: Path) -> str:
    """Return the last line of a log that says anything, cut to what fits a sentence; empty if there is none."""
    return next((line.strip()[:_LONGEST_LINE] for line in reversed(_last_lines(log)) if line.strip()), "")


def log_tail(log: Path) -> str:
    """Return the end of a log as part of an error message.

    Args:
        log: The log file; it need not exist.

    Returns:
        The log's name and last lines, or a sentence that it is empty.
    """
    lines = _last_lines(log)
    if not lines:
        return f"{log} is empty."
    return f"The end of {log}:\n" + "\n".join(f"  {line}" for line in lines)


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []
