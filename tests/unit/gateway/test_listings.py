"""The lists that a gateway keeps between two pages."""

from __future__ import annotations

import asyncio

import pytest

from kafkabus.gateway.server import listings
from kafkabus.gateway.server.listings import Listings


async def test_a_list_is_for_the_next_page_of_its_client() -> None:
    """Another page, or one that is asked for again, is listed again."""
    kept = Listings()
    kept.keep("client", ("q", 2), ["a", "b", "c"])
    assert (kept.take("client", ("q", 1)), kept.take("other", ("q", 2))) == (None, None)
    assert kept.take("client", ("q", 2)) == ["a", "b", "c"]
    assert kept.take("client", ("q", 2)) is None


async def test_the_last_list_of_a_client_is_kept() -> None:
    """A new list replaces the client's previous one; a client that is gone has none."""
    kept = Listings()
    for number in range(3):
        kept.keep("client", number, ["a"])
    assert (len(kept), kept.take("client", 0)) == (1, None)
    kept.forget("client")
    kept.forget("client")
    assert (len(kept), kept.take("client", 2)) == (0, None)


async def test_so_many_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists that are kept longest go, and each after a while."""
    monkeypatch.setattr(listings, "MOST_NAMES", 10)
    monkeypatch.setattr(listings, "KEPT_FOR", 0.01)
    kept = Listings()
    for number in range(4):
        kept.keep(number, "page", ["name"] * 3)
    kept.keep("long", "page", ["name"] * 11)
    assert [client for client in (0, 1, 2, 3, "long") if kept.take(client, "page") is not None] == [1, 2, 3]
    kept.keep("late", "page", ["name"])
    while len(kept):  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0)
