"""One client that receives from many entities: what it takes while nothing comes, and whether they are in each other's way."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import takewhile
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import NamedTuple

import psutil

from benchmarks.results import MESSAGES_PER_SECOND, MILLISECONDS, Budget, Curve, Result, compare, target
from benchmarks.rounds import Measure, Scale, interleave, rate
from benchmarks.workbench import BODY, PARTITIONS, Workbench
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.aio import ServiceBusClient as AsyncClient
from kafkabus.aio import ServiceBusReceiver
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient

_IDLE = (1, 20, 200)
"""How many receivers wait, each beside a sender; half of their queues are partitioned."""
_SETTLED_AFTER = 60.0
"""How long, in seconds, receivers wait before their client counts as idle."""
_WATCHED_FOR = 60.0
_USED = 300
"""How many queues a client uses and closes, one after the other."""
_AT_ONCE = (10, 100)
"""How many queues a client receives from at once."""
_MESSAGES = 200_000
"""How many messages they hold together."""
_STEADY_AFTER = 0.1
"""Which part of them is received before the clock starts."""
_BATCH = 500
_FIRST = 200
"""How many single messages come to an idle queue, at the most."""
_BUSY = 500_000
"""How many messages are received from another one at the same time; when they are, no more single messages come."""
_SOON = 0.003
"""How long, in seconds, the other process waits before it sends."""
_LEAST = 3
"""A row needs one of so many single messages."""
_PATIENCE = 60.0


def receivers(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure one client with many receivers, beside upkeep; the references are the project's own targets, or one entity."""
    with EmbeddedRuntime(bench.scratch / "receivers", namespace="receivers") as runtime:
        names = [f"q{number}" for number in range(scale.count(_IDLE[-1]))]
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            for number, name in enumerate(names):
                administration.create_queue(name, enable_partitioning=number % 2 == 0)
        yield from _idle(runtime.connection_string, names, scale)
        yield from _one_after_the_other(runtime.connection_string, names, scale)
    yield from _at_once(bench, scale)


class _Taken(NamedTuple):
    """The resources that a client takes: processor time in seconds a minute, threads, and file descriptors."""

    cpu: float
    threads: float
    descriptors: float


def _idle(connection_string: str, names: Sequence[str], scale: Scale) -> Iterator[Result]:
    """Measure what a client takes whose receivers all wait, and whose senders sent before."""
    taken = {
        count: asyncio.run(_take_while_idle(connection_string, names[:count], scale))
        for count in (*_IDLE[:-1], len(names))
    }
    what = f"one client, {len(names)} senders and idle receivers"

    def curve(title: str, field: str) -> Curve:
        points = tuple((float(count), getattr(one, field)) for count, one in taken.items())
        return Curve(f"one client, idle, {title}", "senders and receivers", points)

    cpu, threads, descriptors = taken[len(names)]
    yield target(f"{what}, CPU s/min: 1", "CPU s/min", cpu, 1.0, curve("CPU s/min", "cpu"))
    yield Result(f"{what}, for each", cpu * 1000 / len(names), "CPU ms/min")
    yield target(f"{what}, threads: 24", "threads", threads, 24, curve("threads", "threads"))
    yield target(f"{what}, descriptors: 60", "descriptors", descriptors, 60, curve("descriptors", "descriptors"))


async def _take_while_idle(connection_string: str, names: Sequence[str], scale: Scale) -> _Taken:
    process = psutil.Process()
    threads, descriptors = process.num_threads(), process.num_fds()
    async with AsyncClient.from_connection_string(connection_string) as client:
        senders = [client.get_queue_sender(name) for name in names]
        receivers = [client.get_queue_receiver(name) for name in names]
        for sender, receiver in zip(senders, receivers, strict=True):
            await sender.send_messages(ServiceBusMessage(b"x"))
            await receiver.complete_messages(await receiver.receive_messages(1, _PATIENCE))
        waits = [asyncio.create_task(receiver.receive_messages(10, max_wait_time=3600)) for receiver in receivers]
        await asyncio.sleep(_SETTLED_AFTER * min(1.0, scale.part * 4))
        began, before = time.monotonic(), time.process_time()
        await asyncio.sleep(_WATCHED_FOR * min(1.0, scale.part * 4))
        used = (time.process_time() - before) * 60 / (time.monotonic() - began)
        taken = _Taken(used, process.num_threads() - threads, process.num_fds() - descriptors)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return taken


def _one_after_the_other(connection_string: str, names: Sequence[str], scale: Scale) -> Iterator[Result]:
    """Measure the threads of a client that used one queue, and of one that used many, each closed after use."""
    most = dict.fromkeys((1, scale.count(_USED)), 0)
    for count in most:
        process = psutil.Process()
        threads = process.num_threads()
        with ServiceBusClient.from_connection_string(connection_string) as client:
            for number in range(count):
                name = names[number % len(names)]
                with client.get_queue_sender(name) as sender:
                    sender.send_messages(ServiceBusMessage(b"x"))
                with client.get_queue_receiver(name) as receiver:
                    receiver.complete_messages(receiver.receive_messages(1, _PATIENCE))
                most[count] = max(most[count], process.num_threads() - threads)
    one, many = most.values()
    name = f"one client, {max(most)} entities used and closed, most threads: one entity"
    # A few threads more are there while both kinds of consumers are open.
    yield Result(name, many, "threads", one, many / one, Budget(1.5, at_most=True))


