"""Lint the ledger's Lua scripts.

The scripts that kafkabus._ledger.scripts joins into one program are linted joined, in its order,
because fragments use the definitions of others. Each of the other files is a separate program.

luacheck (Debian: lua-check) finds undefined globals, unused or shadowed locals and the like. If it
is not installed, this half is skipped, except in CI, which requires it. This program itself checks
the rules for Redis, which luacheck does not know: no shebang, no KEYS command, no key that a script
builds, and an opening comment that gives a file's parameters and effect.

Usage:
    python -m tools.lint_lua
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkabus._ledger.scripts import DESCRIBE, FIGURES, FIND_DESCRIPTIONS, FRAGMENTS, LOOK, PROGRAMS, RESERVE, RESTORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).resolve().parent.parent / "facade/kafkabus/_ledger/lua"

REDIS_GLOBALS = ("KEYS", "ARGV", "redis", "cjson", "cmsgpack", "bit", "struct")
"""Globals that Redis adds to Lua 5.1."""

WITHHELD_GLOBALS = (
    *("collectgarbage", "debug", "dofile", "gcinfo", "getfenv", "io", "load", "loadfile"),
    *("loadstring", "module", "newproxy", "os", "package", "print", "require", "setfenv"),
)
"""Globals of Lua 5.1 that Redis removes, or that scripts may not use: `os.clock`, for example,
because a ledger's only clock is Redis's TIME."""

HEAD_WORDS = ("KEYS", "ARGV", "Reply", "Effect")

LUA_TOKEN = re.compile(
    r"""(?P<comment>--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*)
    |(?P<string>\[(?P<s>=*)\[.*?\](?P=s)\]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)

COMMAND = re.compile(
    r"""\b(?:redis\.p?call|write)\(\s*["'](?P<command>\w+)["']\s*(?:,(?P<key>[^,()]*(?:\([^()]*\))?[^,()]*))?"""
)
"""A Redis command and its first argument; `write` is the ledger's counted redis.call."""

KEYLESS_COMMANDS = frozenset({"PUBLISH", "SPUBLISH", "TIME"})
"""Commands whose first argument is not a key."""


class Finding(NamedTuple):
    """A fault in a script."""

    path: str
    line: int
    message: str


def main() -> int:
    """Lint the scripts and print what was found.

    Returns:
        The exit status: 0 if there are no findings, 1 otherwise.
    """
    try:
        of_requests = [program for program in PROGRAMS if program != FRAGMENTS]
        others = [LOOK, FIGURES, RESTORE, DESCRIBE, FIND_DESCRIPTIONS, RESERVE]
        findings, complete = lint(FOLDER, FRAGMENTS, [*of_requests, *others])
    except LuacheckError as error:
        print(error, file=sys.stderr)
        return 1
    for path, line, message in findings:
        print(f"{path}:{line}: {message}", file=sys.stderr)
    if not findings:
        print("the Lua scripts are clean" if complete else "the Lua scripts keep Redis's rules")
    return 1 if findings else 0


class LuacheckError(Exception):
    """luacheck failed, or is missing in CI."""


def lint(folder: Path, fragments: Sequence[str], parts: Sequence[Sequence[str]] = ()) -> tuple[list[Finding], bool]:
    """Lint a folder of scripts.

    Args:
        folder: The folder of the `.lua` files.
        fragments: Names of the files that are joined into one program, in order.
        parts: Names of the files of each smaller program, which has only some operations; unused definitions in it are
            no fault.

    Returns:
        The findings, and whether luacheck was installed and ran too.

    Raises:
        LuacheckError: luacheck failed, or is missing in CI.
    """
    present = sorted(folder.glob("*.lua"))
    findings = [
        Finding(name, 1, "joined into the program, but there is no such file")
        for name in fragments
        if not (folder / name).exists()
    ]
    for path in present:
        findings += redis_findings(path, is_fragment=path.name in fragments)
    joined = [path for path in (folder / name for name in fragments) if path.exists()]
    in_parts = {name for names in parts for name in names}
    programs = [joined, *([path] for path in present if path not in joined and path.name not in in_parts)]
    complete = luacheck_is_installed()
    if complete:
        for program in filter(None, programs):
            findings += luacheck_findings(program)
        for names in parts:
            part = [folder / name for name in names]
            findings += [one for one in luacheck_findings(part) if "undefined variable" in one.message]
    return findings, complete


