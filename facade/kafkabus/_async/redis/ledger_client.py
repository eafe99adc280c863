"""Carrying operations to the ledgers: they are gathered, numbered, and sent again if a reply was lost."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from kafkabus._async.compat import Bell, Lock, sleep, try_acquire
from kafkabus._async.redis.connection import RedisConnection
from kafkabus._core.exceptions import LedgerError, MessageLockLostError, ServiceBusError
from kafkabus._ledger.keys import WHOLE_ENTITY, upkeep_channel
from kafkabus._ledger.operations import (
    Ledger,
    LedgerFigures,
    LedgerRequest,
    LedgerState,
    Look,
    Operation,
    Prepare,
    TakeSnapshot,
)
from kafkabus._ledger.scripts import (
    Script,
    create_script,
    figures_script,
    heartbeat_script,
    look_script,
    not_as_written_script,
    request_script,
    restore_script,
)
from kafkabus._ledger.snapshot import Snapshot, Written
from kafkabus._redis.errors import passes
from kafkabus._redis.replies import text_of
from kafkabus._runtime import instruments
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.ledger")

FULL = 0.9
"""The part of Redis's ``maxmemory`` from which on no new messages are granted: a full Redis would refuse settlements too."""

MEMORY_AGE = 0.9
"""For how long, in seconds, a client goes by what it last heard of Redis's memory."""

FULL_SECONDS = 60
"""How long, in seconds, upkeep's report on an entity's partitions counts."""
LONGEST = 10 * 365 * 24 * 3600
"""The longest time, in seconds, for which Redis remembers anything."""
RESTORED_AT_ONCE = 100
"""How many ledgers are rebuilt in one round trip."""
CHANGES_AT_ONCE = 100
"""Of how many messages the changed properties are read together."""
HEARTBEATS_AT_ONCE = 100
"""For how many entities Redis notes heartbeats at a time, during which it does nothing else."""
ANEW_SECONDS = 600
"""How long, in seconds, the reading of what was written down of a ledger may take before it has to be repeated."""

COMPARED_AT_ONCE = 500
"""How many ledgers one script compares with what was written down."""
_STATE = (
    *(
        "cursor",
        "in_flight",
        "version",
        "has_message_ttl",
        "epoch",
        "dedup_upto",
        "scheduled",
        "schedules",
        "moving",
        "transacts",
    ),
    "skipped",
    "postponed",
)
"""The fields of a ledger's head that make its ``LedgerState``."""

RANGES_COUNTED = 1_000
"""How many ranges of messages that wait to be granted again a ledger counts for its figures: each takes some of its time."""
_NOT_WRITTEN = "-"
"""Replaces the text ``changed`` of a ledger that was not written down; no ledger has it."""

_LOCKS_LOST = (
    "Redis lost the ledger {prefix}, and all locks with it: nothing of the transaction was done, and its messages are "
    "delivered again, so handle them again"
)

_STALE = 2
"""``restore.lua``'s reply if Redis was emptied since the mark was set."""


class _Errand:
    """The operations that one caller waits for."""

    __slots__ = ("bell", "operations")

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self.bell = Bell()

    @property
    def is_done(self) -> bool:
        return all(operation.done for operation in self.operations)


