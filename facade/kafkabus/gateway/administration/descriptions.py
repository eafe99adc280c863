"""Descriptions of queues, topics, subscriptions and the namespace, as elements.

The elements are in the order in which Azure writes them, which some clients depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from kafkabus._core.entity_properties import (
    AuthorizationRule,
    EntityProperties,
    NamespaceProperties,
    QueueProperties,
    QueueRuntimeProperties,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicProperties,
    TopicRuntimeProperties,
)
from kafkabus.gateway.administration.atom import DocumentError, children, description, element, local_name, moment_text
from kafkabus.gateway.administration.values import duration_text, read_boolean, read_duration, read_integer, read_moment
from kafkabus_mapping.entities import AccessRights

RuntimeProperties = QueueRuntimeProperties | TopicRuntimeProperties | SubscriptionRuntimeProperties

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
"""The namespace of the counts of messages."""
_COUNTED = {
    "ActiveMessageCount": "active_message_count",
    "DeadLetterMessageCount": "dead_letter_message_count",
    "ScheduledMessageCount": "scheduled_message_count",
    "TransferMessageCount": "transfer_message_count",
    "TransferDeadLetterMessageCount": "transfer_dead_letter_message_count",
}
"""The counts by their names."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting as an element.

    Attributes:
        name: The name of the setting.
        read: Returns the value that an element has; raises ValueError with the rule.
    """

    name: str
    read: Callable[[Element], object]


def _text(node: Element) -> str:
    return node.text or ""


def _duration(node: Element) -> timedelta:
    return read_duration(_text(node))


def _integer(node: Element) -> int:
    return read_integer(_text(node))


def _boolean(node: Element) -> bool:
    return read_boolean(_text(node))


def _destination(node: Element) -> str | None:
    """Return the name of an entity in an address of it, whose host is that by which the client knows the gateway."""
    text = _text(node).strip()
    if "://" in text:
        text = unquote(text.partition("://")[2].partition("?")[0].partition("/")[2])
    return text.strip("/") or None


_LOCK_DURATION = _Setting("lock_duration", _duration)
_MAX_SIZE = _Setting("max_size_in_megabytes", _integer)
_DUPLICATES = _Setting("requires_duplicate_detection", _boolean)
_SESSION = _Setting("requires_session", _boolean)
_TIME_TO_LIVE = _Setting("default_message_time_to_live", _duration)
_EXPIRED = _Setting("dead_lettering_on_message_expiration", _boolean)
_WINDOW = _Setting("duplicate_detection_history_time_window", _duration)
_DELIVERIES = _Setting("max_delivery_count", _integer)
_BATCHED = _Setting("enable_batched_operations", _boolean)
_STATUS = _Setting("status", _text)
_FORWARD = _Setting("forward_to", _destination)
_FORWARD_DEAD = _Setting("forward_dead_lettered_messages_to", _destination)
_METADATA = _Setting("user_metadata", _text)
_IDLE = _Setting("auto_delete_on_idle", _duration)
_PARTITIONED = _Setting("enable_partitioning", _boolean)
_EXPRESS = _Setting("enable_express", _boolean)
_MESSAGE_SIZE = _Setting("max_message_size_in_kilobytes", _integer)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of entity.

    Attributes:
        element: The name of its description.
        elements: The names of the elements of its description in their order, with the setting of those that have one.
        word: Its name, in errors.
    """

    element: str
    elements: Mapping[str, _Setting | None]
    word: str

    def settings_in(self, described: Element) -> dict[str, Any]:
        """Return the settings in a description; elements without a setting say what only the service knows.

        Raises:
            DocumentError: A value breaks the rule of its type.
        """
        found: dict[str, Any] = {}
        for name, child in children(described).items():
            setting = self.elements.get(name)
            if setting is None:
                continue
            try:
                found[setting.name] = setting.read(child)
            except ValueError as error:
                raise DocumentError(f"{name}={child.text!r}: {error}") from error
        return found

    def describe(self, properties: EntityProperties, counts: RuntimeProperties) -> Element:
        """Return the description of an entity."""
        special = {
            **_count_elements(counts),
            "IsAnonymousAccessible": "false",
            "EnableSubscriptionPartitioning": "false",
        }
        described = description(self.element)
        for name, setting in self.elements.items():
            if name == "AuthorizationRules":
                described.append(_authorization_rules(getattr(properties, "authorization_rules", ())))
            elif name == "CountDetails":
                described.append(_count_details(counts))
            elif name == "EntityAvailabilityStatus":
                described.append(element(name, _to_text(properties["availability_status"])))
            elif name in special:
                described.append(element(name, special[name]))
            elif setting is None:
                # Queues have no such setting here: the order within a partition always holds.
                described.append(element(name, _to_text(getattr(properties, "support_ordering", True))))
            elif (value := getattr(properties, setting.name)) not in {None, ""}:
                described.append(element(name, _to_text(value)))
        return described


