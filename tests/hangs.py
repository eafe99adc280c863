"""A pytest plugin that ends a process whose test hangs where its time limit cannot interrupt it: in the code of a C library.

The process first prints the stacks of its threads. pytest-xdist then reports the test as failed, and replaces the worker.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

LATER = 60.0
"""By how many seconds later than its time limit a test ends its process."""

_OUTPUT: pytest.StashKey[TextIO] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the process's stderr, of which tests see another."""
    config.stash[_OUTPUT] = os.fdopen(os.dup(sys.stderr.fileno()), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what was kept."""
    config.stash[_OUTPUT].close()


def limit(item: pytest.Item) -> float:
    """Return a test's time limit, in seconds."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout"))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test, with what is made for it and taken down after it."""
    faulthandler.dump_traceback_later(limit(item) + LATER, exit=True, file=item.config.stash[_OUTPUT])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
