# Generated from facade/kafkabus/aio/management/client.py by tools/generate_blocking.py. Do not edit.
"""Creating, describing and deleting entities."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import TracebackType
from urllib.parse import urlsplit

from pydantic import ValidationError
from typing_extensions import Self

from kafkabus._acompat import sleep
from kafkabus.connection_string import Settings, host_of, parse_settings, settings_for
from kafkabus.entity import Entity
from kafkabus.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus.judging import judge_all
from kafkabus.keywords import warn_of
from kafkabus.ledger.keys import holes_key
from kafkabus.ledger.operations import Peek
from kafkabus.ledger.ranges import NEVER
from kafkabus.management.models import (
    READ_ONLY,
    SETTINGS,
    AuthorizationRule,
    EntityAvailabilityStatus,
    NamespaceProperties,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
    changed,
    namespace_properties,
    queue_properties,
)
from kafkabus.services import Services
from kafkabus_mapping.codec import from_milliseconds
from kafkabus_mapping.entities import EntityStatus, QueueDescription
from kafkabus_mapping.names import EntityPath, NameRuleError, check_entity, topic_name
from kafkabus_mapping.namespaces import NamespaceDescription, NamespaceRuleError, Tier

CREATION_PATIENCE = 5.0
"""How long, in seconds, a creation waits for another one of the same name before it takes over what that one left."""


class ServiceBusAdministrationClient:
    """Administers a namespace.

    Args:
        fully_qualified_namespace: Host name of the namespace; see ``ServiceBusClient``.
        credential: Carried, not checked.
        **unsupported: See ``ServiceBusClient``.

    Raises:
        ValueError: It is not said where Kafka or Redis is.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,  # noqa: ARG002 - carried, not checked
        **unsupported: object,
    ) -> None:
        warn_of(unsupported)
        self._open(settings_for(host_of(fully_qualified_namespace)))

    @classmethod
    def from_connection_string(
        cls, conn_str: str, *, environment: Mapping[str, str] | None = None, **unsupported: object
    ) -> Self:
        """An administration client of the namespace that a connection string names.

        Args:
            conn_str: The connection string.
            environment: ``KAFKABUS_…`` settings; the process's environment by default.
            **unsupported: See ``ServiceBusClient``.

        Raises:
            ValueError: The string is malformed, or it is not said where Kafka or Redis is.
        """
        warn_of(unsupported)
        client = cls.__new__(cls)
        client._open(parse_settings(conn_str, environment))
        return client

    def _open(self, settings: Settings) -> None:
        self.fully_qualified_namespace = settings.fully_qualified_namespace
        self._settings = settings
        self._services: Services | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the client can be used again."""
        services, self._services = self._services, None
        if services is not None:
            services.close()

    def create_namespace(self, tier: str = "Standard", partitions: int | None = None) -> NamespaceProperties:
        """Create the namespace, where nobody did yet: queues create a Standard one. kafkabus's own, Azure has a portal for it.

        Args:
            tier: ``Basic``, ``Standard`` or ``Premium``; fixed from now on.
            partitions: Of every queue in a Premium namespace, 1 for plain ones; fixed from now on.

        Raises:
            InvalidOperationError: It was created with another tier or number, or the two do not go together.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        try:
            description = self._connections().create_namespace(_tier(tier), partitions)
        except ValueError as error:
            raise InvalidOperationError(f"the namespace cannot be created: {_reason(error)}", error=error) from error
        return namespace_properties(self._settings.namespace, description)

    def get_namespace_properties(self) -> NamespaceProperties:
        """The namespace's tier, and the number of partitions where that belongs to the namespace.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return namespace_properties(self._settings.namespace, self._connections().namespace())

    def create_queue(
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
    ) -> QueueProperties:
        """Create a queue: a Kafka topic with one partition per entity partition, and its ledgers.

        Durations are timedeltas or ISO 8601 texts such as ``PT30S``.

        Args:
            queue_name: Up to 260 characters.
            authorization_rules: Carried, not checked.
            auto_delete_on_idle: After how long without use the queue is deleted: at least 5 minutes, default never. Sending,
                receiving and updating is use; a scheduled message keeps it.
            dead_lettering_on_message_expiration: Whether messages whose time to live is over are dead-lettered; default False.
            default_message_time_to_live: At least 1 s, for messages that bring none or a longer one; default for ever.
            duplicate_detection_history_time_window: For how long a message with the id of an earlier one is a duplicate: 20 s
                to 7 days, default 10 minutes.
            enable_batched_operations: Kept for compatibility; operations are always batched.
            enable_express: Kept for compatibility.
            enable_partitioning: 16 partitions instead of one; default False, as in the service. A Premium namespace decides for
                all its queues. Fixed from now on.
            lock_duration: Up to 5 minutes, default 1 minute.
            max_delivery_count: 1 to 2,000, default 10.
            max_size_in_megabytes: Of one partition: 1,024 (the default) to 5,120 in steps of 1,024; plain queues in Premium
                also 10,240 to 81,920, each double the one before.
            requires_duplicate_detection: Whether of messages with one id only the first is delivered. Message ids are keys
                where no other is set, and those of different keys are different. Not in the Basic tier.
            requires_session: Whether its messages are received in sessions, in their order; all of them need a session id.
            forward_to: Name of a queue, or its address: all messages move on to it, and nobody receives them here.
            user_metadata: Up to 1,024 characters.
            forward_dead_lettered_messages_to: Likewise, of the messages that are dead-lettered.
            max_message_size_in_kilobytes: The tier's: 256, in Premium 1,024.
            status: Which operations it takes; default ``Active``.
            settled_retention: How long settled records stay in Kafka; kafkabus's own, default one day.

        Raises:
            MessagingEntityAlreadyExistsError: There is a queue of that name.
            InvalidOperationError: A setting is out of its bounds.
            ServiceBusQuotaExceededError: The namespace holds as many queues as it may.
            ValueError: The name breaks a rule.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        path = EntityPath(check_entity(queue_name))
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
        }
        services = self._connections()
        if services.directory.get(queue_name) is not None:
            raise _exists(queue_name)
        self._resolve_destinations(given)
        namespace = services.directory.namespace() or services.create_namespace()
        description = self._check_new(path, namespace, enable_partitioning, given)
        # The broker lets one of several creations win.
        if not services.pool.run(services.topics.create_entity, description.topic, description.partitions):
            self._wait_for_other(queue_name)
        topic = services.pool.run(services.topics.wait_for, description.topic)
        if topic.partitions != description.partitions:
            raise ServiceBusError(
                f"topic {topic.name!r} exists with {topic.partitions} partitions and belongs to no queue; queue "
                f"{queue_name!r} needs {description.partitions}: delete the topic or choose another name"
            )
        description = description.model_copy(update={"topic_id": topic.topic_id})
        services.create_ledgers(self._entity(path, description).ledgers)
        services.directory.put(description)
        return self._properties(description, namespace, EntityAvailabilityStatus.AVAILABLE)

    def update_queue(self, queue: QueueProperties | Mapping[str, object], **settings: object) -> None:
        """Change a queue's settings. Clients go by them within 5 seconds.

        Args:
            queue: All settings, as ``get_queue`` returns them, some of them changed.
            **settings: Settings that count instead of those in ``queue``.

        Raises:
            TypeError: ``queue`` is no queue's properties, or lacks some.
            InvalidOperationError: A setting is unknown, out of its bounds, or fixed at creation.
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not isinstance(queue, Mapping):
            raise TypeError(
                f"{type(queue).__name__} is no queue's properties: change what get_queue returns, and give that"
            )
        missing = SETTINGS - queue.keys() - settings.keys()
        if missing:
            raise TypeError(f"settings are missing: {sorted(missing)}; change what get_queue returns, and give that")
        wanted = {name: value for name, value in {**queue, **settings}.items() if name not in READ_ONLY}
        unknown = wanted.keys() - SETTINGS
        if unknown:
            raise InvalidOperationError(f"there are no settings {sorted(unknown)}: choose from {sorted(SETTINGS)}")
        name = wanted.pop("name")
        if not isinstance(name, str):
            raise TypeError(f"the queue's name is {type(name).__name__}: use str")
        services = self._connections()
        known = self._description(name)
        fixed = {"enable_partitioning", "requires_session", "requires_duplicate_detection"}
        for one in sorted(fixed):
            value = wanted.pop(one)
            if value is not None and value != getattr(known, one):
                raise InvalidOperationError(
                    f"{one}={value!r} of queue {name!r}: fixed at creation as {getattr(known, one)!r}; create another queue"
                )
        self._resolve_destinations(wanted, known)
        if known.retiring_at is not None and wanted.get("status") == EntityStatus.DELETING:
            # As get_queue tells it of a queue that is to be deleted because nobody used it, and this is use.
            wanted["status"] = known.status
        now = datetime.now(timezone.utc)
        description = _validated({**changed(known, wanted), "updated_at": now, "retiring_at": None}, "updated")
        _obey(services.namespace(), description)
        services.directory.put(description)

    def get_queue(self, queue_name: str) -> QueueProperties:
        """A queue's settings.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description = self._description(queue_name)
        return self._properties(description, self._connections().namespace(), self._availability(description))

    def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """A queue's counts, summed over its partitions.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        description = self._description(queue_name)
        return self._runtime(description)

    def delete_queue(self, queue_name: str) -> None:
        """Delete a queue, its dead-letter queues and all their messages.

        Raises:
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        services = self._connections()
        description = self._description(queue_name)
        services.delete_queue(description)

    def list_queues(self) -> Iterator[QueueProperties]:
        """All queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        namespace = self._connections().namespace()
        for description in self._connections().directory.all():
            yield self._properties(description, namespace, self._availability(description))

    def list_queues_runtime_properties(self) -> Iterator[QueueRuntimeProperties]:
        """The counts of all queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        for description in self._connections().directory.all():
            yield self._runtime(description)

    def _properties(
        self, description: QueueDescription, namespace: NamespaceDescription, availability: EntityAvailabilityStatus
    ) -> QueueProperties:
        return queue_properties(description, namespace, availability, self._settings.fully_qualified_namespace)

    def _runtime(self, description: QueueDescription) -> QueueRuntimeProperties:
        path = EntityPath(description.name)
        active, scheduled, moving = self._counts(path, description, description.topic, description.topic_id)
        dead = self._count_dead(path.dead_letter, description)
        undelivered = self._count_dead(path.transfer_dead_letter, description)
        return QueueRuntimeProperties(
            name=description.name,
            created_at_utc=description.created_at,
            updated_at_utc=description.updated_at,
            accessed_at_utc=self._accessed_at(path, description),
            total_message_count=sum(active) + sum(scheduled) + sum(moving) + sum(dead) + sum(undelivered),
            transfer_message_count=sum(moving),
            scheduled_message_count=sum(scheduled),
            active_message_count=sum(active),
            dead_letter_message_count=sum(dead),
            transfer_dead_letter_message_count=sum(undelivered),
            partitions=tuple(
                PartitionRuntimeProperties(
                    partition=partition,
                    active_message_count=active[partition],
                    scheduled_message_count=scheduled[partition],
                    dead_letter_message_count=dead[partition],
                    transfer_dead_letter_message_count=undelivered[partition],
                )
                for partition in range(description.partitions)
            ),
        )

    def _count_dead(self, path: EntityPath, description: QueueDescription) -> list[int]:
        """Messages of each partition of a dead-letter queue, which may not have been needed yet."""
        services, topic = self._connections(), topic_name(self._settings.namespace, path)
        described = services.pool.run(services.topics.describe, topic)
        if described is None:
            return [0] * description.partitions
        active, _, moving = self._counts(path, description, topic, described.topic_id)
        return [sum(both) for both in zip(active, moving, strict=True)]

    def _accessed_at(self, path: EntityPath, description: QueueDescription) -> datetime:
        services = self._connections()
        entity = self._entity(path, description, description.topic_id)
        sent = services.pool.run(services.topics.newest, entity.topic, range(entity.partitions))
        received = services.courier.last_heartbeat(entity.receivers_key)
        times = [from_milliseconds(moment) for moment in (sent, received) if moment is not None]
        return max([description.created_at, *times])

    def _counts(
        self, path: EntityPath, description: QueueDescription, topic: str, topic_id: str
    ) -> tuple[list[int], list[int], list[int]]:
        """Messages of each partition: those that wait or are locked, those that wait for their time, those on their way."""
        services = self._connections()
        entity = self._entity(path, description, topic_id)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        states = services.courier.states(entity.ledgers)
        ends = services.pool.run(services.topics.ends, topic, range(entity.partitions))
        starts = services.pool.run(services.topics.starts, topic, range(entity.partitions))
        scheduled = [0 if state is None else state.scheduled for state in states]
        moving = [0 if state is None else state.moving for state in states]
        told = services.courier.holes(holes_key(entity.namespace, path, entity.generation))
        holes = [told.get(partition, 0) for partition in range(entity.partitions)]
        voids = [0] * entity.partitions
        if entity.detects_duplicates or any(state is not None and state.voids for state in states):
            voids = self._voids(services.entity(path))
        return (
            [
                ends[partition] - starts[partition]
                if state is None
                else max(0, ends[partition] - state.cursor - voids[partition] - holes[partition])
                + max(0, state.held - state.scheduled - state.moving)
                for partition, state in enumerate(states)
            ],
            scheduled,
            moving,
        )

    def _voids(self, entity: Entity) -> list[int]:
        """How many records of each partition beyond the cursor are none that will be granted."""
        services = self._connections()
        judge_all(services, entity, range(entity.partitions))
        peeks = [Peek(ledger, NEVER, 1) for ledger in entity.ledgers]
        services.courier.ask(*peeks)
        return [len(peek.voids) for peek in peeks]

    def _availability(self, description: QueueDescription) -> EntityAvailabilityStatus:
        services = self._connections()
        topic = services.pool.run(services.topics.describe, description.topic)
        if topic is None:
            return EntityAvailabilityStatus.UNKNOWN
        return EntityAvailabilityStatus.LIMITED if topic.unavailable else EntityAvailabilityStatus.AVAILABLE

    def _description(self, queue_name: str) -> QueueDescription:
        check_entity(queue_name)
        description = self._connections().directory.get(queue_name)
        if description is None:
            raise MessagingEntityNotFoundError(
                f"there is no queue {queue_name!r} in namespace {self._settings.namespace!r}: create_queue creates it"
            )
        return description

    def _check_new(
        self,
        path: EntityPath,
        namespace: NamespaceDescription,
        enable_partitioning: bool | None,
        given: Mapping[str, object],
    ) -> QueueDescription:
        """The description of a new queue, without its topic's id."""
        try:
            partitions = namespace.partitions_for(enable_partitioning)
        except NamespaceRuleError as error:
            raise InvalidOperationError(f"queue {path.name!r} cannot be created: {error}", error=error) from error
        now = datetime.now(timezone.utc)
        empty = QueueDescription(
            name=path.name,
            enable_partitioning=partitions > 1,
            partitions=partitions,
            topic=topic_name(self._settings.namespace, path),
            topic_id="",
            created_at=now,
            updated_at=now,
        )
        description = _validated(changed(empty, given), "created")
        _obey(namespace, description)
        others = self._connections().directory.all()
        try:
            namespace.check_room(partitions, len(others), sum(one.enable_partitioning for one in others))
        except NamespaceRuleError as error:
            raise ServiceBusQuotaExceededError(
                f"queue {path.name!r} cannot be created: {error}", error=error
            ) from error
        return description

    def _resolve_destinations(self, settings: dict[str, object], known: QueueDescription | None = None) -> None:
        """Where messages are to be forwarded to, as an address or a name, becomes the name of a queue that there is.

        Raises:
            InvalidOperationError: It names none, or one of another namespace.
            MessagingEntityNotFoundError: There is none of that name; unless it was there when it was set.
        """
        for setting in ("forward_to", "forward_dead_lettered_messages_to"):
            value = settings.get(setting)
            if value is None:
                continue
            name = self._name_of(setting, value)
            if name != getattr(known, setting, None) and self._connections().directory.get(name) is None:
                raise MessagingEntityNotFoundError(
                    f"{setting}={value!r}: there is no queue {name!r} in namespace {self._settings.namespace!r}: "
                    "create it first"
                )
            settings[setting] = name

    def _name_of(self, setting: str, value: object) -> str:
        """The queue's name in an address of it; a name is left as it is."""
        host, name = self._settings.fully_qualified_namespace, str(value)
        if "://" in name:
            parts = urlsplit(name)
            if (parts.hostname or "") != host.lower():
                raise InvalidOperationError(
                    f"{setting}={value!r}: messages are forwarded within their namespace, {host}"
                )
            name = parts.path.strip("/")
        try:
            return check_entity(name)
        except NameRuleError as error:
            raise InvalidOperationError(f"{setting}={value!r}: {error}", error=error) from error

    def _wait_for_other(self, queue_name: str) -> None:
        """The topic exists and the description does not: another creation is under way, or one was cut off."""
        deadline = time.monotonic() + CREATION_PATIENCE
        while time.monotonic() < deadline:
            if self._connections().directory.get(queue_name) is not None:
                raise _exists(queue_name)
            sleep(0.1)

    def _entity(self, path: EntityPath, description: QueueDescription, topic_id: str | None = None) -> Entity:
        topic = topic_name(self._settings.namespace, path)
        return self._connections().described(path, description, topic, topic_id or description.topic_id)

    def _connections(self) -> Services:
        if self._services is None:
            self._services = Services(self._settings)
        return self._services


def _exists(queue_name: str) -> MessagingEntityAlreadyExistsError:
    return MessagingEntityAlreadyExistsError(
        f"there is a queue {queue_name!r} already: use it as it is, or choose another name"
    )


def _validated(settings: Mapping[str, object], verb: str) -> QueueDescription:
    try:
        return QueueDescription.model_validate(settings)
    except ValidationError as error:
        raise InvalidOperationError(
            f"queue {settings['name']!r} cannot be {verb}: {_reason(error)}", error=error
        ) from error


def _obey(namespace: NamespaceDescription, description: QueueDescription) -> None:
    try:
        namespace.check_queue(description)
    except NamespaceRuleError as error:
        raise InvalidOperationError(f"queue {description.name!r}: {error}", error=error) from error


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}={problem['input']}: {problem['msg']}"
        for problem in error.errors()
    )


def _tier(tier: str) -> Tier:
    for one in Tier:
        if one.value.lower() == str(tier).lower():
            return one
    raise ValueError(f"tier {tier!r}: choose from {[one.value for one in Tier]}")
