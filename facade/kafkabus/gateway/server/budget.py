"""Bounds of the bytes that clients make a gateway keep, by address and in total, and of connections without a right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Holder(Protocol):
    """A client that makes the gateway keep something."""

    @property
    def network(self) -> str:
        """The network under which it counts."""
        ...


H = TypeVar("H", bound=Holder)


class Budget(Generic[H]):
    """Counts the bytes that clients make a gateway keep, and ends those that make it keep too many.

    Args:
        by_address: The most bytes of the clients of one address.
        total: The most bytes of all clients.
        end: Ends a client: the one that has the most at the address that has the most.

    Attributes:
        bytes: The bytes of all clients.
    """

    def __init__(self, by_address: int, total: int, end: Callable[[H], None]) -> None:
        self.bytes = 0
        self._by_address = by_address
        self._total = total
        self._end = end
        self._kept: dict[str, dict[H, tuple[int, int]]] = {}
        self._sums: dict[str, int] = {}

    def note(self, holder: H, size: int, shared: int = 0) -> None:
        """Note how many bytes a client makes the gateway keep now.

        Args:
            holder: The client.
            size: The bytes that count for its address as well.
            shared: The bytes that count in total alone: what was sent to it and it has not read yet, its links and its claims.
                Any client that works has some, and many clients may have one address.
        """
        kept = self._kept.setdefault(holder.network, {})
        before, before_shared = kept.get(holder, (0, 0))
        if size or shared:
            kept[holder] = size, shared
        else:
            kept.pop(holder, None)
        self.bytes += size + shared - before - before_shared
        self._sums[holder.network] = self._sums.get(holder.network, 0) + size - before
        if not kept:
            del self._kept[holder.network], self._sums[holder.network]
        if size > before or shared > before_shared:
            self._keep_to_it(holder.network)

    def _keep_to_it(self, network: str) -> None:
        while self._sums.get(network, 0) > self._by_address:
            self._end_most(network, key=lambda kept: kept[0])
        while self.bytes > self._total:
            self._end_most(max(self._kept, key=lambda network: sum(map(sum, self._kept[network].values()))), key=sum)

    def _end_most(self, network: str, key: Callable[[tuple[int, int]], int]) -> None:
        kept = self._kept[network]
        most = max(kept, key=lambda holder: key(kept[holder]))
        self.note(most, 0)
        self._end(most)


class Strangers(Generic[H]):
    """The clients that have no right yet: they have a share of the connections, and one of them of each address.

    Args:
        by_address: The most connections from one address.
        total: The most connections.
        end: Ends a connection: the oldest of the address that has the most, or too many.
    """

    def __init__(self, by_address: int, total: int, end: Callable[[H], None]) -> None:
        self._by_address = by_address
        self._total = total
        self._end = end
        # By address, each the oldest first.
        self._known: dict[str, dict[H, None]] = {}
        self._count = 0

    def __iter__(self) -> Iterator[H]:
        return (holder for group in self._known.values() for holder in group)

    def add(self, holder: H) -> None:
        """Count a client, and end another one if there are too many."""
        group = self._known.setdefault(holder.network, {})
        self._count += holder not in group
        group[holder] = None
        if len(group) > self._by_address:
            self._end_oldest(group)
        elif self._count > self._total:
            self._end_oldest(max(self._known.values(), key=len))

    def discard(self, holder: H) -> None:
        """Count a client no more: it is gone, or has got a right."""
        group = self._known.get(holder.network, {})
        if holder in group:
            del group[holder]
            self._count -= 1
        if not group:
            self._known.pop(holder.network, None)

    def _end_oldest(self, group: dict[H, None]) -> None:
        oldest = next(iter(group))
        self.discard(oldest)
        self._end(oldest)
