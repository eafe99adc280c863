"""The deletion of entities, and the settings that a topic shares with its subscriptions."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone

from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.recovery import EntityRecovery
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.entity_descriptions import EntityDescriptions
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._async.stores.session_states import SessionStates
from kafkabus._core.rule_properties import DEFAULT_RULE
from kafkabus._ledger.keys import entity_keys
from kafkabus_mapping.entities import EntityDescription, EntityStatus, SubscriptionDescription, TopicDescription
from kafkabus_mapping.filters.rules import RuleDescription
from kafkabus_mapping.names import UNMATCHED, EntityPath, subscription_name, topic_name


class EntityLifecycle:
    """Deletes entities, and has subscriptions follow their topics.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        catalog: The client's entities.
        recovery: Creates the ledgers of subscriptions.
        checkpoints: The checkpoints of ledgers.
        session_states: The states of sessions.
        archive: Records that are kept apart from their logs.
    """

    def __init__(
        self,
        connections: Connections,
        descriptions: EntityDescriptions,
        catalog: EntityCatalog,
        recovery: EntityRecovery,
        *,
        checkpoints: Checkpoints,
        session_states: SessionStates,
        archive: RecordArchive,
    ) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._session_states = session_states
        self._archive = archive

    async def delete(self, description: EntityDescription) -> None:
        """Delete an entity, its dead-letter queues and all their messages; a topic's subscriptions go first.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        async with self._descriptions.lock_for_change(description.name) as lock:
            known = await self._descriptions.get(description.name)
            if known is None or known.generation != description.generation:
                return
            await lock.check()
            # Clients and upkeep stop first; the description goes last: a deletion that was cut off can be repeated.
            await self._descriptions.put(known.model_copy(update={"status": EntityStatus.DELETING}))
        for subscription in await self._catalog.subscriptions_of(description):
            await self.delete(subscription)
        path = EntityPath(description.name)
        for which in path.all:
            known = await self._descriptions.get(description.name)
            if known is None or known.generation != description.generation:
                return  # Another client has deleted it, and there may be another one of that name.
            borrowed = isinstance(description, SubscriptionDescription) and not which.is_dead_letter
            topic = description.topic if borrowed else topic_name(self._connections.settings.namespace, which)
            described = await self._connections.topics.describe(topic)
            if described is not None:
                entity = self._catalog.make_entity(which, description, topic, described.topic_id)
                await self._archive.drop_all(entity)
                await self._session_states.drop(entity)
                await self._checkpoints.drop([ledger.keys.prefix for ledger in entity.ledgers])
                if not borrowed:
                    await self._connections.topics.delete(topic)
                await self._connections.ledger_client.forget(
                    entity.ledgers, entity_keys(self._connections.settings.namespace, which, entity.generation)
                )
        async with self._descriptions.lock_for_change(description.name) as lock:
            known = await self._descriptions.get(description.name)
            if known is not None and known.generation == description.generation:
                await lock.check()
                await self._descriptions.remove(description.name)

    async def share(self, topic: EntityDescription) -> None:
        """Have a topic's subscriptions take the settings that the topic has now, and upkeep read it for unmatched messages.

        Raises:
            OperationTimeoutError: Another client has been changing one of them for long; call again.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        if not isinstance(topic, TopicDescription):
            return
        subscriptions = await self._catalog.subscriptions_of(topic)
        if (topic.unmatched_to is not None) != any(subscription.is_unmatched for subscription in subscriptions):
            await self._follow_unmatched(topic)
        for subscription in subscriptions:
            if subscription == subscription.with_settings_of(topic):
                continue
            async with self._descriptions.lock_for_change(subscription.name) as lock:
                # Of clients that change the topic at once, the last one finds the topic's latest description.
                latest, known = (
                    await self._descriptions.get(topic.name),
                    await self._descriptions.get(subscription.name),
                )
                if isinstance(latest, TopicDescription) and isinstance(known, SubscriptionDescription):
                    await lock.check()
                    await self._descriptions.put(known.with_settings_of(latest))

    async def read_unmatched(self, topic: TopicDescription) -> None:
        """Create the subscription by which upkeep reads a topic for unmatched messages, if the topic says where they go.

        The caller has the turn to change the topic, so that the topic never names a destination without being read.

        Raises:
            OperationTimeoutError: Another client has been changing the subscription for long; call again.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        if topic.unmatched_to is None:
            return
        name = subscription_name(topic.name, UNMATCHED)
        known = await self._descriptions.get(name)
        if known is not None and (known.status is EntityStatus.DELETING or known.topic_id != topic.topic_id):
            await self.delete(known)
        async with self._descriptions.lock_for_change(name) as lock:
            if await self._descriptions.get(name) is not None:
                return
            now = datetime.now(timezone.utc)
            everything = RuleDescription(name=DEFAULT_RULE, created_at=now)
            new = SubscriptionDescription.of_topic(
                topic, name, uid=uuid.uuid4().hex[:12], created_at=now, rules=[everything]
            )
            entity = self._catalog.make_entity(EntityPath(name), new, topic.topic, topic.topic_id)
            offsets = await self._recovery.begin_subscription(entity)
            await lock.check()
            await self._descriptions.put(new.begin_at(offsets))

    async def _follow_unmatched(self, topic: TopicDescription) -> None:
        """Create that subscription or delete it, as the topic's description says now."""
        async with self._descriptions.lock_for_change(topic.name):
            latest = await self._descriptions.get(topic.name)
            if not isinstance(latest, TopicDescription) or latest.generation != topic.generation:
                return
            if latest.unmatched_to is not None:
                await self.read_unmatched(latest)
                return
            known = await self._descriptions.get(subscription_name(topic.name, UNMATCHED))
            if known is not None:
                await self.delete(known)
