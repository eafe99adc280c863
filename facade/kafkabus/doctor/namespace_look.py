"""Gathering the facts of a namespace: its entities, their ledgers, and the upkeep of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafkabus._core.entity import Entity
from kafkabus._core.settings import Settings
from kafkabus._kafka.probe import KafkaProbe, TopicState
from kafkabus._ledger.keys import full_key, holes_key, upkeep_key
from kafkabus._ledger.layout import LATE
from kafkabus._ledger.operations import Ledger
from kafkabus._ledger.prepared_settlement import Prepared
from kafkabus._redis.probe import RedisProbe
from kafkabus._sync.dispositions.transfer import Intent
from kafkabus.doctor.facts import (
    NEARLY_FULL,
    EntityFacts,
    KafkaFacts,
    LedgerFacts,
    Missing,
    NamespaceFacts,
    RedisFacts,
    RefusedCopyFacts,
)
from kafkabus.doctor.steps import Line, LookLimits
from kafkabus.upkeep.quota import MEGABYTE
from kafkabus_mapping.checkpoints import SEPARATOR, head_version
from kafkabus_mapping.entities import (
    EntityDescription,
    EntityStatus,
    SubscriptionDescription,
    TopicDescription,
    read_description,
)
from kafkabus_mapping.names import EntityPath, topic_name
from kafkabus_mapping.namespaces import NamespaceDescription
from kafkabus_mapping.numbers import sequence_number

MEASURED = 50
"""The size of so many partitions is estimated at the most."""
OVERDUE_AT_ONCE = 100
"""How many unfinished transfers and transactions of a ledger are looked at."""

_NAMESPACE = "$namespace"
"""The key of the namespace's own description."""
_FIELDS = ("cursor", "in_flight", "scheduled", "moving", "changed", "clock", "slip", "late", "test:skew")


class _Head(NamedTuple):
    """A ledger as Redis holds it.

    Attributes:
        fields: The values of ``_FIELDS``.
        moving: The messages that are moving and that want attention first, and when they do, ms since 1970.
    """

    fields: Mapping[str, str | None]
    moving: Sequence[tuple[str, float]]

    def number(self, name: str) -> int:
        """Return a field; 0 if it is absent."""
        return int(self.fields[name] or 0)


def look_at_namespace(
    settings: Settings,
    of_kafka: KafkaFacts,
    of_redis: RedisFacts,
    kafka: KafkaProbe,
    redis: RedisProbe,
    limits: LookLimits,
) -> NamespaceFacts:
    """Return the facts of the namespace that could be read from Kafka and Redis.

    Args:
        settings: The settings of the namespace.
        of_kafka: The facts of Kafka.
        of_redis: The facts of Redis.
        kafka: Asks Kafka.
        redis: Asks Redis.
        limits: The limits.
    """
    facts, line = NamespaceFacts(), Line(limits)
    of_both = Line(limits, None if of_redis.refusal == "" else Missing("Redis is not reached"))
    facts.upkeep_s = of_both.ask("to look for upkeep", lambda: _upkeep_ages(settings, redis))
    if isinstance(of_kafka.topics, Missing):
        facts.entities = of_kafka.topics
        return facts
    topics = of_kafka.topics
    described = line.ask("to read the descriptions", lambda: _descriptions(kafka, topics, of_kafka.hidden))
    if isinstance(described, Missing):
        facts.entities = described
        return facts
    entities = _entities(settings, described, topics)
    look = _LedgerLook(settings, described, topics, kafka, redis)
    ledgers = of_both.ask("to look at the ledgers", lambda: look.read_ledgers(entities))
    full = of_both.ask("to look for full partitions", lambda: _full(settings, redis, entities))
    facts.entities = [
        EntityFacts(
            str(entity.path),
            entity.path.is_dead_letter,
            entity.topic,
            _problem(entity, topics, of_kafka.hidden),
            0 if entity.path.is_dead_letter else entity.description.max_size_in_megabytes * MEGABYTE,
            frozenset() if isinstance(full, Missing) else full[entity.path.key],
            ledgers if isinstance(ledgers, Missing) else ledgers[entity.path.key],
        )
        for entity in entities
    ]
    return facts


def _upkeep_ages(settings: Settings, redis: RedisProbe) -> list[float]:
    """Return how many seconds ago each upkeep instance was heard of, ascending."""
    instances, now = redis.read_scores(upkeep_key(settings.namespace)), redis.now_ms()
    return sorted((now - heard) / 1000 for _, heard in instances)


def _descriptions(
    kafka: KafkaProbe, topics: Mapping[str, TopicState], hidden: frozenset[str] | Missing
) -> dict[str, str]:
    """Return the descriptions of all entities, and the namespace's, as texts by name."""
    name = kafka.descriptions_topic
    if name not in topics and (isinstance(hidden, Missing) or name not in hidden):
        return {}
    return {key: text for key, (text, _) in kafka.latest(name, lambda _: True).items()}


