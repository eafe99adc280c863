"""A Redis of a test's own, for tests of its contents: it starts within a moment, and no other test's commands count."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kafkabus.embedded.children import spawn
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus.embedded.redis_server import RedisProgram, answers_ping

PATIENCE = 60.0
CLUSTER_PORT = 10_000
"""How far beyond its port a Redis hears other nodes of its cluster."""


@contextmanager
def serving(program: RedisProgram, folder: Path, *options: str) -> Generator[int]:
    """Run a Redis that keeps nothing and gives all clients all rights; yield its port.

    Args:
        program: Which Redis.
        folder: A folder for its log, created if it does not exist.
        *options: More of its settings, as on its command line.
    """
    folder.mkdir(exist_ok=True)
    log = folder / "redis.log"
    reserved, of_the_cluster = _reserve_two()
    settings = {"--bind": HOST, "--port": str(reserved.number), "--save": "", "--maxmemory-policy": "noeviction"}
    process = spawn([str(program.path), *itertools.chain(*settings.items()), *options], folder, log)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers_ping(reserved.number, 1):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield reserved.number
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reserved.release()
        of_the_cluster.release()


def _reserve_two() -> tuple[ReservedPort, ReservedPort]:
    """Return a free port whose port for the other nodes of a cluster is free as well."""
    deadline = time.monotonic() + PATIENCE
    while True:
        reserved = ReservedPort()
        other = ReservedPort(reserved.number + CLUSTER_PORT)
        if other.number == reserved.number + CLUSTER_PORT:
            return reserved, other
        reserved.release()
        other.release()
        assert time.monotonic() < deadline
