"""The process that runs the servers of one data folder.

Started by `kafkabus.embedded` as ``python -m kafkabus.embedded.supervisor``; it is the parent of
the brokers and of Redis, and runs between them and the user's process so that they end with it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kafkabus.embedded.broker import Broker
from kafkabus.embedded.children import DEATHS_IN_A_ROW, Bench, Child, cut_log, stop_all
from kafkabus.embedded.class_archive import Archiving, ClassArchive
from kafkabus.embedded.cluster import Addresses, broker_names
from kafkabus.embedded.errors import EmbeddedRuntimeError, last_line, log_tail
from kafkabus.embedded.exposure import Exposure
from kafkabus.embedded.gateway import COMMAND, NAME, GatewayChild, GatewayPorts
from kafkabus.embedded.java import java_for_kafka
from kafkabus.embedded.kafka_jars import provide_jars
from kafkabus.embedded.lifeline import Lifeline, StopRequested
from kafkabus.embedded.locks import FileLock
from kafkabus.embedded.redis_server import find_redis, refuse_newer_data
from kafkabus.embedded.reports import Reporter
from kafkabus.embedded.state import (
    LOCK_FILE,
    LOG_FOLDER,
    SUPERVISOR_LOG,
    ProcessMark,
    RuntimeState,
    read_live_state,
    read_state,
    remove_state,
    write_state,
)
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkabus.embedded.cluster import EmbeddedCluster

_logger = logging.getLogger(__name__)

_POLL_S = 0.05
_PROBE_S = 0.5
_LOOK_AT_LOGS_S = 10.0
_GRACE_S = 10.0
_GATEWAY_GRACE_S = 3.0
_FORMAT_LIMIT_S = 60.0
_OTHER_IS_BUSY_AFTER_S = 2.0
_OTHER_MUST_END_WITHIN_S = 30.0
_UPKEEP = "upkeep"


@dataclass(frozen=True)
class Order:
    """The task of a supervisor.

    Attributes:
        data: The data folder; it exists.
        namespace: The namespace's name.
        brokers: The number of brokers.
        startup_timeout: How long the servers may take to serve, in seconds, without downloads.
        parent: The starter's pid; None if the supervisor is to outlive it.
        temporary: Whether to remove the data folder at the end.
        upkeep: Whether to run the upkeep service of the namespace.
        exposure: The listeners for clients elsewhere.
        gateway: The ports of the gateway; None: there is none.
    """

    data: Path
    namespace: str
    brokers: int
    startup_timeout: float
    parent: int | None
    temporary: bool
    upkeep: bool
    exposure: Exposure
    gateway: GatewayPorts | None


class _Busy(Exception):
    """Another supervisor uses the data folder."""


class Supervisor:
    """Runs the servers of one data folder until its lifeline asks it to stop.

    Args:
        order: The task of the supervisor.
        lifeline: The lifeline, which waits and notices a stop.
        reporter: The reporter, which passes the progress of the start to the starter.
    """

    def __init__(self, order: Order, lifeline: Lifeline, reporter: Reporter) -> None:
        self._order = order
        self._data = order.data
        self._lifeline = lifeline
        self._reporter = reporter
        self._bench = Bench(lifeline)
        self._lock = FileLock(order.data / LOCK_FILE)
        self._children: list[Child] = []
        self._addresses: Addresses | None = None
        self._gateway: GatewayChild | None = None
        self._archiving: Archiving | None = None
        self._state = RuntimeState(
            phase="starting",
            data=order.data,
            supervisor=ProcessMark.own(),
            detached=order.parent is None,
            namespace=order.namespace,
            brokers=order.brokers,
            exposure=order.exposure.to_options(),
        )

    def run(self) -> None:
        """Start everything, keep it running, and stop it at the end."""
        try:
            self._take_folder()
        except _Busy:
            self._reporter.send("busy")
            return
        except StopRequested:
            return
        try:
            self._start()
            self._keep_running()
        except StopRequested:
            _logger.info("stopping")
        except EmbeddedRuntimeError as error:
            self._fail(str(error))
        except Exception as error:
            _logger.exception("the supervisor failed")
            self._fail(f"The supervisor of {self._data} failed: {error!r}")
        finally:
            self._stop()

    def _fail(self, message: str) -> None:
        _logger.error("%s", message)
        self._reporter.send("failed", message)

    def _take_folder(self) -> None:
        """Take the lock of the data folder; wait for a supervisor that is ending, but not for one that runs."""
        began = time.monotonic()
        while not self._lock.acquire():
            other = read_live_state(self._data)
            runs = other is not None and other.phase != "stopping"
            patience = _OTHER_IS_BUSY_AFTER_S if runs else _OTHER_MUST_END_WITHIN_S
            if time.monotonic() - began > patience:
                raise _Busy
            self._lifeline.wait(_POLL_S)

    def _start(self) -> None:
        _end_leftovers(read_state(self._data))
        self._write_state()
        java = java_for_kafka()
        redis = find_redis()
        jars = provide_jars(self._bench, self._reporter.progress)
        # From here on new files, also those of the servers, are only for this user; downloads may be for others too.
        os.umask(0o077)
        self._reporter.progress("starting Kafka and Redis ...")
        self._addresses = Addresses(self._data, self._order.brokers, self._order.exposure)
        if self._order.gateway is not None:
            self._gateway = GatewayChild(self._order.gateway, exposed=bool(self._order.exposure.listeners))
        cluster = self._addresses.cluster
        folder = self._folder("redis")
        refuse_newer_data(redis, folder)
        exposed = self._order.exposure.listeners
        redis.configure(folder, cluster.redis_port, cluster.redis_password, exposed=bool(exposed))
        self._add_child("redis", redis.command(), folder)
        archive = ClassArchive(java, jars)
        brokers = [
            Broker(number, cluster, self._folder(name), self._log(name), java, jars, archive, exposed)
            for number, name in enumerate(broker_names(self._order.brokers), start=1)
        ]
        self._start_brokers(brokers)
        self._await_service(cluster)
        self._become_ready(cluster)
        log = self._data / LOG_FOLDER / "archive.out"
        self._archiving = Archiving(archive, brokers[0].class_list, log)

    def _start_brokers(self, brokers: Sequence[Broker]) -> None:
        for broker in brokers:
            broker.prepare()
        self._format([broker for broker in brokers if not broker.is_formatted])
        for broker in brokers:
            self._add_child(broker.name, broker.command(), broker.folder)

    def _format(self, brokers: Sequence[Broker]) -> None:
        programs = [(broker.format_command(), broker.folder, self._output(broker.name)) for broker in brokers]
        statuses = self._bench.run_together(programs, _FORMAT_LIMIT_S)
        for broker, status in zip(brokers, statuses, strict=True):
            if status != 0:
                raise EmbeddedRuntimeError(
                    f"The storage of {broker.name} in {broker.folder} could not be formatted "
                    f"(status {status}). Use another data folder. {self._tails(broker.name)}"
                )
            broker.mark_formatted()

    def _add_child(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._children.append(Child(name, command, folder, self._output(name), environment))
        self._tend()

    def _await_service(self, cluster: EmbeddedCluster) -> None:
        # Imported while the servers start: it takes a while, and is not needed before.
        from kafkabus.embedded.readiness import ServiceProbe

        probe = ServiceProbe(cluster)
        self._await(lambda: probe.find_missing(_PROBE_S))

    def _await(self, missing: Callable[[], str | None]) -> None:
        """Wait until no child is missing; the function names one that does not serve yet."""
        deadline = time.monotonic() + self._order.startup_timeout
        while (name := missing()) is not None:
            self._tend()
            self._refuse_repeated_deaths()
            if time.monotonic() > deadline:
                raise EmbeddedRuntimeError(
                    f"{name} did not serve within {self._order.startup_timeout:g} s on "
                    f"{self._data}. Give it more time (startup_timeout), or see why it is slow. "
                    f"{self._tails(name)}"
                )
            self._lifeline.wait(_POLL_S)

    def _refuse_repeated_deaths(self) -> None:
        for child in self._children:
            if child.deaths >= DEATHS_IN_A_ROW:
                raise EmbeddedRuntimeError(
                    f"{child.name} ended {child.deaths} times while it was being started on "
                    f"{self._data}. Remove what the log complains of, or use another data folder. "
                    f"{self._tails(child.name)}"
                )

    def _become_ready(self, cluster: EmbeddedCluster) -> None:
        self._state = replace(
            self._state,
            connection_string=cluster.connection_string(self._order.namespace),
            bootstrap_servers=cluster.bootstrap_servers,
            redis_url=cluster.redis_url,
            elsewhere=[
                cluster.connection_string(self._order.namespace, listener)
                for listener in self._order.exposure.listeners
            ],
            **self._gateway_state(),
        )
        if self._order.upkeep:
            told = {CONNECTION_STRING_VARIABLE: self._state.connection_string}
            self._add_child(_UPKEEP, [sys.executable, "-m", "kafkabus.upkeep"], self._data, told)
        if self._gateway is not None:
            told = dict(self._gateway.environment(self._state.connection_string))
            self._add_child(NAME, COMMAND, self._data, told)
            listens = self._gateway.listens
            self._await(lambda: None if listens() else NAME)
        self._state = replace(self._state, phase="ready")
        self._write_state()
        self._reporter.send("ready")
        if self._order.parent is None:
            self._lifeline.await_release()
            self._reporter.close()

    def _gateway_state(self) -> dict[str, Any]:
        """Return the members of the state that are about the gateway."""
        order, gateway = self._order, self._gateway
        if gateway is None or order.gateway is None:
            return {}
        return {
            "amqp": gateway.connection_string,
            "gateway_ports": gateway.ports,
            "policies": str(order.gateway.policies or ""),
            "unchecked": gateway.unchecked_addresses(order.exposure, order.brokers),
        }

    def _keep_running(self) -> None:
        while True:
            self._tend()
            if self._archiving is not None:
                self._archiving.tend()
            delays = [child.seconds_to_start() for child in self._children]
            due = [delay for delay in delays if delay is not None]
            self._cut_logs()
            self._lifeline.wait(min((*due, _LOOK_AT_LOGS_S)))

    def _cut_logs(self) -> None:
        """Limit the logs of the children and of this process; Kafka limits its own log."""
        try:
            for log in (self._data / SUPERVISOR_LOG, *(child.log for child in self._children)):
                cut_log(log)
        except OSError:
            _logger.exception("the logs could not be cut")

    def _tend(self) -> None:
        changed = [child.tend() for child in self._children]
        failing = {child.name: last_line(child.log) for child in self._children if child.keeps_ending}
        if any(changed) or failing.keys() != self._state.failing.keys():
            for name in failing.keys() - self._state.failing.keys():
                _logger.error(
                    "%s ends again and again; the last line of %s: %s", name, self._output(name), failing[name]
                )
            self._state = replace(self._state, failing=failing)
            self._write_state()

    def _stop(self) -> None:
        self._state = replace(self._state, phase="stopping")
        self._write_state()
        if self._archiving is not None:
            self._archiving.stop()
        # Clients of the gateway hear of its end, and sessions that it holds are free, as long as the servers answer.
        stop_all([child for child in self._children if child.name == NAME], self._lifeline, _GATEWAY_GRACE_S)
        # Killing the upkeep service loses no data; it would otherwise wait for servers that are also ending.
        stop_all([child for child in self._children if child.name == _UPKEEP], self._lifeline, 0.0)
        # Temporary data needs no orderly end.
        stop_all(self._children, self._lifeline, 0.0 if self._order.temporary else _GRACE_S)
        for reserved in (self._addresses, self._gateway):
            if reserved is not None:
                reserved.release()
        remove_state(self._data)
        if self._order.temporary:
            shutil.rmtree(self._data, ignore_errors=True)
        self._lock.release()

    def _write_state(self) -> None:
        marks = {child.name: child.mark for child in self._children}
        running = {name: mark for name, mark in marks.items() if mark is not None}
        self._state = replace(self._state, processes=running)
        try:
            write_state(self._data, self._state)
        except OSError:
            # A full disk or a removed folder is no reason to stop the servers.
            _logger.exception("the state could not be written down")

    def _folder(self, name: str) -> Path:
        folder = self._data / name
        folder.mkdir(exist_ok=True)
        return folder

    def _log(self, name: str) -> Path:
        return self._data / LOG_FOLDER / f"{name}.log"

    def _output(self, name: str) -> Path:
        return self._data / LOG_FOLDER / f"{name}.out"

    def _tails(self, name: str) -> str:
        files = (self._output(name), self._log(name))
        return "\n".join(log_tail(file) for file in files if file.exists())


def _end_leftovers(state: RuntimeState | None) -> None:
    """End servers whose supervisor was killed, before their ports and files are used again."""
    left = [mark.find() for mark in (state.processes.values() if state else ())]
    processes = [process for process in left if process is not None]
    for process in processes:
        _logger.warning("ending process %d, left over by another run", process.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_GRACE_S)


def _parse(arguments: Sequence[str]) -> Order:
    parser = argparse.ArgumentParser(prog="kafkabus.embedded.supervisor", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--brokers", type=int, required=True)
    parser.add_argument("--startup-timeout", type=float, required=True)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--temporary", action="store_true")
    parser.add_argument("--no-upkeep", dest="upkeep", action="store_false")
    parser.add_argument("--listener", action="append", default=[])
    parser.add_argument("--redis-port", type=int)
    parser.add_argument("--gateway", type=GatewayPorts.parse)
    given = vars(parser.parse_args(arguments))
    exposure = Exposure.parse(given.pop("listener"), given.pop("redis_port"))
    return Order(**given, exposure=exposure)


def main(arguments: Sequence[str]) -> None:
    """Run a supervisor until its end.

    Standard input is the lifeline, standard output takes the reports, standard error the log.

    Args:
        arguments: The command line's arguments.
    """
    order = _parse(arguments)
    if order.parent is None and os.fork() > 0:
        # The starter reaps this process, and then has no child of this program any more.
        os._exit(0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    lifeline = Lifeline(sys.stdin.fileno(), order.parent)
    Supervisor(order, lifeline, Reporter(sys.stdout.fileno())).run()


if __name__ == "__main__":
    main(sys.argv[1:])
