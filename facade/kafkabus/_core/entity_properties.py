"""Properties that administration returns, with the names of ``azure.servicebus.management``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from kafkabus_mapping.entities import AccessRights, EntityDescription, EntityStatus, RetryPolicy
from kafkabus_mapping.field_access import FieldAccess
from kafkabus_mapping.formats import FIRST
from kafkabus_mapping.namespaces import LONGEST_LOCK, NamespaceDescription

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "LogUsage",
    "MessageCountDetails",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TopicProperties",
    "TopicRuntimeProperties",
]


class ApiVersion(str, Enum):
    """Versions of the service's administration API, which a client may name; they mean nothing here."""

    V2024_05 = "2024-05"
    V2021_05 = "2021-05"
    V2017_04 = "2017-04"


class MessagingSku(str, Enum):
    """A namespace's tier."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceType(str, Enum):
    """Kinds of namespaces."""

    MESSAGING = "Messaging"
    NOTIFICATION_HUB = "NotificationHub"
    MIXED = "Mixed"
    EVENT_HUB = "EventHub"
    RELAY = "Relay"


@dataclass(kw_only=True)
class NamespaceProperties(FieldAccess):
    """A namespace; also a mapping.

    Attributes:
        name: Its name.
        alias: None: kafkabus has no aliases.
        created_at_utc: When it was created.
        modified_at_utc: When it was last changed.
        messaging_sku: Its tier, fixed at creation.
        messaging_units: None outside Premium, else 1: Kafka's brokers take the place of units.
        namespace_type: ``Messaging``.
        partitions: How many partitions every entity has in Premium; None in the other tiers; kafkabus's own.
        format: The number of the format that programs write to it; kafkabus's own.
        longest_lock: The longest ``lock_duration`` of its entities; kafkabus's own.
    """

    name: str = field(kw_only=False)
    alias: str | None = None
    created_at_utc: datetime
    modified_at_utc: datetime
    messaging_sku: MessagingSku
    messaging_units: int | None
    namespace_type: NamespaceType = NamespaceType.MESSAGING
    partitions: int | None
    format: int = FIRST
    longest_lock: timedelta = LONGEST_LOCK


def namespace_properties(name: str, description: NamespaceDescription) -> NamespaceProperties:
    """Return the properties of a namespace with this description."""
    return NamespaceProperties(
        name=name,
        created_at_utc=description.created_at,
        modified_at_utc=description.updated_at,
        messaging_sku=MessagingSku(description.tier.value),
        messaging_units=None if description.partitions is None else 1,
        partitions=description.partitions,
        format=description.written_format,
        longest_lock=description.longest_lock,
    )


@dataclass(kw_only=True)
class AuthorizationRule:
    """A shared access rule of an entity; carried, not checked: access is what Kafka and Redis grant.

    Attributes:
        type: Kind of rule.
        claim_type: Kind of claim.
        claim_value: Claim.
        rights: The rights that the rule grants.
        created_at_utc: When it was created.
        modified_at_utc: When it was last changed.
        key_name: Its name.
        primary_key: One key.
        secondary_key: The other one.
    """

    type: str | None = None
    claim_type: str | None = None
    claim_value: str | None = None
    rights: list[AccessRights] | None = None
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


class EntityAvailabilityStatus(str, Enum):
    """Whether all partitions of an entity can be used; never ``RENAMING`` or ``RESTORING``, which applications may name."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"


READ_ONLY = frozenset({"availability_status"})
"""Fields of properties that describe an entity and set nothing."""


@dataclass(kw_only=True)
class EntityProperties(FieldAccess):
    """An entity's settings; also a mapping.

    Attributes:
        name: Its name.
    """

    name: str = field(kw_only=False)

    @classmethod
    def settings(cls) -> frozenset[str]:
        """Return the names of the fields, without those that set nothing."""
        return frozenset(cls.field_names()) - READ_ONLY


