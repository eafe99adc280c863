"""An in-memory substitute for Redis: ledgers, descriptions, heartbeats, notifications.

The clients have only the methods of redis-py's clients that the SDK calls.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from kafkabus._ledger.keys import EVERYWHERE
from kafkabus._ledger.layout import key_names
from kafkabus._ledger.scripts import (
    create_script,
    describe_script,
    figures_script,
    find_descriptions_script,
    heartbeat_script,
    let_go_script,
    look_script,
    not_as_written_script,
    request_scripts,
    reserve_script,
    restore_script,
)
from kafkabus.testing.ledger import (
    MemoryLedger,
    RetryDelays,
    find_due,
    read_figures,
    refused_copies,
    restore,
    run_request,
)
from kafkabus_mapping.names import SUBSCRIPTIONS

WRITTEN_WITHIN = 5000
"""Within how many ms upkeep writes down what changed, as in ``lua/request.lua``."""
STEP = 0.01
"""How often, in seconds, a listener looks for messages."""
WITH_SESSIONS = {len(key_names(sessions=True, detects=detects)) + 1 for detects in (False, True)}
"""The possible numbers of keys of a request to a ledger with sessions."""


class Store:
    """All keys of a namespace; safe to share between threads.

    Args:
        now_ms: The time, ms since 1970.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._guard = threading.RLock()
        self._ledgers: dict[str, MemoryLedger] = {}
        self._hashes: dict[str, dict[str, str]] = {}
        self._reservations: dict[str, dict[tuple[str, str], bool]] = {}
        self._marks: dict[str, str] = {}
        self._heard_of: dict[str, dict[str, tuple[int, int]]] = {}
        self._listeners: dict[str, list[deque[tuple[str, str]]]] = {}
        self._bells: dict[tuple[str, str], None] = {}
        self._look_at: dict[str, float] = {}
        self._scripts: dict[str, Callable[[list[str], list[Any]], Any]] = {
            **{script.sha: self._request for script in request_scripts()},
            create_script().sha: self._create,
            restore_script().sha: self._restore,
            heartbeat_script().sha: self._heartbeat,
            describe_script().sha: self._describe,
            find_descriptions_script().sha: self._find_descriptions,
            reserve_script().sha: self._reserve,
            let_go_script().sha: self._let_go,
            look_script().sha: self._look,
            not_as_written_script().sha: self._not_as_written,
            figures_script().sha: self._figures,
        }
        scripts = (
            create_script,
            restore_script,
            heartbeat_script,
            describe_script,
            find_descriptions_script,
            reserve_script,
            let_go_script,
        )
        self._by_text = {script.text: script.sha for script in (*(each() for each in scripts), *request_scripts())}

    def evaluate(self, sha: str, count: int, *arguments: Any) -> Any:
        """Run a script; its keys are the first arguments."""
        with self._guard:
            return self._scripts[sha](list(arguments[:count]), list(arguments[count:]))

    def sha_of(self, text: str) -> str:
        """Return the SHA-1 sum of a script's text, by which it is called."""
        return self._by_text[text]

    def fields(self, key: str, names: Sequence[str]) -> list[bytes | None]:
        """Return fields of a hash."""
        with self._guard:
            ledger = self._ledgers.get(key)
            of_properties = self._ledgers.get(f"{key.removesuffix('properties')}meta")
            if key.endswith(":properties") and of_properties is not None:
                values = of_properties.property_fields()
            elif ledger is not None:
                values = ledger.meta_fields()
            else:
                values = self._hashes.get(key, {})
            return [value.encode() if (value := values.get(name)) is not None else None for name in names]

    def set_first(self, key: str, name: str, value: str) -> None:
        """Set a field of a hash, unless it is set already."""
        with self._guard:
            self._hashes.setdefault(key, {}).setdefault(name, value)

    def set_field(self, key: str, name: str, value: str) -> None:
        """Set a field of a hash."""
        with self._guard:
            self._hashes.setdefault(key, {})[name] = value

    def delete_fields(self, key: str, names: Iterable[str]) -> None:
        """Delete fields of a hash."""
        with self._guard:
            for name in names:
                self._hashes.get(key, {}).pop(name, None)

    def heard_of(self, key: str, oldest: float) -> list[bytes]:
        """Return the clients that gave a heartbeat since a moment, in ms of ``MemoryRedis.time``."""
        with self._guard:
            return [client.encode() for client, (moment, _) in self._heard_of.get(key, {}).items() if moment >= oldest]

    def hash(self, key: str) -> dict[bytes, bytes]:
        """Return all fields of a hash."""
        with self._guard:
            return {name.encode(): value.encode() for name, value in self._hashes.get(key, {}).items()}

    def latest(self, key: str) -> list[tuple[bytes, float]]:
        """Return the client with the latest heartbeat, and its time."""
        with self._guard:
            heard_of = self._heard_of.get(key)
            if not heard_of:
                return []
            client, (_, moment) = max(heard_of.items(), key=lambda item: item[1])
            return [(client.encode(), moment)]

    def delete(self, keys: Sequence[str]) -> int:
        """Delete ledgers by their keys; a ledger is deleted with its first key."""
        with self._guard:
            return sum(self._ledgers.pop(key, None) is not None for key in keys)

    def mark(self, key: str, value: str, *, anew: bool) -> bool:
        """Set a mark, replacing an existing one only if ``anew``; return whether it was set."""
        with self._guard:
            if not anew and key in self._marks:
                return False
            self._marks[key] = value
            return True

    def marked(self, key: str) -> bytes | None:
        """Return a mark, or None."""
        with self._guard:
            value = self._marks.get(key)
            return None if value is None else value.encode()

    def listen(self, channel: str, heard: deque[tuple[str, str]]) -> None:
        """Put further rings of a bell into a queue."""
        with self._guard:
            self._listeners.setdefault(channel, []).append(heard)

    def leave(self, heard: deque[tuple[str, str]], channels: Iterable[str] | None = None) -> None:
        """Put no further rings into a queue, of some bells or of all."""
        with self._guard:
            for channel in list(self._listeners) if channels is None else channels:
                listeners = self._listeners.get(channel, [])
                listeners[:] = [listener for listener in listeners if listener is not heard]

    def publish(self, channel: str, text: str) -> None:
        """Give a text to those that listen to a channel."""
        with self._guard:
            self._ring(channel, text)

    def ring_all(self) -> None:
        """Ring every bell, because time was advanced."""
        with self._guard:
            for channel, partition in self._bells:
                self._ring(channel, partition)
            for channel in self._listeners:
                if channel.endswith("/$upkeep"):
                    self._ring(channel, EVERYWHERE)

    def _ring(self, channel: str, text: str) -> None:
        for heard in self._listeners.get(channel, ()):
            heard.append((channel, text))

    def _tell_upkeep(self, key: str, channel: str, partition: str, at: float) -> None:
        """Ask upkeep to look at a ledger at a time, unless it will look by then; see ``lua/request.lua``."""
        if at < self._look_at.get(key, math.inf):
            namespace, _, entity = channel.partition("/")
            self._look_at[key] = at
            self._ring(f"{namespace}/$upkeep", f"{max(0, int(at - self._now_ms()))} {partition} {entity}")

    # The scripts.

    def _request(self, keys: list[str], arguments: list[Any]) -> str:
        number, channel, partition, payload, *retries = arguments
        ledger = self._ledgers.get(keys[0])
        if ledger is None:
            return json.dumps({"status": "missing"})
        ledger.sessions.enabled = len(keys) in WITH_SESSIONS
        now, changed = self._now_ms(), ledger.changed
        policy = RetryDelays(**json.loads(retries[0])) if retries else None
        reply = run_request(ledger, keys[-1], int(number), json.loads(payload), now, policy)
        self._bells[channel, str(partition)] = None
        if ledger.changed != changed:
            self._tell_upkeep(keys[0], channel, str(partition), min(find_due(ledger) or math.inf, now + WRITTEN_WITHIN))
        if ledger.notify:
            self._ring(channel, str(partition))
        return reply

    def _look(self, keys: list[str], arguments: list[Any]) -> list[Any] | None:
        written, within, *names = arguments
        ledger = self._ledgers.get(keys[0])
        if ledger is None:
            return None
        now, due = self._now_ms(), find_due(ledger)
        self._look_at[keys[0]] = min(
            math.inf if due is None else due, math.inf if ledger.changed == written else now + int(within)
        )
        due_in = b"" if due is None else str(due - now).encode()
        return [ledger.changed.encode(), due_in, *self.fields(keys[0], names)]

    def _not_as_written(self, keys: list[str], written: list[Any]) -> list[int]:
        changed = [None if (ledger := self._ledgers.get(key)) is None else ledger.changed for key in keys]
        return [place for place, (now, known) in enumerate(zip(changed, written, strict=True), 1) if now != known]

    def _figures(self, keys: list[str], _arguments: list[Any]) -> list[Any] | None:
        ledger = self._ledgers.get(keys[0])
        if ledger is None:
            return None
        refused = [f"{offset}:{size}".encode() for offset, size in refused_copies(ledger)]
        return [ledger.changed.encode(), *(str(figure).encode() for figure in read_figures(ledger)), refused]

    def _create(self, keys: list[str], arguments: list[Any]) -> int:
        if keys[0] in self._ledgers:
            return 0
        cursor, has_message_ttl, detects = map(int, arguments)
        ledger = self._ledgers[keys[0]] = MemoryLedger(cursor)
        if has_message_ttl:
            ledger.marks.add("has_message_ttl")
        if detects:
            ledger.duplicates.dedup_upto = cursor
        return 1

    def _restore(self, keys: list[str], arguments: list[Any]) -> int:
        if keys[0] in self._ledgers:
            return 0
        snapshot, mark = arguments
        if self._marks.get(keys[-1], "").encode() != mark:
            return 2
        del self._marks[keys[-1]]
        self._ledgers[keys[0]] = restore(snapshot, self._now_ms())
        return 1

    def _heartbeat(self, keys: list[str], arguments: list[Any]) -> list[list[bytes]]:
        client, lifetime, *leaves = arguments
        # Heartbeats use real time, even if the namespace's clock was advanced.
        now = time.monotonic_ns() // 1_000_000
        members: list[list[bytes]] = []
        for key in keys:
            heard_of = self._heard_of.setdefault(key, {})
            heard_of[client] = now, self._now_ms()
            for other, (moment, _) in list(heard_of.items()):
                if moment < now - int(lifetime):
                    del heard_of[other]
            if leaves:
                heard_of[client] = now - int(lifetime) - 1, self._now_ms() - int(lifetime) - 1
            members.append([name.encode() for name in heard_of])
        return members

    def _let_go(self, keys: list[str], arguments: list[Any]) -> int:
        if self._marks.get(keys[0]) != arguments[0]:
            return 0
        del self._marks[keys[0]]
        return 1

    def _describe(self, keys: list[str], arguments: list[Any]) -> int:
        life, end, *rest = arguments
        hashed = self._hashes.setdefault(keys[0], {})
        kept, upto = 0, int(hashed.get("$upto", -1))
        for name, offset, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            present = hashed.get(name)
            if present is None or int(present.partition(" ")[0]) < int(offset):
                hashed[name] = f"{offset} {text}"
                kept += 1
            upto += int(offset) == upto
        if life and life == hashed.get("$life"):
            upto = max(upto, int(end))
        hashed["$upto"] = str(upto)
        return kept

    def _entities(self, key: str) -> dict[str, bool]:
        """Return whether each queue and each topic is partitioned, by name."""
        texts = {name: kept.partition(" ")[2] for name, kept in self._hashes.get(key, {}).items()}
        return {
            name: json.loads(text)["enable_partitioning"]
            for name, text in texts.items()
            if text and not name.startswith("$") and SUBSCRIPTIONS.lower() not in name
        }

    def _find_descriptions(self, keys: list[str], arguments: list[Any]) -> list[Any]:
        entities, kept = self._entities(keys[0]), self._hashes.get(keys[0], {})
        (beginning,) = arguments
        found = sorted(name for name in kept if beginning and name.startswith(beginning))
        return [
            *(kept.get(name, "").encode() for name in ("$upto", "$namespace")),
            len(entities),
            sum(entities.values()),
            *(kept[name].encode() for name in found),
        ]

    def _reserve(self, keys: list[str], arguments: list[Any]) -> list[Any]:
        name, partitioned, token, seconds = arguments
        reserved = self._reservations.setdefault(keys[2], {})
        if seconds == 0:
            reserved.pop((token, name), None)
            return []
        # In the order in which they were made; they never end by themselves here.
        reserved.setdefault((token, name), bool(partitioned))
        entities = self._entities(keys[0])
        entities.pop(name, None)
        before = list(reserved)[: list(reserved).index((token, name))]
        counted = {reservation[1]: reserved[reservation] for reservation in before if reservation[1] != name} | entities
        upto, own, *_ = self._find_descriptions(keys[:2], [""])
        return [upto, own, len(counted), sum(counted.values())]


