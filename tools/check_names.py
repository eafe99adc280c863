"""Find names in the documentation that the sources do not have: of modules, classes, functions, fields, settings and files.

Names in back quotes are checked, outside blocks of code:

1. A path, or a file's name with its suffix, is that of a file in the repository, or ends as one does.
2. An identifier with an underscore or in CamelCase occurs in the sources.
3. In `Class.member`, the module that defines the class has the member, if the class is Python's and has no bases.

`OTHERS` lists names that belong to others. CHANGELOG.md is not checked: its history keeps names that were removed.

Usage:
    python -m tools.check_names [PATH ...]    check these pages; all by default
"""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent

SOURCES = frozenset(
    {
        ".py",
        ".pyi",
        ".lua",
        ".toml",
        ".yml",
        ".yaml",
        ".json",
        ".sh",
        ".txt",
        ".js",
        ".go",
        ".java",
        ".xml",
        ".mod",
        ".conf",
    }
)
"""The suffixes of files that have names; files without a suffix, such as a Makefile, have them as well."""

OTHERS = frozenset(
    {
        # Kafka, Spark, Java, Kubernetes, Redis and libraries.
        "getPartitionLeaderEndpoint",
        "ClassCastException",
        "NullPointerException",
        "BigDecimal",
        "KafkaMicroBatchStream",
        "array_remove",
        "_spark_metadata",
        "secretKeyRef",
        "run_id",
        "sentinel_username",
        "valkey_client",
        "valkey_url",
        "preload_app",
        # JMS clients and Azure's emulator.
        "presettlePolicy",
        "presettleProducers",
        "redeliveryPolicy",
        "maxRedeliveries",
        "Config.json",
        # Azure's samples and SDK.
        "auto_lock_renew",
        "auto_lock_renew_async",
        "sample_code_servicebus",
        "sample_code_servicebus_async",
        "_from_connection_string",
        "_sleep_time",
        "ServiceBusSender._from_connection_string",
        "ServiceBusReceiver._from_connection_string",
        "AutoLockRenewer._sleep_time",
        # Names that code composes.
        "kafkabus_upkeep_info",
        "KAFKABUS_SSL_KEY_PASSWORD_FILE",
        # Fields that format 2 keeps for a later release.
        "retry_policy",
        "longest_lock",
        "jms_subscriptions",
        # Values and files in examples.
        "NoSuchCustomer",
        "kafkabus/flights",
        "create.py",
        "work.py",
        "dead.py",
        "report.py",
        "tests/test_orders.py",
        "policies.toml",
        "PWD/policies.toml",
    }
)
"""Names that the sources need not have."""

_OF_OTHERS = re.compile(r"kafka-[a-z-]+\.sh")

PAGES_OF_OTHERS = frozenset({"docs/reference/azure-sdks.md"})
"""Pages that list names of others, Azure's samples."""

_BLOCK = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SUFFIX = r"(?:py|lua|md|toml|yml|json|sh|txt)"
_BEFORE = r"(?<![\w/.<>{}$-])"
_FILE = re.compile(rf"{_BEFORE}(?:[\w.*-]+/)*[\w.*-]+\.{_SUFFIX}(?![\w/.])")
_FOLDER = re.compile(rf"{_BEFORE}(?:[\w.-]+/)+[\w-]*(?![\w/.<{{*$…:-])")
_MEMBER = re.compile(r"\b([A-Z]\w+)\.(\w+)")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CAMEL = re.compile(r"_*[A-Z]?[a-z]+(?:[A-Z]+[a-z]*)+")


class Stale(NamedTuple):
    """A name that the sources do not have, and its line."""

    line: int
    name: str


