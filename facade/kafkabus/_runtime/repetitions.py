"""Logging of repeated warnings once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

PERIOD_S = 60.0
"""How long similar warnings are counted instead of logged, in seconds."""
LEFT_OUT = "left_out"
"""The attribute of a record that says how many like it were left out before."""

_KAFKA_TEMPLATE = "%s [%s] %s"
"""The template of all messages of Kafka's client: kind, client and text; the text contains changing numbers."""


class RepetitionFilter(logging.Filter):
    """Lets one of many records that are alike pass in a period, which says how many were left out since the last one.

    Alike are warnings of one logger with the same message template and the same class of error, whatever their arguments: a
    server that does not answer is one piece of news, however many entities it has. Errors are alike, too, if an exception goes
    with them, or if they are messages of Kafka's client of one kind. Other errors all pass: each says what was lost.

    Args:
        period: How long a period is, in seconds.
        clock: The time, in seconds.
    """

    def __init__(self, period: float = PERIOD_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._period = period
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        kind = _kind(record)
        if kind is None:
            return True
        now, key = self._clock(), (record.name, record.levelno, *kind)
        with self._lock:
            passed_at, left_out = self._passed.get(key, (now - self._period, 0))
            passes = now - passed_at >= self._period
            self._passed[key] = (now, 0) if passes else (passed_at, left_out + 1)
        if passes and left_out:
            record.__dict__[LEFT_OUT] = left_out
            record.msg = f"{record.msg} (and {left_out} more like it in the last {now - passed_at:.0f} s)"
        return passes


def limit_repetitions() -> None:
    """Add a ``RepetitionFilter`` to all log handlers of this process; logging must be configured already."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepetitionFilter())


def _kind(record: logging.LogRecord) -> tuple[str, str] | None:
    """Return the template and the error class by which records are similar, or None if each is logged."""
    raised = record.exc_info[1] if record.exc_info else None
    arguments = record.args if isinstance(record.args, tuple) else ()
    errors = (argument for argument in (raised, *arguments) if isinstance(argument, BaseException))
    error = next((type(argument).__qualname__ for argument in errors), "")
    if record.levelno < logging.WARNING:
        return None
    if record.msg == _KAFKA_TEMPLATE and arguments:
        return str(arguments[0]), error
    return (str(record.msg), error) if error or record.levelno == logging.WARNING else None