@dataclass(kw_only=True)
class QueueProperties(EntityProperties):
    """A queue's settings; also a mapping.

    Attributes:
        name: Its name.
        enable_partitioning: Whether it has several partitions; fixed at creation.
        lock_duration: How long a received message is locked.
        max_delivery_count: After how many deliveries a message is dead-lettered.
        max_size_in_megabytes: The maximum size of the whole queue, in MB.
        requires_session: Fixed at creation.
        requires_duplicate_detection: Fixed at creation.
        duplicate_detection_history_time_window: How long message ids are remembered.
        default_message_time_to_live: The time to live of messages that bring none.
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
        retry_policy: When messages are available again that were received and not settled; None: at once. kafkabus's own.
    """

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
    retry_policy: RetryPolicy | None = None


@dataclass(kw_only=True)
class TopicProperties(EntityProperties):
    """A topic's settings; also a mapping.

    Attributes:
        name: Its name.
        enable_partitioning: Whether it has several partitions; fixed at creation.
        max_size_in_megabytes: The maximum size of the whole topic, in MB.
        requires_duplicate_detection: Fixed at creation.
        duplicate_detection_history_time_window: How long message ids are remembered.
        default_message_time_to_live: The time to live of messages that bring none; if a subscription's is shorter, it counts.
        auto_delete_on_idle: After how long without use the topic is deleted.
        enable_batched_operations: Kept for compatibility.
        status: Which operations it takes.
        availability_status: Whether all partitions can be used.
        user_metadata: Free text.
        max_message_size_in_kilobytes: Largest message.
        enable_express: Kept for compatibility.
        filtering_messages_before_publishing: Kept for compatibility.
        support_ordering: Kept for compatibility: the order within a partition always holds.
        size_in_bytes: Kept for compatibility.
        authorization_rules: Carried, not checked.
        settled_retention: How long records stay in Kafka that all subscriptions have settled; kafkabus's own.
        unmatched_to: Address of the entity that messages move on to that no subscription wants, or None; kafkabus's own.
    """

    enable_partitioning: bool
    max_size_in_megabytes: int
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: timedelta
    default_message_time_to_live: timedelta
    auto_delete_on_idle: timedelta
    enable_batched_operations: bool
    status: EntityStatus
    availability_status: EntityAvailabilityStatus
    user_metadata: str
    max_message_size_in_kilobytes: int
    enable_express: bool
    filtering_messages_before_publishing: bool
    support_ordering: bool
    size_in_bytes: int | None
    authorization_rules: list[AuthorizationRule]
    settled_retention: timedelta
    unmatched_to: str | None = None


@dataclass(kw_only=True)
class SubscriptionProperties(EntityProperties):
    """A subscription's settings; also a mapping.

    Attributes:
        name: Its name.
        lock_duration: How long a received message is locked.
        max_delivery_count: After how many deliveries a message is dead-lettered.
        requires_session: Fixed at creation.
        default_message_time_to_live: The time to live of messages that bring none; if the topic's is shorter, it counts.
        dead_lettering_on_message_expiration: Whether expired messages are dead-lettered.
        dead_lettering_on_filter_evaluation_exceptions: Whether messages for which a rule cannot be evaluated are dead-lettered.
        auto_delete_on_idle: After how long without use the subscription is deleted.
        enable_batched_operations: Kept for compatibility.
        status: Which operations it takes.
        availability_status: Whether all partitions can be used.
        user_metadata: Free text.
        forward_to: Address of the entity that its messages move on to, or None.
        forward_dead_lettered_messages_to: Address of the entity that its dead-lettered messages move on to, or None.
        retry_policy: See ``QueueProperties``.
    """

    lock_duration: timedelta
    max_delivery_count: int
    requires_session: bool
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    dead_lettering_on_filter_evaluation_exceptions: bool
    auto_delete_on_idle: timedelta
    enable_batched_operations: bool
    status: EntityStatus
    availability_status: EntityAvailabilityStatus
    user_metadata: str
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    retry_policy: RetryPolicy | None = None


