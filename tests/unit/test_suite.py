"""Runs of the tests themselves: the worker of each test, omitted tests, and the time spent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scheduling import BUSY, BUSY_WORKERS, next_unit
from tests.time_spent import ENTITIES, PROCESSOR, WAITING, Meter

ROOT = Path(__file__).resolve().parents[2]


def test_busy_workers_take_what_is_busy_first_and_others_never() -> None:
    """A worker with nothing left to do ends."""
    waiting = ["tests/unit/test_names.py", "tests/contract/test_locks.py::test_x[memory]", "tests/faults/test_kill.py"]
    assert next_unit(waiting, 0) == "tests/faults/test_kill.py"
    assert next_unit(waiting, BUSY_WORKERS) == "tests/contract/test_locks.py::test_x[memory]"
    assert next_unit(waiting[:1], 0) == next_unit(waiting[:1], BUSY_WORKERS) == "tests/unit/test_names.py"
    assert next_unit(waiting[2:], BUSY_WORKERS) is None


def test_whatever_starts_servers_of_its_own_counts_as_busy() -> None:
    """Otherwise many would be started at once. Each entry of the list still exists."""
    modules = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    starts = ("own_runtime", "EmbeddedRuntime(", "kafkabus_spark.session", '"up",')
    own = [name for name, text in modules.items() if any(word in text for word in starts) and "/unit/" not in name]
    assert len(own) > 10
    assert [name for name in own if not name.startswith(BUSY)] == []
    assert [entry for entry in BUSY if not (ROOT / entry).exists()] == []


@pytest.mark.parametrize(
    ("marks", "settling", "settling_in_asyncio", "locks"),
    [
        ("not extended", {"memory"}, {"embedded"}, {"memory", "embedded"}),
        ("extended", {"embedded", "container"}, {"memory", "embedded"}, {"container"}),
        pytest.param(
            "not servers and not containers", {"memory"}, {"memory"}, {"memory"}, marks=pytest.mark.extended, id="fast"
        ),
    ],
)
def test_marks_choose_backends(marks: str, settling: set[str], settling_in_asyncio: set[str], locks: set[str]) -> None:
    """Some tests run for every change, some need no server, and some are left to `make test-all`."""
    wanted = {
        "tests/contract/test_settling.py": settling,
        "tests/contract/aio/test_settling.py": settling_in_asyncio,
        "tests/contract/test_locks.py": locks,
    }
    collect = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "-m", marks, *wanted]
    listed = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    chosen = {file: set(re.findall(rf"^{file}::.*\[(\w+)", listed, re.MULTILINE)) for file in wanted}
    assert chosen == wanted


HANGING = """
import ctypes, signal
import pytest
from tests import hangs

hangs.LATER = 0.2

@pytest.mark.timeout(0.2)
def test_it():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).sleep(60)
"""
"""A test that no signal interrupts, and that lets no other thread run."""


def test_a_test_that_hangs_in_a_c_library_ends_its_process(tmp_path: Path) -> None:
    """Its stderr names the test that hung. It takes a second to start pytest."""
    test = tmp_path / "test_hanging.py"
    test.write_text(HANGING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.hangs",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
        str(test),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "passed" not in done.stdout
    assert "in test_it" in done.stderr


def test_time_is_told_apart_by_what_began_first() -> None:
    """Time that is spent within another cause counts for that cause."""
    meter = Meter()
    with meter.within(ENTITIES), meter.within("within"):
        sum(range(1000))
    spent = meter.read()
    assert spent[ENTITIES] > 0
    assert "within" not in spent
    assert {PROCESSOR, WAITING} <= spent.keys()
    assert ENTITIES not in meter.read()


def test_a_campaign_prints_a_table() -> None:
    """The table has the requested flows, with the results of each."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--only", "fuzz", "--minutes", "0.001", "--seed", "7"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "fuzz rules" in told.stdout
    assert "seeds from 7 on" in told.stdout


def test_a_campaign_of_nothing_says_what_there_is() -> None:
    """A name that no flow has is refused."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--only", "kil1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "'kil1'" in told.stderr
    assert "kill plain" in told.stderr