def _rules_of(node: Element) -> list[AuthorizationRule]:
    return [_authorization_rule(each) for each in node]


_RULES = _Setting("authorization_rules", _rules_of)

QUEUE = Kind(
    "QueueDescription",
    {
        "LockDuration": _LOCK_DURATION,
        "MaxSizeInMegabytes": _MAX_SIZE,
        "RequiresDuplicateDetection": _DUPLICATES,
        "RequiresSession": _SESSION,
        "DefaultMessageTimeToLive": _TIME_TO_LIVE,
        "DeadLetteringOnMessageExpiration": _EXPIRED,
        "DuplicateDetectionHistoryTimeWindow": _WINDOW,
        "MaxDeliveryCount": _DELIVERIES,
        "EnableBatchedOperations": _BATCHED,
        "SizeInBytes": None,
        "MessageCount": None,
        "IsAnonymousAccessible": None,
        "AuthorizationRules": _RULES,
        "Status": _STATUS,
        "ForwardTo": _FORWARD,
        "UserMetadata": _METADATA,
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "SupportOrdering": None,
        "CountDetails": None,
        "AutoDeleteOnIdle": _IDLE,
        "EnablePartitioning": _PARTITIONED,
        "EntityAvailabilityStatus": None,
        "ForwardDeadLetteredMessagesTo": _FORWARD_DEAD,
        "EnableExpress": _EXPRESS,
        "MaxMessageSizeInKilobytes": _MESSAGE_SIZE,
    },
    "queue",
)
"""Queues."""

TOPIC = Kind(
    "TopicDescription",
    {
        "DefaultMessageTimeToLive": _TIME_TO_LIVE,
        "MaxSizeInMegabytes": _MAX_SIZE,
        "RequiresDuplicateDetection": _DUPLICATES,
        "DuplicateDetectionHistoryTimeWindow": _WINDOW,
        "EnableBatchedOperations": _BATCHED,
        "SizeInBytes": None,
        "FilteringMessagesBeforePublishing": _Setting("filtering_messages_before_publishing", _boolean),
        "IsAnonymousAccessible": None,
        "AuthorizationRules": _RULES,
        "Status": _STATUS,
        "UserMetadata": _METADATA,
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "SupportOrdering": _Setting("support_ordering", _boolean),
        "CountDetails": None,
        "SubscriptionCount": None,
        "SqlFilterCount": None,
        "CorrelationFilterCount": None,
        "AutoDeleteOnIdle": _IDLE,
        "EnablePartitioning": _PARTITIONED,
        "EntityAvailabilityStatus": None,
        "EnableSubscriptionPartitioning": None,
        "EnableExpress": _EXPRESS,
        "MaxMessageSizeInKilobytes": _MESSAGE_SIZE,
    },
    "topic",
)
"""Topics."""

SUBSCRIPTION = Kind(
    "SubscriptionDescription",
    {
        "LockDuration": _LOCK_DURATION,
        "RequiresSession": _SESSION,
        "DefaultMessageTimeToLive": _TIME_TO_LIVE,
        "DeadLetteringOnMessageExpiration": _EXPIRED,
        "DeadLetteringOnFilterEvaluationExceptions": _Setting(
            "dead_lettering_on_filter_evaluation_exceptions", _boolean
        ),
        "MessageCount": None,
        "MaxDeliveryCount": _DELIVERIES,
        "EnableBatchedOperations": _BATCHED,
        "Status": _STATUS,
        "ForwardTo": _FORWARD,
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "CountDetails": None,
        "UserMetadata": _METADATA,
        "ForwardDeadLetteredMessagesTo": _FORWARD_DEAD,
        "AutoDeleteOnIdle": _IDLE,
        "EntityAvailabilityStatus": None,
    },
    "subscription",
)
"""Subscriptions."""

DESTINATIONS = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
"""The elements that name entities to which messages are forwarded."""
KINDS = {kind.element: kind for kind in (QUEUE, TOPIC, SUBSCRIPTION)}
"""The kinds of entities by the names of their descriptions."""


