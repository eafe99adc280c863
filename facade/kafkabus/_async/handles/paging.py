"""Listings, as the management libraries of Azure return them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from kafkabus._async.compat import guard

T = TypeVar("T")

PAGE = 100
"""How many items a page has."""


class Paged(Generic[T]):
    """Items, one by one or page by page; they are fetched when the caller asks for the first one.

    Args:
        fetch: Fetches all items.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._fetch = fetch
        self._left: deque[T] | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    @guard
    async def __anext__(self) -> T:
        if self._left is None:
            self._left = deque(await self._fetch())
        if not self._left:
            raise StopAsyncIteration
        return self._left.popleft()

    @guard
    async def by_page(self, continuation_token: str | None = None) -> AsyncIterator[Paged[T]]:
        """Yield pages of 100 items.

        Args:
            continuation_token: Kept for compatibility: all items are fetched at once.
        """
        del continuation_token
        items = await self._fetch()
        for start in range(0, len(items), PAGE):
            page = Paged(self._fetch)
            page._left = deque(items[start : start + PAGE])
            yield page