def _entities(settings: Settings, described: Mapping[str, str], topics: Mapping[str, TopicState]) -> list[Entity]:
    """Return the entities that are described, with those of their dead-letter queues that are there."""
    entities: list[Entity] = []
    for name in sorted(described.keys() - {_NAMESPACE}):
        description = read_description(described[name])
        if description.status is EntityStatus.DELETING:
            continue
        for path in _paths(description):
            topic = topic_name(settings.namespace, path) if path.is_dead_letter else description.topic
            if path.is_dead_letter and topic not in topics:
                continue
            topic_id = topics[topic].topic_id if path.is_dead_letter else description.topic_id
            entities.append(
                Entity.create(settings.namespace, path, description, topic=topic, topic_id=topic_id, client_id="doctor")
            )
    return entities


def _paths(description: EntityDescription) -> Iterable[EntityPath]:
    path = EntityPath(description.name)
    return (path,) if isinstance(description, TopicDescription) else path.all


def _problem(entity: Entity, topics: Mapping[str, TopicState], hidden: frozenset[str] | Missing) -> str:
    """Return what is wrong with the topic of an entity; empty if nothing is, or that is not known."""
    topic = topics.get(entity.topic)
    if topic is None:
        return "" if isinstance(hidden, Missing) or entity.topic in hidden else "is gone"
    if len(topic.partitions) != entity.partitions:
        return f"has {len(topic.partitions)} partitions instead of {entity.partitions}"
    return ""


def _full(settings: Settings, redis: RedisProbe, entities: Sequence[Entity]) -> dict[str, frozenset[int]]:
    """Return the full partitions of each entity by upkeep's last report, by the key of its path."""
    keys = [full_key(settings.namespace, entity.path, entity.generation) for entity in entities]
    return {
        entity.path.key: frozenset(map(int, text.split()))
        for entity, text in zip(entities, redis.texts(keys), strict=True)
    }


