"""Namespaces in this process; if an address names one, its substitutes replace the clients of Kafka and Redis.

``kafkabus.testing`` opens them.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

ADDRESS = "memory"
"""First part of the Kafka host, and scheme of the Redis URL, of every namespace in this process; the namespace's id follows."""


class Backend(Protocol):
    """Substitutes for Kafka and Redis; each call makes another client of them."""

    def producer(self, transactional_id: str) -> Any:
        """Return a substitute for ``confluent_kafka.Producer``; the id is empty if the producer has no transactions."""
        ...

    def consumer(self) -> Any:
        """Return a substitute for ``confluent_kafka.Consumer``."""
        ...

    def topics(self) -> Any:
        """Return a substitute for ``kafkabus._kafka.topic_admin.Topics``."""
        ...

    def redis(self) -> Any:
        """Return a substitute for ``redis.Redis``."""
        ...

    def async_redis(self) -> Any:
        """Return a substitute for ``redis.asyncio.Redis``."""
        ...


_OPEN: dict[str, Backend] = {}


def enter(backend: Backend, number: str) -> tuple[str, str]:
    """Make a namespace known; return its bootstrap servers and its Redis URL."""
    _OPEN[number] = backend
    return f"{ADDRESS}-{number}:9092", f"{ADDRESS}://{number}"


def leave(number: str) -> None:
    """Forget a namespace."""
    _OPEN.pop(number, None)


def find(address: str) -> Backend | None:
    """Return the namespace that bootstrap servers or a Redis URL name; None if they name no in-memory namespace.

    Raises:
        ValueError: The namespace that they name is not open in this process.
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
