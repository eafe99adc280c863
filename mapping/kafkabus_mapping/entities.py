"""Descriptions of entities: what an entity was created with, its defaults and its bounds.

Defaults and bounds are Service Bus's. A description is written once per change to the namespace's compacted topic of
descriptions, as this model's JSON.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

PARTITIONS_STANDARD = 16
"""Partitions of a partitioned entity in the Basic and Standard tiers."""

FOREVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
"""The service's longest duration, its default time to live."""


class AccessRights(str, Enum):
    """What an authorization rule grants; values as in ``azure.servicebus.management``."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(str, Enum):
    """Which operations an entity takes; values as in ``azure.servicebus.management``."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DELETING = "Deleting"


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


class QueueDescription(BaseModel):
    """A queue: its settings and the Kafka topic that holds its messages.

    Attributes:
        name: As its creator wrote it.
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
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @field_validator("created_at", "updated_at", "retiring_at")
    @classmethod
    def _aware(cls, moment: datetime | None) -> datetime | None:
        if moment is not None and moment.tzinfo is None:
            raise ValueError("times are in UTC and say so: give them a time zone")
        return moment
