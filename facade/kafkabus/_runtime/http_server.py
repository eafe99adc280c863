"""An HTTP server within a program: it leaves signals to the program, and does nothing while nothing is asked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from functools import partial
from ssl import SSLContext
from types import TracebackType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import Self, override

from kafkabus._runtime.http_connections import TLS_WITHIN, ConnectionLimits, HttpConnection, OpenConnections

GRACE = 1
"""For how long, in seconds, requests may go on when the server ends."""


class HttpServer:
    """An ASGI application at an address, served from entering the context to leaving it.

    Args:
        app: The application.
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one.
        tls: The certificate to serve TLS with; None for plain HTTP.
        share_port: Whether other processes listen on the port as well.
        limits: Bounds of the connections.
        **options: Options of uvicorn.

    Attributes:
        port: The port at which it listens; known once it is open.
        address: The address at which it listens, ``host:port``; known once it is open.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        tls: SSLContext | None = None,
        share_port: bool = False,
        limits: ConnectionLimits | None = None,
        **options: Any,
    ) -> None:
        self.port = port
        self._share_port = share_port
        self.address = ""
        self._host = host
        self._server = _Server(
            _Config(
                app,
                tls,
                access_log=False,
                date_header=False,
                http=partial(HttpConnection, connections=OpenConnections(limits or ConnectionLimits())),
                log_config=None,
                loop="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
                ws="none",
                **options,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: The address cannot be listened on; the error names it and the remedy.
        """
        listening = self._listen()
        host, self.port, *_ = listening.getsockname()
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._serving = asyncio.create_task(self._server.serve([listening]))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.end()
        if self._serving is not None:
            await asyncio.wait([self._serving])

    def _listen(self) -> socket.socket:
        host, port = self._host, self.port
        try:
            if not host and socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=self._share_port
                )
            family, *_, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            return socket.create_server(address[:2], family=family, reuse_port=self._share_port)
        except OSError as error:
            raise OSError(
                f"{host}:{port}: cannot listen there: {error.strerror}; choose another address or port"
            ) from error


class _Config(uvicorn.Config):
    """Options, and a context of TLS instead of the files that it is made of."""

    def __init__(self, app: ASGIApp, tls: SSLContext | None, **options: Any) -> None:
        super().__init__(app, **options)
        self._tls = tls

    @override
    def load(self) -> None:
        super().load()
        self.ssl = self._tls


class _Server(uvicorn.Server):
    """A server that another program runs."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Accept no more connections, and end."""
        self.should_exit = True
        self._ended.set()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to the program."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve; the original leaves a client a minute to agree on TLS."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            self._ended.set()
            return
        loop, config = asyncio.get_running_loop(), self.config
        within = None if config.ssl is None else TLS_WITHIN
        self.servers = [
            await loop.create_server(
                self._connection, sock=listening, ssl=config.ssl, ssl_handshake_timeout=within, backlog=config.backlog
            )
            for listening in sockets or ()
        ]
        self.started = True

    def _connection(self) -> asyncio.Protocol:
        # uvicorn's annotation leaves out what it calls the class with.
        create: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = create(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and close what is still open: the original leaves a connection whose client does not end its request."""
        for connection in list(self.server_state.connections):
            # A client that keeps an idle connection does not answer the end of TLS, for which the original would wait.
            if isinstance(connection, HttpConnection) and connection.is_idle:
                connection.transport.abort()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # Transports close in the loop's next round.

    @override
    async def main_loop(self) -> None:
        """Wait for the end; the original looks ten times a second, and then sets the headers of all answers."""
        self.server_state.default_headers = self.config.encoded_headers
        await self._ended.wait()
