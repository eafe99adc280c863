"""What administration returns, with the names of ``azure.servicebus.management``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum

from kafkabus_mapping.entities import AccessRights, EntityStatus, QueueDescription
from kafkabus_mapping.namespaces import NamespaceDescription

__all__ = [
    "AccessRights",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
]


class MessagingSku(str, Enum):
    """A namespace's tier."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceType(str, Enum):
    """What a namespace is for."""

    MESSAGING = "Messaging"
    NOTIFICATION_HUB = "NotificationHub"
    MIXED = "Mixed"
    EVENT_HUB = "EventHub"
    RELAY = "Relay"


@dataclass(frozen=True, kw_only=True)
class NamespaceProperties:
    """A namespace.

    Attributes:
        name: Its name.
        alias: None: kafkabus has no aliases.
        created_at_utc: When it was created.
        modified_at_utc: When it was last changed.
        messaging_sku: Its tier, fixed at creation.
        messaging_units: None outside Premium, else 1: Kafka's brokers are what there is of them.
        namespace_type: ``Messaging``.
        partitions: Of every entity in Premium, None in the other tiers; kafkabus's own.
    """

    name: str
    alias: str | None = None
    created_at_utc: datetime
    modified_at_utc: datetime
    messaging_sku: MessagingSku
    messaging_units: int | None
    namespace_type: NamespaceType = NamespaceType.MESSAGING
    partitions: int | None


def namespace_properties(name: str, description: NamespaceDescription) -> NamespaceProperties:
    """A namespace's description as administration returns it."""
    return NamespaceProperties(
        name=name,
        created_at_utc=description.created_at,
        modified_at_utc=description.updated_at,
        messaging_sku=MessagingSku(description.tier.value),
        messaging_units=None if description.partitions is None else 1,
        partitions=description.partitions,
    )


@dataclass(frozen=True, kw_only=True)
class AuthorizationRule:
    """A shared access rule of an entity; carried, not checked: access is what Kafka and Redis grant.

    Attributes:
        type: Kind of rule.
        claim_type: Kind of claim.
        claim_value: Claim.
        rights: What it grants.
        created_at_utc: When it was created.
        modified_at_utc: When it was last changed.
        key_name: Its name.
        primary_key: One key.
        secondary_key: The other one.
    """

    type: str | None = "SharedAccessAuthorizationRule"
    claim_type: str | None = "SharedAccessKey"
    claim_value: str | None = "None"
    rights: list[AccessRights] = field(default_factory=list)
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = None
    secondary_key: str | None = None


class EntityAvailabilityStatus(str, Enum):
    """Whether all partitions of an entity can be used."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    UNKNOWN = "Unknown"


@dataclass(kw_only=True)
class QueueProperties(Mapping[str, object]):
    """A queue's settings; also readable as a mapping.

    Attributes:
        name: Its name.
        enable_partitioning: Whether it has several partitions; fixed at creation.
        lock_duration: How long a received message is locked.
        max_delivery_count: After how many deliveries a message is dead-lettered.
        max_size_in_megabytes: Of the whole queue, in MB.
        requires_session: Fixed at creation.
        requires_duplicate_detection: Fixed at creation.
        duplicate_detection_history_time_window: How long message ids are remembered.
        default_message_time_to_live: For messages that bring none.
        dead_lettering_on_message_expiration: Whether expired messages are dead-lettered.
        auto_delete_on_idle: After how long without use the queue is deleted.
        enable_batched_operations: Kept for compatibility.
        status: Which operations it takes.
        availability_status: Whether all partitions can be used.
        user_metadata: Free text.
        forward_to: Address of the entity that its messages move on to, or None.
        forward_dead_lettered_messages_to: Address of the entity that its dead-lettered messages move on to, or None.
        max_message_size_in_kilobytes: Largest message.
        enable_express: Kept for compatibility.
        authorization_rules: Carried, not checked.
        settled_retention: How long settled records stay in Kafka; kafkabus's own.
    """

    name: str
    enable_partitioning: bool
    lock_duration: timedelta
    max_delivery_count: int
    max_size_in_megabytes: int
    requires_session: bool
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: timedelta
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    auto_delete_on_idle: timedelta
    enable_batched_operations: bool
    status: EntityStatus
    availability_status: EntityAvailabilityStatus
    user_metadata: str
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    max_message_size_in_kilobytes: int
    enable_express: bool
    authorization_rules: list[AuthorizationRule]
    settled_retention: timedelta

    def __getitem__(self, key: str) -> object:
        if key not in _QUEUE_FIELDS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_QUEUE_FIELDS)

    def __len__(self) -> int:
        return len(_QUEUE_FIELDS)


_QUEUE_FIELDS = tuple(one.name for one in fields(QueueProperties))


READ_ONLY = frozenset({"availability_status"})
"""Fields of a queue's properties that describe it and set nothing."""
SETTINGS = frozenset(_QUEUE_FIELDS) - READ_ONLY
"""The others."""


