"""The starter's tie to a supervisor: the other ends of the supervisor's two pipes."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError, log_tail
from kafkabus.embedded.exposure import NOT_EXPOSED
from kafkabus.embedded.folders import make_private, open_private
from kafkabus.embedded.lifeline import RELEASE
from kafkabus.embedded.reports import Report
from kafkabus.embedded.state import SUPERVISOR, SUPERVISOR_LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkabus.embedded.exposure import Exposure
    from kafkabus.embedded.gateway import GatewayPorts


class DataFolderBusyError(EmbeddedRuntimeError):
    """Another runtime uses the data folder."""


class SupervisorLink:
    """Starts one supervisor, and stops it when the link is closed or this process ends.

    The pipe whose closing stops the supervisor exists before the supervisor does: even if the start
    is interrupted, closing the link leaves no process behind.

    Args:
        data: The data folder; it exists.
        detach: Whether the supervisor is to live on once it is released.
    """

    def __init__(self, data: Path, *, detach: bool) -> None:
        self._data = data
        self._detach = detach
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._their_lifeline, self._lifeline = os.pipe()
        self._reports, self._their_reports = os.pipe()
        self._open = {self._lifeline, self._their_lifeline, self._reports, self._their_reports}
        _links.add(self)

    def launch(
        self,
        *,
        namespace: str,
        brokers: int,
        startup_timeout: float,
        temporary: bool = False,
        upkeep: bool = True,
        exposure: Exposure = NOT_EXPOSED,
        gateway: GatewayPorts | None = None,
    ) -> None:
        """Start the supervisor.

        Args:
            namespace: The namespace's name.
            brokers: The number of brokers.
            startup_timeout: How long the servers may take to serve, in seconds.
            temporary: Whether the supervisor removes the data folder at its end.
            upkeep: Whether it runs the upkeep service of the namespace.
            exposure: The listeners for clients elsewhere.
            gateway: The ports of the gateway; None: there is none.
        """
        options = [
            *("--namespace", namespace, "--brokers", str(brokers)),
            *("--startup-timeout", str(startup_timeout)),
            *([] if self._detach else ["--parent", str(os.getpid())]),
            *(["--temporary"] if temporary else []),
            *([] if upkeep else ["--no-upkeep"]),
            *exposure.to_options(),
            *([] if gateway is None else ["--gateway", str(gateway)]),
        ]
        make_private(self._log.parent)
        with open(self._log, "ab", opener=open_private) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", SUPERVISOR, str(self._data), *options],
                stdin=self._their_lifeline,
                stdout=self._their_reports,
                stderr=log,
                # A terminal's Ctrl-C is for this process; it stops the supervisor in order.
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        self._close(self._their_lifeline)
        self._close(self._their_reports)

    def await_ready(self, on_progress: Callable[[str], None] | None) -> None:
        """Wait until everything serves.

        Args:
            on_progress: A function that is called with each step of the start.

        Raises:
            DataFolderBusyError: Another runtime has the data folder.
            EmbeddedRuntimeError: The servers cannot be started.
        """
        while (report := self._next_report()) is not None:
            if report.kind == "ready":
                return
            if report.kind == "busy":
                raise DataFolderBusyError(
                    f"Another runtime has the data folder {self._data}. Stop it, or use another data folder."
                )
            if report.kind == "failed":
                raise EmbeddedRuntimeError(report.text)
            if on_progress is not None:
                on_progress(report.text)
        raise EmbeddedRuntimeError(f"The supervisor of {self._data} ended while it started. {log_tail(self._log)}")

    def release(self) -> None:
        """Let a detached supervisor outlive this process."""
        os.write(self._lifeline, RELEASE)
        self._close_all()
        self._reap(None)

    def close(self, patience: float) -> None:
        """Stop the supervisor and its servers, and return when it has ended.

        Args:
            patience: How long the supervisor may take before it is killed (and its servers with it),
                in seconds.
        """
        if os.getpid() != self._owner:
            return
        self._close(self._lifeline)
        self._close(self._their_reports)
        self._close(self._their_lifeline)
        self._await_end_of_reports(patience)
        self._close_all()
        self._reap(0.0 if self._detach else 5.0)

    def close_copy(self) -> None:
        """Close a forked copy of the link, which would keep the supervisor running after the starter's end."""
        self._close_all()

    @property
    def _log(self) -> Path:
        return self._data / SUPERVISOR_LOG

    def _next_report(self) -> Report | None:
        while b"\n" not in self._unread:
            data = os.read(self._reports, 65536)
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return Report.from_line(line)

    def _await_end_of_reports(self, patience: float) -> None:
        """Wait until the supervisor closes the pipe of reports, which it does when it ends."""
        deadline = time.monotonic() + patience
        while self._reports in self._open:
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._reports], [], [], left)
            if not readable or not os.read(self._reports, 65536):
                return

    def _reap(self, patience: float | None) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)

    def _close_all(self) -> None:
        for descriptor in tuple(self._open):
            self._close(descriptor)


_links: weakref.WeakSet[SupervisorLink] = weakref.WeakSet()


def _after_fork() -> None:
    for link in tuple(_links):
        with contextlib.suppress(OSError):
            link.close_copy()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _environment() -> dict[str, str]:
    """Return an environment in which the supervisor finds the same modules as this process."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}
