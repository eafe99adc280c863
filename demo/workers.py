"""The competing receiver processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

_PATIENCE_S = 15.0
_ROOT = Path(__file__).parent.parent


@dataclass
class Counts:
    """Numbers of messages that receivers settled."""

    completed: int = 0
    dead_lettered: int = 0
    redelivered: int = 0

    @property
    def settled(self) -> int:
        """The number of messages that were completed or dead-lettered."""
        return self.completed + self.dead_lettered

    def add(self, batch: dict[str, int]) -> None:
        """Add the counts of a batch."""
        self.completed += batch["completed"]
        self.dead_lettered += batch["dead_lettered"]
        self.redelivered += batch["redelivered"]


class Receivers:
    """Receiver processes, which run from the start of a with statement to its end.

    Args:
        connection: The namespace's connection string.
        number: The number of processes.
    """

    def __init__(self, connection: str, number: int) -> None:
        self._connection = connection
        self._number = number
        self._processes: list[subprocess.Popen[str]] = []
        self._counts: list[Counts] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Receivers:
        try:
            for _ in range(self._number):
                self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def total(self) -> Counts:
        """The counts of all receivers so far."""
        each = self.each
        return Counts(
            sum(counts.completed for counts in each),
            sum(counts.dead_lettered for counts in each),
            sum(counts.redelivered for counts in each),
        )

    @property
    def each(self) -> list[Counts]:
        """The counts of each receiver so far."""
        return list(self._counts)

    def ended(self) -> str | None:
        """Return the names of receivers that ended too early, or None."""
        statuses = [process.poll() for process in self._processes]
        gone = [f"receiver {n} ended with status {status}" for n, status in enumerate(statuses) if status is not None]
        return ", ".join(gone) or None

    def stop(self) -> None:
        """Stop the processes, each after its current batch."""
        processes, self._processes = self._processes, []
        for process in processes:
            # The pipe of a process that has already ended is broken.
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).close()
        for process in processes:
            _await_end(process)
        # A reader ends with the output of its process, so every report is counted.
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        for process in processes:
            _pipe(process.stdout).close()

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.receiver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            # A terminal's Ctrl-C reaches only the main process, which cuts the lifelines of these.
            start_new_session=True,
        )
        self._processes.append(process)
        lifeline = _pipe(process.stdin)
        lifeline.write(f"{self._connection}\n")
        lifeline.flush()
        counts = Counts()
        self._counts.append(counts)
        reader = threading.Thread(target=_read, args=(process, counts), daemon=True)
        self._readers.append(reader)
        reader.start()


def _await_end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read(process: subprocess.Popen[str], counts: Counts) -> None:
    for line in _pipe(process.stdout):
        counts.add(json.loads(line))


def _pipe(end: IO[str] | None) -> IO[str]:
    """Return the end of a pipe, which is never None because the process was started with it."""
    return cast("IO[str]", end)
