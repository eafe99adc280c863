"""Locks of messages and sessions, as administration shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

from kafkabus._ledger.operations import HeldLock, LockedRange
from kafkabus._ledger.ranges import Range
from kafkabus_mapping.codec import from_milliseconds
from kafkabus_mapping.field_access import FieldAccess
from kafkabus_mapping.numbers import sequence_number


@dataclass(kw_only=True)
class MessageLock(FieldAccess):
    """The lock of messages that were received together, or of a session; also a mapping.

    Attributes:
        session_id: The session that is locked; None if messages are locked without one.
        sequence_numbers: First and last sequence number of each range of locked messages, ascending; none if a session is
            locked of which no message was received.
        message_count: How many messages are locked.
        client_identifier: The ``client_identifier`` of the receiver that has the lock; None if it is not known, as with
            receivers in a namespace of the first format.
        locked_since_utc: When the messages were received, or the session was accepted; None if it is not known.
        locked_until_utc: When the lock ends, unless it is renewed.
    """

    session_id: str | None
    sequence_numbers: list[Range]
    message_count: int
    client_identifier: str | None
    locked_since_utc: datetime | None
    locked_until_utc: datetime


def locks_of(partition: int, found: Iterable[LockedRange], sessions: Iterable[HeldLock]) -> list[MessageLock]:
    """Return the locks of one partition, by the first of their messages; sessions without received messages come last.

    Args:
        partition: The partition.
        found: The locked ranges, ascending.
        sessions: The locks of sessions.
    """
    ranges: dict[HeldLock, list[Range]] = {}
    for run in found:
        own = ranges.setdefault(run.lock, [])
        first, last = (sequence_number(partition, offset) for offset in (run.first, run.last))
        if own and own[-1][1] + 1 == first:
            own[-1] = (own[-1][0], last)
        else:
            own.append((first, last))
    for lock in sessions:
        ranges.setdefault(lock, [])
    return [_lock_of(lock, own) for lock, own in ranges.items()]


def _lock_of(lock: HeldLock, ranges: list[Range]) -> MessageLock:
    return MessageLock(
        session_id=lock.session,
        sequence_numbers=ranges,
        message_count=sum(last - first + 1 for first, last in ranges),
        client_identifier=unquote(lock.by) or None,
        locked_since_utc=None if lock.since is None else from_milliseconds(lock.since),
        locked_until_utc=from_milliseconds(lock.expiry),
    )