P = TypeVar("P", bound=EntityProperties)


def properties_of(
    kind: type[P],
    description: EntityDescription,
    namespace: NamespaceDescription,
    availability: EntityAvailabilityStatus,
    host: str,
) -> P:
    """Return the properties of an entity with this description, in a namespace with this host name."""

    def address(name: str | None) -> str | None:
        return None if name is None else f"sb://{host}/{name}"

    special: dict[str, object] = {
        "name": description.own_name,
        "max_size_in_megabytes": description.max_size_in_megabytes * description.partitions,
        "status": description.status if description.retiring_at is None else EntityStatus.DELETING,
        "availability_status": availability,
        "forward_to": address(description.forward_to),
        "forward_dead_lettered_messages_to": address(description.forward_dead_lettered_messages_to),
        "unmatched_to": address(getattr(description, "unmatched_to", None)),
        "max_message_size_in_kilobytes": description.max_message_size_in_kilobytes
        or namespace.max_message_bytes // 1024,
        "authorization_rules": [
            replace(AuthorizationRule(**rule.model_dump(exclude={"rights"})), rights=list(rule.rights))
            for rule in description.authorization_rules
        ],
    }
    names = [field.name for field in fields(kind)]
    settings: dict[str, Any] = {name: special.get(name, getattr(description, name, None)) for name in names}
    return kind(**settings)


