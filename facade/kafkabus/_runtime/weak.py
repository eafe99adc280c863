"""A list of weak references to objects."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FEW = 100
"""The length up to which dead references stay in the list."""


class WeakList(Generic[T]):
    """Weakly referenced objects. Safe to share between threads.

    It is not a ``weakref.WeakSet``, because that runs code when an object is freed, and loses exceptions of signal handlers.
    """

    def __init__(self) -> None:
        self._references: list[weakref.ref[T]] = []
        self._guard = threading.Lock()
        self._most = FEW

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references):
            referent = reference()
            if referent is not None:
                yield referent

    def add(self, referent: T) -> None:
        """Remember an object."""
        with self._guard:
            if len(self._references) > self._most:
                self._references = [known for known in self._references if known() is not None]
                self._most = max(2 * len(self._references), FEW)
            self._references.append(weakref.ref(referent))

    def after_fork(self) -> None:
        """Replace the lock, which another thread may have held when this process was forked."""
        self._guard = threading.Lock()
