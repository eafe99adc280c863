"""Forked processes: SDK clients that the parent opened also work in the child.

A child has a copy of the parent's objects but none of its threads: locks that another thread held stay taken, a client of
Kafka waits for missing threads, even when it is freed, and message locks belong to the parent. Therefore watched objects
reset themselves in a child. Clients of Kafka are never freed there: ``gc.freeze`` keeps unreferenced ones, and ``abandon``
those that an object drops.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from typing import Protocol

from kafkabus._runtime.weak import WeakList


class Forked(Protocol):
    """An object that resets itself in a child."""

    def _after_fork(self) -> None:
        """Reset the object; called first in the child, which then has one thread."""
        ...


opening = threading.RLock()
"""The lock of a child's thread while it opens replacements for its parent's clients."""

_watched: WeakList[Forked] = WeakList()
_paused: list[bool] = []
"""For each fork under way, whether garbage collection was enabled before."""


def watch(forked: Forked) -> None:
    """Reset an object in each child."""
    _watched.add(forked)


def abandon(attributes: dict[str, object]) -> None:
    """Keep the values of an object's attributes alive, so that they are not freed even when the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(attributes.copy()))
    attributes.clear()


def _pause() -> None:
    # Otherwise the child could collect garbage before it calls _begin_anew.
    _paused.append(gc.isenabled())
    gc.disable()


def _resume() -> None:
    if _paused.pop():
        gc.enable()


def _begin_anew() -> None:
    global opening  # noqa: PLW0603
    gc.freeze()
    # If several threads fork at once, the first entry counts.
    del _paused[1:]
    opening = threading.RLock()
    _watched.after_fork()
    _resume()
    for forked in _watched:
        forked._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_begin_anew)
