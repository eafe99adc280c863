"""Operations of ``lua/checkpoint.lua``: snapshots that are to be written down."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.ranges import merge_offsets
from kafkabus._ledger.snapshot import Snapshot


class TakeSnapshot(Operation):
    """Asks for the snapshot of a ledger that is to be written down.

    Args:
        ledger: The ledger.
        close: Whether another ledger follows this one, so that no transaction prepares anything here any more.

    Attributes:
        snapshot: The snapshot, known when done, without changed properties; see ``LedgerClient.add_changes``.
        changed: The fields of the ledger's changed properties.
    """

    __slots__ = ("_close", "changed", "snapshot")

    def __init__(self, ledger: Ledger, *, close: bool = False) -> None:
        super().__init__(ledger)
        self._close = close
        self.snapshot = Snapshot(0, 0)
        self.changed: list[str] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "take_snapshot", "close": True} if self._close else {"op": "take_snapshot"}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        duplicates = set(map(int, reply.get("duplicates", ())))
        # Their texts are read apart: they may be large.
        self.changed = list(reply.get("changed", ()))
        self.snapshot = Snapshot(
            cursor=int(reply["cursor"]),
            version=int(reply["version"]),
            has_message_ttl="has_message_ttl" in reply,
            waiting=[(int(first), int(last), int(count)) for first, last, count in reply["waiting"]],
            deferred=[(int(first), int(last), int(count)) for first, last, count in reply["deferred"]],
            moving=[(int(offset), int(count), intent) for offset, count, intent in reply["moving"]],
            # Records that were found to be duplicates are skipped anyway.
            skipped=[offset for offset in map(int, reply["skipped"]) if offset not in duplicates],
            epoch=int(reply["epoch"]) if "epoch" in reply else None,
            schedules="schedules" in reply,
            scheduled=[(int(offset), int(when)) for offset, when in reply["scheduled"]],
            postponed=[(int(offset), int(until)) for offset, until in reply["postponed"]],
            dedup_upto=int(reply["dedup_upto"]) if "dedup_upto" in reply else None,
            dedup_epoch=int(reply["dedup_epoch"]) if "dedup_epoch" in reply else None,
            duplicates=merge_offsets(duplicates),
        )
        super().resolve(reply)
