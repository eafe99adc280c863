"""Child processes of the embedded runtime, and the logs of their output."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path

import pytest

from kafkabus.embedded.children import cut_log, spawn

LARGEST = 100_000
PATIENCE_S = 60.0


def await_size(log: Path, size: int) -> None:
    """Wait until a log has as many bytes."""
    deadline = time.monotonic() + PATIENCE_S
    while log.stat().st_size < size:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_log_is_kept_aside_while_it_is_written(tmp_path: Path) -> None:
    """The child goes on at the beginning, and leaves no hole. Only its user can read the log that was kept aside."""
    log, aside = tmp_path / "child.out", tmp_path / "child.out.1"
    endless = "for number in __import__('itertools').count():\n print(number, 'x' * 100, flush=True)"
    child = spawn([sys.executable, "-c", endless], tmp_path, log)
    try:
        for _ in range(2):
            await_size(log, LARGEST + 1)
            cut_log(log, LARGEST)
            assert aside.stat().st_size > LARGEST
            await_size(log, 1)
    finally:
        child.kill()
        child.wait()
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert b"\0" not in log.read_bytes()
    numbers = [int(line.split()[0]) for line in aside.read_text().splitlines()[1:-1]]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_a_log_that_is_not_too_large_stays(tmp_path: Path) -> None:
    """A missing log is no error, either."""
    log = tmp_path / "child.out"
    cut_log(log, LARGEST)
    log.write_text("x" * LARGEST)
    cut_log(log, LARGEST)
    assert [path.name for path in tmp_path.iterdir()] == ["child.out"]


def test_a_log_that_cannot_be_kept_aside_is_cut_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The disk may be full."""
    log = tmp_path / "child.out"
    (tmp_path / "child.out.1").mkdir()
    log.write_text("x" * (LARGEST + 1))
    cut_log(log, LARGEST)
    assert log.stat().st_size == 0
    assert "could not be kept aside" in caplog.text
