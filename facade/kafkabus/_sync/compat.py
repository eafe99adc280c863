"""The differences between tasks and threads: locks with a deadline, blocking calls, waiting; the blocking side.

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
"""Errors that a callback may raise without ending its caller; a thread of the library would end without a report."""

Lock = threading.Lock
Semaphore = threading.Semaphore
sleep = time.sleep
guard, caller_left, on_left = interrupts.guard, interrupts.caller_left, interrupts.on_left
longest_wait = interrupts.longest_wait


class Bell:
    """Wakes the thread that waits for it; at once, if it rang before."""

    def __init__(self) -> None:
        # Cheaper than threading.Event, which allocates a lock for each wait.
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        # One ring that was not heard yet is enough, however often it rings.
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the bell rings, or for so many seconds; it may return once for each ring."""
        with contextlib.suppress(Empty):
            self._rings.get(timeout=timeout)


ThreadBell = Bell
"""A bell that any thread may ring."""


class Worker:
    """Work that goes on in the background until it ends by itself, or the process does."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="kafkabus-worker", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the work's end."""
        if self._thread is not threading.current_thread():
            self._thread.join()


class Alarm:
    """Begins some work a while after it was set; the work may set it again."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._guard = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_set = self._is_stopped = False

    def set(self, seconds: float) -> None:
        """Have the work begun in so many seconds, unless it will be sooner, or the alarm was stopped."""
        with self._guard:
            if not self._is_set and not self._is_stopped:
                self._is_set = True
                self._timer = threading.Timer(seconds, self._begin)
                self._timer.name = "kafkabus-alarm"
                self._timer.daemon = True
                self._timer.start()

    def _begin(self) -> None:
        with self._guard:
            self._is_set = False
        self._work()

    def stop(self) -> None:
        """Cancel the work, or wait for its end if it has begun; from now on the alarm cannot be set."""
        with self._guard:
            self._is_stopped, timer = True, self._timer
        if timer is not None:
            timer.cancel()
            if timer is not threading.current_thread():
                timer.join()


def try_acquire(lock: threading.Lock) -> bool:
    """Take a lock if it is free; return whether it was."""
    return lock.acquire(blocking=False)


def acquire(lock: threading.Lock, timeout: float) -> bool:
    """Take a lock if that is possible within ``timeout`` seconds; return whether it was."""
    return lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


def cancellable(work: T) -> T:
    """Do nothing: the call that is the argument has done the work."""
    return work


def run_uninterrupted(work: T) -> T:
    """Do nothing: the call that is the argument has done the work."""
    return work


def all_of(works: Iterable[Callable[[], T]]) -> list[T]:
    """Do several pieces of work, one after the other; return their results in order."""
    return [work() for work in works]


class Pool:
    """Runs blocking calls in the caller's own thread, which may block."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call."""
        return call(*args, **kwargs)

    def soon(self, work: None) -> None:
        """Do nothing: the call that is the argument has done the work."""

    def close(self) -> None:
        """Do nothing: there are no threads to end."""
