"""The work of an instance that is under way: if some of it takes long, the place in the code at which it waits is logged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOGGER = logging.getLogger("kafkabus.upkeep")

LONG = 60.0
"""After how many seconds some work counts as stuck. A call is retried for that long if a server is down, and then logged."""
LOOK_EVERY = 30.0
"""How often, in seconds, to look for such work."""


class Progress:
    """The work of an instance that is under way."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[float, asyncio.Task[Any] | None]] = {}

    @contextmanager
    def note_work(self, what: str) -> Generator[None]:
        """Note that the current task does some work in the block.

        Args:
            what: Words for the work, of which no other is under way at the time.
        """
        self._under_way[what] = time.monotonic(), asyncio.current_task()
        try:
            yield
        finally:
            del self._under_way[what]

    async def look(self) -> None:
        """Log work that is under way for longer than ``LONG``."""
        now = time.monotonic()
        for what, (since, task) in self._under_way.items():
            if now - since >= LONG and task is not None:
                LOGGER.warning("upkeep_stuck work=%r seconds=%.0f at=%s", what, now - since, _place_of(task))


def _place_of(task: asyncio.Task[Any]) -> str:
    """Return the places in the code at which the coroutines of a task wait, the innermost last."""
    places: list[str] = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        waiting = waiting.cr_await
    return " > ".join(places)
