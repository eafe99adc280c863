"""Serving the administration at an address."""

from __future__ import annotations

from ssl import SSLContext

from starlette.types import ASGIApp

from kafkabus._runtime.http_server import HttpServer

CONNECTIONS = 512
"""How many connections may be open; a request on a further one is answered with 503."""
IDLE_S = 120
"""For how long, in seconds, a connection is kept open for a next request, which clients keep longer than uvicorn does."""


def serve(app: ASGIApp, host: str, port: int, tls: SSLContext | None = None, *, share_port: bool = False) -> HttpServer:
    """Return a server of the application, which listens from entering its context to leaving it.

    It ends within seconds, also if the task that has entered the context is cancelled.

    Args:
        app: The application.
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one, which the server's ``port`` then tells.
        tls: The certificate to serve TLS with; None for plain HTTP.
        share_port: Whether other processes listen on the port as well.
    """
    return HttpServer(
        app,
        host,
        port,
        tls=tls,
        share_port=share_port,
        http="h11",
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_S,
    )
