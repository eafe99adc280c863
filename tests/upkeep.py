"""Run upkeep for a namespace that no service looks after: round by round, or as a service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.upkeep import checkpoint_writer, trimmer
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.names import EntityPath

ROUNDS = 4
"""Enough for two checkpoints of each entity, and for a topic to go by the later ones of its subscriptions."""


PATIENCE = 60.0


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have upkeep write checkpoints and delete records whenever it maintains an entity, instead of now and then."""
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_EVERY", 0.0)
    monkeypatch.setattr(trimmer, "TRIM_EVERY", 0.0)


@contextmanager
def upkeep(connection_string: str) -> Generator[threading.Thread]:
    """The upkeep service, in a thread."""
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await Upkeep(parse_settings(connection_string)).run(stop)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield thread
    finally:
        if thread.is_alive():
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)


def tend(connection_string: str, *names: str) -> None:
    """Look after entities, one after the other, for some rounds."""

    async def look_after() -> None:
        context = ClientContext(parse_settings(connection_string))
        maintainers = [EntityMaintainer(context, EntityPath(name)) for name in names]
        try:
            for _ in range(ROUNDS):
                for one in maintainers:
                    await one.maintain()
        finally:
            await context.close()

    asyncio.run(look_after())
