"""Tests of the agenda of the upkeep service."""

from __future__ import annotations

import asyncio
import time

import pytest

from kafkabus.upkeep.agenda import Agenda

PATIENCE_S = 60.0


def test_each_entity_comes_at_the_earliest_of_its_times() -> None:
    """It comes once, whatever the number of times that were asked for; a later time does not put it off."""

    async def take() -> list[str]:
        agenda = Agenda()
        for entity, seconds in (("a", 0.03), ("b", 0.02), ("a", 0.01), ("b", 5.0), ("c", 600.0)):
            agenda.wake(entity, seconds)
        taken = [await asyncio.wait_for(agenda.next(), PATIENCE_S) for _ in range(2)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(agenda.next(), 0.1)
        return taken

    assert asyncio.run(take()) == ["a", "b"]


def test_who_waits_hears_of_an_earlier_time() -> None:
    """It does not wait for the time that was the next one when it began to wait."""

    async def take() -> float:
        agenda = Agenda()
        agenda.wake("late", 600.0)
        waiting = asyncio.create_task(agenda.next())
        await asyncio.sleep(0)
        began = time.monotonic()
        agenda.wake("soon")
        assert await asyncio.wait_for(waiting, PATIENCE_S) == "soon"
        return time.monotonic() - began

    assert asyncio.run(take()) < PATIENCE_S


def test_an_entity_that_was_dropped_does_not_come() -> None:
    """It comes again if it is asked for again."""

    async def take() -> list[str]:
        agenda = Agenda()
        agenda.wake("dropped")
        agenda.wake("kept")
        agenda.drop("dropped")
        first = await asyncio.wait_for(agenda.next(), PATIENCE_S)
        agenda.wake("dropped")
        return [first, await asyncio.wait_for(agenda.next(), PATIENCE_S)]

    assert asyncio.run(take()) == ["kept", "dropped"]