class LedgerClient:
    """One client's access to the ledgers; safe to share.

    While a round trip is under way, operations gather for the next one, which carries one request for each ledger that has
    any. So callers that settle one message each share round trips: a caller that finds none under way makes one for all, and
    afterwards wakes the callers whose operations are done and one of the others, which makes the next.

    A ledger that Redis does not hold is set aside until a caller that waits for such ledgers has rebuilt it; the other
    callers go on.

    Args:
        connection: The connection to the Redis that holds the ledgers.
        rebuild: Rebuilds ledgers that Redis does not hold; returns the reasons for those that it could not rebuild.
    """

    def __init__(
        self,
        connection: RedisConnection,
        *,
        rebuild: Callable[[Sequence[Ledger]], Awaitable[Mapping[Ledger, ServiceBusError]]],
    ) -> None:
        self._connection = connection
        self._redis = connection.redis
        self._rebuild = rebuild
        self._turn = Lock()
        self._building = Lock()
        self._missing: dict[Ledger, None] = {}
        self._waiting: dict[Ledger, None] = {}
        self._errands: dict[_Errand, None] = {}
        self._is_full, self._memory_looked_at = False, -MEMORY_AGE
        self._script_for: Callable[[frozenset[str]], Script] = request_script

    async def execute(self, *operations: Operation) -> None:
        """Have operations done, each by its ledger, in one round trip if possible; return when all are done.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; whether the operations were done is unknown.
            ServiceBusError: Redis refused the script; see ``RedisConnection.call``.
        """
        for operation in operations:
            self._add(operation)
        errand = _Errand(operations)
        self._errands[errand] = None
        try:
            while not errand.is_done:
                builds = self._waits_for_ledgers(errand)
                lock, work = (self._building, self._build_for) if builds else (self._turn, self._carry_for)
                if await try_acquire(lock):
                    try:
                        await work(errand)
                    finally:
                        lock.release()
                        self._wake()
                else:
                    # The caller that has the lock wakes others afterwards, and looks at this errand then, too.
                    await errand.bell.wait()
        except BaseException:
            self._give_up(operations)
            # It may have been this errand's turn to go.
            del self._errands[errand]
            self._wake()
            raise
        del self._errands[errand]
        for operation in operations:
            if operation.error is not None:
                raise operation.error

    def enqueue(self, operation: Operation) -> None:
        """Have an operation done with the next round trip of any caller; no caller waits for it."""
        self._add(operation)

    async def flush(self) -> None:
        """Have all waiting operations done.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        while self._waiting or self._missing:
            for lock, work in ((self._turn, self._carry_all), (self._building, self._build)):
                try:
                    async with lock:
                        await work()
                finally:
                    self._wake()

    async def create(self, ledger: Ledger, cursor: int, *, has_message_ttl: bool = False) -> bool:
        """Create a ledger whose first offset to grant is ``cursor``; return False if it existed already.

        Args:
            ledger: The ledger.
            cursor: The offset at which it begins.
            has_message_ttl: Whether messages that are in the log already may have individual times to live.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        arguments: list[str | int] = [cursor, int(has_message_ttl), int(ledger.keys.detects)]
        return bool(await self._script_call(create_script().text, [ledger.keys.meta], arguments))

    async def restore(
        self,
        ledgers: Sequence[Ledger],
        read: Callable[[Sequence[Ledger]], Awaitable[Mapping[Ledger, Written | ServiceBusError]]],
    ) -> dict[Ledger, Snapshot | ServiceBusError | None]:
        """Rebuild ledgers from what was written down of them.

        Args:
            ledgers: The ledgers.
            read: Reads what was written down; called again for ledgers if Redis was emptied after the first read: other clients
                may have rebuilt them before that, gone on, and written down more.

        Returns:
            The snapshot of which each ledger was made; None if it existed; an error if reading failed, or Redis refused.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        made: dict[Ledger, Snapshot | ServiceBusError | None] = {}
        left = list(ledgers)
        while left:
            marks = await self._patiently(partial(self._mark, left))
            found = await read(left)
            made |= {ledger: result for ledger, result in found.items() if isinstance(result, ServiceBusError)}
            written = {ledger: result for ledger, result in found.items() if isinstance(result, Written)}
            left = []
            ready = list(written)
            for first in range(0, len(ready), RESTORED_AT_ONCE):
                part = ready[first : first + RESTORED_AT_ONCE]
                calls = [
                    (restore_script(), self._restore_arguments(ledger, written[ledger], marks[ledger]))
                    for ledger in part
                ]
                replies = await self._patiently(partial(self._run_all, calls))
                for ledger, reply in zip(part, replies, strict=True):
                    if isinstance(reply, RedisError):
                        made[ledger] = self._connection.to_sdk_error(reply, f"to rebuild {ledger.keys.prefix}")
                    elif reply == _STALE:
                        left.append(ledger)
                    else:
                        made[ledger] = written[ledger].snapshot if reply else None
        return made

    @staticmethod
    def _restore_arguments(ledger: Ledger, written: Written, mark: bytes) -> list[object]:
        keys = [*ledger.keys.shared, ledger.keys.anew]
        return [len(keys), *keys, written.to_script(sessions=ledger.keys.has_sessions), mark]

    async def _mark(self, ledgers: Sequence[Ledger]) -> dict[Ledger, bytes]:
        """Set a mark for each ledger that has none, and return the marks; they are gone if Redis is emptied."""
        pipeline = self._redis.pipeline(transaction=False)
        for ledger in ledgers:
            pipeline.set(ledger.keys.anew, uuid.uuid4().hex, nx=True, ex=ANEW_SECONDS)
            pipeline.get(ledger.keys.anew)
        replies = await pipeline.execute()
        return {ledger: mark or b"" for ledger, mark in zip(ledgers, replies[1::2], strict=True)}

    async def heartbeat(self, key: str, client_id: str, lifetime: float) -> list[str]:
        """Report that a client receives; return the clients that do, this one among them.

        Args:
            key: The key of the entity's set of receivers.
            client_id: The client's id.
            lifetime: How long a client counts after its last report, in seconds.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        (members,) = await self.heartbeats([key], client_id, lifetime)
        return members

    async def heartbeats(self, keys: Sequence[str], client_id: str, lifetime: float) -> list[list[str]]:
        """Report that a client receives from several entities; see ``heartbeat``.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        members: dict[str, list[str]] = {}
        for group in self._connection.groups(keys, HEARTBEATS_AT_ONCE):
            found = await self._script_call(heartbeat_script().text, group, [client_id, int(lifetime * 1000)])
            members |= {key: [text_of(member) for member in its] for key, its in zip(group, found, strict=True)}
        return [members[key] for key in keys]

    async def leave(self, keys: Sequence[str], client_id: str, lifetime: float) -> None:
        """Report that a client receives from several entities no more; see ``heartbeat``.

        If Redis cannot be reached at once, it forgets the client after its lifetime.
        """
        for group in self._connection.groups(keys, HEARTBEATS_AT_ONCE):
            with suppress(RedisError):
                await self._redis.eval(heartbeat_script().text, len(group), *group, client_id, int(lifetime * 1000), 1)

    async def find_clients(self, keys: Sequence[str], lifetime: float) -> list[list[str]]:
        """Return the clients that gave a heartbeat within a time, for each key.

        Args:
            keys: The keys of sorted sets of clients; see ``heartbeat``.
            lifetime: The time, in seconds.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        seconds, microseconds = await self._patiently(self._redis.time)
        oldest = seconds * 1000 + microseconds // 1000 - int(lifetime * 1000)
        members: list[list[str]] = []
        for start in range(0, len(keys), HEARTBEATS_AT_ONCE):
            read = partial(self._read_heartbeats, keys[start : start + HEARTBEATS_AT_ONCE], oldest)
            members += [list(map(text_of, found)) for found in await self._patiently(read)]
        return members

    async def _read_heartbeats(self, keys: Sequence[str], oldest: int) -> list[list[bytes]]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.zrangebyscore(key, oldest, "+inf")
        found: list[list[bytes]] = await pipeline.execute()
        return found

    async def put_client_details(self, key: str, client_id: str, text: str) -> None:
        """Keep what a client says of itself.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        await self._patiently(lambda: self._redis.hset(key, client_id, text))

    async def forget_client_details(self, key: str, client_ids: Collection[str]) -> None:
        """Forget what clients say of themselves.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if client_ids:
            await self._patiently(lambda: self._redis.hdel(key, *client_ids))

    async def client_details(self, key: str) -> dict[str, str]:
        """Return what clients say of themselves, by their ids.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        found = await self._patiently(lambda: self._redis.hgetall(key))
        return {text_of(client_id): text_of(text) for client_id, text in found.items()}

    async def last_heartbeat(self, key: str) -> int | None:
        """Return when a client last reported that it receives, ms since 1970; None if Redis knows no such report any more.

        Args:
            key: The key of the entity's set of receivers.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        (latest,) = await self.last_heartbeats([key])
        return latest

    async def last_heartbeats(self, keys: Sequence[str]) -> list[int | None]:
        """Return when a client last reported that it receives, for several entities; see ``last_heartbeat``."""

        async def read() -> list[list[tuple[bytes, float]]]:
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.zrange(key, -1, -1, withscores=True)
            found: list[list[tuple[bytes, float]]] = await pipeline.execute()
            return found

        return [round(latest[0][1]) if latest else None for latest in await self._patiently(read)]

    async def find_last_change(self, key: str, seen: str, now_ms: int, remembered: timedelta) -> int:
        """Return since when each call saw the same, ms since 1970; ``now_ms`` if this is new, or Redis forgot the last one.

        Args:
            key: The key under which Redis remembers what was seen.
            seen: A text for what the caller sees now.
            now_ms: The time, ms since 1970.
            remembered: For how long Redis remembers a new text.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        known = ((await self._patiently(lambda: self._redis.get(key))) or b"").decode()
        before, _, since = known.partition(" ")
        if before == seen:
            return int(since)
        seconds = min(int(remembered.total_seconds()), LONGEST)
        await self._patiently(lambda: self._redis.set(key, f"{seen} {now_ms}", ex=seconds))
        return now_ms

    async def tell_full(self, key: str, partitions: Iterable[int]) -> None:
        """Report which partitions of an entity are full; Redis forgets that if upkeep does not repeat it for a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        text = " ".join(map(str, sorted(partitions)))
        await self._patiently(lambda: self._redis.set(key, text, ex=FULL_SECONDS))

    async def full_partitions(self, keys: Sequence[str]) -> list[frozenset[int]]:
        """Return the partitions of several entities that are full by upkeep's last report.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        told = await self._patiently(lambda: self._redis.mget(keys))
        return [frozenset(map(int, (text or b"").split())) for text in told]

    async def tell_holes(self, key: str, counts: Mapping[int, int]) -> None:
        """Report how many offsets of partitions hold no message; Redis forgets that if upkeep does not repeat it for a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        text = " ".join(f"{partition}:{count}" for partition, count in sorted(counts.items()))
        await self._patiently(lambda: self._redis.set(key, text, ex=FULL_SECONDS))

    async def holes(self, key: str) -> dict[int, int]:
        """Return how many offsets of an entity's partitions hold no message by upkeep's last report.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        words = (await self._patiently(lambda: self._redis.get(key)) or b"").decode().split()
        return {int(partition): int(count) for partition, _, count in (word.partition(":") for word in words)}

    async def states(self, ledgers: Sequence[Ledger]) -> list[LedgerState | None]:
        """Return the state of each ledger; None if Redis holds no such ledger.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        return [_state_of(values) for values in await self._fields(ledgers, _STATE)]

    async def changed_properties(
        self, ledger: Ledger, offsets: Sequence[int], *, prepared: bool = False
    ) -> dict[int, dict[str, str]]:
        """Return the changed application properties of messages that have some, name to JSON text, by offset.

        They are read by themselves, a few messages at a time, because they may be large.

        Args:
            ledger: The ledger.
            offsets: The offsets of the messages.
            prepared: Whether those are wanted that transactions would change which are not over.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        mark, found = "?" if prepared else "", dict[int, dict[str, str]]()
        for at in range(0, len(offsets), CHANGES_AT_ONCE):
            part = offsets[at : at + CHANGES_AT_ONCE]
            names = [f"{mark}{offset}" for offset in part]
            texts = await self._patiently(lambda names=names: self._redis.hmget(ledger.keys.properties, names))  # type: ignore[misc]
            found.update(
                {offset: json.loads(text) for offset, text in zip(part, texts, strict=True) if text is not None}
            )
        return found

    async def add_changes(self, keeps: Sequence[TakeSnapshot]) -> None:
        """Add the changed properties to snapshots; those that changed since are as they are now."""
        for keep in keeps:
            offsets = sorted({int(field.removeprefix("?")) for field in keep.changed})
            if offsets:
                # In this order: a transaction that commits between these steps moves its changes to the others.
                prepared = await self.changed_properties(keep.ledger, offsets, prepared=True)
                kept = await self.changed_properties(keep.ledger, offsets)
                # Those that were moved may have been changed once more since: the transaction's would come over that.
                still = await self.changed_properties(keep.ledger, list(prepared), prepared=True)
                changes = [
                    *(
                        (offset, change, True)
                        for offset, change in prepared.items()
                        if offset in still or offset not in kept
                    ),
                    *((offset, change, False) for offset, change in kept.items()),
                ]
                keep.snapshot = replace(keep.snapshot, changes=changes)

    async def look(self, ledgers: Sequence[Ledger], written: Sequence[str | None], within: float) -> list[Look | None]:
        """Return what upkeep sees of each ledger; None if Redis holds no such ledger.

        From now on a ledger notifies upkeep's channel if it is due before upkeep looks again: at the time of the answer, or, if
        it was changed since it was written down, ``within`` so many seconds.

        Args:
            ledgers: The ledgers.
            written: Each ledger's ``changed`` when it was written down; None if it was not.
            within: The time after which upkeep looks again at a changed ledger, in seconds.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        script = look_script()
        calls = [
            (
                script,
                [len(ledger.script_keys), *ledger.script_keys, _written_text(known), int(within * 1000), *_STATE],
            )
            for ledger, known in zip(ledgers, written, strict=True)
        ]
        replies = await self._patiently(partial(self._run_all, calls))
        looks: list[Look | None] = []
        for ledger, reply in zip(ledgers, replies, strict=True):
            if isinstance(reply, RedisError):
                raise self._connection.to_sdk_error(reply, f"a look at {ledger.keys.prefix}")
            looks.append(_look_of(reply))
        return looks

    async def figures(self, ledgers: Sequence[Ledger]) -> list[LedgerFigures | None]:
        """Return figures of each ledger for metrics, all asked for in one round trip; None if Redis holds no such ledger.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        script = figures_script()
        calls = [(script, [len(ledger.script_keys), *ledger.script_keys, RANGES_COUNTED]) for ledger in ledgers]
        replies = await self._patiently(partial(self._run_all, calls))
        figures: list[LedgerFigures | None] = []
        for ledger, reply in zip(ledgers, replies, strict=True):
            if isinstance(reply, RedisError):
                raise self._connection.to_sdk_error(reply, f"the figures of {ledger.keys.prefix}")
            figures.append(None if reply is None else _figures_of(reply))
        return figures

    async def changes(self, ledgers: Sequence[Ledger]) -> list[str | None]:
        """Return the text ``changed`` of each ledger, all asked for in one round trip; None if Redis holds no such ledger.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        replies = await self._fields(ledgers, ("cursor", "changed"))
        return [None if cursor is None else text_of(changed) for cursor, changed in replies]

    async def not_as_written(self, ledgers: Sequence[Ledger], written: Sequence[str | None]) -> list[int]:
        """Return the positions of those of several ledgers that were changed since they were written down, or are gone.

        Args:
            ledgers: The ledgers.
            written: Each ledger's ``changed`` when it was written down; None if it was not.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        script, places = not_as_written_script(), {ledger.keys.meta: place for place, ledger in enumerate(ledgers)}
        groups = self._connection.groups(list(places), COMPARED_AT_ONCE)
        calls = [
            (script, [len(keys), *keys, *(_written_text(written[places[key]]) for key in keys)]) for keys in groups
        ]
        replies: list[Any] = await self._patiently(partial(self._run_all, calls))
        found: list[int] = []
        for keys, reply in zip(groups, replies, strict=True):
            if isinstance(reply, RedisError):
                raise self._connection.to_sdk_error(reply, "a look at changed ledgers")
            positions: list[int] = reply
            found += [places[keys[position - 1]] for position in positions]
        return found

    async def ask_upkeep(self, namespace: str, path: EntityPath, within: float) -> None:
        """Ask upkeep to look at an entity, and at a topic's subscriptions, within some seconds: a hint, which may be lost."""
        text = f"{int(within * 1000)} {WHOLE_ENTITY} {path.key}"
        with suppress(RedisError):
            await self._redis.publish(upkeep_channel(namespace), text)

    async def is_full(self) -> bool:
        """Return whether Redis is so full that no new messages may be granted, so that granted ones can still be settled.

        For all that ask within a second, Redis is asked once.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if time.monotonic() >= self._memory_looked_at + MEMORY_AGE:
            self._memory_looked_at = time.monotonic()
            memories = await self._connection.ask_about(lambda: self._connection.infos("memory")) or []
            limits = [(int(memory["used_memory"]), int(memory.get("maxmemory", 0))) for memory in memories]
            self._is_full = any(0 < limit <= used / FULL for used, limit in limits)
        return self._is_full

    async def forget(self, ledgers: Sequence[Ledger], keys: Iterable[str] = ()) -> None:
        """Delete ledgers, and other keys of an entity that was deleted.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """

        async def delete() -> None:
            pipeline = self._redis.pipeline(transaction=False)
            for ledger in ledgers:
                # Without its mark, a client that is about to rebuild the ledger reads once more.
                pipeline.delete(*ledger.keys.shared, ledger.keys.anew)
            for key in keys:
                pipeline.delete(key)
            await pipeline.execute()

        await self._patiently(delete)

    def _wake(self) -> None:
        """Wake the callers whose operations are done, and of the others those that go next; to be called without the turn."""
        carrier = builder = None
        for errand in list(self._errands):
            if errand.is_done:
                errand.bell.ring()
            elif self._waits_for_ledgers(errand):
                builder = builder or errand
            else:
                carrier = carrier or errand
        for heir in (carrier, builder):
            if heir is not None:
                heir.bell.ring()

    async def _carry_for(self, errand: _Errand) -> None:
        if len(self._errands) > 1:
            # Callers that were just woken add their next operations, if they get to run.
            await sleep(0)
        if not errand.is_done:
            await self._carry()

    async def _build_for(self, errand: _Errand) -> None:
        # Checked again: another caller may have rebuilt the ledgers, and then this one makes a round trip for all.
        if self._waits_for_ledgers(errand):
            await self._build()

    async def _carry_all(self) -> None:
        """Make round trips until no operations wait, except for ledgers that have to be rebuilt first."""
        while self._waiting:
            await self._carry()

    async def _carry(self) -> None:
        """Make one round trip for all waiting operations; the caller holds the turn."""
        ledgers: dict[Ledger, None] = {}
        # Other threads add ledgers at the same time, the same ones too: ledgers are taken out one by one, each step atomic, and
        # only then asked for their requests, so that none is sent twice.
        while self._waiting:
            ledger, _ = self._waiting.popitem()
            if ledger not in self._missing:
                ledgers[ledger] = None
        requests = [request for ledger in ledgers if (request := ledger.next_request()) is not None]
        if not requests:
            return
        asked_at = time.monotonic()
        try:
            replies = await self._patiently(lambda: self._exchange(requests))
            for request, reply in zip(requests, replies, strict=True):
                if not self._take_reply(request, reply, asked_at):
                    self._set_aside(request)
        except ServiceBusError as error:
            for request in requests:
                _fail(request, error)
            raise
        finally:
            # A request whose reply was not seen stays in doubt: its ledger gets it again, under its number, before
            # anything else.
            for request in requests:
                self._go_on_with(request.ledger)

    async def _exchange(self, requests: list[LedgerRequest]) -> list[Any]:
        calls = [(self._script_for(request.names), request.script_arguments()) for request in requests]
        if len(calls) == 1:
            ((script, arguments),) = calls
            try:
                return [await self._redis.execute_command("EVALSHA", script.sha, *arguments)]
            except NoScriptError:
                await self._redis.script_load(script.text)
                return await self._exchange(requests)
            except ResponseError as error:
                if passes(error):
                    raise
                return [error]
        return await self._run_all(calls)

    async def _run_all(self, calls: Sequence[tuple[Script, Sequence[object]]]) -> list[Any]:
        """Run scripts in one round trip; return their replies, or errors."""
        pipeline = self._redis.pipeline(transaction=False)
        for script, arguments in calls:
            pipeline.execute_command("EVALSHA", script.sha, *arguments)
        replies = await pipeline.execute(raise_on_error=False)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # Scripts that ran already answer again: requests are numbered, and a ledger that was rebuilt exists.
            for script in {script for script, _ in calls}:
                await self._redis.script_load(script.text)
            return await self._run_all(calls)
        for reply in replies:
            if isinstance(reply, RedisError) and passes(reply):
                raise reply
        return replies

    def _add(self, operation: Operation) -> None:
        ledger = operation.ledger
        ledger.pending.append(operation)
        self._waiting[ledger] = None
        # In this order, as another thread may be setting the ledger aside, which goes the other way round.
        if isinstance(operation, Prepare) and ledger in self._missing:
            self._refuse(operation)

    def _waits_for_ledgers(self, errand: _Errand) -> bool:
        """Return whether all operations that an errand still waits for are of ledgers that Redis does not hold."""
        missing = self._missing
        if not missing or errand.is_done:
            return False
        return all(operation.done or operation.ledger in missing for operation in errand.operations)

    def _set_aside(self, request: LedgerRequest) -> None:
        """Set aside a ledger that Redis does not hold: the request did nothing, and is repeated once the ledger exists."""
        ledger = request.ledger
        self._missing[ledger] = None
        if any(isinstance(operation, Prepare) for operation in request.operations):
            ledger.in_doubt = None
            ledger.pending.extendleft(reversed(request.operations))
        for operation in ledger.pending.copy():
            if isinstance(operation, Prepare):
                self._refuse(operation)

    @staticmethod
    def _refuse(prepare: Prepare) -> None:
        """Fail a ``Prepare``: rebuilding its ledger waits for the transaction, so it must not wait; no lock is left there."""
        ledger = prepare.ledger
        # Another thread may have been faster.
        with suppress(ValueError):
            ledger.pending.remove(prepare)
            prepare.fail(MessageLockLostError(_LOCKS_LOST.format(prefix=ledger.keys.prefix)))

    async def _build(self) -> None:
        """Rebuild the ledgers that Redis does not hold; the caller holds the lock for that."""
        ledgers = list(self._missing)
        if not ledgers:
            return
        try:
            reasons = await self._rebuild(ledgers)
        except ServiceBusError as error:
            reasons = dict.fromkeys(ledgers, error)
        for ledger in ledgers:
            request, reason = ledger.in_doubt, reasons.get(ledger)
            if request is not None and reason is not None:
                ledger.in_doubt = None
                _fail(request, reason)
            del self._missing[ledger]
            self._go_on_with(ledger)

    def _go_on_with(self, ledger: Ledger) -> None:
        """Have a ledger's waiting operations go with the next round trip, unless it has to be rebuilt first."""
        if ledger not in self._missing and (ledger.in_doubt is not None or ledger.pending):
            self._waiting[ledger] = None

    def _take_reply(self, request: LedgerRequest, reply: Any, asked_at: float) -> bool:
        """Resolve a request's operations; return False if Redis does not hold its ledger."""
        ledger = request.ledger
        if isinstance(reply, RedisError):
            ledger.in_doubt = None
            _fail(request, self._connection.to_sdk_error(reply, f"a request to {ledger.keys.prefix}"))
            return True
        answer = json.loads(reply)
        status = answer["status"]
        if status == "missing":
            return False
        ledger.in_doubt = None
        if status != "ok":
            _fail(request, LedgerError(f"{ledger.keys.prefix} refused request {request.number} as {status}"))
            return True
        now = int(answer["now"])
        ledger.set_clock(now, asked_at, int(answer.get("skew", 0)))
        ledger.has_changes = "changes" in answer
        for group, done in zip(request.groups, answer["replies"], strict=True):
            if done:
                done["now"] = now
            for operation in group:
                operation.resolve(done)
                if operation.is_given_up:
                    self._give_back(operation)
        return True

    def _give_up(self, operations: Sequence[Operation]) -> None:
        """Give up operations that no caller waits for any more: sent ones are done all the same, and grants are given back."""
        for operation in operations:
            operation.is_given_up = True
            if operation.done and operation.error is None:
                # It was done in this very moment.
                self._give_back(operation)

    def _give_back(self, operation: Operation) -> None:
        """Give back the grant of an operation, which no caller has seen."""
        undo = operation.undo()
        if undo is not None:
            self.enqueue(undo)

    async def _fields(self, ledgers: Sequence[Ledger], names: Sequence[str]) -> list[Any]:
        """Return some fields of the head of each ledger, all asked for in one round trip."""

        async def read() -> list[Any]:
            pipeline = self._redis.pipeline(transaction=False)
            for ledger in ledgers:
                pipeline.hmget(ledger.keys.meta, names)
            return await pipeline.execute()

        replies: list[Any] = await self._patiently(read)
        return replies

    async def _script_call(self, text: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        return await self._patiently(lambda: self._redis.eval(text, len(keys), *keys, *arguments))

    async def _patiently(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call as ``RedisConnection.call`` does, whose types do not know that replies are bytes here."""
        observer = instruments.observer
        if observer is None:
            return await self._connection.call(call)
        began, failure = time.monotonic(), None
        try:
            return await self._connection.call(call)
        except ServiceBusError as error:
            failure = error
            raise
        finally:
            observer.on_redis_call(time.monotonic() - began, failure)


def _fail(request: LedgerRequest, error: Exception) -> None:
    for operation in request.operations:
        if not operation.done:
            operation.fail(error)


def _written_text(changed: str | None) -> str:
    """Return the text that names a ledger's last change, for a script; it is empty if the ledger was never changed."""
    return _NOT_WRITTEN if changed is None else changed


def _look_of(reply: Sequence[Any] | None) -> Look | None:
    """Return a look, made of the reply of ``look.lua``."""
    if reply is None:
        return None
    changed, due_in, *values = reply
    state = _state_of(values)
    return None if state is None else Look(state, text_of(changed), int(due_in) / 1000 if due_in else None)


def _state_of(values: Sequence[Any]) -> LedgerState | None:
    """Return a ledger's state, made of the fields that ``_STATE`` names; None if there is no ledger."""
    cursor, in_flight, version, has_ttl, epoch, dedup_upto, scheduled, schedules, moving, transacts, *rest = values
    skipped, postponed = rest
    if cursor is None:
        return None
    return LedgerState(
        int(cursor),
        int(in_flight),
        int(version),
        has_ttl is not None,
        int(epoch) if epoch else None,
        int(dedup_upto) if dedup_upto else None,
        int(scheduled) if scheduled else 0,
        schedules is not None,
        int(moving) if moving else 0,
        transacts is not None,
        skipped is not None and int(skipped) > 0,
        int(postponed) if postponed else 0,
    )


def _figures_of(reply: Sequence[Any]) -> LedgerFigures:
    """Return the figures that ``figures.lua`` replied."""
    changed, *numbers, refused = reply
    copies = (text_of(copy).partition(":") for copy in refused)
    return LedgerFigures(
        text_of(changed), *map(int, numbers), refused=tuple((int(offset), int(size)) for offset, _, size in copies)
    )
