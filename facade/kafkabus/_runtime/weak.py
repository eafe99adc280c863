"""Objects that are remembered for as long as somebody else does."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FEW = 100
"""As long as there are fewer, those that are gone are left in the list."""


class WeakList(Generic[T]):
    """Objects, as long as they live. Safe to share between threads.

    No ``weakref.WeakSet``: that runs code wherever an object dies, and an exception of a signal handler is lost there.
    """

    def __init__(self) -> None:
        self._references: list[weakref.ref[T]] = []
        self._guard = threading.Lock()
        self._most = FEW

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references):
            one = reference()
            if one is not None:
                yield one

    def add(self, one: T) -> None:
        """Remember an object."""
        with self._guard:
            if len(self._references) > self._most:
                self._references = [known for known in self._references if known() is not None]
                self._most = max(2 * len(self._references), FEW)
            self._references.append(weakref.ref(one))

    def after_fork(self) -> None:
        """Another thread may have been adding something when this process was forked."""
        self._guard = threading.Lock()
