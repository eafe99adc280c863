# Generated from facade/kafkabus/_async/redis/upkeep_events.py by tools/generate_blocking.py. Do not edit.
"""The events by which ledgers notify upkeep that they are due sooner than it would look."""

from __future__ import annotations

from typing import NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from kafkabus._core.exceptions import ServiceBusCommunicationError
from kafkabus._ledger.keys import EVERYWHERE, WHOLE_ENTITY, upkeep_channel
from kafkabus._redis.replies import text_of
from kafkabus._sync.redis.subscription import Subscription

WAIT = 5.0
"""How long, in seconds, to wait for an event at a time."""


class UpkeepEvent(NamedTuple):
    """An entity, or a ledger of it, wants to be looked at.

    Attributes:
        entity: The key of the entity's path; empty: all entities, because time was set or events may have been lost.
        within: The time until then, in seconds.
        whole: Whether all that reads the entity's logs is meant: a topic's subscriptions, too.
    """

    entity: str
    within: float
    whole: bool


LOOK_EVERYWHERE = UpkeepEvent("", 0.0, whole=True)


class UpkeepEvents:
    """The events of a namespace.

    Args:
        redis: A client of the Redis that holds the ledgers.
        namespace: The namespace.
    """

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._channel = upkeep_channel(namespace)
        self._subscription = Subscription(redis)
        self._listening = False

    def next(self) -> UpkeepEvent | None:
        """Return the next event; ``LOOK_EVERYWHERE`` if some may have been lost; None if there was none for some time.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        try:
            message = self._subscription.hear({self._channel}, WAIT if self._listening else 0.0)
        except RedisError as error:
            self._listening = False
            raise ServiceBusCommunicationError(f"upkeep hears of no events: {error}", error=error) from error
        if not self._listening:
            self._listening = True
            return LOOK_EVERYWHERE
        if message is None:
            return None
        if text_of(message["type"]) == "subscribe":
            # redis-py connected and subscribed again by itself.
            return LOOK_EVERYWHERE
        text = text_of(message["data"])
        if text == EVERYWHERE:
            return LOOK_EVERYWHERE
        within, partition, entity = text.split(" ", 2)
        return UpkeepEvent(entity, int(within) / 1000, partition == WHOLE_ENTITY)

    def close(self) -> None:
        """Stop listening."""
        self._listening = False
        self._subscription.close()
