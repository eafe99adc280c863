"""Fetching all that the embedded runtime fetches or makes at its first start, for an image or a cache of a CI server.

To be run as ``python -m kafkabus.embedded.prepare``; it fills the folder that ``KAFKABUS_CACHE`` names, or the user's own.
"""

from __future__ import annotations

import sys
import time

from kafkabus.embedded.class_archive import ClassArchive
from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.java import java_for_kafka
from kafkabus.embedded.kafka_jars import installed_jars
from kafkabus.embedded.runtime import EmbeddedRuntime

PATIENCE_S = 300.0
"""How long the archive of classes may take, in seconds."""
_POLL_S = 0.2


def prepare() -> None:
    """Fetch Kafka, and make the archive of its classes.

    Raises:
        EmbeddedRuntimeError: Kafka cannot be fetched or started, or the archive was not made in time.
    """
    with EmbeddedRuntime(on_progress=_tell):
        jars = installed_jars()
        if jars is None:
            raise EmbeddedRuntimeError("Kafka's jars were removed while Kafka ran. Try again.")
        archive = ClassArchive(java_for_kafka(), jars)
        _tell("making the archive of Kafka's classes ...")
        deadline = time.monotonic() + PATIENCE_S
        while not archive.exists:
            if time.monotonic() > deadline:
                raise EmbeddedRuntimeError(f"The archive of Kafka's classes was not made within {PATIENCE_S:g} s.")
            time.sleep(_POLL_S)


def _tell(step: str) -> None:
    sys.stderr.write(f"{step}\n")


if __name__ == "__main__":
    prepare()
