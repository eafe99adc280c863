"""The HTTP endpoint of a service: its health and its metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import Self

from kafkabus._runtime.http_connections import ConnectionLimits
from kafkabus._runtime.http_server import HttpServer

LONGEST = 30.0
"""For how long, in seconds, a connection stays open, however slow its client is; each serves one request."""
CONNECTIONS = 64
"""How many connections are open at a time; a further one ends the oldest, whose client probably hangs."""
BY_ADDRESS = 32
"""How many of them come from one address."""


class Metrics(Protocol):
    """The metrics of a service."""

    async def page(self, accept: str, *, compressed: bool) -> tuple[bytes, str]:
        """Return the metrics, and the type of their format.

        Args:
            accept: The formats that the client reads, as HTTP's header names them.
            compressed: Whether to compress them with gzip.
        """
        ...


class HealthEndpoint:
    """The endpoint, open from entering the context to leaving it.

    Args:
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one.
        reasons: Returns why the service is not ready, by what is missing; nothing if it is.
        metrics: The service's metrics.
        option: The option that gives the address, for errors.
        logger: The service's logger.

    Attributes:
        address: The address at which the endpoint listens, ``host:port``; known once it is open.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        reasons: Callable[[], Awaitable[Mapping[str, str]]],
        metrics: Metrics,
        option: str,
        logger: logging.Logger,
    ) -> None:
        self.address = ""
        self._reasons = reasons
        self._metrics = metrics
        self._option = option
        self._logger = logger
        routes = [
            Route("/livez", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._answer_metrics),
        ]
        self._server = HttpServer(
            Starlette(routes=routes),
            host,
            port,
            # A client that keeps its connection would be cut off in the middle of a later request.
            headers=[("connection", "close")],
            lifespan="off",
            limits=ConnectionLimits(total=CONNECTIONS, by_address=BY_ADDRESS, longest=LONGEST),
        )

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: The address cannot be listened on.
        """
        try:
            await self._server.__aenter__()
        except OSError as error:
            raise OSError(f"{self._option} {error}") from error
        self.address = self._server.address
        self._logger.info("http_listening address=%s", self.address)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._server.__aexit__(exc_type, exc, traceback)

    async def _alive(self, _: Request) -> Response:
        """Answer that the event loop turns, which the answer itself shows."""
        return JSONResponse({"alive": True})

    async def _ready(self, _: Request) -> Response:
        """Answer whether the service is ready, with the reasons if it is not."""
        reasons = dict(await self._reasons())
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _answer_metrics(self, request: Request) -> Response:
        """Answer with the metrics."""
        compressed = "gzip" in request.headers.get("accept-encoding", "")
        page, content_type = await self._metrics.page(request.headers.get("accept", ""), compressed=compressed)
        headers = {"content-type": content_type}
        return Response(page, headers=headers | {"content-encoding": "gzip"} if compressed else headers)
