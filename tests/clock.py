"""Moving the ledgers' clock, so that no test waits for a lock to expire."""

from __future__ import annotations

import redis


def advance(redis_url: str, namespace: str, queue: str, seconds: float) -> None:
    """The ledgers of a queue and of its dead-letter queue think that this much more time has passed.

    Args:
        redis_url: Where the ledgers are.
        namespace: The queue's namespace.
        queue: Its name.
        seconds: How much time.
    """
    with redis.Redis.from_url(redis_url) as client:
        for prefix in (f"{{{namespace}/{queue.lower()}/", f"{{{namespace}/{queue.lower()}/$deadletterqueue/"):
            for key in client.scan_iter(match=f"{prefix}*:meta", count=1000):
                client.hincrby(key, "test:skew", int(seconds * 1000))
