"""Several gateway processes that share their ports."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType

from kafkabus._runtime.ending import select_heeded
from kafkabus.gateway.announcement import Bound
from kafkabus.gateway.process import END_WITHIN, Ports
from kafkabus.gateway.server.settings import GatewaySettings

LOGGER = logging.getLogger("kafkabus.gateway")

RESTART_AFTER = 1.0
"""How long after its end, in seconds, a worker is started again."""
_LOOK_EVERY = 0.2

Work = Callable[[str, Ports, GatewaySettings, Connection], None]


class Workers:
    """Worker processes, started again when they end by themselves.

    Each has one end of a pipe, its lifeline, and ends when this process closes the other end, or is gone: it would go on with
    the keys that it was given, beside the workers that are started next. No signal is sent to it, because one that was sent to
    the whole process group, as Ctrl-C, has reached it, and a second one means "at once".

    Args:
        count: How many.
        work: The work of each, until its lifeline ends; a function that can be pickled.
        connection_string: Given to ``work``.
        ports: Given to ``work``, with ports that are free in place of 0.
        settings: Given to ``work``.

    Attributes:
        bound: The ports that the workers share.
    """

    def __init__(self, count: int, work: Work, connection_string: str, ports: Ports, settings: GatewaySettings) -> None:
        self._held: list[socket.socket] = []
        has_tls = ports.certificate is not None
        shared = replace(
            ports,
            shared=True,
            amqp=self._hold(ports.host, ports.amqp),
            tls=self._hold(ports.host, ports.tls) if has_tls else None,
            http=self._hold(ports.host, ports.http),
            https=self._hold(ports.host, ports.https) if has_tls else None,
        )
        self.bound = Bound(shared.amqp, shared.tls, shared.http, shared.https)
        self._arguments = (connection_string, shared, settings)
        self._work = work
        self._count = count
        self._workers: dict[int, tuple[BaseProcess, Connection]] = {}
        self._is_stopping = False

    def _hold(self, host: str, port: int | None) -> int | None:
        """Keep a port from others, without listening on it; return its number."""
        if port is None:
            return None
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as alone:
                # A port that is to be shared could be had beside others who share it, and clients would come to either.
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind(address)
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                # The first for connections of a process that did not share the port, which the system remembers for a minute.
                held.setsockopt(socket.SOL_SOCKET, option, 1)
            held.bind(address)
        except OSError as error:
            held.close()
            raise OSError(
                f"{host}:{port}: cannot listen there: {error.strerror}; choose another address or port"
            ) from error
        self._held.append(held)
        return int(held.getsockname()[1])

    def run(self) -> None:
        """Run the workers until a signal."""
        for signal_number in select_heeded():
            signal.signal(signal_number, self._stop)
        try:
            for number in range(self._count):
                self._start(number)
            LOGGER.info("workers_started count=%d", self._count)
            while not self._is_stopping:
                time.sleep(_LOOK_EVERY)
                for number, (worker, _lifeline) in list(self._workers.items()):
                    if not worker.is_alive() and not self._is_stopping:
                        LOGGER.error("worker_ended number=%d status=%s", number, worker.exitcode)
                        time.sleep(RESTART_AFTER)
                        self._start(number)
        finally:
            # Else the interpreter would wait for them without end.
            self._end()

    def _start(self, number: int) -> None:
        connection_string, ports, settings = self._arguments
        if ports.metrics is not None and ports.metrics[1]:
            # Each worker serves its metrics on a separate port.
            ports = replace(ports, metrics=(ports.metrics[0], ports.metrics[1] + number))
        spawning = multiprocessing.get_context("spawn")
        theirs, ours = spawning.Pipe(duplex=False)
        process = spawning.Process(
            target=self._work, args=(connection_string, ports, settings, theirs), name=f"gateway-{number}"
        )
        process.start()
        theirs.close()
        if number in self._workers:
            self._workers[number][1].close()
        self._workers[number] = (process, ours)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self._is_stopping and number == signal.SIGHUP:
            return
        if self._is_stopping:
            LOGGER.warning("gateway_ended_at_once signal=%d", number)
            for worker, _lifeline in self._workers.values():
                worker.kill()
            return
        LOGGER.info("gateway_stopping signal=%d", number)
        self._is_stopping = True

    def _end(self) -> None:
        for _worker, lifeline in self._workers.values():
            lifeline.close()
        deadline = time.monotonic() + END_WITHIN + 1
        for worker, _lifeline in self._workers.values():
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()
        for held in self._held:
            held.close()
