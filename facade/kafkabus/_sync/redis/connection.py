# Generated from facade/kafkabus/_async/redis/connection.py by tools/generate_blocking.py. Do not edit.
"""Connecting to the Redis that holds a namespace's ledgers, and the cache of descriptions in it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError, ResponseError
from tenacity import Retrying, retry_if_exception, wait_exponential, wait_random

from kafkabus._core import in_memory_registry
from kafkabus._core.exceptions import LedgerError, ServiceBusAuthorizationError, ServiceBusError, UnsuitableRedisError
from kafkabus._ledger.keys import (
    deleted_key,
    description_index_key,
    descriptions_key,
    reservations_key,
    turn_key,
)
from kafkabus._ledger.scripts import (
    Script,
    describe_script,
    find_descriptions_script,
    let_go_script,
    reserve_script,
)
from kafkabus._redis.errors import of_cluster, passes, to_sdk_error
from kafkabus._redis.replies import mode_of, text_of
from kafkabus._sync.compat import Lock, Semaphore, cancellable
from kafkabus._sync.redis.cluster import ClusterRedis, by_slot
from kafkabus._sync.redis.opening import open_redis

LOGGER = logging.getLogger("kafkabus.ledger")

T = TypeVar("T")

REACHED_WITHIN = 7.0
"""For how long, in seconds, a call is retried at the most until Redis has answered a first one."""
CALLS_AT_ONCE = 32
"""How many calls wait for Redis at a time at the most, each with a connection; redis-py refuses a call that finds none."""

_UPTO = "$upto"
"""The cache's field with the offset of the topic up to which it is complete; no entity's name begins with a dollar sign."""
_LIFE = "$life"
"""The cache's field with its identity, which changes when the cache is emptied."""
NOTHING = -1
"""The offset that means that a cache is not complete up to any offset."""


def connect(url: str) -> Redis:
    """Return a client of the Redis at this address; it connects when it is first used."""
    here = in_memory_registry.find(url)
    if here is not None:
        return cast("Redis", here.redis())
    return open_redis(url)


