"""Deleting queues that nobody uses, where their creators said so."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from kafkabus.entity import Entity
from kafkabus.ledger.keys import idle_key, receivers_key
from kafkabus.ledger.operations import Claim, LedgerState
from kafkabus_mapping.codec import from_milliseconds, to_milliseconds
from kafkabus_mapping.entities import FOREVER

if TYPE_CHECKING:
    from kafkabus.aio.services import Services

LOGGER = logging.getLogger("kafkabus.upkeep")

LOOK_EVERY = 2.0
"""How often, in seconds, it is looked whether a queue was used."""
GRACE = timedelta(seconds=90)
"""How long a queue that is to be deleted refuses everybody first: longer than a description may be old that a client goes by,
and than a send takes that began before that."""
REMEMBERED = timedelta(days=1)
"""How long, beyond the time after which a queue is deleted, Redis remembers when it was last seen to be used."""


class Idleness:
    """Has one queue deleted after nobody sent to it, received from it or changed it for as long as it says.

    How long that is Redis remembers, on the ledgers' clock; where it forgot, the time begins anew.

    Args:
        services: The service's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._look_at = 0.0

    async def look(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Take one step, where one is due: refuse everybody, relent, or delete.

        Args:
            entity: The queue.
            states: Of its ledgers.
            ends: Of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        description = entity.description
        if (
            entity.path.is_dead_letter
            or (description.auto_delete_on_idle >= FOREVER and description.retiring_at is None)
            or time.monotonic() < self._look_at
        ):
            return
        self._look_at = time.monotonic() + LOOK_EVERY
        now = await self._now(entity)
        used_at = await self._used_at(entity, states, ends, now)
        limit = description.auto_delete_on_idle
        scheduled = any(state is not None and state.scheduled for state in states)
        idle = not scheduled and limit < FOREVER and now - used_at >= _ms(limit)
        if description.retiring_at is None:
            if idle:
                LOGGER.info("idle entity=%s: not used for %s, it will be deleted", entity.path, limit)
                await self._retire(entity, now)
        elif not idle:
            LOGGER.info("idle entity=%s: used again", entity.path)
            await self._retire(entity, None)
        elif now - to_milliseconds(description.retiring_at) >= _ms(GRACE):
            LOGGER.warning("deleted entity=%s: it was not used for %s", entity.path, limit)
            if await self._is_current(entity):
                await self._services.delete_queue(description)

    async def _retire(self, entity: Entity, now: int | None) -> None:
        retiring_at = None if now is None else from_milliseconds(now)
        if await self._is_current(entity):
            await self._services.directory.put(entity.description.model_copy(update={"retiring_at": retiring_at}))

    async def _is_current(self, entity: Entity) -> bool:
        """Whether nobody changed the queue meanwhile."""
        return await self._services.directory.get(entity.path.name) == entity.description

    async def _now(self, entity: Entity) -> int:
        """The time on the ledgers' clock."""
        claim = Claim.of_nothing(entity.ledgers[0])
        await self._services.courier.ask(claim)
        return claim.granted.now

    async def _used_at(
        self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int], now: int
    ) -> int:
        """Since when nothing has changed that any use would change."""
        services, description = self._services, entity.description
        # Who forwards its messages receives all the time.
        keys = [] if entity.forwards_to is not None else [entity.receivers_key]
        keys.append(receivers_key(entity.namespace, entity.path.dead_letter))
        heard = [await services.courier.last_heartbeat(key) for key in keys]
        cursors = [None if state is None else state.cursor for state in states]
        known = description.model_copy(update={"retiring_at": None}).model_dump_json()
        seen = repr((entity.generation, sorted(ends.items()), cursors, heard, known))
        return await services.courier.unchanged_since(
            idle_key(entity.namespace, entity.path),
            hashlib.blake2b(seen.encode(), digest_size=16).hexdigest(),
            now,
            description.auto_delete_on_idle + REMEMBERED,
        )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
