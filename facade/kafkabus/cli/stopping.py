"""Handling of signals that ask the program to end; commands settle the messages that they hold first."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Generator
from types import FrameType
from typing import NoReturn

from kafkabus.cli.exits import OutputClosed
from kafkabus.cli.terminal import discard_output

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask the program to end: from Ctrl-C, from ``kill``, from a terminal that closes."""
REPEAT_S = 1.0
"""The time after a signal before a further one counts, in seconds: shells and terminals may send the same one twice."""


def unwind_on_signals() -> None:
    """Make SIGTERM and SIGHUP unwind the program, as Ctrl-C does, unless they are ignored, for example by ``nohup``."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _unwind)


def _unwind(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


class Stop:
    """A signal that asked a command to end; the command checks for it when it holds no messages."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._noted_at = 0.0

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal; if it is a further one, a second later or more, unwind the program at once.

        Raises:
            SystemExit: It is a further signal.
        """
        now = time.monotonic()
        repeated = self._number is not None and now - self._noted_at > REPEAT_S
        if self._number is None or repeated:
            self._number, self._noted_at = number, now
        if repeated:
            raise SystemExit(128 + number)

    def is_requested(self) -> bool:
        """Return whether a signal came."""
        return self._number is not None

    def end(self) -> None:
        """End the program if a signal came.

        Raises:
            SystemExit: A signal came; the exit status names it.
        """
        if self._number is not None:
            raise SystemExit(128 + self._number)


@contextlib.contextmanager
def note_signals() -> Generator[Stop, None, None]:
    """Note signals while a block runs, instead of unwinding it at once.

    Raises:
        SystemExit: A signal came, and the block checked for it or its output was closed, since Ctrl-C ends a whole pipeline.
    """
    stop = Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, stop.note)
    try:
        yield stop
    except OutputClosed:
        if stop.is_requested():
            discard_output()
        stop.end()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
