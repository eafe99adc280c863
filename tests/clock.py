"""Move the ledgers' clock, so that no test waits for a lock to expire, and set Redis's clock wrong."""

from __future__ import annotations

import redis

from kafkabus._ledger.keys import EVERYWHERE, upkeep_channel

PATIENCE_S = 60.0
"""For how long a machine may stall."""


def advance(redis_url: str, namespace: str, queue: str, seconds: float) -> None:
    """Let this much more time pass for the ledgers of a queue and of its dead-letter queue.

    Args:
        redis_url: Address of the Redis that holds the ledgers.
        namespace: The queue's namespace.
        queue: Its name.
        seconds: How much time.
    """
    _add(redis_url, namespace, queue, "test:skew", seconds)


def step(redis_url: str, namespace: str, queue: str, seconds: float) -> None:
    """Set Redis's clock, for the ledgers of a queue and of its dead-letter queue, although no time has passed.

    Args:
        redis_url: Address of the Redis that holds the ledgers.
        namespace: The queue's namespace.
        queue: Its name.
        seconds: By how much; negative: back.
    """
    _add(redis_url, namespace, queue, "test:clock", seconds)


def _add(redis_url: str, namespace: str, queue: str, field: str, seconds: float) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=PATIENCE_S) as client:
        for prefix in (f"{{{namespace}/{queue.lower()}/", f"{{{namespace}/{queue.lower()}/$deadletterqueue/"):
            for key in client.scan_iter(match=f"{prefix}*:meta", count=1000):
                client.hincrby(key, field, int(seconds * 1000))
        # Upkeep's timers go by its own clock.
        client.publish(upkeep_channel(namespace), EVERYWHERE)
