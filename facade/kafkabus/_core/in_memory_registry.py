"""Namespaces that live in this process; the clients of Kafka and Redis are theirs where an address names one.

``kafkabus.testing`` opens them.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

ADDRESS = "memory"
"""Host, and scheme of the Redis URL, of every namespace in this process; its id follows."""


class Backend(Protocol):
    """What stands in for Kafka and Redis; each call makes another client of them."""

    def producer(self, transactional_id: str) -> Any:
        """Stands in for ``confluent_kafka.Producer``; the id is empty where it has no transactions."""
        ...

    def consumer(self) -> Any:
        """Stands in for ``confluent_kafka.Consumer``."""
        ...

    def topics(self) -> Any:
        """Stands in for ``kafkabus._kafka.topic_admin.Topics``."""
        ...

    def redis(self) -> Any:
        """Stands in for ``redis.Redis``."""
        ...

    def async_redis(self) -> Any:
        """Stands in for ``redis.asyncio.Redis``."""
        ...


_OPEN: dict[str, Backend] = {}


def enter(backend: Backend, number: str) -> tuple[str, str]:
    """Make a namespace known; returns its bootstrap servers and its Redis URL."""
    _OPEN[number] = backend
    return f"{ADDRESS}-{number}:9092", f"{ADDRESS}://{number}"


def leave(number: str) -> None:
    """Forget a namespace."""
    _OPEN.pop(number, None)


def find(address: str) -> Backend | None:
    """The namespace that bootstrap servers or a Redis URL name, None where they name none in any process's memory.

    Raises:
        ValueError: They name one that is not open in this process.
    """
    for prefix in (f"{ADDRESS}://", f"{ADDRESS}-"):
        if address.startswith(prefix):
            number = address.removeprefix(prefix).removesuffix(":9092")
            if number not in _OPEN:
                raise ValueError(
                    f"{address!r} names an in-memory namespace that is not open in this process: use it in the process, and "
                    "within the 'with' block, of its kafkabus.testing.InMemoryNamespace"
                )
            return _OPEN[number]
    return None


if hasattr(os, "register_at_fork"):
    # A child's copy would be another namespace, of which the parent sees nothing.
    os.register_at_fork(after_in_child=_OPEN.clear)
