"""Kill every party of a queue under load, and count afterwards.

``python -m tests.faults.kill --seed 7 --kills 100`` runs for as long as it takes and prints what it did. It checks what
Jepsen calls a total queue: a message is *lost* if a send acknowledged it and no receiver ever received it, *unexpected*
if it was received and never sent, and delivered *again* if that happened after its completion had returned. All three
lists must be empty. *Doubled* messages are counted: a message without a key is stored in a second partition if the
first one did not answer in time, and the first may have it all the same.

With ``--sessions 5`` all messages are in sessions, which no receiver holds for long; then *disordered* must be empty,
too: the messages that were delivered for the first time after a later message of the same sender and session. With
``--flow detecting`` the queue detects duplicates, both senders send the same messages, and now and then once more; then
*doubled* must be empty. With ``--flow scheduling`` half of the messages are scheduled; with ``--flow forwarding`` all
are sent to a queue that forwards them, and their order must hold as well; with ``--flow hopping`` four queues forward
them, one behind the other, and with ``--flow looping`` three in a circle, where each message ends after four hops. With
``--flow transactions`` separate parties move the messages on in transactions; then *doubled* must be empty. With
``--flow subscribing`` messages are sent to a topic with two subscriptions; one gets all messages, the other those that
match a rule, which is changed again and again. A message that was sent while a rule was certainly in force must come if it
matches the rule, and must not come if it does not. With ``--flow ruling`` half of these messages are sent in
transactions. With ``--flow renewing`` receivers work for longer than their locks last, and renew them. With ``--flow
amqp`` all parties use the gateway, which is killed as well; with ``--flow amqp-transactions`` they send, move on and
complete in transactions, and wait for nothing but the end of each.

With ``--flow postponing`` receivers abandon some messages with a delay, and some without one, in a queue that has a retry
policy; Redis is emptied as well, or goes back. No message may come before its delay is over, nor before that of the
policy; those are left out that the policy postponed shortly before Redis was emptied, or since that earlier state.

With ``--flow forgetting`` Redis is emptied, or goes back to an earlier state, while senders send plain and scheduled
messages and messages with a time to live, some of them in transactions. Then *early* must be empty, which also counts
late deliveries of messages with a time to live, and *again* leaves out the messages that were completed shortly before
Redis was emptied, or since that earlier state. With ``--flow clocks`` Redis's clock is an hour wrong for a while
instead.

``--runs 200 --kills 3`` does so with 200 seeds, each with its own queues. ``make campaign`` runs all of these by
turns.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
import warnings
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Protocol

import redis
from rich.console import Console

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.gateway import GatewayPorts
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import FalseRuleFilter, RetryPolicy, ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, split_subscription, subscription_name, topic_name
from tests.clock import step
from tests.faults import amqp_party
from tests.faults.party import (
    FLOWS,
    LIFE,
    NOT_FORWARDED,
    OVER_AMQP,
    RETRY,
    RULE,
    SUBSCRIBING,
    TIMED,
    TRANSACTED,
    kind_of,
    receiver_from,
    session_of,
    subject_of,
    take_part,
)
from tests.integration.embedded.serving import kill
from tests.ports import free_ports
from tests.processes import PROCESSES, paused
from tests.servers import scratch_folder

NAMESPACE = "kill"
QUEUE = "killed"
FIRST = "killed-first"
"""The queue to which messages are sent that are to be forwarded, or moved on."""
CHAINS = {
    "forwarding": (FIRST, QUEUE),
    "transactions": (FIRST, QUEUE),
    "amqp-transactions": (FIRST, QUEUE),
    "hopping": (FIRST, "killed-2", "killed-3", "killed-4", QUEUE),
    "looping": (FIRST, "killed-2", "killed-3"),
}
"""The queues through which messages go, if there are several."""
LOOPS_END = f"killed-2{NOT_FORWARDED}"
"""The queue of messages that went round in a circle of three queues, after four hops."""
ALL = subscription_name(QUEUE, "all")
SOME = subscription_name(QUEUE, "some")
"""Subscriptions of the topic: the rule of one matches every message, the rule of the other is changed."""
LOCK = timedelta(seconds=3)
PAUSE = 4.0
"""How long, in seconds, a paused receiver sleeps: longer than its locks last."""
STEP = 20_000
"""How much, in bytes, senders write down for some 500 messages."""
PATIENCE = 120.0
"""For how long, in seconds, senders may take for that, despite the kills. Remaining messages may take as long to come."""
CHANCE = 10.0
"""For how long, in seconds, receivers go on when senders have ended; messages that they leave are received afterwards."""
MORE_VICTIMS = {
    "forgetting": ("emptied", "emptied", "older", "older"),
    "postponing": ("emptied", "emptied", "older", "older"),
    "clocks": ("clock",) * 4,
    "amqp": ("gateway", "gateway"),
    "amqp-transactions": ("gateway", "gateway"),
}
"""More faults of Redis in some flows, and of the gateway."""
HOUR = 3600.0
"""By how much, in seconds, Redis's clock is wrong."""
WRITTEN_WITHIN = 30.0
"""After how many seconds a settlement is certainly written down, despite the kills."""
LAG = 2.0
"""How many seconds a replica may lag behind its primary on a busy machine: what was settled then may come again."""
ROUNDED = 0.005
"""By how much, in seconds, times are rounded that ledgers and receivers write down."""
SLACK = 5.0
"""How many seconds after a message's life a receiver may write down that it received it in time. Pauses do not count."""
PARTIES = ("receiver", "sender", "broker-1", "redis", "upkeep", "pause")
"""The parties that are killed; processes that change rules or move messages on count as receivers."""
CASES = [
    (0, "plain"),
    (5, "forwarding"),
    (0, "transactions"),
    (5, "subscribing"),
    (0, "forgetting"),
    (0, "amqp-transactions"),
]
"""Number of sessions, and flow: the cases that run for every change."""
MORE_CASES = [
    (5, "plain"),
    (0, "detecting"),
    (0, "scheduling"),
    (0, "subscribing"),
    (0, "ruling"),
    (5, "hopping"),
    (0, "looping"),
    (0, "renewing"),
    (0, "clocks"),
    (0, "postponing"),
    (5, "postponing"),
    (0, "amqp"),
    (5, "amqp"),
]
"""More cases, which ``make test-all`` and ``make campaign`` run as well."""


