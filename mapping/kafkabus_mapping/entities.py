"""Descriptions of entities: their settings, with defaults and bounds.

Defaults and bounds are Service Bus's. Each change writes the description, as this model's JSON, to the namespace's compacted
topic of descriptions.
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
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self, override

from kafkabus_mapping.filters.rules import RuleDescription
from kafkabus_mapping.names import SUBSCRIPTIONS, UNMATCHED, EntityPath, SubQueue

PARTITIONS_STANDARD = 16
"""The number of partitions of a partitioned entity in the Basic and Standard tiers."""

_LATER = ("retry_policy", "unmatched_to")
"""Fields of format 2, which are None unless they are used."""
_RULES = "rules_by_number"
"""The key of the rules in a description's JSON."""

FOREVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
"""The longest duration in Service Bus, and the default time to live."""


LONGEST_DELAY = timedelta(days=7)
"""For how long a message that was given back may be postponed."""
MOST_DELAYS = 2000
"""How many delays a retry policy has at most: as many as a message may have deliveries."""


class AccessRights(str, Enum):
    """The rights that an authorization rule grants; values as in ``azure.servicebus.management``."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(str, Enum):
    """The status of an entity, which decides the allowed operations; values as in ``azure.servicebus.management``.

    Entities are Active, Disabled, SendDisabled, ReceiveDisabled or Deleting. They never have the other values, which exist
    because applications written for Azure's SDK name them.
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


