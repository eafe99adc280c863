"""Operations of ``lua/duplicates.lua``: finding duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation


class DetectDuplicates(Operation):
    """Finds which of the records that were read are duplicates; see ``lua/duplicates.lua``.

    Args:
        ledger: The ledger.
        start: The offset from which on every record was read.
        upto: The offset before which the reading ended.
        ids: Offset, id, time in ms since 1970, and source if it is a copy, of each record that has an id, ascending.
        epochs: Leader epochs of records before ``upto`` that are known, ascending: the offset of the first
            with each.
        window_ms: For how long an id counts.
        log_start: The offset before which records count no more; None if that is not known, or was said before.

    Attributes:
        start: As given.
        ahead: Whether nothing was judged, because records before ``start`` were not; known when done.
        dedup_upto: The offset up to which it is known which records are duplicates.
        log_truncated: The latest leader epoch of the scanned records if a record seen now has a later one, which shows that
            the log was truncated; else None.
    """

    __slots__ = ("_arguments", "ahead", "dedup_upto", "log_truncated", "start")

    def __init__(
        self,
        ledger: Ledger,
        start: int,
        upto: int,
        ids: Sequence[Sequence[object]],
        epochs: Sequence[tuple[int, int]],
        window_ms: int,
        log_start: int | None = None,
    ) -> None:
        super().__init__(ledger)
        self.start = start
        self.ahead = False
        self.dedup_upto = 0
        self.log_truncated: int | None = None
        self._arguments: dict[str, Any] = {
            "op": "detect_duplicates",
            "from": start,
            "upto": upto,
            "ids": ids,
            "epochs": epochs,
            "window": window_ms,
        }
        if log_start is not None:
            self._arguments["start"] = log_start

    @override
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.ahead, self.dedup_upto = "ahead" in reply, int(reply["dedup_upto"])
        self.log_truncated = int(reply["log_truncated"]) if "log_truncated" in reply else None
        super().resolve(reply)
