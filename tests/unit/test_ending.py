"""The end of a service at signals, and at the end of its lifeline."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVICE = """
import asyncio, logging, os, signal
from kafkabus._runtime.ending import stop_on_signals

async def main():
    ours, theirs = os.pipe()
    stop = stop_on_signals(logging.getLogger(), "it", within=30, late="late", lifeline=ours)
    for step in {steps!r}:
        os.close(theirs) if step == "cut" else os.kill(os.getpid(), getattr(signal, step))
        await asyncio.wait_for(stop.wait(), 30)
        await asyncio.sleep(0.05)
    print("ended in order")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        (["SIGTERM"], 0),
        (["cut"], 0),
        # A process that watches over a service and the service may get a signal of their group in any order.
        (["cut", "SIGINT"], 0),
        (["SIGINT", "cut"], 0),
        (["SIGINT", "SIGTERM"], 128 + 15),
        (["cut", "SIGINT", "SIGINT"], 128 + 2),
        # A terminal that closes sends it to its processes, and so does the shell.
        (["SIGHUP", "SIGHUP"], 0),
        (["SIGHUP", "SIGTERM"], 128 + 15),
    ],
)
def test_a_second_signal_ends_a_service_at_once(steps: list[str], status: int) -> None:
    """The end of its lifeline is none. A process takes half a second to start."""
    code = SERVICE.format(steps=steps)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert ("ended in order" in done.stdout) == (status == 0)