class RetryPolicy(BaseModel):
    """When messages that were received and not settled are available again: after their locks expired, or were abandoned.

    The service has no such policy. Make one with ``fixed``, ``exponential`` or ``by_delivery_count``; delays are timedeltas or
    seconds, up to 7 days. A policy does not apply to messages that are deferred, or that receivers gave back unseen.

    Attributes:
        kind: ``fixed``, ``exponential`` or ``list``.
        delays: The delay after the first delivery, after the second one, and so on; the last one applies after all later
            deliveries. For ``exponential``, the first delay and the longest one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["fixed", "exponential", "list"]
    delays: tuple[timedelta, ...]

    @classmethod
    def fixed(cls, delay: timedelta | float) -> Self:
        """Return a policy with the same delay after each delivery.

        Raises:
            ValueError: The delay is negative or over 7 days.
        """
        return cls.read({"kind": "fixed", "delays": [delay]})

    @classmethod
    def exponential(cls, first: timedelta | float, longest: timedelta | float) -> Self:
        """Return a policy whose delay doubles after each delivery.

        Args:
            first: The delay after the first delivery.
            longest: The delay that is not exceeded.

        Raises:
            ValueError: A delay is negative or over 7 days, or the first one is 0 or longer than the longest one.
        """
        return cls.read({"kind": "exponential", "delays": [first, longest]})

    @classmethod
    def by_delivery_count(cls, delays: Iterable[timedelta | float]) -> Self:
        """Return a policy with a delay for each delivery; the last one applies after all later deliveries.

        Raises:
            ValueError: A delay is negative or over 7 days, or there is none.
        """
        return cls.read({"kind": "list", "delays": list(delays)})

    @classmethod
    def read(cls, given: Mapping[str, object]) -> Self:
        """Return the policy of a mapping with its ``kind`` and ``delays``.

        Raises:
            ValueError: It breaks a rule of policies.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ValueError("; ".join(map(policy_fault, error.errors(include_url=False)))) from None

    @model_validator(mode="after")
    def _check_delays(self) -> Self:
        if not self.delays:
            raise ValueError("delays is empty: give at least one delay, or None in place of the policy")
        if len(self.delays) > MOST_DELAYS:
            raise ValueError(
                f"delays has {len(self.delays):,} delays: a message has up to {MOST_DELAYS:,} deliveries; leave the others out"
            )
        for delay in self.delays:
            if delay < timedelta(0):
                raise ValueError(f"a delay is -{-delay}: the shortest one is 0; choose a longer one")
            if delay > LONGEST_DELAY:
                raise ValueError(
                    f"a delay is {delay}: the longest one is {LONGEST_DELAY.days} days; choose a shorter one"
                )
        return self

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        given = len(self.delays)
        if self.kind == "fixed" and given != 1:
            raise ValueError(f"delays has {given} delays: kind 'fixed' has one; leave the others out, or choose 'list'")
        if self.kind == "exponential":
            if given != 2:
                found = "1 delay" if given == 1 else f"{given} delays"
                raise ValueError(
                    f"delays has {found}: kind 'exponential' has two; give the first one and the longest one"
                )
            first, longest = self.delays
            if first == timedelta(0):
                raise ValueError("the first delay is 0, which does not grow by doubling: choose a longer one")
            if first > longest:
                raise ValueError(
                    f"the first delay is {first}: it may not exceed the longest one, {longest}; choose a shorter one"
                )
        return self

    @property
    def delays_ms(self) -> list[int]:
        """The delays after each delivery, in ms; the last one applies after all later deliveries."""
        if self.kind != "exponential":
            return [delay // timedelta(milliseconds=1) for delay in self.delays]
        first, longest = (max(1, delay // timedelta(milliseconds=1)) for delay in self.delays)
        delays = [first]
        while delays[-1] < longest:
            delays.append(min(longest, 2 * delays[-1]))
        return delays


def policy_fault(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a retry policy, with the value, the rule and the remedy.

    Args:
        fault: One of the errors that pydantic found in it.
    """
    kind, name, value = fault["type"], "".join(map(str, fault["loc"][-1:])), fault["input"]
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind.startswith("time_delta"):
        return f"delay {value!r} is no duration: give a timedelta, seconds, or a text in ISO 8601, such as 'PT10S'"
    texts = {
        "literal_error": f"kind {value!r} is unknown: choose 'fixed', 'exponential' or 'list'",
        "missing": f"{name} is missing: a policy has a kind and delays; give both",
        "extra_forbidden": f"there is no {name!r}: a policy has a kind and delays; leave the rest out",
        "tuple_type": f"delays is {value!r}: give a list of delays",
    }
    return texts.get(kind, f"{value!r} is no policy: give a RetryPolicy, or a mapping with its kind and delays")


class AuthorizationRuleDescription(BaseModel):
    """A shared access rule of an entity; stored, not checked.

    Attributes:
        type: The kind of rule, such as ``SharedAccessAuthorizationRule``.
        claim_type: The kind of claim.
        claim_value: The claim.
        rights: ``Manage``, ``Send``, ``Listen``.
        created_at_utc: When the rule was created.
        modified_at_utc: When the rule was last changed.
        key_name: The rule's name.
        primary_key: The primary key.
        secondary_key: The secondary key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str | None = None
    claim_type: str | None = None
    claim_value: str | None = None
    rights: tuple[AccessRights, ...] = ()
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = Field(default=None, repr=False)
    secondary_key: str | None = Field(default=None, repr=False)


class EntityDescription(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """The description of an entity: its settings, and the Kafka topic that holds its messages.

    Attributes:
        name: The name as its creator wrote it; that of a subscription includes its topic's, joined by ``subscription_name``.
        enable_partitioning: Whether the entity is partitioned; fixed at creation.
        partitions: Kafka partitions, one per entity partition: 16 for a partitioned queue
            (the namespace's number in Premium), else 1.
        topic: The name of the Kafka topic.
        topic_id: The id that the broker gave the topic; it is the queue's generation.
        incarnation: How often a log of the topic was found truncated; each time the entity gets new ledgers.
        dead_letter_incarnation: How often a log of the dead-letter queue's topic was found truncated.
        transfer_dead_letter_incarnation: How often a log of the transfer dead-letter queue's topic was found truncated.
        lock_duration: How long a message stays locked: 1 ms to a day, as far as the namespace allows it, default 1 minute.
        max_delivery_count: 1 to 2,000 deliveries, default 10; then the message is dead-lettered.
        max_size_in_megabytes: The maximum size of one partition, in MB, default 1,024.
        requires_session: Whether messages need a session id; fixed at creation.
        requires_duplicate_detection: Whether duplicates are detected; fixed at creation.
        duplicate_detection_history_time_window: 20 s to 7 days, default 10 minutes.
        default_message_time_to_live: At least 1 s, default for ever.
        dead_lettering_on_message_expiration: Whether expired messages are dead-lettered; else they are dropped.
        auto_delete_on_idle: At least 5 minutes, default for ever.
        enable_batched_operations: Kept for compatibility; operations are always batched.
        status: The status, which decides the allowed operations.
        retiring_at: When the entity was closed to clients because it was idle for ``auto_delete_on_idle``; the upkeep deletes
            it soon after. None if clients may use it.
        user_metadata: Up to 1,024 characters.
        created_at: When the entity was created, UTC.
        updated_at: When the entity was last changed, UTC.
        settled_retention: How long completed records stay in Kafka for Spark and replay; default one day.
        forward_to: The name of the entity that messages are forwarded to, or None.
        forward_dead_lettered_messages_to: The name of the entity that dead-lettered messages are forwarded to, or None.
        max_message_size_in_kilobytes: The maximum size of a message; None means the namespace's.
        enable_express: Kept for compatibility.
        authorization_rules: Stored, not checked: Kafka and Redis control access.
        has_message_ttl: Whether messages with their own time to live may have been sent.
        schedules: Whether scheduled messages may have been sent.
        transacts: Whether transactions may have stored records.
        retry_policy: When messages are available again that were received and not settled; None: at once. In the description
            of a namespace of format 2, and only if there is one.
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
    lock_duration: Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=1))] = timedelta(minutes=1)
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
    has_message_ttl: bool = False
    schedules: bool = False
    transacts: bool = False
    retry_policy: RetryPolicy | None = None

    @field_validator("created_at", "updated_at", "retiring_at")
    @classmethod
    def _aware(cls, moment: datetime | None) -> datetime | None:
        if moment is not None and moment.tzinfo is None:
            raise ValueError("times are stored in UTC: give the time a time zone")
        return moment

    def to_text(self) -> str:
        """Return the description as it is stored, which ``read_description`` reads; fields of format 2 only if they are set."""
        return self.model_dump_json(exclude={name for name in _LATER if getattr(self, name, None) is None})

    @property
    def generation(self) -> str:
        """The topic's id, which distinguishes the entity's ledgers from those of other entities of its name."""
        return self.topic_id

    @property
    def own_name(self) -> str:
        """The entity's name; that of a subscription without its topic's."""
        return self.name

    def with_topic(self, topic_id: str) -> Self:
        """Return the same entity over a new Kafka topic of the same name, from the beginning of that topic."""
        return self.model_copy(update={"topic_id": topic_id})

    def cut(self, partition: int, end: int) -> Self:  # noqa: ARG002 - a subscription needs them
        """Return the entity as it is after one of its logs was truncated: records stored from ``end`` on are new."""
        return self


class QueueDescription(EntityDescription, frozen=True):
    """A queue."""

    kind: Literal["queue"] = "queue"


class TopicDescription(EntityDescription, frozen=True):
    """A topic, whose messages are received from its subscriptions; these have the settings for sessions and forwarding.

    Attributes:
        filtering_messages_before_publishing: Kept for compatibility.
        support_ordering: Kept for compatibility: the order within a partition always holds.
        size_in_bytes: Kept for compatibility.
        unmatched_to: The name of the entity that messages move on to that no subscription wants, or None. In the description of
            a namespace of format 2, and only if there is one.
    """

    kind: Literal["topic"] = "topic"
    filtering_messages_before_publishing: bool = False
    support_ordering: bool = True
    size_in_bytes: int | None = None
    unmatched_to: str | None = None


_SHARED = (
    "duplicate_detection_history_time_window",
    "max_size_in_megabytes",
    "settled_retention",
    "max_message_size_in_kilobytes",
)
"""Settings that a subscription takes from its topic."""
_SHARED_FOR_EVER = ("enable_partitioning", "partitions", "topic", "topic_id", "requires_duplicate_detection")
"""Settings that a subscription takes from its topic at its creation and keeps."""


def shared_settings(topic: TopicDescription) -> dict[str, object]:
    """Return the current settings of a topic that its subscriptions take over."""
    shared: dict[str, object] = {name: getattr(topic, name) for name in _SHARED}
    return shared | {"topic_time_to_live": topic.default_message_time_to_live, "topic_status": topic.status}


class RuleSet(BaseModel):
    """Rules of a subscription, and the messages that they apply to.

    Attributes:
        rules: The rules, by name, ``$Default`` first.
        offsets: The offsets from which on they apply, by partition of the topic's log.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[RuleDescription, ...]
    offsets: tuple[int, ...]


class SubscriptionDescription(EntityDescription, frozen=True):
    """A subscription: it reads a topic's log with its own ledgers, and takes some settings from the topic.

    Attributes:
        topic_entity: The name of the topic.
        uid: An id that distinguishes its ledgers from those of an earlier subscription of the same name.
        topic_time_to_live: The topic's default time to live, which applies if it is the shorter one.
        topic_status: The topic's status.
        dead_lettering_on_filter_evaluation_exceptions: Whether a message is dead-lettered if a rule cannot be evaluated.
        rule_sets: The subscription's rules over time, in the order of their offsets: the last set is the current one, earlier
            sets apply to messages that were stored before the rules were changed.
        rules_version: How often the rules were changed.
        changing: The new rules while a change is under way, during which no message is received; None if no change is.
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
        """Write each rule once and refer to it by number in the sets, which have most of their rules in common."""
        written: dict[str, Any] = serialize(self)
        known: dict[str, Any] = {}
        places: dict[str, int] = {}

        def numbers(rules: Iterable[Any]) -> list[int]:
            # Rules are compared by repr, in which 1, 1.0 and True differ.
            for rule in rules:
                known.setdefault(repr(rule), rule)
                places.setdefault(repr(rule), len(places))
            return [places[repr(rule)] for rule in rules]

        for rule_set in written["rule_sets"]:
            rule_set["rules"] = numbers(rule_set["rules"])
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

        sets = [{**rule_set, "rules": rules(rule_set["rules"])} for rule_set in given["rule_sets"]]
        changing = None if given["changing"] is None else rules(given["changing"])
        found = {name: value for name, value in given.items() if name != _RULES}
        return {**found, "rule_sets": sets, "changing": changing}

    @classmethod
    def of_topic(
        cls, topic: TopicDescription, name: str, *, uid: str, created_at: datetime, rules: Iterable[RuleDescription]
    ) -> Self:
        """Return a new subscription of a topic, as if it began at the beginning of the topic's logs.

        Args:
            topic: The topic.
            name: The name of the subscription, with its topic's.
            uid: See the attribute.
            created_at: The current time.
            rules: Its rules.
        """
        begun = cls.model_validate(
            {
                **{setting: getattr(topic, setting) for setting in _SHARED_FOR_EVER},
                "name": name,
                "topic_entity": topic.name,
                "uid": uid,
                "rule_sets": (RuleSet(rules=tuple(rules), offsets=(0,) * topic.partitions),),
                "created_at": created_at,
                "updated_at": created_at,
            }
        )
        return begun.with_settings_of(topic)

    def begin_at(self, offsets: tuple[int, ...]) -> Self:
        """Return the same new subscription, beginning at these offsets, by partition."""
        return self.model_copy(update={"rule_sets": (RuleSet(rules=self.rules, offsets=offsets),)})

    @property
    def generation(self) -> str:
        """The topic's id and the subscription's own."""
        return f"{self.topic_id}~{self.uid}"

    @override
    def with_topic(self, topic_id: str) -> Self:
        rules = RuleSet(rules=self.rules, offsets=(0,) * self.partitions)
        return self.model_copy(update={"topic_id": topic_id, "rule_sets": (rules,)})

    @override
    def cut(self, partition: int, end: int) -> Self:
        sets = [
            rule_set.model_copy(
                update={
                    "offsets": tuple(
                        min(offset, end) if where == partition else offset
                        for where, offset in enumerate(rule_set.offsets)
                    )
                }
            )
            for rule_set in self.rule_sets
        ]
        return self.model_copy(update={"rule_sets": tuple(sets)})

    def with_settings_of(self, topic: TopicDescription) -> Self:
        """Return the same subscription with the current settings of its topic."""
        shared = shared_settings(topic)
        return self.model_copy(update=shared | {"forward_to": topic.unmatched_to} if self.is_unmatched else shared)

    @property
    def is_unmatched(self) -> bool:
        """Whether upkeep reads the topic by it, for messages that no other subscription wants."""
        return self.own_name == UNMATCHED

    @property
    def rules(self) -> tuple[RuleDescription, ...]:
        """The current rules."""
        return self.rule_sets[-1].rules

    @property
    def own_name(self) -> str:
        """The subscription's name without its topic's."""
        return self.name[len(self.topic_entity) + len(SUBSCRIPTIONS) :]


def _kind_of(description: Any) -> str:
    # Descriptions of queues had no kind before there were topics.
    kind = description.get("kind", "queue") if isinstance(description, dict) else description.kind
    return str(kind)


_ANY: TypeAdapter[QueueDescription | TopicDescription | SubscriptionDescription] = TypeAdapter(
    Annotated[
        Annotated[QueueDescription, Tag("queue")]
        | Annotated[TopicDescription, Tag("topic")]
        | Annotated[SubscriptionDescription, Tag("subscription")],
        Discriminator(_kind_of),
    ],
    config=ConfigDict(hide_input_in_errors=True),
)


def read_description(text: str) -> QueueDescription | TopicDescription | SubscriptionDescription:
    """Return the description in a JSON text.

    Raises:
        ValidationError: The text is not a valid description.
    """
    return _ANY.validate_json(text)


INCARNATIONS = {
    SubQueue.NONE: "incarnation",
    SubQueue.DEAD_LETTER: "dead_letter_incarnation",
    SubQueue.TRANSFER_DEAD_LETTER: "transfer_dead_letter_incarnation",
}
"""Fields of a queue's description that count the incarnations of each of its entities."""


def generation_of(path: EntityPath, description: EntityDescription, topic_id: str) -> str:
    """Return the generation of an entity of a queue with this description.

    Args:
        path: The path of the entity.
        description: The description of the queue, topic or subscription.
        topic_id: The id of the entity's own topic.
    """
    own = holder_id_of(path, description, topic_id)
    incarnation = getattr(description, INCARNATIONS[path.sub_queue])
    return f"{own}.{incarnation}" if incarnation else own


def holder_id_of(path: EntityPath, description: EntityDescription, topic_id: str) -> str:
    """Return the id that distinguishes an entity's ledgers, of all incarnations, from all others; see ``generation_of``."""
    return topic_id if path.is_dead_letter else description.generation
