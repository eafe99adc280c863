"""Look for failures for longer than ``make test`` does: kill parties, compare ledgers, make up rules.

``make campaign MINUTES=20 SEED=7`` prints one table. The flows take turns; each turn has another seed, the first
one the given seed. A failure is printed at once, with its seed, and the other flows go on. ``--only NAME --seed SEED``
begins with that turn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count

import redis
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import kafkabus_spark
from kafkabus.embedded.java import spark_java_home
from tests.faults import failover, fuzz_messages, kill
from tests.faults.fuzz_rules import fuzz
from tests.integration.ledger import test_model as model
from tests.servers import scratch_folder
from tests.spark import test_filters

KILLS = 3
"""How many parties are killed in a turn."""
TABLE_WIDTH = 120
BROKERS = 3
EVERY = 60.0
"""How long, in seconds, a turn of load has one failover."""
STORIES = 100
"""How many stories Hypothesis makes up in a turn."""
FUZZED_FOR = 5.0
"""For how long, in seconds, rules, or messages, are made up in a turn."""


@dataclass
class Tally:
    """The results of the turns of one flow.

    Attributes:
        runs: How many turns, stories or rules there were.
        messages: How many messages were acknowledged; how many steps both ledgers did; of how many pairs filters were said.
        kills: How many parties were killed.
        lost: How many messages were acknowledged and never received.
        unexpected: How many were received and never sent, did not belong there, or came before their time or after it.
        again: How many were delivered after their completion, twice although that is forbidden, or out of their order.
        failed: Seeds of the turns that failed.
    """

    runs: int = 0
    messages: int = 0
    kills: int = 0
    lost: int = 0
    unexpected: int = 0
    again: int = 0
    failed: list[int] = field(default_factory=list[int])

    @property
    def row(self) -> list[str]:
        """The row of the table."""
        numbers = (self.runs, self.messages, self.kills, self.lost, self.unexpected, self.again)
        return [*(f"{number:,}" for number in numbers), ", ".join(map(str, self.failed))]


class Ground:
    """The servers and the Spark session that flows run on, started when the first flow needs them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def runtime(self) -> kill.Embedded:
        """Kafka, Redis and upkeep."""
        return self._stack.enter_context(kill.servers())

    @cached_property
    def brokers(self) -> kill.Embedded:
        """Three brokers, Redis and upkeep."""
        return self._stack.enter_context(kill.servers(BROKERS))

    @cached_property
    def watched(self) -> failover.WatchedServers:
        """Kafka, a Redis that Sentinels watch, and upkeep."""
        return self._stack.enter_context(failover.watched_servers())

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session."""
        folder = scratch_folder()
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        session = kafkabus_spark.session(
            "campaign", master="local[2]", java_home=spark_java_home(), java_log=folder / "java.log"
        )
        self._stack.callback(kafkabus_spark.stop, session)
        return session


Turn = Callable[[Ground, int, Tally], None]
"""One turn of a flow with a seed; a failed turn raises an exception."""


def kill_parties(sessions: int, flow: str, ground: Ground, number: int, tally: Tally) -> None:
    """Kill some parties of a queue.

    Raises:
        AssertionError: Something was lost, made up, delivered again or out of order.
    """
    _tell(tally, kill.run(ground.runtime, number, KILLS, sessions, flow))


def fail_over_redis(ground: Ground, number: int, tally: Tally) -> None:
    """Kill the Redis that is the primary, once in a minute of load, so that Sentinels promote a replica.

    Raises:
        AssertionError: Something was lost or made up, or delivered again although it was settled long before.
    """
    _tell(tally, kill.run(ground.watched, number, 1, victims=["failover"], lasts=EVERY))


def kill_one_broker(ground: Ground, number: int, tally: Tally) -> None:
    """Kill one of three brokers, once in a minute of load.

    Raises:
        AssertionError: Something was lost, made up or delivered again.
    """
    names = [f"broker-{broker}" for broker in range(1, BROKERS + 1)]
    _tell(tally, kill.run(ground.brokers, number, 1, victims=names, lasts=EVERY))


def _tell(tally: Tally, became: kill.Count) -> None:
    """Add the outcome of a turn.

    Raises:
        AssertionError: It is not as it should be.
    """
    tally.runs += 1
    tally.messages += became.sent
    tally.kills += sum(became.kills.values())
    tally.lost += len(became.lost)
    tally.unexpected += len(became.unexpected) + len(became.early)
    tally.again += len(became.again) + len(became.disordered) + len(became.doubled_wrongly)
    assert became.fine, str(became)


def compare_ledgers(machine: type[model.Both], ground: Ground, number: int, tally: Tally) -> None:
    """Have the scripts and the ledger in memory do the same steps.

    Raises:
        AssertionError: They differed.
    """
    with redis.Redis.from_url(ground.runtime.redis_url, decode_responses=True) as store:
        try:
            model.run(store, machine=machine, number=number, max_examples=STORIES)
        finally:
            tally.runs += model.COUNTS.get("examples", 0)
            tally.messages += model.COUNTS.get("steps", 0)


def compare_filters(ground: Ground, number: int, tally: Tally) -> None:
    """Have Spark and receivers apply filters to messages.

    Raises:
        AssertionError: Their results differed.
    """
    tally.runs += 1
    tally.messages += test_filters.compare(ground.spark, number, 1)


def make_rules_up(_ground: Ground, number: int, tally: Tally) -> None:
    """Make filters and actions from the words of the grammar, and from noise.

    Raises:
        TimeoutError: A filter or an action hung.
    """
    tally.runs += fuzz(number, seconds=FUZZED_FOR).total()


def make_messages_up(_ground: Ground, number: int, tally: Tally) -> None:
    """Bring made-up messages in by every way, and out by every way.

    Raises:
        FuzzError: A message was lost, or kept another one back.
    """
    with fuzz_messages.in_memory() as place:
        tally.runs += asyncio.run(fuzz_messages.fuzz(place, number, seconds=FUZZED_FOR)).total()


FLOWS: dict[str, Turn] = {
    **{
        f"kill {flow}{' in sessions' if sessions else ''}": partial(kill_parties, sessions, flow)
        for sessions, flow in (*kill.CASES, *kill.MORE_CASES)
    },
    **{
        f"compare {what}": partial(compare_ledgers, machine)
        for what, machine in {
            "ledgers": model.Both,
            "ledgers with sessions": model.BothWithSessions,
            "ledgers that detect duplicates": model.BothDetecting,
        }.items()
    },
    "sentinel failover": fail_over_redis,
    "brokers, one killed": kill_one_broker,
    "compare filters in Spark": compare_filters,
    "fuzz rules": make_rules_up,
    "fuzz messages": make_messages_up,
}
"""The flows, by name."""


def run(minutes: float, first_seed: int, names: Sequence[str], say: Callable[[str], None]) -> dict[str, Tally]:
    """Let each flow have its turn, again and again, until time is up.

    Args:
        minutes: How long; the last turn may take a minute longer.
        first_seed: Of the first turns.
        names: Of the flows.
        say: Called with the report of each failure.
    """
    until = time.monotonic() + minutes * 60
    tallies = {name: Tally() for name in names}
    with ExitStack() as stack:
        ground = Ground(stack)
        for number in count(first_seed):
            for name in names:
                if time.monotonic() >= until:
                    return tallies
                try:
                    FLOWS[name](ground, number, tallies[name])
                except Exception:  # noqa: BLE001 - whatever it is, it is a finding, and the others go on
                    tallies[name].failed.append(number)
                    say(f"{name}, seed {number}:\n{traceback.format_exc()}")
    return tallies


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--only", default="", metavar="NAME", help="flows whose names begin so")
    options = parser.parse_args()
    names = [name for name in FLOWS if name.startswith(options.only)]
    if not names:
        parser.error(f"--only {options.only!r}: no flow's name begins so; these are known: {', '.join(FLOWS)}")
    # No narrower than the table: a log file has no width.
    console = Console(highlight=False, soft_wrap=True, width=max(TABLE_WIDTH, Console().width))
    tallies = run(options.minutes, options.seed, names, partial(console.print, markup=False))
    table = Table(title=f"seeds from {options.seed} on, {options.minutes:g} minutes")
    for column in ("flow", "runs", "messages", "kills", "lost", "unexpected", "again", "seeds of failures"):
        table.add_column(column, justify="left" if column in {"flow", "seeds of failures"} else "right")
    for name, tally in tallies.items():
        table.add_row(name, *tally.row)
    console.print(table)
    sys.exit(any(tally.failed for tally in tallies.values()))


if __name__ == "__main__":
    main()
