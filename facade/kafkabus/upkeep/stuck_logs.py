"""Logs that cannot be read on, because a Kafka transaction in them does not end."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity

LOGGER = logging.getLogger("kafkabus.upkeep")

LOOK_EVERY = 30.0
"""How often, in seconds, to look: by then Kafka has ended any transaction that a client of kafkabus left open."""


class StuckLogs:
    """Reports which logs of an entity cannot be read on; each place once.

    Args:
        context: The service's parts.

    Attributes:
        next_at: When to look again, on the monotonic clock.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.next_at = math.inf
        self._look_at = time.monotonic() + LOOK_EVERY
        self._seen: dict[int, int] = {}
        self._told: set[tuple[int, int]] = set()

    async def look(self, entity: Entity, ends: Mapping[int, int]) -> None:
        """Report, now and then, logs whose committed records end before the stored ones, at the same place as last time.

        Args:
            entity: The entity.
            ends: The end of the committed records of each log.

        Raises:
            ServiceBusError: Kafka cannot be reached.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY
        stored = await self._context.topics.stored_ends(entity.topic, list(ends))
        behind = {partition: end for partition, end in ends.items() if end < stored[partition]}
        stuck = behind.items() & self._seen.items()
        for partition, end in sorted(stuck - self._told):
            LOGGER.error(
                "log_stuck entity=%s topic=%s partition=%d offset=%d behind=%d: a Kafka transaction has been open there for "
                "more than %g s, and nothing behind it is received before it ends. Kafka aborts it when its own timeout is "
                "over; if it does not, 'kafka-transactions.sh find-hanging' lists it. Its 'abort' ends it, and loses "
                "what it sent to this log, even if the rest of the transaction was committed: copy those records first",
                entity.path,
                entity.topic,
                partition,
                end,
                stored[partition] - end,
                LOOK_EVERY,
            )
        self._seen, self._told = behind, set(stuck)
        self.next_at = self._look_at if behind else math.inf
