"""Lists of sessions that clients get page by page: the rest is kept for the next page, so that nothing is listed again."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

MOST_NAMES: Final = 200_000
"""How many names are kept, of all lists together; a client whose list is not kept has it made again for each page."""
KEPT_FOR: Final = 60.0
"""How long, in seconds, the rest of a list is kept for the next page."""


@dataclass(slots=True)
class _Rest:
    page: Hashable
    names: Sequence[str]
    timer: asyncio.TimerHandle


class Listings:
    """The lists whose next pages clients may ask for: the last list of each client."""

    def __init__(self) -> None:
        self._rests: dict[object, _Rest] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._rests)

    def take(self, client: object, page: Hashable) -> Sequence[str] | None:
        """Return the list that a client's last page was of, and keep it no longer; None if it is another one, or is not kept.

        Args:
            client: The client.
            page: The list, and the number of the page's first item.
        """
        rest = self._rests.get(client)
        if rest is None or rest.page != page:
            return None
        self.forget(client)
        return rest.names

    def keep(self, client: object, page: Hashable, names: Sequence[str]) -> None:
        """Keep a list for a client's next page, if it is not too long; the lists that are kept longest make room for it."""
        self.forget(client)
        if len(names) > MOST_NAMES:
            return
        while self._names + len(names) > MOST_NAMES:
            self.forget(next(iter(self._rests)))
        timer = asyncio.get_running_loop().call_later(KEPT_FOR, self.forget, client)
        self._rests[client] = _Rest(page, names, timer)
        self._names += len(names)

    def forget(self, client: object) -> None:
        """Keep no list for a client any more."""
        rest = self._rests.pop(client, None)
        if rest is not None:
            rest.timer.cancel()
            self._names -= len(rest.names)