class Sources(NamedTuple):
    """The names that a page may use."""

    names: frozenset[str]
    """Identifiers in files of code, and names of files in them."""

    paths: frozenset[str]
    """Paths of files, from the root of the repository."""

    members: Mapping[str, frozenset[str]]
    """The identifiers of the module that defines a class without bases, by the class's name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Pages; all by default.

    Returns:
        The exit status: 0 if the sources have all names, else 1.
    """
    sources = read_sources()
    wanted = [Path(name).resolve() for name in (sys.argv[1:] if argv is None else argv)]
    count = 0
    for page in wanted or pages(sources.paths):
        for stale in stale_names(page.read_text("utf-8"), sources):
            print(f"{page.relative_to(ROOT)}:{stale.line}: no source has `{stale.name}`")
            count += 1
    return 1 if count else 0


def pages(paths: frozenset[str]) -> list[Path]:
    """Return the pages whose names are checked."""
    names = {name for name in paths if name.endswith(".md") and (name.startswith("docs/") or "/" not in name)}
    return [ROOT / name for name in sorted(names - PAGES_OF_OTHERS - {"CHANGELOG.md"})]


def read_sources() -> Sources:
    """Return the names of all files in git, except those of this file, which may be others'."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = frozenset(name for name in listed.split("\0") if (ROOT / name).is_file())
    names: set[str] = set()
    members: dict[str, frozenset[str]] = {}
    for path in paths - {"tools/check_names.py", "tests/unit/test_check_names.py"}:
        file = ROOT / path
        if file.suffix in SOURCES or not file.suffix:
            text = file.read_text("utf-8", errors="ignore")
            identifiers = frozenset(_IDENTIFIER.findall(text))
            names |= identifiers
            names.update(name for name in _FILE.findall(text) if not name.endswith((".py", ".lua", ".md")))
            for name in re.findall(r"^class (\w+)(?:\[.*\])?:", text, re.MULTILINE) if file.suffix == ".py" else ():
                members[name] = members.get(name, frozenset()) | identifiers
    return Sources(frozenset(names), paths, members)


def stale_names(text: str, sources: Sources) -> Iterator[Stale]:
    """Yield the names in back quotes that are neither in the sources nor those of others."""
    prose = _BLOCK.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    folders = {folder for path in sources.paths for folder in path.split("/")[:-1]}
    for quoted in _QUOTED.finditer(prose):
        line = prose.count("\n", 0, quoted.start()) + 1
        for name in names_in(quoted[1], folders):
            if name not in OTHERS and not _OF_OTHERS.fullmatch(name) and not is_known(name, sources):
                yield Stale(line, name)


def names_in(content: str, folders: Collection[str]) -> Iterator[str]:
    """Yield paths, members of classes, and identifiers, in the text between two back quotes.

    Args:
        content: The text.
        folders: The names of folders; a text with a slash is a path if it begins with one of them, or with an underscore.
    """
    yield from _FILE.findall(content)
    rest = _FILE.sub(" ", content)
    for folder in _FOLDER.findall(rest):
        if folder.startswith("_") or folder.partition("/")[0] in folders:
            yield folder
    yield from (found[0] for found in _MEMBER.finditer(rest))
    yield from (name for name in _IDENTIFIER.findall(rest) if is_name_of_code(name))


def is_known(name: str, sources: Sources) -> bool:
    """Return whether the sources have a name, a path or the end of one, or a member of a class."""
    if _MEMBER.fullmatch(name) and not _FILE.fullmatch(name):
        class_name, _, member = name.partition(".")
        return member in sources.members.get(class_name, (member,))
    if "*" in name:
        return any(fnmatchcase(f"/{path}", f"*/{name}") for path in sources.paths)
    if "/" in name and not _FILE.fullmatch(name):
        return any(f"/{name.rstrip('/')}/" in f"/{path}/" for path in sources.paths)
    if name.endswith("_"):
        return any(known.startswith(name) for known in sources.names)
    return name in sources.names or any(f"/{path}".endswith(f"/{name}") for path in sources.paths)


def is_name_of_code(name: str) -> bool:
    """Return whether a word has an underscore between letters, or is in CamelCase."""
    return "_" in name.strip("_") or _CAMEL.fullmatch(name) is not None


if __name__ == "__main__":
    sys.exit(main())
