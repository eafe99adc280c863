"""Namespaces: their tier, and what it allows and forbids their entities.

The rules are Service Bus's. A namespace's description stands beside those of its entities, as this model's JSON; one that
nobody described is Standard.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from kafkabus_mapping.entities import FOREVER, PARTITIONS_STANDARD, EntityDescription, TopicDescription

KIB = 1024
MAX_ENTITIES = 10_000
"""Queues and topics of one namespace."""
MAX_PARTITIONED = 100
"""Partitioned queues and topics among them, in the Basic and Standard tiers."""
MAX_HOPS = 4
"""How often a message is forwarded; Service Bus's limit."""
SIZES = (1024, 2048, 3072, 4096, 5120)
"""Sizes of an entity, or of one partition of a partitioned one, in MB."""
SIZES_PREMIUM = (*SIZES, 10_240, 20_480, 40_960, 81_920)
"""Sizes of an entity that is not partitioned in the Premium tier, in MB."""
MAX_LIFE_BASIC = timedelta(days=14)
"""Longest time to live in the Basic tier."""


class NamespaceRuleError(ValueError):
    """A rule of the namespace forbids an entity; the message names the value, the rule and the remedy."""


class Tier(str, Enum):
    """What a namespace offers; values as in ``azure.servicebus.management.MessagingSku``."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class NamespaceDescription(BaseModel):
    """A namespace.

    Attributes:
        tier: Fixed at creation, default Standard.
        partitions: Of every entity in a Premium namespace, fixed at creation; 1: its entities are not partitioned. None in the
            other tiers, where each entity is partitioned into 16 or not at all.
        created_at: When it was created, UTC.
        updated_at: When it was last changed, UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: Tier = Tier.STANDARD
    partitions: Annotated[int, Field(ge=1, le=1000)] | None = None
    created_at: datetime
    updated_at: datetime

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
    def max_message_bytes(self) -> int:
        """Largest message, and largest batch, in bytes."""
        return (1024 if self.tier is Tier.PREMIUM else 256) * KIB

    def partitions_for(self, enable_partitioning: bool | None) -> int:
        """How many partitions a new entity has.

        Args:
            enable_partitioning: What its creator asks for; None: the namespace's default.

        Raises:
            NamespaceRuleError: A Premium namespace decides otherwise.
        """
        if self.partitions is None:
            return PARTITIONS_STANDARD if enable_partitioning else 1
        if enable_partitioning is not None and enable_partitioning != (self.partitions > 1):
            raise NamespaceRuleError(
                f"enable_partitioning={enable_partitioning}: a Premium namespace decides for all its entities, and this "
                f"one was created with {self.partitions} partition(s); leave it out"
            )
        return self.partitions

    def check_entity(self, entity: EntityDescription) -> None:
        """Refuse settings that the tier does not allow.

        Raises:
            NamespaceRuleError: One of them is not allowed.
        """
        sizes = SIZES_PREMIUM if self.tier is Tier.PREMIUM and entity.partitions == 1 else SIZES
        if entity.max_size_in_megabytes not in sizes:
            raise NamespaceRuleError(
                f"max_size_in_megabytes={entity.max_size_in_megabytes}: choose one of {list(sizes)}"
                + (", the size of one partition" if entity.partitions > 1 else "")
            )
        limit = self.max_message_bytes // KIB
        if entity.max_message_size_in_kilobytes not in {None, limit}:
            raise NamespaceRuleError(
                f"max_message_size_in_kilobytes={entity.max_message_size_in_kilobytes}: messages of this {self.tier.value} "
                f"namespace have up to {limit} KB; leave it out"
            )
        _check_forwarding(entity)
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
                    raise NamespaceRuleError(f"{name}={getattr(entity, name)!r}: not in the Basic tier; use Standard")
            if FOREVER > entity.default_message_time_to_live > MAX_LIFE_BASIC:
                raise NamespaceRuleError(
                    f"default_message_time_to_live={entity.default_message_time_to_live}: up to 14 days in the Basic tier"
                )

    def check_room(self, partitions: int, existing: int, partitioned: int) -> None:
        """Refuse an entity too many.

        Args:
            partitions: Of the new entity.
            existing: How many entities there are.
            partitioned: How many of them are partitioned.

        Raises:
            NamespaceRuleError: It would be one too many.
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


def _check_forwarding(queue: EntityDescription) -> None:
    """Refuse to forward from sessions, as the service does (Azure/azure-service-bus, issues 317 and 660).

    Raises:
        NamespaceRuleError: The queue has sessions, and is to forward.
    """
    if queue.forward_to is not None and queue.requires_session:
        raise NamespaceRuleError(
            f"forward_to={queue.forward_to!r} with requires_session: a queue with sessions forwards nothing (one without "
            "may forward to it), so leave one of them out"
        )
