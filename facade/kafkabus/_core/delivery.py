"""Deliveries: by which claim messages were granted, and which those are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kafkabus._core.record import Record


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the messages of one granted range have in common.

    Attributes:
        entity: Key of the entity's path; a message is settled only by a receiver of the same entity.
        partition: Of their log.
        lease: Lease id, 16 hexadecimal digits; empty where the messages are settled already (receive and delete) or were
            only looked at.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
        count: How often the messages were delivered before.
        time_to_live: The entity's default.
        deferred: Whether the messages were set aside, and go back there.
        session: Whether the lease is that of a locked session.
        scheduled: Whether the messages wait for their time.
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


@dataclass(slots=True)
class Grant:
    """Messages that were granted together.

    Attributes:
        delivery: What they have in common.
        records: Them, in offset order.
    """

    delivery: Delivery
    records: list[Record]
