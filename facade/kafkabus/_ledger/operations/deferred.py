"""Operations of ``lua/deferred.lua``: granting messages by their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.claim import Seen, with_holder, with_rules
from kafkabus._ledger.operations.settle import Settlement
from kafkabus._ledger.operations.wire_format import read_ranges
from kafkabus._ledger.ranges import Range


class Recall(Operation):
    """Locks deferred messages, all of them or none.

    Attributes:
        gone: Whether nothing was done because the session's lock, by which they were to be locked, has expired.
        missing: Ranges that are not deferred; if there are any, nothing was done. Known when done.
        again: First and last offset and delivery count of the locked ranges.
        stale_rules: Whether a subscription's rules were changed since those by which the caller goes.
        by: The receiver, as leases name it; None if they do not.
        now: When the messages were locked, ms since 1970 on Redis's clock.
        expiry: When the locks expire, ms since 1970 on Redis's clock.
    """

    __slots__ = (
        "again",
        "by",
        "expiry",
        "gone",
        "lease",
        "lock_ms",
        "missing",
        "now",
        "ranges",
        "rules",
        "session",
        "stale_rules",
    )
    grants = True

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        ranges: Sequence[Range],
        lock_ms: int,
        *,
        session: bool = False,
        rules: int = 0,
        by: str | None = None,
    ) -> None:
        super().__init__(ledger)
        self.by = by
        self.session = session
        self.rules = rules
        self.gone = self.stale_rules = False
        self.lease = lease
        self.ranges = ranges
        self.lock_ms = lock_ms
        self.missing: list[Range] = []
        self.again: list[tuple[int, int, int]] = []
        self.now = 0
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {
            "op": "recall",
            "lease": self.lease,
            "ranges": self.ranges,
            "lock_ms": self.lock_ms,
            "session": self.session,
        }
        return with_rules(with_holder(arguments, self.by), self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, [(first, last) for first, last, _ in self.again])

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.missing, self.gone = read_ranges(reply["missing"]), "gone" in reply
        if not (self.missing or self.gone):
            self.again = [(int(first), int(last), int(count)) for first, last, count in reply["again"]]
            self.now = reply["now"]
            self.expiry = int(reply["expiry"])
            self.stale_rules = "stale_rules" in reply
        super().resolve(reply)


class Seize(Operation):
    """Locks messages that wait in ranges of offsets, wherever they wait, or messages that were delivered too often.

    Attributes:
        again: First and last offset, delivery count, and whether it was deferred, of each locked range; known when done.
        expiry: When the locks expire, ms since 1970 on Redis's clock.
        gone: Whether nothing was done because the session's lock has expired, while which messages were to be locked.
        full: Whether nothing was done because claims would have to leave out more messages than ``ahead_limit``.
    """

    __slots__ = ("_arguments", "again", "expiry", "full", "gone", "lease")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        ranges: Sequence[Range],
        lock_ms: int,
        seen: Seen | None = None,
        rules: int = 0,
        *,
        session: str | None = None,
        ahead_limit: int | None = None,
        by: str | None = None,
    ) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.again: list[tuple[int, int, int, bool]] = []
        self.expiry = 0
        self.gone = self.full = False
        arguments: dict[str, Any] = {"op": "seize", "lease": lease, "ranges": ranges, "lock_ms": lock_ms}
        if seen is not None:
            arguments |= {"from": seen.start, "upto": seen.upto, **seen.epochs}
        if session is not None:
            arguments["session"] = session
        if ahead_limit is not None:
            arguments["ahead_limit"] = ahead_limit
        self._arguments = with_rules(with_holder(arguments, by), rules)

    @classmethod
    def undeliverable(cls, ledger: Ledger, lease: str, count: int, lock_ms: int, limit: int) -> Seize:
        """Return an operation that locks up to ``limit`` returned ranges that were delivered ``count`` times or more."""
        seize = cls(ledger, lease, [], lock_ms)
        seize._arguments = {
            "op": "seize_undeliverable",
            "lease": lease,
            "count": count,
            "lock_ms": lock_ms,
            "limit": limit,
        }
        return seize

    @override
    def undo(self) -> Operation:
        # Its lease may be that of a session, which holds others as well.
        return Settlement(self.ledger, "release", self.lease, [(first, last) for first, last, _, _ in self.again])

    @override
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.gone, self.full = "gone" in reply, "full" in reply
        if not (self.gone or self.full):
            again = reply["again"]
            self.again = [(int(first), int(last), int(count), kind == "d") for first, last, count, kind in again]
            self.expiry = int(reply["expiry"])
        super().resolve(reply)
