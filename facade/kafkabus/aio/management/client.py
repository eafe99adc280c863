"""Creating, describing and deleting entities."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta, timezone
from types import TracebackType

from pydantic import ValidationError
from typing_extensions import Self

from kafkabus.aio._acompat import sleep
from kafkabus.aio.services import Services
from kafkabus.connection_string import Settings, parse_settings, settings_for
from kafkabus.entity import Entity
from kafkabus.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)
from kafkabus.log.topics import ENTITY_TOPIC
from kafkabus.management.models import (
    EntityAvailabilityStatus,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
    queue_properties,
)
from kafkabus_mapping.entities import PARTITIONS_STANDARD, QueueDescription
from kafkabus_mapping.names import EntityPath, check_entity, topic_name

CREATION_PATIENCE = 5.0
"""How long, in seconds, a creation waits for another one of the same name before it takes over what that one left."""


class ServiceBusAdministrationClient:
    """Administers a namespace.

    Args:
        fully_qualified_namespace: Host name of the namespace; see ``ServiceBusClient``.
        credential: Carried, not checked.

    Raises:
        ValueError: It is not said where Kafka or Redis is.
    """

    def __init__(self, fully_qualified_namespace: str, credential: object = None) -> None:  # noqa: ARG002 - carried, not checked
        self._open(settings_for(fully_qualified_namespace))

    @classmethod
    def from_connection_string(cls, conn_str: str, *, environment: Mapping[str, str] | None = None) -> Self:
        """An administration client of the namespace that a connection string names.

        Args:
            conn_str: The connection string.
            environment: ``KAFKABUS_…`` settings; the process's environment by default.

        Raises:
            ValueError: The string is malformed, or it is not said where Kafka or Redis is.
        """
        client = cls.__new__(cls)
        client._open(parse_settings(conn_str, environment))
        return client

    def _open(self, settings: Settings) -> None:
        self.fully_qualified_namespace = settings.fully_qualified_namespace
        self._settings = settings
        self._services: Services | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the client can be used again."""
        services, self._services = self._services, None
        if services is not None:
            await services.close()

    async def create_queue(
        self,
        queue_name: str,
        *,
        enable_partitioning: bool | None = None,
        lock_duration: timedelta | None = None,
        max_delivery_count: int | None = None,
        max_size_in_megabytes: int | None = None,
        requires_session: bool | None = None,
        requires_duplicate_detection: bool | None = None,
        duplicate_detection_history_time_window: timedelta | None = None,
        default_message_time_to_live: timedelta | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        auto_delete_on_idle: timedelta | None = None,
        user_metadata: str | None = None,
        settled_retention: timedelta | None = None,
    ) -> QueueProperties:
        """Create a queue: a Kafka topic with one partition per entity partition, and its ledgers.

        Args:
            queue_name: Up to 260 characters.
            enable_partitioning: 16 partitions instead of one; default False, as in the service. Fixed from now on.
            lock_duration: Up to 5 minutes, default 1 minute.
            max_delivery_count: 1 to 2,000, default 10.
            max_size_in_megabytes: Of one partition, default 1,024.
            requires_session: Not supported yet.
            requires_duplicate_detection: Not supported yet.
            duplicate_detection_history_time_window: Not supported yet.
            default_message_time_to_live: Not supported yet.
            dead_lettering_on_message_expiration: Not supported yet.
            auto_delete_on_idle: Not supported yet.
            user_metadata: Up to 1,024 characters.
            settled_retention: How long settled records stay in Kafka; kafkabus's own, default one day.

        Raises:
            MessagingEntityAlreadyExistsError: There is a queue of that name.
            InvalidOperationError: A setting is out of its bounds or not supported.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        path = EntityPath(check_entity(queue_name))
        _refuse_unsupported(
            requires_session=requires_session,
            requires_duplicate_detection=requires_duplicate_detection,
            duplicate_detection_history_time_window=duplicate_detection_history_time_window,
            auto_delete_on_idle=auto_delete_on_idle,
        )
        given = {
            "lock_duration": lock_duration,
            "max_delivery_count": max_delivery_count,
            "max_size_in_megabytes": max_size_in_megabytes,
            "default_message_time_to_live": default_message_time_to_live,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "user_metadata": user_metadata,
            "settled_retention": settled_retention,
        }
        partitions = PARTITIONS_STANDARD if enable_partitioning else 1
        now = datetime.now(timezone.utc)
        description = _validated(
            {
                "name": queue_name,
                "enable_partitioning": bool(enable_partitioning),
                "partitions": partitions,
                "topic": topic_name(self._settings.namespace, path),
                "topic_id": "",
                "created_at": now,
                "updated_at": now,
                **{name: value for name, value in given.items() if value is not None},
            }
        )
        services = self._connections()
        if await services.directory.get(queue_name) is not None:
            raise _exists(queue_name)
        # The broker lets one of several creations win.
        if not await services.pool.run(services.topics.create, description.topic, partitions, ENTITY_TOPIC):
            await self._wait_for_other(queue_name)
        topic = await services.pool.run(services.topics.wait_for, description.topic)
        if topic.partitions != partitions:
            raise ServiceBusError(
                f"topic {topic.name!r} exists with {topic.partitions} partitions and belongs to no queue; queue "
                f"{queue_name!r} needs {partitions}: delete the topic or choose another name"
            )
        description = description.model_copy(update={"topic_id": topic.topic_id})
        await services.create_ledgers(self._entity(path, description).ledgers)
        await services.directory.put(description)
        return queue_properties(description, EntityAvailabilityStatus.AVAILABLE)

    async def get_queue(self, queue_name: str) -> QueueProperties:
        """A queue's settings.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description = await self._description(queue_name)
        return queue_properties(description, await self._availability(description))

    async def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """A queue's counts, summed over its partitions.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description = await self._description(queue_name)
        return await self._runtime(description)

    async def delete_queue(self, queue_name: str) -> None:
        """Delete a queue, its dead-letter queue and all their messages.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        services = self._connections()
        description = await self._description(queue_name)
        path = EntityPath(description.name)
        # The description goes last: a deletion that was cut off can be repeated.
        for which, topic in (
            (path, description.topic),
            (path.dead_letter, topic_name(self._settings.namespace, path.dead_letter)),
        ):
            described = await services.pool.run(services.topics.describe, topic)
            if described is not None:
                await services.pool.run(services.topics.delete, topic)
                await services.courier.forget(list(self._entity(which, description, described.topic_id).ledgers))
        await services.directory.remove(description.name)

    async def list_queues(self) -> AsyncIterator[QueueProperties]:
        """All queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        for description in await self._connections().directory.all():
            yield queue_properties(description, await self._availability(description))

    async def list_queues_runtime_properties(self) -> AsyncIterator[QueueRuntimeProperties]:
        """The counts of all queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        for description in await self._connections().directory.all():
            yield await self._runtime(description)

    async def _runtime(self, description: QueueDescription) -> QueueRuntimeProperties:
        path = EntityPath(description.name)
        active = await self._counts(path, description, description.topic, description.topic_id)
        services = self._connections()
        topic = topic_name(self._settings.namespace, path.dead_letter)
        described = await services.pool.run(services.topics.describe, topic)
        dead = [0] * description.partitions
        if described is not None:
            dead = await self._counts(path.dead_letter, description, topic, described.topic_id)
        return QueueRuntimeProperties(
            name=description.name,
            created_at_utc=description.created_at,
            updated_at_utc=description.updated_at,
            total_message_count=sum(active) + sum(dead),
            active_message_count=sum(active),
            dead_letter_message_count=sum(dead),
            partitions=tuple(
                PartitionRuntimeProperties(
                    partition=partition, active_message_count=waiting, dead_letter_message_count=dead[partition]
                )
                for partition, waiting in enumerate(active)
            ),
        )

    async def _counts(self, path: EntityPath, description: QueueDescription, topic: str, topic_id: str) -> list[int]:
        """Messages of each partition: those never granted, and those granted and not settled."""
        services = self._connections()
        entity = self._entity(path, description, topic_id)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        cursors = await services.courier.cursors(list(entity.ledgers))
        ends = await services.pool.run(services.topics.ends, topic, range(entity.partitions))
        starts = await services.pool.run(services.topics.starts, topic, range(entity.partitions))
        return [
            ends[partition] - starts[partition] if state is None else max(0, ends[partition] - state[0]) + state[1]
            for partition, state in enumerate(cursors)
        ]

    async def _availability(self, description: QueueDescription) -> EntityAvailabilityStatus:
        services = self._connections()
        topic = await services.pool.run(services.topics.describe, description.topic)
        if topic is None:
            return EntityAvailabilityStatus.UNKNOWN
        return EntityAvailabilityStatus.LIMITED if topic.unavailable else EntityAvailabilityStatus.AVAILABLE

    async def _description(self, queue_name: str) -> QueueDescription:
        check_entity(queue_name)
        description = await self._connections().directory.get(queue_name)
        if description is None:
            raise MessagingEntityNotFoundError(
                f"there is no queue {queue_name!r} in namespace {self._settings.namespace!r}: create_queue creates it"
            )
        return description

    async def _wait_for_other(self, queue_name: str) -> None:
        """The topic exists and the description does not: another creation is under way, or one was cut off."""
        deadline = time.monotonic() + CREATION_PATIENCE
        while time.monotonic() < deadline:
            if await self._connections().directory.get(queue_name) is not None:
                raise _exists(queue_name)
            await sleep(0.1)

    def _entity(self, path: EntityPath, description: QueueDescription, topic_id: str | None = None) -> Entity:
        return Entity.of(
            self._settings.namespace,
            path,
            description,
            topic=topic_name(self._settings.namespace, path),
            topic_id=topic_id or description.topic_id,
            client_id=self._connections().client_id,
        )

    def _connections(self) -> Services:
        if self._services is None:
            self._services = Services(self._settings)
        return self._services


def _exists(queue_name: str) -> MessagingEntityAlreadyExistsError:
    return MessagingEntityAlreadyExistsError(
        f"there is a queue {queue_name!r} already: delete it or choose another name"
    )


def _validated(settings: Mapping[str, object]) -> QueueDescription:
    try:
        return QueueDescription.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}={problem['input']!r}: {problem['msg']}"
            for problem in error.errors()
        )
        raise InvalidOperationError(f"queue {settings['name']!r} cannot be created: {problems}", error=error) from error


def _refuse_unsupported(**settings: object) -> None:
    for name, value in settings.items():
        if value:
            raise InvalidOperationError(f"{name}={value!r}: not supported yet; leave it out")
