"""The gateway: listens on ports, and serves the clients that connect."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from types import TracebackType

from typing_extensions import Self

from kafkabus.gateway.server.commons import Commons
from kafkabus.gateway.server.entity_nodes import EntityNodes
from kafkabus.gateway.server.namespace import ServedNamespace
from kafkabus.gateway.server.peer import Peer
from kafkabus.gateway.server.settings import GatewaySettings

HANDSHAKE_WITHIN = 10.0
"""How long, in seconds, a client may take to agree on TLS."""


class Gateway:
    """A gateway to a namespace.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.
        settings: Settings.

    Attributes:
        namespace: The namespace.
        commons: The resources that all clients share.
    """

    def __init__(self, connection_string: str, settings: GatewaySettings | None = None) -> None:
        self.namespace = ServedNamespace(connection_string)
        self.commons = Commons[Peer](settings or GatewaySettings())
        self._nodes = EntityNodes()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def listen(
        self,
        host: str | Sequence[str] | None,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        share_port: bool = False,
    ) -> int:
        """Listen on a port; return its number.

        Args:
            host: The addresses to listen at; None for all.
            port: The port; 0 for any that is free.
            tls: Encrypts the connections if it is given.
            share_port: Whether other processes listen on the port as well.

        Raises:
            OSError: The port cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Peer(self.commons, self.namespace, self._nodes).socket,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_WITHIN,
            reuse_port=share_port or None,
            backlog=1_024,
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, close all connections, and let go of the namespace."""
        self.commons.is_closing = True
        for server in self._servers:
            server.close()
        await asyncio.gather(*(client.close() for client in list(self.commons.clients)))
        self.commons.undelivered.report_lost()
        await self.namespace.close()
