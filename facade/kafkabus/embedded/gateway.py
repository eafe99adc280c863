"""The gateway of a namespace that runs here: a child of the supervisor, like upkeep."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import ANY_HOST
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus.gateway.announcement import AMQP_PORT, HTTP_PORT, Bound, connection_string
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "gateway"
COMMAND = (sys.executable, "-m", "kafkabus.gateway")
_LIBRARIES = ("defusedxml", "starlette", "uvicorn")


def is_installed() -> bool:
    """Return whether the libraries of the gateway are installed."""
    return all(find_spec(name) is not None for name in _LIBRARIES)


@dataclass(frozen=True)
class GatewayPorts:
    """The ports of a gateway.

    Attributes:
        amqp: The port for AMQP; None: 5672, or another one if that is taken.
        http: The port of the administration; None: 5300, or another one if that is taken.
    """

    amqp: int | None = None
    http: int | None = None

    @classmethod
    def parse(cls, text: str) -> GatewayPorts:
        """Return the ports in an option of the supervisor, as ``str`` writes them."""
        amqp, http = (int(part) if part else None for part in text.split(":"))
        return cls(amqp, http)

    def __str__(self) -> str:
        return f"{self.amqp or ''}:{self.http or ''}"


class GatewayChild:
    """The addresses of a gateway, reserved while it runs.

    Args:
        ports: The ports.
        exposed: Whether other machines may connect.

    Raises:
        EmbeddedRuntimeError: A port that was asked for is taken.
    """

    def __init__(self, ports: GatewayPorts, *, exposed: bool) -> None:
        self._host = ANY_HOST if exposed else HOST
        self._ports = [_reserve(ports.amqp, AMQP_PORT), _reserve(ports.http, HTTP_PORT)]

    @property
    def connection_string(self) -> str:
        """The connection string for applications on this machine."""
        amqp, http = (port.number for port in self._ports)
        return connection_string(self._host, Bound(amqp, None, http))

    def environment(self, namespace: str) -> Mapping[str, str]:
        """Return the gateway's variables; ``namespace`` is the namespace's connection string."""
        amqp, http = (str(port.number) for port in self._ports)
        return {
            CONNECTION_STRING_VARIABLE: namespace,
            "KAFKABUS_GATEWAY_HOST": self._host,
            "KAFKABUS_AMQP_PORT": amqp,
            "KAFKABUS_HTTP_PORT": http,
        }

    def release(self) -> None:
        """Release the ports."""
        for port in self._ports:
            port.release()


def _reserve(wanted: int | None, usual: int) -> ReservedPort:
    reserved = ReservedPort(wanted or usual)
    if wanted is not None and reserved.number != wanted:
        reserved.release()
        raise EmbeddedRuntimeError(
            f"Port {wanted} cannot be used for the gateway: another program listens there. End it, or give another port."
        )
    return reserved