class Ground(Protocol):
    """The servers of a run."""

    @property
    def connection_string(self) -> str:
        """The connection string of the namespace ``NAMESPACE``."""
        ...

    @property
    def amqp_port(self) -> int:
        """The gateway's port; 0 if there is none."""
        ...

    @property
    def redis_url(self) -> str:
        """The address of a Redis that can be emptied."""
        ...

    @property
    def data(self) -> Path:
        """The folder with the data of that Redis."""
        ...

    @property
    def processes(self) -> Mapping[str, int]:
        """The processes of the servers that can be killed, by their names."""
        ...

    def fail_over(self) -> None:
        """Kill the primary, if Sentinels watch over Redis, and return once another one serves."""
        ...


@dataclass
class Party:
    """A process that sends or receives, started again whenever it was killed."""

    role: str
    number: int
    folder: Path
    connection_string: str
    amqp_port: int
    sessions: int
    flow: str
    life: int = 0
    process: ForkServerProcess | None = None
    files: list[Path] = field(default_factory=list)

    def start(self) -> None:
        """Start it, with a new name."""
        self.life += 1
        name = f"{self.role}{self.number}.{self.life}"
        self.files.append(self.folder / name)
        self.files[-1].touch()
        rest = (self.entity, name, self.sessions)
        target = (
            partial(amqp_party.take_part, self.files[-1], self.role, self.amqp_port, *rest, self.flow in TRANSACTED)
            if self.flow in OVER_AMQP
            else partial(take_part, self.files[-1], self.role, self.connection_string, *rest, self.flow)
        )
        self.process = PROCESSES.Process(target=target, daemon=True)
        self.process.start()

    @property
    def entity(self) -> str:
        """The entity that it sends to, receives from, or changes."""
        if self.flow in SUBSCRIBING and self.role != "send":
            return SOME if self.role == "rule" else sources_of(self.flow)[self.number % 2]
        if self.role == "receive":
            return sources_of(self.flow)[0]
        return queues_of(self.flow)[0]

    def kill(self) -> None:
        """Kill the process without a warning."""
        if self.process is not None:
            self.process.kill()
            self.process.join()


