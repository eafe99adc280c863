"""A program with a runtime of its own, for tests that end it: ``starter.py <data> <brokers>``."""

from __future__ import annotations

import json
import sys

from kafkabus.embedded import EmbeddedRuntime


def main(data: str, brokers: str) -> None:
    """Tell how far the start is, one word a line, then the pids, and wait to be ended."""
    print("begun", flush=True)
    with EmbeddedRuntime(
        data or None, brokers=int(brokers), on_progress=lambda text: print(text, flush=True)
    ) as runtime:
        pids = {**runtime.processes, "supervisor": runtime.pid}
        print(json.dumps({"pids": pids, "data": str(runtime.data)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
