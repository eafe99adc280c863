"""Ctrl-C leaves nothing of the demo; ``python -m tests.faults.demo_interrupts`` tries more moments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import SEED, effort


@pytest.mark.faults
@pytest.mark.extended  # It runs the demo several times, each with its own servers and Spark.
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt those that lost their parent")
def test_an_interrupted_demo_leaves_no_process_and_no_file() -> None:
    """It ends with status 130, if its whole process group got the signal and if its main process alone did."""
    # A separate process, which adopts the demo's descendants and ends those that remain.
    check = subprocess.run(
        [
            *(sys.executable, "-m", "tests.faults.demo_interrupts", "--limit", "2000"),
            *("--moments", str(effort(2, 10)), "--seed", str(SEED)),
        ],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr
