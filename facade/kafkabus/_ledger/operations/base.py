"""Ledgers, the base of all operations on them, and requests, which carry operations."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kafkabus._ledger.keys import LedgerKeys
from kafkabus._ledger.operations.wire_format import words_of
from kafkabus._ledger.ranges import merge_offsets


class Ledger:
    """One ledger as one client uses it: its keys, its numbered requests, the operations that wait for the next request.

    A client has at most one request under way per ledger. A request whose reply was lost stays in doubt and is sent again,
    under its number, before anything else.

    Attributes:
        has_changes: Whether properties of messages may have been changed, by its last reply.
        retries: The entity's retry policy, as scripts read it; None if it has none.
    """

    __slots__ = (
        "_ahead_ms",
        "_skew_ms",
        "channel",
        "has_changes",
        "in_doubt",
        "keys",
        "measured_at_ms",
        "number",
        "partition",
        "pending",
        "retries",
        "script_keys",
    )

    def __init__(
        self, keys: LedgerKeys, *, partition: int, channel: str, client_id: str, retries: str | None = None
    ) -> None:
        self.keys = keys
        self.partition = partition
        self.channel = channel
        self.script_keys = (*keys.shared, keys.slot(client_id))
        self.number = 0
        self.pending: deque[Operation] = deque()
        self.in_doubt: LedgerRequest | None = None
        self.measured_at_ms: float | None = None
        self.has_changes = False
        self.retries = retries
        self._ahead_ms = self._skew_ms = 0.0

    def set_clock(self, now_ms: int, asked_at: float, skew_ms: int = 0) -> None:
        """Note that its clock showed ``now_ms`` when it answered a request sent at ``asked_at``, on the monotonic clock.

        Args:
            now_ms: The ledger's time, ms since 1970.
            asked_at: When the request was sent, in seconds.
            skew_ms: How many ms of the ledger's time passed for a test alone.
        """
        self._ahead_ms, self._skew_ms = now_ms - asked_at * 1000, skew_ms

    @property
    def skew_ms(self) -> float:
        """How many ms passed for a test alone."""
        return self._skew_ms

    @property
    def offset_ms(self) -> float | None:
        """The time that its clock shows at the beginning of the monotonic clock, ms since 1970; None if it never answered."""
        return self._ahead_ms - self._skew_ms if self._ahead_ms else None

    def seconds_until(self, moment_ms: int) -> float:
        """Return how many seconds it takes until its clock shows ``moment_ms``: an estimate that is never too high."""
        return (moment_ms - self._ahead_ms) / 1000 - time.monotonic()

    def next_request(self) -> LedgerRequest | None:
        """Return the request to send now: the one in doubt, else the pending operations (settlements before claims), else None.

        An operation that grants messages is left out if its caller was cancelled, because no caller would hold them: the next
        claim in the same request would be granted the messages behind them.
        """
        if self.in_doubt is None:
            operations: list[Operation] = []
            while self.pending:
                operation = self.pending.popleft()
                if not (operation.is_given_up and operation.grants):
                    operations.append(operation)
            if not operations:
                return None
            if len(operations) > 1:
                operations.sort(key=lambda operation: operation.grants)
            self.number += 1
            self.in_doubt = LedgerRequest(self, self.number, operations)
        return self.in_doubt


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state of a ledger at one time.

    Attributes:
        cursor: The next offset never granted.
        in_flight: How many messages were granted and are not settled.
        version: Raised by every request.
        has_message_ttl: Whether messages with individual times to live were sent.
        epoch: Leader epoch of the record right before the cursor, if it is known.
        dedup_upto: The offset up to which it is known which records are duplicates; None if duplicates are not detected.
        scheduled: How many of the messages in flight wait for their time.
        schedules: Whether the log holds records of scheduled messages.
        moving: How many of the messages in flight are on their way into another log.
        transacts: Whether transactions may have stored records in the log.
        skipped: Whether there may be records beyond the cursor that will not be granted: duplicates, records that are or were
            scheduled, messages that were granted out of turn.
        postponed: How many of the messages in flight are postponed.
    """

    cursor: int
    in_flight: int
    version: int
    has_message_ttl: bool
    epoch: int | None = None
    dedup_upto: int | None = None
    scheduled: int = 0
    schedules: bool = False
    moving: int = 0
    transacts: bool = False
    skipped: bool = False
    postponed: int = 0


