# Generated from facade/kafkabus/_async/redis/connection.py by tools/generate_blocking.py. Do not edit.
"""Connecting to the Redis that holds a namespace's ledgers, and the cache of descriptions in it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError, ResponseError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential, wait_random

from kafkabus._core import in_memory_registry
from kafkabus._core.exceptions import LedgerError, ServiceBusAuthorizationError, ServiceBusError, UnsuitableRedisError
from kafkabus._ledger.keys import deleted_key, descriptions_key, turn_key
from kafkabus._ledger.scripts import describe_script, let_go_script
from kafkabus._redis.errors import of_cluster, passes, translated

LOGGER = logging.getLogger("kafkabus.ledger")

T = TypeVar("T")

REPLY_TIMEOUT = 10.0
"""How long, in seconds, Redis may take to answer; then the request is made again, under its number."""

_UPTO = "$upto"
"""Field of the cache that says up to which offset of the topic it holds all; no entity's name begins with a dollar sign."""
_LIFE = "$life"
"""Field of the cache that says which one it is: one that was emptied is another."""
NOTHING = -1
"""Up to where a cache holds all that does not hold all of anything."""


def connect(url: str) -> Redis:
    """A client of the Redis at this address; it connects when it is first used."""
    here = in_memory_registry.find(url)
    if here is not None:
        return cast("Redis", here.redis())
    return Redis.from_url(url, protocol=2, socket_connect_timeout=5.0, socket_timeout=REPLY_TIMEOUT)


