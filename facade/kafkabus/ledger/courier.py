# Generated from facade/kafkabus/aio/ledger/courier.py by tools/generate_blocking.py. Do not edit.
"""Carrying operations to the ledgers: gathered, numbered, sent again where a reply was lost."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from kafkabus._acompat import Bell, Lock, sleep, try_acquire
from kafkabus.exceptions import LedgerError, MessageLockLostError, ServiceBusError
from kafkabus.ledger.connection import RedisConnection
from kafkabus.ledger.operations import Ledger, LedgerState, Operation, Prepare, Request
from kafkabus.ledger.refusals import passes
from kafkabus.ledger.scripts import (
    Script,
    create_script,
    heartbeat_script,
    request_script,
    restore_script,
)
from kafkabus.ledger.snapshot import Snapshot, Written

LOGGER = logging.getLogger("kafkabus.ledger")

FULL = 0.9
"""Part of Redis's ``maxmemory`` beyond which nothing new is granted: a full Redis would refuse settlements too."""

FULL_SECONDS = 60
"""How long what upkeep says of an entity's partitions counts after that was said."""
LONGEST = 10 * 365 * 24 * 3600
"""For how long, in seconds, anything is remembered at the most."""
ANEW_SECONDS = 600
"""How long what was written down of a ledger may be read before it has to be read once more."""

_STATE = (
    *("cursor", "held", "version", "mortal", "epoch", "judged", "scheduled", "schedules", "moving", "transacts"),
    "voids",
)
"""Fields of a ledger's head that say where it stands."""

_LOCKS_LOST = (
    "Redis lost the ledger {prefix}, and all locks with it: nothing of the transaction was done, and its messages are "
    "delivered again, so handle them anew"
)

_STALE = 2
"""``restore.lua``'s reply where Redis was emptied since the mark was set."""


class _Errand:
    """Operations that one caller waits for."""

    __slots__ = ("bell", "operations")

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self.bell = Bell()

    @property
    def done(self) -> bool:
        return all(operation.done for operation in self.operations)


