"""Building a release; ``make release`` also installs the wheel, and tries it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.release import build, check

ROOT = Path(__file__).resolve().parents[2]
# Each build makes an environment with all packages that it needs, which takes half a minute on a busy machine.
pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


def test_both_archives_have_what_they_must_have_and_nothing_else(tmp_path: Path) -> None:
    """The wheel is built from the sdist, so the sdist is complete; both name the same version."""
    sdist, wheel = build(tmp_path)
    version = check(sdist, wheel)
    assert sdist.name == f"kafkabus-{version}.tar.gz"
    assert wheel.name.startswith(f"kafkabus-{version}-")


@pytest.mark.parametrize(("said", "version"), [("9.8.7", "9.8.7"), ("", "0.2.0.dev0")], ids=["said", "not said"])
def test_an_image_is_built_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: str
) -> None:
    """Its build gets these files alone; an argument of it says the version."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("mapping", "facade", "spark"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION", said)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "wheel"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").iterdir()
    assert wheel.name == f"kafkabus-{version}-py3-none-any.whl"
