"""A namespace that runs on its own, as the command line starts and stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kafkabus._core.settings import parse_settings
from kafkabus.embedded import (
    EmbeddedRuntimeError,
    Exposure,
    RunningNamespace,
    default_data_folder,
    down,
    status,
    up,
)
from kafkabus.embedded.gateway import GatewayChild, GatewayPorts
from tests.amqp_client import AmqpClient
from tests.integration.embedded.serving import (
    descendants,
    read_all,
    redis_call,
    send,
    wait_until,
    wait_until_gone,
)
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATIENCE_S = 60.0
_UP = (
    "import sys, pathlib, kafkabus.embedded as e\n"
    "print('begun', flush=True)\n"
    "print(e.up(pathlib.Path(sys.argv[1])).pid, flush=True)\n"
)


def _start_up(data: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _UP, str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder; a namespace that runs there at the end is stopped."""
    folder = tmp_path_factory.mktemp("daemon")
    yield folder
    down(folder)


@pytest.fixture(scope="module")
def running(data: Path) -> RunningNamespace:
    """A namespace that two programs started at once; both have ended."""
    assert status(data) is None
    assert down(data) is False
    programs = [_start_up(data), _start_up(data)]
    outputs = [program.communicate(timeout=150)[0].split() for program in programs]
    assert outputs[0] == outputs[1]
    found = status(data)
    assert found is not None
    assert outputs[0] == ["begun", str(found.pid)]
    return found


def test_it_outlives_its_starter(running: RunningNamespace) -> None:
    """The programs that started it have ended, and it serves."""
    send(running.bootstrap_servers, "detached", b"hello")
    assert read_all(running.bootstrap_servers, "detached") == [b"hello"]
    assert redis_call(running.redis_url, "PING") == b"+PONG"


def test_two_starts_at_once_start_one(running: RunningNamespace) -> None:
    """One supervisor has one broker, one Redis and one upkeep service."""
    supervisor = psutil.Process(running.pid)
    # The process that prepares the next start has a lower priority.
    servers = [child for child in supervisor.children() if child.nice() == supervisor.nice()]
    assert len(servers) == 3


def test_starting_again_returns_what_runs(running: RunningNamespace, data: Path) -> None:
    """That holds for many callers at once in one program, too."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(up, [data] * 8))
    assert found == [running] * 8


def test_another_shape_is_refused(running: RunningNamespace, data: Path) -> None:
    """It does not pass for a namespace of another name or size."""
    with pytest.raises(EmbeddedRuntimeError, match="Stop it first"):
        up(data, namespace="another")
    with pytest.raises(EmbeddedRuntimeError, match="Stop it first"):
        up(data, brokers=3)
    assert status(data) == running


def test_stopping_ends_it_and_starting_finds_it_again(running: RunningNamespace, data: Path) -> None:
    """Nothing runs after down; up brings back the same addresses and records."""
    pids = {running.pid, *descendants(running.pid)}
    assert down(data) is True
    wait_until_gone(pids)
    assert status(data) is None
    assert down(data) is False

    again = up(data)
    assert again.connection_string == running.connection_string
    assert read_all(again.bootstrap_servers, "detached") == [b"hello"]
    assert down(data) is True


async def open_amqp(host: str, port: int) -> None:
    """Open a connection over AMQP, as soon as something listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with AmqpClient(port, host):
                return
        except OSError:  # noqa: PERF203 - it is tried again
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


def test_the_gateway_has_the_usual_port_or_another_one(tmp_path: Path) -> None:
    """One that is asked for and taken is an error. Nothing but the gateway's addresses is made."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(EmbeddedRuntimeError, match=f"Port {taken} cannot be used for the gateway"):
            GatewayChild(GatewayPorts(taken), exposed=False)
    child = GatewayChild(GatewayPorts(), exposed=False)
    try:
        assert child.connection_string.startswith("Endpoint=sb://127.0.0.1")
        assert child.environment("c")["KAFKABUS_GATEWAY_HOST"] == "127.0.0.1"
        other_child = GatewayChild(GatewayPorts(), exposed=False)
        assert other_child.connection_string != child.connection_string
        other_child.release()
    finally:
        child.release()


def test_a_gateway_without_policies_names_what_is_open() -> None:
    """Kafka's listeners are as well; nothing is, if no other machine reaches it or keys are checked."""
    exposure = Exposure.parse(["9092=localhost", "29092=kafkabus"], 6379)
    for policies, exposed in ((None, exposure), (None, Exposure()), (Path("p:1.toml"), exposure)):
        ports = GatewayPorts.parse(str(GatewayPorts(policies=policies)))
        assert ports.policies == policies
        child = GatewayChild(ports, exposed=bool(exposed.listeners))
        try:
            amqp, http = (child.environment("c")[name] for name in ("KAFKABUS_AMQP_PORT", "KAFKABUS_HTTP_PORT"))
            unchecked = child.unchecked_addresses(exposed, 2)
            assert child.environment("c")["KAFKABUS_POLICIES"] == str(policies or "")
        finally:
            child.release()
        gateway = [f"0.0.0.0:{amqp} (AMQP)", f"0.0.0.0:{http} (administration)"]
        kafka = [f"0.0.0.0:{port} (Kafka)" for port in (9092, 9093, 29092, 29093)]
        assert unchecked == ([*gateway, *kafka] if policies is None and exposed.listeners else [])


