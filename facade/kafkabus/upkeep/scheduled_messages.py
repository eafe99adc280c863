"""Enqueueing scheduled messages whose time has come."""

from __future__ import annotations

import time

from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.duplicate_scan import SCAN_FOR
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import LedgerState
from kafkabus._ledger.snapshot import VERSIONS_AHEAD
from kafkabus.upkeep.deadline import Deadline

SEARCHED_AT_ONCE = 2_000
"""How many records are searched in one go for scheduled ones."""


class ScheduledMessages:
    """Finds and enqueues the scheduled messages of one entity.

    Args:
        context: The service's parts.
        deadline: When the entity is maintained next.
    """

    __slots__ = ("_context", "_deadline", "_searched")

    def __init__(self, context: ClientContext, deadline: Deadline) -> None:
        self._context = context
        self._deadline = deadline
        # The offset up to which each partition was searched, and the version of its ledger then.
        self._searched: dict[int, tuple[int, int]] = {}

    def reset(self) -> None:
        """Forget all records: the entity is another one."""
        self._searched = {}

    def search_end(self, partition: int) -> int:
        """Return the offset up to which a partition was searched for scheduled messages."""
        return self._searched.get(partition, (0, 0))[0]

    async def enqueue(self, entity: Entity, state: LedgerState, partition: int, end: int) -> None:
        """Enqueue scheduled messages whose time has come; first find those that their senders did not report.

        Args:
            entity: The entity.
            state: The state of the partition's ledger.
            partition: The partition.
            end: The end of its log.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        searched, version = self._searched.get(partition, (0, 0))
        # A rebuilt ledger may know of fewer scheduled messages.
        at = state.cursor if state.version - version >= VERSIONS_AHEAD else max(state.cursor, searched)
        until = time.monotonic() + SCAN_FOR
        while at < end and time.monotonic() < until:
            upto = min(end, at + SEARCHED_AT_ONCE)
            records = await self._context.stores.archive.read(entity, partition, at, upto - 1)
            await self._context.dispositions.put_off(entity, partition, records)
            at = upto
        self._searched[partition] = (at, state.version)
        if at < end:
            self._deadline.advance_within(0)
        if state.scheduled:
            # Messages that are activated may have expired.
            await self._context.stores.clock_skew.now_ms(entity, partition)
            await self._context.dispositions.activate(entity, partition)
