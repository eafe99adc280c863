"""With the environment variable CI no test may be skipped, and failures show more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PYTEST = [
    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
    *("-p", "tests.no_skips", "-p", "tests.server_logs", "-rfE"),
]

SKIPS_A_TEST = """
import pytest

def test_skips():
    pytest.skip("no server")
"""

SKIPS_BY_MARK = """
import pytest

@pytest.mark.skip(reason="no server")
def test_skips(): ...
"""

SKIPS_IN_A_FIXTURE = """
import pytest

@pytest.fixture
def server():
    pytest.skip("no server")

def test_skips(server): ...
"""

SKIPS_A_MODULE = """
import pytest

pytest.skip("no server", allow_module_level=True)
"""

FAILS_AS_EXPECTED = """
import pytest

@pytest.mark.xfail(reason="not yet", strict=True)
def test_fails():
    assert False
"""

FAILS_WITH_SERVERS = """
import pytest
from tests.servers import LOGS

@pytest.fixture
def servers(request, tmp_path):
    (tmp_path / "upkeep.out").write_text("".join(f"line {number}\\n" for number in range(100)))
    request.config.stash[LOGS] = tmp_path

def test_fails(servers):
    assert False
"""


def run(folder: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one module with the plugin alone, in CI or out of it."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_sample.py").write_text(source)
    return subprocess.run(
        [*PYTEST, "-c", str(folder / "pytest.ini"), str(folder)],
        cwd=ROOT,
        env={**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", [SKIPS_A_TEST, SKIPS_BY_MARK, SKIPS_IN_A_FIXTURE, SKIPS_A_MODULE])
def test_a_skip_fails_in_ci_and_names_its_reason(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source, ci="true")
    assert done.returncode not in {0, 5}, done.stdout
    assert "skipped in CI, where nothing may be: no server" in done.stdout


@pytest.mark.parametrize("source", [SKIPS_A_TEST, SKIPS_BY_MARK, SKIPS_IN_A_FIXTURE])
def test_a_skip_passes_out_of_ci(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source, ci="")
    assert done.returncode == 0, done.stdout


def test_an_expected_failure_stays_one_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_AS_EXPECTED, ci="true")
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout


def test_a_failure_shows_what_the_servers_logged_last(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_WITH_SERVERS, ci="")
    assert done.returncode == 1, done.stdout
    assert "end of upkeep.out" in done.stdout
    assert "line 99\n" in done.stdout
    assert "line 39\n" not in done.stdout
