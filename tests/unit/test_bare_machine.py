"""The tool that tries a bare machine says in one line why it cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "bare_machine.sh"


@pytest.mark.parametrize(("ci", "status"), [({}, 0), ({"CI": "true"}, 1)])
def test_it_is_left_out_without_debootstrap(tmp_path: Path, ci: dict[str, str], status: int) -> None:
    """In CI that counts as failed."""
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(
            next(path for path in (Path("/usr/bin", program), Path("/bin", program)) if path.exists())
        )
    ended = subprocess.run(
        [tmp_path / "bash", TOOL, "trixie"],
        env={"PATH": str(tmp_path), **ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (status, "")
    assert ended.stdout.startswith("a bare Debian (trixie) is not tried here: ")
    assert ended.stdout.count("\n") == 1
