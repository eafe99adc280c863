"""A process that is an instance of the service: its signals, its endpoint and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING

from kafkabus._core.settings import Settings
from kafkabus._runtime.arenas import limit_arenas
from kafkabus._runtime.garbage import collect_rarely
from kafkabus.upkeep.service import Upkeep

if TYPE_CHECKING:
    from kafkabus.upkeep.endpoint import EndpointOptions

LOGGER = logging.getLogger("kafkabus.upkeep")

END_WITHIN = 8.0
"""After how many seconds at most a process ends that was told to, also while Kafka or Redis does not answer."""


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
        await upkeep.run(_stop_on_signals())


def _stop_on_signals() -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; from then on the process ends, whatever it waits for."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: int) -> None:
        if stop.is_set():
            LOGGER.warning("upkeep_ended_at_once signal=%d", number)
            _end_now(128 + number)
        LOGGER.info("upkeep_stopping signal=%d", number)
        stop.set()
        deadline = threading.Timer(END_WITHIN, _give_up)
        # It does not keep the process alive, and goes on while the interpreter waits for other threads.
        deadline.daemon = True
        deadline.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    return stop


def _give_up() -> None:
    LOGGER.warning(
        "upkeep_ended_late seconds=%.0f: Kafka or Redis did not answer, so other instances take over after this one's "
        "last heartbeat",
        END_WITHIN,
    )
    _end_now(0)


def _end_now(status: int) -> None:
    """End the process without waiting for threads, as those that wait for a server."""
    logging.shutdown()
    os._exit(status)