class RedisConnection:
    """One client's way to Redis: looked at before it is used, waited for while it cannot serve, its errors those of the SDK.

    Args:
        redis: A client of it.
        address: What error messages call it; without a password.
        namespace: Whose keys it holds.
        retry_for: For how long, in seconds, a call is made again while Redis cannot serve it.

    Attributes:
        redis: As given.
        address: As given.
    """

    def __init__(self, redis: Redis, *, address: str, namespace: str, retry_for: float = 60.0) -> None:
        self.redis = redis
        self.address = address
        self._namespace = namespace
        self._retry_for = retry_for
        self._looked_at = False

    def call(self, ask: Callable[[], T]) -> T:
        """Ask something of Redis, and while it cannot serve, again.

        Raises:
            ServiceBusCommunicationError: It cannot be reached, or cannot serve as in a failover; tried for ``retry_for``.
            ServiceBusAuthenticationError: It refuses the credentials.
            ServiceBusAuthorizationError: The credentials do not allow this.
            ServiceBusServerBusyError: It takes no writes, because its memory is full or it cannot save.
            UnsuitableRedisError: It would drop locks, or is part of a cluster; nothing was asked.
            LedgerError: It refuses for another reason.
        """

        def attempt() -> T:
            try:
                if not self._looked_at:
                    self._look_at()
                return ask()
            except RedisError as error:
                if passes(error):
                    self._may_be_another(error)
                raise

        try:
            try:
                return attempt()
            except RedisError as error:
                if not passes(error):
                    raise
                LOGGER.warning("redis_retry address=%s error=%s", self.address, error)
            retrying = Retrying(
                retry=retry_if_exception(passes),
                stop=stop_after_delay(self._retry_for),
                wait=wait_exponential(multiplier=0.05, max=1.0) + wait_random(0, 0.05),
                reraise=True,
            )
            return retrying(attempt)
        except RedisError as error:
            raise self.translated(error) from error

    def ask_about(self, ask: Callable[[], T]) -> T | None:
        """Ask something about Redis; None where the credentials do not allow that, as with some hosted ones.

        Raises:
            ServiceBusError: See ``call``.
        """
        try:
            return self.call(ask)
        except (ServiceBusAuthorizationError, LedgerError):
            return None

    def translated(self, error: RedisError, what: str = "a command") -> ServiceBusError:
        """The SDK's error for one of Redis's to what it was asked for."""
        return translated(error, address=self.address, namespace=self._namespace, tried_for=self._retry_for, what=what)

    def _may_be_another(self, error: RedisError) -> None:
        """The next call may reach another Redis: it is looked at again, and its address is looked up again."""
        self._looked_at = False
        if isinstance(error, ResponseError):
            self.redis.connection_pool.disconnect(inuse_connections=False)

    def _look_at(self) -> None:
        """Refuse a Redis that drops keys when it is full or is part of a cluster, warn of one that keeps nothing."""
        try:
            info = self.redis.info()
        except ResponseError as error:
            if passes(error):
                raise
            info = {}  # The credentials may not ask, as with some hosted Redis.
        if info.get("redis_mode") == "cluster":
            raise of_cluster(self.address)
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise UnsuitableRedisError(
                f"Redis {self.address} has maxmemory-policy {policy!r} and would drop locks when it is full: set it to "
                "noeviction"
            )
        # Whose answer this was may have gone meanwhile; then the call that follows fails, and the next one looks again.
        self._looked_at = True
        # One that loads its data says that of itself, too.
        if info.get("aof_enabled") == 0 and not info.get("loading") and self._saves_nothing():
            LOGGER.warning("redis_not_persistent address=%s: locks and settlements end with it", self.address)

    def _saves_nothing(self) -> bool:
        try:
            return (self.redis.config_get("save")).get("save") == ""
        except ResponseError:
            return False  # The credentials may not ask.


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
        connection: To the Redis that holds them.
        namespace: Whose they are.
    """

    def __init__(self, connection: RedisConnection, namespace: str) -> None:
        self._connection = connection
        self._redis = connection.redis
        self._key = descriptions_key(namespace)
        self._namespace = namespace

    def get(self, name: str) -> tuple[int, str | None]:
        """Up to which offset of the topic the cache holds all, and one description, None where it holds none.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        upto, kept = self._connection.call(lambda: self._redis.hmget(self._key, [_UPTO, name]))
        return _offset(upto), _kept_text(kept)

    def all(self) -> tuple[int, dict[str, str]]:
        """Up to which offset of the topic the cache holds all, and all descriptions.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        cached = self._connection.call(lambda: self._redis.hgetall(self._key))
        cached.pop(_LIFE.encode(), None)
        upto = _offset(cached.pop(_UPTO.encode(), None))
        return upto, {_text(name): text for name, kept in cached.items() if (text := _kept_text(kept)) is not None}

    def life(self) -> str:
        """Which cache this is; one that was emptied is another.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        self._connection.call(lambda: self._redis.hsetnx(self._key, _LIFE, uuid.uuid4().hex))
        (life,) = self._connection.call(lambda: self._redis.hmget(self._key, [_LIFE]))
        return _text(life)

    def keep(self, described: Mapping[str, Described], *, all_of: str = "", upto: int = NOTHING) -> None:
        """Keep what the topic says, but for what the cache knows later records of.

        Args:
            described: By name.
            all_of: Where that is all there is, the cache's life as it was before the topic was read. One that was emptied
                since may have lost a later record, so it does not count as holding all.
            upto: Where that is all there is, where the topic ended when it was read.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        keys = [self._key, *(deleted_key(self._namespace, name) for name in described)]
        arguments = [part for name, (offset, text) in described.items() for part in (name, offset, text or "")]
        self._connection.call(
            lambda: self._redis.eval(describe_script().text, len(keys), *keys, all_of, upto, *arguments),
        )

    def empty(self) -> None:
        """Have the cache hold nothing.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        self._connection.call(lambda: self._redis.delete(self._key))

    def take_turn(self, name: str, token: str, seconds: int) -> bool:
        """Whether it is a client's turn now to change a description; the turn ends by itself after a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return bool(self._connection.call(lambda: self._redis.set(key, token, nx=True, ex=seconds)))

    def has_turn(self, name: str, token: str) -> bool:
        """Whether a client's turn has not ended by itself.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return self._connection.call(lambda: self._redis.get(key)) == token.encode()

    def end_turn(self, name: str, token: str) -> None:
        """End a client's turn.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; it ends by itself.
        """
        key = turn_key(self._namespace, name)
        self._connection.call(lambda: self._redis.eval(let_go_script().text, 1, key, token))


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _offset(value: bytes | str | None) -> int:
    return int(value) if value else NOTHING


def _kept_text(kept: bytes | str | None) -> str | None:
    return _text(kept).partition(" ")[2] or None
