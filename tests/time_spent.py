"""A pytest plugin that reports where a run's time went: ``--time-spent`` prints it by folder, phase and cause.

Causes do not overlap: waiting during the creation of an entity counts for the entity. The processor time is that of the
process that runs the test; servers and other children are not in it.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import defaultdict
from contextlib import contextmanager

# Imported by name, because tests replace the clock in the module.
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import kafkabus._async.context
import kafkabus._sync.context
import kafkabus.aio.management
import kafkabus.embedded
import kafkabus.management

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ENTITIES, CLIENTS, SERVERS, PROCESSOR, WAITING = CAUSES = ("entities", "clients", "servers", "processor", "waiting")
PHASES = ("setup", "call", "teardown")

_PROPERTY = "time-spent"
_CALLS = {
    ENTITIES: [
        (module.ServiceBusAdministrationClient, f"{verb}_{kind}")
        for module in (kafkabus.management, kafkabus.aio.management)
        for verb in ("create", "delete")
        for kind in ("queue", "topic", "subscription")
    ],
    CLIENTS: [(module.ClientContext, "close") for module in (kafkabus._sync.context, kafkabus._async.context)],
    SERVERS: [(kafkabus.embedded.EmbeddedRuntime, name) for name in ("start", "stop")],
}


class Meter:
    """Seconds by cause since it was last read. Of several causes at once, the one that began first counts."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy = 0
        self._began = (0.0, 0.0)
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._inside = 0.0
        self._last = _now()

    @contextmanager
    def within(self, cause: str) -> Generator[None]:
        """Count the time of this block for a cause."""
        with self._guard:
            self._busy += 1
            if self._busy == 1:
                self._began = _now()
        try:
            yield
        finally:
            with self._guard:
                self._busy -= 1
                if self._busy == 0:
                    now = _now()
                    self._spent[cause] += now[0] - self._began[0]
                    self._inside += now[1] - self._began[1]

    def read(self) -> dict[str, float]:
        """Return the time spent since the last call."""
        with self._guard:
            now = _now()
            spent, self._spent = self._spent, defaultdict(float)
            spent[PROCESSOR] = max(0.0, now[1] - self._last[1] - self._inside)
            spent[WAITING] = max(0.0, now[0] - self._last[0] - sum(spent.values()))
            self._last, self._inside = now, 0.0
            return dict(spent)


def _now() -> tuple[float, float]:
    return monotonic(), process_time()


def _used() -> float:
    """Return for how long, in seconds, the machine's processors have worked, for this run or not."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def _counted(call: Callable[..., Any], meter: Meter, cause: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def counted(*arguments: Any, **named: Any) -> Any:
            with meter.within(cause):
                return await call(*arguments, **named)

        return counted

    @functools.wraps(call)
    def counted_too(*arguments: Any, **named: Any) -> Any:
        with meter.within(cause):
            return call(*arguments, **named)

    return counted_too


class _Watch:
    """Add to each report what its phase spent; in a process that runs tests."""

    def __init__(self) -> None:
        self._meter = Meter()
        for cause, calls in _CALLS.items():
            for owner, name in calls:
                setattr(owner, name, _counted(getattr(owner, name), self._meter, cause))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # A new list: the test's own is shared by its three reports.
        report.user_properties = [*report.user_properties, (_PROPERTY, self._meter.read())]
        return report


class _Table:
    """Sum the reports up; in the process that was started."""

    def __init__(self) -> None:
        self._began, self._used = monotonic(), _used()
        self._seconds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = dict(report.user_properties).get(_PROPERTY)
        if not isinstance(spent, dict):
            return
        folder = _group(report.nodeid)
        for row in (folder, "all"):
            for name, seconds in {**spent, report.when: sum(spent.values()), "tests": report.when == "call"}.items():
                self._seconds[row][name] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        columns = ("tests", *PHASES, *CAUSES)
        terminalreporter.section("time spent, in seconds")
        terminalreporter.line(f"| Folder | {' | '.join(columns)} |")
        terminalreporter.line(f"|---|{'---:|' * len(columns)}")
        for folder, seconds in sorted(self._seconds.items()):
            terminalreporter.line(f"| `{folder}` | {' | '.join(f'{seconds[name]:,.0f}' for name in columns)} |")
        elapsed, used = monotonic() - self._began, _used() - self._used
        cores = psutil.cpu_count() or 1
        share = used / elapsed / cores
        terminalreporter.line(
            f"In {elapsed:,.0f} s the machine's {cores} cores worked for {used:,.0f} s, {share:.0%} of them."
        )


def _group(node_id: str) -> str:
    """Return a test's folder, and its variant of the contract."""
    folder = node_id.partition("::")[0].rpartition("/")[0]
    variant = next((f" [{name}]" for name in ("memory", "embedded") if f"[{name}" in node_id), "")
    return folder + (variant if folder.startswith("tests/contract") else "")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--time-spent", action="store_true", help="print where the time went, by folder, phase and cause")


def pytest_configure(config: pytest.Config) -> None:
    """Watch if the option asks for it."""
    if not config.getoption("--time-spent"):
        return
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Watch(), "time-spent-watch")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Table(), "time-spent-table")
