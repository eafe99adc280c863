"""Questions to a Redis, and trials of its user's rights, for ``kafkabus doctor``; no key of an entity is changed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from redis import Redis
from redis.connection import SSLConnection, parse_url
from redis.exceptions import NoScriptError, RedisError

from kafkabus._core.exceptions import ServiceBusAuthorizationError, ServiceBusCommunicationError
from kafkabus._core.redis_url import parse_redis_url
from kafkabus._core.settings import Settings
from kafkabus._ledger.keys import LedgerKeys, descriptions_key, notification_channel
from kafkabus._ledger.operations import Claim, Ledger
from kafkabus._ledger.scripts import create_script, request_script
from kafkabus._redis.errors import to_sdk_error
from kafkabus._redis.replies import text_of
from kafkabus_mapping.names import EntityPath

KEYS_AT_ONCE = 1_000
"""For how many keys one round trip asks."""
_KEPT_S = 60
"""After how many seconds Redis removes the keys of a trial that was cut off."""
_PATH = EntityPath("$doctor")
"""The path of the ledger of a trial; no entity's name begins with a dollar sign."""


class RedisPlace(NamedTuple):
    """The address of a server: of a Redis, a Sentinel, or a node of a cluster.

    Attributes:
        host: The host; None if it is reached at a path.
        port: The port.
        path: The path of its socket; None if it is reached at a host.
        tls: Whether clients are to use TLS.
        checks: Whether clients are to check the server's certificate.
        authority: File of the certificate of the authority that signed it; None: those that the system trusts.
        identity: Files of the client's own certificate and of its key, and the key's password; None: it has none.
    """

    host: str | None
    port: int = 0
    path: str | None = None
    tls: bool = False
    checks: bool = True
    authority: str | None = None
    identity: tuple[str, str | None, str | None] | None = None


def places_of(settings: Settings) -> list[RedisPlace]:
    """Return the addresses in the URL of Redis."""
    url = parse_redis_url(settings.redis_url.reveal())
    given = parse_url(url.plain.reveal())
    path, certificate = given.get("path"), given.get("ssl_certfile")
    if path is not None:
        return [RedisPlace(None, path=str(path))]
    return [
        RedisPlace(
            host,
            port,
            tls=issubclass(given.get("connection_class", object), SSLConnection),
            checks=given.get("ssl_cert_reqs") != "none",
            authority=given.get("ssl_ca_certs"),
            identity=certificate and (certificate, given.get("ssl_keyfile"), given.get("ssl_password")),
        )
        for host, port in url.hosts or [(str(given.get("host", "localhost")), int(given.get("port", 6379)))]
    ]


