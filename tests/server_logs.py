"""A pytest plugin that shows, with a test that failed, what the servers logged last.

The logs often explain why a client was refused or waited in vain, and on a CI machine nothing else is left of the
servers.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime, EmbeddedRuntimeError
from kafkabus.embedded.state import LOG_FOLDER
from tests.servers import LOGS

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LINES = 20
"""How many lines of each log are shown."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs, and of the servers' outputs, to the report of a failure."""
    report = yield
    folder = _folder(item) if report.failed else None
    if folder is not None and folder.is_dir():
        for log in sorted(folder.iterdir()):
            lines = log.read_text(errors="replace").splitlines()
            if log.name.startswith("broker"):
                # Brokers log much that is as it should be.
                lines = [line for line in lines if " INFO " not in line]
            report.sections.append((f"end of {log.name}", "\n".join(lines[-LINES:])))
    return report


def _folder(item: pytest.Item) -> Path | None:
    """Return the folder with the logs of the runtime that the test was given, else of the shared servers."""
    given = item.funcargs.values() if isinstance(item, pytest.Function) else ()
    for runtime in (one for one in given if isinstance(one, EmbeddedRuntime)):
        # A runtime that was stopped has no folder.
        with contextlib.suppress(EmbeddedRuntimeError):
            return runtime.data / LOG_FOLDER
    return item.config.stash.get(LOGS, None)
