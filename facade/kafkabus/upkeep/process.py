"""A process that is an instance of the service: its signals, its endpoint and its end."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from kafkabus._core.settings import Settings
from kafkabus._runtime.ending import stop_on_signals
from kafkabus._runtime.garbage import collect_rarely
from kafkabus._runtime.memory import limit_arenas
from kafkabus.upkeep.service import Upkeep

if TYPE_CHECKING:
    from kafkabus.upkeep.endpoint import EndpointOptions

LOGGER = logging.getLogger("kafkabus.upkeep")

END_WITHIN = 8.0
"""How many seconds a process takes at most to end when asked to, even if Kafka or Redis does not answer."""
LATE = "Kafka or Redis did not answer, so other instances take over after this one's last heartbeat"


async def serve(settings: Settings, endpoint: EndpointOptions | None = None) -> None:
    """Tend a namespace until SIGINT or SIGTERM; then hand it over to other instances, and end.

    If that takes longer than ``END_WITHIN`` seconds, as when Kafka or Redis does not answer, the process ends with status 0:
    other instances take over once this one's heartbeat is too old. A second signal ends the process at once.

    Args:
        settings: The namespace and its addresses.
        endpoint: The options of the HTTP endpoint; by default there is none.

    Raises:
        UnsuitableRedisError: kafkabus cannot use this Redis.
        NamespaceFormatError: The namespace is stored in a format that this version does not read.
        OSError: The endpoint cannot listen at its address.
    """
    limit_arenas()
    upkeep = Upkeep(settings)
    async with contextlib.AsyncExitStack() as open_ones:
        if endpoint is not None:
            from prometheus_client import disable_created_metrics

            from kafkabus.upkeep.endpoint import Endpoint

            # A series for each counter that says when it began, which nothing reads.
            disable_created_metrics()
            await open_ones.enter_async_context(Endpoint(endpoint, upkeep))
        collect_rarely()
        await upkeep.run(stop_on_signals(LOGGER, "upkeep", within=END_WITHIN, late=LATE))
