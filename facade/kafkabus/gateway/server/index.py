"""An index of the nodes of a client, of which there may be thousands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

N = TypeVar("N")


class Index(Generic[N]):
    """Finds things by keys, of which each has several; of those with a key, the one that came first."""

    def __init__(self) -> None:
        self._by_key: defaultdict[Hashable, dict[N, None]] = defaultdict(dict)

    def add(self, node: N, keys: Iterable[Hashable]) -> None:
        """Add something."""
        for key in keys:
            self._by_key[key][node] = None

    def remove(self, node: N, keys: Iterable[Hashable]) -> None:
        """Remove it, if it is there."""
        for key in keys:
            same = self._by_key.get(key)
            if same is not None:
                same.pop(node, None)
                if not same:
                    del self._by_key[key]

    def first(self, keys: Iterable[Hashable]) -> N | None:
        """Return what has the first of some keys that anything has; None if nothing has any."""
        for key in keys:
            for node in self._by_key.get(key, ()):
                return node
        return None
