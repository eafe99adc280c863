"""The gateway for Azure's SDKs: what goes through one process of it, and what idle connections take."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.rabbit import Rabbit, find_rabbit, running_rabbit
from benchmarks.results import MESSAGES_PER_SECOND, NOT_INSTALLED, Budget, Result, compare, target
from benchmarks.rounds import Measure, Scale, interleave, rate
from benchmarks.rows.send import send_batches
from benchmarks.steady import SETTLING_IN, receive_new
from benchmarks.workbench import BODY, Workbench
from kafkabus.gateway.amqp.performatives import Accepted, Disposition, Source, Target
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.service_bus_conditions import TIMEOUT
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import UInt
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from tests.amqp_client import AmqpClient, Link
from tests.ports import free_ports

BATCH = 100
_MESSAGES = 10_000
_UNDER_WAY = 2
"""How many batches are on their way at a time."""
_COMPLETED_AT_ONCE = 32
"""How many completions are on their way at a time."""
_CREDIT = 500
_SEND, _COMPLETE, _DELETE = 15_000.0, 3_000.0, 8_000.0
"""The project's own targets, in messages per second."""
_CONNECTIONS = 500
_IDLE_MB, _IDLE_CPU = 100.0, 1.0
_WAITING_LINKS, _LINKS_EACH = 2_000, 100
_WAITING_CPU = 0.6
"""One per cent of a core."""
_NEW_SESSIONS = 20
_LOOK_EVERY = 0.002
_SETTLED_AFTER = 20.0
_WATCHED_FOR = 60.0
_LOGIN = ("PLAIN", b"\0guest\0guest")
"""RabbitMQ's; the gateway takes any."""
_ONE = encode_sections(Sections(header={"durable": True}, properties={"message_id": "m"}, data=[BODY]))
_PACKED = encode_sections(Sections(data=[_ONE] * BATCH))

Work = Callable[[AmqpClient, str, int], Awaitable[float]]


@dataclass(frozen=True)
class _Server:
    """A server of AMQP 1.0.

    Attributes:
        port: Its port.
        sent: The address of a queue to which messages are sent.
        held: The address of a queue that holds messages.
    """

    port: int
    sent: str
    held: str


