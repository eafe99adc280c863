"""The service: it finds the entities, takes those that are this instance's, and tends them."""

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
"""How often, in seconds, each entity is tended."""
LOOK_FOR_ENTITIES = 2.0
"""How often, in seconds, new and deleted entities are noticed."""
HEARTBEAT_LIFETIME = 5.0
"""After how many seconds without a heartbeat an instance's entities go to other instances."""
AT_ONCE = 16
"""How many entities are tended at a time."""


class Upkeep:
    """One instance of the service, for one namespace.

    Args:
        settings: The namespace and its addresses.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._paths: list[EntityPath] = []
        self._look_again_at = 0.0
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Tend the namespace until told to stop; wait for servers that cannot be reached.

        Raises:
            UnsuitableRedisError: kafkabus cannot use this Redis, and waiting does not change that.
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
        """Stop tending entities."""
        left = {task for task in self._tasks.values() if not task.done()}
        while left:
            for task in left:
                task.cancel()
            # Cancelled again, as a library may forget that it was cancelled.
            _, left = await asyncio.wait(left, timeout=TICK)

    async def _share_out(self, context: ClientContext, key: str) -> None:
        """Begin to tend this instance's entities, and leave those of other instances."""
        # An instance that never reached Kafka takes no entity from others.
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
                    # An instance did not finish deleting an unused entity; or a subscription would be in its topic's way.
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
        """Tend one entity until it is gone; an entity that cannot be tended keeps no other one waiting."""
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
        settings: The namespace and its addresses.

    Raises:
        UnsuitableRedisError: kafkabus cannot use this Redis.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await Upkeep(settings).run(stop)


async def _or_stopped(stopping: asyncio.Future[Any], work: Coroutine[Any, Any, None]) -> None:
    """Do some work, but no longer than until told to stop: it may be waiting for Redis."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([stopping, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        while not task.done():
            # Cancelled again, as a library may forget that it was cancelled.
            task.cancel()
            await asyncio.wait([task], timeout=TICK)


def is_home(entity: str, instance: str, members: list[str]) -> bool:
    """Return whether an entity is this instance's, by rendezvous hashing: few entities move when an instance comes or goes."""
    return instance == max({*members, instance}, key=lambda member: (zlib.crc32(f"{member}/{entity}".encode()), member))


def _paths_of(description: EntityDescription) -> tuple[EntityPath, ...]:
    """Return the path of an entity, and those of the dead-letter queues that it can have."""
    path = EntityPath(description.name)
    return (path,) if isinstance(description, TopicDescription) else path.all
