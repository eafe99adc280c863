"""Operations of ``lua/transfer.lua``: moving messages into another log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.settle import Settlement
from kafkabus._ledger.ranges import Range
from kafkabus._ledger.snapshot import Change


class BeginTransfer(Settlement):
    """Begins a transfer: the messages leave the lease with an intent that any client can finish."""

    __slots__ = ("intent", "orphan_ms")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        ranges: Sequence[Range],
        intent: str,
        orphan_ms: int,
        change: Change | None = None,
    ) -> None:
        super().__init__(ledger, "begin_transfer", lease, ranges, change)
        self.intent = intent
        self.orphan_ms = orphan_ms

    @property
    @override
    def single(self) -> None:
        return None

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "intent": self.intent, "orphan_ms": self.orphan_ms}


class EndTransfer(Operation):
    """Ends a transfer: the copy is stored at an offset of the destination.

    Attributes:
        winner: The offset of the copy that counts; None if the ledger knows nothing of the transfer any more.
    """

    __slots__ = ("at", "keep_ms", "offset", "winner")

    def __init__(self, ledger: Ledger, offset: int, at: int, keep_ms: int) -> None:
        super().__init__(ledger)
        self.offset = offset
        self.at = at
        self.keep_ms = keep_ms
        self.winner: int | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "end_transfer", "offset": self.offset, "at": self.at, "keep_ms": self.keep_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        winner = reply.get("winner") if reply else None
        self.winner = int(winner) if winner is not None else None
        super().resolve(reply)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A transfer that its owner did not finish.

    Attributes:
        offset: The message's offset in the source.
        count: The message's deliveries so far.
        intent: The transfer's intent, as its owner wrote it.
    """

    offset: int
    count: int
    intent: str


class AdoptTransfers(Operation):
    """Makes transfers whose owner is late the caller's own.

    Attributes:
        orphans: The adopted transfers, known when done.
        more: Whether there may be more.
    """

    __slots__ = ("limit", "more", "orphan_ms", "orphans")

    def __init__(self, ledger: Ledger, limit: int, orphan_ms: int) -> None:
        super().__init__(ledger)
        self.limit = limit
        self.orphan_ms = orphan_ms
        self.orphans: list[Orphan] = []
        self.more = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "adopt_transfers", "limit": self.limit, "orphan_ms": self.orphan_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.orphans = [Orphan(int(offset), int(count), intent) for offset, count, intent in reply["orphans"]]
        self.more = bool(reply["more"])
        super().resolve(reply)


class NoteRefusal(Operation):
    """Notes that the destination of a transfer does not accept a copy of this size.

    Attributes:
        new: Whether that was not noted before.
    """

    __slots__ = ("bytes", "new", "offset")

    def __init__(self, ledger: Ledger, offset: int, size: int) -> None:
        super().__init__(ledger)
        self.offset = offset
        self.bytes = size
        self.new = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "note_refusal", "offset": self.offset, "bytes": self.bytes}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.new = bool(reply["new"])
        super().resolve(reply)


class Retreat(Operation):
    """Lets a message wait again whose transfer cannot be made, unless a client has made it or begun another one.

    A message that is gone from the log is done with.
    """

    __slots__ = ("gone", "intent", "offset")

    def __init__(self, ledger: Ledger, orphan: Orphan, *, gone: bool = False) -> None:
        super().__init__(ledger)
        self.offset = orphan.offset
        self.intent = orphan.intent
        self.gone = gone

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "retreat", "offset": self.offset, "intent": self.intent, "gone": self.gone}


class SkipRecord(Operation):
    """Keeps a record that is a losing copy from being granted.

    Attributes:
        skipped: False if it was granted already.
    """

    __slots__ = ("offset", "skipped")

    def __init__(self, ledger: Ledger, offset: int) -> None:
        super().__init__(ledger)
        self.offset = offset
        self.skipped = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "skip_record", "offset": self.offset}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.skipped = bool(reply["skip"])
        super().resolve(reply)