def gateway(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure one process of the gateway, with a client that writes messages of 1 KB which it encoded before.

    The references are the project's own targets. For information: RabbitMQ's AMQP 1.0 with a quorum queue and the same client,
    if it is installed, and kafkabus's own SDK, in the same rounds.
    """
    yield from _idle(bench, scale)
    yield from _waiting(bench, scale)
    programs = find_rabbit()
    if programs is None:
        yield from _compare(bench, scale, None)
    else:
        with running_rabbit(programs, bench.scratch / "rabbitmq-amqp", "rabbitmq_amqp1_0") as rabbit:
            yield from _compare(bench, scale, rabbit)


def _compare(bench: Workbench, scale: Scale, rabbit: Rabbit | None) -> Iterator[Result]:
    count, settling_in = (scale.count(full, multiple_of=BATCH) for full in (_MESSAGES, SETTLING_IN))
    rounds = scale.rounds + 2
    # Messages that a client of the gateway has credit for, and does not wait for, stay locked when it goes.
    left = 3 * _CREDIT
    with (
        _running(bench) as process,
        bench.queue(rounds * (3 * count + settling_in + left)) as full,
        bench.queue() as empty,
    ):
        servers = {"kafkabus": _Server(process.port, empty, full)}
        if rabbit is not None:
            rabbit.fill("sent", 0)
            rabbit.fill("held", 2 * rounds * count)
            servers["rabbitmq"] = _Server(rabbit.port, "/amq/queue/sent", "/amq/queue/held")
        with bench.client() as client, client.get_queue_sender(empty) as sender:
            sides: dict[str, Measure] = {name: _timed(one.port, one.sent, _send) for name, one in servers.items()}
            sides["own SDK"] = lambda timed: send_batches(sender, timed)
            yield from _results(f"send, batches of {BATCH}, 1 KB", _SEND, interleave(sides, count, scale), rabbit)
        sides = {name: _timed(one.port, one.held, _complete) for name, one in servers.items()}
        sides["own SDK"] = lambda timed: receive_new(bench, full, BATCH, settling_in, timed)
        sides["one"] = _timed(process.port, full, _complete_each, part=10)
        measured = interleave(sides, count // 2, scale)
        each = measured.pop("one")
        yield from _results(
            f"receive, and complete each message, {_COMPLETED_AT_ONCE} at a time, 1 KB", _COMPLETE, measured, rabbit
        )
        yield Result("gateway: the same, one after the other", sorted(each)[len(each) // 2], MESSAGES_PER_SECOND)
        sides = {name: _timed(one.port, one.held, _delete) for name, one in servers.items()}
        yield from _results("receive and delete, 1 KB", _DELETE, interleave(sides, count, scale), rabbit)


def _results(name: str, wanted: float, measured: dict[str, list[float]], rabbit: Rabbit | None) -> Iterator[Result]:
    ours = measured["kafkabus"]
    yield compare(
        f"gateway: {name}: {wanted:,.0f} a second", MESSAGES_PER_SECOND, ours, [wanted] * len(ours), Budget(1.0)
    )
    if "own SDK" in measured:
        yield compare(f"gateway: {name}: kafkabus's own SDK", MESSAGES_PER_SECOND, ours, measured["own SDK"])
    other = f"gateway: {name}: RabbitMQ's AMQP 1.0, quorum queue"
    if rabbit is None:
        yield Result(other, None, MESSAGES_PER_SECOND, note=NOT_INSTALLED)
    else:
        yield compare(other, MESSAGES_PER_SECOND, ours, measured["rabbitmq"], note=f"RabbitMQ {rabbit.version}")


def _timed(port: int, queue: str, work: Work, part: int = 1) -> Measure:
    async def run(count: int) -> float:
        async with AmqpClient(port, login=_LOGIN) as client:
            return await work(client, queue, count)

    def measure(count: int) -> float:
        return asyncio.run(run(count // part))

    return measure


async def _send(client: AmqpClient, queue: str, count: int) -> float:
    """Send batches: in one transfer to the gateway, in one for each message to RabbitMQ, which knows no other way."""
    link, packs = await client.sender(queue), not queue.startswith("/")
    await client.until(lambda: link.credit >= _UNDER_WAY)
    under_way: list[asyncio.Future[Any]] = []
    began = time.perf_counter()
    for _ in range(count // BATCH):
        if packs:
            under_way.append(asyncio.gather(link.put(_PACKED, message_format=BATCH_FORMAT)))
        else:
            await client.until(lambda: link.credit >= BATCH)
            under_way.append(asyncio.gather(*(link.put(_ONE) for _ in range(BATCH))))
        if len(under_way) >= _UNDER_WAY:
            await under_way.pop(0)
    await asyncio.gather(*under_way)
    return rate(count, began)


async def _complete(client: AmqpClient, queue: str, count: int) -> float:
    """Receive messages, and complete each by itself, some at a time; RabbitMQ knows only the first mode of settling."""
    link = await client.receiver(queue, rcv_settle_mode=0 if queue.startswith("/") else 1)
    under_way: list[asyncio.Future[Any]] = []
    link.grant(_CREDIT)
    began = time.perf_counter()
    for number in range(1, count + 1):
        message = await link.receive()
        under_way.append(client.expect_answer(message.number))
        client.say(Disposition(True, message.number, message.number, False, Accepted()))
        if len(under_way) >= _COMPLETED_AT_ONCE:
            await under_way.pop(0)
        if number % (_CREDIT // 2) == 0:
            link.grant(_CREDIT)
    await asyncio.gather(*under_way)
    return rate(count, began)


async def _complete_each(client: AmqpClient, queue: str, count: int) -> float:
    """Receive messages, and complete one after the other."""
    link = await client.receiver(queue)
    link.grant(_CREDIT)
    began = time.perf_counter()
    for number in range(1, count + 1):
        await link.settle(await link.receive(), state=Accepted())
        if number % (_CREDIT // 2) == 0:
            link.grant(_CREDIT)
    return rate(count, began)


async def _delete(client: AmqpClient, queue: str, count: int) -> float:
    """Receive messages that come settled."""
    link = await client.receiver(queue, takes=True)
    link.grant(_CREDIT)
    began = time.perf_counter()
    for number in range(1, count + 1):
        await link.receive()
        if number % (_CREDIT // 2) == 0 and number < count:
            link.grant(min(_CREDIT, count - number))
    return rate(count, began)


def _idle(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure what connections take over which nothing goes, each with a receiver that waits."""
    count = scale.count(_CONNECTIONS)
    with _running(bench) as process, bench.queue() as queue:
        megabytes, seconds = asyncio.run(_hold(process, queue, count, min(1.0, scale.part * 4)))
    what = f"gateway, {_CONNECTIONS} idle connections with a receiver each"
    yield target(f"{what}, memory: {_IDLE_MB:g} MB", "MB", megabytes, _IDLE_MB)
    yield target(f"{what}: {_IDLE_CPU:g} CPU s/min", "CPU s/min", seconds, _IDLE_CPU)


async def _hold(process: _Process, queue: str, count: int, part: float) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = await stack.enter_async_context(AmqpClient(process.port))
            (await client.receiver(queue)).grant(1)
        return await _watch(process, part)


def _waiting(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure what links take that wait for sessions of a queue that has none, and how soon one of them gets a session."""
    count = scale.count(_WAITING_LINKS, multiple_of=_LINKS_EACH)
    with _running(bench) as process, bench.queue(sessions=1) as queue:
        seconds, delay = asyncio.run(_wait_for_sessions(process, queue, count, min(1.0, scale.part * 4)))
    what = f"gateway, {_WAITING_LINKS:,} links that wait for sessions"
    yield target(f"{what}: {_WAITING_CPU:g} CPU s/min", "CPU s/min", seconds, _WAITING_CPU)
    yield Result(f"{what}: from a message to its session's link", delay, "ms")


async def _wait_for_sessions(process: _Process, queue: str, count: int, part: float) -> tuple[float, float]:
    source, properties = Source(queue, filter={SESSION_FILTER: None}), {TIMEOUT: UInt(600_000)}
    async with AsyncExitStack() as stack:
        links: list[Link] = []
        for _ in range(count // _LINKS_EACH):
            client = await stack.enter_async_context(AmqpClient(process.port))
            links += [
                client.begin_to_attach(
                    handle, receives=True, source=source, target=Target("here"), properties=properties
                )
                for handle in range(_LINKS_EACH)
            ]
        _, seconds = await _watch(process, part)
        sender = await (await stack.enter_async_context(AmqpClient(process.port))).sender(queue)
        delays: list[float] = []
        for number in range(_NEW_SESSIONS):
            began = time.perf_counter()
            await sender.send(encode_sections(Sections(properties={"group_id": f"session-{number}"}, data=[BODY])))
            while sum(link.answer is not None for link in links) <= number:  # noqa: ASYNC110 - there is no notification
                await asyncio.sleep(_LOOK_EVERY)
            delays.append(1_000 * (time.perf_counter() - began))
        return seconds, sorted(delays)[len(delays) // 2]


async def _watch(process: _Process, part: float) -> tuple[float, float]:
    """Return how many megabytes a process has, and how many seconds of a minute it computes."""
    await asyncio.sleep(_SETTLED_AFTER * part)
    seen = psutil.Process(process.pid)
    before, began = sum(seen.cpu_times()[:2]), time.perf_counter()
    await asyncio.sleep(_WATCHED_FOR * part)
    spent = sum(seen.cpu_times()[:2]) - before
    return seen.memory_info().rss / 1e6, spent * 60 / (time.perf_counter() - began)


@dataclass(frozen=True)
class _Process:
    """A gateway's process.

    Attributes:
        pid: The process.
        port: Its port for AMQP.
    """

    pid: int
    port: int


@contextmanager
def _running(bench: Workbench) -> Generator[_Process]:
    """Run one process of the gateway."""
    amqp, http = free_ports(2)
    environment = {
        **os.environ,
        CONNECTION_STRING_VARIABLE: bench.connection_string,
        "KAFKABUS_GATEWAY_HOST": "127.0.0.1",
        "KAFKABUS_AMQP_PORT": str(amqp),
        "KAFKABUS_HTTP_PORT": str(http),
    }
    command = [sys.executable, "-m", "kafkabus.gateway"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_serves(amqp))
        yield _Process(process.pid, amqp)
    finally:
        process.terminate()
        process.wait()


async def _serves(port: int) -> None:
    while True:
        try:
            async with AmqpClient(port):
                return
        except OSError:  # noqa: PERF203 - it is tried again
            await asyncio.sleep(0.1)
