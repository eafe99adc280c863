"""The pages of docs/decisions: their headers are alike, their index is complete, and code links to pages that exist."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))

_HEADER = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\n- Date: (?P<date>\d{4}-\d\d-\d\d)\n"
    r"- Status: (?P<status>.+)\n\n## Context\n"
)
_LINK = r"\[(\d{4})\]\((\d{4}-[a-z0-9-]+\.md)\)"
_STATUS = re.compile(rf"accepted|(?:partly )?superseded by {_LINK}(?: \([^()]+\))?(?: and {_LINK}(?: \([^()]+\))?)*")
_ROW = re.compile(
    r"^\| \[(?P<number>\d{4})\]\((?P<file>[^)]+)\) \| (?P<title>.+) \| (?P<date>[\d-]+) \| (?P<status>.+) \|$",
    re.MULTILINE,
)
_MENTION = re.compile(r"decisions/(\d{4}(?:-[a-z0-9-]+\.md)?)")


class Header(NamedTuple):
    """The opening lines of a decision, as the index repeats them."""

    number: str
    file: str
    title: str
    date: str
    status: str


def header_of(page: Path) -> Header:
    """Return the header of a decision; the reasons in its status are left out, as in the index."""
    found = _HEADER.match(page.read_text(encoding="utf-8"))
    assert found is not None, f"{page.name} has another header than '# NNNN: title', date, status and context"
    status = re.sub(r"(?<=\)) \([^()]+\)", "", found["status"])
    return Header(found["number"], page.name, found["title"], found["date"], status)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_decision_has_a_header(page: Path) -> None:
    """It names number, title, date and status."""
    header = header_of(page)
    assert page.name.startswith(f"{header.number}-")
    assert date.fromisoformat(header.date).isoformat() == header.date
    assert not header.title.endswith(".")
    assert "## Decision\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_status_names_later_decisions(page: Path) -> None:
    """A decision is accepted, or a later one supersedes it or a part of it."""
    header = header_of(page)
    status = page.read_text(encoding="utf-8").split("- Status: ")[1].splitlines()[0]
    assert _STATUS.fullmatch(status)
    for number, file in re.findall(_LINK, status):
        assert number > header.number
        assert file.startswith(f"{number}-")
        assert (FOLDER / file).exists()


def test_numbers_are_unique() -> None:
    """A number names one decision."""
    numbers = [page.name[:4] for page in PAGES]
    assert sorted(set(numbers)) == numbers


def test_the_index_lists_each_decision_once() -> None:
    """Its rows repeat the headers."""
    rows = [Header(**row.groupdict()) for row in _ROW.finditer((FOLDER / "README.md").read_text(encoding="utf-8"))]
    assert sorted(rows) == [header_of(page) for page in PAGES]


def test_code_and_pages_name_decisions_that_exist() -> None:
    """A comment may name a decision by its number or by its file."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    known = {page.name for page in PAGES} | {page.name[:4] for page in PAGES}
    broken = [
        f"{name}: {mention}"
        for name in listed.split("\0")
        if name.endswith((".py", ".lua", ".md", ".toml", ".yml")) and (ROOT / name).exists()
        for mention in _MENTION.findall((ROOT / name).read_text(encoding="utf-8"))
        if mention not in known
    ]
    assert broken == []
