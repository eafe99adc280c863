"""A sender or a receiver like those of ``party``, which uses the gateway over AMQP and may be killed at any moment as well."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from kafkabus.gateway.amqp.performatives import Accepted
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.receivers import TIMEOUT
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import UInt
from tests.amqp_client import AmqpClient, Delivered, Link, LinkError
from tests.faults.party import BATCH, PACE, WORK, output_to, session_of, tell

_CREDIT = 10 * BATCH
_SESSION_TIMEOUT_MS = 1_000


def take_part(output: Path, role: str, port: int, entity: str, name: str, sessions: int) -> None:
    """Be a sender or a receiver until killed.

    Args:
        output: The file in which it writes down what it did.
        role: ``send`` or ``receive``.
        port: The gateway's port.
        entity: The entity that it sends to or receives from.
        name: The beginning of its messages.
        sessions: How many sessions messages have; 0: none.
    """
    with output_to(output):
        if role == "send":
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
                    tell("sent", *(await _accepted(client, link, bodies, sessions)))
                    await asyncio.sleep(PACE)


async def _accepted(client: AmqpClient, link: Link, bodies: list[str], sessions: int) -> list[str]:
    """Send messages; return the bodies of those that were accepted."""
    first = int(bodies[0].rpartition("-")[2])
    if not sessions and first // BATCH % 2:
        annotations = {"x-opt-partition-key": f"key-{first // BATCH % 7}"}
        batch = [encode_sections(Sections(data=[body.encode()], message_annotations=annotations)) for body in bodies]
        sections = Sections(data=batch, message_annotations=annotations)
        outcome = await link.send(encode_sections(sections), message_format=BATCH_FORMAT)
        return bodies if outcome == Accepted() else []
    await client.until(lambda: link.credit >= len(bodies) or link.is_detached)
    link.check()
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
    link.grant(_CREDIT)
    messages = [await link.receive()]
    while link.waiting:
        messages.append(await link.receive())
    copies = [_copy_of(message) for message in messages]
    tell("got", *copies)
    await asyncio.sleep(random.uniform(0, WORK))
    answers = await link.settle(*messages, state=Accepted())
    tell("done", *(copy for copy, answer in zip(copies, answers, strict=True) if answer == Accepted()))


def _copy_of(message: Delivered) -> str:
    sections = message.sections
    return f"{message.body.decode()}@{sections.message_annotations['x-opt-sequence-number']}"
