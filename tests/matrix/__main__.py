"""Run the core of the contract on one version of Kafka and Redis after the other.

``make test-matrix KAFKA=3.9`` runs it on one Kafka, ``REDIS=valkey-8`` on one Redis. The other server is then the one that the
embedded runtime finds.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.matrix.errors import NotToBeHadError
from tests.matrix.versions import KAFKA, REDIS, choose
from tests.no_skips import IN_CI
from tests.servers import REPORTED

CORE = ("-m", "core", "tests/contract/aio", "tests/integration")
"""The arguments of pytest that choose the tests."""


class Pair(NamedTuple):
    """The names of a version of Kafka and of one of Redis; None means the one that the embedded runtime finds."""

    kafka: str | None = None
    redis: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Run the command line.

    Args:
        arguments: Its arguments; those that it does not know are for pytest.

    Returns:
        The exit status: 0 if no test failed. A pair of which neither version can be had counts as failed; so does each version
            that cannot be had if the variable ``CI`` is set.
    """
    parser = argparse.ArgumentParser(prog="tests.matrix", description=__doc__, allow_abbrev=False)
    parser.add_argument("--kafka", help=f"one of {', '.join(KAFKA)}")
    parser.add_argument("--redis", help=f"one of {', '.join(REDIS)}")
    given, others = parser.parse_known_args(arguments)
    rows: list[str] = []
    failed = False
    for pair in pairs(given.kafka, given.redis):
        here, missing = obtain(pair)
        rows += missing
        failed |= bool(missing) and (IN_CI or not any(here))
        if any(here):
            row, status = _run(here, others)
            rows.append(row)
            failed |= status != 0
    _say("\n" + "\n".join(rows))
    return 1 if failed else 0


def pairs(kafka: str | None, redis: str | None) -> list[Pair]:
    """Return the pairs to run on.

    Kafka and Redis know nothing of each other. So each version is in one pair, the oldest together.

    Args:
        kafka: The only Kafka to run on, or None.
        redis: The only Redis to run on, or None.
    """
    if kafka is None and redis is None:
        return [Pair(*names) for names in itertools.zip_longest(KAFKA, REDIS)]
    return [Pair(kafka, redis)]


def obtain(pair: Pair) -> tuple[Pair, list[str]]:
    """Return the versions of a pair that can be had here, and a line for each of the others."""
    missing = {
        server: f"{server.capitalize()} {name} is not to be had here: {why}"
        for server, name in pair._asdict().items()
        if (why := _why_not(server, name)) is not None
    }
    return pair._replace(**dict.fromkeys(missing)), list(missing.values())


def _why_not(server: str, name: str | None) -> str | None:
    try:
        choose(**{"kafka": None, "redis": None, server: name})
    except NotToBeHadError as error:
        return str(error)
    return None


def _run(pair: Pair, others: Sequence[str]) -> tuple[str, int]:
    """Run the tests; return the line that says what came of them on which servers, and the exit status."""
    options = [f"--{server}-version={name}" for server, name in pair._asdict().items() if name is not None]
    command = [sys.executable, "-u", "-m", "pytest", *CORE, *options, *others]
    reported, last = "servers that did not start", ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            _say(line.rstrip("\n"))
            reported = line.strip().removeprefix(REPORTED) if line.startswith(REPORTED) else reported
            last = line.strip("= \n") or last
    return f"{time.strftime('%Y-%m-%d')}: {reported}: {last}", tests.returncode


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