def _at_once(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure receiving from many queues at once in one client, against one queue with as many messages."""
    numbers = [scale.count(entities) for entities in _AT_ONCE]
    opened: dict[int, list[float]] = {1: [], **{number: [] for number in numbers}}
    count = scale.count(_MESSAGES, multiple_of=numbers[-1])

    def receiving(queues: Sequence[str]) -> Measure:
        def receive(count: int) -> float:
            bench.fill(*queues, messages=count // len(queues))
            seconds, speed = asyncio.run(_receive_all(bench.connection_string, queues, count // len(queues)))
            opened[len(queues)].append(seconds * 1000 / len(queues))
            return speed

        return receive

    with ExitStack() as stack:
        one = [stack.enter_context(bench.queue(partitions=PARTITIONS))]
        many = [stack.enter_context(bench.queue(partitions=1)) for _ in range(numbers[-1])]
        sides = {1: one, **{number: many[:number] for number in numbers}}
        measured = interleave({str(number): receiving(queues) for number, queues in sides.items()}, count, scale)
    compared = compare(
        f"receive and complete, {numbers[-1]} queues at once in one client: one queue",
        MESSAGES_PER_SECOND,
        measured[str(numbers[-1])],
        measured["1"],
        Budget(0.8),
    )
    points = tuple((float(number), median(speeds)) for number, speeds in measured.items())
    yield replace(compared, curve=Curve("receive and complete at once, messages/s", "queues", points))
    # The first time warmed up.
    yield Result(
        f"{numbers[-1]} queues at once, from opening the client to a tenth of their messages, for each queue: one",
        median(opened[numbers[-1]][1:]),
        MILLISECONDS,
        median(opened[1][1:]),
    )


async def _receive_all(connection_string: str, queues: Sequence[str], count: int) -> tuple[float, float]:
    """Return after how many seconds each has its first messages, and how many messages a second come from then on."""
    first = round(count * _STEADY_AFTER)

    async def receive(receiver: ServiceBusReceiver, count: int) -> None:
        while count > 0:
            messages = await receiver.receive_messages(min(_BATCH, count), _PATIENCE)
            await receiver.complete_messages(messages)
            count -= len(messages)

    async with AsyncClient.from_connection_string(connection_string) as client:
        opened = time.perf_counter()
        receivers = [client.get_queue_receiver(queue) for queue in queues]
        await asyncio.gather(*(receive(receiver, first) for receiver in receivers))
        began = time.perf_counter()
        await asyncio.gather(*(receive(receiver, count - first) for receiver in receivers))
        return began - opened, rate((count - first) * len(queues), began)


def first_message(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure single messages to an idle queue, alone and while its client receives from another one as fast as it can."""
    with bench.queue() as idle, bench.queue() as busy, bench.client() as client:

        def beside(count: int) -> float:
            waiting = scale.count(_BUSY)
            bench.fill(busy, messages=waiting)
            return _tail_of(bench, client, idle, count, lambda: _received_at_full_speed(client, busy, waiting))

        measured = interleave(
            {"alone": lambda count: _tail_of(bench, client, idle, count), "beside": beside}, scale.count(_FIRST), scale
        )
    yield compare(
        "first message to an idle queue while another is received at full speed, p99: alone",
        MILLISECONDS,
        measured["beside"],
        measured["alone"],
        Budget(3.0, at_most=True),
    )


_Meanwhile = Callable[[], AbstractContextManager[threading.Event]]
"""Does other work, and yields an event that is set when that work is done."""


def _tail_of(
    bench: Workbench,
    client: ServiceBusClient,
    queue: str,
    count: int,
    meanwhile: _Meanwhile = lambda: nullcontext(threading.Event()),
) -> float:
    """Return the p99, in ms, from before another process sends a message until it is received."""
    with _sender_elsewhere(bench, queue) as send, client.get_queue_receiver(queue) as receiver:

        def once() -> float:
            began = send()
            messages = receiver.receive_messages(1, _PATIENCE)
            took = time.perf_counter() - began()
            receiver.complete_messages(messages)
            return took * 1000

        # With the first one, the sender connects.
        once()
        with meanwhile() as done:
            took = [once() for _ in takewhile(lambda _: not done.is_set(), range(count))]
    if len(took) * _LEAST < count:
        raise RuntimeError(f"the other work was done after {len(took)} messages of {count}: have it take longer")
    return quantiles(took, n=100, method="inclusive")[-1]


@contextmanager
def _sender_elsewhere(bench: Workbench, queue: str) -> Generator[Callable[[], Callable[[], float]]]:
    """Yield a function that has another process send a message soon, and returns a function for the time of that send."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send_when_told, args=(bench.connection_string, queue, theirs))
    process.start()

    def send() -> Callable[[], float]:
        ours.send(True)
        return ours.recv

    try:
        yield send
    finally:
        ours.send(False)
        process.join()


def _send_when_told(connection_string: str, queue: str, told: Connection[float, bool]) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        while told.recv():
            # The receiver is to wait by then.
            time.sleep(_SOON)
            began = time.perf_counter()
            sender.send_messages(ServiceBusMessage(BODY))
            told.send(began)


@contextmanager
def _received_at_full_speed(client: ServiceBusClient, queue: str, count: int) -> Generator[threading.Event]:
    """Receive and complete in a thread."""
    over, done = threading.Event(), threading.Event()

    def receive() -> None:
        left = count
        with client.get_queue_receiver(queue) as receiver:
            while left > 0 and not over.is_set():
                messages = receiver.receive_messages(_BATCH, 1)
                receiver.complete_messages(messages)
                left -= len(messages)
            done.set()

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
