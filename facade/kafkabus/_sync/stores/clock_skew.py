# Generated from facade/kafkabus/_async/stores/clock_skew.py by tools/generate_blocking.py. Do not edit.
"""The brokers' clock, which decides about times to live, scheduled times and idleness.

A record stored for the purpose shows the brokers' time at a moment of this process's monotonic clock, which cannot be set.
So nothing happens early because Redis's clock was set (docs/decisions/0033-monotonic-ledger-clocks.md).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._kafka.delivery_reports import UNKNOWN_OFFSET
from kafkabus._kafka.topic_admin import CLOCK_TOPIC
from kafkabus._ledger.operations import Claim
from kafkabus._sync.compat import Lock
from kafkabus._sync.connections import Connections

LOGGER = logging.getLogger("kafkabus")

MEASURED_EVERY = 60.0
"""How old, in seconds, a measurement may be."""
STEP = 1000
"""A clock that is off by more milliseconds than this counts as set."""
WORTH_A_WARNING = 1000
"""By how many milliseconds clocks may differ without a warning."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The readings of clocks, reckoned back to the beginning of the monotonic clock, ms since 1970.

    Attributes:
        at: When the clocks were measured, in seconds on the monotonic clock.
        brokers_ms: The reading of the brokers' clock, or a little less.
        ledgers_ms: The reading of the ledgers' clock; the greatest one if they differ.
    """

    at: float
    brokers_ms: float
    ledgers_ms: float


class ClockSkew:
    """A client's measurements of the clocks.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic("clock", CLOCK_TOPIC)
        self._lock = Lock()
        self._known: dict[str, _Measured] = {}

    def now_ms(self, entity: Entity, partition: int) -> int | None:
        """Return the time on the brokers' clock, or a little less, ms since 1970; None if it cannot be measured now.

        The time does not come from a ledger's clock, which may be set at any moment; so nothing happens early.

        Args:
            entity: The entity that the time is for.
            partition: A partition of the entity; time that passed only for a test in its ledger is added.
        """
        known = self._valid(entity)
        if known is None:
            with self._lock:
                known = self._valid(entity)
                if known is None:
                    try:
                        known = self._measure(entity)
                    except ServiceBusError as error:
                        LOGGER.warning(
                            "clocks_unknown entity=%s error=%s: nothing expires until they are known",
                            entity.path,
                            error,
                        )
                        return None
        return int(time.monotonic() * 1000 + known.brokers_ms + entity.ledgers[partition].skew_ms)

    def forget(self, entity: Entity) -> None:
        """Drop the measurement for an entity that is gone or was replaced."""
        self._known.pop(entity.holder_id, None)

    def _valid(self, entity: Entity) -> _Measured | None:
        """Return the last measurement, or None if it is missing or old, or if a clock was set or the machine slept since."""
        known = self._known.get(entity.holder_id)
        if known is None or time.monotonic() - known.at >= MEASURED_EVERY or _offset(entity) is None:
            return None
        for ledger in entity.ledgers:
            before = known.ledgers_ms if ledger.measured_at_ms is None else ledger.measured_at_ms
            if ledger.offset_ms is not None and abs(ledger.offset_ms - before) > STEP:
                return None
        return known

    def _measure(self, entity: Entity) -> _Measured:
        # Each reply has the ledger's time in it.
        self._connections.ledger_client.execute(*(Claim.poll(ledger) for ledger in entity.ledgers))
        (offset,) = self._topic.store("a record that shows the time", {None: None}, timeout=10.0)
        at = time.monotonic()
        if offset == UNKNOWN_OFFSET:
            raise ServiceBusError(f"a record was stored in {self._topic.name}, and the broker did not say where")
        record = self._topic.read_one(offset)
        ledgers_ms = _offset(entity) or 0.0
        measured = self._known[entity.holder_id] = _Measured(at, record.timestamp()[1] - at * 1000, ledgers_ms)
        for ledger in entity.ledgers:
            ledger.measured_at_ms = ledger.offset_ms
        ahead = ledgers_ms - measured.brokers_ms
        if abs(ahead) > WORTH_A_WARNING:
            LOGGER.warning(
                "clocks_differ entity=%s ahead_ms=%d: Redis's clock against Kafka's; set both right", entity.path, ahead
            )
        return measured


def _offset(entity: Entity) -> float | None:
    return max((ledger.offset_ms for ledger in entity.ledgers if ledger.offset_ms is not None), default=None)