@dataclass(frozen=True)
class Count:
    """The outcome of all messages.

    Attributes:
        kills: How often each party was killed.
        sent: How many messages were acknowledged.
        received: How many were received.
        redelivered: How many deliveries came on top of that.
        lost: Messages that were acknowledged and never received.
        unexpected: Messages that were received and never sent.
        again: Messages that were delivered after their completion had returned, with their sequence numbers.
        doubled: Messages that were stored more than once, with their sequence numbers.
        disordered: Messages that were delivered after a later one of their session.
        early: Messages that were delivered before their time, or after it was over.
        flow: The tasks beyond sending and receiving; if duplicates are detected, or messages moved on in transactions,
            nothing may be delivered that was stored more than once.
    """

    kills: dict[str, int]
    sent: int
    received: int
    redelivered: int
    lost: list[str]
    unexpected: list[str]
    again: list[str]
    doubled: list[list[str]]
    disordered: list[str]
    early: list[str]
    flow: str

    @property
    def doubled_wrongly(self) -> list[list[str]]:
        """The messages that were stored more than once although that is forbidden."""
        return self.doubled if self.flow in {"detecting", *TRANSACTED} else []

    @property
    def fine(self) -> bool:
        """Whether no message is lost, made up or delivered again."""
        return not (self.lost or self.unexpected or self.again or self.disordered or self.early or self.doubled_wrongly)

    def __str__(self) -> str:
        """The counts, with the first few of each list that must be empty."""
        return (
            f"killed: {self.kills}\nsent {self.sent}, received {self.received}, redelivered {self.redelivered}\n"
            f"lost {len(self.lost)} {self.lost[:10]}\nunexpected {len(self.unexpected)} {self.unexpected[:10]}\n"
            f"delivered after completion {len(self.again)} {self.again[:10]}\n"
            f"stored twice {len(self.doubled)} {self.doubled[:10]}\n"
            f"out of order {len(self.disordered)} {self.disordered[:10]}\n"
            f"early or late {len(self.early)} {self.early[:10]}"
        )


def events(files: list[Path], kind: str) -> list[tuple[float, list[str]]]:
    """Return the events of such a kind with their moments, the earliest first, without a last line that was cut off."""
    found: list[tuple[float, list[str]]] = []
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                moment, event, *words = line.split()
                if event == kind:
                    found.append((float(moment), words))
    return sorted(found, key=lambda one: one[0])


def queues_of(flow: str) -> list[str]:
    """Return the queues that messages go through, in their order."""
    return list(CHAINS.get(flow, (QUEUE,)))


def sources_of(flow: str) -> list[str]:
    """Return the entities from which messages are received in the end."""
    if flow == "looping":
        return [LOOPS_END]
    return [ALL, SOME] if flow in SUBSCRIBING else [QUEUE]


def are_empty(administration: ServiceBusAdministrationClient, flow: str) -> bool:
    """Return whether all queues say so; False if one does not answer, or has messages behind an open Kafka transaction.

    Such messages are neither received nor counted until Kafka has ended the transaction of a client that was killed.
    """
    topics = administration._connections().topics
    with suppress(ServiceBusError):
        for entity in sources_of(flow) if flow in SUBSCRIBING else queues_of(flow):
            names = split_subscription(entity)
            counts = (
                administration.get_queue_runtime_properties(entity)
                if names is None
                else administration.get_subscription_runtime_properties(*names)
            )
            topic, partitions = (
                topic_name(NAMESPACE, EntityPath(QUEUE if names else entity)),
                range(len(counts.partitions)),
            )
            if counts.total_message_count or topics.ends(topic, partitions) != topics.stored_ends(topic, partitions):
                return False
        return True
    return False


