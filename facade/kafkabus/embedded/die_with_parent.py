"""Run a program that the kernel kills when the process that started it ends.

Run as a file: ``python die_with_parent.py <parent's pid> <program> <argument>...``. Linux only. It
runs between the supervisor and its servers because setting this up in a forked copy of a process
with threads is unsafe, and it imports nothing of the package, so that it takes milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask to die with the parent, then become the program.

    Args:
        arguments: The parent's pid, the program's path and the program's arguments.
    """
    parent, program = int(arguments[0]), arguments[1]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # A parent that ended before the request was in place sends no signal.
    if os.getppid() != parent:
        sys.exit(f"process {parent} ended before {program} was started")
    # Python ignores this signal, and an ignored signal stays ignored in the new program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