class _LedgerLook:
    """A look at the ledgers of all entities.

    Args:
        settings: The settings of the namespace.
        described: The descriptions as texts, by name.
        topics: The topics of the namespace.
        kafka: Asks Kafka.
        redis: Asks Redis.
    """

    def __init__(
        self,
        settings: Settings,
        described: Mapping[str, str],
        topics: Mapping[str, TopicState],
        kafka: KafkaProbe,
        redis: RedisProbe,
    ) -> None:
        self._namespace = settings.namespace
        self._topics = topics
        self._kafka = kafka
        self._redis = redis
        text = described.get(_NAMESPACE)
        self._left = MEASURED
        self._entity_topics: dict[str, str] = {}
        # The first entity creates the namespace.
        self._max_message_bytes = (
            0 if text is None else NamespaceDescription.model_validate_json(text).max_message_bytes
        )

    def read_ledgers(self, entities: Sequence[Entity]) -> dict[str, list[LedgerFacts]]:
        """Return the facts of the ledgers of each entity, by the key of its path."""
        there = [entity for entity in entities if entity.topic in self._topics]
        self._entity_topics = {entity.path.key: entity.topic for entity in there}
        heads = self._heads([ledger for entity in there for ledger in entity.ledgers])
        now_ms = self._redis.now_ms()
        written = self._checkpoint_versions()
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        ends = self._kafka.ends({entity.topic: entity.partitions for entity in there})
        holes = self._holes(there)
        found: dict[str, list[LedgerFacts]] = {entity.path.key: [] for entity in entities}
        for entity in there:
            starts = self._starts(entity, heads)
            for ledger in entity.ledgers:
                head, end = heads[ledger.keys.prefix], ends[entity.topic].get(ledger.partition, 0)
                if head is None:
                    waiting = end - starts.get(ledger.partition, end)
                    found[entity.path.key].append(LedgerFacts(ledger.partition, is_there=False, waiting=waiting))
                    continue
                empty = holes[entity.path.key].get(ledger.partition, 0)
                facts = self._facts(entity, ledger, head, now_ms, written.get(ledger.keys.prefix))
                found[entity.path.key].append(replace(facts, waiting=_count_waiting(entity, head, end - empty)))
        return self._estimate_bytes(there, ends, found)

    def _heads(self, ledgers: Sequence[Ledger]) -> dict[str, _Head | None]:
        """Return the ledgers that Redis holds, by their prefixes; None for those that it does not."""
        fields = self._redis.fields([ledger.keys.meta for ledger in ledgers], _FIELDS)
        moves = self._redis.earliest([f"{ledger.keys.prefix}:moves" for ledger in ledgers], OVERDUE_AT_ONCE)
        return {
            ledger.keys.prefix: None if values[0] is None else _Head(dict(zip(_FIELDS, values, strict=True)), moving)
            for ledger, values, moving in zip(ledgers, fields, moves, strict=True)
        }

    def _checkpoint_versions(self) -> dict[str, int]:
        """Return the version of each ledger's last checkpoint, by the ledger's prefix."""
        name = self._kafka.checkpoints_topic
        if name not in self._topics:
            return {}
        heads = self._kafka.latest(name, lambda key: SEPARATOR not in key)
        return {prefix: head_version(text) for prefix, (text, _) in heads.items()}

    def _holes(self, entities: Sequence[Entity]) -> dict[str, dict[int, int]]:
        """Return how many offsets of each entity's partitions hold no message, by upkeep's last report."""
        keys = [holes_key(self._namespace, entity.path, entity.generation) for entity in entities]
        return {
            entity.path.key: {
                int(partition): int(count) for partition, _, count in (word.partition(":") for word in text.split())
            }
            for entity, text in zip(entities, self._redis.texts(keys), strict=True)
        }

    def _starts(self, entity: Entity, heads: Mapping[str, _Head | None]) -> dict[int, int]:
        """Return the first offsets of an entity's logs if Redis does not hold all of its ledgers: then all may wait."""
        if all(heads[ledger.keys.prefix] is not None for ledger in entity.ledgers):
            return {}
        return self._kafka.starts(entity.topic, entity.partitions)

    def _topic_of(self, entity: Entity, intent: Intent) -> str:
        """Return the topic that a transfer goes to; the path of its entity if that has none."""
        path = entity.path.dead_letter if intent.path is None else EntityPath.parse(intent.path)
        return self._entity_topics.get(path.key, str(path))

    def _facts(self, entity: Entity, ledger: Ledger, head: _Head, now_ms: float, written: int | None) -> LedgerFacts:
        clock, skew = head.number("clock"), head.number("test:skew")
        now = max(now_ms + head.number("slip"), clock) + skew
        version, _, changed_at = (head.fields["changed"] or "").partition(":")
        unwritten = bool(version) and (written is None or int(version) > written)
        late = [tuple(map(int, found)) for found in LATE.regex.findall(head.fields["late"] or "")]
        # A client that adopts a transfer sets another time at which it wants attention.
        since = {int(offset): at for offset, at in head.moving if at < now} | {offset: at for offset, at, _ in late}
        intents = self._intents(ledger, list(since))
        refused = {offset: size for offset, _, size in late if size and offset in intents}
        due = {offset: (now - since[offset]) / 1000 for offset in intents if offset not in refused}
        prepared = [offset for offset in due if Prepared.from_text(intents[offset]) is not None]
        return LedgerFacts(
            ledger.partition,
            unwritten_s=(now - float(changed_at)) / 1000 if unwritten else None,
            ahead_ms=max(head.number("slip"), clock - now_ms) if clock else 0.0,
            prepared_s=max((due[offset] for offset in prepared), default=None),
            moving_s=max((age for offset, age in due.items() if offset not in prepared), default=None),
            refused=[
                RefusedCopyFacts(
                    sequence_number(ledger.partition, offset),
                    size,
                    self._topic_of(entity, Intent.from_text(intents[offset])),
                )
                for offset, size in refused.items()
            ],
        )

    def _intents(self, ledger: Ledger, offsets: Sequence[int]) -> dict[int, str]:
        """Return the intents of those of some messages that a transaction prepared, or that are being transferred."""
        if not offsets:
            return {}
        (moves,) = self._redis.fields([f"{ledger.keys.prefix}:moving"], list(map(str, offsets)))
        # A transfer that ended is kept for a while, without an intent.
        return {offset: move.partition("|")[2] for offset, move in zip(offsets, moves, strict=True) if move}

    def _estimate_bytes(
        self,
        entities: Sequence[Entity],
        ends: Mapping[str, Mapping[int, int]],
        found: dict[str, list[LedgerFacts]],
    ) -> dict[str, list[LedgerFacts]]:
        """Estimate the bytes of partitions that may be nearly full; a topic has those of its slowest subscription."""
        waiting: dict[tuple[str, int], int] = {}
        for entity in entities:
            for facts in found[entity.path.key]:
                log = entity.topic, facts.partition
                waiting[log] = max(waiting.get(log, 0), facts.waiting)
        for entity in entities:
            if not entity.path.is_dead_letter and not isinstance(entity.description, SubscriptionDescription):
                found[entity.path.key] = [
                    replace(facts, bytes=self._bytes(entity, facts.partition, waiting, ends))
                    for facts in found[entity.path.key]
                ]
        return found

    def _bytes(
        self,
        entity: Entity,
        partition: int,
        waiting: Mapping[tuple[str, int], int],
        ends: Mapping[str, Mapping[int, int]],
    ) -> float | None:
        """Return about how many bytes wait in a partition; None if these are surely few, or enough others were measured."""
        count, end = waiting[entity.topic, partition], ends[entity.topic].get(partition)
        limit = entity.description.max_size_in_megabytes * MEGABYTE
        if end is None or count * self._max_message_bytes < limit * NEARLY_FULL or self._left == 0:
            return None
        self._left -= 1
        return count * self._kafka.mean_size(entity.topic, partition, max(0, end - count), end)


def _count_waiting(entity: Entity, head: _Head, end: int) -> int:
    """Return how many messages wait in a log, or are locked; of a topic itself, how many are scheduled."""
    if entity.is_topic:
        return head.number("scheduled")
    held = head.number("in_flight") - head.number("moving")
    return max(0, end - head.number("cursor")) + max(0, held - head.number("scheduled"))
