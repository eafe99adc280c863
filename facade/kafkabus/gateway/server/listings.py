"""Lists that clients get page by page: the rest of each is kept for the next page, so that nothing is listed again."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

MOST_LISTS: Final = 8
"""How many lists are kept at a time; a client whose list is not kept any more has it made again."""
KEPT_FOR: Final = 60.0
"""How long, in seconds, the rest of a list is kept for the next page."""


class Listings:
    """The rests of lists, each for one next page."""

    def __init__(self) -> None:
        self._rests: dict[Hashable, tuple[list[str], asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._rests)

    def take(self, page: Hashable) -> list[str] | None:
        """Return the rest of a list from a page on, and keep it no longer; None if it is not kept.

        Args:
            page: The page: client, list and the number of the first item.
        """
        rest, timer = self._rests.pop(page, (None, None))
        if timer is not None:
            timer.cancel()
        return rest

    def keep(self, page: Hashable, rest: list[str]) -> None:
        """Keep the rest of a list from a page on; the list that is kept longest goes if there are too many."""
        self.take(page)
        if len(self._rests) >= MOST_LISTS:
            self.take(next(iter(self._rests)))
        self._rests[page] = rest, asyncio.get_running_loop().call_later(KEPT_FOR, self._rests.pop, page, None)