def queue_properties(
    description: QueueDescription, namespace: NamespaceDescription, availability: EntityAvailabilityStatus, host: str
) -> QueueProperties:
    """A description as administration returns it, of a namespace with this host name."""

    def address(name: str | None) -> str | None:
        return None if name is None else f"sb://{host}/{name}"

    return QueueProperties(
        name=description.name,
        enable_partitioning=description.enable_partitioning,
        lock_duration=description.lock_duration,
        max_delivery_count=description.max_delivery_count,
        max_size_in_megabytes=description.max_size_in_megabytes * description.partitions,
        requires_session=description.requires_session,
        requires_duplicate_detection=description.requires_duplicate_detection,
        duplicate_detection_history_time_window=description.duplicate_detection_history_time_window,
        default_message_time_to_live=description.default_message_time_to_live,
        dead_lettering_on_message_expiration=description.dead_lettering_on_message_expiration,
        auto_delete_on_idle=description.auto_delete_on_idle,
        enable_batched_operations=description.enable_batched_operations,
        status=description.status if description.retiring_at is None else EntityStatus.DELETING,
        availability_status=availability,
        user_metadata=description.user_metadata,
        forward_to=address(description.forward_to),
        forward_dead_lettered_messages_to=address(description.forward_dead_lettered_messages_to),
        max_message_size_in_kilobytes=description.max_message_size_in_kilobytes or namespace.max_message_bytes // 1024,
        enable_express=description.enable_express,
        authorization_rules=[
            replace(AuthorizationRule(**rule.model_dump(exclude={"rights"})), rights=list(rule.rights))
            for rule in description.authorization_rules
        ],
        settled_retention=description.settled_retention,
    )


def changed(description: QueueDescription, settings: Mapping[str, object]) -> dict[str, object]:
    """What a queue's description holds with settings as ``queue_properties`` names them; None means the default.

    The size may be given as it is reported, for all partitions, or for one.
    """
    known = description.model_dump()
    for name, value in settings.items():
        if value is None:
            known[name] = type(description).model_fields[name].default
        elif name == "max_size_in_megabytes" and value == description.max_size_in_megabytes * description.partitions:
            continue
        elif name == "authorization_rules" and isinstance(value, (list, tuple)):
            known[name] = [asdict(rule) if isinstance(rule, AuthorizationRule) else rule for rule in value]
        else:
            known[name] = value
    return known


@dataclass(frozen=True, kw_only=True)
class PartitionRuntimeProperties:
    """One partition of a queue; kafkabus's own.

    Attributes:
        partition: Its number.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        scheduled_message_count: Messages whose time has not come.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
    """

    partition: int
    active_message_count: int
    dead_letter_message_count: int
    scheduled_message_count: int = 0
    transfer_dead_letter_message_count: int = 0


@dataclass(frozen=True, kw_only=True)
class QueueRuntimeProperties:
    """A queue's counts, summed over its partitions.

    Attributes:
        name: Its name.
        created_at_utc: When it was created.
        updated_at_utc: When its settings were last changed.
        accessed_at_utc: When a message was last stored in it, or it was last received from, to the second or so.
        total_message_count: All that follow.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        scheduled_message_count: Messages whose time has not come.
        transfer_message_count: Messages on their way to another queue.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
        partitions: The counts of each partition; kafkabus's own.
    """

    name: str
    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    total_message_count: int
    active_message_count: int
    dead_letter_message_count: int
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    partitions: tuple[PartitionRuntimeProperties, ...] = field(default=())
