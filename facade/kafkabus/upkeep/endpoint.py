"""The HTTP endpoint of an instance of the upkeep service: health and metrics."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import override

from kafkabus import __version__
from kafkabus._runtime.health_endpoint import HealthEndpoint
from kafkabus.upkeep.metrics import UpkeepMetrics
from kafkabus.upkeep.service import Upkeep

LOGGER = logging.getLogger("kafkabus.upkeep")


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The options of the endpoint.

    Attributes:
        host: The address or name to listen on; empty for all addresses.
        port: The port; 0 for a free one.
        most_entities: How many entities have separate metrics.
        entities: A regular expression that the names of these match as a whole; None: all.
    """

    host: str
    port: int
    most_entities: int
    entities: re.Pattern[str] | None = None


class Endpoint(HealthEndpoint):
    """The endpoint, open from entering the context to leaving it.

    Args:
        options: The address, and the entities that have separate metrics.
        upkeep: The instance of the service.
    """

    def __init__(self, options: EndpointOptions, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._own_metrics = UpkeepMetrics(
            upkeep, version=__version__, most_entities=options.most_entities, pattern=options.entities
        )
        super().__init__(
            options.host,
            options.port,
            reasons=self._why_not,
            metrics=self._own_metrics,
            option="--http",
            logger=LOGGER,
        )

    async def _why_not(self) -> Mapping[str, str]:
        return self._upkeep.health.reasons()

    @override
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(exc_type, exc, traceback)
        self._own_metrics.close()