def drain(connection_string: str, sessions: int, flow: str) -> dict[str, list[tuple[float, list[str]]]]:
    """Receive the remaining messages, until all queues are empty, or nothing came for as long as patience lasts.

    Returns:
        The received messages, by entity; a message that a transaction did not move on counts as received at its
        destination.
    """
    received_from = queues_of(flow) if flow in TRANSACTED else sources_of(flow)
    got: dict[str, list[tuple[float, list[str]]]] = {source: [] for source in sources_of(flow)}
    deadline = time.monotonic() + PATIENCE
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
    ):
        while time.monotonic() < deadline:
            session = NEXT_AVAILABLE_SESSION if sessions else None
            for source in received_from:
                moves = source == FIRST
                copy = "{}@{} not moved on" if moves else "{}@{}"
                with (
                    suppress(ServiceBusError),
                    receiver_from(client, source, session_id=session, max_wait_time=1) as receiver,
                ):
                    while messages := receiver.receive_messages(500):
                        # Before they are settled: a settlement that fails may have been done for some of them.
                        copies = [copy.format(one, one.sequence_number) for one in messages]
                        got[QUEUE if moves else source].append((time.time(), copies))
                        deadline = time.monotonic() + PATIENCE
                        receiver.complete_messages(messages)
            if are_empty(administration, flow):
                break
    return got


def catch_up(connection_string: str, flow: str) -> None:
    """Wait until receivers have received all, or had a fair chance to."""
    deadline = time.monotonic() + CHANCE
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        while time.monotonic() < deadline and not are_empty(administration, flow):
            time.sleep(0.05)


class Copies:
    """A copy of what Redis holds, taken after each strike.

    Args:
        runtime: The servers.
        folder: The folder for the copies.
    """

    def __init__(self, runtime: Ground, folder: Path) -> None:
        stored = runtime.data / "redis"
        # Redis 7 has a folder of files.
        self._stored = next(one for one in (stored / "appendonlydir", stored / "appendonly.aof") if one.exists())
        self._copy = folder / "earlier"
        self.taken_at = 0.0

    def take(self) -> None:
        """Take another copy; changes that come while it is taken may be in it."""
        self.taken_at = time.time()
        _copy(self._stored, self._copy)

    def put_back(self) -> None:
        """Have Redis hold the last copy when it starts the next time."""
        again = self._copy.with_name("again")
        _copy(self._copy, again)
        self._stored.rename(self._copy.with_name(f"replaced-{time.time()}"))
        again.rename(self._stored)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder of files, in place of an earlier copy."""
    if not source.is_dir():
        shutil.copy2(source, target)
        return
    while True:
        shutil.rmtree(target, ignore_errors=True)
        manifest = [one.read_bytes() for one in source.glob("*.manifest")]
        # Redis may replace the files while they are copied.
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(source, target)
            if manifest == [one.read_bytes() for one in target.glob("*.manifest")]:
                return


def forget_all(runtime: Ground) -> None:
    """Empty Redis."""
    with redis.Redis.from_url(runtime.redis_url) as server:
        server.flushall()


def set_wrong(runtime: Ground, chance: random.Random) -> None:
    """Have Redis's clock be wrong for a while."""
    wrong = chance.choice([HOUR, -HOUR])
    step(runtime.redis_url, NAMESPACE, QUEUE, wrong)
    time.sleep(chance.uniform(0, PAUSE))
    step(runtime.redis_url, NAMESPACE, QUEUE, -wrong)


def strike(party: str, chance: random.Random, runtime: Ground, parties: list[Party]) -> bool:
    """Kill a party; return False if it does not run at the moment."""
    if party in {"sender", "receiver"}:
        victim = chance.choice([one for one in parties if (one.role == "send") == (party == "sender")])
        victim.kill()
        victim.start()
    elif party == "failover":
        runtime.fail_over()
    elif party in {"emptied", "clock"}:
        try:
            forget_all(runtime) if party == "emptied" else set_wrong(runtime, chance)
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False
    elif party == "pause":
        victim = chance.choice([one for one in parties if one.role != "send"])
        if victim.process is None or victim.process.pid is None:
            return False
        with paused(victim.process.pid):
            time.sleep(PAUSE)
    else:
        pid = runtime.processes.get(party)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            kill(pid)
    return True


def go_on(parties: list[Party]) -> None:
    """Wait until senders have done more, so that parties are killed under load on a slow machine too.

    Raises:
        TimeoutError: The senders do not get on.
    """
    files = [file for party in parties if party.role == "send" for file in party.files]
    before, deadline = sum(file.stat().st_size for file in files), time.monotonic() + PATIENCE
    while sum(file.stat().st_size for file in files) < before + STEP:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no sender could send for {PATIENCE:.0f} s")
        time.sleep(0.05)


