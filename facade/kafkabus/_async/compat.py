"""The differences between tasks and threads: locks with a deadline, blocking calls, waiting; the asyncio side.

The blocking side is ``kafkabus/_sync/compat.py``: the same names, written by hand as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from typing_extensions import override

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

CALLBACK_ERRORS = (Exception, SystemExit)
"""Errors that a callback may raise without ending its caller; a cancelled task ends, and Ctrl-C ends the program."""

AT_ONCE = 32
"""How many operations run at once at most; Kafka's calls have as many threads."""
RENEW_THREADS = 30.0
"""After how many seconds threads make way for new ones, of which there are as many as are needed by then."""

Lock = asyncio.Lock
Semaphore = asyncio.Semaphore
sleep = asyncio.sleep


class Bell:
    """Wakes the task that waits for it; at once, if it rang before."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task that waits, or the next one that does."""
        self._rung.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the bell rings, or for so many seconds; the bell may have rung several times."""
        # Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes just when it rings. And no separate
        # task: tasks that settle messages one by one would spend half their time on that.
        alarm = None if timeout is None else asyncio.get_running_loop().call_later(timeout, self.ring)
        try:
            await self._rung.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        self._rung.clear()


class ThreadBell(Bell):
    """A bell that any thread may ring; a task makes it."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._asked = False

    @override
    def ring(self) -> None:
        """Wake the task that waits, or the next one that does."""
        # Once until the loop has come to it: threads may ring for each record.
        if not self._asked:
            self._asked = True
            # After the loop's end, no task waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._asked = False
        super().ring()


class Worker:
    """Work that goes on in the background until it ends by itself."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work())

    async def join(self) -> None:
        """Wait for the work's end."""
        await asyncio.wait([self._task])


class Alarm:
    """Begins some work a while after it was set; the work may set it again."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def set(self, seconds: float) -> None:
        """Have the work begun in so many seconds, unless it will be sooner, or the alarm was stopped."""
        if self._handle is None and not self._is_stopped:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._handle = None
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Cancel the work, or wait for its end if it has begun; from now on the alarm cannot be set."""
        self._is_stopped = True
        if self._handle is not None:
            self._handle.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])


async def try_acquire(lock: asyncio.Lock) -> bool:
    """Take a lock if it is free; return whether it was."""
    return not lock.locked() and await lock.acquire()


async def acquire(lock: asyncio.Lock, timeout: float) -> bool:
    """Take a lock if that is possible within ``timeout`` seconds; return whether it was."""
    # Not asyncio.wait_for: before Python 3.12 it may lose a lock that it got in the moment in which time ran out. And not
    # only if the lock is taken: a free lock may be promised to another task, which then keeps it for long.
    taking = asyncio.ensure_future(lock.acquire())
    try:
        await asyncio.wait([taking], timeout=timeout)
    except asyncio.CancelledError:
        if not taking.cancel():
            lock.release()
        raise
    if taking.done():
        return taking.result()
    taking.cancel()
    await asyncio.wait([taking])
    return not taking.cancelled() and taking.result()


def guard(method: F) -> F:
    """Return the method: a task is cancelled where it waits, and nowhere else."""
    return method


def longest_wait() -> float:
    """Return how long a call may wait before it asks ``caller_left``, in seconds."""
    return math.inf


def caller_left() -> bool:
    """Return whether the caller has left a call that goes on: never, as a cancelled task does not go on."""
    return False


def on_left(undo: Callable[[], Awaitable[object]]) -> None:
    """Do nothing; see ``caller_left``."""


async def cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work of a library, unless the caller is cancelled, which the library may forget.

    ``asyncio.wait_for``, which redis-py uses, does so before Python 3.12 if its work ends in that moment. A call that waits
    until a message comes would then go on for an hour.
    """
    if sys.version_info >= (3, 12):
        return await work
    if sys.version_info >= (3, 11):
        caller = asyncio.current_task()
        before = 0 if caller is None else caller.cancelling()
        result = await work
        if caller is not None and caller.cancelling() > before:
            raise asyncio.CancelledError
        return result
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await _end_of(task)
        raise
    return task.result()


async def run_uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Do some work to its end; a caller that is cancelled before that is cancelled afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _end_of(task)
        raise


async def all_of(works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Do several pieces of work at once, up to ``AT_ONCE`` at a time; return their results in order."""
    room = asyncio.Semaphore(AT_ONCE)

    async def do(work: Callable[[], Awaitable[T]]) -> T:
        async with room:
            return await work()

    tasks = [asyncio.ensure_future(do(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end_of(future: asyncio.Future[Any]) -> None:
    while not future.done():
        # The waiting task may be cancelled again: the future goes on all the same.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    if not future.cancelled():
        future.exception()  # Retrieved, so that asyncio does not report that it was not.


class Pool:
    """Threads for blocking calls, such as those of Kafka's client; started as needed, and ended when fewer are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads = self._new_threads()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call; a cancelled caller still waits for its end, because the call's state is shared."""
        if time.monotonic() >= self._renew_at:
            # Threads that are at work end after it.
            self._threads.shutdown(wait=False)
            self._threads = self._new_threads()
        future = asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await _end_of(future)
            raise

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in the background, for which the caller does not wait; it must not raise."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for the work in the background, and let the threads go."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._renew_at = math.inf
        self._threads.shutdown(wait=False)

    def _new_threads(self) -> ThreadPoolExecutor:
        self._renew_at = time.monotonic() + RENEW_THREADS
        return ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix=self._name)
