"""Counters of this process's use of kafkabus, for Prometheus; they count from the call of ``instrument`` on.

Needs the extra ``metrics``::

    from prometheus_client import start_http_server

    from kafkabus.metrics import instrument

    instrument()
    start_http_server(8000)
"""

from __future__ import annotations

import threading

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from kafkabus._runtime import instruments

__all__ = ["instrument", "uninstrument"]

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the classes of durations, in seconds: half a millisecond up to the time after which calls fail."""
_guard = threading.Lock()


def instrument(registry: CollectorRegistry = REGISTRY) -> None:
    """Count what all clients of this process do, blocking and asyncio.

    A forked process counts for itself, from the numbers of its parent on.

    Args:
        registry: The registry of ``prometheus_client`` that gets the counters; its global one by default.

    Raises:
        ValueError: The process counts already; end that with ``uninstrument`` first.
    """
    with _guard:
        if instruments.observer is not None:
            raise ValueError("this process is instrumented already: call instrument once, or uninstrument before")
        instruments.observer = _ProcessMetrics(registry)


def uninstrument() -> None:
    """Count no more, and take the counters out of their registry; do nothing if there are none."""
    with _guard:
        observer, instruments.observer = instruments.observer, None
        if isinstance(observer, _ProcessMetrics):
            observer.unregister()


class _CallMetrics:
    """The counters of calls of senders and receivers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter(
            "kafkabus_client_sent_messages_total",
            "Messages that senders of this process stored; in transactions, when these are committed.",
            ["entity"],
            registry=registry,
        )
        self.received = Counter(
            "kafkabus_client_received_messages_total",
            "Messages that receivers of this process handed out.",
            ["entity"],
            registry=registry,
        )
        self.settled = Counter(
            "kafkabus_client_settled_messages_total",
            "Messages that receivers of this process settled, by outcome: complete, abandon, defer or dead_letter.",
            ["entity", "outcome"],
            registry=registry,
        )
        self.errors = Counter(
            "kafkabus_client_errors_total",
            "Calls of senders and receivers of this process that raised an error, by the error's class.",
            ["entity", "operation", "error"],
            registry=registry,
        )


class _RedisMetrics:
    """The metrics of calls to Redis, and of the ledgers that it lost."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Histogram(
            "kafkabus_redis_call_seconds",
            "Durations of calls to Redis, retries included.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self.errors = Counter(
            "kafkabus_redis_errors_total", "Calls to Redis that failed, also after retries.", registry=registry
        )
        self.rebuilds = Counter(
            "kafkabus_rebuilt_ledgers_total",
            "Ledgers of partitions that this process rebuilt from checkpoints, because Redis had lost them.",
            registry=registry,
        )


class _KafkaMetrics:
    """The metrics of requests to Kafka, and of stored records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Histogram(
            "kafkabus_kafka_request_seconds",
            "Durations of requests to Kafka for topics and offsets, retries included.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self.errors = Counter(
            "kafkabus_kafka_errors_total",
            "Requests to Kafka that failed, also after retries, and records that Kafka did not acknowledge.",
            registry=registry,
        )
        self.stores = Histogram(
            "kafkabus_kafka_store_seconds",
            "Durations from giving records to Kafka's client until all of them were acknowledged or given up.",
            registry=registry,
            buckets=_BUCKETS,
        )


class _ProcessMetrics:
    """The metrics of a process.

    Args:
        registry: The registry that gets them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._calls = _CallMetrics(registry)
        self._redis = _RedisMetrics(registry)
        self._kafka = _KafkaMetrics(registry)

    def unregister(self) -> None:
        """Take the counters out of their registry."""
        for metrics in (self._calls, self._redis, self._kafka):
            for metric in vars(metrics).values():
                self._registry.unregister(metric)

    def on_redis_call(self, seconds: float, error: BaseException | None) -> None:
        """Note a call to Redis."""
        self._redis.calls.observe(seconds)
        if error is not None:
            self._redis.errors.inc()

    def on_kafka_request(self, seconds: float, error: BaseException | None) -> None:
        """Note a request to Kafka."""
        self._kafka.requests.observe(seconds)
        if error is not None:
            self._kafka.errors.inc()

    def on_kafka_store(self, seconds: float, failures: int) -> None:
        """Note records that were given to Kafka."""
        self._kafka.stores.observe(seconds)
        if failures:
            self._kafka.errors.inc(failures)

    def on_send(self, entity: str, count: int) -> None:
        """Note messages that were sent."""
        self._calls.sent.labels(entity).inc(count)

    def on_receive(self, entity: str, count: int) -> None:
        """Note messages that were received."""
        self._calls.received.labels(entity).inc(count)

    def on_settlement(self, entity: str, outcome: str, count: int) -> None:
        """Note messages that were settled."""
        self._calls.settled.labels(entity, outcome).inc(count)

    def on_error(self, entity: str, operation: str, error: BaseException) -> None:
        """Note a call that raised an error."""
        self._calls.errors.labels(entity, operation, type(error).__name__).inc()

    def on_rebuild(self, count: int) -> None:
        """Note ledgers that were rebuilt."""
        self._redis.rebuilds.inc(count)
