"""The time that a client of a gateway takes: to open its connection, and between two frames."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kafkabus.gateway.amqp.conditions import RESOURCE_LIMIT_EXCEEDED, AmqpError
from kafkabus.gateway.amqp.connection import Connection
from kafkabus.gateway.server.client_socket import ClientSocket
from kafkabus.gateway.server.outbox import Outbox

LOGGER = logging.getLogger("kafkabus.gateway")

OPENED_WITHIN: Final = 30.0
"""How long, in seconds, a client may take to open its connection."""
SHORTEST_HEARTBEAT: Final = 0.5
"""The shortest time between frames that keep a connection alive, in seconds."""


class Keepalive:
    """Keeps one client's connection alive, and closes it if the client is silent.

    Args:
        engine: The client's engine.
        socket: The client's socket.
        outbox: The way of the engine's output to the socket.
    """

    def __init__(self, engine: Connection, socket: ClientSocket, outbox: Outbox) -> None:
        self._engine = engine
        self._socket = socket
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def await_open(self) -> None:
        """Cut the client off if it does not open the connection in time."""
        self._timer = self._loop.call_later(OPENED_WITHIN, self._check_opened)

    def start(self) -> None:
        """Send heartbeats, and expect the client's: it has opened the connection."""
        self.stop()
        peer = self._engine.peer
        seconds = self._engine.limits.idle_ms / 1000
        if peer is not None and peer.idle_time_out:
            seconds = min(seconds, max(SHORTEST_HEARTBEAT, peer.idle_time_out / 3000))
        self._timer = self._loop.call_later(seconds, self._beat)

    def stop(self) -> None:
        """Expect nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_opened(self) -> None:
        if self._engine.peer is None:
            LOGGER.warning("not_opened peer=%s within=%g", self._socket.name, OPENED_WITHIN)
            self._socket.abort()

    def _beat(self) -> None:
        """Keep the connection alive, and see whether the client does."""
        silence = self._loop.time() - self._socket.last_read
        if silence > 2 * self._engine.limits.idle_ms / 1000 and not self._socket.pauses:
            LOGGER.warning("silent peer=%s for=%.0f", self._socket.name, silence)
            why = f"nothing was heard for {silence:.0f} s: the connection is closed"
            self._engine.close(AmqpError(RESOURCE_LIMIT_EXCEEDED, why))
            self._outbox.flush()
            self._socket.close_in_time(is_answered=True)
            return
        self._engine.heartbeat()
        self._outbox.flush()
        self.start()
