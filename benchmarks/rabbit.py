"""A private RabbitMQ: a child process with its own data, on free ports of the loopback address."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from benchmarks.workbench import BODY
from kafkabus.embedded import die_with_parent

PREFETCH = 1_000
START_PATIENCE_S = 120.0
"""How long RabbitMQ may take to start, in seconds."""
STOP_PATIENCE_S = 20.0
"""How long RabbitMQ may take to stop before it is killed, in seconds."""

# Debian's program on the PATH becomes the user rabbitmq and uses the system service's folders; the one behind it does
# not.
_BEHIND_DEBIANS = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RabbitPrograms:
    """The programs that run RabbitMQ.

    Attributes:
        server: RabbitMQ's own program.
        mapper: Erlang's port mapper, epmd.
    """

    server: str
    mapper: str


def find_rabbit() -> RabbitPrograms | None:
    """Return the programs that run RabbitMQ, or None if it is not installed."""
    server = str(_BEHIND_DEBIANS) if _BEHIND_DEBIANS.is_file() else shutil.which("rabbitmq-server")
    mapper = shutil.which("epmd")
    return RabbitPrograms(server, mapper) if server and mapper else None


class Rabbit:
    """A running RabbitMQ; ``running_rabbit`` starts one.

    Attributes:
        version: The version of RabbitMQ.
        port: Its port.
    """

    def __init__(self, port: int, version: str) -> None:
        self.version = version
        self.port = port

    def connect(self) -> pika.BlockingConnection:
        """Return a connection, which the caller closes."""
        return _connect(self.port)

    def fill(self, queue: str, messages: int) -> None:
        """Create a quorum queue and store messages of 1 KB in it, durably."""
        connection = self.connect()
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for _ in range(messages):
            channel.basic_publish("", queue, BODY, properties)
        # The messages are stored once the queue counts them.
        deadline = time.monotonic() + START_PATIENCE_S
        while channel.queue_declare(queue, passive=True).method.message_count < messages:
            if time.monotonic() > deadline:
                raise TimeoutError(f"RabbitMQ did not store {messages} messages in {START_PATIENCE_S:g} s")
            connection.sleep(0.05)
        connection.close()


@contextmanager
def running_rabbit(programs: RabbitPrograms, folder: Path, *plugins: str) -> Generator[Rabbit]:
    """Start RabbitMQ and the port mapper that Erlang needs, and stop both afterwards.

    Args:
        programs: The programs to run RabbitMQ with.
        folder: A new folder for its data and logs.
        *plugins: Plugins to enable.

    Raises:
        RuntimeError: RabbitMQ ended, or did not serve in time; the error quotes its log.
    """
    folder.mkdir(parents=True)
    ports = _free_ports(3)
    environment = _environment(folder, plugins, *ports)
    with (
        (folder / "rabbitmq.out").open("wb") as output,
        # A private port mapper, so that none outlives the run.
        _child([programs.mapper, "-port", str(ports[2])], environment, folder, output.fileno()),
        _child([programs.server], environment, folder, output.fileno()) as server,
    ):
        yield _await(server, ports[0], folder / "rabbitmq.out")


def _environment(
    folder: Path, plugins: Sequence[str], port: int, distribution_port: int, mapper_port: int
) -> dict[str, str]:
    for name in ("rabbitmq.conf", "rabbitmq-env.conf"):
        (folder / name).touch()
    (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        # Erlang creates its cookie there.
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"benchmarks-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": _HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": _HOST,
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": "-",
        # The script then replaces itself by the server, so that the server is our direct child.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> Rabbit:
    deadline = time.monotonic() + START_PATIENCE_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            connection = _connect(port)
        except (AMQPError, OSError):
            time.sleep(0.2)
            continue
        connection.close()
        # pika's blocking connection has no public property for the version.
        version = re.search(r"RabbitMQ (\d+(?:\.\d+)+)", log.read_text(errors="replace"))
        return Rabbit(port, version[1] if version else "of unknown version")
    raise RuntimeError(f"RabbitMQ does not serve:\n{log.read_text(errors='replace')[-2000:]}")


def _connect(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(_HOST, port))


@contextmanager
def _child(
    command: list[str], environment: dict[str, str], folder: Path, output: int
) -> Generator[subprocess.Popen[bytes]]:
    if sys.platform == "linux":
        command = [sys.executable, die_with_parent.__file__, str(os.getpid()), *command]
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Its own session: its children end with it, and Ctrl-C in a terminal does not reach it.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((_HOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
