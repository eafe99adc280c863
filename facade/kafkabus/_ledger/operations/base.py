"""Ledgers, what all operations on them have in common, and requests, which carry them."""

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
    """One ledger as one client uses it: its keys, its numbered requests, what waits for the next of them.

    A client has at most one request under way per ledger. One whose reply was lost stays in doubt and is sent again,
    under its number, before anything else.
    """

    __slots__ = (
        *("_ahead_ms", "_skew_ms", "channel", "in_doubt", "keys", "measured_at_ms", "number", "partition", "pending"),
        "script_keys",
    )

    def __init__(self, keys: LedgerKeys, *, partition: int, channel: str, client_id: str) -> None:
        self.keys = keys
        self.partition = partition
        self.channel = channel
        self.script_keys = (*keys.shared, keys.slot(client_id))
        self.number = 0
        self.pending: deque[Operation] = deque()
        self.in_doubt: Request | None = None
        self.measured_at_ms: float | None = None
        self._ahead_ms = self._skew_ms = 0.0

    def set_clock(self, now_ms: int, asked_at: float, skew_ms: int = 0) -> None:
        """Its clock showed ``now_ms`` when it answered what was asked at ``asked_at``, on the monotonic clock.

        Args:
            now_ms: ms since 1970.
            asked_at: In seconds.
            skew_ms: How many ms of that passed for a test alone.
        """
        self._ahead_ms, self._skew_ms = now_ms - asked_at * 1000, skew_ms

    @property
    def skew_ms(self) -> float:
        """How many ms passed for a test alone."""
        return self._skew_ms

    @property
    def offset_ms(self) -> float | None:
        """What its clock shows at the beginning of the monotonic clock, ms since 1970; None where it never answered."""
        return self._ahead_ms - self._skew_ms if self._ahead_ms else None

    def seconds_until(self, moment_ms: int) -> float:
        """How long it is until its clock shows ``moment_ms``; never more than that, for what it knows of its clock."""
        return (moment_ms - self._ahead_ms) / 1000 - time.monotonic()

    def next_request(self) -> Request | None:
        """The request to send now: the one in doubt, else what is pending (settlements before claims), else none.

        What would be granted to nobody, as its caller was cancelled, is not asked for: whoever asks next, in the same
        request, would be granted what is behind it.
        """
        if self.in_doubt is None:
            operations: list[Operation] = []
            while self.pending:
                operation = self.pending.popleft()
                if not (operation.abandoned and operation.grants):
                    operations.append(operation)
            if not operations:
                return None
            if len(operations) > 1:
                operations.sort(key=lambda operation: operation.grants)
            self.number += 1
            self.in_doubt = Request(self, self.number, operations)
        return self.in_doubt


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Where a ledger stands.

    Attributes:
        cursor: The next offset never granted.
        in_flight: How many messages were granted and are not settled.
        version: Raised by every request.
        has_message_ttl: Whether messages with times to live of their own were sent.
        epoch: Leader epoch of the record right before the cursor, where it is known.
        dedup_upto: Up to where it is known which records are duplicates; None where none are detected.
        scheduled: How many of these wait for their time.
        schedules: Whether the log holds records of such.
        moving: How many of these are on their way into another log.
        transacts: Whether transactions may have stored records in the log.
        skipped: Whether some records beyond the cursor may be none that will be granted: duplicates, those that are or were
            scheduled, those that were granted out of turn.
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


class Operation:
    """Something to be done by a ledger; ``reply`` or ``error`` is set once it is ``done``.

    Attributes:
        abandoned: Whether its caller stopped waiting before it was done.
    """

    grants: ClassVar[bool] = False
    """Whether it may grant messages, which are its caller's then."""
    __slots__ = ("abandoned", "done", "error", "ledger", "reply")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.abandoned = False
        self.done = False
        self.reply: Any = None
        self.error: BaseException | None = None

    @property
    def single(self) -> tuple[str, str, int] | None:
        """Verb, lease and offset, where it settles one message and does nothing else."""
        return None

    def arguments(self) -> dict[str, Any]:
        """The operation as its script reads it."""
        raise NotImplementedError

    def undo(self) -> Operation | None:
        """What gives back what it was granted, once done, where nobody has seen that; None where it grants nothing."""
        return None

    def resolve(self, reply: dict[str, Any]) -> None:
        """Take the script's reply."""
        self.reply = reply
        self.done = True

    def fail(self, error: BaseException) -> None:
        """Take an error in place of a reply: whether the ledger did it is unknown."""
        self.error = error
        self.abandoned = True
        self.done = True


@dataclass(slots=True)
class Request:
    """A numbered request.

    Attributes:
        groups: Its operations in the order in which the ledger does them; those of a group it does as one.
        payload: What is to be done, as the script reads it.
        names: Of the operations.
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
        self.names = frozenset(one["op"] for one in arguments)

    def script_arguments(self) -> tuple[object, ...]:
        """What follows the script's name in ``EVALSHA``: the number of keys, the keys, the arguments."""
        ledger = self.ledger
        keys = ledger.script_keys
        return (len(keys), *keys, self.number, ledger.channel, ledger.partition, self.payload)


def _groups(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Operations in groups that the ledger does as one: settlements of one kind, out of one lease, none named twice."""
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
        arguments["ranges"] = words_of(merge_offsets(single[2] for one in group if (single := one.single)))
    return arguments
