"""The addresses at which other machines and containers reach a namespace that runs here."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY_HOST = "0.0.0.0"  # noqa: S104 - a listener is for other machines
_LISTENER = re.compile(r"(?P<port>\d+)=(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<advertised>\d+))?")
_HIGHEST_PORT = 65_535


@dataclass(frozen=True)
class Listener:
    """A port on which Kafka accepts connections from elsewhere, and the address that it advertises to such clients.

    Attributes:
        port: The port of the first broker, on all of the machine's addresses; each further broker has the next port.
        host: The host under which the clients know this machine.
        advertised_port: The port of the first broker as the clients see it.
    """

    port: int
    host: str
    advertised_port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Return the listener that a text such as ``9092=localhost`` or ``9092=broker.example:19092`` describes.

        Raises:
            EmbeddedRuntimeError: The text describes no listener.
        """
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise EmbeddedRuntimeError(
                f"{text!r} is no listener: write PORT=HOST or PORT=HOST:PORT, the port to listen on and the address that "
                "clients connect to, such as 9092=localhost."
            )
        port = int(match["port"])
        listener = cls(port, match["host"], int(match["advertised"] or port))
        for number in (listener.port, listener.advertised_port):
            _check_port(number, f"the listener {text!r}")
        return listener

    def __str__(self) -> str:
        return f"{self.port}={self.host}:{self.advertised_port}"


@dataclass(frozen=True)
class Exposure:
    """The listeners of a namespace for clients elsewhere; by default there are none.

    Attributes:
        listeners: Kafka's listeners.
        redis_port: The port of Redis on all of the machine's addresses, the same for all clients; None if there are no
            listeners.
    """

    listeners: tuple[Listener, ...] = ()
    redis_port: int | None = None

    @classmethod
    def parse(cls, listeners: Sequence[str], redis_port: int | None) -> Exposure:
        """Return what options of the command line describe.

        Raises:
            EmbeddedRuntimeError: A listener or port is malformed, one has no counterpart, or two have the same port.
        """
        parsed = tuple(Listener.parse(text) for text in listeners)
        if bool(parsed) != (redis_port is not None):
            raise EmbeddedRuntimeError(
                "Clients elsewhere need Kafka and Redis: give at least one listener (--listener) and the port of Redis "
                "(--redis-port), or neither."
            )
        if redis_port is not None:
            _check_port(redis_port, "Redis")
        exposure = cls(parsed, redis_port)
        exposure.check_apart(1)
        return exposure

    def check_apart(self, brokers: int) -> None:
        """Check that each listener has a separate port for each broker, and Redis another one.

        Raises:
            EmbeddedRuntimeError: Two have the same port.
        """
        ports = self._ports(brokers)
        twice = next((port for port in ports if ports.count(port) > 1), None)
        if twice is not None:
            of_brokers = "" if brokers == 1 else f", and {brokers} brokers take {brokers} ports from each listener's on"
            raise EmbeddedRuntimeError(
                f"Port {twice} is given twice: each listener and Redis need separate ports{of_brokers}."
            )

    def _ports(self, brokers: int) -> list[int]:
        ports = [listener.port + broker for listener in self.listeners for broker in range(brokers)]
        return ports if self.redis_port is None else [*ports, self.redis_port]

    def to_options(self) -> list[str]:
        """Return the options of the command line that describe it."""
        options = [f"--listener={listener}" for listener in self.listeners]
        return options if self.redis_port is None else [*options, f"--redis-port={self.redis_port}"]

    def check_free(self, brokers: int) -> None:
        """Check that no other program has one of the ports.

        Raises:
            EmbeddedRuntimeError: A port is taken.
        """
        for port in self._ports(brokers):
            with socket.socket() as candidate:
                # Connections of the last run may still be in TIME_WAIT.
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    candidate.bind((ANY_HOST, port))
                except OSError as error:
                    raise EmbeddedRuntimeError(
                        f"Port {port} cannot be used: {error.strerror}. End the program that listens there, or give "
                        "another port."
                    ) from error


NOT_EXPOSED = Exposure()


def _check_port(port: int, whose: str) -> None:
    if not 1 <= port <= _HIGHEST_PORT:
        raise EmbeddedRuntimeError(f"{port} is no port for {whose}: give a number from 1 to {_HIGHEST_PORT}.")
