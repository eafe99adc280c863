"""Start processes with everything imported: forks of one that has done it, which would take most of their time. Pause them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
"""The context that starts the processes."""
PROCESSES.set_forkserver_preload(
    ["tests.faults.party", "tests.faults.amqp_party", "kafkabus.cli", "kafkabus.management"]
)


def run_command(
    arguments: Sequence[str], environment: Mapping[str, str], text: str, folder: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command of ``kafkabus`` to its end, as ``subprocess.run`` would.

    Args:
        arguments: The arguments after the program's name.
        environment: Its environment.
        text: Its input.
        folder: An empty folder for its input and outputs.
        timeout: After how many seconds it is killed.

    Raises:
        subprocess.TimeoutExpired: It was killed.
    """
    streams = [folder / name for name in ("input", "output", "errors")]
    streams[0].write_bytes(text.encode())
    process = PROCESSES.Process(target=_run, args=(list(arguments), dict(environment), streams))
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise subprocess.TimeoutExpired(list(arguments), timeout)
    output, errors = (stream.read_text() for stream in streams[1:])
    return subprocess.CompletedProcess(list(arguments), process.exitcode, output, errors)


PATIENCE = 60.0
"""How long, in seconds, a process may take to stop."""


@contextmanager
def paused(pid: int) -> Generator[None]:
    """Stop a process while the block runs.

    The signal is only on its way when ``os.kill`` returns: on a busy machine, other threads of the process work on for a while.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _is_stopped(pid):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.001)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped; one that has ended does not count."""
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name, in parentheses, may hold anything.
            if status.read_text().rpartition(")")[2].split()[0] not in {"T", "t", "Z", "X"}:
                return False
    return True


def _run(arguments: list[str], environment: dict[str, str], streams: list[Path]) -> None:
    """Be the program."""
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - they are open
    sys.argv = ["kafkabus", *arguments]

    from kafkabus.cli import main

    main()
