"""Work on topics alone: settings shared with their subscriptions, logs that became shorter, scheduled messages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import LedgerState, Look, Seen, Seize, new_lease
from kafkabus.upkeep.deadline import RETRY_AFTER, Deadline
from kafkabus.upkeep.scheduled_messages import ScheduledMessages

SHARE_EVERY = 10.0
"""How often, in seconds, to check whether a topic's subscriptions have the topic's settings."""
SHORT_FOR = 10.0
"""For how long, in seconds, a log is shorter than a topic knew it before the topic continues with what is left."""


class TopicMaintenance:
    """Maintains one topic; its subscriptions are entities themselves.

    Args:
        context: The service's parts.
        deadline: When the topic is maintained next.
        scheduled: The topic's scheduled messages.
    """

    __slots__ = ("_context", "_deadline", "_scheduled", "_share_at", "_short_since")

    def __init__(self, context: ClientContext, deadline: Deadline, scheduled: ScheduledMessages) -> None:
        self._context = context
        self._deadline = deadline
        self._scheduled = scheduled
        self._share_at = 0.0
        self._short_since: dict[int, float] = {}

    def reset(self) -> None:
        """Forget the logs' lengths: the topic is another one."""
        self._short_since = {}

    async def check_ends(self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int]) -> None:
        """Have a topic continue with what is left of a log that is shorter than the topic knew it.

        A subscription's reader knows better from where on, and is given time to do so first.

        Args:
            entity: The topic.
            states: The states of its ledgers, by partition; None: Redis lost it.
            ends: The ends of its logs.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        now = time.monotonic()
        short = [partition for partition, state in enumerate(states) if state and state.cursor > ends[partition]]
        self._short_since = {partition: self._short_since.get(partition, now) for partition in short}
        for partition, since in self._short_since.items():
            if now - since >= SHORT_FOR:
                await self._context.maintenance.recovery.recover_from_truncation(entity, partition, None)
            self._deadline.advance_within(RETRY_AFTER)

    async def run(self, entity: Entity, looks: Sequence[Look | None], ends: Mapping[int, int]) -> None:
        """Maintain the topic: its scheduled messages are its own, all others its subscriptions'.

        Args:
            entity: The topic.
            looks: Its ledgers, by partition; None: Redis lost it.
            ends: The ends of its logs; with duplicate detection, the offsets up to which these were judged.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        context = self._context
        if time.monotonic() >= self._share_at:
            self._share_at = time.monotonic() + SHARE_EVERY
            await context.maintenance.lifecycle.share(entity.description)
        else:
            self._deadline.advance(self._share_at)
        for partition, look in enumerate(looks):
            if look is None or not (look.state.schedules or entity.detects_duplicates):
                continue
            if look.state.moving or look.is_due:
                await context.transfers.finish(entity, partition)
            await self._scheduled.enqueue(entity, look.state, partition, ends[partition])
            searched = self._scheduled.search_end(partition)
            if searched > look.state.cursor:
                # The other records among them are no concern of the topic's own ledger.
                seen = Seen(look.state.cursor, searched, ())
                await context.ledger_client.execute(Seize(entity.ledgers[partition], new_lease(), [], 1, seen))

    async def slowest(self, entity: Entity) -> list[LedgerState | None]:
        """Return, for each of a topic's partitions, the ledger of the subscription with the most to receive; None: none.

        Raises:
            ServiceBusError: Redis cannot be reached.
        """
        readers = await self._context.catalog.readers_of(entity)
        states = [await self._context.ledger_client.states(reader.ledgers) for reader in readers]
        return [
            min((state for state in of_partition if state is not None), key=lambda state: state.cursor, default=None)
            for of_partition in zip(*states, strict=True)
        ] or [None] * entity.partitions
