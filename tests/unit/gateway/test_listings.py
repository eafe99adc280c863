"""The rests of lists that a gateway keeps between two pages."""

from __future__ import annotations

import asyncio

import pytest

from kafkabus.gateway.server import listings
from kafkabus.gateway.server.listings import MOST_LISTS, Listings


async def test_the_rest_of_a_list_is_for_one_page() -> None:
    """A page that is asked for again is listed again."""
    kept = Listings()
    kept.keep(("client", "q", 100), ["a", "b"])
    assert kept.take(("client", "q", 0)) is None
    assert kept.take(("client", "q", 100)) == ["a", "b"]
    assert kept.take(("client", "q", 100)) is None


async def test_few_lists_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, and each after a while."""
    monkeypatch.setattr(listings, "KEPT_FOR", 0.01)
    kept = Listings()
    for number in range(MOST_LISTS + 1):
        kept.keep(number, [str(number)])
    assert (len(kept), kept.take(0), kept.take(1)) == (MOST_LISTS, None, ["1"])
    while len(kept):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)
