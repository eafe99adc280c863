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
    sets SO_REUSEADDR (Kafka and Redis do) listen on it. Elsewhere the port is merely found free.

    Args:
        preferred: The port to take if it is free.
    """

    def __init__(self, preferred: int | None = None) -> None:
        self._socket = (_bind_again(preferred) if preferred else None) or _bind_any()
        self.number: int = self._socket.getsockname()[1]
        """The port."""
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            self._socket.close()

    def release(self) -> None:
        """Release the port to other programs."""
        self._socket.close()


def _bind_again(port: int) -> socket.socket | None:
    candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Connections of the last run may still be in TIME_WAIT on a port that this runtime used.
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        candidate.bind((HOST, port))
    except OSError:
        candidate.close()
        return None
    return candidate


def _bind_any() -> socket.socket:
    lowest, highest = _candidates()
    for _ in range(_ATTEMPTS):
        candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            candidate.bind((HOST, lowest + secrets.randbelow(highest - lowest)))
        except OSError:
            candidate.close()
        else:
            return candidate
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
