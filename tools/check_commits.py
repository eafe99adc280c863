"""Hold the subjects of commits to CONTRIBUTING: imperative, at most 72 characters, one line.

A program cannot parse English. It refuses first words that are no verb in the imperative by their form: articles, pronouns,
"-ing", "-ed", and the third person's "-s".

Usage:
    python -m tools.check_commits [REVISIONS]    check these, as git log takes them; by default all since the rule holds
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SINCE = "--since=2026-11-25T09:15:00+00:00"
"""Since when the rule holds."""
LONGEST = 72

_NO_VERB = re.compile(
    r"(?:a|an|the|this|that|these|those|it|its|they|we|what|whoever|all|no|more|some|of|in|for|if|when)\Z"
    r"|[a-z]+(?:ing|[^e]ed)\Z"
    r"|[a-z]+[^su]s\Z",
    re.IGNORECASE,
)
_VERBS = frozenset({"bring", "embed", "shed", "alias"})


def faults(subject: str) -> list[str]:
    """Return what is wrong with the subject of a commit, as phrases; empty if nothing is."""
    found: list[str] = []
    if len(subject) > LONGEST:
        found.append(f"{len(subject)} characters, and {LONGEST} are allowed")
    first = subject.partition(" ")[0].rstrip(":,")
    if not first[:1].isupper():
        found.append("begins with a small letter or a sign; begin with a verb, as in 'Add', 'Split'")
    elif first.lower() not in _VERBS and _NO_VERB.match(first):
        found.append(f"begins with {first!r}; begin with a verb in the imperative, as in 'Add', 'Split'")
    if subject.endswith("."):
        found.append("ends in a full stop")
    return found


def main(revisions: list[str]) -> int:
    """Print the faults of each commit; return 1 if there are any."""
    command = ["git", "log", "--no-merges", "--format=%h %s", *(revisions or [SINCE])]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if log.returncode:
        # As in an archive of the sources.
        print(f"no commits were checked: {log.stderr.strip()}")
        return 0
    found = [(line, fault) for line in log.stdout.splitlines() for fault in faults(line.partition(" ")[2])]
    for line, fault in found:
        print(f"{line}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