class RedisProbe:
    """One look at a Redis.

    Args:
        settings: Settings with the URL of Redis.
        redis: A client of that Redis, which the probe closes.
        infos: Returns the reply to INFO of each server that holds keys.
        timeout: The longest time for one call of that client, in seconds.
    """

    def __init__(
        self, settings: Settings, redis: Redis, infos: Callable[[], list[dict[str, Any]]], *, timeout: float
    ) -> None:
        self._settings = settings
        self._redis = redis
        self._ask_infos = infos
        self._timeout = timeout

    def reach(self) -> None:
        """Have Redis accept the client.

        Raises:
            ServiceBusAuthenticationError: Redis refuses the credentials.
            ServiceBusCommunicationError: Redis does not answer, or cannot serve.
        """
        # Redis refuses PING if it cannot save. A user that may not do this was accepted.
        with suppress(ServiceBusAuthorizationError):
            self._call(lambda: self._redis.echo("kafkabus"), "ECHO")

    def infos(self) -> list[dict[str, Any]]:
        """Return Redis's whole reply to INFO; of a cluster, each primary's.

        Raises:
            ServiceBusAuthorizationError: The user may not ask.
            ServiceBusError: Redis does not answer, or refuses.
        """
        told: list[dict[str, Any]] = self._call(self._ask_infos, "INFO")
        return told

    def get_setting(self, name: str) -> str:
        """Return a setting of Redis; empty if this Redis has none of that name.

        Raises:
            ServiceBusAuthorizationError: The user may not ask.
            ServiceBusError: Redis does not answer, or refuses.
        """
        told: dict[str, str] = self._call(lambda: self._redis.config_get(name), f"CONFIG GET {name}")
        return told.get(name, "")

    def now_ms(self) -> float:
        """Return Redis's time, ms since 1970.

        Raises:
            ServiceBusError: Redis does not answer, or refuses.
        """
        seconds, microseconds = self._call(self._redis.time, "TIME")
        return float(seconds) * 1000 + float(microseconds) / 1000

    def read_scores(self, key: str) -> list[tuple[str, float]]:
        """Return the members of a sorted set, with their scores, ascending.

        Raises:
            ServiceBusError: Redis does not answer, or refuses.
        """
        found = self._call(lambda: self._redis.zrange(key, 0, -1, withscores=True), "ZRANGE")
        return [(text_of(member), float(score)) for member, score in found]

    def texts(self, keys: Sequence[str]) -> list[str]:
        """Return the texts of keys; empty for keys that are absent.

        Raises:
            ServiceBusError: Redis does not answer, or refuses.
        """
        return [text_of(text) for text in self._all([("GET", key) for key in keys])]

    def fields(self, keys: Sequence[str], names: Sequence[str]) -> list[list[str | None]]:
        """Return fields of hashes; None for fields that are absent.

        Raises:
            ServiceBusError: Redis does not answer, or refuses.
        """
        replies = self._all([("HMGET", key, *names) for key in keys])
        return [[None if value is None else text_of(value) for value in reply] for reply in replies]

    def earliest(self, keys: Sequence[str], count: int) -> list[list[tuple[str, float]]]:
        """Return the first members of sorted sets, with their scores.

        Raises:
            ServiceBusError: Redis does not answer, or refuses.
        """
        replies = self._all([("ZRANGE", key, 0, count - 1, "WITHSCORES") for key in keys])
        return [[(text_of(member), float(score)) for member, score in _pairs(reply)] for reply in replies]

    def try_keys(self) -> None:
        """Write, read and delete a key of each of the two patterns that a client uses.

        Raises:
            ServiceBusAuthorizationError: The user lacks a right.
            ServiceBusError: Redis does not answer, or refuses.
        """
        mark = uuid.uuid4().hex
        namespace = f"{descriptions_key(self._settings.namespace)}:doctor:{mark}"
        for key in (namespace, self._ledger(mark).keys.meta):
            self._call(lambda key=key: self._redis.hset(key, "doctor", "1"), "HSET")  # type: ignore[misc]
            self._call(lambda key=key: self._redis.expire(key, _KEPT_S), "EXPIRE")  # type: ignore[misc]
            self._call(lambda key=key: self._redis.hmget(key, ["doctor"]), "HMGET")  # type: ignore[misc]
            self._call(lambda key=key: self._redis.delete(key), "DEL")  # type: ignore[misc]

    def try_scripts(self) -> None:
        """Make a ledger, have it carry out a request, and delete it, as a client does before it creates an entity.

        Raises:
            ServiceBusAuthorizationError: The user lacks a right.
            ServiceBusError: Redis does not answer, or refuses.
        """
        ledger = self._ledger(uuid.uuid4().hex)
        ledger.pending.append(Claim.poll(ledger))
        request = ledger.next_request()
        if request is None:
            return
        script, arguments = request_script(request.names), request.script_arguments()
        try:
            meta = ledger.keys.meta
            self._call(lambda: self._redis.eval(create_script().text, 1, meta, 0, 0, 0), "a script")
            self._call(lambda: self._redis.expire(meta, _KEPT_S), "EXPIRE")
            with self._explain_errors("a script"):
                try:
                    self._redis.execute_command("EVALSHA", script.sha, *arguments)
                except NoScriptError:
                    self._redis.script_load(script.text)
                    self._redis.execute_command("EVALSHA", script.sha, *arguments)
        finally:
            with suppress(RedisError):
                self._redis.delete(*ledger.script_keys)

    def try_channels(self) -> None:
        """Publish a message on a channel of the namespace, and hear it.

        Raises:
            ServiceBusAuthorizationError: The user lacks a right.
            ServiceBusError: Redis does not answer, or refuses.
        """
        channel = notification_channel(self._settings.namespace, _PATH)
        with self._explain_errors("SUBSCRIBE or PUBLISH"), self._redis.pubsub() as heard:
            heard.subscribe(channel)
            deadline = time.monotonic() + self._timeout
            published = False
            while (left := deadline - time.monotonic()) > 0:
                message = heard.get_message(timeout=left)
                if message is not None and message["type"] == "message":
                    return
                if message is not None and not published:
                    self._redis.publish(channel, "doctor")
                    published = True
        raise ServiceBusCommunicationError(
            f"Redis {self._settings.redis_address} did not pass on a message within {self._timeout:g} s"
        )

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _ledger(self, mark: str) -> Ledger:
        keys = LedgerKeys.of(self._settings.namespace, _PATH, mark, 0)
        channel = notification_channel(self._settings.namespace, _PATH)
        return Ledger(keys, partition=0, channel=channel, client_id=mark)

    def _all(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """Send commands in few round trips; return their replies."""
        replies: list[Any] = []
        for first in range(0, len(commands), KEYS_AT_ONCE):
            pipeline = self._redis.pipeline(transaction=False)
            for command in commands[first : first + KEYS_AT_ONCE]:
                pipeline.execute_command(*command)
            replies += self._call(pipeline.execute, str(commands[first][0]))
        return replies

    def _call(self, ask: Callable[[], Any], what: str) -> Any:
        with self._explain_errors(what):
            return ask()

    @contextmanager
    def _explain_errors(self, what: str) -> Generator[None]:
        """Raise the SDK's errors for those of Redis."""
        settings = self._settings
        try:
            yield
        except RedisError as error:
            raise to_sdk_error(
                error, address=settings.redis_address, namespace=settings.namespace, tried_for=self._timeout, what=what
            ) from error


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield members with their scores, which a reply has one after the other, or already in pairs."""
    if flat and isinstance(flat[0], (list, tuple)):
        return iter([(pair[0], pair[1]) for pair in flat])
    return iter(zip(flat[::2], flat[1::2], strict=True))
