"""A sender or a receiver like those of ``party``, which uses the gateway over AMQP and may be killed at any moment as well."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from kafkabus.gateway.amqp.performatives import Accepted, Declare, Declared, Discharge, Disposition, TransactionalState
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.service_bus_conditions import TIMEOUT
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import Symbol, UInt
from tests.amqp_client import AmqpClient, Delivered, Link, LinkError
from tests.faults.party import BATCH, PACE, WORK, moved_to, output_to, session_of, tell

_CREDIT = 10 * BATCH
_SESSION_TIMEOUT_MS = 1_000
_KEY = Symbol("x-opt-partition-key")


def take_part(
    output: Path, role: str, port: int, entity: str, name: str, sessions: int, in_transactions: bool = False
) -> None:
    """Be a sender, a receiver, or one that moves messages on, until killed.

    Args:
        output: The file in which it writes down what it did.
        role: ``send``, ``receive`` or ``move``.
        port: The gateway's port.
        entity: The entity that it sends to or receives from.
        name: The beginning of its messages.
        sessions: How many sessions messages have; 0: none.
        in_transactions: Whether it does all of that in transactions, each of which waits for its end alone.
    """
    with output_to(output):
        if in_transactions:
            asyncio.run(
                {"send": commit_sends, "receive": commit_receipts, "move": commit_moves}[role](port, entity, name)
            )
        elif role == "send":
            asyncio.run(send(port, entity, name, sessions))
        else:
            asyncio.run(receive(port, entity, with_sessions=sessions > 0))


@contextmanager
def _failures_told() -> Generator[None]:
    """Write errors of a connection down, and go on with another one."""
    try:
        yield
    except (LinkError, OSError, EOFError, TimeoutError, asyncio.TimeoutError) as error:
        tell("failed", type(error).__name__)


async def send(port: int, queue: str, name: str, sessions: int) -> None:
    """Send numbered messages for ever: in batches with a key each and one by one in turn, or all in sessions."""
    numbers = count(0, BATCH)
    while True:
        with _failures_told():
            async with AmqpClient(port) as client:
                link = await client.sender(queue)
                for first in numbers:
                    bodies = [f"{name}-{first + index}" for index in range(BATCH)]
                    tell("try", *bodies)
                    tell("sent", *(await _accepted(link, bodies, sessions)))
                    await asyncio.sleep(PACE)


async def _accepted(link: Link, bodies: list[str], sessions: int) -> list[str]:
    """Send messages; return the bodies of those that were accepted."""
    first = int(bodies[0].rpartition("-")[2])
    if not sessions and first // BATCH % 2:
        annotations = {"x-opt-partition-key": f"key-{first // BATCH % 7}"}
        batch = [encode_sections(Sections(data=[body.encode()], message_annotations=annotations)) for body in bodies]
        sections = Sections(data=batch, message_annotations=annotations)
        outcome = await link.send(encode_sections(sections), message_format=BATCH_FORMAT)
        return bodies if outcome == Accepted() else []
    await link.until_credit(len(bodies))
    outcomes = [link.put(_message(body, sessions)) for body in bodies]
    return [body for body, outcome in zip(bodies, outcomes, strict=True) if await outcome == Accepted()]


def _message(body: str, sessions: int) -> bytes:
    properties = {"group_id": session_of(body, sessions)} if sessions else {}
    return encode_sections(Sections(properties=properties, data=[body.encode()]))


async def receive(port: int, source: str, *, with_sessions: bool) -> None:
    """Receive and complete for ever; a few times of each session."""
    while True:
        with _failures_told():
            async with AmqpClient(port) as client:
                while with_sessions:
                    wait = {TIMEOUT: UInt(_SESSION_TIMEOUT_MS)}
                    link = await client.receiver(source, filters={SESSION_FILTER: None}, properties=wait)
                    for _ in range(random.randrange(1, 4)):
                        await _take(link)
                    await link.detach()
                link = await client.receiver(source)
                while True:
                    await _take(link)


async def _take(link: Link) -> None:
    """Receive and complete once."""
    messages = await _next(link)
    copies = [_copy_of(message) for message in messages]
    tell("got", *copies)
    await asyncio.sleep(random.uniform(0, WORK))
    answers = await link.settle(*messages, state=Accepted())
    tell("done", *(copy for copy, answer in zip(copies, answers, strict=True) if answer == Accepted()))


# In transactions, as Qpid JMS does it: work is sent without waiting for answers, and its discharge right behind it.


async def commit_sends(port: int, queue: str, name: str) -> None:
    """Send numbered messages for ever, the messages of each transaction with one key."""
    numbers = count(0, BATCH)
    while True:
        with _failures_told():
            async with AmqpClient(port) as client:
                link, coordinator = await client.sender(queue), await client.coordinator()
                for first in numbers:
                    bodies = [f"{name}-{first + index}" for index in range(BATCH)]
                    await link.until_credit(BATCH)
                    state = await _begun(coordinator)
                    tell("try", *bodies)
                    for body in bodies:
                        link.put(_keyed(body, f"key-{first // BATCH % 7}"), state=state)
                    if await _committed(coordinator, state):
                        tell("sent", *bodies)
                    await asyncio.sleep(PACE)


async def commit_receipts(port: int, source: str, _: str) -> None:
    """Receive and complete for ever."""
    while True:
        with _failures_told():
            async with AmqpClient(port) as client:
                link, coordinator = await client.receiver(source), await client.coordinator()
                while True:
                    messages = await _next(link)
                    copies = [_copy_of(message) for message in messages]
                    tell("got", *copies)
                    await asyncio.sleep(random.uniform(0, WORK))
                    state = await _begun(coordinator)
                    _complete(client, messages, state)
                    if await _committed(coordinator, state):
                        tell("done", *copies)


async def commit_moves(port: int, queue: str, _: str) -> None:
    """Receive, and send all messages on to the queue of this name, in a transaction for each key, for ever."""
    while True:
        with _failures_told():
            async with AmqpClient(port) as client:
                source, coordinator = await client.receiver(queue), await client.coordinator()
                link = await client.sender(moved_to(queue))
                while True:
                    by_key: dict[str, list[Delivered]] = defaultdict(list)
                    for message in await _next(source):
                        by_key[message.sections.message_annotations[_KEY]].append(message)
                    for key, messages in by_key.items():
                        await link.until_credit(len(messages))
                        state = await _begun(coordinator)
                        for message in messages:
                            link.put(_keyed(message.body.decode(), key), state=state)
                        _complete(client, messages, state)
                        await _committed(coordinator, state)


async def _begun(coordinator: Link) -> TransactionalState:
    outcome = await coordinator.send(encode_sections(Sections(value=Declare().described())))
    return TransactionalState(outcome.txn_id if isinstance(outcome, Declared) else b"none", Accepted())


async def _committed(coordinator: Link, state: TransactionalState) -> bool:
    discharge = Discharge(state.txn_id, False)
    return bool(await coordinator.send(encode_sections(Sections(value=discharge.described()))) == Accepted())


def _complete(client: AmqpClient, messages: list[Delivered], state: TransactionalState) -> None:
    for message in messages:
        client.say(Disposition(True, message.number, message.number, True, state))


def _keyed(body: str, key: str) -> bytes:
    return encode_sections(Sections(data=[body.encode()], message_annotations={_KEY: key}))


async def _next(link: Link) -> list[Delivered]:
    """Return the next messages that come."""
    link.grant(_CREDIT)
    messages = [await link.receive()]
    while link.waiting:
        messages.append(await link.receive())
    return messages


def _copy_of(message: Delivered) -> str:
    sections = message.sections
    return f"{message.body.decode()}@{sections.message_annotations['x-opt-sequence-number']}"
