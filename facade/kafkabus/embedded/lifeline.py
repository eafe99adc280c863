"""The supervisor's waiting: for the end of a child, or for a request to stop."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

RELEASE = b"r"
"""The byte that the starter writes to let the supervisor outlive it."""

_PARENT_CHECK_S = 1.0


class StopRequested(Exception):
    """The supervisor is to stop everything and end."""


class Lifeline:
    """The supervisor's tie to the process that started it.

    That process holds the other end of a pipe: when it ends, for whatever reason, the pipe reads as
    closed. SIGTERM also asks the supervisor to stop. Signals from a terminal are for the starter: the
    supervisor ignores them, so that everything stops in order once the starter has stopped.

    Args:
        pipe: The pipe's reading end.
        parent: The starter's pid if it is the parent: the pipe stays open if the starter forked a
            process that outlives it, hence the lifeline watches the parent as well.
    """

    def __init__(self, pipe: int, parent: int | None) -> None:
        self._pipe: int | None = pipe
        self._parent = parent
        self._stop = False
        self._wakeup, writer = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGCHLD, _wake)

    def wait(self, seconds: float) -> None:
        """Wait until a child ends or time is up.

        Args:
            seconds: The longest time to wait.

        Raises:
            StopRequested: A stop was requested, before or during the call.
        """
        deadline = time.monotonic() + seconds
        woken = False
        while not woken:
            self._check()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            woken = self._select(min(left, _PARENT_CHECK_S))
        self._check()

    def nap(self, seconds: float) -> None:
        """Wait until a child ends or time is up, even if a stop was requested.

        Args:
            seconds: The longest time to wait.
        """
        select.select([self._wakeup], [], [], seconds)
        self._drain()

    def await_release(self) -> None:
        """Wait until the starter releases the supervisor.

        Raises:
            StopRequested: The starter ended, or SIGTERM came, instead.
        """
        while self._pipe is not None:
            self.wait(_PARENT_CHECK_S)

    def _select(self, seconds: float) -> bool:
        watched = [self._wakeup] if self._pipe is None else [self._wakeup, self._pipe]
        readable, _, _ = select.select(watched, [], [], seconds)
        if self._pipe is not None and self._pipe in readable:
            self._read(self._pipe)
        return self._wakeup in readable and self._drain()

    def _read(self, pipe: int) -> None:
        if os.read(pipe, len(RELEASE)) == RELEASE:
            os.close(pipe)
            self._pipe = None
        else:
            self._stop = True

    def _drain(self) -> bool:
        try:
            return bool(os.read(self._wakeup, 4096))
        except BlockingIOError:
            return False

    def _check(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            self._stop = True
        if self._stop:
            raise StopRequested

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop = True


def _wake(_signal: int, _frame: FrameType | None) -> None:
    """Do nothing: Python writes a signal's number to the wake-up pipe only if the signal has a handler."""
