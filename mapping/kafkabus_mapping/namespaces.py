"""Namespaces: their tier, and the limits that it sets for their entities.

The rules are Service Bus's. The description of a namespace is stored with those of its entities, as this model's JSON; a
namespace without a description is Standard.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import Self

from kafkabus_mapping.entities import (
    FOREVER,
    PARTITIONS_STANDARD,
    EntityDescription,
    SubscriptionDescription,
    TopicDescription,
)
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import FIRST

KIB = 1024
MAX_ENTITIES = 10_000
"""The maximum number of queues and topics in a namespace."""
MAX_PARTITIONED = 100
"""The maximum number of partitioned queues and topics among them, in the Basic and Standard tiers."""
MAX_HOPS = 4
"""The maximum number of times that a message is forwarded; Service Bus's limit."""
SIZES = (1024, 2048, 3072, 4096, 5120)
"""The allowed sizes of an entity, or of one partition of a partitioned entity, in MB."""
SIZES_PREMIUM = (*SIZES, 10_240, 20_480, 40_960, 81_920)
"""The allowed sizes of an entity without partitioning in the Premium tier, in MB."""
LONGEST_LOCK = timedelta(minutes=5)
"""The longest lock of a message or a session; Service Bus's limit, unless the namespace has a longer one."""
MAX_LIFE_BASIC = timedelta(days=14)
"""The maximum time to live in the Basic tier."""


class NamespaceRuleError(ValueError):
    """A rule of the namespace forbids an entity; the error names the value, the rule and the remedy."""