def test_clients_elsewhere_connect_to_a_listener(tmp_path: Path) -> None:
    """They are given its address, and Redis and the gateway listen for them. The test starts its own servers.

    Another gateway on its port fails with an error that names this one. A failed gateway takes ten seconds to recover.
    """
    kafka, redis, amqp, http = free_ports(4)
    # The addresses from 127.0.0.2 on are this machine's as well, and are not those that it listens on otherwise.
    exposure = Exposure.parse([f"{kafka}=127.0.0.2"], redis)
    try:
        running = up(tmp_path, exposure=exposure, gateway=GatewayPorts(amqp, http))
        assert running.amqp.startswith(f"Endpoint=sb://localhost:{amqp};")
        assert [one.partition(" ")[0] for one in running.unchecked] == [
            f"0.0.0.0:{port}" for port in (amqp, http, kafka)
        ]
        with pytest.raises(EmbeddedRuntimeError, match=r"gateway .* runs with no policies\. Stop it first"):
            up(tmp_path, exposure=exposure, gateway=GatewayPorts(amqp, http, Path("policies.toml")))
        asyncio.run(open_amqp("127.0.0.2", amqp))
        [elsewhere] = running.elsewhere
        assert f"KafkaBootstrapServers=127.0.0.2:{kafka};" in elsewhere
        assert f"@127.0.0.2:{redis}/0" in elsewhere
        send(f"127.0.0.2:{kafka}", "elsewhere", b"hello")
        assert read_all(f"127.0.0.2:{kafka}", "elsewhere") == [b"hello"]
        assert read_all(running.bootstrap_servers, "elsewhere") == [b"hello"]
        assert redis_call(parse_settings(elsewhere).redis_url.reveal(), "PING") == b"+PONG"
        with pytest.raises(EmbeddedRuntimeError, match=f"runs with --listener={kafka}=127.0.0.2:{kafka} --redis-port"):
            up(tmp_path)
        _check_gateway_beside(running, http)
        _check_failing_gateway(tmp_path, amqp)
    finally:
        down(tmp_path)


def _check_gateway_beside(running: RunningNamespace, http: int) -> None:
    """Check that the error of another gateway names the one that has its port."""
    (free,) = free_ports(1)  # not the port for AMQP by default, which another test's namespace may have
    command = [sys.executable, "-m", "kafkabus.cli", "-c", running.connection_string, "gateway"]
    ports = ["--amqp-port", str(free), "--http-port", str(http)]
    for workers in ("1", "2"):
        ended = subprocess.run(
            [*command, *ports, "--workers", workers], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert (
            f"port {http} is that of the gateway that 'kafkabus up' runs, with its data in {running.data}"
            in ended.stderr
        )
        assert running.amqp in ended.stderr


def _check_failing_gateway(data: Path, amqp: int) -> None:
    """Check that a gateway that cannot listen is named, with its words, and not any more once it can."""
    (gateway,) = (one for one in psutil.process_iter(["cmdline"]) if _is_gateway(one, data))
    gateway.kill()
    deadline = time.monotonic() + PATIENCE_S
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                other.bind(("", amqp))
                other.listen()
                break
            except OSError:
                assert time.monotonic() < deadline
        wait_until(lambda: "gateway" in _failing(data), "it is known to fail")
        assert "cannot listen there" in _failing(data)["gateway"]
    wait_until(lambda: not _failing(data), "it is well")


def _is_gateway(process: psutil.Process, data: Path) -> bool:
    words = process.info["cmdline"] or []
    with suppress(psutil.Error):
        return words[-2:] == ["-m", "kafkabus.gateway"] and process.cwd() == str(data)
    return False


def _failing(data: Path) -> Mapping[str, str]:
    now = status(data)
    return {} if now is None else now.failing


@pytest.mark.faults
def test_an_interrupted_up_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while it starts takes back what was started."""
    program = _start_up(tmp_path)
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    wait_until(lambda: _running_on(tmp_path) >= 2, "a server is there")

    program.send_signal(signal.SIGINT)

    program.communicate(timeout=60)
    wait_until(lambda: _running_on(tmp_path) == 0, "nothing runs")
    assert status(tmp_path) is None


def _running_on(data: Path) -> int:
    """Count the processes that name the folder, or work in it."""
    return sum(
        str(data) in (process.info["cwd"] or "") or str(data) in (process.info["cmdline"] or [])
        for process in psutil.process_iter(["cwd", "cmdline"])
    )


def test_the_default_data_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the folder where the user's programs keep data."""
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_data_folder().parts[-2:] == ("kafkabus", "embedded")