@dataclass(frozen=True, slots=True)
class LedgerFigures:
    """The figures of a ledger for metrics; see ``lua/figures.lua``.

    Attributes:
        changed: Names the last request that changed anything.
        cursor: The next offset never granted.
        in_flight: How many messages were granted and are not settled, deferred and scheduled ones included.
        scheduled: How many of them wait for their time.
        moving: How many are on their way into another log.
        skipped: How many records beyond the cursor no claim may grant.
        deferred: How many are deferred.
        waiting: How many wait to be granted again; in a queue with sessions, of those that are not in their sessions.
        postponed: How many are postponed.
        held_sessions: How many sessions clients hold.
        free_sessions: How many sessions wait that no client holds.
        returned: After how many deliveries messages waited again, since Redis has had the ledger.
        refused: Copies that their destinations refuse: offset of the message, and size of the copy in bytes; some of them.
    """

    changed: str
    cursor: int
    in_flight: int
    scheduled: int
    moving: int
    skipped: int
    deferred: int
    waiting: int
    postponed: int
    held_sessions: int
    free_sessions: int
    returned: int
    refused: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    @property
    def locked(self) -> int:
        """How many messages are locked, if the entity has no sessions."""
        apart = self.scheduled + self.moving + self.deferred + self.waiting + self.postponed
        return max(0, self.in_flight - apart)


@dataclass(frozen=True, slots=True)
class Look:
    """A ledger as upkeep sees it; see ``lua/look.lua``.

    Attributes:
        state: The ledger's state.
        changed: A text that is another one after each change of the ledger.
        due_in: Seconds until a lock, a transfer, a scheduled or a postponed message is due; negative: it was; None: none is.
    """

    state: LedgerState
    changed: str
    due_in: float | None

    @property
    def is_due(self) -> bool:
        """Whether the time of a lock, a transfer, a scheduled or a postponed message has come."""
        return self.due_in is not None and self.due_in <= 0


class Operation:
    """An operation that a ledger carries out; ``reply`` or ``error`` is set once it is ``done``.

    Attributes:
        is_given_up: Whether its caller stopped waiting before it was done.
    """

    grants: ClassVar[bool] = False
    """Whether it may grant messages, which its caller then holds."""
    __slots__ = ("done", "error", "is_given_up", "ledger", "reply")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.is_given_up = False
        self.done = False
        self.reply: Any = None
        self.error: BaseException | None = None

    @property
    def single(self) -> tuple[str, str, int] | None:
        """Verb, lease and offset, if it settles one message and has no other arguments; else None.

        A ledger does operations of one verb and lease as one, with the arguments of the first.
        """
        return None

    def arguments(self) -> dict[str, Any]:
        """Return the operation as its script reads it."""
        raise NotImplementedError

    def undo(self) -> Operation | None:
        """Return the operation that, once this one is done, gives back its messages unseen; None if it grants nothing."""
        return None

    def resolve(self, reply: dict[str, Any]) -> None:
        """Take the script's reply."""
        self.reply = reply
        self.done = True

    def fail(self, error: BaseException) -> None:
        """Take an error in place of a reply: it is unknown whether the ledger did the operation."""
        self.error = error
        self.is_given_up = True
        self.done = True


@dataclass(slots=True)
class LedgerRequest:
    """A numbered request.

    Attributes:
        groups: Its operations in the order in which the ledger does them; it does those of one group as one.
        payload: The operations, as the script reads them.
        names: The names of the operations.
    """

    ledger: Ledger
    number: int
    operations: list[Operation]
    groups: list[list[Operation]] = field(init=False)
    payload: str = field(init=False)
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = _groups(self.operations)
        arguments = [_arguments(group) for group in self.groups]
        self.payload = json.dumps(arguments, separators=(",", ":"))
        self.names = frozenset(argument["op"] for argument in arguments)

    def script_arguments(self) -> tuple[object, ...]:
        """Return the arguments of ``EVALSHA`` behind the script's name: the number of keys, the keys, its arguments."""
        ledger = self.ledger
        keys = ledger.script_keys
        arguments = (len(keys), *keys, self.number, ledger.channel, ledger.partition, self.payload)
        return arguments if ledger.retries is None else (*arguments, ledger.retries)


def _groups(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Group operations that the ledger does as one: settlements of one kind, out of one lease, no message named twice."""
    groups: dict[object, list[Operation]] = {}
    seen: set[tuple[str, str, int]] = set()
    for operation in operations:
        single = operation.single
        groups.setdefault(operation if single is None or single in seen else single[:2], []).append(operation)
        if single is not None:
            seen.add(single)
    return list(groups.values())


def _arguments(group: list[Operation]) -> dict[str, Any]:
    arguments = group[0].arguments()
    if len(group) > 1:
        arguments["ranges"] = words_of(merge_offsets(single[2] for operation in group if (single := operation.single)))
    return arguments
