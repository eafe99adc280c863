"""The clients of a namespace report their kind, and the entities that they use."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta, timezone

from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.management import ClientProperties
from tests.contract.aio.conftest import MakeQueue

SKEW = timedelta(minutes=1)
"""How far apart the moment of a client's opening and that of its report may be."""


async def reported(administration: ServiceBusAdministrationClient, client: ServiceBusClient) -> ClientProperties | None:
    """Return the report of a client, as others see it; None if there is none."""
    own = client._connections().client_id
    return next(iter([found async for found in administration.list_clients() if found.client_id == own]), None)


async def test_a_client_says_where_it_runs_and_what_it_uses(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """As long as its senders and receivers are open; once it is closed, it is gone."""
    first, second = await make_queue(), await make_queue()
    sender = client.get_queue_sender(first, client_identifier="the sender")
    receiver = client.get_queue_receiver(first, client_identifier="the receiver")
    async with sender, receiver, client.get_queue_receiver(second, sub_queue="deadletter") as dead:
        registry = client._connections().registry
        await registry.report_again()
        found = await reported(administration, client)
        assert found is not None
        assert (found.kind, found.host, found.process_id) == ("client", socket.gethostname(), os.getpid())
        assert found.opened_at_utc is not None
        assert abs(datetime.now(timezone.utc) - found.opened_at_utc) < SKEW
        used = {entity.name: entity for entity in found.entities}
        assert used.keys() == {first, f"{second}/$deadletterqueue"}
        assert (used[first].sends, used[first].receives) == (True, True)
        assert set(used[first].client_identifiers) == {"the sender", "the receiver"}
        other = used[f"{second}/$deadletterqueue"]
        assert (other.sends, other.receives, other.client_identifiers) == (False, True, (dead.client_identifier,))
        await sender.close()
        await registry.report_again()
        found = await reported(administration, client)
        assert found is not None
        assert {entity.name: entity.sends for entity in found.entities} == {first: False, other.name: False}
    own = client._connections().client_id
    await client.close()
    assert own not in {found.client_id async for found in administration.list_clients()}


async def test_a_client_names_no_more_than_fits(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """The number of the others is known; identifiers are cut."""
    handles = [client.get_queue_sender(f"none-{number:03}", client_identifier="x" * 500) for number in range(60)]
    async with client.get_queue_sender(queue):
        await client._connections().registry.report_again()
        found = await reported(administration, client)
        assert found is not None
        assert (len(found.entities), found.more_entities) == (50, len(handles) + 1 - 50)
        assert {len(name) for entity in found.entities for name in entity.client_identifiers} == {128}


async def test_a_client_may_keep_its_details_to_itself(
    connection_string: str, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """Its id and its version are known all the same, by which upgrades go."""
    client = ServiceBusClient.from_connection_string(
        connection_string, environment={**os.environ, "KAFKABUS_CLIENT_DETAILS": "off"}
    )
    async with client, client.get_queue_sender(queue):
        found = await reported(administration, client)
        assert found is not None
        assert found.version
        assert (found.kind, found.host, found.process_id, found.entities) == (None, None, None, ())


async def test_details_of_clients_that_are_gone_are_forgotten(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    queue: str,
) -> None:
    """When another client begins: those that were killed said nothing."""
    async with client.get_queue_sender(queue):
        registry, ledgers = client._connections().registry, client._connections().ledger_client
        await ledgers.put_client_details(registry._details_key, "killed", "{}")
        async with other_client.get_queue_sender(queue):
            assert "killed" not in await ledgers.client_details(registry._details_key)
            assert await reported(administration, client) is not None
