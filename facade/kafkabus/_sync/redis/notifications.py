# Generated from facade/kafkabus/_async/redis/notifications.py by tools/generate_blocking.py. Do not edit.
"""Hearing that something became available. A hint that may be lost: a slow poll stands behind it."""

from __future__ import annotations

from redis import Redis
from redis.exceptions import RedisError


class ClaimNotifications:
    """The bell of one entity.

    Args:
        redis: Client of the Redis that holds the ledgers.
        channel: The entity's channel.
    """

    def __init__(self, redis: Redis, channel: str) -> None:
        self._redis = redis
        self._channel = channel
        self._pubsub = redis.pubsub(ignore_subscribe_messages=True)
        self._listening = False

    @property
    def is_listening(self) -> bool:
        """Whether it has a connection."""
        return self._listening

    def rung(self) -> set[int]:
        """Partitions whose ledgers rang since the last call; does not wait."""
        partitions: set[int] = set()
        try:
            if not self._listening:
                self._pubsub.subscribe(self._channel)
                self._listening = True
            for _ in range(1000):
                message = self._pubsub.get_message(timeout=0.0)
                if message is None:
                    break
                data: bytes | str = message["data"]  # pyright: ignore[reportAssignmentType]
                partitions.add(int(data))
        except RedisError:
            # Whatever was said meanwhile, the slow poll finds.
            self._listening = False
        return partitions

    def close(self) -> None:
        """Stop listening until it is asked again."""
        self._listening = False
        self._pubsub.close()
