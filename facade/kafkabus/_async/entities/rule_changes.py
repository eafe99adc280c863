"""Changing the rules of a subscription, so that each counts from a definite offset of each log on.

That is where the log ends, records of open transactions included: acknowledged messages may be stored behind the first of
these, and the earlier rules apply to them. They also apply to a transaction's messages that were sent before, whenever it is
committed.

The description says first which rules there will be. Then the client notifies each ledger, which grants nothing any more that
earlier rules chose, and answers from which offset on the new ones count: the first client that notifies it decides. The
description says last what the ledgers answered. A client that finds a change half done can go on with it, any number of times.
One client at a time does so.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.entity_descriptions import DescriptionLock, EntityDescriptions
from kafkabus._core.exceptions import ServiceBusQuotaExceededError
from kafkabus._core.rule_properties import DEFAULT_RULE
from kafkabus._ledger.operations import SetRulesVersion
from kafkabus._ledger.ranges import NEVER
from kafkabus_mapping.entities import RuleSet, SubscriptionDescription
from kafkabus_mapping.filters.rules import RuleDescription

LARGEST = 1_900_000
"""Most bytes of a subscription's description with its rules; other changes of it have room beyond."""


class RuleChanges:
    """Changes the rules of subscriptions.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        catalog: The client's entities.
        checkpoints: The checkpoints of ledgers.
    """

    def __init__(
        self,
        connections: Connections,
        descriptions: EntityDescriptions,
        catalog: EntityCatalog,
        checkpoints: Checkpoints,
    ) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._checkpoints = checkpoints

    async def change(
        self, lock: DescriptionLock, description: SubscriptionDescription, rules: Sequence[RuleDescription]
    ) -> SubscriptionDescription:
        """Give a subscription other rules.

        Args:
            lock: This client's turn at changing the subscription.
            description: The subscription, as ``settle`` returned it in that turn.
            rules: All rules that it is to have.

        Raises:
            ServiceBusQuotaExceededError: The rules are too large; nothing was changed.
            OperationTimeoutError: The turn is over; the change may be half done, and upkeep then finishes it.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; upkeep finishes a change that is half done.
        """
        ordered = sorted(rules, key=lambda rule: (rule.name.lower() != DEFAULT_RULE.lower(), rule.name.lower()))
        sets = await self._still_counting(description)
        changing = description.model_copy(update={"changing": tuple(ordered), "rule_sets": sets})
        _check_size(changing)
        await lock.check()
        await self._descriptions.put(changing)
        return await self.settle(lock, changing)

    async def settle(self, lock: DescriptionLock, description: SubscriptionDescription) -> SubscriptionDescription:
        """Go on with a change of rules, if one is under way; return the subscription as it is described then.

        Args:
            lock: This client's turn at changing the subscription.
            description: The subscription, as it was read in that turn.

        Raises:
            OperationTimeoutError: The turn is over; the change is half done, and upkeep then finishes it.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if description.changing is None:
            return description
        entity, partitions = await self._catalog.entity_of(description), range(description.partitions)
        version = description.rules_version + 1
        ends = await self._connections.topics.stored_ends(description.topic, partitions)
        told = [SetRulesVersion(ledger, version, ends[ledger.partition]) for ledger in entity.ledgers]
        await self._connections.ledger_client.execute(*told)
        settled = _settle_rules(description, tuple(rule.counts_from for rule in told))
        await lock.check()
        await self._descriptions.put(settled)
        return settled

    async def _still_counting(self, description: SubscriptionDescription) -> tuple[RuleSet, ...]:
        """Return the subscription's rule sets that chose messages that are not settled, or that the log has."""
        entity = await self._catalog.entity_of(description)
        starts = await self._connections.topics.starts(entity.topic, range(entity.partitions))
        needed = dict(starts)
        for ledger in entity.ledgers:
            snapshot = await self._checkpoints.read(ledger.keys.prefix)
            needed[ledger.partition] = min(starts[ledger.partition], 0 if snapshot is None else snapshot.watermark)
        sets = list(description.rule_sets)
        while len(sets) > 1 and all(offset <= needed[partition] for partition, offset in enumerate(sets[1].offsets)):
            del sets[0]
        return tuple(sets)


def _settle_rules(description: SubscriptionDescription, offsets: tuple[int, ...]) -> SubscriptionDescription:
    """Return a subscription's description once its new rules count from these offsets on, by partition."""
    # Earlier rules that count from the same offsets on are about no stored message.
    earlier = [rule_set for rule_set in description.rule_sets if rule_set.offsets != offsets]
    new = RuleSet(rules=description.changing or (), offsets=offsets)
    return description.model_copy(
        update={"changing": None, "rules_version": description.rules_version + 1, "rule_sets": (*earlier, new)}
    )


def _check_size(changing: SubscriptionDescription) -> None:
    """Refuse rules that cannot be written down once they count, from whatever offset on.

    Raises:
        ServiceBusQuotaExceededError: The rules are too large.
    """
    size = len(_settle_rules(changing, (NEVER,) * changing.partitions).to_text().encode())
    if size > LARGEST:
        raise ServiceBusQuotaExceededError(
            f"the description of {changing.name!r} would have {size:,} bytes, and may have {LARGEST:,}: use fewer or shorter "
            "rules; rules that were changed count until the messages are settled that were sent before"
        )
