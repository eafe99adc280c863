"""The receivers of one client that wait for an entity's sessions, or for messages of sessions that they have.

One of them at a time reads on for all; the others sleep until they are woken. A session that may be available wakes the
receiver that has waited longest, and each receiver that gets one wakes two more while others may be available: many sessions
are taken within a few rounds, and a session that is taken by another client costs one look.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count

from kafkabus._async.compat import Bell

PASSED_ON = 2
"""How many receivers a receiver that got a session wakes."""


class Waiter:
    """A receiver that waits.

    Args:
        partition: The partition of its session; None: it waits for any session.
        place: Its place among all.

    Attributes:
        bell: Wakes it.
        partition: The partition of its session; None: it waits for any session.
        place: Its place among all.
        is_invited: Whether it shall look for an available session.
        has_left: Whether it waits no longer.
    """

    def __init__(self, partition: int | None, place: int) -> None:
        self.bell = Bell()
        self.partition = partition
        self.place = place
        self.is_invited = False
        self.has_left = False

    def __lt__(self, other: Waiter) -> bool:
        return self.place < other.place


class WaitingLine:
    """The receivers that wait, and the partitions that may have sessions for them; any thread may use it.

    Args:
        wake_reader: Wakes the receiver that reads on for all.
    """

    def __init__(self, wake_reader: Callable[[], None]) -> None:
        self._wake_reader = wake_reader
        self._guard = threading.Lock()
        self._places = count()
        # In the order of their places, as dictionaries keep it.
        self._waiters: dict[Waiter, None] = {}
        self._uninvited: list[Waiter] = []
        # By partition, the number of the news by which it may have an available session.
        self._free: dict[int, int] = {}
        self._news = count()

    def enter(self, partition: int | None) -> Waiter:
        """Begin to wait; see ``Waiter``."""
        with self._guard:
            waiter = Waiter(partition, next(self._places))
            self._waiters[waiter] = None
            if partition is None:
                heapq.heappush(self._uninvited, waiter)
                self._invite(1)
            return waiter

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer; another receiver reads on, or looks for a session, if this one was to do that."""
        with self._guard:
            waiter.has_left = True
            led = self._leads(waiter)
            del self._waiters[waiter]
            following = next(iter(self._waiters), None)
            if led and following is not None:
                following.bell.ring()
            if waiter.is_invited:
                self._invite(1)

    def leads(self, waiter: Waiter) -> bool:
        """Return whether it is this receiver that reads on for all."""
        with self._guard:
            return self._leads(waiter)

    def ring(self, partition: int | None) -> None:
        """Wake the receivers that have sessions of a partition; None: those of all."""
        with self._guard:
            for waiter in self._waiters:
                if waiter.partition is not None and partition in {None, waiter.partition}:
                    waiter.bell.ring()

    # Partitions with available sessions.

    def note_free(self, partition: int) -> None:
        """Note that a partition may have an available session."""
        with self._guard:
            self._free[partition] = next(self._news)
            self._invite(1)

    def note_taken(self, partition: int, seen: int | None = None) -> None:
        """Note that a partition has no available session.

        Args:
            partition: The partition.
            seen: The number of its news when its ledger was asked, so that later ones count; None: none are later.
        """
        with self._guard:
            if seen is None or self._free.get(partition) == seen:
                self._free.pop(partition, None)

    def free(self, waiter: Waiter) -> dict[int, int]:
        """Return the partitions that may have sessions, with the numbers of their news; without any, the receiver sleeps."""
        with self._guard:
            if not self._free and waiter.is_invited:
                waiter.is_invited = False
                heapq.heappush(self._uninvited, waiter)
            return dict(self._free)

    def pass_on(self) -> None:
        """Have other receivers look as well, after one has got a session."""
        with self._guard:
            self._invite(PASSED_ON)

    def _leads(self, waiter: Waiter) -> bool:
        return next(iter(self._waiters), None) is waiter

    def _invite(self, most: int) -> None:
        while self._free and most > 0 and self._uninvited:
            waiter = heapq.heappop(self._uninvited)
            if not waiter.has_left:
                waiter.is_invited = True
                waiter.bell.ring()
                if self._leads(waiter):
                    self._wake_reader()
                most -= 1
