"""The upkeep service's account of what it tends, without servers."""

from __future__ import annotations

import asyncio

from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.upkeep.service import AT_ONCE, Upkeep
from kafkabus_mapping.names import EntityPath

NOWHERE = "Endpoint=sb://nothing/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1/0"
SOON = 5.0


async def test_entities_that_are_left_before_they_are_tended_take_no_room() -> None:
    """Other entities are tended afterwards, and so are these if they are taken again."""
    settings = parse_settings(NOWHERE)
    context, service = ClientContext(settings), Upkeep(settings)
    orders = EntityPath("orders")
    try:
        for _ in range(2 * AT_ONCE):
            service._take(context, orders)
            await asyncio.wait_for(service._tend_next(context), SOON)
            tending = service._tending[orders.key]
            service._leave(orders.key)
            await asyncio.wait([tending])
            await asyncio.sleep(0)
    finally:
        await context.close()
