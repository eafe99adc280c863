"""Hold docstrings, comments, messages and Markdown to the project's rules of English.

Regular expressions cannot read, so the rules are those that they can decide:

1. The subject of a sentence is a noun, never a free relative clause ("What is stored ...", "Whoever asks ...").
2. "if" and "when" for conditions; "where" for places only.
3. A sentence names its actor: client, receiver, sender, upkeep, ledger.
4. A definition is a noun phrase, never a pronoun ("records: They.").
5. No sentence opens with "Likewise", "So is", "Of these".

Questions may open with what they like. Code blocks and inline code are not read.

Some words are right now and then, and a mannerism if they are frequent. `RATES` limits how often they occur, per 10,000 words,
in all Markdown together, in all Python and in all Lua; the history in CHANGELOG.md does not count.

Usage:
    python -m tools.check_english [PATH ...]    check these files or folders; all that git tracks, and the rates, by default
    python -m tools.check_english --rates       print the rates
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent

_OPENING = r"(?:\A|(?<=[.!?:;]\s)|(?<=\n\n)|(?<=\n- )|(?<=\| )|(?<=[.!?]\n))"
"""Where a sentence, an item of a list, a cell of a table or a definition begins."""

FREE_RELATIVE = r"(?:What|Who|Whom|Whose|Whoever|Whatever|Whichever)\b"
"""The first word of a free relative clause, or of a question."""

RULES = {
    "a free relative clause as the subject; name the thing": re.compile(
        _OPENING + FREE_RELATIVE + r"(?! \|)(?![^.!]*\?)"
    ),
    "'where' as a condition; say 'if' or 'when'": re.compile(
        _OPENING + r"Where\b(?![^.!]*\?)|\b(?:None|True|False|0|1|nothing|empty|absent) where\b"
    ),
    "an actor without a name; say who": re.compile(
        # Redis has the commands REPLICAOF NO ONE and SLAVEOF NO ONE.
        r"(?<!REPLICAOF )(?<!SLAVEOF )"
        r"\b(?:whoever|nobody|somebody|anybody|everybody|anyone|someone|everyone|no one)\b(?!'s Kafka)",
        re.IGNORECASE,
    ),
    "a pronoun as a definition; say what": re.compile(
        r"(?<=: )(?:They|Them|It|Theirs|Itself|That|Those|The same)(?=[.,;](?:\s|\Z))"
    ),
    "a sentence that opens with 'Likewise', 'So is' or 'Of these'": re.compile(
        _OPENING + r"(?:Likewise|So (?:is|are|it is|does|do)|Of these)\b"
    ),
}


class Rate(NamedTuple):
    """A limit on how often a word occurs."""

    pattern: re.Pattern[str]
    limit: float
    """How often at most, per 10,000 words."""


RATES = {
    name: Rate(re.compile(pattern, re.IGNORECASE), limit)
    for name, pattern, limit in (
        ("tell, told", r"\b(?:tell|tells|telling|told)\b", 2),
        ("stand, stands", r"\b(?:stand|stands|standing|stood)\b", 0.5),
        ("of its own, of ours", r"\bof (?:its|our|their|his|her|my|your) own\b|\bof ours\b", 0.5),
        ("anew", r"\banew\b", 0),
        ("as far as", r"\bas far as\b", 0.3),
        ("meanwhile", r"\bmeanwhile\b", 0.5),
    )
}
"""The words whose rate is limited."""

GATED = frozenset({"Markdown", "Python", "Lua"})
"""The kinds of text whose rates must not exceed the limits; the others are only printed."""

_KINDS = {".md": "Markdown", ".py": "Python", ".lua": "Lua"}
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")

_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`|<!--.*?-->", re.DOTALL)


class Text(NamedTuple):
    """Prose, and the line on which it begins."""

    line: int
    words: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Files and folders; those that git tracks by default.

    Returns:
        The exit status: 0 if no rule is broken, else 1.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--rates"]:
        print_rates(tracked())
        return 0
    wanted = [Path(name).resolve() for name in arguments] or [ROOT]
    found = 0
    for path in tracked():
        if any(path.is_relative_to(folder) for folder in wanted):
            for line, rule, words in findings(path):
                print(f"{path.relative_to(ROOT)}:{line}: {rule}: {words}")
                found += 1
    if found:
        print(f"{found} sentences break a rule of English; CONTRIBUTING.md has the rules", file=sys.stderr)
    exceeded = [] if arguments else list(exceeded_rates(tracked()))
    for complaint in exceeded:
        print(complaint, file=sys.stderr)
    return 1 if found or exceeded else 0


def tracked() -> list[Path]:
    """Return the files with prose that people write: no generated twin, no file with examples of faults."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name.endswith((".py", ".md", ".lua"))]
    return [
        path
        for path in paths
        if path.exists() and path.name not in {"check_english.py", "test_check_english.py", "test_check_commits.py"}
    ]


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the rule and the words of each sentence of a file that breaks a rule."""
    for text in texts_of(path):
        prose = _CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text.words)
        for rule, pattern in RULES.items():
            for found in pattern.finditer(prose):
                line = text.line + prose.count("\n", 0, found.start())
                yield line, rule, " ".join(text.words[found.start() : found.start() + 60].split())


def exceeded_rates(paths: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each word that is too frequent in a kind of text in `GATED`."""
    for kind, prose in prose_by_kind(paths).items():
        for name, rate in rates_of(prose).items():
            if kind in GATED and rate > RATES[name].limit:
                yield f"{kind}: '{name}' {rate:.2f} times per 10,000 words, at most {RATES[name].limit:g}"


