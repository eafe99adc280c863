"""What administration returns, with the names of ``azure.servicebus.management``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import Enum

from kafkabus_mapping.entities import EntityStatus, QueueDescription

__all__ = ["EntityAvailabilityStatus", "EntityStatus", "QueueProperties", "QueueRuntimeProperties"]


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

    def __getitem__(self, key: str) -> object:
        if key not in _QUEUE_FIELDS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_QUEUE_FIELDS)

    def __len__(self) -> int:
        return len(_QUEUE_FIELDS)


_QUEUE_FIELDS = tuple(one.name for one in fields(QueueProperties))


def queue_properties(description: QueueDescription, availability: EntityAvailabilityStatus) -> QueueProperties:
    """A description as administration returns it."""
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
        status=description.status,
        availability_status=availability,
        user_metadata=description.user_metadata,
    )


@dataclass(frozen=True, kw_only=True)
class PartitionRuntimeProperties:
    """One partition of a queue; kafkabus's own.

    Attributes:
        partition: Its number.
        active_message_count: Messages that wait or are locked.
        dead_letter_message_count: Messages of its dead-letter queue.
    """

    partition: int
    active_message_count: int
    dead_letter_message_count: int


@dataclass(frozen=True, kw_only=True)
class QueueRuntimeProperties:
    """A queue's counts, summed over its partitions.

    Attributes:
        name: Its name.
        created_at_utc: When it was created.
        updated_at_utc: When its settings were last changed.
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
    total_message_count: int
    active_message_count: int
    dead_letter_message_count: int
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    partitions: tuple[PartitionRuntimeProperties, ...] = field(default=())
