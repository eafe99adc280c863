"""The words of Azure's SDKs to a gateway, connection by connection, for tests that say them again, or something like them.

``python -m tests.clients.conversations`` records it with the programs of this folder, one for each language.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kafkabus.gateway.announcement import Bound, connection_string
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from tests.clients import entities
from tests.clients.programs import Program, programs

PREFIX = "recorded-"
"""The beginning of the names of the entities that the recorded clients use."""
CHECKS = (
    *("send-list", "send-batch", "receive-complete", "receive-and-delete", "abandon", "defer", "dead-letter", "peek"),
    *("schedule", "schedule-cancel", "session-state", "session-next", "session-peek", "session-list", "topic-rules"),
    *("rule-manager", "transaction-commit", "transaction-two-entities"),
)
"""The checks that are recorded: those that take no time."""
_FOLDER = Path(__file__).with_name("recorded")
_PYTHON = "python-7.15.0"
_CHUNK = 1 << 16


def recorded() -> list[bytes]:
    """Return what was said on each connection."""
    return [base64.b64decode(line) for file in sorted(_FOLDER.glob("*.json")) for line in json.loads(file.read_text())]


def create_entities(administration: ServiceBusAdministrationClient) -> None:
    """Create the entities that the recorded clients use."""
    entities.create(administration, PREFIX, CHECKS)


async def _record(program: Program) -> Sequence[bytes]:
    """Run a program's checks; return what it says on each connection."""
    said: list[bytearray] = []

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, into: bytearray | None) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                if into is not None:
                    into += data
                target.write(data)
                await target.drain()
        target.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(bytearray())
        there, back = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(copy(reader, back, said[-1]), copy(there, writer, None))

    with InMemoryNamespace() as namespace:
        with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
            administration.create_namespace("Premium", 4)
            create_entities(administration)
        async with Gateway(namespace.connection_string) as gateway:
            behind = await gateway.listen("127.0.0.1", 0)
            proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
            address = connection_string("127.0.0.1", Bound(proxy.sockets[0].getsockname()[1], None))
            names = [name for name in CHECKS if program.language in entities.CHECKS[name].languages]
            ended = await asyncio.to_thread(program.run, *names, connection_string=address, prefix=PREFIX)
            if ended.returncode:
                raise SystemExit(f"{program.name}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
            proxy.close()
    return [bytes(one) for one in said if one]


def main() -> None:
    """Record all languages."""
    _FOLDER.mkdir(exist_ok=True)
    for program in programs():
        if program.language != "python" or program.name == _PYTHON:
            said = [base64.b64encode(one).decode() for one in asyncio.run(_record(program))]
            (_FOLDER / f"{program.language}.json").write_text(json.dumps(said, indent=0) + "\n")


if __name__ == "__main__":
    main()
