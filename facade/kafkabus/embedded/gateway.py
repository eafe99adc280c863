"""The gateway of a namespace that runs here: a child of the supervisor, like upkeep."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import ANY_HOST
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus.gateway.announcement import AMQP_PORT, HTTP_PORT, Bound, connection_string, unchecked_addresses
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkabus.embedded.exposure import Exposure

NAME = "gateway"
COMMAND = (sys.executable, "-m", "kafkabus.gateway")
_CONNECTED_WITHIN = 0.5
_LIBRARIES = ("defusedxml", "starlette", "uvicorn")


def is_installed() -> bool:
    """Return whether the libraries of the gateway are installed."""
    return all(find_spec(name) is not None for name in _LIBRARIES)


@dataclass(frozen=True)
class GatewayPorts:
    """The ports of a gateway, and who may use them.

    Attributes:
        amqp: The port for AMQP; None: 5672, or another one if that is taken.
        http: The port of the administration; None: 5300, or another one if that is taken.
        policies: The file with the policies that clients' keys are checked against; None: any key will do.
    """

    amqp: int | None = None
    http: int | None = None
    policies: Path | None = None

    @classmethod
    def parse(cls, text: str) -> GatewayPorts:
        """Return the ports in an option of the supervisor, as ``str`` writes them."""
        amqp, http, policies = text.split(":", 2)
        return cls(int(amqp) if amqp else None, int(http) if http else None, Path(policies) if policies else None)

    def __str__(self) -> str:
        return f"{self.amqp or ''}:{self.http or ''}:{self.policies or ''}"


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
        self._policies = ports.policies
        self._ports = [_reserve(ports.amqp, AMQP_PORT), _reserve(ports.http, HTTP_PORT)]

    @property
    def connection_string(self) -> str:
        """The connection string for applications on this machine."""
        amqp, http = (port.number for port in self._ports)
        return connection_string(self._host, Bound(amqp, None, http), checked=self._policies is not None)

    @property
    def ports(self) -> list[int]:
        """The ports that it listens on, also while it is being started again."""
        return [port.number for port in self._ports]

    def unchecked_addresses(self, exposure: Exposure, brokers: int) -> list[str]:
        """Return the addresses that other machines may use without a key, Kafka's included; none if keys are checked.

        Args:
            exposure: The listeners for clients elsewhere.
            brokers: The number of brokers.
        """
        if self._policies is not None or not exposure.listeners:
            return []
        amqp, http = (port.number for port in self._ports)
        kafka = [listener.port + step for listener in exposure.listeners for step in range(brokers)]
        return [
            *unchecked_addresses(self._host, Bound(amqp, None, http)),
            *(f"{self._host}:{port} (Kafka)" for port in kafka),
        ]

    def environment(self, namespace: str) -> Mapping[str, str]:
        """Return the gateway's variables; ``namespace`` is the namespace's connection string."""
        amqp, http = (str(port.number) for port in self._ports)
        return {
            CONNECTION_STRING_VARIABLE: namespace,
            "KAFKABUS_GATEWAY_HOST": self._host,
            "KAFKABUS_AMQP_PORT": amqp,
            "KAFKABUS_HTTP_PORT": http,
            "KAFKABUS_POLICIES": "" if self._policies is None else str(self._policies),
        }

    def listens(self) -> bool:
        """Return whether the gateway takes connections."""
        try:
            for port in self._ports:
                socket.create_connection((HOST, port.number), _CONNECTED_WITHIN).close()
        except OSError:
            return False
        return True

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