class Courier:
    """One client's way to the ledgers; safe to share.

    While a round trip is under way, operations gather for the next one, which carries one request for each ledger that has
    any. So callers who settle one message each share round trips: whoever finds the way free goes for all, and afterwards
    wakes those whose operations are done and one of the others, who goes next.

    Args:
        connection: To the Redis that holds the ledgers.
        rebuild: Makes a ledger anew that Redis does not hold.
    """

    def __init__(self, connection: RedisConnection, *, rebuild: Callable[[Ledger], None]) -> None:
        self._connection = connection
        self._redis = connection.redis
        self._rebuild = rebuild
        self._turn = Lock()
        self._waiting: dict[Ledger, None] = {}
        self._errands: dict[_Errand, None] = {}
        self._script_for: Callable[[frozenset[str]], Script] = request_script

    def ask(self, *operations: Operation) -> None:
        """Have operations done, each by its ledger, in one round trip where possible; returns when all are done.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached; whether the operations were done is unknown.
            ServiceBusError: Redis refused the script; see ``RedisConnection.call``.
        """
        for operation in operations:
            operation.ledger.pending.append(operation)
            self._waiting[operation.ledger] = None
        errand = _Errand(operations)
        self._errands[errand] = None
        try:
            while not errand.done:
                if try_acquire(self._turn):
                    try:
                        if len(self._errands) > 1:
                            # Those just woken come with their next operations, if they are let.
                            sleep(0)
                        if not errand.done:
                            self._carry()
                    finally:
                        self._turn.release()
                        self._wake()
                else:
                    # Whoever has the turn wakes somebody afterwards, and this errand is among those looked at by then.
                    errand.bell.wait()
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

    def later(self, operation: Operation) -> None:
        """Have an operation done with the next round trip, whosever it is; nobody waits for it."""
        operation.ledger.pending.append(operation)
        self._waiting[operation.ledger] = None

    def flush(self) -> None:
        """Have everything done that waits.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        try:
            with self._turn:
                while self._waiting:
                    self._carry()
        finally:
            self._wake()

    def create(self, ledger: Ledger, cursor: int, *, mortal: bool = False) -> bool:
        """Create a ledger whose first offset to grant is ``cursor``; False where it was there.

        Args:
            ledger: Which.
            cursor: Where it begins.
            mortal: Whether messages that are in the log already may bring times to live of their own.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        arguments: list[str | int] = [cursor, int(mortal), int(ledger.keys.detects)]
        return bool(self._script_call(create_script().text, [ledger.keys.meta], arguments))

    def restore(self, ledger: Ledger, read: Callable[[], Written]) -> Snapshot | None:
        """Make a ledger anew of what was written down of it.

        Args:
            ledger: Which.
            read: Reads what was written down; called again where Redis was emptied meanwhile: others may have made the
                ledger anew before that, gone on, and written down more.

        Returns:
            What it was made of; None where it was there.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        anew = ledger.keys.anew
        while True:
            self._patiently(lambda: self._redis.set(anew, uuid.uuid4().hex, nx=True, ex=ANEW_SECONDS))
            mark = self._patiently(lambda: self._redis.get(anew)) or ""
            written = read()
            keys, arguments = [*ledger.keys.shared, anew], [written.to_script(), mark]
            made = self._script_call(restore_script().text, keys, arguments)
            if made != _STALE:
                return written.snapshot if made else None

    def heartbeat(self, key: str, client_id: str, lifetime: float) -> list[str]:
        """Say that a client receives; returns the clients that do, itself among them.

        Args:
            key: The entity's set of receivers.
            client_id: This client.
            lifetime: How long it counts, in seconds.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        members = self._script_call(heartbeat_script().text, [key], [client_id, int(lifetime * 1000)])
        return [member.decode() for member in members]

    def last_heartbeat(self, key: str) -> int | None:
        """When a client was last heard to receive, ms since 1970; None where that is not known any more.

        Args:
            key: The entity's set of receivers.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        latest = self._patiently(lambda: self._redis.zrange(key, -1, -1, withscores=True))
        return round(latest[0][1]) if latest else None

    def unchanged_since(self, key: str, seen: str, now_ms: int, remembered: timedelta) -> int:
        """Since when the same was seen each time, ms since 1970; now, where that is something new or was forgotten.

        Args:
            key: What it is that somebody looks at.
            seen: What it looks like.
            now_ms: The time.
            remembered: For how long that is remembered.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        known = ((self._patiently(lambda: self._redis.get(key))) or b"").decode()
        before, _, since = known.partition(" ")
        if before == seen:
            return int(since)
        seconds = min(int(remembered.total_seconds()), LONGEST)
        self._patiently(lambda: self._redis.set(key, f"{seen} {now_ms}", ex=seconds))
        return now_ms

    def tell_full(self, key: str, partitions: Iterable[int]) -> None:
        """Say which partitions of an entity are full; that is forgotten where nobody says it again for a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        text = " ".join(map(str, sorted(partitions)))
        self._patiently(lambda: self._redis.set(key, text, ex=FULL_SECONDS))

    def full_partitions(self, key: str) -> frozenset[int]:
        """Which partitions of an entity are full, as far as anybody said so.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        return frozenset(map(int, (self._patiently(lambda: self._redis.get(key)) or b"").split()))

    def tell_holes(self, key: str, counts: Mapping[int, int]) -> None:
        """Say how many offsets of an entity's partitions hold no message; forgotten where nobody says it for a while.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        text = " ".join(f"{partition}:{count}" for partition, count in sorted(counts.items()))
        self._patiently(lambda: self._redis.set(key, text, ex=FULL_SECONDS))

    def holes(self, key: str) -> dict[int, int]:
        """How many there are, as far as anybody said so.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        words = (self._patiently(lambda: self._redis.get(key)) or b"").decode().split()
        return {int(partition): int(count) for partition, _, count in (word.partition(":") for word in words)}

    def states(self, ledgers: Sequence[Ledger]) -> list[LedgerState | None]:
        """Where each ledger stands; None where Redis holds no such ledger.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """

        def read() -> list[Any]:
            pipeline = self._redis.pipeline(transaction=False)
            for ledger in ledgers:
                pipeline.hmget(ledger.keys.meta, _STATE)
            return pipeline.execute()

        replies = self._patiently(read)
        return [
            None
            if cursor is None
            else LedgerState(
                int(cursor),
                int(held),
                int(version),
                mortal is not None,
                int(epoch) if epoch else None,
                int(judged) if judged else None,
                int(scheduled) if scheduled else 0,
                schedules is not None,
                int(moving) if moving else 0,
                transacts is not None,
                voids is not None and int(voids) > 0,
            )
            for cursor, held, version, mortal, epoch, judged, scheduled, schedules, moving, transacts, voids in replies
        ]

    def is_full(self) -> bool:
        """Whether so much of Redis's memory is used that nothing new may be granted, so that what was can be settled.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        memory = self._connection.ask_about(lambda: self._redis.info("memory"))
        if memory is None:
            return False
        limit = int(memory.get("maxmemory", 0))
        return limit > 0 and int(memory["used_memory"]) >= FULL * limit

    def forget(self, ledgers: Sequence[Ledger], keys: Iterable[str] = ()) -> None:
        """Delete ledgers, and other keys of an entity that was deleted.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """

        def delete() -> None:
            pipeline = self._redis.pipeline(transaction=False)
            for ledger in ledgers:
                pipeline.delete(*ledger.keys.shared)
            for key in keys:
                pipeline.delete(key)
            pipeline.execute()

        self._patiently(delete)

    def _wake(self) -> None:
        """Wake everybody whose operations are done, and one of the others; called without the turn, by whoever had it."""
        heir = None
        for errand in list(self._errands):
            if errand.done:
                errand.bell.ring()
            else:
                heir = heir or errand
        if heir is not None:
            heir.bell.ring()

    def _carry(self) -> None:
        """One round trip for all that waits; the caller holds the turn."""
        ledgers: dict[Ledger, None] = {}
        # Other threads add meanwhile, the same ledgers too: they are taken out one by one, each step atomic, and only
        # then asked for their requests, so that none is sent twice.
        while self._waiting:
            ledgers[self._waiting.popitem()[0]] = None
        requests = [request for ledger in ledgers if (request := ledger.next_request()) is not None]
        if not requests:
            return
        asked_at = time.monotonic()
        try:
            replies = self._patiently(lambda: self._exchange(requests))
            missing = [
                request
                for request, reply in zip(requests, replies, strict=True)
                if not self._take_reply(request, reply, asked_at)
            ]
            for request in missing:
                self._make_anew(request)
        except ServiceBusError as error:
            for request in requests:
                _fail(request, error)
            raise
        finally:
            # A request whose reply was not seen stays in doubt: its ledger gets it again, under its number, before
            # anything else.
            for request in requests:
                if request.ledger.in_doubt is not None or request.ledger.pending:
                    self._waiting[request.ledger] = None

    def _exchange(self, requests: list[Request]) -> list[Any]:
        if len(requests) == 1:
            try:
                return [self._redis.execute_command(*self._command(requests[0]))]
            except NoScriptError:
                self._load_scripts(requests)
                return self._exchange(requests)
            except ResponseError as error:
                if passes(error):
                    raise
                return [error]
        pipeline = self._redis.pipeline(transaction=False)
        for request in requests:
            pipeline.execute_command(*self._command(request))
        replies = pipeline.execute(raise_on_error=False)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # Those that ran meanwhile answer again, as they are numbered.
            self._load_scripts(requests)
            return self._exchange(requests)
        for reply in replies:
            if isinstance(reply, RedisError) and passes(reply):
                raise reply
        return replies

    def _command(self, request: Request) -> tuple[object, ...]:
        return ("EVALSHA", self._script_for(request.names).sha, *request.script_arguments())

    def _load_scripts(self, requests: Sequence[Request]) -> None:
        """Redis does not know a script that it was asked to run."""
        for script in {self._script_for(request.names) for request in requests}:
            self._redis.script_load(script.text)

    def _make_anew(self, request: Request) -> None:
        """Redis does not hold a request's ledger: nothing was done, and is asked for again once the ledger is there."""
        ledger = request.ledger
        prepares = [operation for operation in request.operations if isinstance(operation, Prepare)]
        if prepares:
            # None of their locks is left. They do not wait until it is made anew, because that waits for all transactions
            # to end, theirs too.
            for operation in prepares:
                operation.fail(MessageLockLostError(_LOCKS_LOST.format(prefix=ledger.keys.prefix)))
            ledger.in_doubt = None
            ledger.pending.extendleft(
                operation for operation in reversed(request.operations) if operation not in prepares
            )
            return
        try:
            self._rebuild(ledger)
        except ServiceBusError as error:
            ledger.in_doubt = None
            _fail(request, error)

    def _take_reply(self, request: Request, reply: Any, asked_at: float) -> bool:
        """Resolve a request's operations; False where Redis does not hold its ledger."""
        ledger = request.ledger
        if isinstance(reply, RedisError):
            ledger.in_doubt = None
            _fail(request, self._connection.translated(reply, f"a request to {ledger.keys.prefix}"))
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
        for group, done in zip(request.groups, answer["replies"], strict=True):
            if done:
                done["now"] = now
            for operation in group:
                operation.resolve(done)
                if operation.abandoned:
                    self._give_back(operation)
        return True

    def _give_up(self, operations: Sequence[Operation]) -> None:
        """Nobody waits for them any more. What was sent is done all the same; what is granted by it is given back."""
        for operation in operations:
            operation.abandoned = True
            if operation.done and operation.error is None:
                # In this very moment.
                self._give_back(operation)

    def _give_back(self, operation: Operation) -> None:
        """Nobody sees what an operation was granted."""
        undo = operation.undo()
        if undo is not None:
            self.later(undo)

    def _script_call(self, text: str, keys: list[str], arguments: Sequence[str | int | bytes]) -> Any:
        return self._patiently(lambda: self._redis.eval(text, len(keys), *keys, *arguments))

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """As ``RedisConnection.call``, whose types do not know that replies are bytes here."""
        return self._connection.call(call)


def _fail(request: Request, error: Exception) -> None:
    for operation in request.operations:
        if not operation.done:
            operation.fail(error)
