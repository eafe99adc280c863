# Generated from facade/kafkabus/_async/entities/upkeep_watch.py by tools/generate_blocking.py. Do not edit.
"""Whether an upkeep service looks after the namespace."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from kafkabus._core.exceptions import ServiceBusError
from kafkabus._ledger.keys import upkeep_key
from kafkabus._sync.connections import Connections

LOGGER = logging.getLogger("kafkabus")


UPKEEP_SILENCE = 10.0
"""After how many seconds without a sign of an upkeep service, which gives one a second, a client warns that there is none."""


HEARD_EVERY = 5.0
"""How often, in seconds, a client asks at the most whether an upkeep service was heard of."""


class UpkeepWatch:
    """Knows whether an upkeep service is heard of; warns, once for a client, if none is.

    Args:
        connections: The client's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._heard: list[int | None] = []
        self._look_at = 0.0
        self._last: int | None = None
        self._is_heard = False
        self._ask_at = 0.0

    def is_heard(self) -> bool:
        """Return whether an upkeep service gave a sign since this was asked before; False when it is asked first.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + HEARD_EVERY
            before, key = self._last, upkeep_key(self._connections.settings.namespace)
            self._last = self._connections.ledger_client.last_heartbeat(key)
            self._is_heard = None not in (before, self._last) and before != self._last
        return self._is_heard

    def look(self) -> None:
        """Warn, once, if no upkeep service looks after the namespace: a new user may not know that one has to."""
        heard = self._heard
        if len(heard) > 1 or time.monotonic() < self._look_at:
            return
        # Set before anything is awaited: of several tasks one looks.
        self._look_at = time.monotonic() + UPKEEP_SILENCE
        with suppress(ServiceBusError):
            heard.append(
                self._connections.ledger_client.last_heartbeat(upkeep_key(self._connections.settings.namespace))
            )
            if len(heard) > 1 and heard[0] == heard[1]:
                LOGGER.warning(
                    "no_upkeep namespace=%s: no upkeep looks after it, so that nothing is forwarded, and messages expire and "
                    "become due only in entities that a client receives from; run 'kafkabus serve'",
                    self._connections.settings.namespace,
                )