def kind_of(properties: EntityProperties) -> Kind:
    """Return the kind of an entity with these properties."""
    match properties:
        case QueueProperties():
            return QUEUE
        case TopicProperties():
            return TOPIC
        case SubscriptionProperties():
            return SUBSCRIPTION
        case _:
            raise TypeError(f"{type(properties).__name__} describes no entity")


def destinations_in(described: Element) -> dict[str, str]:
    """Return the names of the entities that messages are to be forwarded to, by the elements that name them."""
    found = children(described)
    named = {name: _destination(found[name]) for name in DESTINATIONS if name in found}
    return {name: destination for name, destination in named.items() if destination is not None}


def describe_namespace(properties: NamespaceProperties) -> Element:
    """Return the description of a namespace."""
    values = {
        "Alias": properties.alias,
        "CreatedTime": properties.created_at_utc,
        "MessagingSKU": properties.messaging_sku,
        "MessagingUnits": properties.messaging_units,
        "ModifiedTime": properties.modified_at_utc,
        "Name": properties.name,
        "NamespaceType": properties.namespace_type,
    }
    described = description("NamespaceInfo")
    described.extend(element(name, _to_text(value)) for name, value in values.items() if value is not None)
    return described


def _to_text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return duration_text(value)
        case datetime():
            return moment_text(value)
        case Enum():
            return str(value.value)
        case _:
            return str(value)


def _count_elements(counts: RuntimeProperties) -> dict[str, str]:
    """Return the elements that say what the service counts and notes."""
    known = {
        "SizeInBytes": getattr(counts, "size_in_bytes", None),
        "MessageCount": getattr(counts, "total_message_count", None),
        "SubscriptionCount": getattr(counts, "subscription_count", None),
        "SqlFilterCount": getattr(counts, "sql_filter_count", None),
        "CorrelationFilterCount": getattr(counts, "correlation_filter_count", None),
        "CreatedAt": counts.created_at_utc,
        "UpdatedAt": counts.updated_at_utc,
        "AccessedAt": counts.accessed_at_utc,
    }
    return {name: _to_text(value) for name, value in known.items() if value is not None}


def _count_details(counts: RuntimeProperties) -> Element:
    # JavaScript's client looks for this prefix.
    details = element("CountDetails", **{"xmlns:d2p1": COUNTS})
    details.extend(element(f"d2p1:{name}", str(getattr(counts, count, 0))) for name, count in _COUNTED.items())
    return details


_RULE_TEXTS = {
    "ClaimType": "claim_type",
    "ClaimValue": "claim_value",
    "KeyName": "key_name",
    "PrimaryKey": "primary_key",
    "SecondaryKey": "secondary_key",
}
_RULE_TIMES = {"CreatedTime": "created_at_utc", "ModifiedTime": "modified_at_utc"}
_RULE_ORDER = (
    "ClaimType",
    "ClaimValue",
    "Rights",
    "CreatedTime",
    "ModifiedTime",
    "KeyName",
    "PrimaryKey",
    "SecondaryKey",
)
"""The elements of an authorization rule in their order."""


def _authorization_rules(rules: object) -> Element:
    written = element("AuthorizationRules")
    for rule in rules if isinstance(rules, (list, tuple)) else ():
        node = element("AuthorizationRule", **{"i:type": rule.type or "SharedAccessAuthorizationRule"})
        for name in _RULE_ORDER:
            value = getattr(rule, (_RULE_TEXTS | _RULE_TIMES | {"Rights": "rights"})[name])
            if name == "Rights":
                rights = element("Rights")
                rights.extend(element("AccessRights", _to_text(right)) for right in value or ())
                node.append(rights)
            elif value is not None:
                node.append(element(name, _to_text(value)))
        written.append(node)
    return written


def _authorization_rule(node: Element) -> AuthorizationRule:
    """Return an authorization rule.

    Raises:
        ValueError: A right or a time is none.
    """
    found = children(node)
    rule = AuthorizationRule(type=next((value for name, value in node.items() if name.endswith("}type")), None))
    for name, setting in _RULE_TEXTS.items():
        if name in found:
            setattr(rule, setting, _text(found[name]))
    for name, setting in _RULE_TIMES.items():
        if name in found:
            setattr(rule, setting, read_moment(_text(found[name])))
    rights = [_text(right) for right in found.get("Rights", ()) if local_name(right) == "AccessRights"]
    known = [right.value for right in AccessRights]
    if any(right not in known for right in rights):
        raise ValueError(f"the rights {rights}: choose from {known}")
    rule.rights = [AccessRights(right) for right in rights]
    return rule
