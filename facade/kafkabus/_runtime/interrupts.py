"""Calls that an exception from a signal handler does not break off in the middle.

Python runs the handlers of signals in the main thread, between any two of its instructions. Where one raises, as that of
Ctrl-C does, or of Celery's soft time limit, the main thread leaves off there, with a lock taken, or an assignment made and
not noted. So a guarded call of the main thread is done by another thread, and the main thread waits. An exception ends the
waiting alone: the call goes on to its end, which comes soon where it asks ``caller_left``, and what it received for its
caller is given back.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

LET_END = 1.0
"""How long, in seconds, the end of a call is waited for whose caller leaves: it may have something to give back."""
SLICE = 0.25
"""Longest time, in seconds, that the main thread sleeps at a stretch."""

_here = threading.local()
_END = object()


class _Call:
    """Something to do for the main thread.

    An exception may come between any two steps of the main thread, and a lock would stay taken then. So there is none: each
    side notes what it does before it looks at what the other one noted.
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
        """Do it, unless nobody waits for it any more."""
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
        """Let the caller go on."""
        self._ended.release()

    def wait(self) -> None:
        """Wait for the end."""
        # In slices: of a signal that comes just before the thread sleeps, Python tells when it wakes.
        while not self._ended.acquire(timeout=SLICE):
            pass

    def wait_a_little(self) -> None:
        """Wait for the end, but not for long."""
        self._ended.acquire(timeout=LET_END)

    def leave(self) -> None:
        """Nobody wants its result."""
        self.left = True
        if self._over:
            undoing = _Call(self.undo)
            _workers.do(undoing)
            undoing.wait_a_little()
        elif self._begun:
            self.wait_a_little()

    def on_left(self, undo: Callable[[], object]) -> None:
        """What is to be done where nobody wants the result."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Do that; once, though both sides may come to it."""
        while True:
            try:
                undo = self._undo.pop()
            except IndexError:
                return
            undo()


class _Workers:
    """Threads that do calls: one, and others while calls go on that were left."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._guard = threading.Lock()
        self._free = 0

    def do(self, call: _Call) -> None:
        """Have a thread do something; for the main thread, which takes no lock for it."""
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
        """Count as free, unless another one does."""
        with self._guard:
            stays = self._free == 0
            self._free += stays
            return stays


_workers = _Workers()


def _renew_workers() -> None:
    """A process that was forked has none of its parent's threads."""
    global _workers  # noqa: PLW0603
    _workers = _Workers()
    _here.call = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_workers)


def guarded(method: F) -> F:
    """A method, or a generator, that an exception from a signal handler does not break off in the middle."""
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
    # From here on no function is called, where an exception could come between the result and the caller.
    if call.error is None:
        return call.result
    try:
        raise call.error
    finally:
        call.error = None  # Its traceback holds this frame.


def caller_left() -> bool:
    """Whether nobody waits any more for the guarded call that this thread does."""
    call: _Call | None = getattr(_here, "call", None)
    return call is not None and call.left


def on_left(undo: Callable[[], object]) -> None:
    """What is to be done where nobody waits any more for the result of the guarded call that this thread does."""
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.on_left(undo)


def origin() -> FrameType | None:
    """Where the main thread waits for the guarded call that this thread does; None where it does none."""
    call: _Call | None = getattr(_here, "call", None)
    return None if call is None else call.origin
