"""A pytest plugin for CI, where a skipped test is a failed one.

A laptop may lack a service; in CI a missing service must not pass for a passed test.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

IN_CI = bool(os.environ.get("CI"))


def fail_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make the report of a skipped test or module a failure that names the reason.

    An expected failure (`xfail`) is reported as skipped too, and stays what it is.
    """
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"skipped in CI, where nothing may be: {reason.removeprefix('Skipped: ')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests in CI."""
    report = yield
    if IN_CI:
        fail_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail modules that skip themselves in CI."""
    report = yield
    if IN_CI:
        fail_skipped(report)
    return report
