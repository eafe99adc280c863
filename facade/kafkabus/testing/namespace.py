"""The in-memory namespace: the SDK itself, over a log and ledgers in this process."""

from __future__ import annotations

import time
import uuid
from types import TracebackType

from typing_extensions import Self

from kafkabus._core import in_memory_registry
from kafkabus._core.settings import parse_settings
from kafkabus.testing.log import Cluster, MemoryConsumer, MemoryProducer, MemoryTopics
from kafkabus.testing.store import AsyncMemoryRedis, MemoryRedis, Store
from kafkabus.testing.upkeep_thread import UpkeepThread
from kafkabus_mapping.connection import format_connection_string


class InMemoryNamespace:
    """A namespace for unit tests: without Kafka and Redis, without installation, and with a clock that tests can advance.

    Blocking and asyncio clients use it through its connection string, within the ``with`` block and within this process.
    They run the same code as elsewhere, over a log and ledgers in memory. No data outlives the block. Speed and faults
    differ from those of a real namespace.

    Args:
        namespace: The name, as in ``sb://<name>.servicebus.windows.net``; every instance is a separate namespace.
        upkeep: Whether to run the upkeep, so that messages expire and are dead-lettered without a receiver.

    Examples:
        >>> from kafkabus import ServiceBusClient, ServiceBusMessage
        >>> from kafkabus.management import ServiceBusAdministrationClient
        >>> from kafkabus.testing import InMemoryNamespace
        >>> with InMemoryNamespace() as namespace:
        ...     with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as admin:
        ...         _ = admin.create_queue("orders", enable_partitioning=True)
        ...     with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        ...         with client.get_queue_sender("orders") as sender:
        ...             sender.send_messages(ServiceBusMessage(b"an order"))
        ...         with client.get_queue_receiver("orders") as receiver:
        ...             [order] = receiver.receive_messages()
        ...             namespace.advance(61)  # its lock expires
        ...             [again] = receiver.receive_messages()
        ...             print(str(again), again.delivery_count)
        an order 1
    """

    def __init__(self, namespace: str = "memory", *, upkeep: bool = True) -> None:
        self._name = namespace
        self._ahead_ms = 0
        self._number = uuid.uuid4().hex[:12]
        self._cluster = Cluster(self._now_ms)
        self._store = Store(self._now_ms)
        self._wants_upkeep = upkeep
        self._upkeep: UpkeepThread | None = None
        self._connection_string = ""

    @property
    def connection_string(self) -> str:
        """The connection string for clients in this process.

        Raises:
            RuntimeError: The namespace is not open.
        """
        if not self._connection_string:
            raise RuntimeError("the in-memory namespace is not open: use it in a 'with' statement")
        return self._connection_string

    def advance(self, seconds: float) -> None:
        """Advance the namespace's time: locks and times to live that end by then have expired in the next call of any client.

        Args:
            seconds: The time to advance by, 0 or more.

        Raises:
            ValueError: The argument is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds={seconds!r}: time does not go back; give 0 or more")
        self._ahead_ms += round(seconds * 1000)
        self._store.ring_all()

    def __enter__(self) -> Self:
        servers, redis_url = in_memory_registry.enter(self, self._number)
        self._connection_string = format_connection_string(
            {
                "Endpoint": f"sb://{self._name}.servicebus.windows.net/",
                "SharedAccessKeyName": "memory",
                "SharedAccessKey": "memory",
                "KafkaBootstrapServers": servers,
                "Redis": redis_url,
            }
        )
        if self._wants_upkeep:
            self._upkeep = UpkeepThread(parse_settings(self._connection_string)).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._upkeep is not None:
            self._upkeep.__exit__(kind, error, trace)
        in_memory_registry.leave(self._number)
        self._connection_string = ""

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    # Substitutes for the clients of Kafka and Redis.

    def producer(self, transactional_id: str) -> MemoryProducer:
        """Return a substitute for ``confluent_kafka.Producer``."""
        return MemoryProducer(self._cluster, transactional_id)

    def consumer(self) -> MemoryConsumer:
        """Return a substitute for ``confluent_kafka.Consumer``."""
        return MemoryConsumer(self._cluster)

    def topics(self) -> MemoryTopics:
        """Return a substitute for ``kafkabus._kafka.topic_admin.Topics``."""
        return MemoryTopics(self._cluster)

    def redis(self) -> MemoryRedis:
        """Return a substitute for ``redis.Redis``."""
        return MemoryRedis(self._store)

    def async_redis(self) -> AsyncMemoryRedis:
        """Return a substitute for ``redis.asyncio.Redis``."""
        return AsyncMemoryRedis(self._store)
