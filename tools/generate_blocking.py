"""Write the blocking half of the SDK, and its tests, from the asyncio half.

Each module under `facade/kafkabus/_async` has a twin at the same path under `_sync`, and each test
under `tests/contract/aio` one at the same path without `aio/`. This program writes the twins; edit
the sources only. Generation has these steps:

1. Lines that end in `# aio-only` are dropped; a line `# blocking: <code>` becomes `<code>`;
   `@pytest.mark.asyncio` is dropped. A pragma applies to its line of text, not to the whole statement.
2. unasync drops `async` and `await` and renames what NAMES and its own table list.
3. `Awaitable[X]` becomes `X`; module paths, comments and docstrings follow PATHS and PROSE.
4. ruff removes imports that nothing uses any more, sorts the others and formats.

If tasks and threads differ by more than this, both modules of a pair are written by hand
(HAND_WRITTEN).

Usage:
    python -m tools.generate_blocking            write the twins, delete those without a source
    python -m tools.generate_blocking --check    change nothing, fail if a twin is out of date
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tokenize_rt
import unasync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent


class Tree(NamedTuple):
    """A folder of asyncio sources, the folder of their twins, and the files that have a twin."""

    sources: Path
    outputs: Path
    patterns: tuple[str, ...]


TREES = (
    Tree(Path("facade/kafkabus/_async"), Path("facade/kafkabus/_sync"), ("*.py",)),
    Tree(Path("tests/contract/aio"), Path("tests/contract"), ("test_*.py", "receiving.py")),
)

HAND_WRITTEN = frozenset({"compat.py", "conftest.py"})
"""Names of files that are written by hand on both sides, because the sides differ in substance."""

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncExitStack": "ExitStack",
    "AsyncRetrying": "Retrying",
    "aclose": "close",
    "aclosing": "closing",
    "aiter": "iter",
    "anext": "next",
    "enter_async_context": "enter_context",
    "push_async_callback": "callback",
    "push_async_exit": "push",
}
"""Names to replace besides unasync's own (`__aenter__`, `AsyncIterator`, ...)."""

PATHS = (
    (re.compile(r"\bkafkabus\._async\b"), "kafkabus._sync"),
    (re.compile(r"\bkafkabus\.aio\b"), "kafkabus"),
    (re.compile(r"\btests\.contract\.aio\b"), "tests.contract"),
    (re.compile(r"^import redis\.asyncio as redis$", re.MULTILINE), "import redis"),
    (re.compile(r"\bredis\.asyncio\b"), "redis"),
)
"""Module paths to replace everywhere."""

PROSE = (
    (re.compile(r"\basync (?=(?:with|for|def)\b)"), ""),
    (re.compile(r"\bawait (?=[\w.]+\()"), ""),
    (re.compile(r"\basyncio (task)"), "thread"),
    (re.compile(r"\basyncio\b(?!\.)"), "blocking"),
)
"""Words to replace in comments and docstrings, which contain examples and mention tasks."""

AWAITABLES = {"Awaitable": 0, "Coroutine": 2}
"""Generic types that are replaced by one of their arguments, and the position of that argument."""

BANNER = "# Generated from {source} by tools/generate_blocking.py. Do not edit.\n"
BANNER_LINE = re.compile(BANNER.strip().replace(".", r"\.").format(source=".+"))

AIO_ONLY = re.compile(r"#\s*aio-only\s*$")
BLOCKING = re.compile(r"#\s*blocking: (?P<code>.+)$")
ASYNCIO_MARK = re.compile(r"^\s*@pytest\.mark\.asyncio\b.*$")


class GenerationError(Exception):
    """No twin can be generated from a source."""


