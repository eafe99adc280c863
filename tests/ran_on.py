"""A pytest plugin that prints which versions of Kafka and Redis suites ran on, if they record that."""

from __future__ import annotations

import pytest

PROPERTY = "ran on"
"""The name of the property that a test records."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each file."""
    told: dict[str, dict[str, None]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == PROPERTY:
                    told.setdefault(report.nodeid.partition("::")[0], {})[str(value)] = None
    if told:
        terminalreporter.section(PROPERTY)
        for file, versions in sorted(told.items()):
            terminalreporter.write_line(f"{file}: {', '.join(versions)}")
