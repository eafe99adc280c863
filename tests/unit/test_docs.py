"""The README and the pages of docs/: their links lead somewhere, their code compiles, their references are complete."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from kafkabus import exceptions
from kafkabus.cli.program import app
from kafkabus.cli.terms import OPTIONS
from kafkabus_mapping import headers

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    """Return a page's path, as test ids show it."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: headings in lower case, without punctuation, hyphens for blanks."""
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {text.strip().replace(" ", "-") for text in texts}


def reference(name: str) -> str:
    """Return the text of a page of the reference."""
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")


def commands(group: TyperGroup, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Return each command of the program, written out, with the long names of its options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix} {name}")
        else:
            options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
            yield f"{prefix} {name}", options


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names an existing file, and an existing heading if it names a heading."""
    broken: list[str] = []
    for link in _LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_code_compiles(page: Path) -> None:
    """Each block of Python is a whole program that Python 3.10 accepts."""
    for language, code in _FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(code, page.name, feature_version=(3, 10))


def test_every_header_is_in_the_reference() -> None:
    """A reader of a topic with another tool finds each header explained."""
    text = reference("mapping")
    names = [value for value in vars(headers).values() if isinstance(value, str) and value.startswith(headers.PREFIX)]
    assert [name for name in names if name != headers.PREFIX and f"| `{name}` |" not in text] == []


def test_every_error_is_in_the_reference() -> None:
    """The page says when each error is raised and what to do."""
    text = reference("errors")
    errors = [
        name
        for name, value in vars(exceptions).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == exceptions.__name__
    ]
    assert len(errors) > 10
    assert [name for name in errors if f"`{name}`" not in text] == []


def test_options_that_errors_name_are_there() -> None:
    """Each is an option of some command."""
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    known = {option for _, options in commands(program, "kafkabus") for option in options}
    assert [option for option in OPTIONS.values() if option not in known] == []


def test_every_command_and_option_is_in_the_reference() -> None:
    """Each command has a section, which names all of its options."""
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", reference("command-line"), re.MULTILINE))
    missing = [
        f"{command} {option}"
        for command, options in commands(program, "kafkabus")
        for option in ("", *options)
        if option != "--help" and (command not in sections or option not in sections[command])
    ]
    assert missing == []
