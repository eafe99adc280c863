"""The place where an observer of the SDK's work is set; without one, each place that reports does nothing but look here."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Gets reports of the SDK's work, from any thread; it must not raise and must not wait."""

    def on_redis_call(self, seconds: float, error: BaseException | None) -> None:
        """Note a call to Redis, its duration with retries included, and its error."""
        ...

    def on_kafka_request(self, seconds: float, error: BaseException | None) -> None:
        """Note a request for offsets or topics to Kafka, its duration with retries included, and its error."""
        ...

    def on_kafka_store(self, seconds: float, failures: int) -> None:
        """Note that records were given to Kafka together, how long they took to be acknowledged, and how many were not."""
        ...

    def on_send(self, entity: str, count: int) -> None:
        """Note messages that a sender stored."""
        ...

    def on_receive(self, entity: str, count: int) -> None:
        """Note messages that a receiver handed out."""
        ...

    def on_settlement(self, entity: str, outcome: str, count: int) -> None:
        """Note messages that a receiver settled, and how."""
        ...

    def on_error(self, entity: str, operation: str, error: BaseException) -> None:
        """Note the error of a call of a sender or receiver."""
        ...

    def on_rebuild(self, count: int) -> None:
        """Note ledgers that were rebuilt because Redis had lost them."""
        ...


observer: Observer | None = None
"""The observer of this process; None: there is none."""
