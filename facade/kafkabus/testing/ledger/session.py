"""Sessions: messages are filed under theirs, and granted to the client that holds it; see ``lua/session.lua``."""

from __future__ import annotations

from itertools import takewhile

from kafkabus._ledger.ranges import merge_offsets
from kafkabus.testing.ledger.claim import claimable, has_stale_rules, move_cursor, name_refusal, with_state
from kafkabus.testing.ledger.layout import MemoryLedger, MessageState, SessionHolder
from kafkabus.testing.ledger.lease import expire_holder, expire_leases, write_lease
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import (
    file_words,
    go_home,
    holder,
    is_locked,
    locked_by,
    unfiled,
    waiting_in,
)
from kafkabus.testing.ledger.settle import read_ranges, release, select_held


def file_messages(ledger: MemoryLedger, op: Arguments) -> Reply:
    """File messages that were read in their sessions."""
    expire_leases(ledger)
    reply: Reply = {"again": [], "fresh": [], "expiry": ledger.now + op["lock_ms"]}
    refusal = name_refusal(ledger, op)
    if refusal:
        reply[refusal] = True
    elif op["upto"] > ledger.cursor:
        strays = claimable(ledger, op["strays"])
        write_lease(ledger, op["lease"], strays, lock_ms=op["lock_ms"], kind="s")
        reply["again"] = [(offset, offset, 0) for offset in strays]
        for name, words, _ in op["sessions"]:
            file_words(ledger, name, claimable(ledger, read_ranges(words)))
        move_cursor(ledger, op, op["upto"])
    return with_state(ledger, reply)


def place_messages(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Have messages of a lease wait in their sessions; lease the strays among them again."""
    taken, lost = select_held(ledger, op["lease"], op["ranges"])
    names = {offset: name for first, last, name in op["ranges"] for offset in range(first, last + 1)}
    for offset in taken:
        go_home(ledger, names[offset], ledger.messages[offset])
    strays, _ = select_held(ledger, op["lease"], op["strays"])
    write_lease(ledger, op["apart"], strays, lock_ms=op["lock_ms"], kind="s")
    return {"lost": merge_offsets(lost), "expiry": ledger.now + op["lock_ms"]}


def accept(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock a session: a certain one, or the one that has waited longest."""
    expire_leases(ledger)
    name = op.get("session", next(iter(ledger.sessions.free), None))
    if name is None:
        return {}
    if is_locked(ledger, name):
        return {"held": True}
    ledger.sessions.free.pop(name, None)
    expiry = ledger.now + op["lock_ms"]
    ledger.sessions.holders[op["lease"]] = SessionHolder(
        expiry, op["max_deliveries"], name, ledger.now if "by" in op else 0, op.get("by", "")
    )
    return {"session": name, "expiry": expiry}


def grant_next(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Grant the next messages of a locked session."""
    expire_leases(ledger)
    held = locked_by(ledger, op["lease"])
    if held is None:
        return {"gone": True}
    if unfiled(ledger):
        return {"unfiled": True}
    waiting = waiting_in(ledger, held.name)
    granted = list(takewhile(lambda item: not item[1].wakes, waiting))[: op["want"]]
    write_lease(ledger, op["lease"], [offset for offset, _ in granted], lock_ms=held.expiry - ledger.now)
    reply: Reply = {
        "again": ",".join(f"{offset}*{message.count}" for offset, message in granted),
        "expiry": held.expiry,
        "cursor": ledger.cursor,
    }
    if len(granted) < op["want"] and len(granted) < len(waiting):
        reply["due"] = waiting[len(granted)][1].wakes
    return reply | ({"stale_rules": True} if has_stale_rules(ledger, op) else {})


def extend(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock a session for so long from now on."""
    expire_leases(ledger)
    held = locked_by(ledger, op["lease"])
    if held is None:
        return {"gone": True}
    held.expiry = ledger.now + op["lock_ms"]
    return {"expiry": held.expiry}


def leave(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Free a session; messages granted and not settled go back, uncounted."""
    expire_leases(ledger)
    if holder(ledger, op["lease"]) is not None:
        release(ledger, op)
        expire_holder(ledger, op["lease"], 0)
    return {}


def list_sessions(ledger: MemoryLedger, _op: Arguments) -> Reply:
    """Return the sessions that have messages waiting or are locked."""
    waiting = {message.session for _, message in ledger.messages_in(MessageState.FILED) if message.session is not None}
    return {"names": sorted(waiting | {held.name for held in ledger.sessions.holders.values()})}
