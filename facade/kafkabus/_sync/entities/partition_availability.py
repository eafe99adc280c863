# Generated from facade/kafkabus/_async/entities/partition_availability.py by tools/generate_blocking.py. Do not edit.
"""Partitions that take no records now, so that messages without a key go elsewhere and others are not begun in vain.

The client asks nothing while all is well: it notices a partition when a record for it was not stored.
"""

from __future__ import annotations

import time

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._sync.compat import sleep
from kafkabus._sync.connections import Connections

LOOK_TIME = 8.0
"""How long, in seconds, the client waits for a broker that is asked about partitions."""
LOOK_AGAIN = 1.0
"""How old, in seconds, an answer may be while a partition is unavailable."""
_NONE: frozenset[int] = frozenset()


class PartitionAvailability:
    """A client's knowledge of unavailable partitions.

    Args:
        connections: The client's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known: dict[str, tuple[float, frozenset[int]]] = {}

    def find_unavailable(self, entity: Entity) -> frozenset[int]:
        """Return an entity's partitions that are known to take no records; look again if that knowledge is not new."""
        known = self._known.get(entity.topic)
        if known is None:
            return _NONE
        if time.monotonic() - known[0] < LOOK_AGAIN:
            return known[1]
        return self.look(entity)

    def look(self, entity: Entity) -> frozenset[int]:
        """Return an entity's partitions that take no records, as a broker says now; takes up to some ``LOOK_TIME``."""
        _, before = self._known.get(entity.topic, (0.0, _NONE))
        # A caller that asks before the new answer is there gets the earlier one.
        self._known[entity.topic] = (time.monotonic(), before)
        unavailable = self._ask(entity.topic)
        if unavailable is None:
            return before
        if unavailable:
            self._known[entity.topic] = (time.monotonic(), unavailable)
        else:
            self._known.pop(entity.topic, None)
        return unavailable

    def _ask(self, topic: str) -> frozenset[int] | None:
        """Return the unavailable partitions; None if no broker answers."""
        try:
            described = self._connections.topics.describe(topic, LOOK_TIME)
        except ServiceBusError:
            return None
        return _NONE if described is None else frozenset(described.unavailable)

    def wait_until_available(self, entity: Entity, partitions: set[int], deadline: float) -> frozenset[int]:
        """Wait until partitions take records, or until a moment of the monotonic clock; return those that do not."""
        while True:
            unavailable = partitions & self.find_unavailable(entity)
            left = deadline - time.monotonic()
            if not unavailable or left <= 0:
                return frozenset(unavailable)
            sleep(min(LOOK_AGAIN, left))
