"""Make up odd rules: each is made, or refused with a ``ServiceBusError``, and soon.

``python -m tests.faults.fuzz_rules --seconds 300 --seed 7`` makes filters and actions from the words of the grammar,
from parts of the tested filters, and from noise. Each accepted rule is then applied to a message, and nothing may fail
there either.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from types import FrameType

from rich.console import Console

from kafkabus._sync.admin.topics import described_rule
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import SqlRuleAction, SqlRuleFilter
from kafkabus_mapping.filters.rules import compile_rules
from tests.filters import HOLDS, PARAMETERS, SUBJECT

PATIENCE = 5.0
"""How long, in seconds, it may take to make a rule and to apply it to a message."""
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
WORDS = (
    *("AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE"),
    *("sys.", "user.", "sys.Label", "sys.EnqueuedTimeUtc", "property", "newid()", "p('a')", "@p", "@null"),
    *("=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", ",", ";", ".", "'", '"', "[", "]"),
    *(
        "''",
        "'%_%'",
        "'\\'",
        "1",
        "1.5",
        "1e400",
        "9223372036854775808",
        "0x1F",
        "a",
        "[a b]",
        '"q"',
        "\u00dc",
        "\U0001d11e",
    ),
)


def texts(chance: random.Random) -> Generator[str]:
    """Yield filters, actions, and texts that are neither."""
    corpus = list(HOLDS)
    while True:
        kind = chance.choice((0, 1, 2, 3, 3, 3, 4, 4, 5, 5))
        if kind == 0:
            yield " ".join(chance.choices(WORDS, k=chance.randrange(1, 40)))
        elif kind == 1:
            yield "".join(chance.choices(WORDS, k=chance.randrange(1, 40)))
        elif kind == 2:
            yield "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0x11_0000)))) for _ in range(40))
        elif kind == 3:
            yield _joined(chance, corpus)
        elif kind == 4:
            yield _nested(chance, chance.choice(corpus))
        else:
            yield f"SET {chance.choice(WORDS)} = {_joined(chance, corpus)}"


def _joined(chance: random.Random, corpus: list[str]) -> str:
    """Return parts of filters, joined one behind the other."""
    parts: list[str] = []
    for _ in range(chance.randrange(1, 4)):
        text = chance.choice(corpus)
        begin = chance.randrange(len(text) + 1)
        parts += [text[begin : chance.randrange(begin, len(text) + 1)] if chance.random() < 0.1 else text]
        parts.append(chance.choice((" AND ", " OR ", " AND ", " OR ", chance.choice(WORDS))))
    return "".join(parts[:-1])


def _nested(chance: random.Random, text: str) -> str:
    """Return a filter nested in itself, up to the allowed depth and beyond."""
    for _ in range(chance.randrange(1, 80)):
        text = chance.choice(("({})", "NOT {}", "-{}", "{} AND {}", "property({})", "EXISTS({})", "{} + {}")).replace(
            "{}", text
        )
        if len(text) > chance.choice((1000, 1024, 1100, 5000)):
            break
    return text


@contextmanager
def hurried(text: str) -> Generator[None]:
    """Stop a block that takes too long.

    Raises:
        TimeoutError: It took too long.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{text!r} takes more than {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def try_rule(text: str, *, as_action: bool) -> str:
    """Make a rule from a text, apply it to a message, and return the outcome.

    Raises:
        TimeoutError: That takes too long.
        Exception: Any other exception is a fault of the package.
    """
    parameters = {name: value for name, value in PARAMETERS.items() if value is not None}
    with hurried(text):
        try:
            rule = described_rule(
                "fuzzed",
                SqlRuleFilter("1 = 1" if as_action else text, parameters=None if as_action else parameters),
                SqlRuleAction(text, parameters=parameters) if as_action else None,
                NOON,
            )
        except ServiceBusError:
            return "refused"
        selected = compile_rules([rule])(SUBJECT)
    return "not to be said" if selected.errors else "said"


def fuzz(seed: int, *, seconds: float | None = None, count: int | None = None) -> Counter[str]:
    """Try rules for so long, or so many; return how many of them were accepted, and how many refused."""
    chance, became = random.Random(seed), Counter[str]()
    end = None if seconds is None else time.monotonic() + seconds
    for number, text in enumerate(texts(chance)):
        if number == count or (end is not None and time.monotonic() >= end):
            break
        for as_action in (False, True):
            became[try_rule(text, as_action=as_action)] += 1
    return became


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    became = fuzz(options.seed, seconds=options.seconds)
    say(f"seed {options.seed}: {became.total()} rules in {options.seconds:g} s, none hung or failed: {dict(became)}")


if __name__ == "__main__":
    main()
