# Generated from facade/kafkabus/_async/redis/notifications.py by tools/generate_blocking.py. Do not edit.
"""Notifications that messages became available: hints that may be lost, because readers also poll slowly."""

from __future__ import annotations

from redis import Redis
from redis.exceptions import RedisError


class ClaimNotifications:
    """The notifications of one entity's ledgers.

    Args:
        redis: A client of the Redis that holds the ledgers.
        channel: The entity's channel.
    """

    def __init__(self, redis: Redis, channel: str) -> None:
        self._redis = redis
        self._channel = channel
        self._pubsub = redis.pubsub(ignore_subscribe_messages=True)
        self._listening = False

    @property
    def is_listening(self) -> bool:
        """Whether there is a connection for notifications."""
        return self._listening

    def rung(self) -> set[int]:
        """Return the partitions whose ledgers sent a notification since the last call; do not wait."""
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
            # The slow poll finds the messages of lost notifications.
            self._listening = False
        return partitions

    def close(self) -> None:
        """Stop listening until ``rung`` is called again."""
        self._listening = False
        self._pubsub.close()
