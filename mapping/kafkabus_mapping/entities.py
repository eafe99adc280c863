"""Descriptions of entities: what an entity was created with, its defaults and its bounds.

Defaults and bounds are Service Bus's. A description is written once per change to the namespace's compacted topic of
descriptions, as this model's JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self, override

from kafkabus_mapping.filters.rules import RuleDescription
from kafkabus_mapping.names import SUBSCRIPTIONS

PARTITIONS_STANDARD = 16
"""Partitions of a partitioned entity in the Basic and Standard tiers."""

_RULES = "rules_by_number"
"""Where a written description has its rules."""

FOREVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
"""The service's longest duration, its default time to live."""


class AccessRights(str, Enum):
    """What an authorization rule grants; values as in ``azure.servicebus.management``."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(str, Enum):
    """Which operations an entity takes; values as in ``azure.servicebus.management``.

    Entities are Active, Disabled, SendDisabled, ReceiveDisabled or Deleting. They are never in the others, which applications
    name that come from there.
    """

    ACTIVE = "Active"
    CREATING = "Creating"
    DELETING = "Deleting"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    SEND_DISABLED = "SendDisabled"
    UNKNOWN = "Unknown"


class AuthorizationRuleDescription(BaseModel):
    """A shared access rule of an entity; carried, not checked.

    Attributes:
        type: Kind of rule, such as ``SharedAccessAuthorizationRule``.
        claim_type: Kind of claim.
        claim_value: Claim.
        rights: ``Manage``, ``Send``, ``Listen``.
        created_at_utc: When it was created.
        modified_at_utc: When it was last changed.
        key_name: Its name.
        primary_key: One key.
        secondary_key: The other one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str | None = None
    claim_type: str | None = None
    claim_value: str | None = None
    rights: tuple[AccessRights, ...] = ()
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = None
    secondary_key: str | None = None