class Twin(NamedTuple):
    """A source and its generated twin, both relative to the project's root."""

    source: Path
    output: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; those of the process by default.

    Returns:
        The exit status: 0 if all twins are up to date now, 1 otherwise.
    """
    assert __doc__ is not None  # noqa: S101 - true unless Python runs with -OO
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, report differences")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        return check(options.root) if options.check else write(options.root)
    except GenerationError as error:
        print(error, file=sys.stderr)
        return 1


def write(root: Path) -> int:
    """Bring every twin up to date, and delete twins whose source is gone.

    Args:
        root: The project's root.

    Returns:
        0, the exit status.

    Raises:
        GenerationError: A source cannot be translated, or a twin would overwrite a file written by hand.
    """
    wanted = generate(root)
    for output in wanted:
        refuse_to_overwrite(root / output)
    for output in find_generated(root) - wanted.keys():
        (root / output).unlink()
        print(f"deleted {output}")
    for output, text in wanted.items():
        if read_bytes(root / output) != text:
            (root / output).parent.mkdir(parents=True, exist_ok=True)
            (root / output).write_bytes(text)
            print(f"wrote {output}")
    return 0


def check(root: Path) -> int:
    """Compare the generated files, byte for byte, with those that generation would write.

    Args:
        root: The project's root.

    Returns:
        The exit status: 0 if there is no difference, 1 otherwise.

    Raises:
        GenerationError: A source cannot be translated.
    """
    wanted = generate(root)
    findings = [f"{path}: its source is gone" for path in find_generated(root) - wanted.keys()]
    for output, text in wanted.items():
        present = read_bytes(root / output)
        if present is None:
            findings.append(f"{output}: missing")
        elif present != text:
            findings.append(f"{output}: differs\n{difference(present, text)}")
    for finding in sorted(findings):
        print(finding, file=sys.stderr)
    if findings:
        print("run `make generate` and commit the result", file=sys.stderr)
        return 1
    print(f"{len(wanted)} generated files are up to date")
    return 0


def generate(root: Path) -> dict[Path, bytes]:
    """Generate all twins in a temporary folder.

    Args:
        root: The project's root.

    Returns:
        Each output's path, relative to the root, and its bytes.

    Raises:
        GenerationError: A source cannot be translated, or ruff is not the pinned one.
    """
    twins = sorted(find_twins(root))
    if not twins:
        return {}
    require_pinned_ruff(root)
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder).resolve()
        for twin in twins:
            stage(root / twin.source, staged / twin.source, twin)
        unasync.unasync_files(
            [str(staged / twin.source) for twin in twins],
            [unasync.Rule(f"/{tree.sources}/", f"/{tree.outputs}/", additional_replacements=NAMES) for tree in TREES],
        )
        outputs = [staged / twin.output for twin in twins]
        for twin, output in zip(twins, outputs, strict=True):
            output.write_text(finish(output.read_text("utf-8"), twin), "utf-8")
        tidy(outputs, root)
        return {twin.output: (staged / twin.output).read_bytes() for twin in twins}


def find_twins(root: Path) -> Iterator[Twin]:
    """Yield each source that has a twin, with the twin's path."""
    for tree in TREES:
        for path in (root / tree.sources).rglob("*.py"):
            if path.name not in HAND_WRITTEN and any(map(path.match, tree.patterns)):
                yield Twin(path.relative_to(root), tree.outputs / path.relative_to(root / tree.sources))


def find_generated(root: Path) -> set[Path]:
    """Return the files beside the sources that carry the banner, relative to the root."""
    return {
        path.relative_to(root)
        for tree in TREES
        for path in (root / tree.outputs).rglob("*.py")
        if not path.is_relative_to(root / tree.sources) and has_banner(path)
    }


def has_banner(path: Path) -> bool:
    """Return whether a file says that it is generated."""
    with path.open(encoding="utf-8") as file:
        return BANNER_LINE.fullmatch(file.readline().rstrip("\n")) is not None


def refuse_to_overwrite(path: Path) -> None:
    """Raise GenerationError if a file at a twin's path was written by hand."""
    if path.exists() and not has_banner(path):
        raise GenerationError(f"{path}: written by hand, so it cannot be generated")


def read_bytes(path: Path) -> bytes | None:
    """Return a file's bytes, or None if there is no file."""
    return path.read_bytes() if path.exists() else None


def difference(present: bytes, wanted: bytes) -> str:
    """Return the first lines in which two files differ, as a readable text."""
    lines = difflib.unified_diff(
        present.decode("utf-8", "replace").splitlines(),
        wanted.decode("utf-8").splitlines(),
        "committed",
        "generated",
        lineterm="",
    )
    return "\n".join(list(lines)[:40])


def stage(source: Path, staged: Path, twin: Twin) -> None:
    """Apply a source's pragmas, and write it to the path from which unasync reads it."""
    text = source.read_text("utf-8")
    refuse_async_in_fstrings(text, twin.source)
    staged.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged.write_text(apply_pragmas(text), "utf-8")
    except GenerationError as error:
        raise GenerationError(f"{twin.source}: {error}") from error


