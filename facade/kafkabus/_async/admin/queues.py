"""Creating, describing and deleting entities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from kafkabus._async.admin.base import SessionCounts, check_name, latest_use
from kafkabus._async.admin.topics import TopicAdministration
from kafkabus._async.compat import guard
from kafkabus._core.entity import Entity
from kafkabus._core.entity_properties import (
    AuthorizationRule,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
)
from kafkabus_mapping.entities import EntityStatus, QueueDescription, RetryPolicy
from kafkabus_mapping.names import EntityPath, check_entity, topic_name


class ServiceBusAdministrationClient(TopicAdministration):
    """Administers a namespace.

    Args:
        fully_qualified_namespace: Host name of the namespace; see ``ServiceBusClient``.
        credential: Carried, not checked.
        **unsupported: See ``ServiceBusClient``.

    Raises:
        ValueError: The settings do not say where Kafka or Redis is.
    """

    @guard
    async def create_queue(
        self,
        queue_name: str,
        *,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        enable_express: bool | None = None,
        enable_partitioning: bool | None = None,
        lock_duration: timedelta | str | None = None,
        max_delivery_count: int | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        requires_session: bool | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        status: EntityStatus | str | None = None,
        settled_retention: timedelta | str | None = None,
        retry_policy: RetryPolicy | Mapping[str, object] | None = None,
    ) -> QueueProperties:
        """Create a queue: a Kafka topic with one partition per entity partition, and its ledgers.

        Durations are timedeltas or ISO 8601 texts such as ``PT30S``.

        Args:
            queue_name: Up to 260 characters.
            authorization_rules: Carried, not checked.
            auto_delete_on_idle: After how long without use the queue is deleted: at least 5 minutes, default never. Sending,
                receiving and updating are use; a scheduled message keeps the queue.
            dead_lettering_on_message_expiration: Whether messages whose time to live is over are dead-lettered; default False.
            default_message_time_to_live: At least 1 s, for messages that bring none or a longer one; default for ever.
            duplicate_detection_history_time_window: For how long a message with the id of an earlier one is a duplicate: 20 s
                to 7 days, default 10 minutes.
            enable_batched_operations: Kept for compatibility; operations are always batched.
            enable_express: Kept for compatibility.
            enable_partitioning: 16 partitions instead of one; default False, as in the service. A Premium namespace decides for
                all its queues. Fixed from now on.
            lock_duration: Up to 5 minutes, or the namespace's ``longest_lock``; default 1 minute.
            max_delivery_count: 1 to 2,000, default 10.
            max_size_in_megabytes: Of one partition: 1,024 (the default) to 5,120 in steps of 1,024; plain queues in Premium
                also 10,240 to 81,920, each double the one before.
            requires_duplicate_detection: Whether only the first of several messages with the same id is delivered. The id is
                the key of a message that has no other; in several partitions, messages with different keys are different.
                Not in the Basic tier.
            requires_session: Whether its messages are received in sessions, in their order; all of them need a session id.
            forward_to: Name or address of a queue or topic: all messages move on to it, and cannot be received here.
            user_metadata: Up to 1,024 characters.
            forward_dead_lettered_messages_to: Name or address of a queue or topic: all dead-lettered messages move on to it,
                and cannot be received from the dead-letter queue.
            max_message_size_in_kilobytes: The tier's: 256, in Premium 1,024.
            status: Which operations it takes; default ``Active``.
            settled_retention: How long settled records stay in Kafka; kafkabus's own, default one day.
            retry_policy: When messages are available again that were received and not settled: a ``RetryPolicy``, or a mapping
                with its ``kind`` and ``delays``; default at once. kafkabus's own; the namespace's format must be 2.

        Raises:
            MessagingEntityAlreadyExistsError: There is an entity of that name.
            InvalidOperationError: A setting is out of its bounds.
            ServiceBusQuotaExceededError: The namespace holds as many queues as it may.
            NamespaceFormatError: A retry policy is given, and the namespace's format is 1; nothing was created.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        given: dict[str, object] = {
            "authorization_rules": authorization_rules,
            "auto_delete_on_idle": auto_delete_on_idle,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "default_message_time_to_live": default_message_time_to_live,
            "duplicate_detection_history_time_window": duplicate_detection_history_time_window,
            "enable_batched_operations": enable_batched_operations,
            "enable_express": enable_express,
            "lock_duration": lock_duration,
            "max_delivery_count": max_delivery_count,
            "max_size_in_megabytes": max_size_in_megabytes,
            "requires_duplicate_detection": requires_duplicate_detection,
            "requires_session": requires_session,
            "forward_to": forward_to,
            "user_metadata": user_metadata,
            "forward_dead_lettered_messages_to": forward_dead_lettered_messages_to,
            "max_message_size_in_kilobytes": max_message_size_in_kilobytes,
            "status": status,
            "settled_retention": settled_retention,
            "retry_policy": retry_policy,
        }
        check_name(check_entity, queue_name)
        await self._resolve_destinations(given, to_others_than=queue_name)
        description = await self._create_entity(QueueDescription, queue_name, enable_partitioning, given)
        return await self._properties(QueueProperties, description)

    @guard
    async def update_queue(self, queue: QueueProperties | Mapping[str, object], **settings: object) -> None:
        """Change a queue's settings. Clients apply them within 5 seconds.

        Args:
            queue: All settings, as ``get_queue`` returns them, some of them changed.
            **settings: Settings that override those in ``queue``.

        Raises:
            TypeError: ``queue`` does not hold a queue's properties, or lacks some.
            InvalidOperationError: A setting is unknown, out of its bounds, or fixed at creation.
            MessagingEntityNotFoundError: There is no such queue.
            NamespaceFormatError: A retry policy is given, and the namespace's format is 1; nothing was changed.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not isinstance(queue, Mapping):
            raise TypeError(
                f"{type(queue).__name__} is no queue's properties: change what get_queue returns, and give that"
            )
        name = settings.get("name", queue.get("name"))
        if not isinstance(name, str):
            raise TypeError(f"the queue's name is {type(name).__name__}: use str")
        check_name(check_entity, name)
        descriptions = self._connections().descriptions
        async with descriptions.lock_for_change(name) as lock:
            description = await self._update(QueueDescription, name, QueueProperties, queue, settings)
            await lock.check()
            await descriptions.put(description)

    @guard
    async def get_queue(self, queue_name: str) -> QueueProperties:
        """Return a queue's settings.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return await self._properties(QueueProperties, await self._description(queue_name))

    @guard
    async def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """Return a queue's counts, summed over its partitions.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description = await self._description(queue_name)
        return await self._runtime(description)

    @guard
    async def delete_queue(self, queue_name: str) -> None:
        """Delete a queue, its dead-letter queues and all their messages.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        context = self._connections()
        description = await self._description(queue_name)
        await context.maintenance.lifecycle.delete(description)

    @guard
    async def list_queues(self) -> AsyncIterator[QueueProperties]:
        """Yield all queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        every = await self._connections().descriptions.all()
        listed = [description for description in every if isinstance(description, QueueDescription)]
        async for properties in self._list_entities(QueueProperties, listed):  # aio-only
            yield properties  # aio-only
        # blocking: yield from self._list_entities(QueueProperties, listed)

    @guard
    async def list_queues_runtime_properties(self) -> AsyncIterator[QueueRuntimeProperties]:
        """Yield the counts of all queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        every = await self._connections().descriptions.all()
        listed = [description for description in every if isinstance(description, QueueDescription)]
        topics = await self._connections().topics.names()
        count_empty = partial(self._empty, topics)
        async for counts in self._count_entities(listed, self._runtime, count_empty):  # aio-only
            yield counts  # aio-only
        # blocking: yield from self._count_entities(listed, self._runtime, count_empty)

    async def _empty(
        self, topics: Set[str], listed: Sequence[QueueDescription]
    ) -> Mapping[str, QueueRuntimeProperties]:
        """Return the counts of those queues that hold no record and have no dead-letter queues, by name.

        Args:
            topics: The topics that there are.
            listed: The queues.
        """
        context = self._connections()
        entities: list[Entity] = []
        for description in listed:
            path = EntityPath(description.name)
            dead_letters = {topic_name(self._settings.namespace, which) for which in path.all[1:]}
            if not dead_letters & topics:
                entities.append(self._entity(path, description))
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        states = iter(await context.ledger_client.states([ledger for entity in entities for ledger in entity.ledgers]))
        logs = {entity.topic: entity.partitions for entity in entities}
        ends = await context.topics.ends_of_empty(logs)
        empty: list[Entity] = []
        for entity in entities:
            own = list(islice(states, entity.partitions))
            if entity.topic in ends and all(
                state is None or (state.cursor == ends[entity.topic][partition] and not state.in_flight)
                for partition, state in enumerate(own)
            ):
                empty.append(entity)
        heard = await context.ledger_client.last_heartbeats([entity.receivers_key for entity in empty])
        sessions = await self._count_sessions([(entity, ()) for entity in empty])
        described = {description.name: description for description in listed}
        return {
            entity.path.name: _counts_of(
                described[entity.path.name],
                accessed_at=latest_use(described[entity.path.name], moment),
                sessions=sessions.get(entity.path.key),
            )
            for entity, moment in zip(empty, heard, strict=True)
        }

    async def _runtime(self, description: QueueDescription) -> QueueRuntimeProperties:
        path = EntityPath(description.name)
        counts = await self._counts(path, description, description.topic, description.topic_id)
        dead = await self._count_dead(path.dead_letter, description)
        undelivered = await self._count_dead(path.transfer_dead_letter, description)
        open_ones = [sum(each) for each in zip(counts.active, counts.scheduled, counts.moving, strict=True)]
        size = await self._bytes(description.topic, open_ones)
        for which, apart in ((path.dead_letter, dead), (path.transfer_dead_letter, undelivered)):
            size += await self._bytes(topic_name(self._settings.namespace, which), apart)
        return _counts_of(
            description,
            active=counts.active,
            postponed=counts.postponed,
            scheduled=counts.scheduled,
            moving=counts.moving,
            dead=dead,
            undelivered=undelivered,
            size=size,
            sessions=counts.sessions,
            accessed_at=await self._access_time(path, description),
        )

    async def _description(self, queue_name: str) -> QueueDescription:
        return await self._get_known(QueueDescription, check_name(check_entity, queue_name))


