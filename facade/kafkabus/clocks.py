# Generated from facade/kafkabus/aio/clocks.py by tools/generate_blocking.py. Do not edit.
"""How far the ledgers' clock is ahead of the brokers', which must be known to tell whether a time to live is over.

A message was enqueued by the broker's clock, and its ledger judges by Redis's. A record made for the purpose shows the broker's
time between two moments of Redis's.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kafkabus._acompat import Lock
from kafkabus.entity import Entity
from kafkabus.exceptions import ServiceBusError
from kafkabus.ledger.operations import Claim
from kafkabus.log.parcel import UNKNOWN_OFFSET
from kafkabus.log.topics import CLOCK_TOPIC

if TYPE_CHECKING:
    from kafkabus.services import Services

LOGGER = logging.getLogger("kafkabus")

MEASURED_EVERY = 60.0
"""How old, in seconds, a measurement may be."""
WORTH_A_WARNING = 1000
"""By how many milliseconds clocks may differ without anybody being told."""


class Clocks:
    """What a client knows of the clocks.

    Args:
        services: The client's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._companion = services.companion("clock", CLOCK_TOPIC)
        self._lock = Lock()
        self._known: dict[str, tuple[float, int]] = {}

    def ahead_ms(self, entity: Entity) -> int | None:
        """By how many milliseconds at the most an entity's ledgers' clock is ahead of the brokers'; negative: it is behind.

        None where that cannot be told now: then nothing may be taken for expired.
        """
        known = self._known.get(entity.holder_id)
        if known is not None and time.monotonic() - known[0] < MEASURED_EVERY:
            return known[1]
        with self._lock:
            known = self._known.get(entity.holder_id)
            if known is not None and time.monotonic() - known[0] < MEASURED_EVERY:
                return known[1]
            try:
                ahead = self._measure(entity)
            except ServiceBusError as error:
                LOGGER.warning("clocks_unknown entity=%s error=%s: nothing expires meanwhile", entity.path, error)
                return None
            if abs(ahead) > WORTH_A_WARNING:
                LOGGER.warning(
                    "clocks_differ entity=%s ahead_ms=%d: Redis's clock against Kafka's; set both right",
                    entity.path,
                    ahead,
                )
            self._known[entity.holder_id] = (time.monotonic(), ahead)
            return ahead

    def _measure(self, entity: Entity) -> int:
        # An answer with the ledger's time in it.
        self._services.courier.ask(*(Claim.of_nothing(ledger) for ledger in entity.ledgers))
        (offset,) = self._companion.store("a record that shows the time", {None: None}, timeout=10.0)
        at = time.monotonic()
        if offset == UNKNOWN_OFFSET:
            raise ServiceBusError(f"a record was stored in {self._companion.name}, and the broker did not say where")
        record = self._companion.read_one(offset)
        return max(round(ledger.clock_ms(at)) for ledger in entity.ledgers) - record.timestamp()[1]
