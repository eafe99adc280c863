"""For users' own tests: a namespace in memory, with the same API.

`InMemoryNamespace` needs neither Kafka nor Redis, and moves time instead of waiting.
"""

from kafkabus.testing.namespace import InMemoryNamespace

__all__ = ["InMemoryNamespace"]
