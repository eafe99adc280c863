"""A pytest plugin that shows, with a test that failed, what the servers logged last.

The logs often explain why a client was refused or waited in vain, and on a CI machine nothing else is left of the
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import LOGS

if TYPE_CHECKING:
    from collections.abc import Generator

LINES = 60
"""How many lines of each log are shown."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs, and of the servers' outputs, to the report of a failure."""
    report = yield
    folder = item.config.stash.get(LOGS, None)
    if report.failed and folder is not None:
        for log in sorted(folder.iterdir()):
            lines = log.read_text(errors="replace").splitlines()[-LINES:]
            report.sections.append((f"end of {log.name}", "\n".join(lines)))
    return report