def refuse_async_in_fstrings(text: str, path: Path) -> None:
    """Raise GenerationError if a twin would depend on the version of Python that generates it.

    Python's tokenizer splits f-strings into tokens only since 3.12.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise GenerationError(f"{path}:{error.lineno}: {error.msg}") from error
    for string in ast.walk(tree):
        if isinstance(string, ast.JoinedStr):
            for node in ast.walk(string):
                if isinstance(node, ast.Await | ast.comprehension) and (isinstance(node, ast.Await) or node.is_async):
                    raise GenerationError(f"{path}:{string.lineno}: await outside the f-string")


def apply_pragmas(text: str) -> str:
    """Drop the lines that are only for asyncio, and insert those that are for the blocking side.

    Args:
        text: A source.

    Returns:
        The source without its pragmas.
    """
    tokens = tokenize_rt.src_to_tokens(text)
    comments = {token.line: token for token in tokens if token.name == "COMMENT" and token.line is not None}
    lines = text.splitlines(keepends=True)
    return "".join(apply_pragma(line, comments.get(n)) for n, line in enumerate(lines, start=1))


def apply_pragma(line: str, comment: tokenize_rt.Token | None) -> str:
    """Return a line with its pragma applied, given its comment if it has one."""
    if ASYNCIO_MARK.match(line):
        return ""
    if comment is None:
        return line
    if AIO_ONLY.search(comment.src):
        return ""
    blocking = BLOCKING.match(comment.src)
    if blocking is None:
        return line
    if line.strip() != comment.src.strip():
        raise GenerationError(f"a `# blocking:` line holds nothing else: {line.strip()}")
    return line.replace(comment.src, blocking["code"])


def finish(text: str, twin: Twin) -> str:
    """Make the replacements that unasync does not make, and add the banner."""
    tokens = unwrap_awaitables(tokenize_rt.src_to_tokens(text))
    text = "".join(reword(token) for token in tokens)
    for path, replacement in PATHS:
        text = path.sub(replacement, text)
    return BANNER.format(source=twin.source.as_posix()) + text


def unwrap_awaitables(tokens: list[tokenize_rt.Token]) -> list[tokenize_rt.Token]:
    """Turn `Awaitable[X]` and `Coroutine[Any, Any, X]` into `X`."""
    kept = list(tokens)
    # From the end, so that positions before a replaced type stay valid.
    for start in range(len(tokens) - 2, -1, -1):
        if kept[start].src in AWAITABLES and kept[start + 1].src == "[":
            kept[start : closing_bracket(kept, start + 1) + 1] = awaited_type(kept, start)
    return kept


def awaited_type(tokens: list[tokenize_rt.Token], start: int) -> list[tokenize_rt.Token]:
    """Return the tokens of the type that awaiting `tokens[start]` gives."""
    end = closing_bracket(tokens, start + 1)
    first, depth, commas = start + 2, 0, AWAITABLES[tokens[start].src]
    for position in range(start + 1, end):
        depth += {"[": 1, "]": -1}.get(tokens[position].src, 0)
        if tokens[position].src == "," and depth == 1 and commas:
            first, commas = position + 1, commas - 1
    return [*trim(tokens[first:end])]


def trim(tokens: list[tokenize_rt.Token]) -> Iterable[tokenize_rt.Token]:
    """Return tokens without leading white space."""
    while tokens and not tokens[0].src.strip():
        tokens = tokens[1:]
    return tokens


def closing_bracket(tokens: list[tokenize_rt.Token], opening: int) -> int:
    """Return the position of the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += {"[": 1, "]": -1}.get(tokens[position].src, 0)
        if depth == 0:
            return position
    raise GenerationError(f"line {tokens[opening].line}: a bracket is never closed")


def reword(token: tokenize_rt.Token) -> str:
    """Return a token's text, with the words of comments and docstrings replaced."""
    text = token.src
    if token.name == "COMMENT" or (token.name == "STRING" and text.endswith(('"""', "'''"))):
        for words, replacement in PROSE:
            text = words.sub(replacement, text)
        for name, replacement in NAMES.items():
            text = re.sub(rf"\b{name}\b", replacement, text)
    return text


def require_pinned_ruff(root: Path) -> None:
    """Raise GenerationError unless ruff has the version in constraints.txt, because its formatting is committed."""
    pins = dict(line.split("==", 1) for line in (root / "constraints.txt").read_text().split() if "==" in line)
    installed = importlib.metadata.version("ruff")
    if installed != pins["ruff"]:
        raise GenerationError(f"ruff {installed} is installed, {pins['ruff']} is pinned")


def tidy(outputs: list[Path], root: Path) -> None:
    """Remove unused imports, sort the others and format, by the project's own rules."""
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--no-cache", "--quiet", "--config", str(root / "pyproject.toml")]
    for command in (["check", "--fix-only", "--select=I,F401"], ["format"]):
        done = subprocess.run(
            [*ruff, *command, *config, *map(str, outputs)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise GenerationError(f"ruff {command[0]} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
