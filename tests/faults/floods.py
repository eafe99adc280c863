"""Clients that make a gateway keep as much as they can; each flood goes on until it is cancelled.

``python -m tests.faults.fuzz_frames --floods 60`` lets each go on for a minute, with a gateway process on real servers and
another client that must be served at the same time; the gateway must not grow by more than 32 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from kafkabus.gateway.amqp.performatives import Attach, Detach, Flow, Source, Target, Transfer
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from tests.amqp_client import AmqpClient, LinkError

CONNECTIONS = 40
"""How many connections a flood has that needs many."""
_LARGE = 1_000_000
_PIECE = b"x" * 60_000
_AT_ONCE = 100
"""How many frames are said before the other client of this process has its turn."""

Flood = Callable[[int, str], Awaitable[None]]


@asynccontextmanager
async def _client(port: int) -> AsyncGenerator[AmqpClient]:
    """A client that is cut off in the end, and says nothing more."""
    client = AmqpClient(port)
    await client.__aenter__()
    try:
        yield client
    finally:
        client.closed = client.closed or LinkError("cut off")
        await client.__aexit__(None, None, None)


async def _room(client: AmqpClient, wait: float = 5.0) -> None:
    """Wait until what was said is on its way; raise if the connection is gone."""
    if client.closed is not None or client._writer.is_closing():
        raise LinkError("the gateway closed the connection")
    # Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes when there is room.
    draining = asyncio.ensure_future(client._writer.drain())
    try:
        done, _ = await asyncio.wait([draining], timeout=wait)
    finally:
        draining.cancel()
    if not done:
        raise asyncio.TimeoutError


async def answers(port: int, queue: str) -> None:
    """Ask ``$cbs`` with ids of a megabyte, and take no answer."""
    del queue
    async with _client(port) as client:
        await client.attach(1, receives=True, source=Source("$cbs"), target=Target("answers"))
        link = await client.attach(0, receives=False, source=Source("here"), target=Target("$cbs"))
        properties = {"message_id": "m" * _LARGE, "reply_to": "answers"}
        asked = Sections(properties=properties, application_properties={"operation": "put-token"}, value="x")
        while True:
            await link.send(encode_sections(asked))


async def unread(port: int, queue: str) -> None:
    """Ask for flows to be sent back, over many connections, and read none."""
    del queue
    flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(port)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.pause_reading()
        while True:
            for client in clients:
                for _ in range(_AT_ONCE):
                    client.say(flow)
                with contextlib.suppress(asyncio.TimeoutError):
                    await _room(client, 0.1)


async def echoes(port: int, queue: str) -> None:
    """Ask for flows to be sent back, and read them."""
    del queue
    flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
    async with _client(port) as client:
        while True:
            for _ in range(_AT_ONCE):
                client.say(flow)
            await _room(client)


async def unfinished(port: int, queue: str) -> None:
    """Begin messages over many connections, and end none."""
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = await stack.enter_async_context(_client(port))
            for handle in range(20):
                await client.sender(queue, handle)
                for number in range(17):
                    transfer = Transfer(
                        handle, None if number else handle, None if number else b"t", 0, False, more=True
                    )
                    client.say(transfer, _PIECE)
                await _room(client)


async def handles(port: int, queue: str) -> None:
    """Attach ever new links, and answer nothing of what the gateway says."""
    async with _client(port) as client:
        client.pause_reading()
        for handle in itertools.count():
            client.say(Attach(f"link-{handle}", handle, True, source=Source(queue), target=Target("here")))
            client.say(Detach(handle, closed=True))
            if handle % _AT_ONCE == 0:
                await _room(client)


FLOODS: Mapping[str, Flood] = {one.__name__: one for one in (answers, unread, echoes, unfinished, handles)}
"""The floods by their names."""


async def flood(kind: str, port: int, queue: str, seconds: float) -> int:
    """Have a flood go on, with a new client each time that the gateway has ended it; return how many there were."""
    count = 0

    async def go_on() -> None:
        nonlocal count
        while True:
            count += 1
            with contextlib.suppress(LinkError, OSError, asyncio.TimeoutError):
                await FLOODS[kind](port, queue)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(go_on())
    await asyncio.wait([task], timeout=seconds)
    # Before Python 3.12, asyncio.wait_for, by which a client waits, may forget a cancellation.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1)
    if not task.cancelled():
        task.result()
    return count
