"""The load that one client of a gateway makes: its messages and answers that the gateway keeps, and bounds for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kafkabus.gateway.server.client_socket import ClientSocket
from kafkabus.gateway.server.commons import Commons

SCARCE_BYTES: Final = 1024 * 1024
"""How many bytes of a client may wait to be stored while those of all clients are too many."""
CARRIED_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of claimed messages may wait for a client that does not read; more are given back."""
CARRIED_SHARE: Final = 0.25
"""How much of the bytes that all clients may make the gateway keep these messages may be."""
RESUMED_WITHIN: Final = 0.001
"""How long, in seconds, a link that goes on keeps those back that waited as well, until the client read something."""


class ClientLoad:
    """The load of one client.

    Args:
        commons: The resources that all clients share.
        socket: The client's socket.
        on_change: Called when bytes that were claimed for the client have changed.

    Attributes:
        held_bytes: How many bytes of its messages wait to be stored.
        answer_bytes: How many bytes of answers to its requests wait until it takes them.
        largest_answer: The size of the largest answer about an entity since all that was sent was taken: it may be large.
        carried_bytes: How many bytes of messages were claimed for it, and not sent yet.
        claiming: How many of its links claim messages, or wait for some.
    """

    def __init__(self, commons: Commons[Any], socket: ClientSocket, on_change: Callable[[], None]) -> None:
        self.held_bytes = self.answer_bytes = self.largest_answer = self.carried_bytes = self.claiming = 0
        self._commons = commons
        self._socket = socket
        self._on_change = on_change
        self._carries_little = asyncio.Event()
        self._carries_little.set()
        self._resuming = asyncio.Lock()

    def hold(self, size: int) -> None:
        """Count bytes of the client that wait to be stored; as long as there are too many, no more are read."""
        self.held_bytes += size
        self._commons.held_bytes += size
        settings = self._commons.settings
        is_scarce = self._commons.held_bytes > settings.all_held_bytes
        most = min(settings.held_bytes, SCARCE_BYTES) if is_scarce else settings.held_bytes
        if self.held_bytes > most:
            self._socket.pause("held")
        elif self.held_bytes <= most // 2:
            self._socket.resume("held")

    def carry(self, size: int) -> None:
        """Count bytes of messages that were claimed for the client; negative: that were sent, or given back."""
        self.carried_bytes += size
        self._commons.carried_bytes += size
        if self.carried_bytes > CARRIED_BYTES // 2:
            self._carries_little.clear()
        else:
            self._carries_little.set()
        self._on_change()

    @property
    def carries_too_much(self) -> bool:
        """Whether more messages wait for the client, or for all, than may wait for clients that do not read."""
        most = CARRIED_SHARE * self._commons.settings.kept_bytes
        return self.carried_bytes > CARRIED_BYTES or self._commons.carried_bytes > most

    async def wait_for_turn(self, *, hurries: bool = False) -> None:
        """Wait until the client takes what is sent to it, and has little at hand; links that had to wait go on one by one.

        Args:
            hurries: Whether the client waits for an answer of the link.
        """
        socket = self._socket
        if hurries:
            await socket.wait_until_writable()
        elif not (socket.can_write.is_set() and self._carries_little.is_set()):
            await self._resuming.acquire()
            try:
                await self._carries_little.wait()
                await socket.wait_until_writable()
            finally:
                asyncio.get_running_loop().call_later(RESUMED_WITHIN, self._resuming.release)
