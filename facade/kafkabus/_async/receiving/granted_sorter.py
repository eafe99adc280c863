"""Messages that were granted, and that no receiver gets now: they are scheduled, duplicates, expired, or not wanted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kafkabus._async.receiving.log_reader import LogReader, ReaderParts
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._core.delivery import Delivery
from kafkabus._core.duplicate_detection import home_of
from kafkabus._core.record import Record


class GrantedSorter:
    """Sorts the messages that a reader's claims were granted.

    Args:
        parts: The parts of the client.
        log: The reader of the entity's logs.
    """

    def __init__(self, parts: ReaderParts, log: LogReader) -> None:
        self._parts = parts
        self._log = log

    async def sort_out(self, delivery: Delivery, records: list[Record]) -> list[Record]:
        """Return the messages that receivers get; the others go where they belong."""
        records = await self._log.schedule_held(delivery, records)
        if self._has_strays:
            records = await self._move_strays(delivery, records)
        records = await self._parts.dispositions.as_received(self._log.entity, delivery, records)
        return await as_changed(self._parts.connections, self._log.entity.ledgers[delivery.partition], records)

    @property
    def _has_strays(self) -> bool:
        """Whether plain producers may have stored messages in other partitions than those of their ids."""
        log = self._log
        return log.entity.detects_duplicates and log.entity.partitions > 1 and log.subscription_filter is None

    @property
    def may_move(self) -> bool:
        """Whether messages that were granted may have to go elsewhere all the same."""
        subscription_filter = self._log.subscription_filter
        return self._has_strays or (subscription_filter is not None and subscription_filter.may_fail)

    async def _move_strays(self, delivery: Delivery, records: Sequence[Record]) -> list[Record]:
        """Move messages to the partitions of their ids, where their duplicates are found; return the others."""
        here, by_home = delivery.partition, defaultdict[int, list[Record]](list)
        for record in records:
            home = home_of(self._log.entity, record)
            by_home[here if home is None else home].append(record)
        own = by_home.pop(here, [])
        for home, strays in by_home.items():
            await self._parts.dispositions.move(self._log.entity, delivery, home, strays)
        return own
