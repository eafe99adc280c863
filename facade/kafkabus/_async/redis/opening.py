"""Opening a client of Redis by its URL: of a server, of the one that Sentinels name, or of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from redis.asyncio import ConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from typing_extensions import override

from kafkabus._async.redis.cluster import ClusterRedis, Node
from kafkabus._core.redis_url import RedisUrl, Topology, parse_redis_url
from kafkabus._redis.driver import driver_info

REPLY_TIMEOUT = 10.0
"""How long, in seconds, Redis may take to answer; then the request is made again, under its number."""
CONNECT_TIMEOUT = 5.0
"""How long, in seconds, a connection may take to be made."""
SENTINEL_TIMEOUT = 2.0
"""How long, in seconds, a Sentinel may take to answer before the next one is asked."""


def open_redis(url: str, *, within: float | None = None) -> Redis:
    """Return a client of the Redis at a URL; it connects when it is first used.

    Args:
        url: The URL; see ``kafkabus._core.redis_url``.
        within: The longest time, in seconds, to connect, and to wait for an answer, for a caller that tries once; by default
            those of a client that tries again.

    Raises:
        ValueError: The URL is malformed.
    """
    parsed, options = parse_redis_url(url), _common()
    if within is not None:
        options |= {"socket_connect_timeout": within, "socket_timeout": within, "retry": Retry(NoBackoff(), 0)}
    if parsed.topology is Topology.SENTINEL:
        return _of_sentinels(parsed, options)
    if parsed.topology is Topology.CLUSTER:
        return _of_cluster(parsed, options)
    return Redis.from_url(url, **options)


class WatchedRedis(Redis):
    """A client of the server that Sentinels name as the primary: each new connection asks them."""

    @override
    async def aclose(self, *args: Any, **options: Any) -> None:
        """Close the connections to the server and to the Sentinels."""
        await super().aclose(*args, **options)
        pool = cast("SentinelConnectionPool", self.connection_pool)
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _of_sentinels(url: RedisUrl, common: Mapping[str, Any]) -> Redis:
    options = _options(url, common)
    options["ssl"] = options.pop("connection_class", None) is SSLConnection
    tls = {name: value for name, value in options.items() if name.startswith("ssl")} if options["ssl"] else {}
    sentinel = Sentinel(
        url.hosts,
        sentinel_kwargs={
            "socket_connect_timeout": SENTINEL_TIMEOUT,
            "socket_timeout": SENTINEL_TIMEOUT,
            "protocol": 2,
            **tls,
            **{name: value.reveal() for name, value in url.sentinel_options.items()},
        },
    )
    found: Redis = sentinel.master_for(url.service, redis_class=WatchedRedis, **options)
    return found


def _of_cluster(url: RedisUrl, common: Mapping[str, Any]) -> Redis:
    options = _options(url, common)

    def open_node(node: Node) -> Redis:
        host, port = node
        return Redis.from_pool(ConnectionPool(**options, host=host, port=port))

    return ClusterRedis(url.hosts, open_node)


def _options(url: RedisUrl, common: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of connections to servers, but for their addresses."""
    found = {**common, **parse_url(url.plain.reveal())}
    return {name: value for name, value in found.items() if name not in {"host", "port"}}


def _common() -> dict[str, Any]:
    return {
        "protocol": 2,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": REPLY_TIMEOUT,
        "driver_info": driver_info(),
    }