def change_fields(description: EntityDescription, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a description, changed by settings with the names of ``properties_of``; None means the default.

    The maximum size may be given as it is reported, of all partitions together, or of one partition.
    """
    known = description.model_dump()
    for name, value in settings.items():
        if value is None:
            known[name] = type(description).model_fields[name].default
        elif name == "max_size_in_megabytes" and value == description.max_size_in_megabytes * description.partitions:
            continue
        elif name == "authorization_rules" and isinstance(value, (list, tuple)):
            known[name] = [_rule_fields(rule) if isinstance(rule, AuthorizationRule) else rule for rule in value]
        else:
            known[name] = value
    return known


def _rule_fields(rule: AuthorizationRule) -> dict[str, object]:
    """Return the fields that a rule sets; the others have their defaults."""
    return {name: value for name, value in asdict(rule).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class PartitionRuntimeProperties:
    """One partition of a queue; kafkabus's own.

    Attributes:
        partition: Its number.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        scheduled_message_count: Messages whose time has not come.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
        postponed_message_count: How many of the active messages are postponed.
    """

    partition: int
    active_message_count: int
    dead_letter_message_count: int
    scheduled_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    postponed_message_count: int = 0


@dataclass(kw_only=True)
class MessageCountDetails:
    """Counts of an entity's messages by what becomes of them; administration gives them with its other counts.

    Attributes:
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        scheduled_message_count: Messages whose time has not come.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
        transfer_message_count: Messages on their way to another entity.
        postponed_message_count: How many of the active messages are postponed; kafkabus's own.
    """

    active_message_count: int | None = None
    dead_letter_message_count: int | None = None
    scheduled_message_count: int | None = None
    transfer_dead_letter_message_count: int | None = None
    transfer_message_count: int | None = None
    postponed_message_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class TopicRuntimeProperties:
    """A topic's counts.

    Attributes:
        name: Its name.
        created_at_utc: When it was created.
        updated_at_utc: When its settings were last changed.
        accessed_at_utc: When a message was last stored in it, to the second or so.
        subscription_count: How many subscriptions it has.
        size_in_bytes: Of the messages that the slowest of its subscriptions has not settled, or of scheduled ones; estimated by
            the mean of some 16. Dead letters of subscriptions are not among them.
        scheduled_message_count: Messages whose time has not come.
        sql_filter_count: Rules of its subscriptions with a SQL filter; ``$Default`` has one.
        correlation_filter_count: Rules with a correlation filter.
    """

    name: str
    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    subscription_count: int
    size_in_bytes: int = 0
    scheduled_message_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0


@dataclass(frozen=True, kw_only=True)
class SubscriptionRuntimeProperties:
    """A subscription's counts, summed over its topic's partitions.

    Attributes:
        name: Its name.
        created_at_utc: When it was created.
        updated_at_utc: When its settings were last changed.
        accessed_at_utc: When a message was last stored in the topic, or it was last received from, to the second or so.
        total_message_count: All that follow; those that are postponed count once.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        transfer_message_count: Messages on their way to another entity.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
        partitions: The counts of each partition; kafkabus's own.
        postponed_message_count: How many of the active messages are postponed; kafkabus's own.
        available_session_count: How many sessions wait and are not locked; messages of a partition that no receiver has come
            to yet count as one. None without sessions; kafkabus's own.
        locked_session_count: How many sessions receivers have locked; None without sessions; kafkabus's own.
    """

    name: str
    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    total_message_count: int
    active_message_count: int
    dead_letter_message_count: int
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    partitions: tuple[PartitionRuntimeProperties, ...] = field(default=())
    postponed_message_count: int = 0
    available_session_count: int | None = None
    locked_session_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class LogUsage:
    """How much of a topic's log a subscription keeps from being deleted; kafkabus's own.

    Attributes:
        subscription_name: Name of the subscription.
        records: For each partition, how many records there are from the first one on that the subscription may still need. The
            numbers are those of its last checkpoint, which is some seconds old.
        keeps: The partitions of which no other subscription needs more, so that this one decides what is kept.
    """

    subscription_name: str
    records: tuple[int, ...]
    keeps: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class QueueRuntimeProperties:
    """A queue's counts, summed over its partitions.

    Attributes:
        name: Its name.
        created_at_utc: When it was created.
        updated_at_utc: When its settings were last changed.
        accessed_at_utc: When a message was last stored in it, or it was last received from, to the second or so.
        total_message_count: All that follow; those that are postponed count once.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
        scheduled_message_count: Messages whose time has not come.
        transfer_message_count: Messages on their way to another queue.
        transfer_dead_letter_message_count: Messages that could not be forwarded.
        size_in_bytes: Of all of these, as their sizes are counted; estimated by the mean of some 16 of each queue of them.
        partitions: The counts of each partition; kafkabus's own.
        postponed_message_count: How many of the active messages are postponed; kafkabus's own.
        available_session_count: How many sessions wait and are not locked; messages of a partition that no receiver has come
            to yet count as one. None without sessions; kafkabus's own.
        locked_session_count: How many sessions receivers have locked; None without sessions; kafkabus's own.
    """

    name: str
    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    total_message_count: int
    active_message_count: int
    dead_letter_message_count: int
    size_in_bytes: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    partitions: tuple[PartitionRuntimeProperties, ...] = field(default=())
    postponed_message_count: int = 0
    available_session_count: int | None = None
    locked_session_count: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClientEntity:
    """An entity that a client uses; kafkabus's own.

    Attributes:
        name: Its name; a dead-letter queue's has ``/$deadletterqueue``.
        sends: Whether the client has senders there.
        receives: Whether the client has receivers there.
        client_identifiers: The identifiers of some of these senders and receivers.
    """

    name: str
    sends: bool
    receives: bool
    client_identifiers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClientProperties:
    """A client of a namespace that was heard of within two minutes; kafkabus's own.

    Attributes:
        client_id: Its id, as logs name it.
        version: The version of kafkabus that it runs.
        kind: ``client``, ``administration``, ``gateway`` or ``upkeep``; None if it does not say, as all that follows.
        host: The name of its machine.
        process_id: The id of its process there.
        opened_at_utc: When it was opened, by its clock.
        entities: Entities that it uses, at most 50. The gateway names those of its clients; upkeep names none, as it tends all.
        more_entities: How many more it uses.
    """

    client_id: str
    version: str
    kind: str | None = None
    host: str | None = None
    process_id: int | None = None
    opened_at_utc: datetime | None = None
    entities: tuple[ClientEntity, ...] = ()
    more_entities: int = 0
