"""The clients of a namespace, as they report themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kafkabus._async.admin.base import Administration
from kafkabus._async.compat import guard
from kafkabus._async.entities.client_registry import ClientReport, RegisteredClient
from kafkabus._core.entity_properties import ClientEntity, ClientProperties
from kafkabus_mapping.codec import from_milliseconds


class ClientAdministration(Administration):
    """Shows who is connected."""

    @guard
    async def list_clients(self) -> AsyncIterator[ClientProperties]:
        """Yield the clients of the namespace that were heard of within two minutes, but for this one.

        Each client reports every 30 seconds that it is there, where it runs and what it uses; with the variable
        ``KAFKABUS_CLIENT_DETAILS=off`` it reports its id and its version alone. Azure Service Bus has no such list.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        context = self._connections()
        found = [_client_of(*pair) for pair in await context.registry.reports()]
        others = [client for client in found if client.client_id != context.client_id]
        listed = sorted(others, key=lambda client: (client.kind or "", client.client_id))
        for client in listed:  # aio-only
            yield client  # aio-only
        # blocking: yield from listed


def _client_of(client: RegisteredClient, report: ClientReport | None) -> ClientProperties:
    if report is None:
        return ClientProperties(client_id=client.client_id, version=client.version)
    return ClientProperties(
        client_id=client.client_id,
        version=client.version,
        kind=report.kind,
        host=report.host,
        process_id=report.process_id,
        opened_at_utc=from_milliseconds(report.since),
        entities=tuple(
            ClientEntity(name=one.name, sends=one.sends, receives=one.receives, client_identifiers=one.identifiers)
            for one in report.entities
        ),
        more_entities=report.more_entities,
    )
