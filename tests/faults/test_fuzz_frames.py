"""No client breaks a gateway, or disturbs another client; ``python -m tests.faults.fuzz_frames`` tries for longer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kafkabus.gateway.server.gateway import Gateway
from kafkabus.testing import InMemoryNamespace
from tests.effort import SEED, effort
from tests.faults.fuzz_frames import create_all, fuzz


async def _all_gone(gateway: Gateway) -> None:
    while gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)


async def test_a_broken_client_costs_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    """Another client sends and receives, no error is unexpected, and nothing is left of the clients that went."""
    with InMemoryNamespace() as namespace:
        await asyncio.to_thread(create_all, namespace.connection_string)
        async with Gateway(namespace.connection_string) as gateway:
            port = await gateway.listen("127.0.0.1", 0)
            with caplog.at_level(logging.ERROR):
                became, messages = await fuzz(port, SEED, count=effort(200, 5000))
                await asyncio.wait_for(_all_gone(gateway), 30)
    assert not caplog.records
    assert min(became["closed"], became["left"], messages) > 10, (became, messages)