@dataclass
class Embedded:
    """Embedded servers, of which there is one Redis.

    Attributes:
        runtime: The servers.
        amqp_port: The gateway's port; 0 if there is none.
    """

    runtime: EmbeddedRuntime
    amqp_port: int = field(default=0, kw_only=True)

    @property
    def connection_string(self) -> str:
        """The connection string of the namespace."""
        return self.runtime.connection_string

    @property
    def redis_url(self) -> str:
        """The address of Redis."""
        return self.runtime.redis_url

    @property
    def data(self) -> Path:
        """The folder with the servers' data."""
        return self.runtime.data

    @property
    def processes(self) -> Mapping[str, int]:
        """The servers' processes."""
        return self.runtime.processes

    def fail_over(self) -> None:
        """Refuse: no other Redis could serve."""
        raise NotImplementedError


@contextmanager
def servers(brokers: int = 1) -> Generator[Embedded]:
    """The servers of any number of runs."""
    data = scratch_folder()
    amqp, http = free_ports(2)
    try:
        with EmbeddedRuntime(data, namespace=NAMESPACE, brokers=brokers, gateway=GatewayPorts(amqp, http)) as runtime:
            yield Embedded(runtime, amqp_port=amqp)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def run(
    runtime: Ground,
    seed: int,
    kills: int,
    sessions: int = 0,
    flow: str = "plain",
    *,
    victims: Sequence[str] = (),
    lasts: float = 0.0,
) -> Count:
    """Kill parties in an order that the seed decides, and count; messages go through queues of the run's own.

    Args:
        runtime: The servers.
        seed: Decides which party is killed when.
        kills: How many parties are killed.
        sessions: In how many sessions the messages are; 0: in none.
        flow: The tasks beyond sending and receiving: one of ``FLOWS``.
        victims: The parties of which some are killed, if not the usual ones of the flow.
        lasts: How long, in seconds, there is load at least.

    Raises:
        TimeoutError: No sender can send any more.
    """
    journals, chance = scratch_folder(), random.Random(seed)
    order = [chance.choice(victims) for _ in range(kills)] if victims else _victims(chance, kills, flow)
    try:
        with queues_for(runtime, sessions, flow):
            return _run_once(runtime, journals, chance, order, sessions, flow, lasts)
    finally:
        shutil.rmtree(journals, ignore_errors=True)