class MemoryRedis:
    """Replaces ``redis.Redis``.

    Args:
        store: The store with the data.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def info(self, _section: str = "default") -> dict[str, int]:
        """Return that memory has no limit; other facts about a server are missing, as for users without the right to ask."""
        return {"maxmemory": 0, "used_memory": 0}

    def execute_command(self, *arguments: Any) -> Any:
        """Run a command; only ``EVALSHA`` is supported."""
        command, *rest = arguments
        if command != "EVALSHA":
            raise ResponseError(f"an in-memory namespace does not support the command {command!r}")
        return self._store.evaluate(*rest)

    def eval(self, text: str, count: int, *arguments: Any) -> Any:
        """Run a script."""
        return self._store.evaluate(self._store.sha_of(text), count, *arguments)

    def hmget(self, key: str, names: Sequence[str]) -> Any:
        """Return fields of a hash."""
        return self._store.fields(key, names)

    def hsetnx(self, key: str, name: str, value: str) -> Any:
        """Set a field of a hash, unless it is set already."""
        return self._store.set_first(key, name, value)

    def time(self) -> Any:
        """Return seconds and microseconds of the clock of heartbeats."""
        now = time.monotonic_ns() // 1000
        return divmod(now, 1_000_000)

    def hset(self, key: str, name: str, value: str) -> Any:
        """Set a field of a hash."""
        return self._store.set_field(key, name, value)

    def hdel(self, key: str, *names: str) -> Any:
        """Delete fields of a hash."""
        return self._store.delete_fields(key, names)

    def hgetall(self, key: str) -> Any:
        """Return all fields of a hash."""
        return self._store.hash(key)

    def hkeys(self, key: str) -> Any:
        """Return the names of all fields of a hash."""
        return list(self._store.hash(key))

    def set(self, key: str, value: str, *, nx: bool = False, ex: int) -> Any:  # noqa: ARG002 - redis-py's
        """Set a mark; marks never expire here."""
        return self._store.mark(key, value, anew=not nx)

    def get(self, key: str) -> Any:
        """Return a mark, or None."""
        return self._store.marked(key)

    def mget(self, keys: Sequence[str]) -> Any:
        """Return several marks; see ``get``."""
        return [self.get(key) for key in keys]

    def publish(self, channel: str, text: str) -> Any:
        """Give a text to those that listen to a channel."""
        return self._store.publish(channel, text)

    def zrange(self, key: str, _start: int, _end: int, *, withscores: bool) -> Any:  # noqa: ARG002 - redis-py's
        """Return the last member of a sorted set, with its score."""
        return self._store.latest(key)

    def heard_of(self, key: str, oldest: float) -> Any:
        """Return the clients that gave a heartbeat since a moment."""
        return self._store.heard_of(key, oldest)

    def delete(self, *keys: str) -> Any:
        """Delete keys."""
        return self._store.delete(keys)

    def pipeline(self, *, transaction: bool = False) -> MemoryPipeline:  # noqa: ARG002 - redis-py's
        """Return a pipeline, whose calls are made together."""
        return MemoryPipeline(self._store)

    def pubsub(self, *, ignore_subscribe_messages: bool = True) -> MemoryPubSub:  # noqa: ARG002 - redis-py's
        """Return an object that listens to channels."""
        return MemoryPubSub(self._store)

    def close(self) -> Any:
        """Do nothing; there is no connection to close."""


class MemoryPipeline:
    """Replaces ``redis.client.Pipeline``."""

    def __init__(self, store: Store) -> None:
        self._redis = MemoryRedis(store)
        self._calls: list[Callable[[], Any]] = []

    def hmget(self, key: str, names: Sequence[str]) -> None:
        """Queue reading fields of a hash."""
        self._calls.append(lambda: self._redis.hmget(key, names))

    def delete(self, *keys: str) -> None:
        """Queue deleting keys."""
        self._calls.append(lambda: self._redis.delete(*keys))

    def set(self, key: str, value: str, *, nx: bool, ex: int) -> None:
        """Queue setting a text, if there is none yet."""
        self._calls.append(lambda: self._redis.set(key, value, nx=nx, ex=ex))

    def get(self, key: str) -> None:
        """Queue reading a text."""
        self._calls.append(lambda: self._redis.get(key))

    def zrange(self, key: str, start: int, end: int, *, withscores: bool) -> None:
        """Queue reading the last member of a sorted set."""
        self._calls.append(lambda: self._redis.zrange(key, start, end, withscores=withscores))

    def zrangebyscore(self, key: str, oldest: float, _latest: str) -> None:
        """Queue reading the clients that gave a heartbeat since a moment."""
        self._calls.append(lambda: self._redis.heard_of(key, oldest))

    def execute_command(self, *arguments: Any) -> None:
        """Queue a command; only ``EVALSHA`` is supported."""
        self._calls.append(lambda: self._redis.execute_command(*arguments))

    def execute(self, *, raise_on_error: bool = True) -> Any:  # noqa: ARG002 - nothing fails here
        """Make the queued calls, and return their replies."""
        return [call() for call in self._calls]


class MemoryPubSub:
    """Replaces ``redis.client.PubSub``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heard: deque[tuple[str, str]] = deque()

    def subscribe(self, *channels: str) -> Any:
        """Listen to channels as well."""
        for channel in channels:
            self._store.listen(channel, self._heard)

    def unsubscribe(self, *channels: str) -> Any:
        """Listen to channels no more."""
        self._store.leave(self._heard, channels)

    def ping(self) -> Any:
        """Be answered: a listener takes silence for a lost connection."""
        self._heard.append(("", ""))

    def get_message(self, *, timeout: float = 0.0) -> Any:
        """Return the oldest message, or None if there is none for so many seconds."""
        deadline = time.monotonic() + timeout
        while not self._heard and time.monotonic() < deadline:
            time.sleep(STEP)
        if not self._heard:
            return None
        channel, data = self._heard.popleft()
        return {"type": "message" if channel else "pong", "channel": channel, "data": data}

    def close(self) -> Any:
        """Stop listening."""
        self._store.leave(self._heard)


