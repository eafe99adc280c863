"""Processes that are forked: what a child leaves alone of its parent's clients, so that they work there as they are.

A child has a copy of the parent's objects and none of its threads: locks stay taken that another thread held, a client of
Kafka waits for threads that are not there, even where it is only freed, and a lock of a message is the parent's. So objects
that are watched begin anew in a child. Clients of Kafka are never freed there: what nobody refers to any more is kept by
``gc.freeze``, and what an object let go by ``abandon``.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from typing import Protocol

from kafkabus._runtime.weak import WeakList


class Forked(Protocol):
    """Something that begins anew in a child."""

    def _after_fork(self) -> None:
        """Called in the child, which has one thread, before anything else is done there."""
        ...


opening = threading.RLock()
"""Held by the thread of a child that opens what it has in place of its parent's."""

_watched: WeakList[Forked] = WeakList()
_paused: list[bool] = []
"""Whether garbage was collected before each fork that is under way."""


def watch(one: Forked) -> None:
    """Have an object begin anew in a child."""
    _watched.add(one)


def abandon(attributes: dict[str, object]) -> None:
    """Keep what an object held until the process ends, and even then from being freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(attributes.copy()))
    attributes.clear()


def _pause() -> None:
    # The child may collect garbage before it comes to _begin_anew.
    _paused.append(gc.isenabled())
    gc.disable()


def _go_on() -> None:
    if _paused.pop():
        gc.enable()


def _begin_anew() -> None:
    global opening  # noqa: PLW0603
    gc.freeze()
    # Of several threads that fork at once, the first one knows.
    del _paused[1:]
    opening = threading.RLock()
    _watched.after_fork()
    _go_on()
    for one in _watched:
        one._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_begin_anew)
