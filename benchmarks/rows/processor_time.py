"""The processor time that a message takes of each process, on a cluster of three brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from benchmarks.results import Result
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench, batch_of
from kafkabus import ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient

_BROKERS = 3
_QUEUE = "queue"
_SHAPES = {"by 100": (100, 60_000), "one by one": (1, 6_000)}
"""The messages of a batch, and of the whole work, by the name of the shape."""


def processor_time(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure the processor time that each process takes to send a message, and to receive and complete it.

    Each record is stored by all three brokers, which are one row together.
    """
    with EmbeddedRuntime(bench.scratch / "processor-time", namespace="processor-time", brokers=_BROKERS) as runtime:
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            administration.create_queue(_QUEUE, enable_partitioning=True)
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            for shape, (batch, full) in _SHAPES.items():
                count = scale.count(full, multiple_of=batch)
                # Brokers that have just started still compile their code.
                for work in (_send, _receive):
                    work(client, batch, count)
                for name, work in {"send": _send, "receive and complete": _receive}.items():
                    before = _used(runtime)
                    work(client, batch, count)
                    for process, seconds in _used(runtime).items():
                        each = (seconds - before[process]) * 1e6 / count
                        yield Result(f"processor time of {process}, {name} {shape}, 1 KB, for each message", each, "µs")


def _used(runtime: EmbeddedRuntime) -> dict[str, float]:
    """Return the processor time, in seconds, that each process has used so far."""
    used = {"the client": time.process_time(), "three brokers": 0.0}
    for name, pid in runtime.processes.items():
        times = psutil.Process(pid).cpu_times()
        process = "three brokers" if name.startswith("broker") else name
        used[process] = used.get(process, 0.0) + times.user + times.system
    return used


def _send(client: ServiceBusClient, batch: int, count: int) -> None:
    with client.get_queue_sender(_QUEUE) as sender:
        for _ in range(count // batch):
            sender.send_messages(batch_of(batch))


def _receive(client: ServiceBusClient, batch: int, count: int) -> None:
    with client.get_queue_receiver(_QUEUE, max_wait_time=60) as receiver:
        left = count
        while left:
            messages = receiver.receive_messages(min(batch, left))
            receiver.complete_messages(messages)
            left -= len(messages)
