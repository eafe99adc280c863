"""Tests of the start of a cluster's only broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kafkabus.embedded import fenced_start

_CONTROLLER = """
import pathlib, sys, time
log = pathlib.Path(sys.argv[1])
log.write_text("Becoming the active controller\\n")
time.sleep(2.5)
log.write_text(log.read_text() + "Fencing broker 1\\nfenced=1,\\n")
time.sleep(60)
"""
_BROKER = "import pathlib, sys; print('fenced=1,' in pathlib.Path(sys.argv[1]).read_text())"


def test_a_busy_controller_is_waited_for(tmp_path: Path) -> None:
    """A broker that starts while its last run counts as alive serves nothing for a minute. Takes 3 s: such a stall."""
    log = tmp_path / "controller.log"
    (tmp_path / "ran-before").touch()
    command = [sys.executable, fenced_start.__file__, str(log), sys.executable, "-c", _CONTROLLER, str(log), "--"]
    broker = [sys.executable, "-c", _BROKER, str(log)]
    done = subprocess.run([*command, *broker], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"
