"""Marks, by which ledgers and descriptions know of messages before these are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import timedelta

from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.stores.entity_descriptions import EntityDescriptions
from kafkabus._core.entity import Entity
from kafkabus._core.message import Outgoing
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.operations import Mark, MarkName, Schedule
from kafkabus_mapping.codec import to_milliseconds

SHORT_LIFE = timedelta(seconds=10)
"""Within this time upkeep learns by itself that a log grew."""


class LedgerMarks:
    """Sets marks, and knows those that its client has set.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        catalog: The client's entities.
    """

    def __init__(self, connections: Connections, descriptions: EntityDescriptions, catalog: EntityCatalog) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._marked: set[tuple[MarkName, str, int]] = set()
        self._found: set[tuple[MarkName, str, int]] = set()

    async def mark(self, entity: Entity, partitions: Iterable[int], name: MarkName) -> None:
        """Notify upkeep and readers that partitions are about to hold messages of a kind; a client does so once for each.

        The entity's description has the mark before the first of them is stored, and outlives ledgers that Redis loses, or
        forgets some of. A reader looks at each record itself.

        Args:
            entity: The entity that will hold the messages.
            partitions: The partitions that will hold them.
            name: The mark of the kind.

        Raises:
            OperationTimeoutError: Another client has been changing the entity for long; nothing was stored.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        wanted: set[tuple[MarkName, str, int]] = {(name, entity.generation, partition) for partition in partitions}
        places = wanted - self._marked
        if places:
            if not getattr(entity.description, name):
                await self._describe_mark(entity, name)
            await self._connections.ledger_client.execute(
                *(Mark(entity.ledgers[partition], name) for _, _, partition in places)
            )
            self._marked |= places

    async def _describe_mark(self, entity: Entity, name: MarkName) -> None:
        async with self._descriptions.lock_for_change(entity.path.name) as lock:
            known = await self._catalog.current_description(entity)
            if known is not None and not getattr(known, name):
                await lock.check()
                await self._descriptions.put(known.model_copy(update={name: True}))

    async def announce(self, entity: Entity, outgoing: Sequence[Outgoing], partitions: Set[int]) -> None:
        """Notify ledgers, before messages are stored, of what a receiver that is granted one must know.

        Args:
            entity: The entity that the messages are sent to.
            outgoing: The messages.
            partitions: The partitions that will hold them.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if any(message.envelope.time_to_live is not None for message in outgoing):
            await self.mark(entity, partitions, "has_message_ttl")
        if any(map(is_scheduled, outgoing)):
            await self.mark(entity, partitions, "schedules")

    async def tell_upkeep(self, entity: Entity, outgoing: Sequence[Outgoing]) -> None:
        """Notify upkeep of stored messages that do not live long: by the logs' ends, it would find them too late."""
        lives = [message.envelope.time_to_live for message in outgoing if message.envelope.time_to_live is not None]
        if min(lives, default=SHORT_LIFE) < SHORT_LIFE or entity.description.default_message_time_to_live < SHORT_LIFE:
            await self._connections.ledger_client.ask_upkeep(entity.namespace, entity.path, 0.0)

    def mark_later(self, entity: Entity, partition: int, name: MarkName) -> None:
        """Report to the ledger, with the next request, that a partition holds messages of a kind that no sender announced."""
        place = (name, entity.generation, partition)
        # Not among those marked: the description does not have the mark.
        if place not in self._marked and place not in self._found:
            self._found.add(place)
            self._connections.ledger_client.enqueue(Mark(entity.ledgers[partition], name))

    async def tell_topic(self, entity: Entity, subscription_filter: SubscriptionFilter | None) -> None:
        """If a subscription's log holds records of scheduled messages, notify its topic before a claim passes them.

        Args:
            entity: The subscription.
            subscription_filter: The filter that has seen the records of its log.

        Raises:
            OperationTimeoutError: Another client has been changing the topic for long.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if subscription_filter is not None and subscription_filter.saw_scheduled:
            topic = await self._catalog.entity(entity.log_path)
            await self.mark(topic, range(topic.partitions), "schedules")

    def forget(self, entity: Entity) -> None:
        """Forget the marks of an entity that is gone, or was replaced by another one of its name."""
        for places in (self._marked, self._found):
            places.difference_update([place for place in places.copy() if place[1] == entity.generation])


def schedules(
    entity: Entity, outgoing: Iterable[Outgoing], place_of: Callable[[int], tuple[int, int] | None]
) -> list[Schedule]:
    """Return the operations that report which of the stored messages are scheduled, so that they count as such at once.

    Args:
        entity: The entity that the messages were sent to.
        outgoing: The messages.
        place_of: Partition and offset by a message's position among them; None if the message was not stored.
    """
    items: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for position, message in enumerate(outgoing):
        due, place = message.envelope.scheduled_enqueue_time_utc, place_of(position)
        if due is not None and place is not None:
            items[place[0]].append((place[1], to_milliseconds(due)))
    return [Schedule(entity.ledgers[partition], sorted(places)) for partition, places in items.items()]


def is_scheduled(message: Outgoing) -> bool:
    """Return whether a message waits for a time once it is stored."""
    return message.envelope.scheduled_enqueue_time_utc is not None
