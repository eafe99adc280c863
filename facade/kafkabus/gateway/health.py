"""Whether the namespace of a gateway can be reached."""

from __future__ import annotations

import asyncio
from typing import Final

from kafkabus._core.exceptions import ServiceBusError
from kafkabus.aio.management import ServiceBusAdministrationClient

WITHIN: Final = 5.0
"""Within how many seconds Kafka and Redis have to answer; probes wait no longer."""


class NamespaceHealth:
    """Looks whether a namespace can be reached; all that ask at a time share one look.

    Args:
        client: The administration client of the namespace.
    """

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client
        self._looking: asyncio.Task[str] | None = None

    async def problem(self) -> str:
        """Ask Kafka and Redis; return why the namespace cannot be reached, or an empty text."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> str:
        try:
            # The client remembers the namespace: reading it asks neither Kafka nor Redis.
            await asyncio.wait_for(self._client._connections().descriptions.catch_up(), WITHIN)
        except asyncio.TimeoutError:
            return f"Kafka or Redis did not answer within {WITHIN:g} s"
        except ServiceBusError as error:
            return error.message
        return ""
