# Generated from facade/kafkabus/_async/entities/ledger_marks.py by tools/generate_blocking.py. Do not edit.
"""What ledgers, and descriptions, are told of messages before these are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set

from kafkabus._core.entity import Entity
from kafkabus._core.message import Outgoing
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.operations import Mark, MarkName, Schedule
from kafkabus._sync.connections import Connections
from kafkabus._sync.entities.catalog import EntityCatalog
from kafkabus._sync.stores.entity_descriptions import EntityDescriptions
from kafkabus_mapping.codec import to_milliseconds


class LedgerMarks:
    """Marks that a client has set.

    Args:
        connections: The client's.
        descriptions: Of all entities of the namespace.
        catalog: The client's entities.
    """

    def __init__(self, connections: Connections, descriptions: EntityDescriptions, catalog: EntityCatalog) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._marked: set[tuple[MarkName, str, int]] = set()
        self._found: set[tuple[MarkName, str, int]] = set()

    def mark(self, entity: Entity, partitions: Iterable[int], name: MarkName) -> None:
        """Tell upkeep and readers that partitions are about to hold messages of a kind; a client says it once of each.

        The entity's description says so before the first of them is stored, and outlives ledgers that Redis loses, or forgets
        some of. A reader looks at each record itself.

        Args:
            entity: Where it will be stored.
            partitions: In which partitions.
            name: Of the kind.

        Raises:
            OperationTimeoutError: Another client has been changing the entity for long; nothing was stored.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        wanted: set[tuple[MarkName, str, int]] = {(name, entity.generation, partition) for partition in partitions}
        places = wanted - self._marked
        if places:
            if not getattr(entity.description, name):
                self._describe_mark(entity, name)
            self._connections.ledger_client.execute(
                *(Mark(entity.ledgers[partition], name) for _, _, partition in places)
            )
            self._marked |= places

    def _describe_mark(self, entity: Entity, name: MarkName) -> None:
        with self._descriptions.changing(entity.path.name) as lock:
            known = self._catalog.current_description(entity)
            if known is not None and not getattr(known, name):
                lock.check()
                self._descriptions.put(known.model_copy(update={name: True}))

    def announce(self, entity: Entity, outgoing: Sequence[Outgoing], partitions: Set[int]) -> None:
        """Say what whoever is granted one of these messages must know before it is stored.

        Args:
            entity: Where they are sent to.
            outgoing: They.
            partitions: Where they will stand.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if any(one.envelope.time_to_live is not None for one in outgoing):
            self.mark(entity, partitions, "has_message_ttl")
        if any(map(is_scheduled, outgoing)):
            self.mark(entity, partitions, "schedules")

    def mark_later(self, entity: Entity, partition: int, name: MarkName) -> None:
        """Tell the ledger, with the next request, that a partition holds messages of a kind that nobody announced."""
        place = (name, entity.generation, partition)
        # Not as marked: the description does not say so.
        if place not in self._marked and place not in self._found:
            self._found.add(place)
            self._connections.ledger_client.enqueue(Mark(entity.ledgers[partition], name))

    def tell_topic(self, entity: Entity, subscription_filter: SubscriptionFilter | None) -> None:
        """Where a subscription's log holds records of scheduled messages, its topic knows before they are passed.

        Args:
            entity: The subscription.
            subscription_filter: Who has read its log.

        Raises:
            OperationTimeoutError: Another client has been changing the topic for long.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if subscription_filter is not None and subscription_filter.saw_scheduled:
            topic = self._catalog.entity(entity.log_path)
            self.mark(topic, range(topic.partitions), "schedules")

    def forget(self, entity: Entity) -> None:
        """Nothing is told of an entity any more, as it is gone, or another one."""
        for places in (self._marked, self._found):
            places.difference_update([place for place in places.copy() if place[1] == entity.generation])


def schedules(
    entity: Entity, outgoing: Iterable[Outgoing], place_of: Callable[[int], tuple[int, int] | None]
) -> list[Schedule]:
    """What says which of the messages that were stored are scheduled, so that they count as such at once.

    Args:
        entity: Where they were stored.
        outgoing: They.
        place_of: Partition and offset by a message's position among them, None where it was not stored.
    """
    items: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for position, one in enumerate(outgoing):
        due, place = one.envelope.scheduled_enqueue_time_utc, place_of(position)
        if due is not None and place is not None:
            items[place[0]].append((place[1], to_milliseconds(due)))
    return [Schedule(entity.ledgers[partition], sorted(several)) for partition, several in items.items()]


def is_scheduled(one: Outgoing) -> bool:
    """Whether a message waits for a time once it is stored."""
    return one.envelope.scheduled_enqueue_time_utc is not None
