# Generated from facade/kafkabus/_async/receiving/readers.py by tools/generate_blocking.py. Do not edit.
"""The readers of a client: one for each entity that it receives from. Unused readers rest."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._sync.compat import Alarm, Lock
from kafkabus._sync.entities.catalog import DESCRIPTION_AGE
from kafkabus._sync.receiving.log_reader import LogReader, ReaderParts
from kafkabus._sync.receiving.message_reader import MessageReader
from kafkabus._sync.receiving.session_reader import SessionReader
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.reader")

REST_AFTER = 30.0
"""After how many seconds without a call a reader rests."""
LOOK_EVERY = DESCRIPTION_AGE - 1
"""How often, in seconds, to look what became of entities for whose messages receivers wait."""
UNUSED_AWAKE = 4
"""How many readers without a receiver stay awake until then: a receiver may be opened again in a moment."""

Reader = MessageReader | SessionReader
"""A reader of an entity, for all receivers of a client."""


@dataclass(slots=True)
class _Known:
    """A reader, and when it was used last, on the monotonic clock."""

    entity: Entity
    reader: Reader
    used_at: float


class Readers:
    """The readers of one client.

    Args:
        parts: The parts of the client.
    """

    def __init__(self, parts: ReaderParts) -> None:
        self._parts = parts
        self._turn = Lock()
        self._guard = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._receivers: Counter[str] = Counter()
        self._alarm = Alarm(self._look)
        self._closed = False

    def reader_of(self, entity: Entity) -> Reader:
        """Return the reader that all receivers of an entity share.

        Raises:
            ValueError: The client was closed.
            MessagingEntityNotFoundError: The entity's topic is another one than before.
        """
        before = self._known.get(entity.path.key)
        self._parts.recovery.check_topic(entity, calm=before is not None and before.reader.log.is_calm)
        known = self._known.get(entity.path.key)
        if known is None or known.entity.generation != entity.generation:
            known = self._open(entity)
        known.reader.log.follow(entity)
        known.used_at = time.monotonic()
        self._alarm.set(LOOK_EVERY)
        return known.reader

    def messages_of(self, entity: Entity) -> MessageReader:
        """Return the reader of an entity without sessions; see ``reader_of``.

        Raises:
            ServiceBusError: The entity has sessions.
        """
        reader = self.reader_of(entity)
        if not isinstance(reader, MessageReader):
            raise needs_session(entity, entity.path)
        return reader

    def sessions_of(self, entity: Entity) -> SessionReader:
        """Return the reader of an entity with sessions; see ``reader_of``.

        Raises:
            ServiceBusError: The entity has no sessions.
        """
        reader = self.reader_of(entity)
        if not isinstance(reader, SessionReader):
            raise ServiceBusError(
                ErrorText(
                    f"{entity.kind} {entity.path} has no sessions: receive from it ",
                    Term("receive_without_session", "without session_id", str(entity.path)),
                    ", or create ",
                    Term("create_with_sessions", "it with requires_session=True"),
                )
            )
        return reader

    def in_order(self, entity: Entity) -> MessageReader:
        """Return a reader of an entity, with sessions or without, that is not shared, and that keeps the order of each log."""
        return MessageReader(self._parts, entity, in_order=True)

    def _open(self, entity: Entity) -> _Known:
        with self._turn:
            known = self._known.get(entity.path.key)
            if known is not None and known.entity.generation == entity.generation:
                return known
            reader = SessionReader(self._parts, entity) if entity.has_sessions else MessageReader(self._parts, entity)
            with self._guard:
                if self._closed:
                    raise ValueError("The handler has already been shutdown: its client was closed, get another")
                anew = self._known[entity.path.key] = _Known(entity, reader, time.monotonic())
        if known is not None:
            if known.entity.holder_id == entity.holder_id:
                # Other ledgers of the same entity: receivers get the messages that the old ones have settled.
                known.reader.log.undelivered.hand_over(reader.log.undelivered)
            known.reader.log.close()
        return anew

    def on_open(self, path: EntityPath) -> None:
        """Note that a receiver was opened."""
        with self._guard:
            self._receivers[path.key] += 1

    def on_close(self, path: EntityPath) -> None:
        """Note that a receiver was closed; after the last one of an entity, its reader may rest."""
        known = self._known.get(path.key)
        if known is not None:
            known.reader.log.wake()
        with self._guard:
            self._receivers[path.key] -= 1
            if self._receivers[path.key] <= 0:
                del self._receivers[path.key]
            unused = [
                entry for key, entry in self._known.items() if entry.reader.log.is_awake and key not in self._receivers
            ]
        unused.sort(key=lambda entry: entry.used_at)
        for entry in unused[:-UNUSED_AWAKE]:
            self._rest(entry)

    def forget(self, path: EntityPath) -> None:
        """Give up the reader of an entity that is gone; the caller may be a receiver that uses it."""
        known = self._known.pop(path.key, None)
        if known is not None:
            known.reader.log.give_up()

    def close(self) -> None:
        """Close all readers."""
        with self._guard:
            self._closed = True
        self._alarm.stop()
        for known in list(self._known.values()):
            known.reader.log.close()

    def _look(self) -> None:
        """Have readers rest that were not used for a while, and receivers that wait know of changes; look again later."""
        awake = [entry for entry in list(self._known.values()) if entry.reader.log.is_awake]
        for entry in awake:
            if entry.reader.log.is_receiving:
                entry.used_at = time.monotonic()
            elif time.monotonic() - entry.used_at >= REST_AFTER:
                self._rest(entry)
        self._look_at_entities([entry.reader.log for entry in awake if entry.reader.log.is_receiving])
        if any(entry.reader.log.is_awake for entry in awake):
            self._alarm.set(LOOK_EVERY)

    def _look_at_entities(self, logs: Sequence[LogReader]) -> None:
        """Wake receivers that wait for messages of entities that are not as they were."""
        catalog = self._parts.catalog
        try:
            catalog.keep_up_to_date([log.entity for log in logs])
        except ServiceBusError as error:
            LOGGER.warning("look entities=%d error=%s", len(logs), error)
        for log in logs:
            if not catalog.goes_by(log.entity):
                log.wake()

    def _rest(self, known: _Known) -> None:
        try:
            known.reader.log.rest()
        except ServiceBusError as error:
            LOGGER.warning("rest entity=%s error=%s", known.entity.path, error)


def needs_session(entity: Entity, path: EntityPath) -> ServiceBusError:
    """Return the error for a receiver without a session of an entity with sessions, whose path is as the caller wrote it."""
    return ServiceBusError(
        ErrorText(
            f"{entity.kind} {path} has sessions: receive from it ",
            Term("receive_from_session", "with session_id, which may be NEXT_AVAILABLE_SESSION", str(path)),
        )
    )
