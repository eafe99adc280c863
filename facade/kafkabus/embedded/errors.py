"""Errors of the embedded runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkabus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 4096
_TAIL_LINES = 15


class EmbeddedRuntimeError(ServiceBusError):
    """The embedded Kafka or Redis cannot be provided.

    The error says what failed and what to do about it, and shows the end of the log that says why.
    """


def log_tail(log: Path) -> str:
    """Return the end of a log as part of an error message.

    Args:
        log: The log file; it need not exist.

    Returns:
        The log's name and last lines, or a sentence that it is empty.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        lines = []
    if not lines:
        return f"{log} is empty."
    return f"The end of {log}:\n" + "\n".join(f"  {line}" for line in lines)
