"""Run upkeep, round by round, for a namespace that no service looks after."""

from __future__ import annotations

import asyncio

from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus_mapping.names import EntityPath

ROUNDS = 4
"""Enough for two checkpoints of each entity, and for a topic to go by the later ones of its subscriptions."""


def tend(connection_string: str, *names: str) -> None:
    """Look after entities, one after the other, for some rounds."""

    async def look_after() -> None:
        context = ClientContext(parse_settings(connection_string))
        maintainers = [EntityMaintainer(context, EntityPath(name)) for name in names]
        try:
            for _ in range(ROUNDS):
                for one in maintainers:
                    await one.tend()
        finally:
            await context.close()

    asyncio.run(look_after())
