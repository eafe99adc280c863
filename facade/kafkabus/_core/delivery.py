"""Deliveries: messages, with the claim that they were granted by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kafkabus._core.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """The common properties of messages that were granted together; each delivery is equal to itself alone.

    Attributes:
        entity: Key of the entity's path; a message is settled only by a receiver of the same entity.
        partition: The partition of their log.
        lease: Lease id, 16 hexadecimal digits; empty if the messages are settled already (receive and delete) or were only
            looked at.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
        count: How often the messages were delivered before.
        time_to_live: The entity's default time to live.
        deferred: Whether the messages were deferred; if they are given back, they are deferred again.
        session: Whether the lease is that of a locked session.
        scheduled: Whether the messages wait for their time.
        postponed_until: The time before which the messages are not received again, ms since 1970; None if they are not
            postponed.
        locked_until: The time until which a receiver has a message locked that was only looked at, ms since 1970; None if
            none has.
    """

    entity: str
    partition: int
    lease: str
    expiry: int
    count: int
    time_to_live: timedelta
    deferred: bool = False
    session: bool = False
    scheduled: bool = False
    postponed_until: int | None = None
    locked_until: int | None = None


@dataclass(slots=True)
class Grant:
    """Messages that were granted together.

    Attributes:
        delivery: The common properties of the messages.
        records: The records of the messages, in offset order.
    """

    delivery: Delivery
    records: list[Record]
