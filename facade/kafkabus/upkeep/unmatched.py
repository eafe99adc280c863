"""Messages of a topic that no subscription wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity, filter_of
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.record import exclude_records
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.operations import Settlement
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus_mapping.entities import SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import EntityPath

WAITS_FOR_RULES = 5.0
"""For how long, in seconds, a change of rules that is under way is waited for: well within the lock of the messages."""
LOOKS_EVERY = 0.02
"""How often, in seconds, the descriptions are read meanwhile."""


class Unmatched(NamedTuple):
    """Messages that no subscription wants.

    Attributes:
        grants: The messages.
        destination: The path that they move on to; None: they stay.
    """

    grants: list[Grant]
    destination: EntityPath | None


class UnmatchedMessages:
    """Finds the messages of one topic that no subscription wants, by the rules that count at their offsets.

    The verdict agrees with what each subscription gets. The descriptions are read after the messages: a change of rules that
    they do not show yet begins later, and counts from where the logs end then, behind these messages. If they show one that is
    under way, it is waited for, as it may count from before them.

    Args:
        context: The service's parts.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._filters: dict[str, tuple[SubscriptionDescription, SubscriptionFilter]] = {}

    async def judge(self, entity: Entity, grants: Sequence[Grant]) -> Unmatched:
        """Settle those of some messages that a subscription wants; return the others, and where they go.

        Args:
            entity: The subscription by which the topic is read.
            grants: Messages that were granted to it.

        Raises:
            MessagingEntityNotFoundError: The topic is gone.
            ServiceBusError: Rules are being changed for long, or Kafka or Redis cannot be reached.
        """
        topic, filters = await self._read_filters(entity)
        settlements: list[Settlement] = []
        for grant in grants:
            left = grant.records
            for subscription_filter in filters:
                if left:
                    left = exclude_records(left, subscription_filter.select_wanted(left))
            if len(left) < len(grant.records):
                wanted, ledger = exclude_records(grant.records, left), entity.ledgers[grant.delivery.partition]
                settlements.append(Settlement(ledger, "complete", grant.delivery.lease, runs_of(wanted)))
                grant.records = left
        if settlements:
            await self._context.ledger_client.execute(*settlements)
        destination = None if topic.unmatched_to is None else EntityPath(topic.unmatched_to)
        return Unmatched([grant for grant in grants if grant.records], destination)

    async def _read_filters(self, entity: Entity) -> tuple[TopicDescription, list[SubscriptionFilter]]:
        """Return the topic and the filters of its subscriptions, as they are described now."""
        deadline = time.monotonic() + WAITS_FOR_RULES
        while True:
            topic, subscriptions = await self._read_topic(entity)
            changing = [subscription for subscription in subscriptions if subscription.changing is not None]
            if not changing:
                break
            if time.monotonic() >= deadline:
                raise ServiceBusError(f"{entity.path} waits: the rules of {changing[0].name} are being changed")
            await asyncio.sleep(LOOKS_EVERY)
        before, self._filters = self._filters, {}
        for subscription in subscriptions:
            known = before.get(subscription.name)
            # Compiled rules are kept for as long as nothing of the subscription changes.
            if known is None or known[0] != subscription:
                known = subscription, filter_of(subscription)
            self._filters[subscription.name] = known
        return topic, [subscription_filter for _, subscription_filter in self._filters.values()]

    async def _read_topic(self, entity: Entity) -> tuple[TopicDescription, list[SubscriptionDescription]]:
        context, name = self._context, entity.log_path.name
        # The cache may be behind what another client wrote before it ended.
        await context.descriptions.catch_up()
        topic = await context.descriptions.get(name)
        if not isinstance(topic, TopicDescription) or topic.topic_id != entity.topic_id:
            raise MessagingEntityNotFoundError(f"topic {name} was deleted, or created again")
        live = await context.catalog.live_subscriptions_of(topic)
        return topic, [subscription for subscription in live if not subscription.is_unmatched]
