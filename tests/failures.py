"""A pytest plugin that prints a failure when it happens: a run that is cut off has no summary."""

from __future__ import annotations

import pytest

_LINES = 15
"""How many lines of a failure are printed at once; pytest's summary has all."""
_LOGGED = ("upkeep.out", "supervisor.log")
_LOG_LINES = 5
"""How many lines of these logs are printed at once."""


class _Teller:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure."""
        if report.failed:
            self._terminal.line("")
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)")
            for line in report.longreprtext.splitlines()[-_LINES:]:
                self._terminal.write_line(f"  {line}")
            for name, content in report.sections:
                if name.endswith(_LOGGED):
                    for line in content.splitlines()[-_LOG_LINES:]:
                        self._terminal.write_line(f"  {name.split()[-1]}: {line}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print failures where pytest prints the rest: not in the workers of pytest-xdist."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(terminal, pytest.TerminalReporter) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Teller(terminal))
