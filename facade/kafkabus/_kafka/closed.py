"""The substitute for a Kafka client that was closed."""

from __future__ import annotations

from typing import Any, NoReturn


class _Closed:
    def __getattr__(self, name: str) -> NoReturn:
        raise ValueError("The handler has already been shutdown: its client was closed, get another")


CLOSED: Any = _Closed()
"""Takes the place of a producer or an admin client. These end, with their threads and sockets, with the last reference to them.

The objects of a client refer to each other, and so wait for the garbage collector, which may be long in coming.
"""
