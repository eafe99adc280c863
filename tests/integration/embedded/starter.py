"""A program that runs a runtime, for tests that end it: ``starter.py <data> <brokers>``."""

from __future__ import annotations

import json
import sys
import tempfile

from kafkabus.embedded import EmbeddedRuntime


def tell(line: str) -> None:
    """Write a line that the test reads at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(data: str, brokers: str) -> None:
    """Print how far the start is, one word a line, then the pids, and wait to be ended."""
    # The first time, Python tries the folder with a file, which an interruption would leave behind.
    tempfile.gettempdir()
    tell("begun")
    with EmbeddedRuntime(data or None, brokers=int(brokers), on_progress=tell) as runtime:
        pids = {**runtime.processes, "supervisor": runtime.pid}
        tell(json.dumps({"pids": pids, "data": str(runtime.data)}))
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
