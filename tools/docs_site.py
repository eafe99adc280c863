"""Hooks of mkdocs.yml: pages that are not in docs/, and links between them.

README, CONTRIBUTING, CHANGELOG and LICENSE become pages. Each public module gets a page of the API, whose content mkdocstrings
takes from the docstrings.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
"""Files of the top folder that become pages."""
MODULES = (
    *("kafkabus", "kafkabus.aio", "kafkabus.management", "kafkabus.aio.management", "kafkabus.amqp"),
    *("kafkabus.exceptions", "kafkabus.metrics", "kafkabus.testing", "kafkabus.embedded", "kafkabus_spark"),
)
"""The public modules."""

_LINK = re.compile(r"\]\((?!\w+:|#)([^()#\s]+)(#[^()\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, page in TOP.items():
        text = (ROOT / name).read_text("utf-8")
        if not name.endswith(".md"):
            text = f"# {name.capitalize()}\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    for module in MODULES:
        files.append(File.generated(config, f"reference/api/{module}.md", content=api_of(module)))
    return files


def api_of(name: str) -> str:
    """Return the page of a public module: its docstring, and each name that it exports."""
    module = import_module(name)
    exported = {one: getattr(module, one) for one in sorted(module.__all__)}
    documented = {one: value for one, value in exported.items() if inspect.isclass(value) or inspect.isfunction(value)}
    parts = [f"# {name}", inspect.getdoc(module) or ""]
    parts += [f"::: {value.__module__}.{value.__qualname__}" for value in documented.values()]
    constants = [one for one in exported if one not in documented and not inspect.ismodule(exported[one])]
    if constants:
        parts += ["## Constants", *(f"- `{one}`" for one in constants)]
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs' names
    """Have links lead to pages of the site, or, if a file is none, name the file."""
    source = page.file.src_uri
    written_in = next((name for name, made in TOP.items() if made == source), f"docs/{source}")

    def resolve(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(written_in), found[1]))
        target = TOP.get(target, target.removeprefix("docs/"))
        relative = posixpath.relpath(target, posixpath.dirname(source) or ".")
        return f"]({relative}{found[2] or ''})"

    return _LINK.sub(resolve, markdown)
