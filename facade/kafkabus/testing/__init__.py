"""An in-memory namespace for the tests of applications, with the same API.

`InMemoryNamespace` needs neither Kafka nor Redis, and tests can advance its time instead of waiting.
"""

from kafkabus.testing.namespace import InMemoryNamespace

__all__ = ["InMemoryNamespace"]
