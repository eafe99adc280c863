"""Guarded calls: exceptions from signal handlers end the waiting of the main thread, and nothing else."""

from __future__ import annotations

import inspect
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import kafkabus
from kafkabus import management
from kafkabus._core import compatibility
from kafkabus._runtime.interrupts import caller_left, guard, on_left
from kafkabus._sync.handles.paging import Paged

WITHIN = 20.0
"""Longest wait, in seconds, for an act that another thread does at once."""

CALLERS = re.compile(
    # These wait for nothing, and take no lock.
    r"\w+\.(from_connection_string|__iter__)|(ServiceBusClient|\w+AdministrationClient|AutoLockRenewer|\w+Transaction)\.__enter__"
    # These only call others.
    r"|\w+\.__exit__|ServiceBusReceiver\.(next|\w+_message)|ServiceBusClient\.get_\w+|ServiceBusClient\.list_\w+"
    # These only call others, too, after they read their arguments in the caller's own thread.
    r"|ServiceBusSender\.(send|schedule)_messages"
)
"""Methods that need no guard themselves."""


class Interrupted(BaseException):
    """An exception as Ctrl-C raises it."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Have an exception come in the main thread, whatever it does."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


class Works:
    """A class with guarded methods."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self.ended = threading.Event()
        self.undone: list[int] = []

    @guard
    def value(self, value: int) -> int:
        """Return the argument."""
        return value

    @guard
    def where(self) -> threading.Thread:
        """Return the thread that does the work."""
        return threading.current_thread()

    @guard
    def fails(self) -> None:
        """Raise an error."""
        raise LookupError("no such thing")

    @guard
    def wait(self) -> int:
        """Go on until the caller has left."""
        on_left(lambda: self.undone.append(1))
        self._interrupt()
        while not caller_left():
            self.ended.wait(0.001)
        self.ended.set()
        return 1

    @guard
    def count(self) -> Iterator[int]:
        """Count, and be interrupted at the third number."""
        yield 1
        yield 2
        self._interrupt()
        while not caller_left():
            self.ended.wait(0.001)
        self.ended.set()
        yield 3

    @guard
    def warns(self) -> None:
        """Warn the caller."""
        compatibility.warn_unsupported({"no_such_argument": 1})


def test_a_guarded_call_returns_and_raises_what_it_does(interrupt: Callable[[], None]) -> None:
    """The result does not show that another thread did the work."""
    works = Works(interrupt)
    assert works.value(3) == 3
    with pytest.raises(LookupError, match="no such thing"):
        works.fails()
    assert str(inspect.signature(Works.value)) == "(self, value: 'int') -> 'int'"


def test_only_the_main_thread_has_its_calls_done_by_another(interrupt: Callable[[], None]) -> None:
    """Other threads run no handler of a signal; and one thread does the work of all calls."""
    works = Works(interrupt)
    first, second = works.where(), works.where()
    assert first is second is not threading.main_thread()
    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(works.where()))
    other.start()
    other.join(WITHIN)
    assert found == [other]


def test_an_exception_ends_the_waiting_and_has_the_result_undone(interrupt: Callable[[], None]) -> None:
    """The call itself goes on to its end."""
    works = Works(interrupt)
    with pytest.raises(Interrupted):
        works.wait()
    assert works.ended.is_set()
    assert works.undone == [1]
    assert works.value(4) == 4


def test_a_generator_is_guarded_at_each_step(interrupt: Callable[[], None]) -> None:
    """That holds while it makes its next item, too."""
    works = Works(interrupt)
    with pytest.raises(Interrupted):
        list(works.count())
    assert works.ended.is_set()
    assert works.value(5) == 5


def test_a_warning_names_the_line_of_the_caller(interrupt: Callable[[], None]) -> None:
    """The warning may come from any thread."""
    works = Works(interrupt)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        works.warns()
    assert [(one.filename, str(one.message)) for one in caught] == [
        (__file__, "Unsupported keyword args: no_such_argument")
    ]


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, method in inspect.getmembers(cls, inspect.isroutine):
        ours = str(getattr(method, "__module__", "")).startswith("kafkabus")
        if ours and (not name.startswith("_") or name in {"__enter__", "__exit__", "__iter__", "__next__"}):
            yield f"{cls.__name__}.{name}", method


def test_every_method_that_waits_is_guarded() -> None:
    """New methods are guarded, too, except those that only call others."""
    classes = [
        *(getattr(kafkabus, name) for name in ("ServiceBusSender", "ServiceBusReceiver", "ServiceBusSession")),
        *(getattr(kafkabus, name) for name in ("ServiceBusClient", "ServiceBusTransaction", "AutoLockRenewer")),
        management.ServiceBusAdministrationClient,
        Paged,
    ]
    missing = {
        name
        for cls in classes
        for name, method in _methods(cls)
        if not hasattr(method, "__wrapped__") and not CALLERS.fullmatch(name)
    }
    assert missing == set()
