"""Namespaces of up to 10,000 entities: creating one, counting all, a restart, and what upkeep and the broker take after it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.results import MILLISECONDS, Curve, Result, target
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient

_NUMBERS = (100, 1_000, 10_000)
_TIMED = 30
"""How many creations, and first messages, are timed."""
_CALM_AFTER = 10.0
"""After how many seconds upkeep is to have found that there is nothing to do."""
_WATCHED_FOR = 60.0
"""How long, in seconds, nothing happens."""
_STARTS_WITHIN = 600.0

_CREATED, _STEADY, _LISTED, _RESTARTED, _FIRST, _CPU, _UPKEEP, _BROKER = 60.0, 1.2, 5.0, 20.0, 50.0, 1.0, 300.0, 1_500.0


class _Figures(NamedTuple):
    """The figures of a namespace with so many entities.

    Attributes:
        number: How many plain queues it has.
        created: The median time to create one, in ms.
        listed: The time to list all with their counts, in seconds.
        first: The median time to send the first message to one that was never used, in ms.
        restarted: The time until the namespace serves again, in seconds.
        cpu: Processor time that upkeep takes, from ten seconds after that on, in seconds a minute.
        upkeep: Upkeep's memory after that, in MB.
        broker: The broker's memory after that, in MB.
    """

    number: int
    created: float
    listed: float
    first: float
    restarted: float
    cpu: float
    upkeep: float
    broker: float


def entities(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure namespaces of 100, 1,000 and 10,000 plain queues, on the same data.

    The references are the project's own targets, and a creation among 100.
    """
    parts = [scale.count(number) for number in _NUMBERS]
    data = bench.scratch / "entities"
    figures = [_measure(data, before, number, scale) for before, number in itertools.pairwise((0, *parts))]
    last = figures[-1]
    what = f"{last.number:,} queues"

    def row(name: str, unit: str, field: str, wanted: float, title: str) -> Result:
        points = tuple((float(one.number), float(getattr(one, field))) for one in figures)
        return target(name, unit, getattr(last, field), wanted, Curve(title, "entities", points))

    yield row(f"create a queue among {what}: 60 ms", MILLISECONDS, "created", _CREATED, "create a queue, ms")
    steady = last.created / figures[0].created
    yield target(f"create a queue among {what}, times as long as among {figures[0].number}: 1.2", "x", steady, _STEADY)
    yield row(f"list {what} with counts: 5 s", "s", "listed", _LISTED, "list with counts, s")
    yield row(f"send the first message to one of {what}: 50 ms", MILLISECONDS, "first", _FIRST, "first message, ms")
    yield row(f"restart with {what}: 20 s", "s", "restarted", _RESTARTED, "restart, s")
    yield row(
        f"upkeep, 10 s after a restart with {what}: 1 CPU s/min",
        "CPU s/min",
        "cpu",
        _CPU,
        "upkeep after a restart, CPU s/min",
    )
    yield row(f"upkeep's memory, {what}: 300 MB", "MB", "upkeep", _UPKEEP, "upkeep's memory, MB")
    yield row(f"broker's memory, {what}: 1,500 MB", "MB", "broker", _BROKER, "broker's memory, MB")


def _measure(data: Path, before: int, number: int, scale: Scale) -> _Figures:
    """Fill the namespace up to a number of queues, and measure it, then restart it and measure that."""
    timed = min(_TIMED, number - before)
    with (
        EmbeddedRuntime(data, namespace="entities", startup_timeout=_STARTS_WITHIN) as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
    ):
        for each in range(before, number - timed):
            administration.create_queue(f"queue-{each}")
        created = [
            _took(partial(administration.create_queue, f"queue-{each}")) for each in range(number - timed, number)
        ]
        counted: list[object] = []
        listed = _took(lambda: counted.extend(administration.list_queues_runtime_properties()))
        if len(counted) != number:
            raise ValueError(f"{len(counted)} of {number} queues were listed")
        first = []
        for each in range(number - timed, number):
            sender = client.get_queue_sender(f"queue-{each}")
            first.append(_took(partial(sender.send_messages, ServiceBusMessage(b"first"))))
    began = time.monotonic()
    with EmbeddedRuntime(data, namespace="entities", startup_timeout=_STARTS_WITHIN) as runtime:
        restarted = time.monotonic() - began
        upkeep, broker = (psutil.Process(runtime.processes[name]) for name in ("upkeep", "broker-1"))
        time.sleep(_CALM_AFTER)
        used, began = _processor_time(upkeep), time.monotonic()
        time.sleep(_WATCHED_FOR * min(1.0, 2 * scale.part))
        cpu = (_processor_time(upkeep) - used) * 60 / (time.monotonic() - began)
        memory = [process.memory_info().rss / 1e6 for process in (upkeep, broker)]
    # The first of each are slower: connections are made.
    return _Figures(
        number, 1_000 * median(created), listed, 1_000 * median(first[1:] or first), restarted, cpu, *memory
    )


def _took(act: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
