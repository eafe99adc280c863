"""A subscription to Redis's channels that notices if its server answers no more."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError, TimeoutError

from kafkabus._redis.replies import text_of

PING_AFTER = 10.0
"""After how many seconds of silence the server is asked whether it still serves."""
ANSWERS_WITHIN = 10.0
"""How long, in seconds, it may take to answer that."""


class Subscription:
    """A connection that subscribes to channels. After an error it connects again on the next use, maybe to another server.

    Without a question now and then, a client would hear nothing more once Sentinels have replaced a server that hangs.

    Args:
        redis: A client of Redis.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._pubsub: PubSub | None = None
        self._channels: set[str] = set()
        self._heard_at = 0.0
        self._asked_at: float | None = None

    async def hear(self, channels: Set[str], timeout: float) -> dict[str, Any] | None:
        """Return the next message of these channels, or that a channel is heard from now on; None after so many seconds.

        Raises:
            RedisError: The server cannot be reached; messages may have been lost.
        """
        try:
            pubsub = await self._subscribe(channels)
            message: dict[str, Any] | None = await pubsub.get_message(timeout=timeout)
            await self._ask(pubsub, is_silent=message is None)
        except RedisError:
            await self.close()
            raise
        return None if message is None or text_of(message["type"]) == "pong" else message

    async def close(self) -> None:
        """End the connection."""
        pubsub, self._pubsub = self._pubsub, None
        self._channels.clear()
        if pubsub is not None:
            await pubsub.aclose()

    async def _subscribe(self, channels: Set[str]) -> PubSub:
        if self._pubsub is None:
            self._pubsub = self._redis.pubsub()
            self._heard_at, self._asked_at = time.monotonic(), None
        if self._channels - channels:
            await self._pubsub.unsubscribe(*(self._channels - channels))
            self._channels &= channels
        if channels - self._channels:
            await self._pubsub.subscribe(*(channels - self._channels))
            self._channels |= channels
        return self._pubsub

    async def _ask(self, pubsub: PubSub, *, is_silent: bool) -> None:
        now = time.monotonic()
        if not is_silent:
            self._heard_at, self._asked_at = now, None
        elif self._asked_at is not None:
            if now >= self._asked_at + ANSWERS_WITHIN:
                raise TimeoutError(f"no answer within {ANSWERS_WITHIN:g} s on the connection for notifications")
        elif now >= self._heard_at + PING_AFTER:
            self._asked_at = now
            await pubsub.ping()