def print_rates(paths: Iterable[Path]) -> None:
    """Print how often the words of `RATES` occur in each kind of text."""
    for kind, prose in prose_by_kind(paths).items():
        for name, rate in rates_of(prose).items():
            gate = (
                f"at most {RATES[name].limit:g}"
                if kind in GATED
                else f"no limit yet; {RATES[name].limit:g} for Markdown"
            )
            print(f"{kind:<10}{name:<22}{rate:>6.2f}   {gate}")


def prose_by_kind(paths: Iterable[Path]) -> dict[str, str]:
    """Return the prose of all files without code, joined, by kind of text; without the history in CHANGELOG.md."""
    prose: dict[str, list[str]] = {}
    for path in paths:
        if path.name != "CHANGELOG.md":
            prose.setdefault(_KINDS[path.suffix], []).extend(_CODE.sub("_", text.words) for text in texts_of(path))
    return {kind: "\n\n".join(texts) for kind, texts in prose.items()}


def rates_of(prose: str) -> dict[str, float]:
    """Return how often each word of `RATES` occurs per 10,000 words."""
    words = max(1, len(_WORD.findall(prose)))
    return {name: 10_000 * len(rate.pattern.findall(prose)) / words for name, rate in RATES.items()}


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the prose of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield Text(1, text)
    elif path.suffix == ".lua":
        yield from comments_of_lua(text)
    elif not text.startswith("# Generated"):
        yield from texts_of_python(text)


def comments_of_lua(text: str) -> Iterator[Text]:
    """Yield runs of comment lines, joined."""
    run: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.lstrip().startswith("--"):
            run.append(line.lstrip().removeprefix("--").strip())
        elif run:
            yield Text(number - len(run), "\n".join(run))
            run = []


def texts_of_python(text: str) -> Iterator[Text]:
    """Yield runs of comment lines, docstrings, and other strings with words in them."""
    run: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if run and token.start[0] != last + 1:
                yield Text(last - len(run) + 1, "\n".join(run))
                run = []
            run.append(token.string.lstrip("#").strip())
            last = token.start[0]
        elif token.type == tokenize.STRING and " " in token.string:
            opening = re.match(r"[A-Za-z]*(?:\"\"\"|'''|\"|')", token.string)
            content = token.string[opening.end() :] if opening else token.string
            yield Text(token.start[0], re.sub(r"\n[ ]+", "\n", content.rstrip("\"'")))
    if run:
        yield Text(last - len(run) + 1, "\n".join(run))


if __name__ == "__main__":
    sys.exit(main())
