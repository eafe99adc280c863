"""Kafka and Redis that run as long as the program that started them."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import NOT_EXPOSED, Exposure
from kafkabus.embedded.folders import make_private
from kafkabus.embedded.link import SupervisorLink
from kafkabus.embedded.state import RuntimeState, read_live_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from kafkabus.embedded.gateway import GatewayPorts

STOP_PATIENCE_S = 30.0
"""How long a supervisor may take to stop, in seconds."""


class EmbeddedRuntime:
    """A real Kafka and a real Redis as child processes, on free ports of 127.0.0.1.

    They stop when the process that started them ends, for whatever reason; a server that dies is
    restarted with its data and its port. A new start on the same data folder runs the same cluster,
    with the same records and, if these are free, the same ports.

    Args:
        data: The data folder; it is created if it is missing, and one runtime at a time may use it.
            None means a folder among the temporary files (``TMPDIR``), removed at the end.
        brokers: The number of brokers. A data folder keeps the number that it was first used with.
        namespace: The namespace's name in the connection string.
        startup_timeout: How long the servers may take to serve, in seconds, without the download of
            Kafka, which happens once per user.
        upkeep: Whether to run the upkeep service of the namespace; see ``kafkabus serve``.
        exposure: Listeners for clients elsewhere: in containers, or on other machines.
        gateway: The ports of the gateway for Azure's SDKs; by default there is none.
        on_progress: A function that is called with each step of the start.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        brokers: int = 1,
        namespace: str = "kafkabus",
        startup_timeout: float = 120.0,
        upkeep: bool = True,
        exposure: Exposure = NOT_EXPOSED,
        gateway: GatewayPorts | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        check_request(brokers, namespace)
        self._wanted_data = None if data is None else Path(data).absolute()
        self._brokers = brokers
        self._namespace = namespace
        self._startup_timeout = startup_timeout
        self._upkeep = upkeep
        self._exposure = exposure
        self._gateway = gateway
        self._on_progress = on_progress
        self._owner = os.getpid()
        self._link: SupervisorLink | None = None
        self._data: Path | None = None
        self._state: RuntimeState | None = None

    def start(self) -> EmbeddedRuntime:
        """Start Kafka and Redis, and return when they serve; without effect if they run.

        Returns:
            This runtime.

        Raises:
            EmbeddedRuntimeError: The servers cannot be started. If this method fails or is
                interrupted, no process is left behind.
        """
        if self._state is not None:
            return self
        check_platform()
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop Kafka and Redis, and return when they have ended; without effect if they are stopped."""
        # A forked copy of the program does not own the servers.
        if os.getpid() != self._owner:
            return
        if self._link is not None:
            self._link.close(STOP_PATIENCE_S)
        if self._data is not None and self._wanted_data is None:
            shutil.rmtree(self._data, ignore_errors=True)
        self._link = self._data = self._state = None

    def __enter__(self) -> EmbeddedRuntime:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def connection_string(self) -> str:
        """The namespace's connection string, for `ServiceBusClient`."""
        return self._running_state().connection_string

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's addresses, in the format for clients."""
        return self._running_state().bootstrap_servers

    @property
    def redis_url(self) -> str:
        """The URL of Redis, with its password."""
        return self._running_state().redis_url

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._running_state().data

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self._running_state().supervisor.pid

    @property
    def processes(self) -> Mapping[str, int]:
        """The pids of the servers that run now, by name: ``redis``, ``broker-1``, ...

        Each access looks them up. A server that died is missing until it is started again.
        """
        live = read_live_state(self.data)
        return live.running_processes() if live is not None else {}

    def _launch(self) -> None:
        if self._wanted_data is None:
            # The name is stored before the folder is created, so that an interrupt in between leaves no folder behind.
            self._data = Path(tempfile.gettempdir(), f"kafkabus-{secrets.token_hex(16)}").absolute()
        else:
            self._data = self._wanted_data
        make_private(self._data)
        self._link = SupervisorLink(self._data, detach=False)
        self._link.launch(
            namespace=self._namespace,
            brokers=self._brokers,
            startup_timeout=self._startup_timeout,
            temporary=self._wanted_data is None,
            upkeep=self._upkeep,
            exposure=self._exposure,
            gateway=self._gateway,
        )
        self._link.await_ready(self._on_progress)
        self._state = read_live_state(self._data)
        if self._state is None:
            raise EmbeddedRuntimeError(f"The supervisor of {self._data} ended. Start it again.")

    def _running_state(self) -> RuntimeState:
        if self._state is None:
            raise EmbeddedRuntimeError(
                "The embedded runtime does not run. Call start(), or use it in a with statement."
            )
        return self._state


def check_request(brokers: int, namespace: str) -> None:
    """Check the arguments of a runtime.

    Args:
        brokers: The number of brokers.
        namespace: The namespace's name.

    Raises:
        EmbeddedRuntimeError: The number of brokers is less than one, or the name would break the
            connection string.
    """
    if brokers < 1:
        raise EmbeddedRuntimeError(f"brokers must be 1 or more, not {brokers}.")
    if not namespace or not set(namespace) <= _NAMESPACE_CHARACTERS:
        raise EmbeddedRuntimeError(f"{namespace!r} is no namespace name: use letters, digits and dashes.")


_NAMESPACE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def check_platform() -> None:
    """Check that the platform can run Redis.

    Raises:
        EmbeddedRuntimeError: This is Windows.
    """
    if sys.platform == "win32":
        raise EmbeddedRuntimeError("The embedded runtime needs Linux or macOS. Use WSL, or the containers.")
