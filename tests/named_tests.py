"""A pytest plugin for CI: each test that the page on compatibility names has passed, where all tests were run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.no_skips import IN_CI

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"

_REFERENCE = re.compile(r"`([^`]*::[^`]*)`")
_PASSED = pytest.StashKey[set[str]]()
_MISSING = pytest.StashKey[list[str]]()


def named_tests(page: str) -> set[str]:
    """Tests that a page names, as ``file::name``."""
    return set(_REFERENCE.findall(page)) - {"file::name"}


def name_of(node_id: str) -> str:
    """A test's name in that form, whatever its parameters were."""
    return node_id.partition("[")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Nothing has passed yet."""
    config.stash[_PASSED] = set()
    config.pluginmanager.register(_Watch(config), "named-tests")


class _Watch:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what passed; with several processes, in the one that started them."""
        if report.when == "call" and report.passed:
            self._config.stash[_PASSED].add(name_of(report.nodeid))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run of all tests in which one that is named did not pass."""
        config = self._config
        everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        if not (IN_CI and everything) or hasattr(config, "workerinput") or exitstatus != 0:
            return
        passed = config.stash[_PASSED]
        config.stash[_MISSING] = sorted(named_tests(PAGE.read_text(encoding="utf-8")) - passed)
        if config.stash[_MISSING]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which."""
        missing = self._config.stash.get(_MISSING, [])
        if missing:
            terminalreporter.section(f"named in {PAGE.name}, and not passed")
            for name in missing:
                terminalreporter.line(name)
