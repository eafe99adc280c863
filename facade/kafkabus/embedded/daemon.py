"""Kafka and Redis in the background: the functions of the commands up, down and status."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import NOT_EXPOSED, Exposure
from kafkabus.embedded.folders import make_private
from kafkabus.embedded.link import DataFolderBusyError, SupervisorLink
from kafkabus.embedded.runtime import STOP_PATIENCE_S, check_platform, check_request
from kafkabus.embedded.state import RuntimeState, read_live_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kafkabus.embedded.gateway import GatewayPorts

_POLL_S = 0.1
_ABANDON_S = 5.0


@dataclass(frozen=True)
class RunningNamespace:
    """A namespace that runs on a data folder.

    Attributes:
        connection_string: Its connection string.
        bootstrap_servers: Kafka's addresses.
        redis_url: The address of Redis.
        pid: The supervisor's pid.
        brokers: The number of brokers.
        data: The data folder.
        elsewhere: The connection strings for clients elsewhere, one for each listener.
        amqp: The connection string for applications with Azure's SDKs; empty without a gateway.
        unchecked: The addresses that other machines may use without a key, of the gateway and of Kafka; empty if the gateway
            checks keys, or there is none.
        failing: The servers that end again and again, by name, with the last words of each.
    """

    connection_string: str = field(repr=False)
    bootstrap_servers: str
    redis_url: str = field(repr=False)
    pid: int
    brokers: int
    data: Path
    elsewhere: tuple[str, ...] = field(default=(), repr=False)
    amqp: str = ""
    unchecked: tuple[str, ...] = ()
    failing: Mapping[str, str] = field(default_factory=dict[str, str])


def up(
    data: Path,
    *,
    brokers: int = 1,
    namespace: str = "kafkabus",
    startup_timeout: float = 120.0,
    exposure: Exposure = NOT_EXPOSED,
    gateway: GatewayPorts | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> RunningNamespace:
    """Run Kafka and Redis on a data folder until `down`; start them if they do not run.

    Args:
        data: The data folder; it is created if it is missing.
        brokers: The number of brokers.
        namespace: The namespace's name.
        startup_timeout: How long the servers may take to serve, in seconds, without the download of
            Kafka.
        exposure: Listeners for clients elsewhere: in containers, or on other machines.
        gateway: The ports of the gateway for Azure's SDKs; by default there is none.
        on_progress: A function that is called with each step of the start.

    Returns:
        The running namespace. Concurrent calls return the same one.

    Raises:
        EmbeddedRuntimeError: The servers cannot be started, or the folder is in use with another
            number of brokers, other listeners or other policies, by another namespace, or by a runtime that ends with its
            program.
            A start that fails or is interrupted leaves no process behind.
    """
    check_request(brokers, namespace)
    check_platform()
    data = data.absolute()
    make_private(data)
    while (state := read_live_state(data)) is None or state.phase != "ready":
        if state is None:
            _start(data, brokers, namespace, startup_timeout, exposure, gateway, on_progress)
        else:
            time.sleep(_POLL_S)
    _check_same(state, brokers, namespace, exposure, gateway)
    return _to_running(state)


def down(data: Path, timeout: float = STOP_PATIENCE_S) -> bool:
    """Stop the servers of a data folder, and return when they have ended.

    Args:
        data: The data folder.
        timeout: How long the servers may take to end, in seconds.

    Returns:
        Whether servers ran.

    Raises:
        EmbeddedRuntimeError: The servers still run after that time.
    """
    state = read_live_state(data.absolute())
    process = state.supervisor.find() if state is not None else None
    if state is None or process is None:
        return False
    deadline = time.monotonic() + timeout
    process.terminate()
    while state.supervisor.find() is not None:
        if time.monotonic() > deadline:
            raise EmbeddedRuntimeError(
                f"The runtime on {data} has not ended within {timeout:g} s. Wait for it, or kill "
                f"process {process.pid}: its servers end with it."
            )
        time.sleep(_POLL_S)
    return True


def status(data: Path) -> RunningNamespace | None:
    """Return the namespace that runs on a data folder.

    Args:
        data: The data folder.

    Returns:
        The running namespace, or None if none serves there, or none does yet.
    """
    state = read_live_state(data.absolute())
    return _to_running(state) if state is not None and state.phase == "ready" else None


def _start(
    data: Path,
    brokers: int,
    namespace: str,
    startup_timeout: float,
    exposure: Exposure,
    gateway: GatewayPorts | None,
    on_progress: Callable[[str], None] | None,
) -> None:
    link = SupervisorLink(data, detach=True)
    try:
        link.launch(
            namespace=namespace, brokers=brokers, startup_timeout=startup_timeout, exposure=exposure, gateway=gateway
        )
        link.await_ready(on_progress)
    except DataFolderBusyError:
        # Another process starts the runtime; wait for it with the caller.
        link.close(_ABANDON_S)
    except BaseException:
        link.close(STOP_PATIENCE_S)
        raise
    else:
        link.release()


def _check_same(
    state: RuntimeState, brokers: int, namespace: str, exposure: Exposure, gateway: GatewayPorts | None
) -> None:
    if not state.detached:
        raise EmbeddedRuntimeError(
            f"A program with an embedded runtime uses {state.data}, and what runs there ends with "
            f"it (supervisor: process {state.supervisor.pid}). Stop it, or use another data folder."
        )
    if (state.brokers, state.namespace) != (brokers, namespace):
        raise EmbeddedRuntimeError(
            f"On {state.data} runs the namespace {state.namespace!r} with {state.brokers} "
            f"broker(s), not {namespace!r} with {brokers}. Stop it first, or use another data "
            "folder."
        )
    if state.exposure != exposure.to_options():
        raise EmbeddedRuntimeError(
            f"The namespace on {state.data} runs with {' '.join(state.exposure) or 'no listeners for clients elsewhere'}. "
            "Stop it first, or start it with the same options."
        )
    policies = "" if gateway is None or gateway.policies is None else str(gateway.policies)
    if gateway is not None and state.policies != policies:
        raise EmbeddedRuntimeError(
            f"The gateway on {state.data} runs with {f'--policies={state.policies}' if state.policies else 'no policies'}. "
            "Stop it first, or start it with the same options."
        )


def _to_running(state: RuntimeState) -> RunningNamespace:
    return RunningNamespace(
        state.connection_string,
        state.bootstrap_servers,
        state.redis_url,
        state.supervisor.pid,
        state.brokers,
        state.data,
        tuple(state.elsewhere),
        state.amqp,
        tuple(state.unchecked),
        state.failing,
    )