class Tier(str, Enum):
    """The tier of a namespace; values as in ``azure.servicebus.management.MessagingSku``."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceDescription(BaseModel):
    """A namespace.

    Attributes:
        tier: The tier, fixed at creation; default Standard.
        partitions: The number of partitions of every entity in a Premium namespace, fixed at creation; 1 means that its
            entities are not partitioned. None in the other tiers, whose entities have 16 partitions or are not partitioned.
        created_at: When the namespace was created, UTC.
        updated_at: When the namespace was last changed, UTC.
        longest_lock: The longest lock of a message or a session: 5 minutes, as on the service, to a day; needs format 2.
        format: The format in which the namespace is stored; see ``formats``.
        format_by: The version of kafkabus that brought the namespace into that format; empty for the first format.
        upgrading_from: The format that programs still write while the namespace is upgraded, until those that read no other
            one have seen the new number; None at all other times.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: Tier = Tier.STANDARD
    partitions: Annotated[int, Field(ge=1, le=1000)] | None = None
    created_at: datetime
    updated_at: datetime
    longest_lock: Annotated[timedelta, Field(ge=LONGEST_LOCK, le=timedelta(days=1))] = LONGEST_LOCK
    format: Annotated[int, Field(ge=FIRST)] = FIRST
    format_by: str = ""
    upgrading_from: Annotated[int, Field(ge=FIRST)] | None = None

    @model_serializer(mode="wrap")
    def _first_format_unnamed(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the first format out: versions that know of no format refuse a description that names one."""
        written: dict[str, Any] = serialize(self)
        if self.format == FIRST:
            del written["format"], written["format_by"]
        if self.longest_lock == LONGEST_LOCK:
            del written["longest_lock"]
        if self.upgrading_from is None:
            del written["upgrading_from"]
        return written

    @model_validator(mode="after")
    def _partitions_fit_tier(self) -> Self:
        premium = self.tier is Tier.PREMIUM
        if premium != (self.partitions is not None):
            raise ValueError(
                f"tier {self.tier.value} with partitions {self.partitions}: the number of partitions is chosen for a Premium "
                "namespace, and only for that"
            )
        return self

    @property
    def written_format(self) -> int:
        """The format that programs write: ``format``, unless the namespace is being upgraded."""
        return self.upgrading_from or self.format

    @property
    def max_message_bytes(self) -> int:
        """The maximum size of a message, and of a batch, in bytes."""
        return (1024 if self.tier is Tier.PREMIUM else 256) * KIB

    def partitions_for(self, enable_partitioning: bool | None) -> int:
        """Return how many partitions a new entity gets.

        Args:
            enable_partitioning: Whether the entity is to be partitioned; None means the namespace's default.

        Raises:
            NamespaceRuleError: The argument contradicts the setting of a Premium namespace.
        """
        if self.partitions is None:
            return PARTITIONS_STANDARD if enable_partitioning else 1
        if enable_partitioning is not None and enable_partitioning != (self.partitions > 1):
            raise NamespaceRuleError(
                ErrorText(
                    Term(f"enable_partitioning={enable_partitioning}"),
                    ": a Premium namespace decides for all its entities, and this one was created with "
                    f"{self.partitions} partition(s); leave it out",
                )
            )
        return self.partitions

    def check_entity(self, entity: EntityDescription) -> None:
        """Check that the tier allows the settings of an entity.

        Raises:
            NamespaceRuleError: A setting is not allowed.
        """
        sizes = SIZES_PREMIUM if self.tier is Tier.PREMIUM and entity.partitions == 1 else SIZES
        if entity.max_size_in_megabytes not in sizes:
            raise NamespaceRuleError(
                ErrorText(
                    Term("max_size_in_megabytes"),
                    f"={entity.max_size_in_megabytes}: choose one of {list(sizes)}",
                    ", the size of one partition" if entity.partitions > 1 else "",
                )
            )
        if not isinstance(entity, TopicDescription) and entity.lock_duration > self.longest_lock:
            raise NamespaceRuleError(
                ErrorText(
                    Term("lock_duration"),
                    f"={entity.lock_duration}: up to {self.longest_lock} in this namespace, unless a longer ",
                    Term("longest_lock"),
                    ", of up to a day, is set for it",
                )
            )
        limit = self.max_message_bytes // KIB
        if entity.max_message_size_in_kilobytes not in {None, limit}:
            raise NamespaceRuleError(
                f"max_message_size_in_kilobytes={entity.max_message_size_in_kilobytes}: messages of this {self.tier.value} "
                f"namespace have up to {limit} KB; leave it out"
            )
        if self.tier is Tier.BASIC:
            if isinstance(entity, TopicDescription):
                raise NamespaceRuleError("topics are not in the Basic tier: use Standard")
            for name in (
                "requires_session",
                "requires_duplicate_detection",
                "forward_to",
                "forward_dead_lettered_messages_to",
            ):
                if getattr(entity, name):
                    raise NamespaceRuleError(
                        ErrorText(Term(name), f"={getattr(entity, name)!r}: not in the Basic tier; use Standard")
                    )
            if FOREVER > entity.default_message_time_to_live > MAX_LIFE_BASIC:
                raise NamespaceRuleError(
                    ErrorText(
                        Term("default_message_time_to_live"),
                        f"={entity.default_message_time_to_live}: up to 14 days in the Basic tier",
                    )
                )

    def check_room(self, partitions: int, existing: int, partitioned: int) -> None:
        """Check that the namespace has room for another entity.

        Args:
            partitions: The number of partitions of the new entity.
            existing: The number of entities that exist.
            partitioned: The number of partitioned entities among them.

        Raises:
            NamespaceRuleError: The entity would exceed a limit.
        """
        if existing >= MAX_ENTITIES:
            raise NamespaceRuleError(
                f"the namespace holds {existing} entities, and no more than {MAX_ENTITIES}: delete one"
            )
        if self.tier is not Tier.PREMIUM and partitions > 1 and partitioned >= MAX_PARTITIONED:
            raise NamespaceRuleError(
                f"the namespace holds {partitioned} partitioned entities, and no more than {MAX_PARTITIONED} in the "
                f"{self.tier.value} tier: delete one, or create this one without partitions"
            )


def check_forwarding(known: EntityDescription | None, entity: EntityDescription) -> None:
    """Check that messages of sessions move on only if they always did: those that wait in sessions would stay there.

    Service Bus accepts ``create_queue`` with both settings, as recorded tests of its SDK for Python show, and forbids it for
    subscriptions (Azure/azure-service-bus, issues 317, 660).

    Args:
        known: The description before an update; None if the entity is created.
        entity: The description after it.

    Raises:
        NamespaceRuleError: It has sessions, and begins to forward its messages, or is a subscription.
    """
    if entity.forward_to is None or not entity.requires_session:
        return
    both = Term("forward_to"), f"={entity.forward_to!r} with ", Term("requires_session")
    if isinstance(entity, SubscriptionDescription):
        raise NamespaceRuleError(
            ErrorText(
                *both,
                ": a subscription with sessions forwards nothing (one without may forward to a queue with sessions), so leave "
                "one of them out",
            )
        )
    if known is not None and known.forward_to is None:
        raise NamespaceRuleError(
            ErrorText(
                *both,
                ": a queue with sessions forwards only if it was created so, as its messages wait in their sessions; create "
                "another queue",
            )
        )
