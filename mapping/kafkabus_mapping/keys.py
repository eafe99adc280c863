"""Partition-key rules: the key of a message, and the partition of a key.

The rules are Service Bus's: SessionId, else PartitionKey, else MessageId if the entity detects duplicates, else none.
"""

from __future__ import annotations

import zlib

from kafkabus_mapping.error_text import ErrorText, Term


class KeyRuleError(ValueError):
    """SessionId and PartitionKey of one message differ (the service's InvalidOperationException)."""


def effective_key(
    *, session_id: str | None, partition_key: str | None, message_id: str | None, detects_duplicates: bool
) -> str | None:
    """Return the key that decides a message's partition, or None if any partition will do.

    Args:
        session_id: The message's SessionId, or None. An empty string counts as set.
        partition_key: The message's PartitionKey, or None. An empty string counts as set.
        message_id: The message's MessageId; it is the key only if the entity detects duplicates.
        detects_duplicates: Whether the entity was created with duplicate detection.

    Raises:
        KeyRuleError: SessionId and PartitionKey are both set and differ.
    """
    if session_id is not None:
        if partition_key is not None and partition_key != session_id:
            raise KeyRuleError(
                ErrorText(
                    Term("partition_key"),
                    f" {partition_key!r} differs from ",
                    Term("session_id"),
                    f" {session_id!r}: a session's messages share one partition; set both alike, or leave ",
                    Term("partition_key"),
                    " unset",
                )
            )
        return session_id
    if partition_key is not None:
        return partition_key
    return message_id if detects_duplicates else None


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key: crc32 of its UTF-8 bytes modulo the partitions, equal to Spark SQL's ``crc32``.

    Args:
        key: The effective partition key.
        partitions: The entity's number of partitions, at least 1.
    """
    return zlib.crc32(key.encode()) % partitions
