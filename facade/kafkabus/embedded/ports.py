"""Free TCP ports on 127.0.0.1 that stay reserved while a server is down for a moment."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path

from kafkabus.embedded.errors import EmbeddedRuntimeError

HOST = "127.0.0.1"

_LOWEST = 20_000
_HIGHEST = 32_000
_ATTEMPTS = 200
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ReservedPort:
    """A port that other programs looking for a free one do not get.

    On Linux a bound socket that does not listen keeps the port from others, yet lets a server that
    sets SO_REUSEADDR (Kafka and Redis do) listen on it. Another runtime could bind a socket to it that does
    not listen either; a claim keeps other runtimes away. Elsewhere the port is merely found free.

    Args:
        preferred: The port to take if it is free.
    """

    def __init__(self, preferred: int | None = None) -> None:
        # Connections of the last run may still be in TIME_WAIT on a port that this runtime used.
        self._sockets = (_bind(preferred, reuse=True) if preferred else None) or _bind_any()
        self.number: int = self._sockets[0].getsockname()[1]
        """The port."""
        if sys.platform == "linux":
            self._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            self.release()

    def release(self) -> None:
        """Release the port to other programs."""
        for held in self._sockets:
            held.close()


_Sockets = tuple[socket.socket, ...]
"""The socket that is bound to a port, and the claim to it where there is one."""


def _bind(port: int, *, reuse: bool = False) -> _Sockets | None:
    """Bind a socket to a port, and claim the port among runtimes; return None if a program has it."""
    candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if reuse:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        candidate.bind((HOST, port))
        return candidate, *_claim(port)
    except OSError:
        candidate.close()
        return None


def _claim(port: int) -> _Sockets:
    """Return a socket whose name in Linux's abstract namespace one program at a time can have.

    Raises:
        OSError: Another runtime has it.
    """
    if sys.platform != "linux":
        return ()
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0kafkabus-port-{port}")
    except OSError:
        claim.close()
        raise
    return (claim,)


def _bind_any() -> _Sockets:
    lowest, highest = _candidates()
    for _ in range(_ATTEMPTS):
        if reserved := _bind(lowest + secrets.randbelow(highest - lowest)):
            return reserved
    raise EmbeddedRuntimeError(
        f"No free port found on {HOST} between {lowest} and {highest}. End some of the programs that listen there."
    )


def _candidates() -> tuple[int, int]:
    """Return the range to choose from: below the ports that outgoing connections get.

    One of those could take the port of a server that restarts, or even connect to itself.
    """
    try:
        first_outgoing = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LOWEST, _HIGHEST
    return (_LOWEST, first_outgoing) if first_outgoing > _LOWEST + 1000 else (_LOWEST, _HIGHEST)
