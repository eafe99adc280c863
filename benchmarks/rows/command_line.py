"""The processor time of the command line."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.results import Result, target
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

_TARGETS = {"--version": 0.15, "send": 0.6}
"""The project's own targets, in seconds."""


def command_line(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure the processor time of a command that needs nothing, and of one that sends a message."""
    with bench.queue() as queue:
        for arguments in (["--version"], ["send", queue, "x"]):
            wanted = _TARGETS[arguments[0]]
            seconds = median(_run(bench, arguments) for _ in range(scale.rounds + 1))
            name = f"kafkabus {' '.join(arguments).replace(queue, 'q')}, processor time: {wanted:g} s"
            yield target(name, "s", seconds, wanted)


def _run(bench: Workbench, arguments: Sequence[str]) -> float:
    """Run a command, and return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "kafkabus.cli", *arguments],
        check=True,
        capture_output=True,
        env=os.environ | {CONNECTION_STRING_VARIABLE: bench.connection_string},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
