"""Interrupt the demo at moments spread over its run, and verify that no process and no file remains. Linux only.

``python -m tests.faults.demo_interrupts`` first lets the demo finish once, to measure its duration, then interrupts one run at
each moment: in turn its whole process group, as a terminal's Ctrl-C does, and only its main process. The check adopts every
descendant that loses its parent (``PR_SET_CHILD_SUBREAPER``), so none can escape the count.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

_PR_SET_CHILD_SUBREAPER = 36
_ROOT = Path(__file__).parent.parent.parent
_STOP_LIMIT_S = 90.0
_LONGEST_RUN_S = 1800.0


@dataclass(frozen=True)
class Trial:
    """A run of the demo, interrupted or not.

    Attributes:
        moment: When the signal was sent, in seconds from the start; None if the demo was not interrupted.
        target: The receiver of the signal: the process group or the main process.
        running: The processes that ran at that moment, by program.
        status: The demo's exit status.
        seconds: The time from the signal, or from the start, to the demo's end.
        processes: The processes that still ran after the demo had ended.
        files: The files that the demo left in its temporary folder.
        said: The demo's output.
    """

    moment: float | None
    target: str
    running: str
    status: int | None
    seconds: float
    processes: list[str]
    files: list[str]
    said: str = field(repr=False)

    @property
    def clean(self) -> bool:
        """Whether the demo ended with the right status, and no process and no file remained."""
        # The signal itself ended the demo: Python had not yet installed its handler.
        expected = {0} if self.moment is None else {0, 130, -signal.SIGINT}
        return self.status in expected and not self.processes and not self.files


def main() -> int:
    """Run all trials; return the exit status: 0, or 1 if a trial was not clean."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.demo_interrupts", description=__doc__)
    parser.add_argument("--moments", type=int, default=10, help="number of interruptions; default %(default)s")
    parser.add_argument("--limit", type=int, default=20_000, help="flights in each run; default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments; default %(default)s")
    arguments = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl refuses to make this process a subreaper")
    console = Console()
    rng = random.Random(arguments.seed)
    trials = [_trial(arguments.limit, None, alone=False)]
    console.print(f"uninterrupted: {trials[0].seconds:.1f} s, {'clean' if trials[0].clean else trials[0]}")
    for number in range(arguments.moments):
        moment = trials[0].seconds * (number + rng.random()) / arguments.moments
        trials.append(_trial(arguments.limit, moment, alone=bool(number % 2)))
        console.print(f"{number + 1} of {arguments.moments}: {'clean' if trials[-1].clean else trials[-1]}")
        if not trials[-1].clean:
            console.print(trials[-1].said, markup=False)
    console.print(_table(trials))
    return 0 if all(trial.clean for trial in trials) else 1


def _trial(limit: int, moment: float | None, *, alone: bool) -> Trial:
    with tempfile.TemporaryDirectory(prefix="demo-interrupts-") as folder, Path(folder, "said").open("w+") as said:
        scratch = Path(folder, "tmp")
        scratch.mkdir()
        started = time.monotonic()
        demo = subprocess.Popen(
            [sys.executable, "-m", "demo", "--limit", str(limit), "--plot", str(Path(folder, "flights.png"))],
            cwd=_ROOT,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        running = ""
        if moment is not None:
            _sleep_until(started + moment, demo)
            running = _programs()
            started = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                (os.kill if alone else os.killpg)(demo.pid, signal.SIGINT)
        status = _await_end(demo, _LONGEST_RUN_S if moment is None else _STOP_LIMIT_S)
        seconds = time.monotonic() - started
        processes = _end_remaining()
        files = [str(path.relative_to(scratch)) for path in scratch.iterdir()]
        target = "" if moment is None else "main" if alone else "group"
        said.seek(0)
        return Trial(moment, target, running, status, seconds, processes, files, said.read())


def _sleep_until(moment: float, demo: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        demo.wait(max(0.0, moment - time.monotonic()))


def _await_end(demo: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return demo.wait(limit)
    except subprocess.TimeoutExpired:
        return None


def _programs() -> str:
    names: list[str] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))


def _end_remaining() -> list[str]:
    """Return the command lines of processes that still run, and end these, so that the next trial begins clean."""
    found: list[str] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:120])
                process.kill()
            # Reap the process, adopted or not.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, 0)
    return found


def _table(trials: list[Trial]) -> Table:
    table = Table(title="SIGINT to the demo")
    for name, justify in (("at", "right"), ("to", "left"), ("ran then", "left"), ("status", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # the words are rich's own
    table.add_column("ended after", justify="right")
    table.add_column("left behind")
    for trial in trials:
        left = [*trial.processes, *trial.files]
        table.add_row(
            "never" if trial.moment is None else f"{trial.moment:.1f} s",
            trial.target,
            trial.running,
            str(trial.status),
            f"{trial.seconds:.1f} s",
            "\n".join(left) or "nothing",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
