"""Changing the rules of a subscription, so that each counts from a definite offset of each log on.

The description says first which rules there will be. Then each ledger is told, which grants nothing any more that was chosen
by earlier rules, and says from where on the new ones count: who tells it first decides. The description says last what the
ledgers said. Whoever finds a change half done can go on with it, any number of times. One client at a time does so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkabus.entity import Entity
from kafkabus.ledger.operations import Rule
from kafkabus.management.rules import DEFAULT_RULE
from kafkabus_mapping.entities import RuleSet, SubscriptionDescription
from kafkabus_mapping.filters.rules import RuleDescription

if TYPE_CHECKING:
    from kafkabus.aio.directory import Turn
    from kafkabus.aio.services import Services


async def change_rules(
    services: Services, turn: Turn, description: SubscriptionDescription, rules: Sequence[RuleDescription]
) -> SubscriptionDescription:
    """Give a subscription other rules.

    Args:
        services: The client's connections.
        turn: This client's, at changing the subscription.
        description: The subscription, as ``settle_rules`` returned it in that turn.
        rules: All that it is to have.

    Raises:
        ServiceBusCommunicationError: Kafka or Redis cannot be reached; the change may be half done, and is then done by upkeep.
    """
    ordered = sorted(rules, key=lambda rule: (rule.name != DEFAULT_RULE, rule.name.lower()))
    changing = description.model_copy(update={"changing": tuple(ordered)})
    await turn.check()
    await services.directory.put(changing)
    return await settle_rules(services, turn, changing)


async def settle_rules(services: Services, turn: Turn, description: SubscriptionDescription) -> SubscriptionDescription:
    """Go on with a change of rules that is under way, where one is; returns the subscription as it is described then.

    Args:
        services: The client's connections.
        turn: This client's, at changing the subscription.
        description: The subscription, as it was read in that turn.

    Raises:
        OperationTimeoutError: The turn is over; the change is half done, and is then done by upkeep.
        ServiceBusCommunicationError: Kafka or Redis cannot be reached.
    """
    if description.changing is None:
        return description
    entity, partitions = await services.entity_of(description), range(description.partitions)
    version = description.rules_version + 1
    ends = await services.pool.run(services.topics.ends, description.topic, partitions)
    told = [Rule(ledger, version, ends[ledger.partition]) for ledger in entity.ledgers]
    await services.courier.ask(*told)
    new = RuleSet(rules=description.changing, offsets=tuple(one.counts_from for one in told))
    settled = description.model_copy(
        update={
            "changing": None,
            "rules_version": version,
            "rule_sets": (*await _still_counting(services, entity, description), new),
        }
    )
    await turn.check()
    await services.directory.put(settled)
    return settled


async def _still_counting(
    services: Services, entity: Entity, description: SubscriptionDescription
) -> Sequence[RuleSet]:
    """Those of its rule sets by which messages were chosen that are not settled, or that the log has."""
    starts = await services.pool.run(services.topics.starts, entity.topic, range(entity.partitions))
    needed = dict(starts)
    for ledger in entity.ledgers:
        snapshot = await services.checkpoints.read(ledger.keys.prefix)
        needed[ledger.partition] = min(starts[ledger.partition], 0 if snapshot is None else snapshot.watermark)
    sets = list(description.rule_sets)
    while len(sets) > 1 and all(offset <= needed[partition] for partition, offset in enumerate(sets[1].offsets)):
        del sets[0]
    return sets
