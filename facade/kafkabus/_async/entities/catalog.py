"""The entities that a client uses: found by their paths, described as they were a moment ago."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TypeGuard
from weakref import WeakValueDictionary

from kafkabus._async.compat import Lock
from kafkabus._async.connections import Connections
from kafkabus._async.entities.client_registry import ClientRegistry
from kafkabus._async.entities.upkeep_watch import UpkeepWatch
from kafkabus._async.stores.entity_descriptions import NAMESPACE, EntityDescriptions
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._ledger.keys import full_key
from kafkabus._ledger.operations import Claim, Ledger
from kafkabus_mapping.entities import (
    EntityDescription,
    EntityStatus,
    SubscriptionDescription,
    TopicDescription,
    generation_of,
)
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath, topic_name
from kafkabus_mapping.namespaces import NamespaceDescription, NamespaceRuleError, Tier
from kafkabus_mapping.version import installed_version

LOGGER = logging.getLogger("kafkabus")
DESCRIPTION_AGE = 5.0
"""How old, in seconds, a description may be that a client uses."""
OLD = 60.0
"""After how many seconds without a call the client looks whether an entity is still there."""


@dataclass(slots=True)
class _Known:
    """An entity that the client knows.

    Attributes:
        entity: The entity.
        asked_at: When its description was asked for, on the monotonic clock.
        used_at: When a caller asked for the entity last.
    """

    entity: Entity
    asked_at: float
    used_at: float


class EntityCatalog:
    """The entities of one client.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        upkeep_watch: Looks for upkeep when an entity is asked for.
        registry: Is notified that this client is active when an entity is asked for.
        forget: Called with an entity that is gone or was replaced, and with whether its replacement is known.
    """

    def __init__(
        self,
        connections: Connections,
        descriptions: EntityDescriptions,
        upkeep_watch: UpkeepWatch,
        registry: ClientRegistry,
        *,
        forget: Callable[[Entity, bool], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._upkeep_watch = upkeep_watch
        self._registry = registry
        self._forget_elsewhere = forget
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._made = itertools.count()
        self._known_paths: deque[str] = deque()
        self._namespace: NamespaceDescription | None = None
        self._entities: dict[str, _Known] = {}
        self._looking = Lock()
        self._by_ledger: dict[Ledger, Entity] = {}

    async def namespace(self) -> NamespaceDescription:
        """Return the namespace's description; that of a Standard one if the namespace was not created yet.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if self._namespace is not None:
            return self._namespace
        self._namespace = await self._descriptions.namespace()
        if self._namespace is not None:
            return self._namespace
        now = datetime.now(timezone.utc)
        return NamespaceDescription(created_at=now, updated_at=now)

    async def create_namespace(self, tier: Tier = Tier.STANDARD, partitions: int | None = None) -> NamespaceDescription:
        """Return the namespace's description; make it if the namespace was not created yet.

        Raises:
            NamespaceRuleError: The namespace was created with another tier or number of partitions.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = await self._descriptions.namespace()
        if known is None:
            now = datetime.now(timezone.utc)
            new = NamespaceDescription(tier=tier, partitions=partitions, created_at=now, updated_at=now)
            async with self._descriptions.lock_for_change(NAMESPACE) as lock:
                # Another client may have made it first.
                known = await self._descriptions.namespace()
                if known is None:
                    # An entity without a namespace's description is an early version's.
                    if not await self._descriptions.all():
                        new = new.model_copy(update={"format": LATEST, "format_by": installed_version()})
                    await lock.check()
                    await self._descriptions.put_namespace(new)
                    known = new
        if (known.tier, known.partitions) != (tier, partitions):
            raise NamespaceRuleError(
                f"namespace {self._connections.settings.namespace!r} was created in tier {known.tier.value} with partitions "
                f"{known.partitions}, not in tier {tier.value} with {partitions}: that is fixed, so use another namespace"
            )
        self._namespace = known
        return known

    async def entity(self, path: EntityPath) -> Entity:
        """Return an entity by its path; create a dead-letter queue when a caller first asks for it.

        Raises:
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        entity = self._up_to_date(path)
        if entity is not None:
            return entity
        if path.key in self._entities:
            async with self._looking:
                if self._up_to_date(path) is None:
                    await self._look_at_used()
        with self._guard:
            lock = self._locks.setdefault(path.key, Lock())
        async with lock:
            # Looked at again: another task, which had the lock before, may have made the entity.
            entity = self._up_to_date(path)
            if entity is not None:
                return entity
            known = self._entities.get(path.key)
            await self._connections.reach_kafka()
            # The entity is as old as the description that it is made of.
            asked_at = time.monotonic()
            try:
                entity = await self._look_up(path, None if known is None else known.entity)
            except MessagingEntityNotFoundError:
                if known is not None:
                    await self._forget(known.entity)
                raise
            (entity,) = await self._with_full([entity])
            self._keep(entity, asked_at)
        if known is None:
            await self._look_at_old(path.key)
        elif known.entity.generation != entity.generation:
            await self._forget(known.entity)
        await self._upkeep_watch.look()
        await self._registry.report()
        return entity

    def _up_to_date(self, path: EntityPath) -> Entity | None:
        """Return an entity that was described a moment ago; None if it has to be looked up. It counts as used now."""
        known = self._entities.get(path.key)
        if known is None:
            return None
        known.used_at = time.monotonic()
        return known.entity if known.used_at - known.asked_at < DESCRIPTION_AGE else None

    def _keep(self, entity: Entity, asked_at: float) -> None:
        self._entities[entity.path.key] = _Known(entity, asked_at, time.monotonic())
        self._by_ledger.update(dict.fromkeys(entity.ledgers, entity))

    async def keep_up_to_date(self, entities: Sequence[Entity]) -> None:
        """Look up entities that receivers wait for, if that was not done lately; see ``goes_by``.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not entities:
            return
        for entity in entities:
            self._up_to_date(entity.path)
        async with self._looking:
            await self._look_at_used()

    def goes_by(self, entity: Entity) -> bool:
        """Return whether the client still knows the entity as it is here; if not, a caller has to ask for it."""
        known = self._entities.get(entity.path.key)
        return known is not None and known.entity is entity and known.asked_at > -math.inf

    async def _look_at_used(self) -> None:
        """Look up all entities at once that callers use and that were not looked up lately.

        Those that are not as they were, but for their settings, have to be looked up by themselves.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        now = time.monotonic()
        used = [
            (known, known.asked_at)
            for known in list(self._entities.values())
            if now - known.used_at < 2 * DESCRIPTION_AGE and now - known.asked_at >= DESCRIPTION_AGE / 2
        ]
        if not used:
            return
        described = await self._descriptions.get_many([known.entity.path.name for known, _ in used])
        full = await self._with_full([known.entity for known, _ in used])
        for (known, asked_at), description, entity in zip(used, described, full, strict=True):
            if _describes(description, entity):
                self._renew(known, asked_at, entity.with_description(description), now)
            else:
                self._renew(known, asked_at, known.entity, -math.inf)
        await self._upkeep_watch.look()
        await self._registry.report()

    def _renew(self, known: _Known, asked_at: float, entity: Entity, now: float) -> None:
        """Note an entity as it is described now, unless a caller wants it looked up again, or has just looked it up."""
        with self._guard:
            if known.asked_at == asked_at and self._entities.get(entity.path.key) is known:
                known.asked_at = now
                if entity != known.entity:
                    known.entity = entity
                    self._by_ledger.update(dict.fromkeys(entity.ledgers, entity))

    async def _with_full(self, entities: Sequence[Entity]) -> list[Entity]:
        """Return entities with their partitions that are full by upkeep's last report."""
        namespace = self._connections.settings.namespace
        keys = [full_key(namespace, entity.path, entity.generation) for entity in entities]
        full = await self._connections.ledger_client.full_partitions(keys)
        return [replace(entity, full=its) for entity, its in zip(entities, full, strict=True)]

    async def _look_at_old(self, new: str) -> None:
        """Forget entities that are gone: for each new one, look at two that callers have not asked for lately."""
        paths = self._known_paths
        with self._guard:
            oldest = [paths.popleft() for _ in range(min(2, len(paths)))]
        for path in oldest:
            old = self._entities.get(path)
            if old is None:
                continue
            entity = old.entity
            if time.monotonic() - old.asked_at > OLD:
                # The caller asked for the new one, and gets it all the same.
                with suppress(ServiceBusError):
                    known = await self._descriptions.get(entity.path.name)
                    if known is None or known.generation != entity.description.generation:
                        await self._forget(entity)
                        continue
            paths.append(path)
        paths.append(new)

    async def _forget(self, entity: Entity) -> None:
        """Forget an entity that is gone, or was replaced by another one of its name."""
        replaced = not self.look_up_again(entity)
        for ledger in entity.ledgers:
            self._by_ledger.pop(ledger, None)
        await self._forget_elsewhere(entity, replaced)

    async def entity_anew(self, entity: Entity) -> Entity:
        """Return an entity as it is described now, not some seconds ago.

        Raises:
            MessagingEntityNotFoundError: The entity is gone, or was replaced by another one of its name.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        found = await self.current(entity)
        if found.generation != entity.generation:
            raise MessagingEntityNotFoundError(self.note_gone(entity, "it was deleted and created again"))
        return found

    async def current(self, entity: Entity) -> Entity:
        """Return the entity that has an entity's path now, not some seconds ago; it may be another one.

        Raises:
            MessagingEntityNotFoundError: There is none.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = self._entities.get(entity.path.key)
        with self._guard:
            if known is not None and known.entity.description == entity.description:
                known.asked_at = -math.inf
        return await self.entity(entity.path)

    async def entity_of(self, description: EntityDescription) -> Entity:
        """Return the entity of a description's name, looked up again if the client knows another generation of it.

        Raises:
            MessagingEntityNotFoundError: The entity is gone.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        path = EntityPath(description.name)
        entity = await self.entity(path)
        if generation_of(path, description, entity.topic_id) != entity.generation:
            self._entities.pop(path.key, None)
            entity = await self.entity(path)
        return entity

    async def check_moved_on(self, entity: Entity, error: LedgersReplacedError) -> None:
        """Look whether an entity has other ledgers by now, with which the caller can try again.

        Args:
            entity: The entity, as the caller knows it.
            error: The error of its ledgers.

        Raises:
            LedgersReplacedError: It has none yet: the error that was given.
            MessagingEntityNotFoundError: The entity is gone.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if (await self.entity(entity.path)).generation == entity.generation:
            raise error

    async def exists(self, path: EntityPath) -> bool:
        """Return whether an entity has a topic; a dead-letter queue has none before its first message.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if path.key in self._entities:
            return True
        return (
            await self._connections.topics.describe(topic_name(self._connections.settings.namespace, path)) is not None
        )

    def seconds_left(self, path: EntityPath, partition: int, moment_ms: int) -> float:
        """Return how long it is until a ledger's clock shows a moment, by this client's estimate of that clock."""
        known = self._entities.get(path.key)
        if known is None or partition >= known.entity.partitions:
            return 0.0
        return known.entity.ledgers[partition].seconds_until(moment_ms)

    async def _look_up(self, path: EntityPath, known: Entity | None) -> Entity:
        description = await self._descriptions.get(path.name)
        if description is None or description.status is EntityStatus.DELETING:
            raise MessagingEntityNotFoundError(missing_text(path, self._connections.settings.namespace))
        if known is not None and _describes(description, known):
            return known.with_description(description)
        topic, topic_id = description.topic, description.topic_id
        if path.is_dead_letter:
            topic, topic_id = await self._dead_letter_topic(path, description.partitions)
        if known is not None:
            LOGGER.warning("entity_anew entity=%s: its topic was recreated, or its log truncated", path)
        namespace = await self.namespace()
        entity = self.make_entity(path, description, topic, topic_id, max_message_bytes=namespace.max_message_bytes)
        if path.is_dead_letter:
            await self.create_ledgers(entity.ledgers)
        return entity

    async def _dead_letter_topic(self, path: EntityPath, partitions: int) -> tuple[str, str]:
        topic = topic_name(self._connections.settings.namespace, path)
        described = await self._connections.topics.describe(topic)
        if described is None:
            await self._connections.topics.create_entity(topic, partitions)
        described = await self._connections.topics.wait_for(topic)
        return topic, described.topic_id

    async def subscriptions_of(self, description: EntityDescription) -> list[SubscriptionDescription]:
        """Return a topic's subscriptions, by name; none if the description is no topic's.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not isinstance(description, TopicDescription):
            return []
        described = await self._descriptions.beginning_with(description.name + SUBSCRIPTIONS)
        return [description for description in described if isinstance(description, SubscriptionDescription)]

    async def live_subscriptions_of(self, topic: EntityDescription) -> list[SubscriptionDescription]:
        """Return those of a topic's subscriptions that read its present log and are not being deleted; see that method."""
        return [
            subscription
            for subscription in await self.subscriptions_of(topic)
            if subscription.topic_id == topic.topic_id and subscription.status is not EntityStatus.DELETING
        ]

    async def readers_of(self, entity: Entity) -> list[Entity]:
        """Return the entities whose ledgers grant the messages of an entity's logs: itself, or a topic's subscriptions.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not entity.is_topic:
            return [entity]
        readers: list[Entity] = []
        for subscription in await self.live_subscriptions_of(entity.description):
            # The subscription may have been deleted.
            with suppress(MessagingEntityNotFoundError):
                readers.append(await self.entity_of(subscription))
        return readers

    def make_entity(
        self,
        path: EntityPath,
        description: EntityDescription,
        topic: str,
        topic_id: str,
        *,
        max_message_bytes: int = 0,
    ) -> Entity:
        """Return an entity as it is described, without looking it up."""
        return Entity.create(
            self._connections.settings.namespace,
            path,
            description,
            topic=topic,
            topic_id=topic_id,
            # Each object that is made of an entity numbers its own requests to the ledgers.
            client_id=f"{self._connections.client_id}.{next(self._made)}",
            max_message_bytes=max_message_bytes,
        )

    async def create_ledgers(self, ledgers: Sequence[Ledger]) -> None:
        """Create the ledgers of a new topic, which begin at its beginning; ledgers that exist stay as they are."""
        for ledger in ledgers:
            await self._connections.ledger_client.create(ledger, 0)

    async def check_rights(self, path: EntityPath, description: EntityDescription) -> None:
        """Make a ledger and delete it, so that a refusal by Redis is known before a topic is created for an entity.

        Raises:
            ServiceBusError: Redis refuses; see ``RedisConnection.call``.
        """
        entity = self.make_entity(path, description, description.topic, uuid.uuid4().hex)
        ledger = entity.ledgers[0]
        self._by_ledger[ledger] = entity
        try:
            await self.create_ledgers([ledger])
            # Another client may be creating the entity; then the topic that appears is not this ledger's.
            with suppress(MessagingEntityNotFoundError):
                await self._connections.ledger_client.execute(Claim.poll(ledger))
            await self._connections.ledger_client.forget([ledger])
        finally:
            del self._by_ledger[ledger]

    def owner_of(self, ledger: Ledger) -> Entity | None:
        """Return the entity of a ledger; None if the client does not know it any more."""
        return self._by_ledger.get(ledger)

    async def current_description(self, entity: Entity) -> EntityDescription | None:
        """Return the description of an entity's queue; None if it is, or soon will be, gone or another generation's."""
        known = await self._descriptions.get(entity.path.name)
        if (
            known is None
            or known.status is EntityStatus.DELETING
            or known.generation != entity.description.generation
            or generation_of(entity.path, known, entity.topic_id) != entity.generation
        ):
            return None
        return known

    def note_gone(self, entity: Entity, why: str) -> str:
        """Have the next caller that asks for an entity look it up; return the error text for the present one."""
        self.look_up_again(entity)
        return f"{entity.path} is not what it was: {why}; call again to go on with what is there"

    def look_up_again(self, entity: Entity) -> bool:
        """Have the next caller that asks for an entity look it up; return False if the client no longer knows this one."""
        known = self._entities.get(entity.path.key)
        if known is None or known.entity.generation != entity.generation:
            return False
        del self._entities[entity.path.key]
        return True


def _describes(description: EntityDescription | None, entity: Entity) -> TypeGuard[EntityDescription]:
    """Return whether a description is of an entity that a client knows, with the same ledgers."""
    if description is None or description.status is EntityStatus.DELETING:
        return False
    topic_id = entity.topic_id if entity.path.is_dead_letter else description.topic_id
    return entity.description.generation == description.generation and entity.generation == generation_of(
        entity.path, description, topic_id
    )


def missing_text(path: EntityPath, namespace: str) -> str:
    """Return the error text for an entity that does not exist."""
    topic, between, subscription = path.name.partition(SUBSCRIPTIONS)
    if between:
        return ErrorText(
            f"there is no subscription {subscription!r} of a topic {topic!r} in namespace {namespace!r}: create it with ",
            Term("create_entity", "ServiceBusAdministrationClient.create_subscription or "),
            "'kafkabus subscription create'",
        )
    return ErrorText(
        f"there is no queue or topic {path.name!r} in namespace {namespace!r}: create it with ",
        Term("create_entity", "ServiceBusAdministrationClient.create_queue or create_topic, or "),
        "'kafkabus queue create' or 'kafkabus topic create'",
    )
