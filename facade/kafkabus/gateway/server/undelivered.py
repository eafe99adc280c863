"""Messages that were received and deleted, until the operating system has them, or another client gets them."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus.aio import ServiceBusReceiver

LOGGER = logging.getLogger("kafkabus.gateway")

_Place = tuple[str, "str | None"]


@dataclass(frozen=True)
class Deleted:
    """Messages that were deleted for a client.

    Attributes:
        entity: The queue or subscription; see ``place_of``.
        session: The session; None without one.
        payloads: The messages, as they are sent.
    """

    entity: str
    session: str | None
    payloads: list[bytes] = field(repr=False)


def place_of(entity: Entity) -> str:
    """Return what names a queue or subscription, and no other one that has the name later."""
    return f"{entity.path.key} {entity.generation}"


async def delete(
    receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
) -> tuple[list[bool], ServiceBusError | None]:
    """Complete messages that a client receives and deletes.

    Returns:
        Of each, whether the client gets it, because it may be completed: rather twice than never. And why it is unknown whether
        they were, if it is.
    """
    try:
        await receiver.complete_messages(messages)
    except (MessageLockLostError, SessionLockLostError):
        # Those whose locks were lost come again; the others were completed.
        return [receipt_of(message).is_settled for message in messages], None
    except ServiceBusError as error:
        return [True] * len(messages), error
    return [True] * len(messages), None


class Undelivered:
    """Keeps those that no client got for the next one that receives and deletes there, as long as the process runs."""

    def __init__(self) -> None:
        self._payloads: dict[_Place, deque[bytes]] = {}
        self._watchers: defaultdict[_Place, set[Callable[[], None]]] = defaultdict(set)

    def put(self, deleted: Deleted) -> None:
        """Keep messages, and notify the watchers of the place; or one of those that wait for any session of the entity."""
        if deleted.payloads:
            place = deleted.entity, deleted.session
            self._payloads.setdefault(place, deque()).extend(deleted.payloads)
            watchers = list(self._watchers.get(place, ()))
            for watcher in watchers:
                watcher()
            if not watchers:
                self.tell_of_session(*place)

    def put_all(self, deleted: Iterable[Deleted]) -> None:
        """Keep messages, each as ``put`` does."""
        for messages in deleted:
            self.put(messages)

    def tell_of_session(self, entity: str, session: str | None) -> None:
        """Notify a watcher of any session of an entity, if messages of this one are kept, which may be free now."""
        if session is not None and (entity, session) in self._payloads:
            for watcher in list(self._watchers.get((entity, None), ()))[:1]:
                watcher()

    def watch(self, entity: str, session: str | None, watcher: Callable[[], None]) -> None:
        """Call something whenever messages of a place are kept.

        Args:
            entity: The queue or subscription.
            session: The session; None without one, or for any session of an entity that has some.
            watcher: The function to call.
        """
        self._watchers[entity, session].add(watcher)

    def unwatch(self, entity: str, session: str | None, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        watchers = self._watchers[entity, session]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[entity, session]

    def sessions(self, entity: str) -> list[str]:
        """Return the sessions of an entity of which messages are kept."""
        return [session for where, session in self._payloads if where == entity and session is not None]

    def put_last(self, entity: str, session: str) -> None:
        """Have a session be the last of those of which messages are kept: it is locked, and the others go first."""
        kept = self._payloads.pop((entity, session), None)
        if kept is not None:
            self._payloads[entity, session] = kept

    def first(self, entity: str, session: str | None) -> bytes | None:
        """Return the first message that is kept; None if none is kept."""
        kept = self._payloads.get((entity, session))
        return kept[0] if kept else None

    def take_first(self, entity: str, session: str | None) -> Deleted:
        """Keep the first message no longer, and return it: it is sent."""
        kept = self._payloads[entity, session]
        payload = kept.popleft()
        if not kept:
            del self._payloads[entity, session]
        return Deleted(entity, session, [payload])

    def report_lost(self) -> None:
        """Log the messages that no client gets any more."""
        for (entity, session), kept in self._payloads.items():
            LOGGER.error(
                "lost_by_receive_and_delete entity=%s session=%r count=%d: deleted, and sent to no client",
                entity,
                session,
                len(kept),
            )
        self._payloads.clear()


class OnTheWay:
    """Messages that were deleted and written to a socket, as long as the operating system does not have them."""

    def __init__(self) -> None:
        self._written = 0
        self._deleted: deque[tuple[int, list[Deleted]]] = deque()

    def __len__(self) -> int:
        return len(self._deleted)

    def note(self, size: int, deleted: list[Deleted]) -> None:
        """Note bytes that were written, and the messages among them."""
        self._written += size
        if deleted:
            self._deleted.append((self._written, deleted))

    def note_left(self, size: int) -> None:
        """Note how many of the bytes the operating system does not have yet."""
        while self._deleted and self._deleted[0][0] <= self._written - size:
            self._deleted.popleft()

    def take(self) -> list[Deleted]:
        """Return the messages that the operating system may not have, and forget them."""
        taken = [messages for _, written in self._deleted for messages in written]
        self._deleted.clear()
        return taken
