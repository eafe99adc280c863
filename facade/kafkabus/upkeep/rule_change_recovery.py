"""Completing changes of a subscription's rules that were cut off."""

from __future__ import annotations

import logging
import time

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus.upkeep.deadline import RETRY_AFTER, Deadline
from kafkabus_mapping.entities import SubscriptionDescription

LOGGER = logging.getLogger("kafkabus.upkeep")

CUT_OFF_AFTER = 10.0
"""After how many seconds a change of rules counts as cut off."""


class RuleChangeRecovery:
    """Completes changes of the rules of one subscription; other entities have none.

    Args:
        context: The service's parts.
        deadline: When the entity is maintained next.
    """

    __slots__ = ("_context", "_deadline", "_seen")

    def __init__(self, context: ClientContext, deadline: Deadline) -> None:
        self._context = context
        self._deadline = deadline
        # The number of the change under way, and when it was first seen.
        self._seen: tuple[int, float] | None = None

    async def run(self, entity: Entity) -> None:
        """Complete a change that has been under way for long.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        description = entity.description
        if (
            entity.subscription_filter is None
            or not isinstance(description, SubscriptionDescription)
            or description.changing is None
        ):
            self._seen = None
            return
        change = description.rules_version
        if self._seen is None or self._seen[0] != change:
            self._seen = change, time.monotonic()
            self._deadline.advance_within(CUT_OFF_AFTER)
        elif time.monotonic() - self._seen[1] >= CUT_OFF_AFTER:
            await self._complete(entity, change)
        else:
            self._deadline.advance_within(RETRY_AFTER)

    async def _complete(self, entity: Entity, change: int) -> None:
        context, name = self._context, entity.path.name
        async with context.descriptions.lock_for_change(name) as lock:
            known = await context.descriptions.get(name)
            if isinstance(known, SubscriptionDescription) and known.rules_version == change:
                LOGGER.warning("rules_settled entity=%s: a change of its rules was cut off", entity.path)
                await context.maintenance.rule_changes.settle(lock, known)
