# Generated from facade/kafkabus/_async/receiving/filed_records.py by tools/generate_blocking.py. Do not edit.
"""The records of messages that were filed under their sessions, and that a session's lock was granted."""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._core.delivery import Delivery
from kafkabus._core.fetch_plan import sweeps
from kafkabus._core.record import Record
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus._sync.receiving.granted_records import SWEPT_AT_ONCE
from kafkabus._sync.receiving.log_reader import LogReader
from kafkabus._sync.receiving.recent_records import RecentRecords


def read_filed(
    log: LogReader, kept_records: RecentRecords, delivery: Delivery, ranges: Sequence[Range]
) -> tuple[list[Record], int | None]:
    """Return the records of ranges that a session's lease holds: those that are kept, and the others by offset.

    If a record did not come, the records behind it must wait for it: none of them is returned, and its offset is.
    """
    offsets = offsets_of(ranges)
    kept, missing = kept_records.take(delivery.partition, offsets)
    found = log.entity.change_granted(kept)
    if missing:
        for sweep in sweeps(merge_offsets(missing), lambda run: run, at_once=SWEPT_AT_ONCE):
            found += log.read_again(delivery, sweep)
        found.sort(key=lambda record: record.offset() or 0)
    came = {record.offset() for record in found}
    cut = min((offset for offset in missing if offset not in came), default=None)
    if cut is None:
        return found, None
    return [record for record in found if (record.offset() or 0) < cut], cut
