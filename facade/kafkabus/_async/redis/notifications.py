"""The notifications and heartbeats of a client: it hears those of all ledgers, and gives those of all entities, at once.

Notifications that messages became available are hints, which may be lost: readers also ask their ledgers now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

from kafkabus._async.compat import Worker, sleep
from kafkabus._async.redis.ledger_client import LedgerClient
from kafkabus._async.redis.subscription import Subscription
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._redis.replies import text_of

LOGGER = logging.getLogger("kafkabus.reader")

WAIT = 0.25
"""Longest wait for a notification, in seconds, and so the longest delay until a new reader's are heard."""
RETRY = 0.5
"""How long, in seconds, nothing is heard after Redis could not be reached."""
HEARTBEAT = 2.0
"""How often, in seconds, a client says which entities it receives from."""
HEARTBEAT_LIFETIME = 6.0
"""How long, in seconds, a client without a heartbeat keeps its home partitions."""
USE_NOTED_EVERY = 1.0
"""How often, in seconds, a client that uses an entity without receiving from it says so, at most."""
USES_REMEMBERED = 10_000
"""Of how many entities a client remembers when it said so."""


class NotificationListener(Protocol):
    """The reader of an entity's logs. It is called in the worker's thread, or in its task.

    Attributes:
        entity: The entity.
        is_receiving: Whether any receiver waits, or did a moment ago.
    """

    entity: Entity

    @property
    def is_receiving(self) -> bool: ...

    def on_notification(self, partition: int) -> None:
        """Note that messages of a partition may have become available."""
        ...

    def on_lost_notifications(self) -> None:
        """Note that notifications may have been lost."""
        ...

    def on_clients(self, clients: list[str]) -> None:
        """Note which clients receive from the entity."""
        ...


class Notifications:
    """The notifications and heartbeats of one client: one connection and one worker, while there are listeners.

    Args:
        redis: A client of the Redis that holds the ledgers.
        ledger_client: The client's access to the ledgers.
        client_id: The client's id.
    """

    def __init__(self, redis: Redis, ledger_client: LedgerClient, client_id: str) -> None:
        self._redis = redis
        self._ledger_client = ledger_client
        self._client_id = client_id
        self._guard = threading.Lock()
        self._listeners: dict[str, set[NotificationListener]] = {}
        self._left: set[str] = set()
        self._worker: Worker | None = None
        self._heartbeat_at = 0.0
        self._used: dict[str, float] = {}

    def listen(self, listener: NotificationListener) -> None:
        """Hear the notifications of an entity's ledgers from now on."""
        with self._guard:
            self._listeners.setdefault(listener.entity.channel, set()).add(listener)
            self._left.discard(listener.entity.receivers_key)
            if self._worker is None:
                self._worker = Worker(self._work)

    def leave(self, listener: NotificationListener) -> None:
        """Hear them no more, and have other clients know that this one receives no more from the entity."""
        with self._guard:
            channel = listener.entity.channel
            left = self._listeners.get(channel, set())
            left.discard(listener)
            if not left and self._listeners.pop(channel, None) is not None:
                self._left.add(listener.entity.receivers_key)

    async def meet(self, entity: Entity) -> list[str]:
        """Give a heartbeat for an entity; return the clients that receive from it, this one among them.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        return await self._ledger_client.heartbeat(entity.receivers_key, self._client_id, HEARTBEAT_LIFETIME)

    async def note_use(self, entity: Entity) -> None:
        """Have an entity count as used now, by a client that need not receive; do nothing if Redis does not answer."""
        now = time.monotonic()
        with self._guard:
            listeners = list(self._listeners.get(entity.channel, ()))
            if now - self._used.get(entity.receivers_key, -USE_NOTED_EVERY) < USE_NOTED_EVERY:
                return
            if len(self._used) >= USES_REMEMBERED:
                self._used.clear()
            self._used[entity.receivers_key] = now
        # A client that receives gives heartbeats, and must keep its home partitions.
        if not any(listener.is_receiving for listener in listeners):
            await self._ledger_client.leave([entity.receivers_key], self._client_id, HEARTBEAT_LIFETIME)

    async def depart(self) -> None:
        """Have other clients know from which entities this one receives no more, so that they take its home partitions."""
        with self._guard:
            left, self._left = list(self._left), set()
        await self._ledger_client.leave(left, self._client_id, HEARTBEAT_LIFETIME)

    def end(self) -> None:
        """Hear nothing more."""
        with self._guard:
            self._listeners.clear()

    async def close(self) -> None:
        """Wait for the worker's end, which comes at once if the connection was closed."""
        self.end()
        worker = self._worker
        if worker is not None:
            await worker.join()

    async def _work(self) -> None:
        subscription = Subscription(self._redis)
        try:
            while True:
                try:
                    await self.depart()
                    if not self._goes_on():
                        return
                    await self._hear(subscription)
                except RedisError as error:
                    if not self._goes_on():
                        return
                    LOGGER.warning("notifications client=%s error=%s", self._client_id, error)
                    await sleep(RETRY)
                except (OSError, ValueError, AttributeError, TypeError):
                    # A connection that the client closes during the call fails in any of these ways.
                    if self._goes_on():
                        raise
                    return
                if time.monotonic() >= self._heartbeat_at:
                    self._heartbeat_at = time.monotonic() + HEARTBEAT
                    await self._give_heartbeats()
        finally:
            await subscription.close()

    def _goes_on(self) -> bool:
        """Return whether there are listeners; if not, the next listener begins another worker."""
        with self._guard:
            if not self._listeners:
                self._worker = None
            return bool(self._listeners)

    async def _hear(self, subscription: Subscription) -> None:
        """Subscribe to what is listened to now, and wait for a notification."""
        with self._guard:
            wanted = set(self._listeners)
        message = await subscription.hear(wanted, WAIT)
        while message is not None:
            self._pass_on(message)
            message = await subscription.hear(wanted, 0.0)

    def _pass_on(self, message: dict[str, Any]) -> None:
        with self._guard:
            listeners = list(self._listeners.get(text_of(message["channel"]), ()))
        kind = text_of(message["type"])
        for listener in listeners:
            if kind == "message":
                listener.on_notification(int(message["data"]))
            elif kind == "subscribe":
                # For the first time, or again after the connection was lost.
                listener.on_lost_notifications()

    async def _give_heartbeats(self) -> None:
        with self._guard:
            listeners = [
                listener for of_channel in self._listeners.values() for listener in of_channel if listener.is_receiving
            ]
        keys = [listener.entity.receivers_key for listener in listeners]
        if not keys:
            return
        try:
            met = await self._ledger_client.heartbeats(keys, self._client_id, HEARTBEAT_LIFETIME)
        except ServiceBusError as error:
            LOGGER.warning("heartbeat client=%s error=%s", self._client_id, error)
            return
        for listener, clients in zip(listeners, met, strict=True):
            listener.on_clients(clients)
