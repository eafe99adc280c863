# Generated from facade/kafkabus/_async/engine/purge.py by tools/generate_blocking.py. Do not edit.
"""Purging: settling all waiting messages of an entity without receiving them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import Purge
from kafkabus._sync.context import ClientContext
from kafkabus_mapping.codec import to_milliseconds
from kafkabus_mapping.names import EntityPath

LOOKED_AT_ONCE = 1_000
"""How many offsets are read together to look for scheduled messages."""


def purge(context: ClientContext, path: EntityPath, before: datetime | None) -> int:
    """Settle the waiting messages of an entity; return how many offsets were passed.

    Args:
        context: The parts of the client.
        path: The queue or subscription, with its sub-queue.
        before: The time before which the messages were enqueued; None for all that are there now.

    Raises:
        ServiceBusError: There is no such entity, or Kafka or Redis cannot be reached.
    """
    entity = context.catalog.entity(path)
    topics, partitions = context.topics, range(entity.partitions)
    if before is None:
        upto = topics.ends(entity.topic, partitions)
    else:
        upto = topics.offsets_at(entity.topic, partitions, to_milliseconds(before))
    context.connections.notifications.note_use(entity)
    _put_off(context, entity, upto)
    purged = 0
    purges = [Purge(entity.ledgers[partition], offset) for partition, offset in upto.items()]
    while purges:
        context.ledger_client.execute(*purges)
        purged += sum(operation.purged for operation in purges)
        purges = [Purge(operation.ledger, operation.upto) for operation in purges if operation.more]
    return purged


def _put_off(context: ClientContext, entity: Entity, upto: Mapping[int, int]) -> None:
    """Keep scheduled messages from a purge, also those that were stored and that their ledger does not know yet."""
    for partition, state in enumerate(context.ledger_client.states(entity.ledgers)):
        if entity.description.schedules or (state is not None and state.schedules):
            first = 0 if state is None else state.cursor
            for start in range(first, upto.get(partition, 0), LOOKED_AT_ONCE):
                last = min(start + LOOKED_AT_ONCE, upto[partition]) - 1
                records = context.stores.archive.read(entity, partition, start, last)
                context.dispositions.put_off(entity, partition, records)
