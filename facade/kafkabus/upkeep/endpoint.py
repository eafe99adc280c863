"""The HTTP endpoint of an instance of the upkeep service: health and metrics."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import Self, override
from uvicorn.protocols.http.h11_impl import H11Protocol

from kafkabus import __version__
from kafkabus._runtime.http_server import HttpServer
from kafkabus.upkeep.metrics import UpkeepMetrics
from kafkabus.upkeep.service import Upkeep

LOGGER = logging.getLogger("kafkabus.upkeep")

LONGEST = 30.0
"""For how long, in seconds, a connection stays open, however slow its client is; each serves one request."""
CONNECTIONS = 64
"""How many connections are open at a time; a further one ends the oldest, whose client probably hangs."""


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The options of the endpoint.

    Attributes:
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one.
        most_entities: How many entities have metrics of their own.
        entities: A regular expression that the names of these match as a whole; None: all.
    """

    host: str
    port: int
    most_entities: int
    entities: re.Pattern[str] | None = None


class Endpoint:
    """The endpoint, open from entering the context to leaving it.

    Args:
        options: The address, and the entities that have metrics of their own.
        upkeep: The instance of the service.

    Attributes:
        address: The address at which the endpoint listens, ``host:port``; known once it is open.
    """

    def __init__(self, options: EndpointOptions, upkeep: Upkeep) -> None:
        self.address = ""
        self._options = options
        self._upkeep = upkeep
        self._metrics = UpkeepMetrics(
            upkeep, version=__version__, most_entities=options.most_entities, pattern=options.entities
        )
        routes = [
            Route("/livez", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._measured),
        ]
        self._server = HttpServer(
            Starlette(routes=routes),
            options.host,
            options.port,
            # A client that keeps its connection would be cut off in the middle of a later request.
            headers=[("connection", "close")],
            http=_Connection,
            lifespan="off",
        )

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: The address cannot be listened on.
        """
        try:
            await self._server.__aenter__()
        except OSError as error:
            raise OSError(f"--http {error}") from error
        self.address = self._server.address
        LOGGER.info("http_listening address=%s", self.address)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._server.__aexit__(exc_type, exc, traceback)
        self._metrics.close()

    async def _alive(self, _: Request) -> Response:
        """Answer that the event loop turns, which the answer itself shows."""
        return JSONResponse({"alive": True})

    async def _ready(self, _: Request) -> Response:
        """Answer whether the service is ready, with the reasons if it is not."""
        reasons = self._upkeep.health.reasons()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _measured(self, request: Request) -> Response:
        """Answer with the metrics."""
        compressed = "gzip" in request.headers.get("accept-encoding", "")
        page, content_type = await self._metrics.page(request.headers.get("accept", ""), compressed=compressed)
        headers = {"content-type": content_type}
        return Response(page, headers=headers | {"content-encoding": "gzip"} if compressed else headers)


class _Connection(H11Protocol):
    """A connection that ends after a time, whatever its client does.

    Attributes:
        opened_at: When it was opened, on the event loop's clock.
    """

    opened_at = 0.0

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the original declares it
        """Begin to serve, and set the end."""
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self.loop.call_later(LONGEST, transport.abort)
        others: list[_Connection] = [one for one in self.connections if isinstance(one, _Connection)]
        if len(others) > CONNECTIONS:
            min(others, key=attrgetter("opened_at")).transport.abort()
