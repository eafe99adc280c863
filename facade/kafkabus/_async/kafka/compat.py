"""Waiting for Kafka's acknowledgements in tasks; ``kafkabus/_sync/kafka/compat.py`` is the twin for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from confluent_kafka import Producer

from kafkabus._async.compat import Pool
from kafkabus._kafka.closed import CLOSED
from kafkabus._kafka.delivery_reports import SERVE_SLICE, DeliveryReports


class Deliveries:
    """Serves a producer's acknowledgements while a task waits for any: one pool thread for all tasks.

    Args:
        producer: The producer that the records were given to.
        pool: Threads for blocking calls.
    """

    def __init__(self, producer: Producer, pool: Pool) -> None:
        self._producer = producer
        self._pool = pool
        self._guard = threading.Lock()
        self._waiting: set[Callable[[], object]] = set()
        self._serving = False

    async def wait(self, reports: DeliveryReports, timeout: float) -> bool:
        """Wait until each record of the reports was acknowledged or given up.

        Returns:
            Whether that is so; it is not if time ran out first, or the producer was closed.
        """
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(arrive)

        reports.when_done(wake)
        with self._guard:
            if self._producer is CLOSED:
                return reports.is_done
            self._waiting.add(wake)
            serve = not self._serving
            self._serving = True
        if serve:
            self._pool.soon(self._pool.run(self._serve))
        try:
            # Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes just when they arrive.
            await asyncio.wait([arrived], timeout=timeout)
        finally:
            with self._guard:
                self._waiting.discard(wake)
        return reports.is_done

    def _serve(self) -> None:
        while True:
            with self._guard:
                producer = self._producer
                if not self._waiting or producer is CLOSED:
                    self._serving = False
                    return
            producer.flush(SERVE_SLICE)

    def close(self) -> None:
        """Let the producer go; tasks that wait wait no longer."""
        with self._guard:
            self._producer = CLOSED
            waiting = list(self._waiting)
        for wake in waiting:
            wake()
