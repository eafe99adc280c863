"""Kafkas of other versions than the embedded one, from Maven Central or the mirror that the embedded runtime uses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from kafkabus.embedded.kafka_jars import KAFKA_VERSION, MIRROR_VARIABLE, ROOTS
from tests.matrix.cache import cached
from tests.matrix.errors import NotToBeHadError

_LOGGING = ROOTS[1:]
_KAFKA_3_LOGGING = tuple(root.replace("log4j-slf4j-impl", "log4j-1.2-api") for root in _LOGGING)
"""The classes of log4j 1, to which Kafka 3 speaks, on the log4j 2 that the brokers' settings are for."""
_OTHER_LOGGING = ("reload4j", "slf4j-reload4j", "logback-classic", "logback-core")
"""Jars that would take the logs in place of log4j 2."""


class KafkaJars(NamedTuple):
    """A version of Kafka.

    Attributes:
        version: The version.
    """

    version: str

    def provide(self) -> Path | None:
        """Return the folder of its jars; download them if they are missing. The embedded version needs none: return None.

        Raises:
            NotToBeHadError: A jar cannot be downloaded.
        """
        if self.version == KAFKA_VERSION:
            return None
        return cached(f"kafka-{self.version}", self._fill) / "lib"

    def _fill(self, folder: Path) -> None:
        # Imported here, because every run of tests imports this module.
        from jgo.maven import MavenContext

        from tools.pin_kafka import resolve

        mirror = os.environ.get(MIRROR_VARIABLE)
        maven = MavenContext(
            repo_cache=folder / "repository",
            local_repos=[],
            remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        )
        (folder / "lib").mkdir()
        roots = [f"org.apache.kafka:kafka_2.13:{self.version}", *_LOGGING]
        if self.version.startswith("3."):
            roots += _KAFKA_3_LOGGING
        try:
            for coordinates in resolve(maven, roots):
                if coordinates.split(":")[1] not in _OTHER_LOGGING:
                    jar = maven.create_dependency(coordinates).artifact.resolve()
                    jar.rename(folder / "lib" / jar.name)
        except Exception as error:
            # The library's errors show the repository's address, which may contain a password.
            raise NotToBeHadError(f"Maven cannot resolve it ({type(error).__name__})") from error
        shutil.rmtree(folder / "repository")
