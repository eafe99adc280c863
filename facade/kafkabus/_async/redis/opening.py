"""Opening a client of Redis by its URL: of a server, of the one that Sentinels name, or of a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.asyncio import ConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
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
LEFT_ALONE = 30.0
"""For how long, in seconds, a Sentinel that did not answer is not asked, if another one answers."""


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


class Watchers(Sentinel):
    """Sentinels, of which the one that knows the latest election is believed.

    One that has not heard of it yet names the primary before. If that runs again, it takes writes until the Sentinels make it a
    replica, eight seconds later, and then forgets them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]  # redis-py does not type it
        self._silent_until: dict[Any, float] = {}

    @override
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the primary.

        Raises:
            MasterNotFoundError: No Sentinel answers, or the one that knows the latest election does not reach the primary.
        """
        errors: list[str] = []
        now = time.monotonic()
        silent = {sentinel for sentinel in self.sentinels if self._silent_until.get(sentinel, 0.0) > now}
        states = await self._states(
            service_name, [sentinel for sentinel in self.sentinels if sentinel not in silent], errors
        )
        if not states:
            states = await self._states(service_name, list(silent), errors)
        latest = max(states, key=lambda state: int(state["config-epoch"]), default=None)
        if latest is None or not self.check_master_state(latest, service_name):  # type: ignore[no-untyped-call, unused-ignore]
            more = f" : {', '.join(errors)}" if errors else ""
            raise MasterNotFoundError(f"No master found for {service_name!r}{more}")
        return latest["ip"], latest["port"]

    async def _states(self, service_name: str, sentinels: Sequence[Any], errors: list[str]) -> list[dict[str, Any]]:
        """Return what some Sentinels know of a service; note why others do not answer, and leave those alone for a while."""
        states: list[dict[str, Any]] = []
        for sentinel in sentinels:
            try:
                state = (await sentinel.sentinel_masters()).get(service_name)
            except (ConnectionError, TimeoutError) as error:  # noqa: PERF203 - the others may answer
                self._silent_until[sentinel] = time.monotonic() + LEFT_ALONE
                errors.append(f"{sentinel} - {error!r}")
            else:
                states += [state] if state is not None else []
        return states


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
    sentinel = Watchers(
        url.hosts,
        sentinel_kwargs={
            "socket_connect_timeout": SENTINEL_TIMEOUT,
            "socket_timeout": SENTINEL_TIMEOUT,
            "protocol": 2,
            **tls,
            **{name: value.reveal() for name, value in url.sentinel_options.items()},
        },
    )
    found: Redis = sentinel.master_for(url.service, redis_class=WatchedRedis, **options)  # type: ignore[no-untyped-call, unused-ignore]
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
