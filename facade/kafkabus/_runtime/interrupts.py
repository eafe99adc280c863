"""Calls that an exception from a signal handler does not interrupt in the middle.

Python runs signal handlers in the main thread, between any two of its instructions. If a handler raises, as those of Ctrl-C
and of Celery's soft time limit do, the main thread stops there, perhaps with a lock taken or a result not yet stored.
Therefore another thread runs a guarded call of the main thread, which only waits. An exception ends only the waiting: the
call continues to its end, which comes soon if it checks ``caller_left``, and the messages that it received for its caller are
given back.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

LET_END = 1.0
"""How long a leaving caller waits for the end of its call, which may have messages to give back, in seconds."""
SLICE = 0.25
"""The longest single sleep of the main thread, in seconds."""

_here = threading.local()
_END = object()


class _Call:
    """A call to run for the main thread.

    An exception may come between any two steps of the main thread, which would leave a lock taken. Therefore there is no lock:
    each side notes its own step before it reads the note of the other.
    """

    __slots__ = ("_begun", "_context", "_ended", "_over", "_undo", "_work", "error", "left", "origin", "result")

    def __init__(self, work: Callable[[], Any], origin: FrameType | None = None) -> None:
        self.origin = origin
        self.left = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._context = contextvars.copy_context()
        self._undo: list[Callable[[], object]] = []
        self._begun = self._over = False
        self._ended = threading.Lock()
        self._ended.acquire()

    def run(self) -> None:
        """Run the call, unless its caller has left."""
        self._begun = True
        if not self.left:
            _here.call = self
            try:
                self.result = self._context.run(self._work)
            except BaseException as error:  # noqa: BLE001 - it is raised where the caller waits
                self.error = error
            finally:
                _here.call = None
        self._over = True
        if self.left:
            self.undo()

    def end(self) -> None:
        """Wake the caller."""
        self._ended.release()

    def wait(self) -> None:
        """Wait for the end of the call."""
        # In slices, because Python handles a signal that comes just before the sleep only when the thread wakes.
        while not self._ended.acquire(timeout=SLICE):
            pass

    def wait_a_little(self) -> None:
        """Wait briefly for the end of the call."""
        self._ended.acquire(timeout=LET_END)

    def leave(self) -> None:
        """Note that the caller has left."""
        self.left = True
        if self._over:
            undoing = _Call(self.undo)
            _workers.do(undoing)
            undoing.wait_a_little()
        elif self._begun:
            self.wait_a_little()

    def on_left(self, undo: Callable[[], object]) -> None:
        """Register a function to run if the caller has left."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Run the registered function once, even if both sides call this."""
        while True:
            try:
                undo = self._undo.pop()
            except IndexError:
                return
            undo()


class _Workers:
    """Threads that run calls: one, and further ones while abandoned calls still run."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._guard = threading.Lock()
        self._free = 0

    def do(self, call: _Call) -> None:
        """Hand a call to a thread; the main thread takes no lock for this."""
        if self._free <= self._calls.qsize():
            threading.Thread(target=self._work, name="kafkabus-call", daemon=True).start()
        self._calls.put(call)

    def _work(self) -> None:
        self._note(1)
        while True:
            call = self._calls.get()
            self._note(-1)
            call.run()
            goes_on = self._stay()
            call.end()
            del call
            if not goes_on:
                return

    def _note(self, change: int) -> None:
        with self._guard:
            self._free += change

    def _stay(self) -> bool:
        """Become the free thread, unless there is one already; return whether this thread became it."""
        with self._guard:
            stays = self._free == 0
            self._free += stays
            return stays


_workers = _Workers()


def _renew_workers() -> None:
    """Replace the workers in a forked process, which has none of its parent's threads."""
    global _workers  # noqa: PLW0603
    _workers = _Workers()
    _here.call = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_workers)


def guard(method: F) -> F:
    """Decorate a method or a generator so that an exception from a signal handler does not interrupt it."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            step = functools.partial(next, method(*args, **kwargs), _END)
            while (item := _have_done(step, sys._getframe(1))) is not _END:
                yield item

        return cast("F", iterate)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _have_done(functools.partial(method, *args, **kwargs), sys._getframe(1))

    return cast("F", call)


def _have_done(work: Callable[[], Any], origin: FrameType) -> Any:
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return work()
    call = _Call(work, origin)
    try:
        _workers.do(call)
        call.wait()
    except BaseException:
        call.leave()
        raise
    # From here on no function is called, since an exception could come between the result and the caller.
    if call.error is None:
        return call.result
    try:
        raise call.error
    finally:
        call.error = None  # Its traceback holds this frame.


def longest_wait() -> float:
    """Return how long the call of this thread may wait before it asks ``caller_left``, in seconds."""
    return math.inf if getattr(_here, "call", None) is None else SLICE


def caller_left() -> bool:
    """Return whether the caller of this thread's guarded call has left."""
    call: _Call | None = getattr(_here, "call", None)
    return call is not None and call.left


def on_left(undo: Callable[[], object]) -> None:
    """Register a function to run if the caller of this thread's guarded call leaves before it gets the result."""
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.on_left(undo)


def origin() -> FrameType | None:
    """Return the main thread's frame that waits for this thread's guarded call, or None without such a call."""
    call: _Call | None = getattr(_here, "call", None)
    return None if call is None else call.origin