class EntityDescription(BaseModel, frozen=True, extra="forbid"):
    """What holds messages: its settings, and the Kafka topic that they are in.

    Attributes:
        name: As its creator wrote it; of a subscription with its topic's, as ``subscription_name`` joins them.
        enable_partitioning: Fixed at creation.
        partitions: Kafka partitions, one per entity partition: 16 for a partitioned queue
            (the namespace's number in Premium), else 1.
        topic: Name of the Kafka topic.
        topic_id: The topic's id, which the broker made: the queue's generation.
        incarnation: How often one of the topic's logs turned out to be truncated; each time there are new ledgers.
        dead_letter_incarnation: The same of its dead-letter queue.
        transfer_dead_letter_incarnation: The same of its transfer dead-letter queue.
        lock_duration: 1 ms to 5 minutes, default 1 minute.
        max_delivery_count: 1 to 2,000 deliveries, default 10; then the message is dead-lettered.
        max_size_in_megabytes: Of one partition, in MB, default 1,024.
        requires_session: Fixed at creation.
        requires_duplicate_detection: Fixed at creation.
        duplicate_detection_history_time_window: 20 s to 7 days, default 10 minutes.
        default_message_time_to_live: At least 1 s, default for ever.
        dead_lettering_on_message_expiration: Whether expired messages are dead-lettered; else they are dropped.
        auto_delete_on_idle: At least 5 minutes, default for ever.
        enable_batched_operations: Kept for compatibility; operations are always batched.
        status: Which operations are taken.
        retiring_at: Since when nobody may use it because nobody did for ``auto_delete_on_idle``; it is deleted soon. None: it
            may be used.
        user_metadata: Up to 1,024 characters.
        created_at: When the queue was created, UTC.
        updated_at: When it was last changed, UTC.
        settled_retention: How long completed records stay in Kafka for Spark and replay; default one day.
        forward_to: Name of the entity that its messages move on to, or None.
        forward_dead_lettered_messages_to: Name of the entity that its dead-lettered messages move on to, or None.
        max_message_size_in_kilobytes: Largest message; None: the namespace's.
        enable_express: Kept for compatibility.
        authorization_rules: Carried, not checked: access is what Kafka and Redis grant.
        mortal: Whether messages with times to live of their own may have been sent.
        schedules: Whether scheduled messages may have been.
        transacts: Whether transactions may have stored records.
    """

    kind: str = ""
    name: str
    enable_partitioning: bool = False
    partitions: Annotated[int, Field(ge=1, le=1000)] = 1
    topic: str
    topic_id: str
    incarnation: Annotated[int, Field(ge=0)] = 0
    dead_letter_incarnation: Annotated[int, Field(ge=0)] = 0
    transfer_dead_letter_incarnation: Annotated[int, Field(ge=0)] = 0
    lock_duration: Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(minutes=5))] = timedelta(minutes=1)
    max_delivery_count: Annotated[int, Field(ge=1, le=2000)] = 10
    max_size_in_megabytes: Annotated[int, Field(ge=1)] = 1024
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: Annotated[
        timedelta, Field(ge=timedelta(seconds=20), le=timedelta(days=7))
    ] = timedelta(minutes=10)
    default_message_time_to_live: Annotated[timedelta, Field(ge=timedelta(seconds=1))] = FOREVER
    dead_lettering_on_message_expiration: bool = False
    auto_delete_on_idle: Annotated[timedelta, Field(ge=timedelta(minutes=5))] = FOREVER
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    retiring_at: datetime | None = None
    user_metadata: Annotated[str, Field(max_length=1024)] = ""
    created_at: datetime
    updated_at: datetime
    settled_retention: Annotated[timedelta, Field(ge=timedelta(0))] = timedelta(days=1)
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: Annotated[int, Field(ge=1)] | None = None
    enable_express: bool = False
    authorization_rules: tuple[AuthorizationRuleDescription, ...] = ()
    mortal: bool = False
    schedules: bool = False
    transacts: bool = False

    @field_validator("created_at", "updated_at", "retiring_at")
    @classmethod
    def _aware(cls, moment: datetime | None) -> datetime | None:
        if moment is not None and moment.tzinfo is None:
            raise ValueError("times are in UTC and say so: give them a time zone")
        return moment

    @property
    def generation(self) -> str:
        """What tells its ledgers from those of others of its name: the topic's id."""
        return self.topic_id

    @property
    def own_name(self) -> str:
        """Its name, of a subscription without its topic's."""
        return self.name

    def over_topic(self, topic_id: str) -> Self:
        """The same entity over another topic of its topic's name, from that one's beginning."""
        return self.model_copy(update={"topic_id": topic_id})

    def cut(self, partition: int, end: int) -> Self:  # noqa: ARG002 - a subscription needs them
        """The same entity once one of its logs was truncated: what is stored from there on is new."""
        return self


class QueueDescription(EntityDescription, frozen=True):
    """A queue."""

    kind: Literal["queue"] = "queue"


class TopicDescription(EntityDescription, frozen=True):
    """A topic, whose messages are received from its subscriptions; sessions and forwarding are theirs.

    Attributes:
        filtering_messages_before_publishing: Kept for compatibility.
        support_ordering: Kept for compatibility: the order within a partition always holds.
        size_in_bytes: Kept for compatibility.
    """

    kind: Literal["topic"] = "topic"
    filtering_messages_before_publishing: bool = False
    support_ordering: bool = True
    size_in_bytes: int | None = None


_SHARED = (
    "duplicate_detection_history_time_window",
    "max_size_in_megabytes",
    "settled_retention",
    "max_message_size_in_kilobytes",
)
"""Settings that a subscription has of its topic."""


def shared_with(topic: TopicDescription) -> dict[str, object]:
    """What a subscription goes by of its topic, as that is now."""
    shared: dict[str, object] = {name: getattr(topic, name) for name in _SHARED}
    return shared | {"topic_time_to_live": topic.default_message_time_to_live, "topic_status": topic.status}


