"""Ctrl-C: stop once, in order, and leave no process behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

import psutil

_PATIENCE_S: Final = 10.0


class Interrupt:
    """Turns the first SIGINT or SIGTERM into a KeyboardInterrupt, and lets nothing interrupt the stopping that follows.

    Attributes:
        requested: Whether the program was asked to stop.
    """

    def __init__(self) -> None:
        self.requested = False

    def install(self) -> None:
        """Take over both signals; pyspark takes SIGINT for itself whenever it starts, so this is called again then."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def check(self) -> None:
        """Stop here where the exception was lost, as one raised within a callback from C is.

        Raises:
            KeyboardInterrupt: The program was asked to stop.
        """
        if self.requested:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a signal handler's signature
        if not self.requested:
            self.requested = True
            raise KeyboardInterrupt


def end_descendants() -> None:
    """End whatever this process started and is still there, as a Java that an interrupt cut off in its start."""
    remaining = psutil.Process().children(recursive=True)
    for process in remaining:
        _quietly(process.terminate)
    _, alive = psutil.wait_procs(remaining, timeout=_PATIENCE_S)
    for process in alive:
        _quietly(process.kill)
    psutil.wait_procs(alive, timeout=_PATIENCE_S)


def _quietly(end: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        end()
