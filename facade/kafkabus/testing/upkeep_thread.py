"""Upkeep of a namespace in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from typing_extensions import Self

from kafkabus._core.settings import Settings
from kafkabus.upkeep.service import Upkeep


class UpkeepThread:
    """Tends a namespace within a ``with`` block.

    Args:
        settings: The namespace.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="kafkabus-upkeep", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        async def tend() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._started.set()
            await Upkeep(self._settings).run(self._stop)

        asyncio.run(tend())
