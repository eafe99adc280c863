"""A gateway beside that of a namespace, which a test stops and starts again on the same port."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

from typing_extensions import Self

from kafkabus.gateway.announcement import Bound, connection_string
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from tests.ports import free_ports

HOST = "127.0.0.1"
PATIENCE_S = 20.0
"""After how many seconds, at most, a gateway ends that got SIGTERM."""


class RestartedGateway:
    """A gateway that can be restarted.

    Args:
        namespace: The connection string of its namespace.
    """

    def __init__(self, namespace: str) -> None:
        amqp, http = free_ports(2)
        self.connection_string = connection_string(HOST, Bound(amqp, None, http))
        self._environment = {
            **os.environ,
            CONNECTION_STRING_VARIABLE: namespace,
            "KAFKABUS_GATEWAY_HOST": HOST,
            "KAFKABUS_AMQP_PORT": str(amqp),
            "KAFKABUS_HTTP_PORT": str(http),
        }

    def __enter__(self) -> Self:
        self._process = self._start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def restart(self) -> None:
        """Stop the gateway as an administrator does, and start it again when it has ended; clients wait until it listens."""
        self._stop()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "kafkabus.gateway"], env=self._environment, stderr=subprocess.DEVNULL
        )

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