class _Awaited:
    """A client whose calls are awaited; each makes the blocking call, which never waits."""

    def __init__(self, blocking: MemoryRedis | MemoryPubSub) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._blocking, "close" if name == "aclose" else name)

        async def awaited(*arguments: Any, **named: Any) -> Any:
            return call(*arguments, **named)

        return awaited


class AsyncMemoryRedis(_Awaited):
    """Replaces ``redis.asyncio.Redis``.

    Args:
        store: The store with the data.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(MemoryRedis(store))
        self._store = store

    def pipeline(self, *, transaction: bool = False) -> AsyncMemoryPipeline:  # noqa: ARG002 - redis-py's
        """Return a pipeline, whose calls are made together."""
        return AsyncMemoryPipeline(self._store)

    def pubsub(self, *, ignore_subscribe_messages: bool = True) -> AsyncMemoryPubSub:  # noqa: ARG002 - redis-py's
        """Return an object that listens to channels."""
        return AsyncMemoryPubSub(self._store)


class AsyncMemoryPubSub(_Awaited):
    """Replaces ``redis.asyncio.client.PubSub``."""

    def __init__(self, store: Store) -> None:
        self._pubsub = MemoryPubSub(store)
        super().__init__(self._pubsub)

    async def get_message(self, *, timeout: float = 0.0) -> Any:
        """Return the oldest message, or None if there is none for so many seconds."""
        deadline = time.monotonic() + timeout
        message = self._pubsub.get_message()
        while message is None and time.monotonic() < deadline:
            await asyncio.sleep(STEP)
            message = self._pubsub.get_message()
        return message


class AsyncMemoryPipeline(MemoryPipeline):
    """Replaces ``redis.asyncio.client.Pipeline``."""

    async def execute(self, *, raise_on_error: bool = True) -> Any:
        """Make the queued calls, and return their replies."""
        return super().execute(raise_on_error=raise_on_error)
