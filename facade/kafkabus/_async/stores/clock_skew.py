"""The brokers' clock, by which times to live, scheduled times and idleness go.

A record made for the purpose shows the brokers' time at a moment of this process's monotonic clock, which nobody sets. So
nothing comes early because Redis's clock was set (docs/decisions/0033-clocks-that-are-set.md).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from kafkabus._async.compat import Lock
from kafkabus._async.connections import Connections
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._kafka.delivery_reports import UNKNOWN_OFFSET
from kafkabus._kafka.topic_admin import CLOCK_TOPIC
from kafkabus._ledger.operations import Claim

LOGGER = logging.getLogger("kafkabus")

MEASURED_EVERY = 60.0
"""How old, in seconds, a measurement may be."""
STEP = 1000
"""By how many milliseconds a clock has to be off what it should show for it to have been set."""
WORTH_A_WARNING = 1000
"""By how many milliseconds clocks may differ without anybody being told."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What clocks show at the beginning of the monotonic clock, ms since 1970.

    Attributes:
        at: When that was measured, in seconds on the monotonic clock.
        brokers_ms: Of the brokers' clock, or a little less.
        ledgers_ms: Of the clock of the ledgers that were asked for it.
    """

    at: float
    brokers_ms: float
    ledgers_ms: float


class ClockSkew:
    """What a client knows of the clocks.

    Args:
        connections: The client's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic("clock", CLOCK_TOPIC)
        self._lock = Lock()
        self._known: dict[str, _Measured] = {}

    async def now_ms(self, entity: Entity, partition: int) -> int | None:
        """The time on the brokers' clock, or a little less, ms since 1970; None where that cannot be told now.

        No ledger's clock is asked for it, which may be set at any moment: then nothing comes early.

        Args:
            entity: For what.
            partition: Of the entity; what passed for tests alone in its ledger passed here, too.
        """
        known = self._valid(entity)
        if known is None:
            async with self._lock:
                known = self._valid(entity)
                if known is None:
                    try:
                        known = await self._measure(entity)
                    except ServiceBusError as error:
                        LOGGER.warning(
                            "clocks_unknown entity=%s error=%s: nothing expires meanwhile", entity.path, error
                        )
                        return None
        return int(time.monotonic() * 1000 + known.brokers_ms + entity.ledgers[partition].skew_ms)

    def forget(self, entity: Entity) -> None:
        """Nobody asks of an entity any more, as it is gone, or another one."""
        self._known.pop(entity.holder_id, None)

    def _valid(self, entity: Entity) -> _Measured | None:
        """The last measurement, unless it is old, or a clock was set, or the machine slept since."""
        known = self._known.get(entity.holder_id)
        if known is None or time.monotonic() - known.at >= MEASURED_EVERY or _offset(entity) is None:
            return None
        for ledger in entity.ledgers:
            before = known.ledgers_ms if ledger.measured_at_ms is None else ledger.measured_at_ms
            if ledger.offset_ms is not None and abs(ledger.offset_ms - before) > STEP:
                return None
        return known

    async def _measure(self, entity: Entity) -> _Measured:
        # An answer with the ledger's time in it.
        await self._connections.ledger_client.execute(*(Claim.poll(ledger) for ledger in entity.ledgers))
        (offset,) = await self._topic.store("a record that shows the time", {None: None}, timeout=10.0)
        at = time.monotonic()
        if offset == UNKNOWN_OFFSET:
            raise ServiceBusError(f"a record was stored in {self._topic.name}, and the broker did not say where")
        record = await self._topic.read_one(offset)
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
    return max((one.offset_ms for one in entity.ledgers if one.offset_ms is not None), default=None)
