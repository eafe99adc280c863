"""Operations of ``lua/transaction.lua``: settlements that wait for a transaction's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.wire_format import read_ranges, words_of
from kafkabus._ledger.ranges import Range
from kafkabus._ledger.snapshot import Change
from kafkabus._ledger.verbs import PreparedVerb


class Prepare(Operation):
    """Prepares settlements that are carried out, or taken back, once the outcome of a transaction is known: all or none.

    Args:
        ledger: The ledger.
        items: Verb, lease, ranges of offsets, and application properties to change of each.
        transaction: The transaction's name.
        orphan_ms: After how many milliseconds another client looks up the outcome.
        limit: How many messages may be deferred.

    Attributes:
        lost: Ranges that the leases did not hold any more, by item; if there are any, nothing was done. Known when done.
        full: Whether nothing was done, because more than ``limit`` would have been set aside.
        too_much: The limit in bytes, if nothing was done because more changed properties would have been kept; else None.
    """

    __slots__ = ("full", "items", "limit", "lost", "orphan_ms", "too_much", "transaction")

    def __init__(
        self,
        ledger: Ledger,
        items: Sequence[tuple[PreparedVerb, str, Sequence[Range], Change]],
        transaction: str,
        orphan_ms: int,
        limit: int,
    ) -> None:
        super().__init__(ledger)
        self.items = items
        self.transaction = transaction
        self.orphan_ms = orphan_ms
        self.limit = limit
        self.lost: list[list[Range]] = []
        self.full = False
        self.too_much: int | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return {
            "op": "prepare",
            "items": [
                {"verb": verb, "lease": lease, "ranges": words_of(ranges)}
                | ({"change": dict(change)} if change else {})
                for verb, lease, ranges, change in self.items
            ],
            "transaction": self.transaction,
            "orphan_ms": self.orphan_ms,
            "limit": self.limit,
        }

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = [read_ranges(lost) for lost in reply["lost"]]
        self.full, self.too_much = "full" in reply, reply.get("too_much")
        super().resolve(reply)


class Resolve(Operation):
    """Settles messages that a transaction prepared, or takes that back; other messages, or those resolved before, stay."""

    __slots__ = ("ranges", "transaction", "verb")

    def __init__(self, ledger: Ledger, ranges: Sequence[Range], transaction: str, *, committed: bool) -> None:
        super().__init__(ledger)
        self.ranges = ranges
        self.transaction = transaction
        self.verb = "commit" if committed else "rollback"

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": self.verb, "ranges": words_of(self.ranges), "transaction": self.transaction}
