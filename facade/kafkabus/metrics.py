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


class _ProcessMetrics:
    """The counters of a process.

    Args:
        registry: The registry that gets them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._sent = Counter(
            "kafkabus_client_sent_messages_total",
            "Messages that senders of this process stored; in transactions, when these are committed.",
            ["entity"],
            registry=registry,
        )
        self._received = Counter(
            "kafkabus_client_received_messages_total",
            "Messages that receivers of this process handed out.",
            ["entity"],
            registry=registry,
        )
        self._settled = Counter(
            "kafkabus_client_settled_messages_total",
            "Messages that receivers of this process settled, by outcome: complete, abandon, defer or dead_letter.",
            ["entity", "outcome"],
            registry=registry,
        )
        self._errors = Counter(
            "kafkabus_client_errors_total",
            "Calls of senders and receivers of this process that raised an error, by the error's class.",
            ["entity", "operation", "error"],
            registry=registry,
        )
        self._redis_calls = Histogram(
            "kafkabus_redis_call_seconds",
            "Durations of calls to Redis, retries included.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self._redis_errors = Counter(
            "kafkabus_redis_errors_total", "Calls to Redis that failed, also after retries.", registry=registry
        )
        self._kafka_requests = Histogram(
            "kafkabus_kafka_request_seconds",
            "Durations of requests to Kafka for topics and offsets, retries included.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self._kafka_errors = Counter(
            "kafkabus_kafka_errors_total",
            "Requests to Kafka that failed, also after retries, and records that Kafka did not acknowledge.",
            registry=registry,
        )
        self._kafka_stores = Histogram(
            "kafkabus_kafka_store_seconds",
            "Durations from giving records to Kafka's client until all of them were acknowledged or given up.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self._rebuilds = Counter(
            "kafkabus_rebuilt_ledgers_total",
            "Ledgers of partitions that this process rebuilt from checkpoints, because Redis had lost them.",
            registry=registry,
        )

    def unregister(self) -> None:
        """Take the counters out of their registry."""
        for metric in vars(self).values():
            if isinstance(metric, (Counter, Histogram)):
                self._registry.unregister(metric)

    def redis_called(self, seconds: float, error: BaseException | None) -> None:
        """Note a call to Redis."""
        self._redis_calls.observe(seconds)
        if error is not None:
            self._redis_errors.inc()

    def kafka_asked(self, seconds: float, error: BaseException | None) -> None:
        """Note a request to Kafka."""
        self._kafka_requests.observe(seconds)
        if error is not None:
            self._kafka_errors.inc()

    def kafka_stored(self, seconds: float, failures: int) -> None:
        """Note records that were given to Kafka."""
        self._kafka_stores.observe(seconds)
        if failures:
            self._kafka_errors.inc(failures)

    def on_sent(self, entity: str, count: int) -> None:
        """Note messages that were sent."""
        self._sent.labels(entity).inc(count)

    def on_received(self, entity: str, count: int) -> None:
        """Note messages that were received."""
        self._received.labels(entity).inc(count)

    def on_settled(self, entity: str, outcome: str, count: int) -> None:
        """Note messages that were settled."""
        self._settled.labels(entity, outcome).inc(count)

    def on_failure(self, entity: str, operation: str, error: BaseException) -> None:
        """Note a call that raised an error."""
        self._errors.labels(entity, operation, type(error).__name__).inc()

    def rebuilt(self, count: int) -> None:
        """Note ledgers that were rebuilt."""
        self._rebuilds.inc(count)
