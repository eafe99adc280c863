"""Git's attributes mark the generated files, and no others."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_generated_files_are_marked() -> None:
    """Their first lines say that they are generated."""
    asked = ["git", "ls-files", "-z", "*.py", "*.lua"]
    files = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True).stdout
    command = ["git", "check-attr", "--stdin", "-z", "linguist-generated"]
    found = subprocess.run(command, cwd=ROOT, input=files, capture_output=True, check=True).stdout.decode().split("\0")
    marked = {path for path, value in zip(found[::3], found[2::3], strict=False) if value == "set"}
    beginnings = {
        path: (ROOT / path).read_text()[:300] for path in files.decode().split("\0") if (ROOT / path).is_file()
    }
    generated = {
        path
        for path, text in beginnings.items()
        if text.startswith("# Generated") or "-- tools/generate_lua.py" in text
    }
    assert marked == generated
