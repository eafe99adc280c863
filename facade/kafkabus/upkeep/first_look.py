"""The first look at many entities at once, which finds those that need nothing done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._async.entities.recovery import marks_of
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import Look
from kafkabus.upkeep.forwarder import forwards
from kafkabus_mapping.entities import FOREVER, EntityDescription, EntityStatus, QueueDescription
from kafkabus_mapping.names import EntityPath, topic_name

LONG_LIFE_MS = 3_600_000
"""From how many milliseconds of life on a message may expire up to a minute late."""


class Quiet(NamedTuple):
    """An entity that needs nothing done.

    Attributes:
        entity: The entity.
        ends: The ends of its logs, by partition.
        changed: The texts that name the last change of each of its ledgers.
        is_urgent: Whether upkeep has to notice new messages soon; see ``is_urgent``.
    """

    entity: Entity
    ends: Mapping[int, int]
    changed: Sequence[str]
    is_urgent: bool


class FirstLook:
    """Finds queues whose logs and ledgers hold nothing: most of those of a large namespace, when upkeep begins.

    To tend one entity takes several requests to Redis and Kafka; to look at hundreds of them together takes few more.

    Args:
        context: The service's parts.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    async def quiet(self, described: Mapping[EntityPath, EntityDescription]) -> list[Quiet]:
        """Return the entities that need no work until a ledger or a log changes.

        Their ledgers report the next change from now on; see ``LedgerClient.look``.

        Args:
            described: Entities, with the descriptions of their queues.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        context = self._context
        entities = await self._entities(
            {path: description for path, description in described.items() if _may_be_quiet(path, description)}
        )
        ledgers = [ledger for entity in entities for ledger in entity.ledgers]
        changed = await context.ledger_client.changes(ledgers)
        looks = await context.ledger_client.look(ledgers, changed, 0)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        logs = {entity.topic: entity.partitions for entity in entities}
        empty = await context.topics.ends_of_empty(logs)
        seen = zip(looks, changed, strict=True)
        found: list[Quiet] = []
        for entity in entities:
            own, texts = zip(*islice(seen, entity.partitions), strict=True)
            ends = empty.get(entity.topic)
            if ends is not None and _hold_nothing(entity, own, texts, ends):
                found.append(Quiet(entity, ends, [text or "" for text in texts], is_urgent(entity, own)))
        return await self._written_down(found)

    async def _written_down(self, quiet: Sequence[Quiet]) -> list[Quiet]:
        """Return the entities whose last checkpoints say as well that they hold nothing.

        Else messages would come again, if Redis were emptied.
        """
        ledgers = {
            ledger: quiet_entity
            for quiet_entity in quiet
            for ledger in quiet_entity.entity.ledgers
            if quiet_entity.ends[ledger.partition]
        }
        if not ledgers:
            return list(quiet)
        written = await self._context.stores.checkpoints.read_now([ledger.keys.prefix for ledger in ledgers])
        kept = await self._context.stores.archive.of_each(
            {ledger: quiet_entity.entity for ledger, quiet_entity in ledgers.items()}
        )
        behind = {
            quiet_entity.entity.path
            for ledger, quiet_entity in ledgers.items()
            for last in [written[ledger.keys.prefix]]
            if last is None
            or last.cursor != quiet_entity.ends[ledger.partition]
            or last.waiting
            or last.deferred
            or last.moving
            or last.scheduled
            or kept.get(ledger)
        }
        return [quiet_entity for quiet_entity in quiet if quiet_entity.entity.path not in behind]

    async def _entities(self, described: Mapping[EntityPath, EntityDescription]) -> list[Entity]:
        """Return entities as they are described; of dead-letter queues those that have a topic."""
        context = self._context
        own = {path: topic_name(context.connections.settings.namespace, path) for path in described}
        asked = [topic for path, topic in own.items() if path.is_dead_letter]
        there = await context.topics.describe_all(asked) if asked else {}
        ids = {path: described[path].topic_id for path in own if not path.is_dead_letter}
        ids |= {path: there[topic].topic_id for path, topic in own.items() if path.is_dead_letter and topic in there}
        return [
            context.catalog.make_entity(path, described[path], own[path], topic_id) for path, topic_id in ids.items()
        ]


def is_urgent(entity: Entity, looks: Sequence[Look | None]) -> bool:
    """Return whether upkeep has to notice soon that an entity's logs grow: messages are in flight, or have their times.

    Senders notify upkeep of messages that live only for seconds.
    """
    lives_shortly = entity.expires and entity.life_ms is not None and entity.life_ms < LONG_LIFE_MS
    return lives_shortly or any(
        look is None or look.state.in_flight or look.state.has_message_ttl or look.state.schedules for look in looks
    )


def _may_be_quiet(path: EntityPath, description: EntityDescription) -> bool:
    """Return whether there may be nothing to do for an entity with this description."""
    return (
        isinstance(description, QueueDescription)
        and description.status is not EntityStatus.DELETING
        and (path.is_dead_letter or (description.auto_delete_on_idle >= FOREVER and description.retiring_at is None))
        and not description.requires_duplicate_detection
    )


def _hold_nothing(
    entity: Entity, looks: Sequence[Look | None], changed: Sequence[str | None], ends: Mapping[int, int]
) -> bool:
    """Return whether all of an entity's messages are settled, nothing of its ledgers is due, and they know their marks."""
    marks = marks_of(entity, entity.description)
    return not forwards(entity) and all(
        look is not None
        and look.changed == text
        and look.due_in is None
        and not look.state.in_flight
        and look.state.cursor == ends[partition]
        and all(getattr(look.state, name) for name in marks)
        for partition, (look, text) in enumerate(zip(looks, changed, strict=True))
    )
