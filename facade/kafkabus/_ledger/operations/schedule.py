"""Operations of ``lua/schedule.lua``: messages that wait for their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.wire_format import read_ranges
from kafkabus._ledger.ranges import Range


class Schedule(Operation):
    """Notifies a ledger of stored records whose time has not come; see ``lua/schedule.lua``.

    Args:
        ledger: The ledger.
        items: Offset, and when it is due, ms since 1970, of each record, ascending.
    """

    __slots__ = ("items",)

    def __init__(self, ledger: Ledger, items: Sequence[tuple[int, int]]) -> None:
        super().__init__(ledger)
        self.items = items

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "schedule", "items": self.items}


class ScheduleHeld(Schedule):
    """Reports to a ledger that the time of messages of a lease has not come; they leave the lease.

    Attributes:
        lost: Ranges that the lease did not hold any more, known when done.
    """

    __slots__ = ("lease", "lost")

    def __init__(self, ledger: Ledger, lease: str, items: Sequence[tuple[int, int]]) -> None:
        super().__init__(ledger, items)
        self.lease = lease
        self.lost: list[Range] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "schedule_held", "lease": self.lease, "items": self.items}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = read_ranges(reply["lost"])
        super().resolve(reply)


class Cancel(Operation):
    """Settles messages that wait for their time.

    Attributes:
        missing: Those of ``offsets`` whose messages did not wait, known when done.
    """

    __slots__ = ("missing", "offsets")

    def __init__(self, ledger: Ledger, offsets: Sequence[int]) -> None:
        super().__init__(ledger)
        self.offsets = offsets
        self.missing: list[int] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "cancel", "offsets": self.offsets}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.missing = list(map(int, reply["missing"]))
        super().resolve(reply)


class Activate(Operation):
    """Begins transfers of messages whose time has come, if they are known to be no duplicates.

    Args:
        ledger: The ledger.
        limit: How many transfers begin at the most.
        intent: The intent of the transfers.
        orphan_ms: After how many milliseconds another client finishes them.
        upto_ms: The time, ms since 1970; by default the ledger's, which is wrong if Redis's clock is.

    Attributes:
        begun: Offsets of the messages, those first that were due first; known when done.
    """

    __slots__ = ("begun", "intent", "limit", "orphan_ms", "upto_ms")

    def __init__(self, ledger: Ledger, limit: int, intent: str, orphan_ms: int, upto_ms: int | None = None) -> None:
        super().__init__(ledger)
        self.limit = limit
        self.intent = intent
        self.orphan_ms = orphan_ms
        self.upto_ms = upto_ms
        self.begun: list[int] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {
            "op": "activate",
            "limit": self.limit,
            "intent": self.intent,
            "orphan_ms": self.orphan_ms,
        } | ({} if self.upto_ms is None else {"upto_ms": self.upto_ms})

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.begun = list(map(int, reply["begun"]))
        super().resolve(reply)
