"""Claiming messages; see ``lua/claim.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus.testing.ledger.layout import Kind, MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.lease import expire_leases, write_lease
from kafkabus.testing.ledger.prelude import Arguments, Reply, refused_copies
from kafkabus.testing.ledger.session_index import filer_lease

MOST_POSTPONED = 100_000
"""How many postponed messages do not count as in flight."""
OVERDUE = 2000
"""How long scheduled messages that are due may wait to be activated before they are overdue, in ms."""


def claimable(ledger: MemoryLedger, runs: Sequence[Range]) -> list[int]:
    """Return the offsets of runs that a claim may grant: none before the cursor, none that is skipped."""
    return [offset for offset in offsets_of(runs) if offset >= ledger.cursor and offset not in ledger.skipped]


def grant_returned(ledger: MemoryLedger, op: Arguments) -> list[tuple[int, Message]]:
    """Lease messages that were granted before; return them."""
    waiting = [] if filer_lease(ledger) else ledger.messages_in(MessageState.REDELIVERABLE)
    again = waiting[: op["want"]]
    kind: Kind = "s" if ledger.sessions.enabled or "exclusive" in op else "n"
    write_lease(ledger, op["lease"], [offset for offset, _ in again], lock_ms=op["lock_ms"], kind=kind, by=op.get("by"))
    if again and ledger.sessions.enabled:
        ledger.sessions.filer_lease = op["lease"]
    return again


def grant_fresh(ledger: MemoryLedger, op: Arguments, want: int) -> tuple[list[int], int]:
    """Return the offsets never granted before that are granted now, and the cursor behind them."""
    unseen = claimable(ledger, op["runs"])
    fresh, rest = unseen[:want], unseen[want:]
    return fresh, rest[0] if rest else max(ledger.cursor, op["upto"])


def not_deduplicated(ledger: MemoryLedger, upto: int) -> bool:
    """Return whether duplicates are detected, and those below an offset are not known, or not known any more."""
    dedup_upto = ledger.duplicates.dedup_upto
    return dedup_upto is not None and (upto > dedup_upto or ledger.duplicates.log_truncated)


def has_stale_rules(ledger: MemoryLedger, op: Arguments) -> bool:
    """Return whether the client selected the records by rules that were changed since."""
    return bool(op.get("rules", 0) < ledger.rules)


def name_refusal(ledger: MemoryLedger, op: Arguments) -> str:
    """Return the field of the reply by which records that were read are not granted; empty if they are."""
    if op["from"] > ledger.cursor:
        return "ahead"
    if has_stale_rules(ledger, op):
        return "stale_rules"
    return "not_deduplicated" if not_deduplicated(ledger, op["upto"]) else ""


def within(ledger: MemoryLedger, limit: int, wanted: int) -> int:
    """Return how many of the wanted messages the limit leaves room for."""
    uncounted = len(ledger.messages_in(MessageState.DEFERRED, MessageState.SCHEDULED))
    uncounted += min(MOST_POSTPONED, len(ledger.postponed))
    return max(0, min(wanted, limit - ledger.in_flight + uncounted))


def see_ahead(ledger: MemoryLedger, op: Arguments, wanted: int, reply: Reply) -> None:
    """Turn a claim ahead into a claim of offsets that were seen, unless another leader took over."""
    if ledger.leader and ledger.leader != str(op.get("epoch", "")):
        reply["epoch_mismatch"] = True
    elif (
        op["ahead"] > ledger.cursor
        and wanted > 0
        and ledger.duplicates.dedup_upto is None
        and not has_stale_rules(ledger, op)
    ):
        op["from"], op["upto"] = ledger.cursor, min(op["ahead"], ledger.cursor + wanted)
        op["runs"] = [(op["from"], op["upto"] - 1)]


def move_cursor(ledger: MemoryLedger, op: Arguments, cursor: int) -> None:
    """Move the cursor behind the records that the caller has seen; ``pass`` of ``lua/claim.lua``."""
    if cursor == ledger.cursor:
        return
    ledger.cursor, ledger.epoch = cursor, ""
    if "epoch" in op:
        ledger.leader = str(op["epoch"])
        is_known = "ahead" in op or cursor <= op.get("epoch_to", 0)
        if is_known or cursor - 1 in offsets_of(op.get("runs", ())):
            ledger.epoch = ledger.leader


def with_state(ledger: MemoryLedger, reply: Reply) -> Reply:
    """Add the present state of the ledger to a reply."""
    expiries = [message.expiry for _, message in ledger.messages_in(MessageState.LEASED)]
    expiries += [held.expiry for held in ledger.sessions.holders.values()]
    expiries += [message.wakes for message in ledger.postponed]
    if expiries:
        reply["due"] = min(expiries)
    if ledger.sessions.free:
        reply["free"] = True
    if any(message.due <= ledger.now - OVERDUE for _, message in ledger.messages_in(MessageState.SCHEDULED)):
        reply["overdue"] = True
    return reply | {
        "cursor": ledger.cursor,
        "redeliverable": 0 if filer_lease(ledger) else len(ledger.messages_in(MessageState.REDELIVERABLE)),
        "moves": any(
            message.due <= ledger.now
            for _, message in ledger.messages_in(MessageState.MOVING, MessageState.PREPARED, MessageState.MOVED)
        ),
    }


def waits_for_others(ledger: MemoryLedger) -> bool:
    """Return whether an exclusive claim is granted nothing, because a lease or a transfer is under way."""
    under_way = ledger.messages_in(MessageState.LEASED, MessageState.MOVING, MessageState.PREPARED)
    return len(under_way) > len(refused_copies(ledger)) or bool(ledger.sessions.holders)


def claim(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lease messages to a client."""
    expire_leases(ledger)
    op = dict(op)
    waits = "exclusive" in op and waits_for_others(ledger)
    if waits:
        op["want"] = 0
    elif "exclusive" in op and ledger.messages_in(MessageState.REDELIVERABLE):
        op.pop("from", None)
        op.pop("ahead", None)
    reply = grant(ledger, op)
    return reply | {"limited": True, "redeliverable": 0} if waits else reply


def grant(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lease messages that were granted before, then new ones."""
    again = grant_returned(ledger, op)
    reply: Reply = {"again": [(offset, offset, message.count) for offset, message in again]}
    if has_stale_rules(ledger, op) and (again or "from" in op):
        reply["stale_rules"] = True
    if op["settle_on_claim"] and ("schedules" in ledger.marks or ledger.properties.may_exist):
        op["settle_on_claim"], reply["leased"] = False, True
    wanted, fresh = op["want"] - len(again), list[int]()
    if "ahead" in op:
        see_ahead(ledger, op, wanted, reply)
    if "from" in op and (refusal := name_refusal(ledger, op)):
        reply[refusal] = True
    elif "from" in op:
        most = wanted if op["settle_on_claim"] else within(ledger, op["limit"], wanted)
        fresh, cursor = grant_fresh(ledger, op, most)
        if most < wanted and cursor < op["upto"]:
            reply["limited"] = True
        if not op["settle_on_claim"]:
            kind: Kind = "s" if "exclusive" in op else "n"
            write_lease(ledger, op["lease"], fresh, lock_ms=op["lock_ms"], kind=kind, by=op.get("by"))
        move_cursor(ledger, op, cursor)
    return with_state(ledger, reply | {"fresh": merge_offsets(fresh), "expiry": ledger.now + op["lock_ms"]})
