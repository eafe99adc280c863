"""The readers that a client has at a time: one for each entity that is received from, and idle ones let their consumers go."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass

from kafkabus._async.compat import Alarm, Lock
from kafkabus._async.receiving.reader import Reader, ReaderParts
from kafkabus._async.receiving.session_reader import SessionReader
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.reader")

REST_AFTER = 30.0
"""After how many seconds without a call a reader lets its consumer go."""
UNUSED_AWAKE = 4
"""How many readers without a receiver keep their consumers until then: one may be opened again in a moment."""


@dataclass(slots=True)
class _Known:
    """A reader, and when it was asked for last, on the monotonic clock."""

    entity: Entity
    reader: Reader
    used_at: float


class Readers:
    """The readers of one client.

    Args:
        parts: What they work with.
    """

    def __init__(self, parts: ReaderParts) -> None:
        self._parts = parts
        self._turn = Lock()
        self._guard = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._receivers: Counter[str] = Counter()
        self._alarm: Alarm | None = None
        self._closed = False

    async def of(self, entity: Entity) -> Reader:
        """The reader that all receivers of an entity share.

        Raises:
            ValueError: The client was closed.
            MessagingEntityNotFoundError: The entity's topic is another one than before.
        """
        await self._parts.recovery.check_topic(entity)
        known = self._known.get(entity.path.key)
        if known is None or known.entity.generation != entity.generation:
            known = await self._open(entity)
        known.reader.go_by(entity)
        known.used_at = time.monotonic()
        self._watch()
        return known.reader

    def make(self, entity: Entity, *, in_order: bool = False) -> Reader:
        """A reader of an entity that nobody shares; see ``Reader``."""
        if entity.has_sessions and not in_order:
            return SessionReader(self._parts, entity)
        return Reader(self._parts, entity, in_order=in_order)

    async def _open(self, entity: Entity) -> _Known:
        async with self._turn:
            known = self._known.get(entity.path.key)
            if known is not None and known.entity.generation == entity.generation:
                return known
            reader = self.make(entity)
            with self._guard:
                if self._closed:
                    raise ValueError("The handler has already been shutdown: its client was closed, get another")
                anew = self._known[entity.path.key] = _Known(entity, reader, time.monotonic())
        if known is not None:
            await known.reader.close()
        return anew

    def opened(self, path: EntityPath) -> None:
        """A receiver was opened."""
        with self._guard:
            self._receivers[path.key] += 1

    async def closed(self, path: EntityPath) -> None:
        """A receiver was closed; with the last one of an entity, its reader may let its consumer go."""
        with self._guard:
            self._receivers[path.key] -= 1
            if self._receivers[path.key] <= 0:
                del self._receivers[path.key]
            unused = [one for key, one in self._known.items() if one.reader.is_awake and key not in self._receivers]
        unused.sort(key=lambda one: one.used_at)
        for one in unused[:-UNUSED_AWAKE]:
            await self._rest(one)

    async def forget(self, path: EntityPath) -> None:
        """An entity is gone, and so is its reader; this may be found out by those who read with it."""
        known = self._known.pop(path.key, None)
        if known is not None:
            await known.reader.give_up()

    async def close(self) -> None:
        """Close all readers."""
        with self._guard:
            self._closed = True
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            await alarm.stop()
        for known in list(self._known.values()):
            await known.reader.close()

    def _watch(self) -> None:
        """Have readers looked at in a while."""
        with self._guard:
            if self._alarm is None and not self._closed:
                self._alarm = Alarm(REST_AFTER, self._look)

    async def _look(self) -> None:
        """Have readers rest that nobody used for a while, and look again while any is awake."""
        with self._guard:
            self._alarm = None
            known = list(self._known.values())
        for one in known:
            if one.reader.is_awake and time.monotonic() - one.used_at >= REST_AFTER:
                await self._rest(one)
        if any(one.reader.is_awake for one in known):
            self._watch()

    async def _rest(self, known: _Known) -> None:
        try:
            await known.reader.rest()
        except ServiceBusError as error:
            LOGGER.warning("rest entity=%s error=%s", known.entity.path, error)
