"""Waiting for Kafka's acknowledgements in threads; ``kafkabus/_async/kafka/compat.py`` is the twin for tasks."""

from __future__ import annotations

import threading
import time
from collections import deque

from confluent_kafka import Producer

from kafkabus._kafka.closed import CLOSED
from kafkabus._kafka.delivery_reports import SERVE_SLICE, DeliveryReports
from kafkabus._sync.compat import Pool


class Deliveries:
    """Serves a producer's acknowledgements: of the threads that wait, one serves for all and then hands over.

    A thread that sends alone so pays for no change of threads.

    Args:
        producer: The producer that the records were given to.
        pool: Not used here.
    """

    def __init__(self, producer: Producer, pool: Pool) -> None:  # noqa: ARG002 - the twin needs it
        self._producer = producer
        self._turn = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def wait(self, reports: DeliveryReports, timeout: float) -> bool:
        """Wait until each record of the reports was acknowledged or given up.

        Returns:
            Whether that is so; it is not if time ran out first, or the producer was closed.
        """
        deadline = time.monotonic() + timeout
        while not reports.is_done:
            producer, left = self._producer, deadline - time.monotonic()
            if left <= 0 or producer is CLOSED:
                # A thread that handed the turn over to this one relies on it being taken.
                self._hand_over()
                return False
            if self._turn.acquire(blocking=False):
                try:
                    producer.flush(min(SERVE_SLICE, left))
                finally:
                    self._turn.release()
                    self._hand_over()
            else:
                self._wait_for_turn(reports, left)
        return True

    def _wait_for_turn(self, reports: DeliveryReports, timeout: float) -> None:
        wake = threading.Event()
        self._waiting.append(wake)
        reports.when_done(wake.set)
        # The serving thread may have left between the failed attempt and the entry above: then no thread would wake this one.
        if self._turn.locked():
            wake.wait(timeout)
        wake.set()

    def _hand_over(self) -> None:
        while self._waiting:
            wake = self._waiting.popleft()
            if not wake.is_set():
                wake.set()
                return

    def close(self) -> None:
        """Let the producer go; threads that wait wait no longer."""
        self._producer = CLOSED
        self._hand_over()
