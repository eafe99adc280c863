"""What every test of the project shares."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

IN_CI = bool(os.environ.get("CI"))


def fail_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skipped test or module a failed one that names the reason.

    A laptop may lack a service; in CI a missing service must not pass for a passed test.
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


@pytest.fixture(scope="session")
def runtime() -> Iterator[EmbeddedRuntime]:
    """A running namespace, started with the first test that needs one."""
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, namespace="tests") as running:
            yield running
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="session")
def connection_string(runtime: EmbeddedRuntime) -> str:
    """How clients reach the namespace."""
    return runtime.connection_string
