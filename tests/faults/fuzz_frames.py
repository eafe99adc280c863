"""Say to a gateway what clients might say that are broken: mutated frames, and mutated conversations of Azure's SDKs.

``python -m tests.faults.fuzz_frames --seed 7 --seconds 600`` does so with a gateway process on real servers. Another client
sends, receives and completes messages at the same time, and must not notice. The gateway must be the same process afterwards,
have no connection left but that client's, have logged no unexpected error, and not have grown. With ``--policies`` it checks
keys, and that client alone has a token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import re
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
from rich.console import Console

from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.gateway import NAME, GatewayPorts
from kafkabus.gateway.amqp.performatives import Accepted
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import Symbol, UInt, ULong, encode
from tests.amqp_client import AmqpClient, Link, put_token
from tests.clients.conversations import create_entities, recorded
from tests.faults.floods import FLOODS, flood
from tests.ports import free_ports
from tests.servers import scratch_folder

BYSTANDER = "bystander"
"""The queue of the client that must not notice."""
AT_ONCE = 8
"""How many broken clients there are at a time."""
LINGER = 0.05
"""How long, in seconds, a broken client stays connected at the most when it has said everything."""
GROWTH_MB = 32.0
"""How much memory, in MB, a gateway may gain between the first tenth of ten minutes and their end."""
POLICY = "bystander"
"""The policy of that client, if the gateway checks keys."""
LASTS = 3600.0
"""How long its token lasts, in seconds."""
FLOODED = "flooded"
"""The queue that floods send to."""
WARMED_UP = 200
_HEADER = b"AMQP"
_VALUES: Sequence[object] = (
    None,
    True,
    0,
    -1,
    2**63 - 1,
    ULong(2**64 - 1),
    UInt(2**32 - 1),
    "",
    "x" * 300,
    b"\0" * 300,
    [],
    {},
    Symbol("x"),
)
_READ = 1 << 16


def pieces_of(said: bytes) -> list[bytes]:
    """Split what a client said into headers and frames."""
    pieces: list[bytes] = []
    at = 0
    while at < len(said):
        size = 8 if said.startswith(_HEADER, at) else max(8, int.from_bytes(said[at : at + 4], "big"))
        pieces.append(said[at : at + size])
        at += size
    return pieces


@cache
def conversations() -> list[list[bytes]]:
    """Return the recorded conversations, each as headers and frames."""
    return [pieces_of(said) for said in recorded()]


# Mutations: each changes a conversation in place.


def _change_bytes(chance: random.Random, said: list[bytes]) -> None:
    at = chance.randrange(len(said))
    changed = bytearray(said[at])
    for _ in range(chance.randrange(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    said[at] = bytes(changed)


def _change_value(chance: random.Random, said: list[bytes]) -> None:
    """Write a value over another one, or between two; the frame's size is right."""
    at = chance.randrange(len(said))
    frame = said[at]
    if len(frame) > 12:
        value = encode(chance.choice(_VALUES))
        for _ in range(chance.choice((0, 0, 0, 1, 200))):
            value = b"\0" + encode(ULong(chance.randrange(0x10, 0x78))) + value
        where = chance.randrange(11, len(frame))
        frame = frame[:where] + value + frame[where + chance.choice((0, 1, 2, 5)) :]
        said[at] = len(frame).to_bytes(4, "big") + frame[4:]


def _change_size(chance: random.Random, said: list[bytes]) -> None:
    at = chance.randrange(len(said))
    size = chance.choice((0, 1, 7, 8, len(said[at]) - 1, len(said[at]) + 1, 2**31, 2**32 - 1))
    said[at] = max(0, size).to_bytes(4, "big") + said[at][4:]


def _change_channel(chance: random.Random, said: list[bytes]) -> None:
    at = chance.randrange(len(said))
    said[at] = said[at][:6] + chance.choice((0, 1, 255, 65_535)).to_bytes(2, "big") + said[at][8:]


def _leave_out(chance: random.Random, said: list[bytes]) -> None:
    del said[chance.randrange(len(said))]


def _say_again(chance: random.Random, said: list[bytes]) -> None:
    said[chance.randrange(len(said)) : 0] = [chance.choice(said)] * chance.choice((1, 2, 100))


