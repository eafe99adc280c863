"""The locks of messages and sessions, as operators see them and end them; see ``lua/locks.lua``."""

from __future__ import annotations

from typing import Any

from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.lease import delivered, expire_holder, expire_leases, expiry_of, put_back
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import holder


def _locked(ledger: MemoryLedger) -> list[tuple[int, Message]]:
    """Return the messages that receivers have locked, in the log's order."""
    return [
        (offset, message)
        for offset, message in ledger.messages_in(MessageState.LEASED)
        if not ledger.sessions.enabled or holder(ledger, message.lease) is not None
    ]


def list_locks(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return locked messages from an offset on, and the locks of sessions."""
    expire_leases(ledger)
    locks: list[list[Any]] = []
    for offset, message in _locked(ledger):
        if offset >= op["from"]:
            held = holder(ledger, message.lease)
            taken = message if held is None else held
            lock = [
                offset,
                offset,
                message.count,
                message.kind,
                expiry_of(ledger, message),
                taken.since or "",
                taken.by,
            ]
            locks.append(lock if held is None else [*lock, held.name])
    sessions = [
        [held.name, held.expiry, held.since or "", held.by]
        for held in ledger.sessions.holders.values()
        if held.expiry > ledger.now
    ]
    more = {"more": True} if len(locks) > op["limit"] else {}
    return {"locks": locks[: op["limit"]], "sessions": sessions, **more}


def break_lock(ledger: MemoryLedger, op: Arguments) -> Reply:
    """End the lock of a message, or of a session, as if it had expired."""
    expire_leases(ledger)
    if "session" in op:
        for lease, one in list(ledger.sessions.holders.items()):
            if one.name == op["session"] and one.expiry > ledger.now:
                expire_holder(ledger, lease, 1)
                return {"broken": True}
        return {}
    message = dict(_locked(ledger)).get(op["offset"])
    if message is None:
        return {}
    held = holder(ledger, message.lease)
    if held is not None:
        return {"session": held.name}
    put_back(ledger, message, delivered(message))
    return {"broken": True}