def _counts_of(
    description: QueueDescription,
    *,
    accessed_at: datetime,
    active: Sequence[int] = (),
    postponed: Sequence[int] = (),
    scheduled: Sequence[int] = (),
    moving: Sequence[int] = (),
    dead: Sequence[int] = (),
    undelivered: Sequence[int] = (),
    size: int = 0,
    sessions: SessionCounts | None = None,
) -> QueueRuntimeProperties:
    """Return a queue's counts; each sequence holds a number for each partition, or nothing."""
    nothing = [0] * description.partitions
    return QueueRuntimeProperties(
        name=description.name,
        created_at_utc=description.created_at,
        updated_at_utc=description.updated_at,
        accessed_at_utc=accessed_at,
        total_message_count=sum(active) + sum(scheduled) + sum(moving) + sum(dead) + sum(undelivered),
        transfer_message_count=sum(moving),
        scheduled_message_count=sum(scheduled),
        active_message_count=sum(active),
        dead_letter_message_count=sum(dead),
        transfer_dead_letter_message_count=sum(undelivered),
        size_in_bytes=size,
        postponed_message_count=sum(postponed),
        available_session_count=None if sessions is None else sessions.available,
        locked_session_count=None if sessions is None else sessions.locked,
        partitions=tuple(
            PartitionRuntimeProperties(
                partition=partition,
                active_message_count=(active or nothing)[partition],
                scheduled_message_count=(scheduled or nothing)[partition],
                dead_letter_message_count=(dead or nothing)[partition],
                transfer_dead_letter_message_count=(undelivered or nothing)[partition],
                postponed_message_count=(postponed or nothing)[partition],
            )
            for partition in range(description.partitions)
        ),
    )
