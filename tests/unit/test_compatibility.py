"""The page on compatibility: each statement has its row, and each named test exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.named_tests import PAGE, name_of, named_tests

ROOT = Path(__file__).resolve().parents[2]
STATEMENTS = ROOT / "docs" / "reference" / "statements.md"

_NUMBERED = re.compile(r"^- \*\*([A-Z]\d+)\*\* ", re.MULTILINE)
_SHOWN = re.compile(r"`tests/.+\.py::test_\w+`|deviation: .|not there yet: .")


def rows(section: str) -> list[list[str]]:
    """Return the cells of a section's table, row by row, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n## {section}\n")
    assert found, f"{PAGE.name} has no section {section!r}"
    lines = [line for line in re.split(r"^## ", rest, flags=re.MULTILINE)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@functools.cache
def functions_of(file: Path) -> set[str]:
    """Return the names of a module's functions."""
    body = ast.parse(file.read_text(encoding="utf-8"), file.name).body
    return {one.name for one in body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_statement_has_one_row() -> None:
    """The rows are in the order of their numbers, and there are no others."""
    numbers = _NUMBERED.findall(STATEMENTS.read_text(encoding="utf-8"))
    assert len(numbers) > 30
    assert [row[0] for row in rows("Statements")] == numbers


def test_every_row_says_what_shows_it() -> None:
    """A row names a test, a deviation and its reason, or says that there is none. No row is there twice."""
    behaviours = rows("Behaviours")
    assert [row for row in behaviours if len(row) != 3] == []
    assert [row for row in rows("Statements") if len(row) != 3] == []
    assert [row for row in [*behaviours, *rows("Statements")] if not _SHOWN.match(row[-1])] == []
    texts = [row[1] for row in behaviours]
    assert sorted(set(texts)) == sorted(texts)


def test_every_test_that_is_named_exists() -> None:
    """It is a function of that name in that file."""
    references = named_tests(PAGE.read_text(encoding="utf-8"))
    assert len(references) > 50
    missing: list[str] = []
    for reference in sorted(references):
        path, _, name = reference.partition("::")
        file = ROOT / path
        if not (path.startswith("tests/") and file.is_file() and name in functions_of(file)):
            missing.append(reference)
    assert missing == []


def test_a_test_is_known_by_its_name_alone() -> None:
    """The number of its runs and its parameters do not matter."""
    page = "| A | `tests/a.py::test_b`, `tests/a.py::test_c`; as `file::name` | and `tests/a.py::test_b` |"
    assert named_tests(page) == {name_of("tests/a.py::test_b[memory-1]"), name_of("tests/a.py::test_c")}
