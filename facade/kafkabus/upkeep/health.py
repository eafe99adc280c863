"""Whether an instance of the upkeep service is ready: what it last reached, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal

from kafkabus.exceptions import ServiceBusError

READY_WITHIN = 10.0
"""How long, in seconds, a success counts; each part is tried every few seconds."""

Part = Literal["kafka", "redis", "descriptions"]
_DONE: dict[Part, str] = {
    "kafka": "no broker answered",
    "redis": "no heartbeat reached Redis",
    "descriptions": "the entities' descriptions were not read",
}
"""The parts of a service that is ready, and the failure of each in words."""


class Health:
    """The last success and the last failure of each part of a service.

    A failure that passes within ``READY_WITHIN`` seconds makes a service not ready only if it never was.

    Args:
        clock: The time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._succeeded_at: dict[Part, float] = {}
        self._errors: dict[Part, str] = {}
        self._is_ending = False

    def end(self) -> None:
        """Note that the service ends: it is not ready any more."""
        self._is_ending = True

    def on_success(self, part: Part) -> None:
        """Note that a part was done."""
        self._succeeded_at[part] = self._clock()
        self._errors.pop(part, None)

    @contextmanager
    def observe_part(self, part: Part) -> Generator[None, None, None]:
        """Note the success of a block, or its error.

        Raises:
            ServiceBusError: The block raised it.
        """
        try:
            yield
        except ServiceBusError as error:
            self._errors[part] = str(error)
            raise
        self.on_success(part)

    def reasons(self) -> dict[str, str]:
        """Return why the service is not ready, by part; nothing if it is ready."""
        if self._is_ending:
            return {"service": "it was asked to end"}
        now = self._clock()
        return {
            part: self._reason(part, now)
            for part in _DONE
            if now - self._succeeded_at.get(part, float("-inf")) > READY_WITHIN
        }

    def _reason(self, part: Part, now: float) -> str:
        at, error = self._succeeded_at.get(part), self._errors.get(part)
        since = "since the start" if at is None else f"for {now - at:.0f} s"
        return f"{_DONE[part]} {since}" + (f": {error}" if error else "")
