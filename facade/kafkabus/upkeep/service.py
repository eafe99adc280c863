"""The service: which entities there are, which of them are this instance's, and tending those."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import zlib
from collections.abc import Coroutine
from typing import Any

from kafkabus._async.compat import uninterrupted
from kafkabus._async.context import ClientContext
from kafkabus._core.settings import Settings
from kafkabus._ledger.keys import upkeep_key
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError, UnsuitableRedisError
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus.upkeep.forwarder import Forwarder
from kafkabus_mapping.entities import EntityDescription, EntityStatus, SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.upkeep")

TICK = 0.5
"""How often, in seconds, each entity is looked at."""
LOOK_FOR_ENTITIES = 2.0
"""How often, in seconds, new and deleted entities are noticed."""
HEARTBEAT_LIFETIME = 5.0
"""After how many seconds without being heard of an instance's entities are others'."""
AT_ONCE = 16
"""How many entities are tended at a time."""


class Upkeep:
    """One instance of the service, for one namespace.

    Args:
        settings: Where the namespace lives.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._paths: list[EntityPath] = []
        self._look_again_at = 0.0
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Tend the namespace until told to stop; what cannot be reached is waited for.

        Raises:
            UnsuitableRedisError: Redis is none that kafkabus can use, which no waiting changes.
        """
        context = ClientContext(self._settings)
        key = upkeep_key(self._settings.namespace)
        LOGGER.info("upkeep_started namespace=%s instance=%s", self._settings.namespace, context.client_id)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stopping.done():
                try:
                    await _or_stopped(stopping, self._share_out(context, key))
                except UnsuitableRedisError:
                    raise
                except ServiceBusError as error:
                    LOGGER.warning("upkeep namespace=%s error=%s", self._settings.namespace, error)
                except Exception:
                    LOGGER.exception("upkeep namespace=%s", self._settings.namespace)
                await asyncio.wait([stopping], timeout=TICK)
        finally:
            stopping.cancel()
            await self._leave_all()
            await context.close()
            LOGGER.info("upkeep_stopped namespace=%s", self._settings.namespace)

    async def _leave_all(self) -> None:
        """Tend nothing any more."""
        left = {task for task in self._tasks.values() if not task.done()}
        while left:
            for task in left:
                task.cancel()
            # Told again where a library forgets that it was told.
            _, left = await asyncio.wait(left, timeout=TICK)

    async def _share_out(self, context: ClientContext, key: str) -> None:
        """Begin to tend what is this instance's, and leave what is others'."""
        # Who never reached Kafka takes no entity from others.
        await context.connections.reach_kafka()
        members = await context.ledger_client.heartbeat(key, context.client_id, HEARTBEAT_LIFETIME)
        if time.monotonic() >= self._look_again_at:
            self._look_again_at = time.monotonic() + LOOK_FOR_ENTITIES
            await context.descriptions.catch_up()
            descriptions = await context.descriptions.all()
            self._paths = [
                path
                for description in descriptions
                if description.status is not EntityStatus.DELETING
                for path in _paths_of(description)
            ]
            for description in descriptions:
                home = is_home(EntityPath(description.name).key, context.client_id, members)
                ours = description.retiring_at is not None or isinstance(description, SubscriptionDescription)
                if home and description.status is EntityStatus.DELETING and ours:
                    # Whoever deleted it because nobody used it did not come to the end; or it would be in its topic's way.
                    await context.lifecycle.delete(description)
        mine = {path.key: path for path in self._paths if is_home(path.key, context.client_id, members)}
        for entity, task in list(self._tasks.items()):
            if entity not in mine:
                task.cancel()
            if task.done():
                del self._tasks[entity]
        for entity, path in mine.items():
            if entity not in self._tasks:
                self._tasks[entity] = asyncio.create_task(
                    self._look_after(EntityMaintainer(context, path), Forwarder(context))
                )

    async def _look_after(self, maintainer: EntityMaintainer, forwarder: Forwarder) -> None:
        """Tend one entity until it is gone; one that cannot be tended keeps nobody else waiting."""
        try:
            while True:
                try:
                    async with self._room:
                        entity = await maintainer.tend()
                    await forwarder.forward(entity, TICK)
                    continue
                except MessagingEntityNotFoundError:
                    return
                except ServiceBusError as error:
                    LOGGER.warning("upkeep_entity entity=%s error=%s", maintainer.path, error)
                except Exception:
                    LOGGER.exception("upkeep_entity entity=%s", maintainer.path)
                await asyncio.sleep(TICK)
        finally:
            await uninterrupted(forwarder.close())


async def serve(settings: Settings) -> None:
    """Tend a namespace until SIGINT or SIGTERM.

    Args:
        settings: Where the namespace lives.

    Raises:
        UnsuitableRedisError: Redis is none that kafkabus can use.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await Upkeep(settings).run(stop)


async def _or_stopped(stopping: asyncio.Future[Any], work: Coroutine[Any, Any, None]) -> None:
    """Work, but no longer than until told to stop: it may be waiting for Redis."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([stopping, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        while not task.done():
            # Told again where a library forgets that it was told.
            task.cancel()
            await asyncio.wait([task], timeout=TICK)


def is_home(entity: str, instance: str, members: list[str]) -> bool:
    """Whether an entity is this instance's: rendezvous hashing, so that few change hands with an instance."""
    return instance == max({*members, instance}, key=lambda member: (zlib.crc32(f"{member}/{entity}".encode()), member))


def _paths_of(description: EntityDescription) -> tuple[EntityPath, ...]:
    """An entity, and those of its dead-letter queues that it can have."""
    path = EntityPath(description.name)
    return (path,) if isinstance(description, TopicDescription) else path.all
