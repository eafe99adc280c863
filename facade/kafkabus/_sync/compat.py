"""What differs between tasks and threads: locks with a deadline, blocking calls, waiting; the blocking side.

The asyncio side is ``kafkabus/_async/compat.py``: the same names, written by hand as well.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from kafkabus._runtime import interrupts

P = ParamSpec("P")
T = TypeVar("T")

CALLBACK_ERRORS = (BaseException,)
"""What a callback may raise, and its caller goes on: in a thread of ours nobody would hear of it otherwise."""

Lock = threading.Lock
sleep = time.sleep
guarded, caller_left, on_left = interrupts.guarded, interrupts.caller_left, interrupts.on_left


class Bell:
    """Wakes the one that waits for it, at once where it rang before."""

    def __init__(self) -> None:
        # Cheaper than threading.Event, which allocates a lock for each wait.
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake who waits, or who waits next."""
        self._rings.put(None)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it rings, or for so many seconds; it may return once for each ring."""
        with contextlib.suppress(Empty):
            self._rings.get(timeout=timeout)


class Worker:
    """Something that goes on in the background until it ends by itself, or the process does."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="kafkabus-worker", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        if self._thread is not threading.current_thread():
            self._thread.join()


class Alarm:
    """Has something done after a while."""

    def __init__(self, seconds: float, work: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, work)
        self._timer.name = "kafkabus-alarm"
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """Have it not done, or wait for its end where it was begun."""
        self._timer.cancel()
        if self._timer is not threading.current_thread():
            self._timer.join()


def try_acquire(lock: threading.Lock) -> bool:
    """Take a lock if nobody holds it."""
    return lock.acquire(blocking=False)


def acquire(lock: threading.Lock, timeout: float) -> bool:
    """Take a lock if it can be had within ``timeout`` seconds."""
    return lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


def uninterrupted(work: T) -> T:
    """Nothing: the work was done when it was called."""
    return work


def all_of(works: Iterable[Callable[[], T]]) -> list[T]:
    """Do several things, one after the other; their results."""
    return [work() for work in works]


class Pool:
    """Where calls run that block: in the caller's own thread, which may block."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call."""
        return call(*args, **kwargs)

    def soon(self, work: None) -> None:
        """Nothing: the work was done when it was called."""

    def close(self) -> None:
        """Nothing to let go."""
