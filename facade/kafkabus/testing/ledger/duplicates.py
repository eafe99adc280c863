"""Duplicate detection: of the records with one id, the first in the log is the message; see ``lua/duplicates.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import Identifier, MemoryLedger
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.schedule import call_off


def detect_duplicates(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Find out which of the records that were read are duplicates."""
    keys = ledger.duplicates
    dedup_upto = keys.dedup_upto or 0
    if "start" in op:
        keys.duplicates = {offset for offset in keys.duplicates if offset >= op["start"]}
        keys.dedup_upto = dedup_upto = max(dedup_upto, op["start"])
    judged_before = max(dedup_upto, keys.dedup_checkpoint)
    if keys.dedup_epoch >= 0:
        keys.log_truncated = any(first < judged_before and epoch > keys.dedup_epoch for first, epoch in op["epochs"])
    if keys.log_truncated:
        return {"dedup_upto": dedup_upto, "log_truncated": keys.dedup_epoch}
    if op["from"] > dedup_upto:
        return {"dedup_upto": dedup_upto, "ahead": True}
    keys.dedup_epoch = max([keys.dedup_epoch, *(epoch for _, epoch in op["epochs"])])
    for offset, name, when, *source in op["ids"]:
        if dedup_upto <= offset < op["upto"]:
            judge(ledger, name, Identifier(offset, when, "".join(source)), op["window"])
    keys.dedup_upto = max(dedup_upto, op["upto"])
    return {"dedup_upto": keys.dedup_upto}


def judge(ledger: MemoryLedger, name: str, record: Identifier, window: int) -> None:
    """Note that a record is a duplicate, or that it is the latest message with its id."""
    keys = ledger.duplicates
    before = keys.ids.get(name)
    recent = before is not None and abs(record.when - before.when) < window
    copied = recent and before is not None and bool(record.source) and record.source == before.source
    is_duplicate = recent and not copied
    if record.offset < keys.dedup_checkpoint or (before is not None and before.offset >= record.offset):
        # Judged before, according to a checkpoint.
        is_duplicate = record.offset in keys.duplicates
    if is_duplicate:
        keys.duplicates.add(record.offset)
        ledger.skipped.add(record.offset)
        call_off(ledger, record.offset)
    elif before is None or before.offset <= record.offset:
        # The time of several copies of one message is the first copy's.
        when = before.when if before is not None and copied else record.when
        keys.ids[name] = Identifier(record.offset, when, record.source)
