"""The upkeep service's account of what it tends, without servers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Look
from kafkabus.upkeep import progress
from kafkabus.upkeep.deadline import RETRY_AFTER
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
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


async def test_work_that_is_stuck_is_told_with_the_place_at_which_it_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a hang leaves no trace. Work that has ended is logged no more."""
    watched, answer = progress.Progress(), asyncio.Event()

    async def ask() -> None:
        await answer.wait()

    async def work() -> None:
        with watched.note_work("tending orders"):
            await ask()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await watched.look()
    assert not caplog.records
    monkeypatch.setattr(progress, "LONG", 0.0)
    await watched.look()
    (record,) = caplog.records
    assert record.getMessage().startswith("upkeep_stuck work='tending orders' seconds=0 at=test_upkeep_service.py:")
    assert record.getMessage().count(" > ") == 2
    answer.set()
    await task
    await watched.look()
    assert len(caplog.records) == 1


async def test_a_ledger_that_stays_due_for_long_is_looked_at_as_often_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause is doubled up to a limit; after a thousand looks, its double was too large for a number."""
    context = ClientContext(parse_settings(NOWHERE))
    maintainer = EntityMaintainer(context, EntityPath("orders"))
    due = [Look(cast(Any, None), "changed", -1.0)]

    async def look(_: object, __: object) -> list[Look]:
        return due

    monkeypatch.setattr(EntityMaintainer, "_look_at_ledgers", look)
    try:
        for _ in range(2_000):
            maintainer._deadline.reset()
            await maintainer._set_deadline(cast(Any, None), due)
        assert maintainer.next_at <= time.monotonic() + RETRY_AFTER
    finally:
        await context.close()
