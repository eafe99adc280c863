"""Connecting to the Redis that holds a namespace's ledgers, and the cache of descriptions in it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from kafkabus import in_process
from kafkabus.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus.ledger.keys import deleted_key, descriptions_key, turn_key
from kafkabus.ledger.scripts import describe_script, let_go_script

LOGGER = logging.getLogger("kafkabus.ledger")

T = TypeVar("T")

REPLY_TIMEOUT = 10.0
"""How long, in seconds, Redis may take to answer; then the request is made again, under its number."""

_LOADED = "$loaded"
"""Field of the cache that says that it holds all there is; no entity's name begins with a dollar sign."""
_LIFE = "$life"
"""Field of the cache that says which one it is: one that was emptied is another."""
_SERVER = "$server"
"""Field of the cache that says in which Redis it was begun."""


def connect(url: str) -> Redis:
    """A client of the Redis at this address; it connects when it is first used."""
    here = in_process.find(url)
    if here is not None:
        return cast("Redis", here.async_redis())  # aio-only
        # blocking: return cast("Redis", here.redis())
    return Redis.from_url(url, protocol=2, socket_connect_timeout=5.0, socket_timeout=REPLY_TIMEOUT)


async def check(redis: Redis, address: str) -> None:
    """Refuse a Redis that drops keys when it is full, and warn of one that keeps nothing over a restart.

    Raises:
        ServiceBusCommunicationError: Redis cannot be reached.
        ServiceBusError: Its maxmemory-policy is not noeviction.
    """
    try:
        config = await _reach(lambda: redis.config_get("maxmemory-policy", "appendonly", "save"), address)
    except ResponseError:
        return  # The credentials may not ask, as with most hosted Redis.
    policy, appends, saves = (_text(config.get(name)) for name in ("maxmemory-policy", "appendonly", "save"))
    if policy not in {"", "noeviction"}:
        raise ServiceBusError(
            f"Redis {address} has maxmemory-policy {policy!r} and would drop locks when it is full: set it to noeviction"
        )
    if appends == "no" and not saves:
        LOGGER.warning("redis_not_persistent address=%s: locks and settlements end with it", address)


class Described(NamedTuple):
    """What the descriptions' topic says of an entity.

    Attributes:
        offset: Of the record, which decides what is later.
        text: The description as JSON, None where the entity was deleted.
    """

    offset: int
    text: str | None


class DescriptionCache:
    """Descriptions of a namespace's entities, by their names in lower case; see ``lua/describe.lua``.

    Args:
        redis: Holds them.
        namespace: Whose they are.
        address: What error messages call Redis.
    """

    def __init__(self, redis: Redis, namespace: str, address: str) -> None:
        self._redis = redis
        self._key = descriptions_key(namespace)
        self._namespace = namespace
        self._address = address

    async def get(self, name: str) -> tuple[bool, str | None]:
        """Whether the cache holds all there is, and one description, None where it holds none.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        loaded, kept = await self._reach(lambda: self._redis.hmget(self._key, [_LOADED, name]))
        return loaded is not None, _kept_text(kept)

    async def all(self) -> dict[str, str] | None:
        """All descriptions, None where the cache does not hold all there is.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        cached = await self._reach(lambda: self._redis.hgetall(self._key))
        for field in (_LIFE, _SERVER):
            cached.pop(field.encode(), None)
        if cached.pop(_LOADED.encode(), None) is None:
            return None
        return {_text(name): text for name, kept in cached.items() if (text := _kept_text(kept)) is not None}

    async def life(self) -> str:
        """Which cache this is; one that was emptied is another.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        await self._reach(lambda: self._redis.hsetnx(self._key, _LIFE, uuid.uuid4().hex))
        (life,) = await self._reach(lambda: self._redis.hmget(self._key, [_LIFE]))
        return _text(life)

    async def keep(self, described: Mapping[str, Described], *, all_of: str = "") -> None:
        """Keep what the topic says, but for what the cache knows later records of.

        Args:
            described: By name.
            all_of: Where that is all there is, the cache's life as it was before the topic was read. One that was emptied
                since may have lost a later record, so it does not count as holding all.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        keys = [self._key, *(deleted_key(self._namespace, name) for name in described)]
        arguments = [part for name, (offset, text) in described.items() for part in (name, offset, text or "")]
        await self._reach(
            lambda: self._redis.eval(describe_script().text, len(keys), *keys, all_of, *arguments),
        )

    async def begin_with_server(self) -> bool:
        """Whether Redis is another server than when this was asked before, as a restarted one or a promoted replica is.

        The cache may have gone back with it, and is emptied.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        try:
            server = (await self._reach(lambda: self._redis.info("server"))).get("run_id")
        except ResponseError:
            return False  # The credentials may not ask.
        if server is None or _text(await self._reach(lambda: self._redis.hget(self._key, _SERVER))) == server:
            return False
        await self._reach(lambda: self._redis.delete(self._key))
        await self._reach(lambda: self._redis.hset(self._key, _SERVER, server))
        return True

    async def take_turn(self, name: str, token: str, seconds: int) -> bool:
        """Whether it is a client's turn now to change a description; the turn ends by itself after a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return bool(await self._reach(lambda: self._redis.set(key, token, nx=True, ex=seconds)))

    async def has_turn(self, name: str, token: str) -> bool:
        """Whether a client's turn has not ended by itself.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return await self._reach(lambda: self._redis.get(key)) == token.encode()

    async def end_turn(self, name: str, token: str) -> None:
        """End a client's turn.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; it ends by itself.
        """
        key = turn_key(self._namespace, name)
        await self._reach(lambda: self._redis.eval(let_go_script().text, 1, key, token))

    async def _reach(self, call: Callable[[], Awaitable[T]]) -> T:
        return await _reach(call, self._address)


async def _reach(call: Callable[[], Awaitable[T]], address: str) -> T:
    try:
        return await call()
    except ResponseError:
        raise
    except RedisError as error:
        raise ServiceBusCommunicationError(
            f"Redis {address} cannot be reached: {error}; is it running, and is the address right?", error=error
        ) from error


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _kept_text(kept: bytes | str | None) -> str | None:
    return _text(kept).partition(" ")[2] or None
