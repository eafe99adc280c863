"""Waiting for Kafka's acknowledgements in tasks; ``kafkabus/_sync/kafka/compat.py`` is the twin for threads."""

from __future__ import annotations

import asyncio
import threading

from confluent_kafka import Producer

from kafkabus._async.compat import Pool
from kafkabus._kafka.delivery_reports import SERVE_SLICE, DeliveryReports


class Deliveries:
    """Serves a producer's acknowledgements while a task waits for any: one pool thread for all tasks.

    Args:
        producer: The producer that the records were given to; `CLOSED` once it was closed.
        pool: Threads for blocking calls.
    """

    def __init__(self, producer: Producer, pool: Pool) -> None:
        self.producer = producer
        self._pool = pool
        self._guard = threading.Lock()
        self._waiting = 0
        self._serving = False

    async def wait(self, reports: DeliveryReports, timeout: float) -> bool:
        """Wait until each record of the reports was acknowledged or given up; return False if time ran out first."""
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        reports.when_done(lambda: loop.call_soon_threadsafe(arrive))
        with self._guard:
            self._waiting += 1
            serve = not self._serving
            self._serving = True
        if serve:
            self._pool.soon(self._pool.run(self._serve))
        try:
            # Not asyncio.wait_for: before Python 3.12 it forgets a cancellation that comes just when they arrive.
            await asyncio.wait([arrived], timeout=timeout)
        finally:
            with self._guard:
                self._waiting -= 1
        return reports.done

    def _serve(self) -> None:
        while True:
            self.producer.flush(SERVE_SLICE)
            with self._guard:
                if not self._waiting:
                    self._serving = False
                    return
