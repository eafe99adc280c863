"""A namespace in which next to nothing happens: what upkeep, Kafka and Redis take, and how late upkeep's timers are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from statistics import quantiles
from typing import NamedTuple

import psutil

from benchmarks.results import MILLISECONDS, Curve, Result, target
from benchmarks.rounds import Scale
from benchmarks.workbench import PARTITIONS, Workbench
from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.namespaces import MAX_PARTITIONED

_CPU = "CPU s/min"
_SETTLED_AFTER = 40.0
"""How long, in seconds, upkeep has to write down and delete what came of creating the entities."""
_WATCHED_FOR = 60.0
"""How long, in seconds, nothing happens."""
_TIMED = 300
"""How many scheduled messages, and how many with times to live, come during the measurement of timers."""
_WITHIN = 30.0
"""Within how many seconds they are due, at random times."""
_SEED = 20_261_125


class _Shape(NamedTuple):
    """The entities of a namespace, and the budgets for it.

    Attributes:
        partitioned: How many partitioned queues there are.
        plain: How many queues of one partition.
        topics: How many topics; they are partitioned if the namespace may have that many partitioned entities.
        subscriptions: How many subscriptions each of them has.
        upkeep: CPU seconds a minute that upkeep may take.
    """

    partitioned: int
    plain: int
    topics: int
    subscriptions: int
    upkeep: float

    @property
    def entities(self) -> int:
        """How many queues, topics and subscriptions there are."""
        return self.partitioned + self.plain + self.topics * (1 + self.subscriptions)

    @property
    def ledgers(self) -> int:
        """How many ledgers they have."""
        logs = PARTITIONS if self.partitions_topics else 1
        return self.plain + PARTITIONS * self.partitioned + logs * self.topics * (1 + self.subscriptions)

    @property
    def partitions_topics(self) -> bool:
        """Whether the topics are partitioned."""
        return self.partitioned + self.topics <= MAX_PARTITIONED


class _Used(NamedTuple):
    """The resources that a process has used so far.

    Attributes:
        cpu: Processor time, in seconds.
        memory: Resident memory, in MB.
    """

    cpu: float
    memory: float


_FEW = _Shape(50, 0, 1, 20, 0.6)
_SOME = _Shape(50, 300, 7, 20, 2.0)
_MANY = _Shape(100, 900, 20, 20, 3.0)
_MEMORY = 150.0
_REDIS, _BROKER = 2.0, 6.0


def idle(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure the processes of an idle namespace with few entities up to many, and upkeep's timers with many.

    The references are the project's own targets.
    """
    points: list[tuple[float, float]] = []
    for shape in (_FEW, _SOME, _MANY):
        part = shape if scale.part == 1 else _Shape(2, 5, 1, 2, shape.upkeep)
        with EmbeddedRuntime(bench.scratch / f"idle-{shape.entities}", namespace="idle") as runtime:
            _create(runtime.connection_string, part)
            what = f"{part.entities:,} idle entities ({part.ledgers:,} ledgers)"
            time.sleep(_SETTLED_AFTER * min(1.0, scale.part * 4))
            used = _watch(runtime, _WATCHED_FOR * min(1.0, scale.part * 2))
            points.append((part.entities, used["upkeep"].cpu))
            curve = Curve("upkeep, idle, CPU s/min", "entities", tuple(points)) if shape is _MANY else None
            yield target(f"upkeep, {what}: {shape.upkeep:g} CPU s/min", _CPU, used["upkeep"].cpu, shape.upkeep, curve)
            each = used["upkeep"].cpu * 1000 / part.entities
            yield Result(f"upkeep, {what}, for each entity", each, "CPU ms/min")
            if shape is _MANY:
                yield target(f"upkeep's memory, {what}: {_MEMORY:g} MB", "MB", used["upkeep"].memory, _MEMORY)
            yield target(f"Redis, {what}: {_REDIS:g} CPU s/min", _CPU, used["redis"].cpu, _REDIS)
            yield target(f"broker, {what}: {_BROKER:g} CPU s/min", _CPU, used["broker-1"].cpu, _BROKER)
            if shape is _MANY:
                yield from _timers(runtime.connection_string, what, scale.count(_TIMED))


def _create(connection_string: str, shape: _Shape) -> None:
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        for number in range(shape.partitioned):
            administration.create_queue(f"partitioned-{number}", enable_partitioning=True)
        for number in range(shape.plain):
            administration.create_queue(f"plain-{number}")
        for number in range(shape.topics):
            administration.create_topic(f"topic-{number}", enable_partitioning=shape.partitions_topics)
            for one in range(shape.subscriptions):
                administration.create_subscription(f"topic-{number}", f"subscription-{one}")


def _watch(runtime: EmbeddedRuntime, seconds: float) -> dict[str, _Used]:
    """Return what each process took a minute, and its memory in the end."""
    processes = {name: psutil.Process(pid) for name, pid in runtime.processes.items()}
    before = {name: _used(process) for name, process in processes.items()}
    began = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - began) / 60
    after = {name: _used(process) for name, process in processes.items()}
    return {name: _Used((one.cpu - before[name].cpu) / minutes, one.memory) for name, one in after.items()}


def _used(process: psutil.Process) -> _Used:
    times = process.cpu_times()
    return _Used(times.user + times.system, process.memory_info().rss / 1e6)


def _timers(connection_string: str, what: str, count: int) -> Iterator[Result]:
    """Measure how long after their time scheduled messages are received, and messages are dead-lettered that expired."""
    chance = random.Random(_SEED)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
            for name in ("scheduled", "mortal"):
                administration.create_queue(name, dead_lettering_on_message_expiration=True)
        now = datetime.now(timezone.utc)
        with client.get_queue_sender("scheduled") as sender:
            for _ in range(count):
                due = now + timedelta(seconds=chance.uniform(5, 5 + _WITHIN))
                sender.schedule_messages(ServiceBusMessage(due.isoformat()), due)
        with client.get_queue_receiver("scheduled") as receiver:
            late = _lateness(receiver.receive_messages, count)
        yield from _late(f"scheduled → received, late by, {what}", late)
        with client.get_queue_sender("mortal") as sender:
            for _ in range(count):
                lives = timedelta(seconds=chance.uniform(5, 5 + _WITHIN))
                due = datetime.now(timezone.utc) + lives
                sender.send_messages(ServiceBusMessage(due.isoformat(), time_to_live=lives))
        with client.get_queue_receiver("mortal", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            late = _lateness(receiver.receive_messages, count)
        yield from _late(f"time to live over → received as a dead letter, late by, {what}", late)


def _lateness(receive: Callable[..., Sequence[ServiceBusReceivedMessage]], count: int) -> list[float]:
    """Return by how many ms each message came after the time that is its body."""
    late: list[float] = []
    deadline = time.monotonic() + 2 * _WITHIN + 60
    while len(late) < count and time.monotonic() < deadline:
        received = receive(1, max_wait_time=5)
        now = datetime.now(timezone.utc)
        late += [(now - datetime.fromisoformat(str(one))) / timedelta(milliseconds=1) for one in received]
    if len(late) < count:
        raise TimeoutError(f"{count - len(late)} of {count} messages did not come")
    return late


def _late(name: str, late: Sequence[float]) -> Iterator[Result]:
    hundredths = quantiles(late, n=100)
    yield target(f"{name}, p50: 30 ms", MILLISECONDS, hundredths[49], 30.0)
    yield target(f"{name}, p99: 100 ms", MILLISECONDS, hundredths[98], 100.0)
