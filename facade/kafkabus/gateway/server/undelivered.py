"""Messages that were received and deleted, and whose client's connection was lost before they were sent."""

from __future__ import annotations

import logging
from collections import deque

LOGGER = logging.getLogger("kafkabus.gateway")


class Undelivered:
    """Keeps such messages for the next client that receives and deletes from the same place, as long as the process runs."""

    def __init__(self) -> None:
        self._payloads: dict[tuple[str, str | None], deque[bytes]] = {}

    def put(self, entity: str, session: str | None, payloads: list[bytes]) -> None:
        """Keep messages.

        Args:
            entity: The key of the queue or subscription.
            session: The session; None without one.
            payloads: The messages, as they are sent.
        """
        if payloads:
            self._payloads.setdefault((entity, session), deque()).extend(payloads)

    def first(self, entity: str, session: str | None) -> bytes | None:
        """Return the first message that is kept; None if none is kept."""
        kept = self._payloads.get((entity, session))
        return kept[0] if kept else None

    def drop_first(self, entity: str, session: str | None) -> None:
        """Keep the first message no longer: it was sent."""
        kept = self._payloads[entity, session]
        kept.popleft()
        if not kept:
            del self._payloads[entity, session]

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