class RedisConnection:
    """A client's access to Redis: checks it before use, retries while it cannot serve, and raises the SDK's errors.

    Args:
        redis: A client of Redis.
        address: The address of Redis for error messages, without a password.
        namespace: The namespace whose keys Redis holds.
        retry_for: For how long, in seconds, a call is retried while Redis cannot serve it; ``REACHED_WITHIN`` at the most
            until Redis has answered once.

    Attributes:
        redis: The client of Redis.
        address: The address of Redis for error messages.
    """

    def __init__(self, redis: Redis, *, address: str, namespace: str, retry_for: float = 60.0) -> None:
        self.redis = redis
        self.address = address
        self._namespace = namespace
        self._retry_for = retry_for
        self._answered = False
        self._looked_at = False
        self._looking = Lock()
        self._room = Semaphore(CALLS_AT_ONCE)

    def call(self, ask: Callable[[], T]) -> T:
        """Make a call to Redis; retry while Redis cannot serve it.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached, or cannot serve, as in a failover; tried for ``retry_for``,
                or ``REACHED_WITHIN`` if it never answered.
            ServiceBusAuthenticationError: Redis refuses the credentials.
            ServiceBusAuthorizationError: The credentials do not allow the call.
            ServiceBusServerBusyError: Redis takes no writes, because its memory is full or it cannot save.
            UnsuitableRedisError: Redis would drop locks, or is a cluster and its URL does not say so; the call was not made.
            LedgerError: Redis refuses the call for another reason.
        """

        def once() -> T:
            try:
                with self._room:
                    if not self._looked_at:
                        with self._looking:
                            if not self._looked_at:
                                self._look_at()
                    answer = ask()
                    self._answered = True
                    return answer
            except RedisError as error:
                self._answered |= isinstance(error, ResponseError)
                if passes(error):
                    self._may_be_another(error)
                raise

        def attempt() -> T:
            return cancellable(once())

        try:
            try:
                return attempt()
            except RedisError as error:
                if not passes(error):
                    raise
                LOGGER.warning("redis_retry address=%s error=%s", self.address, error)
            retrying = Retrying(
                retry=retry_if_exception(passes),
                stop=lambda state: (
                    state.seconds_since_start is not None and state.seconds_since_start >= self._patience
                ),
                wait=wait_exponential(multiplier=0.05, max=1.0) + wait_random(0, 0.05),
                reraise=True,
            )
            return retrying(attempt)
        except RedisError as error:
            raise self.to_sdk_error(error) from error

    def ask_about(self, ask: Callable[[], T]) -> T | None:
        """Make a call that asks about Redis itself; return None if Redis does not allow it, as with some hosted services.

        Raises:
            ServiceBusError: See ``call``.
        """
        try:
            return self.call(ask)
        except (ServiceBusAuthorizationError, LedgerError):
            return None

    def to_sdk_error(self, error: RedisError, what: str = "a command") -> ServiceBusError:
        """Return the SDK's error for an error of Redis in reply to ``what``."""
        return to_sdk_error(error, address=self.address, namespace=self._namespace, tried_for=self._patience, what=what)

    @property
    def _patience(self) -> float:
        """For how long a call is retried, in seconds: a wrong address is no failover."""
        return self._retry_for if self._answered else min(self._retry_for, REACHED_WITHIN)

    def _may_be_another(self, error: RedisError) -> None:
        """Have Redis checked and its address looked up again, because the next call may reach another Redis."""
        self._looked_at = False
        if isinstance(self.redis, ClusterRedis):
            self.redis.look_again()
        elif isinstance(error, ResponseError):
            self.redis.connection_pool.disconnect(inuse_connections=False)

    def _look_at(self) -> None:
        """Refuse a Redis that drops keys when it is full, and a cluster that is not called so; warn if nothing is persisted."""
        try:
            infos = self.infos()
        except ResponseError as error:
            if passes(error):
                raise
            infos = []  # The credentials may not ask, as with some hosted Redis.
        for info in infos:
            if mode_of(info) == "cluster" and not isinstance(self.redis, ClusterRedis):
                raise of_cluster(self.address)
            policy = info.get("maxmemory_policy", "noeviction")
            if policy != "noeviction":
                raise UnsuitableRedisError(
                    f"Redis {self.address} has maxmemory-policy {policy!r} and would drop locks when it is full: set it to "
                    "noeviction"
                )
        # The server that answered may be gone by now; then the call that follows fails, and the next one checks again.
        self._looked_at = True
        # A Redis that loads its data says that it has no append-only file, too.
        unsaved = [info for info in infos if info.get("aof_enabled") == 0 and not info.get("loading")]
        if unsaved and self._saves_nothing():
            LOGGER.warning("redis_not_persistent address=%s: locks and settlements end with it", self.address)

    def infos(self, section: str | None = None) -> list[dict[str, Any]]:
        """Return the server's reply to INFO; of a cluster, each primary's.

        Raises:
            RedisError: It does not answer, or the credentials may not ask.
        """
        if isinstance(self.redis, ClusterRedis):
            return self.redis.infos(section)
        return [(self.redis.info() if section is None else self.redis.info(section))]

    def groups(self, keys: Sequence[str], at_once: int) -> list[Sequence[str]]:
        """Return keys in groups of which one script may use all, of ``at_once`` keys at the most."""
        groups = by_slot(keys) if isinstance(self.redis, ClusterRedis) else [keys]
        return [group[start : start + at_once] for group in groups for start in range(0, len(group), at_once)]

    def _saves_nothing(self) -> bool:
        try:
            return (self.redis.config_get("save")).get("save") == ""
        except ResponseError:
            return False  # The credentials may not ask.


class DescriptionRecord(NamedTuple):
    """A record of the descriptions' topic.

    Attributes:
        offset: The record's offset, which decides which record is later.
        text: The description as JSON; None if the entity was deleted.
    """

    offset: int
    text: str | None


class Found(NamedTuple):
    """Counts of all entities, and descriptions of some, as the cache has them.

    Attributes:
        upto: The offset of the topic up to which the cache is complete.
        own: The namespace's own description; None if the cache does not hold it.
        entities: The number of queues and topics.
        partitioned: The number of those that are partitioned.
        texts: The descriptions that were asked for.
    """

    upto: int
    own: str | None
    entities: int
    partitioned: int
    texts: Sequence[str]


