"""Operations of ``lua/settle.lua``: settling messages of a lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.wire_format import read_ranges, words_of
from kafkabus._ledger.ranges import Range, common
from kafkabus._ledger.snapshot import Change
from kafkabus._ledger.verbs import SettlementVerb


class Settlement(Operation):
    """Takes messages out of a lease.

    Args:
        ledger: The ledger.
        verb: The way; ``renew``, ``defer`` and ``begin_transfer`` each have a class.
        lease: The lease.
        ranges: The offsets of the messages; None: all that are left.
        change: The messages' application properties to change, which the ledger keeps; None without any.
        delay_ms: For how long abandoned messages are postponed, ms; None: as the entity's retry policy says.

    Attributes:
        lost: Ranges that the lease did not hold any more, known when done.
        too_much: The limit in bytes, if nothing was done because more changed properties would have been kept; else None.
    """

    __slots__ = ("change", "delay_ms", "lease", "lost", "ranges", "too_much", "verb")

    def __init__(
        self,
        ledger: Ledger,
        verb: SettlementVerb,
        lease: str,
        ranges: Sequence[Range] | None,
        change: Change | None = None,
        delay_ms: int | None = None,
    ) -> None:
        super().__init__(ledger)
        self.verb = verb
        self.lease = lease
        self.ranges = ranges
        self.change = change
        self.delay_ms = delay_ms
        self.too_much: int | None = None
        self.lost: list[Range] = []

    @property
    @override
    def single(self) -> tuple[str, str, int] | None:
        # An operation with arguments of another kind is done alone: its arguments are not those of others.
        if self.change or self.delay_ms is not None or self.ranges is None or len(self.ranges) != 1:
            return None
        first, last = self.ranges[0]
        return (self.verb, self.lease, first) if first == last else None

    @override
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"op": self.verb, "lease": self.lease}
        if self.ranges is not None:
            arguments["ranges"] = words_of(self.ranges)
        if self.delay_ms is not None:
            arguments["delay"] = self.delay_ms
        return arguments | {"change": dict(self.change)} if self.change else arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        lost, self.too_much = read_ranges(reply["lost"]), reply.get("too_much")
        # The reply may also answer other operations, which settle other messages of the lease.
        self.lost = lost if self.ranges is None else common(lost, self.ranges)
        super().resolve(reply)


class Renewal(Settlement):
    """Renews the locks of messages of a lease.

    Attributes:
        expiry: When their locks expire now, ms since 1970 on Redis's clock, known when done.
    """

    __slots__ = ("expiry", "lock_ms")

    def __init__(self, ledger: Ledger, lease: str, ranges: Sequence[Range], lock_ms: int) -> None:
        super().__init__(ledger, "renew", lease, ranges)
        self.lock_ms = lock_ms
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "lock_ms": self.lock_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.expiry = int(reply["expiry"])
        super().resolve(reply)


class Deferral(Settlement):
    """Sets messages of a lease aside.

    Attributes:
        full: Whether nothing was done, because more than ``limit`` would have been set aside; known when done.
    """

    __slots__ = ("full", "limit")

    def __init__(
        self, ledger: Ledger, lease: str, ranges: Sequence[Range], limit: int, change: Change | None = None
    ) -> None:
        super().__init__(ledger, "defer", lease, ranges, change)
        self.limit = limit
        self.full = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "limit": self.limit}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.full = "full" in reply
        super().resolve(reply)
