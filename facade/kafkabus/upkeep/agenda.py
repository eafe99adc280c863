"""When to tend which entity next."""

from __future__ import annotations

import heapq
import time

from kafkabus._async.compat import Bell


class Agenda:
    """The entities to tend, each at the earliest of the times that were asked for.

    Attributes:
        due_at: The time for which the entity was asked for that ``next`` returned last, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.due_at = 0.0
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._sooner = Bell()

    def wake(self, entity: str, seconds: float = 0.0) -> None:
        """Have an entity tended in some seconds, unless that happens earlier anyway.

        Args:
            entity: The key of the entity's path.
            seconds: The time from now on.
        """
        moment = time.monotonic() + seconds
        if moment < self._due.get(entity, float("inf")):
            self._due[entity] = moment
            heapq.heappush(self._heap, (moment, entity))
            self._sooner.ring()

    def drop(self, entity: str) -> None:
        """Have an entity not tended any more."""
        self._due.pop(entity, None)

    async def next(self) -> str:
        """Wait until an entity is to be tended, take it out, and return its key."""
        while True:
            while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
                heapq.heappop(self._heap)
            wait = self._heap[0][0] - time.monotonic() if self._heap else None
            if wait is not None and wait <= 0:
                self.due_at, entity = heapq.heappop(self._heap)
                del self._due[entity]
                return entity
            await self._sooner.wait(wait)
