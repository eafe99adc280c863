"""The servers as child processes: started, watched, started again, stopped."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.state import ProcessMark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkabus.embedded.lifeline import Lifeline

_logger = logging.getLogger(__name__)

_FIRST_DELAY_S = 0.2
_LONGEST_DELAY_S = 5.0
# A child that lived this long was well: what ended it is news.
_WELL_AFTER_S = 10.0
_CHECK_S = 1.0
LARGEST_LOG = 10 * 1024 * 1024
"""How large a log may become, in bytes, before it is kept aside and begun anew."""


def spawn(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process, however this process ends (on Linux).

    To be called in the main thread: the kernel watches the thread, not the process.

    Args:
        command: Program and arguments.
        folder: The folder to run it in.
        log: The file that takes its output.
        environment: Variables that it has besides those of this process. Secrets belong here: every user of the machine
            sees its arguments.

    Returns:
        The process.
    """
    if sys.platform == "linux":
        shim = str(Path(__file__).with_name("die_with_parent.py"))
        command = [sys.executable, "-I", "-S", shim, str(os.getpid()), *command]
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )


def cut_log(log: Path, largest: int = LARGEST_LOG) -> None:
    """Keep a log that has become too large aside, as ``NAME.1`` for this user alone, and begin it anew.

    The programs that write it are not asked: they append, so they go on at its new end. Lines that they write between the copy
    and the cut are lost.

    Args:
        log: The log; it need not exist.
        largest: How large it may be, in bytes.
    """
    try:
        if log.stat().st_size <= largest:
            return
    except FileNotFoundError:
        return
    aside = log.with_name(f"{log.name}.1")
    try:
        aside.unlink(missing_ok=True)
        with log.open("rb") as source, open(aside, "xb", opener=_private) as target:
            shutil.copyfileobj(source, target)
    except OSError as error:
        # On a full disk it is cut all the more.
        _logger.warning("%s could not be kept aside: %s", log, error)
    os.truncate(log, 0)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Child:
    """A server that is to run all the time.

    Args:
        name: Its name.
        command: Program and arguments.
        folder: The folder to run it in.
        log: The file that takes its output.
        environment: Variables that it has besides those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.deaths = 0
        """How often it ended since it was last well."""
        self._command = command
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._due = 0.0

    @property
    def mark(self) -> ProcessMark | None:
        """Its process, or None when it does not run."""
        return ProcessMark.of(self._process.pid) if self._process is not None else None

    def tend(self) -> bool:
        """Notice that it ended, and start it when that is due.

        Returns:
            Whether it ended or was started.
        """
        now = time.monotonic()
        status = self._process.poll() if self._process is not None else None
        ended = status is not None
        if ended:
            self._note_end(now, f"ended with status {status}")
        started = self._process is None and now >= self._due
        if started:
            self._start(now)
        return ended or started

    def seconds_to_start(self) -> float | None:
        """Return the time until it is to be started again, or None when it runs."""
        return None if self._process is not None else max(0.0, self._due - time.monotonic())

    def signal(self, number: int) -> None:
        """Send a signal to it, if it runs.

        Args:
            number: The signal.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def _start(self, now: float) -> None:
        self._started = now
        try:
            self._process = spawn(self._command, self._folder, self.log, self._environment)
        except OSError as error:
            self._put_off(now, f"could not be started: {error}")
        else:
            _logger.info("%s started, pid %d", self.name, self._process.pid)

    def _note_end(self, now: float, reason: str) -> None:
        self._process = None
        if now - self._started >= _WELL_AFTER_S:
            self.deaths = 0
        self._put_off(now, reason)

    def _put_off(self, now: float, reason: str) -> None:
        delay = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self.deaths, 10))
        self.deaths += 1
        self._due = now + delay
        _logger.warning("%s %s; starting it in %.1f s", self.name, reason, delay)


def stop_all(children: Sequence[Child], lifeline: Lifeline, grace: float) -> None:
    """Stop children, and return when they have ended.

    Args:
        children: The children.
        lifeline: How to wait.
        grace: How long they may take to end by themselves, in seconds; 0 kills them at once.
    """
    deadline = time.monotonic() + grace
    if grace > 0:
        for child in children:
            child.signal(signal.SIGTERM)
            # One that is paused would not hear it.
            child.signal(signal.SIGCONT)
    while any(child.running for child in children):
        if time.monotonic() >= deadline:
            for child in children:
                child.signal(signal.SIGKILL)
        lifeline.nap(0.1)


class Bench:
    """Runs programs to their end, and waits, as long as nobody asks the supervisor to stop.

    Args:
        lifeline: How to wait.
    """

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline

    def pause(self, seconds: float) -> None:
        """Wait that many seconds, or less.

        Args:
            seconds: The longest time to wait.

        Raises:
            StopRequested: The supervisor is to stop.
        """
        self._lifeline.wait(seconds)

    def run_together(self, programs: Sequence[tuple[Sequence[str], Path, Path]], limit: float) -> list[int]:
        """Run several programs side by side to their ends.

        Args:
            programs: Of each the command, the folder to run it in, and the file that takes its output.
            limit: The time they are given, in seconds.

        Returns:
            Their exit statuses; negative where a program was killed because time was up.

        Raises:
            StopRequested: The supervisor is to stop. The programs have been killed.
        """
        deadline = time.monotonic() + limit
        running: list[subprocess.Popen[bytes]] = []
        try:
            for program in programs:
                # One by one: those started must be known when another cannot be.
                running.append(spawn(*program))  # noqa: PERF401
            while any(process.poll() is None for process in running):
                if time.monotonic() > deadline:
                    break
                self._lifeline.wait(_CHECK_S)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
        return [process.wait() for process in running]
