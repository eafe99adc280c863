"""Run the only broker of a cluster, after the controller has noticed that the broker's previous run is over.

Run as a file: ``python fenced_start.py <controller's log> <controller's program> <argument>... -- <broker's program>
<argument>...``, in the broker's folder; it imports nothing of the package, so that it takes milliseconds.

A broker that ended still counts as alive, and as the leader of its partitions, until its session expires. If it is started
before that, it ends open transactions as their coordinator. Then its partitions have no leader for a moment, in which Kafka
4.3 considers them deleted ("Couldn't find leader endpoint") and omits the markers that end the transactions: readers can
never read such a partition beyond that transaction. Therefore the controller first runs without a broker, with sessions that
expire at once. In total this takes less time than waiting for the end of a session of the usual length.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

_RAN_BEFORE = Path("ran-before")
_SHIM = Path(__file__).with_name("die_with_parent.py")
_CHECK_S = 0.02
_ACTIVE_WITHIN_S = 20.0
# A broker that starts unfenced serves no partition before its last session, a minute long, is over.
_FENCED_WITHIN_S = 20.0
_ENDS_WITHIN_S = 5.0


def _forget_the_broker(log: Path, command: list[str]) -> None:
    """Run the controller until it logs that it fenced the broker, or does not do so soon because it knew before."""
    with contextlib.suppress(FileNotFoundError):
        log.unlink()
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()), *command]
    controller = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        if _says(controller, log, "Becoming the active controller", "", _ACTIVE_WITHIN_S):
            _says(controller, log, "Becoming the active controller", "fenced=1,", _FENCED_WITHIN_S)
    finally:
        controller.terminate()
        try:
            controller.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            controller.kill()
            controller.wait()


def _says(process: subprocess.Popen[bytes], log: Path, first: str, then: str, seconds: float) -> bool:
    """Wait until a process logs a first text, and after that a second one; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            _, found, rest = log.read_text(errors="replace").partition(first)
            if found and then in rest:
                return True
        time.sleep(_CHECK_S)
    return False


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def main(arguments: list[str]) -> None:
    """Let the controller fence the broker's previous run, if there was one, then become the broker.

    Args:
        arguments: The arguments described above.
    """
    border = arguments.index("--")
    broker = arguments[border + 1 :]
    # Needed on systems that do not end the controller together with this process.
    signal.signal(signal.SIGTERM, _end)
    if _RAN_BEFORE.exists():
        _forget_the_broker(Path(arguments[0]), arguments[1:border])
    _RAN_BEFORE.touch()
    os.execv(broker[0], broker)


if __name__ == "__main__":
    main(sys.argv[1:])
