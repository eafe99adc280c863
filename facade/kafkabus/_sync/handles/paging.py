# Generated from facade/kafkabus/_async/handles/paging.py by tools/generate_blocking.py. Do not edit.
"""Listings, as the management libraries of Azure return them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from kafkabus._sync.compat import guard

T = TypeVar("T")

PAGE = 100
"""How many items a page has."""


class Paged(Generic[T]):
    """Items, one by one or page by page; they are fetched when the caller asks for the first one.

    Args:
        fetch: Fetches all items.
    """

    def __init__(self, fetch: Callable[[], Sequence[T]]) -> None:
        self._fetch = fetch
        self._left: deque[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    @guard
    def __next__(self) -> T:
        if self._left is None:
            self._left = deque(self._fetch())
        if not self._left:
            raise StopIteration
        return self._left.popleft()

    @guard
    def by_page(self, continuation_token: str | None = None) -> Iterator[Paged[T]]:
        """Yield pages of 100 items.

        Args:
            continuation_token: Kept for compatibility: all items are fetched at once.
        """
        del continuation_token
        items = self._fetch()
        for start in range(0, len(items), PAGE):
            page = Paged(self._fetch)
            page._left = deque(items[start : start + PAGE])
            yield page
