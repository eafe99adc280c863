"""The file with the state of a data folder's runtime, for other processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from kafkabus.embedded.folders import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_FILE = "state.json"
LOCK_FILE = "lock"
LOG_FOLDER = "logs"
SUPERVISOR = "kafkabus.embedded.supervisor"
"""The module that a supervisor runs; the data folder is its first argument."""
SUPERVISOR_LOG = f"{LOG_FOLDER}/supervisor.log"

Phase = Literal["starting", "ready", "stopping"]

# The system's clock, from which start times are computed, may be adjusted in between.
_CLOCK_TOLERANCE_S = 5.0


@dataclass(frozen=True)
class ProcessMark:
    """A mark that distinguishes a process from later ones with the same pid.

    Attributes:
        pid: Its pid.
        started: When it started, in seconds since the epoch.
    """

    pid: int
    started: float

    @classmethod
    def from_pid(cls, pid: int) -> ProcessMark | None:
        """Mark a process.

        Args:
            pid: Its pid.

        Returns:
            The mark, or None if the process has ended.
        """
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    @classmethod
    def own(cls) -> ProcessMark:
        """Mark this process."""
        process = psutil.Process()
        return cls(process.pid, process.create_time())

    def find(self) -> psutil.Process | None:
        """Return the process, or None if it has ended, even if its parent has not reaped it yet."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _CLOCK_TOLERANCE_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


@dataclass(frozen=True)
class RuntimeState:
    """The state of a data folder's runtime, as its supervisor last wrote it.

    Attributes:
        phase: The phase of the supervisor.
        data: The data folder.
        supervisor: The supervisor.
        detached: Whether the supervisor outlives the process that started it.
        namespace: The namespace's name.
        brokers: The number of brokers.
        connection_string: The namespace's connection string; empty before its ports are known.
        bootstrap_servers: Kafka's addresses.
        redis_url: The address of Redis.
        processes: The servers that run now, by name.
        exposure: Options that describe the listeners for clients elsewhere.
        elsewhere: The connection strings of such clients, one for each listener.
        amqp: The connection string for applications with Azure's SDKs; empty without a gateway.
        policies: The file with the policies of the gateway; empty without them.
        unchecked: The addresses that other machines may use without a key.
        gateway_ports: The ports of the gateway, also while it is being started again.
        failing: The servers that end again and again, by name, with the last words of each.
    """

    phase: Phase
    data: Path
    supervisor: ProcessMark
    detached: bool
    namespace: str
    brokers: int
    connection_string: str = field(default="", repr=False)
    bootstrap_servers: str = ""
    redis_url: str = field(default="", repr=False)
    processes: dict[str, ProcessMark] = field(default_factory=dict[str, ProcessMark])
    exposure: list[str] = field(default_factory=list[str])
    elsewhere: list[str] = field(default_factory=list[str], repr=False)
    amqp: str = ""
    policies: str = ""
    unchecked: list[str] = field(default_factory=list[str])
    gateway_ports: list[int] = field(default_factory=list[int])
    failing: dict[str, str] = field(default_factory=dict[str, str])

    def running_processes(self) -> dict[str, int]:
        """Return the pids of the servers that have not ended since the state was written."""
        return {name: mark.pid for name, mark in self.processes.items() if mark.find() is not None}


def read_state(data: Path) -> RuntimeState | None:
    """Return the last written state of a data folder, whether it is still true or not.

    Args:
        data: The data folder.

    Returns:
        The state, or None if no runtime was started, or the last one ended in order.
    """
    try:
        # A supervisor of a later version may write more.
        known = {setting.name for setting in fields(RuntimeState)}
        stored = {name: value for name, value in json.loads((data / STATE_FILE).read_text()).items() if name in known}
        stored["data"] = data
        stored["supervisor"] = ProcessMark(**stored["supervisor"])
        stored["processes"] = {name: ProcessMark(**mark) for name, mark in stored["processes"].items()}
        return RuntimeState(**stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_live_state(data: Path) -> RuntimeState | None:
    """Return the state of a data folder whose supervisor runs.

    Args:
        data: The data folder.

    Returns:
        The state, or None if no supervisor runs.
    """
    state = read_state(data)
    return state if state is not None and state.supervisor.find() is not None else None


def write_state(data: Path, state: RuntimeState) -> None:
    """Replace the state of a data folder atomically.

    Args:
        data: The data folder.
        state: The new state.
    """
    write_private(data / STATE_FILE, json.dumps(asdict(state), indent=1, default=str))


def remove_state(data: Path) -> None:
    """Remove the state of a data folder, on which no runtime runs any more."""
    (data / STATE_FILE).unlink(missing_ok=True)


def live_states() -> Iterator[RuntimeState]:
    """Return the states of all runtimes of this user that run on this machine."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if SUPERVISOR in words[:-1]:
            state = read_live_state(Path(words[words.index(SUPERVISOR) + 1]))
            if state is not None and state.supervisor.pid == process.pid:
                yield state
