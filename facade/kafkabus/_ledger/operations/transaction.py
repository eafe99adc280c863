"""Operations of ``lua/transaction.lua``: settlements that wait for a transaction's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.wire_format import read_ranges, words_of
from kafkabus._ledger.ranges import Range


class Prepare(Operation):
    """Prepares settlements that are carried out, or taken back, once the outcome of a transaction is known: all or none.

    Args:
        ledger: The ledger.
        items: Verb, lease and ranges of offsets of each; the verb is ``complete``, ``abandon`` or ``defer``.
        transaction: The transaction's name.
        orphan_ms: After how many milliseconds another client looks up the outcome.
        limit: How many messages may be deferred.

    Attributes:
        lost: Ranges that the leases did not hold any more, by item; if there are any, nothing was done. Known when done.
        full: Whether nothing was done, because more than ``limit`` would have been set aside.
    """

    __slots__ = ("full", "items", "limit", "lost", "orphan_ms", "transaction")

    def __init__(
        self,
        ledger: Ledger,
        items: Sequence[tuple[str, str, Sequence[Range]]],
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

    @override
    def arguments(self) -> dict[str, Any]:
        return {
            "op": "prepare",
            "items": [{"verb": verb, "lease": lease, "ranges": words_of(ranges)} for verb, lease, ranges in self.items],
            "transaction": self.transaction,
            "orphan_ms": self.orphan_ms,
            "limit": self.limit,
        }

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = [read_ranges(lost) for lost in reply["lost"]]
        self.full = "full" in reply
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