def _swap(chance: random.Random, said: list[bytes]) -> None:
    one, two = chance.randrange(len(said)), chance.randrange(len(said))
    said[one], said[two] = said[two], said[one]


def _cut(chance: random.Random, said: list[bytes]) -> None:
    at = chance.randrange(len(said))
    said[at:] = [said[at][: chance.randrange(len(said[at]) + 1)]]


def _say_noise(chance: random.Random, said: list[bytes]) -> None:
    said.insert(chance.randrange(len(said)), chance.randbytes(chance.randrange(1, 200)))


def _go_on_as_another(chance: random.Random, said: list[bytes]) -> None:
    other = chance.choice(conversations())
    said[chance.randrange(len(said)) :] = other[chance.randrange(len(other)) :]


MUTATIONS: Sequence[Callable[[random.Random, list[bytes]], None]] = (
    *(_change_bytes, _change_value, _change_value, _change_value, _change_size, _change_channel),
    *(_leave_out, _say_again, _swap, _cut, _say_noise, _go_on_as_another),
)


def mutated(chance: random.Random) -> list[bytes]:
    """Return a conversation that no SDK would have."""
    said = list(chance.choice(conversations()))
    for _ in range(chance.randrange(1, 4)):
        if said:
            chance.choice(MUTATIONS)(chance, said)
    return said


# Clients.


async def _say(port: int, chance: random.Random, said: Sequence[bytes]) -> str:
    """Say everything, at once or by and by, and go; return how it ended: ``closed`` by the gateway, or ``left``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    patient = chance.random() < 0.5
    try:
        for piece in said:
            writer.write(piece)
            if patient:
                await writer.drain()
                # A client that waits for answers gets more of them.
                with suppress(asyncio.TimeoutError):
                    if not await asyncio.wait_for(reader.read(_READ), chance.choice((0.001, 0.01))):
                        return "closed"
        await asyncio.wait_for(_read_all(reader), chance.uniform(0, LINGER))
    except asyncio.TimeoutError:
        return "left"
    except OSError:
        return "closed"
    else:
        return "closed"
    finally:
        if chance.random() < 0.5:
            writer.transport.abort()
        writer.close()


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(_READ):
        pass


class Bystander:
    """A client that does everything right.

    Args:
        port: The gateway's port.
        key: The key of the policy whose token it puts; None: it puts none.

    Attributes:
        messages: How many messages it has sent, received and completed.
    """

    def __init__(self, port: int, key: str | None = None) -> None:
        self._port = port
        self._key = key
        self.messages = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send, receive and complete messages; raise if one of them fails, or the connection ends."""
        async with AmqpClient(self._port) as client:
            if self._key is not None:
                await put_token(client, f"sb://localhost/{BYSTANDER}", POLICY, self._key, LASTS)
            sender, receiver = await client.sender(BYSTANDER), await client.receiver(BYSTANDER)
            receiver.grant(1)
            while not is_over():
                await self._once(sender, receiver)

    async def _once(self, sender: Link, receiver: Link) -> None:
        body = str(self.messages).encode()
        assert await sender.send(encode_sections(Sections(data=[body]))) == Accepted()
        came = await receiver.receive()
        assert came.body == body, (came.body, body)
        assert await receiver.settle(came, state=Accepted()) == [Accepted()]
        self.messages += 1
        receiver.grant(1)


async def fuzz(
    port: int, seed: int, *, seconds: float | None = None, count: int | None = None, key: str | None = None
) -> tuple[Counter[str], int]:
    """Have broken clients talk to a gateway for so long, or so many.

    Args:
        port: The gateway's port.
        seed: Decides what they say.
        seconds: How long.
        count: How many there are.
        key: The key of the bystander's policy; None: the gateway checks no keys.

    Returns:
        How many connections ended in which way, and how many messages the bystander sent, received and completed.
    """
    end = None if seconds is None else time.monotonic() + seconds
    chances = (random.Random(f"{seed} {number}") for number in range(count or sys.maxsize))
    became, bystander = Counter[str](), Bystander(port, key)
    done = asyncio.Event()

    async def talk() -> None:
        for chance in chances:
            if end is not None and time.monotonic() >= end:
                return
            became[await _say(port, chance, mutated(chance))] += 1

    async def talk_at_once() -> None:
        try:
            await asyncio.gather(*(talk() for _ in range(AT_ONCE)))
        finally:
            done.set()

    # A bystander that fails ends the others as well.
    await asyncio.gather(bystander.run(done.is_set), talk_at_once())
    return became, bystander.messages