@contextmanager
def queues_for(runtime: Ground, sessions: int, flow: str) -> Generator[None]:
    """The queues of a run, deleted afterwards."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        if flow in SUBSCRIBING:
            yield from _topic(administration, sessions)
            return
        names = queues_of(flow)
        for name in names:
            administration.create_queue(
                name,
                enable_partitioning=True,
                lock_duration=LOCK,
                max_delivery_count=2000,
                requires_session=sessions > 0 and name == QUEUE,
                requires_duplicate_detection=flow == "detecting",
                retry_policy=RetryPolicy.fixed(RETRY) if flow == "postponing" else None,
            )
        forwards = [] if flow in TRANSACTED else list(pairwise(names))
        with warnings.catch_warnings():
            # The circle is meant.
            warnings.filterwarnings("ignore", ".*its messages come back")
            for name, there in [*forwards, *([(names[-1], names[0])] if flow == "looping" else [])]:
                administration.update_queue(administration.get_queue(name), forward_to=there)
        try:
            yield
        finally:
            for name in names:
                administration.delete_queue(name)


def _topic(administration: ServiceBusAdministrationClient, sessions: int) -> Generator[None]:
    administration.create_topic(QUEUE, enable_partitioning=True)
    for source in sources_of("subscribing"):
        _, name = split_subscription(source) or ("", "")
        administration.create_subscription(
            QUEUE, name, lock_duration=LOCK, max_delivery_count=2000, requires_session=sessions > 0
        )
        if source == SOME:
            administration.delete_rule(QUEUE, name, "$Default")
            administration.create_rule(QUEUE, name, RULE, filter=FalseRuleFilter())
    try:
        yield
    finally:
        administration.delete_topic(QUEUE)


def _run_once(
    runtime: Ground,
    journals: Path,
    chance: random.Random,
    victims: Sequence[str],
    sessions: int,
    flow: str,
    lasts: float,
) -> Count:
    began = time.monotonic()
    parties = [
        Party(role, number, journals, runtime.connection_string, runtime.amqp_port, sessions, flow)
        for role in ("send", "receive", *(["move"] if flow in TRANSACTED else []))
        for number in ((1, 2, 3, 4) if flow in SUBSCRIBING and role == "receive" else (1, 2))
    ]
    if flow in SUBSCRIBING:
        parties.append(Party("rule", 1, journals, runtime.connection_string, runtime.amqp_port, sessions, flow))
    try:
        for party in parties:
            party.start()
        forgotten = _strike_all(runtime, journals, chance, victims, parties)
        time.sleep(max(0.0, began + lasts - time.monotonic()))
        go_on(parties)
        for party in parties:
            if party.role == "send":
                party.kill()
        catch_up(runtime.connection_string, flow)
    finally:
        for party in parties:
            party.kill()
    left = drain(runtime.connection_string, sessions, flow)
    by_source = [_count(Counter(victims), parties, source, left[source], sessions, flow, forgotten) for source in left]
    return by_source[0] if len(by_source) == 1 else _sum(by_source)


def _strike_all(
    runtime: Ground, journals: Path, chance: random.Random, victims: Sequence[str], parties: list[Party]
) -> list[tuple[float, float]]:
    """Kill all victims, one after the other.

    Returns:
        From when to when a settlement may have been made that Redis was made to forget.
    """
    forgotten: list[tuple[float, float]] = []
    copies = Copies(runtime, journals)
    copies.take()
    for which in victims:
        if chance.random() < 0.5:
            go_on(parties)
        time.sleep(chance.uniform(0.2, 2.0))
        struck_at = time.time()
        if which == "older":
            copies.put_back()
        while not strike("redis" if which == "older" else which, chance, runtime, parties):
            time.sleep(0.1)
        if which in {"emptied", "older"}:
            now = time.time()
            forgotten.append((copies.taken_at if which == "older" else now - WRITTEN_WITHIN, now + SLACK))
        elif which == "failover":
            forgotten.append((struck_at - LAG, time.time()))
        copies.take()
    return forgotten


def _victims(chance: random.Random, kills: int, flow: str) -> list[str]:
    """Return the parties to kill, in order."""
    victims = (*PARTIES, *MORE_VICTIMS.get(flow, ()))
    order: list[str] = [victims[index % len(victims)] for index in range(kills)]
    if kills < len(victims):
        order = chance.sample(victims, kills)
    chance.shuffle(order)
    return order


def _sum(counts: Sequence[Count]) -> Count:
    """Return the outcome of the messages in all subscriptions together."""
    return replace(
        counts[0],
        received=sum(one.received for one in counts),
        redelivered=sum(one.redelivered for one in counts),
        lost=[found for one in counts for found in one.lost],
        unexpected=[found for one in counts for found in one.unexpected],
        again=[found for one in counts for found in one.again],
        doubled=[found for one in counts for found in one.doubled],
        disordered=[found for one in counts for found in one.disordered],
        early=[found for one in counts for found in one.early],
    )


def _wanted(
    parties: Sequence[Party], source: str, sent_at: Mapping[str, tuple[float, float]]
) -> Callable[[str], bool | None]:
    """Return whether a message was to come, None if that is unknown because it was sent between two moments."""
    if source != SOME:
        return lambda body: body in sent_at or None
    files = [file for party in parties if party.role == "rule" for file in party.files]
    changes = sorted(
        (moment, event, words[0]) for event in ("change", "rule") for moment, words in events(files, event)
    )
    moments = [moment for moment, _, _ in changes]

    def wanted(body: str) -> bool | None:
        if body not in sent_at:
            return None
        before, after = (bisect(moments, moment) for moment in sent_at[body])
        if before != after or (before and changes[before - 1][1] == "change"):
            return None
        return before > 0 and changes[before - 1][2] == subject_of(body)

    return wanted


def _count(
    kills: Counter[str],
    parties: list[Party],
    source: str,
    left: list[tuple[float, list[str]]],
    sessions: int,
    flow: str,
    forgotten: Sequence[tuple[float, float]],
) -> Count:
    sends = [file for party in parties if party.role == "send" for file in party.files]
    receives = [file for party in parties if party.role == "receive" and party.entity == source for file in party.files]
    tried = {body: moment for moment, bodies in reversed(events(sends, "try")) for body in bodies}
    sent = {body: moment for moment, bodies in events(sends, "sent") for body in bodies}
    wanted = _wanted(parties, source, {body: (tried[body], moment) for body, moment in sent.items()})
    got = sorted([*events(receives, "got"), *left], key=lambda one: one[0])
    deliveries = Counter(copy for _, copies in got for copy in copies)
    done = Counter(copy for _, copies in events(receives, "done") for copy in copies)
    written = {copy: moment for moment, copies in reversed(events(receives, "done")) for copy in copies}
    due = {body: float(words[0]) for _, words in events(sends, "due") for body in words[1:]}
    postponed: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for kind in ("delayed", "retried"):
        for moment, (until, *copies) in events(receives, kind):
            # A delay that a receiver asked for outlives Redis.
            if kind == "delayed" or not any(since < moment < end for since, end in forgotten):
                for copy in copies:
                    postponed[copy].append((moment, float(until) - ROUNDED))

    def is_forgotten(copy: str) -> bool:
        return any(since < written[copy] < until for since, until in forgotten)

    def is_early(copy: str, moment: float) -> bool:
        body = copy.partition("@")[0]
        late = flow in TIMED and body in sent and kind_of(body, flow) == "mortal"
        is_postponed = any(since < moment < until for since, until in postponed.get(copy, ()))
        return is_postponed or moment < due.get(body, 0) or (late and moment > sent[body] + LIFE + SLACK + PAUSE)

    stored: defaultdict[str, list[str]] = defaultdict(list)
    for copy in deliveries:
        stored[copy.partition("@")[0]].append(copy)
    return Count(
        kills=dict(kills),
        sent=len(sent),
        received=len(deliveries),
        redelivered=deliveries.total() - len(deliveries),
        lost=sorted(body for body in sent if wanted(body) and body not in stored and kind_of(body, flow) != "mortal"),
        unexpected=sorted(body for body in stored if body not in tried or wanted(body) is False),
        # Completed twice, or left in the queue after a completion that returned.
        again=sorted(
            copy
            for copy in {copy for copy, count in done.items() if count > 1}
            | (done.keys() & {copy for _, copies in left for copy in copies})
            if not is_forgotten(copy)
        ),
        doubled=sorted(copies for copies in stored.values() if len(copies) > 1),
        disordered=_disordered([copy for _, copies in got for copy in copies], sessions) if sessions else [],
        early=sorted(copy for moment, copies in got for copy in copies if is_early(copy, moment)),
        flow=flow,
    )


def _disordered(copies: list[str], sessions: int) -> list[str]:
    """Return the messages that were delivered for the first time after a later message of the same sender and session."""
    latest: dict[tuple[str, str], int] = {}
    found: list[str] = []
    seen: set[str] = set()
    for copy in copies:
        body = copy.partition("@")[0]
        sender, _, number = body.rpartition("-")
        place = sender, session_of(body, sessions)
        if copy not in seen and int(number) < latest.get(place, -1):
            found.append(copy)
        seen.add(copy)
        latest[place] = max(latest.get(place, -1), int(number))
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--sessions", type=int, default=0)
    parser.add_argument("--flow", choices=FLOWS, default="plain")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    fine, sent = 0, 0
    with servers() as runtime:
        for seed in range(options.seed, options.seed + options.runs):
            count = run(runtime, seed, options.kills, options.sessions, options.flow)
            fine, sent = fine + count.fine, sent + count.sent
            if options.runs == 1 or not count.fine:
                say(f"seed {seed}, {options.kills} kills")
                say(str(count))
    if options.runs > 1:
        say(
            f"{fine} of {options.runs} runs from seed {options.seed} on, of {options.kills} kills, fine; {sent} messages sent"
        )
    sys.exit(fine < options.runs)


if __name__ == "__main__":
    main()
