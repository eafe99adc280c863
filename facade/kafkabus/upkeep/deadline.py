"""When an entity is maintained next."""

from __future__ import annotations

import math
import time

RETRY_AFTER = 0.5
"""After how many seconds to maintain an entity again if something was not done for a reason that passes."""
READY_BEFORE = 2.0
"""How long before a message is due, in seconds, to check that the brokers' clock is known."""


class Deadline:
    """The time at which an entity is maintained next, even if no ledger or log reports a change before.

    Attributes:
        at: The time, on the monotonic clock.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0

    def reset(self, at: float = math.inf) -> None:
        """Set another time; by default, wait for a report."""
        self.at = at

    def advance(self, at: float) -> None:
        """Bring the deadline forward to a time on the monotonic clock, unless it is earlier already."""
        self.at = min(self.at, at)

    def advance_within(self, seconds: float) -> None:
        """Bring the deadline forward to some seconds from now, unless it is earlier already."""
        self.advance(time.monotonic() + seconds)

    def advance_to_event(self, seconds: float) -> None:
        """Bring the deadline forward to an event in some seconds, and before it, to know the brokers' clock by then."""
        self.advance_within(seconds - READY_BEFORE if seconds > 2 * READY_BEFORE else seconds)
