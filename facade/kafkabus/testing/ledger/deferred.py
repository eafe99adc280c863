"""Messages by offset: deferred ones are locked, waiting ones seized; see ``lua/deferred.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus.testing.ledger.claim import has_stale_rules, move_cursor, not_deduplicated
from kafkabus.testing.ledger.layout import Kind, MemoryLedger, MessageState
from kafkabus.testing.ledger.lease import expire_leases, write_lease
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import locked_by, update_free_sessions


def recall(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock deferred messages: all of them or none."""
    expire_leases(ledger)
    held = locked_by(ledger, op["lease"])
    if op["session"] and held is None:
        return {"missing": [], "gone": True}
    offsets = offsets_of(op["ranges"])
    missing = [offset for offset in offsets if not ledger.is_in(offset, MessageState.DEFERRED)]
    if missing:
        return {"missing": merge_offsets(missing)}
    write_lease(ledger, op["lease"], offsets, lock_ms=op["lock_ms"], kind="d", by=op.get("by"))
    again = [(offset, offset, ledger.messages[offset].count) for offset in offsets]
    reply: Reply = {"missing": [], "again": again, "expiry": held.expiry if held else ledger.now + op["lock_ms"]}
    return reply | ({"stale_rules": True} if has_stale_rules(ledger, op) else {})


def lock_segments(ledger: MemoryLedger, op: Arguments, segments: Sequence[tuple[int, Kind]]) -> Reply:
    """Lease messages, each with its kind; return the reply."""
    for offset, kind in segments:
        write_lease(ledger, op["lease"], [offset], lock_ms=op["lock_ms"], kind=kind, by=op.get("by"))
        ledger.messages[offset].wakes = 0
    again = [(offset, offset, ledger.messages[offset].count, kind) for offset, kind in segments]
    return {"again": again, "expiry": ledger.now + op["lock_ms"]}


def seize(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock all messages that wait in ranges, wherever they wait."""
    expire_leases(ledger)
    if "session" in op and locked_by(ledger, op["session"]) is None:
        return {"gone": True}
    outdated = has_stale_rules(ledger, op)
    moves = "upto" in op and op["from"] <= ledger.cursor and not (outdated or not_deduplicated(ledger, op["upto"]))
    segments: list[tuple[int, Kind]] = []
    ahead: list[int] = []
    for offset in offsets_of(op["ranges"]):
        if ledger.is_in(offset, MessageState.REDELIVERABLE, MessageState.POSTPONED, MessageState.FILED):
            segments.append((offset, "n"))
        elif offset >= ledger.cursor:
            if not (outdated or not_deduplicated(ledger, offset + 1) or offset in ledger.skipped):
                segments.append((offset, "n"))
                ahead.append(offset)
        elif ledger.is_in(offset, MessageState.DEFERRED):
            segments.append((offset, "d"))
    if not moves:
        if "ahead_limit" in op and len(ledger.skipped_ahead) + len(ahead) > op["ahead_limit"]:
            return {"full": op["ahead_limit"]}
        ledger.skipped |= set(ahead)
    reply = lock_segments(ledger, op, segments)
    update_free_sessions(ledger)
    if moves:
        move_cursor(ledger, op, max(ledger.cursor, op["upto"]))
    return reply


def seize_undeliverable(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock messages that wait and were delivered too often."""
    expire_leases(ledger)
    segments: list[tuple[int, Kind]] = [
        (offset, "n")
        for offset, message in ledger.messages_in(MessageState.REDELIVERABLE)
        if message.count >= op["count"]
    ]
    return lock_segments(ledger, op, segments[: op["limit"]])