class DescriptionCache:
    """The cache of descriptions of a namespace's entities, by their names in lower case; see ``lua/describe.lua``.

    An index beside it counts and lists the entities; see ``lua/description_index.lua``.

    Args:
        connection: The connection to the Redis that holds the cache.
        namespace: The namespace of the entities.
    """

    def __init__(self, connection: RedisConnection, namespace: str) -> None:
        self._connection = connection
        self._redis = connection.redis
        self._key = descriptions_key(namespace)
        self._index = description_index_key(namespace)
        self._reservations = reservations_key(namespace)
        self._namespace = namespace

    def get(self, name: str) -> tuple[int, str | None]:
        """Return the offset of the topic up to which the cache is complete, and one description, or None if it holds none.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        upto, (text,) = self.get_many([name])
        return upto, text

    def get_many(self, names: Sequence[str]) -> tuple[int, list[str | None]]:
        """Return the offset of the topic up to which the cache is complete, and several descriptions; see ``get``.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        upto, *kept = self._connection.call(lambda: self._redis.hmget(self._key, [_UPTO, *names]))
        return _offset(upto), list(map(_kept_text, kept))

    def all(self) -> tuple[int, dict[str, str]]:
        """Return the offset of the topic up to which the cache is complete, and all descriptions by name.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        cached = self._connection.call(lambda: self._redis.hgetall(self._key))
        cached.pop(_LIFE.encode(), None)
        upto = _offset(cached.pop(_UPTO.encode(), None))
        return upto, {text_of(name): text for name, kept in cached.items() if (text := _kept_text(kept)) is not None}

    def find(self, beginning: str = "") -> Found:
        """Count the entities, and return the descriptions of those whose names, in lower case, begin with a text.

        Args:
            beginning: The text; if it is empty, no descriptions are returned.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        return _to_found(self._run(find_descriptions_script(), [self._key, self._index], beginning))

    def reserve(self, name: str, token: str, *, partitioned: bool, seconds: int) -> Found:
        """Reserve room for a queue or topic that is to be created; return what there is without it, with earlier reservations.

        Args:
            name: The name in lower case.
            token: A text that names the creation.
            partitioned: Whether it is to be partitioned.
            seconds: How long a reservation counts if it is not given back; 0 to give it back.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        keys = [self._key, self._index, self._reservations]
        reply = self._run(reserve_script(), keys, name, int(partitioned), token, seconds)
        return _to_found(reply or ["", "", 0, 0])

    def names(self) -> list[str]:
        """Return the names that the cache holds, in lower case.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        kept = map(text_of, self._connection.call(lambda: self._redis.hkeys(self._key)))
        return [name for name in kept if name not in {_LIFE, _UPTO}]

    def life(self) -> str:
        """Return the cache's identity, which changes when the cache is emptied.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        self._connection.call(lambda: self._redis.hsetnx(self._key, _LIFE, uuid.uuid4().hex))
        (life,) = self._connection.call(lambda: self._redis.hmget(self._key, [_LIFE]))
        return text_of(life)

    def keep(self, described: Mapping[str, DescriptionRecord], *, all_of: str = "", upto: int = NOTHING) -> None:
        """Keep records of the topic, except for entities of which the cache knows later records.

        Args:
            described: The records, by the entities' names.
            all_of: If these are all records of the topic, the cache's identity before the topic was read. A cache that was
                emptied since may have lost a later record, so it does not count as complete.
            upto: If these are all records of the topic, the offset at which the topic ended when it was read.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        keys = [self._key, self._index, *(deleted_key(self._namespace, name) for name in described)]
        arguments = [part for name, (offset, text) in described.items() for part in (name, offset, text or "")]
        self._run(describe_script(), keys, all_of, upto, *arguments)

    def empty(self) -> None:
        """Empty the cache.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        self._connection.call(lambda: self._redis.delete(self._key, self._index))

    def take_turn(self, name: str, token: str, seconds: int) -> bool:
        """Take the turn to change a description for some seconds; return False if it is taken.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return bool(self._connection.call(lambda: self._redis.set(key, token, nx=True, ex=seconds)))

    def has_turn(self, name: str, token: str) -> bool:
        """Return whether a client still has its turn, which may have ended by itself.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        key = turn_key(self._namespace, name)
        return self._connection.call(lambda: self._redis.get(key)) == token.encode()

    def end_turn(self, name: str, token: str) -> None:
        """End a client's turn.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; the turn ends by itself.
        """
        key = turn_key(self._namespace, name)
        self._run(let_go_script(), [key], token)

    def _run(self, script: Script, keys: Sequence[str], *arguments: str | int) -> Any:
        return self._connection.call(lambda: self._redis.eval(script.text, len(keys), *keys, *arguments))


def _to_found(reply: Sequence[Any]) -> Found:
    upto, own, entities, partitioned, *kept = reply
    texts = [text for kept_value in kept if (text := _kept_text(kept_value)) is not None]
    return Found(_offset(upto), _kept_text(own), int(entities), int(partitioned), texts)


def _offset(value: bytes | str | None) -> int:
    return int(value) if value else NOTHING


def _kept_text(kept: bytes | str | None) -> str | None:
    return text_of(kept).partition(" ")[2] or None
