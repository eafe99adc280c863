"""Serving the administration at an address."""

from __future__ import annotations

from ssl import SSLContext

from starlette.types import ASGIApp

from kafkabus._runtime.http_connections import ConnectionLimits, RequestLimit
from kafkabus._runtime.http_server import HttpServer
from kafkabus.gateway.administration.app import is_for_health

REQUESTS = 512
"""How many requests are served at a time; a further one is answered with 503, unless it is for the health."""
BY_ADDRESS = 256
"""How many of them come from one address."""
LIMITS = ConnectionLimits(total=REQUESTS + 64, by_address=BY_ADDRESS + 32)
"""Bounds of the connections: some more than requests, so that the health is answered also then."""
IDLE_S = 120
"""For how long, in seconds, a connection is kept open for a next request, which clients keep longer than uvicorn does."""


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    tls: SSLContext | None = None,
    *,
    share_port: bool = False,
    limits: ConnectionLimits = LIMITS,
) -> HttpServer:
    """Return a server of the application, which listens from entering its context to leaving it.

    It ends within seconds, also if the task that has entered the context is cancelled.

    Args:
        app: The application.
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one, which the server's ``port`` then holds.
        tls: The certificate to serve TLS with; None for plain HTTP.
        share_port: Whether other processes listen on the port as well.
        limits: Bounds of the connections.
    """
    return HttpServer(
        RequestLimit(app, REQUESTS, BY_ADDRESS, is_for_health),
        host,
        port,
        tls=tls,
        share_port=share_port,
        limits=limits,
        lifespan="on",
        timeout_keep_alive=IDLE_S,
    )
