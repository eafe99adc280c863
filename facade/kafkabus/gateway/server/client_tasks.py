"""The tasks of one client of a gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kafkabus.gateway.server.client_socket import ClientSocket

LOGGER = logging.getLogger("kafkabus.gateway")


class ClientTasks:
    """The tasks of one client.

    Args:
        socket: The client's socket.
    """

    def __init__(self, socket: ClientSocket) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._requested: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()

    @property
    def is_any_requested(self) -> bool:
        """Whether a task is under way whose end the client waits for."""
        return bool(self._requested)

    def start(self, work: Coroutine[Any, Any, None], *, is_requested: bool = False) -> asyncio.Task[None]:
        """Do some work in the background; its errors are logged.

        Args:
            work: The work.
            is_requested: Whether the client waits for its end, so that the connection is not closed before.
        """
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        if is_requested:
            self._requested.add(task)
            task.add_done_callback(self._on_requested_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("unexpected error peer=%s", self._socket.name, exc_info=error)

    def _on_requested_end(self, task: asyncio.Task[None]) -> None:
        self._requested.discard(task)
        self.note_change()

    async def wait_for_requested(self) -> None:
        """Wait for the tasks whose end the client waits for."""
        if self._requested:
            await asyncio.wait(self._requested)

    def note_change(self) -> None:
        """Have ``wait_while`` look at its condition again."""
        self._change.set()

    async def wait_while(self, condition: Callable[[], object]) -> None:
        """Wait as long as a condition holds and the connection is not lost.

        Args:
            condition: Looked at after each ``note_change``, and after each end of a task that the client waits for.
        """
        while condition() and not self._socket.is_lost:
            self._change.clear()
            await self._change.wait()
