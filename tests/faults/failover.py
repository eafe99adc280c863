"""Servers of runs of ``kill.py`` whose Redis is watched by Sentinels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import override

from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.redis_server import find_redis
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE, format_connection_string, parse_parts
from tests.faults.kill import NAMESPACE, Embedded
from tests.redis_server import Watched, watched
from tests.servers import scratch_folder


@dataclass
class WatchedServers(Embedded):
    """An embedded Kafka, a Redis that Sentinels watch, and an upkeep service that uses both.

    Attributes:
        runtime: The embedded servers; their own Redis and upkeep serve another namespace.
        watched: The servers of Redis and their Sentinels.
        upkeep: The upkeep service.
    """

    watched: Watched
    upkeep: subprocess.Popen[bytes]

    @property
    @override
    def connection_string(self) -> str:
        """The connection string of the namespace."""
        return _connection_string(self.runtime, self.watched)

    @property
    @override
    def processes(self) -> Mapping[str, int]:
        """The broker, and the upkeep service."""
        return {**self.runtime.processes, "upkeep": self.upkeep.pid}

    @override
    def fail_over(self) -> None:
        """Kill the primary, wait for another one, and start the killed one again, which then follows it."""
        self.watched.wait_for_replicas()
        before = self.watched.primary()
        before.kill()
        self.watched.wait_for_another(before)
        before.start()


@contextmanager
def watched_servers() -> Generator[WatchedServers]:
    """The servers of any number of runs."""
    data = scratch_folder()
    try:
        with (
            EmbeddedRuntime(data / "embedded", namespace="other") as runtime,
            watched(find_redis(), data) as found,
            _upkeep(_connection_string(runtime, found)) as upkeep,
        ):
            yield WatchedServers(runtime, found, upkeep)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _connection_string(runtime: EmbeddedRuntime, found: Watched) -> str:
    parts = parse_parts(runtime.connection_string)
    return format_connection_string({**parts, "Endpoint": f"sb://{NAMESPACE}.localhost/", "Redis": found.url})


@contextmanager
def _upkeep(connection_string: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: connection_string}
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkabus.upkeep"], env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
