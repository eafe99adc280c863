"""The servers as child processes, which are started, watched, restarted and stopped."""

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
# A child that lived this long was healthy: its end counts as a first failure.
_WELL_AFTER_S = 10.0
_CHECK_S = 1.0
DEATHS_IN_A_ROW = 3
"""How often a server ends in a row before that is reported."""
LARGEST_LOG = 10 * 1024 * 1024
"""The maximum size of a log before it is rotated, in bytes."""


def spawn(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process, however this process ends (on Linux).

    To be called in the main thread: the kernel watches the thread, not the process.

    Args:
        command: Program and arguments.
        folder: The folder to run it in.
        log: The file that takes its output.
        environment: Additional environment variables. Secrets belong here, because every user of the machine can see a
            program's arguments.

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
    """Copy a log that is too large to ``NAME.1``, which only this user can read, and truncate it.

    The programs that write the log append, so they continue at its new end. Lines that they write between the copy and the
    truncation are lost.

    Args:
        log: The log; it need not exist.
        largest: The maximum size of the log, in bytes.
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
        # Truncate the log even so, in particular if the disk is full.
        _logger.warning("%s could not be kept aside: %s", log, error)
    os.truncate(log, 0)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Child:
    """A server that is restarted whenever it ends.

    Args:
        name: The server's name.
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
        """How often the server ended since it was last healthy."""
        self._command = command
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._due = 0.0

    @property
    def mark(self) -> ProcessMark | None:
        """The mark of the server's process, or None if it does not run."""
        return ProcessMark.from_pid(self._process.pid) if self._process is not None else None

    def tend(self) -> bool:
        """Note if the server ended, and start it when a start is due.

        Returns:
            Whether the server ended or was started.
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

    @property
    def keeps_ending(self) -> bool:
        """Whether the server ended several times in a row, and has not been well since."""
        well = self._process is not None and time.monotonic() - self._started >= _WELL_AFTER_S
        return self.deaths >= DEATHS_IN_A_ROW and not well

    def seconds_to_start(self) -> float | None:
        """Return the time until the next start of the server, or None if it runs."""
        return None if self._process is not None else max(0.0, self._due - time.monotonic())

    def signal(self, number: int) -> None:
        """Send a signal to the server, if it runs.

        Args:
            number: The signal.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
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
        lifeline: The lifeline, which waits for their ends.
        grace: How long the children may take to end by themselves, in seconds; 0 kills them at once.
    """
    deadline = time.monotonic() + grace
    if grace > 0:
        for child in children:
            child.signal(signal.SIGTERM)
            # A paused process would not receive the signal.
            child.signal(signal.SIGCONT)
    while any(child.is_running for child in children):
        if time.monotonic() >= deadline:
            for child in children:
                child.signal(signal.SIGKILL)
        lifeline.nap(0.1)


class Bench:
    """Runs programs to their end, and waits, unless the supervisor is asked to stop.

    Args:
        lifeline: The lifeline, which waits and notices a stop.
    """

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline

    def pause(self, seconds: float) -> None:
        """Wait, at most for a number of seconds.

        Args:
            seconds: The longest time to wait.

        Raises:
            StopRequested: The supervisor is to stop.
        """
        self._lifeline.wait(seconds)

    def run_together(self, programs: Sequence[tuple[Sequence[str], Path, Path]], limit: float) -> list[int]:
        """Run several programs in parallel to their ends.

        Args:
            programs: The command, the folder to run it in, and the file for the output of each program.
            limit: The time limit, in seconds.

        Returns:
            The exit statuses; negative if a program was killed because it exceeded the limit.

        Raises:
            StopRequested: The supervisor is to stop. The programs have been killed.
        """
        deadline = time.monotonic() + limit
        running: list[subprocess.Popen[bytes]] = []
        try:
            for program in programs:
                # One by one, so that the started programs are known if another cannot be started.
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