class RuleSet(BaseModel):
    """Rules of a subscription, and the messages that they are about.

    Attributes:
        rules: They, by name, ``$Default`` first.
        offsets: From which on they count, by partition of the topic's log.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[RuleDescription, ...]
    offsets: tuple[int, ...]


class SubscriptionDescription(EntityDescription, frozen=True):
    """A subscription: a reader of a topic's log with ledgers of its own. What is the topic's is as the topic has it.

    Attributes:
        topic_entity: Name of its topic.
        uid: Tells its ledgers from those of an earlier subscription of its name.
        topic_time_to_live: The topic's default, which counts where it is the shorter one.
        topic_status: The topic's.
        dead_lettering_on_filter_evaluation_exceptions: Whether messages are dead-lettered of which a rule cannot be said.
        rule_sets: Its rules, the last ones those that it has; before them, in the order of their offsets, those that count for
            messages that were stored before they were changed.
        rules_version: How often they were changed.
        changing: Its rules once a change is done that is under way; then none is received until it is. None: none is.
    """

    kind: Literal["subscription"] = "subscription"
    topic_entity: str
    uid: str
    topic_time_to_live: timedelta = FOREVER
    topic_status: EntityStatus = EntityStatus.ACTIVE
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    rule_sets: Annotated[tuple[RuleSet, ...], Field(min_length=1)]
    rules_version: Annotated[int, Field(ge=1)] = 1
    changing: tuple[RuleDescription, ...] | None = None

    @model_serializer(mode="wrap")
    def _each_rule_once(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Sets have most of their rules in common: each rule is written once, and sets name them by their numbers."""
        written: dict[str, Any] = serialize(self)
        known: dict[str, Any] = {}
        places: dict[str, int] = {}

        def numbers(rules: Iterable[Any]) -> list[int]:
            # By how it is written in Python: there 1, 1.0 and True are not the same.
            for rule in rules:
                known.setdefault(repr(rule), rule)
                places.setdefault(repr(rule), len(places))
            return [places[repr(rule)] for rule in rules]

        for one in written["rule_sets"]:
            one["rules"] = numbers(one["rules"])
        if written["changing"] is not None:
            written["changing"] = numbers(written["changing"])
        return {**written, _RULES: list(known.values())}

    @model_validator(mode="before")
    @classmethod
    def _by_their_numbers(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or _RULES not in given:
            return given
        known = given[_RULES]

        def rules(numbers: Iterable[int]) -> list[Any]:
            return [known[number] for number in numbers]

        sets = [{**one, "rules": rules(one["rules"])} for one in given["rule_sets"]]
        changing = None if given["changing"] is None else rules(given["changing"])
        found = {name: value for name, value in given.items() if name != _RULES}
        return {**found, "rule_sets": sets, "changing": changing}

    @property
    def generation(self) -> str:
        """The topic's id, and its own."""
        return f"{self.topic_id}~{self.uid}"

    @override
    def over_topic(self, topic_id: str) -> Self:
        rules = RuleSet(rules=self.rules, offsets=(0,) * self.partitions)
        return self.model_copy(update={"topic_id": topic_id, "rule_sets": (rules,)})

    @override
    def cut(self, partition: int, end: int) -> Self:
        sets = [
            one.model_copy(
                update={
                    "offsets": tuple(
                        min(offset, end) if where == partition else offset for where, offset in enumerate(one.offsets)
                    )
                }
            )
            for one in self.rule_sets
        ]
        return self.model_copy(update={"rule_sets": tuple(sets)})

    def under(self, topic: TopicDescription) -> Self:
        """The same subscription, going by what its topic has now."""
        return self.model_copy(update=shared_with(topic))

    @property
    def rules(self) -> tuple[RuleDescription, ...]:
        """Its rules now."""
        return self.rule_sets[-1].rules

    @property
    def own_name(self) -> str:
        """Its name without its topic's."""
        return self.name[len(self.topic_entity) + len(SUBSCRIPTIONS) :]


def _kind_of(description: Any) -> str:
    # Namespaces have held queues only, which did not say so.
    kind = description.get("kind", "queue") if isinstance(description, dict) else description.kind
    return str(kind)


_ANY: TypeAdapter[QueueDescription | TopicDescription | SubscriptionDescription] = TypeAdapter(
    Annotated[
        Annotated[QueueDescription, Tag("queue")]
        | Annotated[TopicDescription, Tag("topic")]
        | Annotated[SubscriptionDescription, Tag("subscription")],
        Discriminator(_kind_of),
    ]
)


def read_description(text: str) -> QueueDescription | TopicDescription | SubscriptionDescription:
    """What a description's JSON says.

    Raises:
        ValidationError: It says nothing that can be.
    """
    return _ANY.validate_json(text)
