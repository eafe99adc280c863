"""A pytest plugin that runs the Kafka and Redis of a run: one embedded runtime, even if several processes run tests.

The process that the user started runs them, from the first test on that needs them; pytest-xdist's workers ask this
process for them over a socket. The options ``--kafka-version`` and ``--redis-version`` choose other versions of them, for all
embedded runtimes of the run; `tests.matrix` knows which there are.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import uuid
from contextlib import suppress
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from kafkabus._kafka import errors
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace, status
from kafkabus.embedded import scratch_folder as make_scratch_folder
from kafkabus.embedded.state import LOG_FOLDER
from tests.matrix.errors import NotToBeHadError
from tests.matrix.versions import KAFKA, REDIS, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdist.workermanage import WorkerController

LOGS: pytest.StashKey[Path] = pytest.StashKey()
"""Key in pytest's configuration: the folder with the logs of the run's servers, once they were started."""
NAMESPACE = "tests"
REACHED_WITHIN = errors.REACHED_WITHIN
"""For how many seconds clients look for a broker; the tests' clients wait longer, as the machine may stall."""
STALLED_FOR = 60.0
NICENESS = 5
"""By how much workers yield to the servers, which otherwise answer late if many workers share few cores."""

REPORTED = "servers: "
"""The beginning of the line, at the end of a run, with the versions that the servers reported."""

_SERVERS: pytest.StashKey[Servers] = pytest.StashKey()
_ADDRESS = "servers"
"""Key of the address at which workers ask for the servers."""


def scratch_folder() -> Path:
    """Return a new folder for data that need not outlive the run, in memory if the machine allows it."""
    return make_scratch_folder("kafkabus-tests-")


class Servers:
    """The run's servers, started when they are first asked for, and the socket at which workers ask.

    Attributes:
        expected: The beginnings of some versions that the servers must report.
        reported: The versions that they reported; empty if they were not started.
    """

    def __init__(self) -> None:
        self.expected: Sequence[str] = ()
        self.reported: list[str] = []
        self._guard = threading.Lock()
        self._data: Path | None = None
        self._runtime: EmbeddedRuntime | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="kafkabus-ask-"))
        self._listener = Listener(str(self._folder / "socket"), "AF_UNIX")
        self._thread = threading.Thread(target=self._listen, name="servers", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address of the socket."""
        return str(self._listener.address)

    def running(self) -> RunningNamespace:
        """Return the servers, and start them if they do not run yet."""
        with self._guard:
            if self._runtime is None:
                self._data = scratch_folder()
                self._runtime = EmbeddedRuntime(self._data, namespace=NAMESPACE).start()
            namespace = status(self._runtime.data)
            assert namespace is not None, "the servers of the tests have ended"
            if not self.reported:
                self.reported = versions(namespace)
            refuse_others(self.reported, self.expected)
            return namespace

    def stop(self) -> None:
        """Stop the servers and the socket; workers may not ask any more."""
        with Client(self.address, "AF_UNIX") as connection:
            connection.send(None)
        self._thread.join()
        self._listener.close()
        with self._guard:
            if self._runtime is not None:
                self._runtime.stop()
            for folder in filter(None, (self._data, self._folder)):
                shutil.rmtree(folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            # A worker may be killed while it asks.
            with suppress(EOFError, OSError), self._listener.accept() as connection:
                if connection.recv() is None:
                    return
                try:
                    connection.send(self.running())
                except Exception as error:  # noqa: BLE001 - it is the worker's that asked
                    connection.send(error)


def versions(namespace: RunningNamespace) -> list[str]:
    """Return the names and versions of a namespace's servers, as these report them."""
    log = namespace.data / LOG_FOLDER / "broker-1.log"
    # No request asks a broker for its version.
    kafka = re.search(r"Kafka version: (\S+)", log.read_text(errors="replace"))
    with redis.Redis.from_url(namespace.redis_url) as client:
        info = client.info("server")
    valkey = info.get("valkey_version")
    return [
        f"Kafka {kafka[1] if kafka else 'of an unknown version'}",
        f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}",
    ]


def refuse_others(reported: Sequence[str], expected: Sequence[str]) -> None:
    """Check that the servers are those that the run asked for.

    Args:
        reported: The names and versions of the servers.
        expected: The beginnings of some of them.
    """
    absent = [beginning for beginning in expected if not any(one.startswith(beginning) for one in reported)]
    assert absent == [], f"the tests were to run on {', '.join(absent)}, and run on {', '.join(reported)}"


def _running(config: pytest.Config) -> RunningNamespace:
    """Return the run's servers, and start them if they do not run yet."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        namespace = config.stash[_SERVERS].running()
    else:
        with Client(worker[_ADDRESS], "AF_UNIX") as connection:
            connection.send("servers, please")
            reply = connection.recv()
        if isinstance(reply, Exception):
            raise reply
        namespace = reply
    return namespace


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kafkabus")
    for server, known in (("kafka", KAFKA), ("redis", REDIS)):
        text = f"the {server.capitalize()} of the embedded runtimes"
        group.addoption(f"--{server}-version", choices=list(known), default=None, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Listen, in the process that was started; yield to the servers, in workers."""
    errors.REACHED_WITHIN = STALLED_FOR
    if hasattr(config, "workerinput"):
        os.nice(NICENESS)
    else:
        config.stash[_SERVERS] = Servers()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Choose the servers, before there are workers.

    Raises:
        pytest.UsageError: A version cannot be had here.
    """
    config = session.config
    servers = config.stash.get(_SERVERS, None)
    if servers is None:
        return
    try:
        choice = choose(config.getoption("--kafka-version"), config.getoption("--redis-version"))
    except NotToBeHadError as error:
        raise pytest.UsageError(str(error)) from error
    # Workers, and the supervisors that tests start, inherit it.
    os.environ.update(choice.environment)
    servers.expected = choice.reported


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give a worker the address at which to ask."""
    node.workerinput[_ADDRESS] = node.config.stash[_SERVERS].address


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the versions of the servers."""
    servers = config.stash.get(_SERVERS, None)
    if servers is not None and servers.reported:
        terminalreporter.line(f"{REPORTED}{', '.join(servers.reported)}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers."""
    servers = config.stash.get(_SERVERS, None)
    if servers is not None:
        servers.stop()


@pytest.fixture(scope="session")
def runtime(request: pytest.FixtureRequest) -> RunningNamespace:
    """A running namespace, started with the first test of the run that needs one."""
    namespace = _running(request.config)
    request.config.stash[LOGS] = namespace.data / LOG_FOLDER
    return namespace


@pytest.fixture(scope="session")
def connection_string(runtime: RunningNamespace) -> str:
    """The connection string of the namespace."""
    return runtime.connection_string


@pytest.fixture
def untended(connection_string: str) -> str:
    """The connection string of an empty namespace of the test's own, without upkeep."""
    assert f"sb://{NAMESPACE}." in connection_string
    return connection_string.replace(f"sb://{NAMESPACE}.", f"sb://n-{uuid.uuid4().hex[:8]}.", 1)