def create_all(connection_string: str) -> None:
    """Create the entities that the clients talk about."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        administration.create_namespace("Premium", 4)
        create_entities(administration)
        administration.create_queue(BYSTANDER)
        administration.create_queue(FLOODED)


def policies_in(folder: Path, key: str) -> Path:
    """Write a file with the policy of the bystander."""
    path = folder / "policies.json"
    policy = {"name": POLICY, "primary-key": key, "rights": ["Send", "Listen"], "scope": BYSTANDER}
    path.write_text(json.dumps({"policies": [policy]}))
    return path


def _connections(process: psutil.Process, port: int) -> int:
    """Return how many connections of clients a gateway holds open at a port."""
    return sum(one.laddr.port == port and bool(one.raddr) for one in process.net_connections("tcp"))


def _withstands(kind: str, port: int, process: psutil.Process, seconds: float) -> bool:
    """Flood a gateway, and print how it grew; return whether that was little, and another client was served all the time."""

    async def run() -> tuple[int, int]:
        bystander, over = Bystander(port), asyncio.Event()

        async def until_over() -> int:
            try:
                return await flood(kind, port, FLOODED, seconds)
            finally:
                over.set()

        _, count = await asyncio.gather(bystander.run(over.is_set), until_over())
        return count, bystander.messages

    asyncio.run(_warm_up(port))
    before = process.memory_info().rss / 1e6
    count, messages = asyncio.run(run())
    grown = process.memory_info().rss / 1e6 - before
    Console(highlight=False, soft_wrap=True).print(
        f"flood {kind}: {count} in {seconds:g} s; memory: {before:.0f} MB, grown by {grown:.0f}; bystander: {messages}"
    )
    return grown < GROWTH_MB and messages > seconds


async def _warm_up(port: int) -> None:
    """Have a client be served for a moment, so that what a gateway keeps anyway is there."""
    deadline = time.monotonic() + 60
    while True:
        bystander = Bystander(port)
        try:
            await bystander.run(lambda: bystander.messages >= WARMED_UP)  # noqa: B023 - it is called at once
        except ConnectionRefusedError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--floods", type=float, help="seconds for which each flood goes on, in place of frames")
    parser.add_argument("--policies", action="store_true", help="have the gateway check keys")
    options = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    # Clients go on although the gateway has closed their connections: asyncio warns of that each time.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    amqp, http = free_ports(2)
    data = scratch_folder()
    key = secrets.token_hex() if options.policies else None
    try:
        ports = GatewayPorts(amqp, http, None if key is None else policies_in(data, key))
        with EmbeddedRuntime(data, gateway=ports) as runtime:
            create_all(runtime.connection_string)
            process = psutil.Process(runtime.processes[NAME])
            if options.floods is not None:
                withstood = {kind: _withstands(kind, amqp, process, options.floods) for kind in FLOODS}
                sys.exit(not all(withstood.values()))
            became, messages = Counter[str](), 0
            grown: list[float] = []
            for part, share in enumerate((0.1, 0.9)):
                more, passed = asyncio.run(fuzz(amqp, options.seed + part, seconds=options.seconds * share, key=key))
                became, messages = became + more, messages + passed
                grown.append(process.memory_info().rss / 1e6)
            deadline = time.monotonic() + 60
            while (left := _connections(process, amqp)) and time.monotonic() < deadline:
                time.sleep(0.1)
            log = (data / "logs" / f"{NAME}.out").read_text()
            same = runtime.processes[NAME] == process.pid
    finally:
        shutil.rmtree(data, ignore_errors=True)
    errors = re.findall(r"^.*(?:unexpected|Traceback).*$", log, re.MULTILINE)
    fine = same and not left and not errors and grown[1] - grown[0] < GROWTH_MB
    say(
        f"seed {options.seed}: {became.total()} connections in {options.seconds:g} s, {dict(became)}; bystander: {messages}"
    )
    say(f"same process: {same}; connections left: {left}; memory: {grown[0]:.0f} and {grown[1]:.0f} MB")
    say(f"unexpected errors: {len(errors)} {errors[:5]}")
    sys.exit(not fine)


if __name__ == "__main__":
    main()