def redis_findings(path: Path, *, is_fragment: bool) -> Iterator[Finding]:
    """Yield a finding for each place at which a file breaks a rule for Redis or the rule about opening comments."""
    text = path.read_text("utf-8")
    if text.startswith("#!"):
        yield Finding(path.name, 1, "a shebang needs Redis 7, and 6.2 is supported")
    yield from head_findings(path.name, text, is_fragment=is_fragment)
    code = without_comments(text)
    for found in COMMAND.finditer(code):
        line = code.count("\n", 0, found.start()) + 1
        for message in command_faults(found["command"].upper(), found["key"]):
            yield Finding(path.name, line, message)


def head_findings(name: str, text: str, *, is_fragment: bool) -> Iterator[Finding]:
    """Yield a finding for the parts that a file's opening comment lacks."""
    lines = text.splitlines()
    head = "\n".join(lines[: next((n for n, x in enumerate(lines) if x[:2] != "--"), len(lines))])
    if is_fragment and re.search(r"^--\s*Defines\b", head, re.MULTILINE):
        return
    missing = [word for word in HEAD_WORDS if not re.search(rf"^--.*\b{word}\b", head, re.MULTILINE)]
    if missing:
        other = ", or what it Defines" if is_fragment else ""
        yield Finding(name, 1, f"the opening comment does not give {', '.join(missing)}{other}")


def command_faults(command: str, key: str | None) -> Iterator[str]:
    """Yield the faults of a Redis command and its first argument."""
    if command in {"KEYS", "SCAN"}:
        yield f"{command} walks every key of the server"
    elif key is not None and command not in KEYLESS_COMMANDS:
        if ".." in key or re.search(r"\b(?:format|concat)\b", key):
            yield f"{command}: the key is built here; keys come in KEYS, made by _ledger/keys.py"
        elif key.strip()[:1] in {'"', "'"}:
            yield f"{command}: the key is a literal; keys come in KEYS, made by _ledger/keys.py"


def without_comments(text: str) -> str:
    """Return Lua without its comments, with the same line numbers."""

    def blank(token: re.Match[str]) -> str:
        return token[0] if token["comment"] is None else "\n" * token[0].count("\n")

    return LUA_TOKEN.sub(blank, text)


def luacheck_is_installed() -> bool:
    """Return whether luacheck is installed; if it is not, print a note, or raise in CI."""
    if shutil.which("luacheck"):
        return True
    message = "luacheck is not installed (Debian: lua-check)"
    if os.environ.get("CI"):
        raise LuacheckError(message)
    print(f"{message}: undefined globals and unused locals are not checked", file=sys.stderr)
    return False


def luacheck_findings(program: Sequence[Path]) -> Iterator[Finding]:
    """Yield luacheck's findings in files that are joined as the ledger joins them."""
    texts = [path.read_text("utf-8") for path in program]
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder, "joined.lua")
        joined.write_text("\n".join(texts), "utf-8")
        done = subprocess.run(
            [
                *("luacheck", "--no-config", "--no-cache", "--no-color", "--codes"),
                *("--formatter", "plain", "--std", "lua51"),
                *("--read-globals", *REDIS_GLOBALS, "--not-globals", *WITHHELD_GLOBALS),
                *("--", str(joined)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    # 0: clean, 1: warnings, 2: syntax errors; beyond that luacheck itself failed.
    if done.returncode > 2:
        raise LuacheckError(f"luacheck failed:\n{done.stdout}{done.stderr}")
    for found in re.finditer(r"^.*?joined\.lua:(\d+):\d+: (.*)$", done.stdout, re.MULTILINE):
        yield locate(program, texts, int(found[1]), found[2])


def locate(program: Sequence[Path], texts: Sequence[str], line: int, message: str) -> Finding:
    """Return a finding at the line of the file that a line of the joined program came from."""
    for path, text in zip(program, texts, strict=True):
        count = text.count("\n") + 1
        if line <= count:
            return Finding(path.name, line, message)
        line -= count
    return Finding(program[-1].name, 0, message)


if __name__ == "__main__":
    sys.exit(main())
