"""Handling of Ctrl-C: stop once, in order, and leave no process behind."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

import psutil

_PATIENCE_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02


class Interrupt:
    """Turns the first SIGINT or SIGTERM into a KeyboardInterrupt, and protects the shutdown that follows from further ones.

    It notices a signal even if another handler takes it, as pyspark's does while Spark starts.
    """

    def __init__(self) -> None:
        self._stopping = False
        self._signals, self._noted = socket.socketpair()
        for end in (self._signals, self._noted):
            end.setblocking(False)

    @property
    def requested(self) -> bool:
        """Whether the program was asked to stop."""
        with contextlib.suppress(BlockingIOError):
            self._stopping |= bool(self._signals.recv(64))
        return self._stopping

    def install(self) -> None:
        """Install the handler of both signals; call this again after pyspark started, which replaces that of SIGINT."""
        signal.set_wakeup_fd(self._noted.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def begin_stopping(self) -> None:
        """Ignore further signals from here on."""
        self._stopping = True

    def check(self) -> None:
        """Raise the exception here if it was lost, as one raised within a callback from C is.

        Raises:
            KeyboardInterrupt: The program was asked to stop.
        """
        if self.requested:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a signal handler's signature
        if not self._stopping:
            self._stopping = True
            raise KeyboardInterrupt


def end_descendants() -> None:
    """End all processes that this one started and that still run, such as a Java whose start was interrupted."""
    remaining = psutil.Process().children(recursive=True)
    for process in remaining:
        _quietly(process.terminate)
    for process in _still_alive(remaining):
        _quietly(process.kill)
    _still_alive(remaining)


def _still_alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run after a while; a zombie counts as ended, because containers may not reap it."""
    deadline = time.monotonic() + _PATIENCE_S
    while alive := [process for process in processes if not _ended(process)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(_LOOK_EVERY_S)
    return []


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _quietly(end: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        end()
