"""Looking at messages, purging them, and notifying a ledger of its log and its rules; see ``lua/inspect.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import holder, update_free_sessions

PEEKED = (
    MessageState.FILED,
    MessageState.REDELIVERABLE,
    MessageState.POSTPONED,
    MessageState.LEASED,
    MessageState.DEFERRED,
    MessageState.SCHEDULED,
)
"""The states of messages that are peeked at."""


def mark(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Note what the log may hold."""
    ledger.marks.add(op["name"])
    return {}


def set_rules_version(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Have no message granted any more that earlier rules than these chose."""
    if op["version"] > ledger.rules or ledger.rules_from is None:
        ledger.rules, ledger.rules_from = max(ledger.rules, op["version"]), max(op["end"], ledger.cursor)
    return {"from": ledger.rules_from}


def may_be_of(ledger: MemoryLedger, name: str | None, message: Message) -> bool:
    """Return whether a message may belong to a session by the ledger's data; always true without a session."""
    known = message.session if message.state is MessageState.FILED else None
    held = holder(ledger, message.lease)
    if message.state is MessageState.LEASED and held is not None:
        known = held.name
    return name is None or known is None or known == name


def kind_of(message: Message) -> str:
    """Return the kind of a message: ``t`` if it is scheduled, ``p`` postponed, ``d`` deferred, else ``n``."""
    if message.wakes:
        return "p"
    if message.state is MessageState.SCHEDULED:
        return "t"
    return "d" if message.kind == "d" or message.state is MessageState.DEFERRED else "n"


def _time_of(ledger: MemoryLedger, message: Message) -> int:
    """Return until when a message is postponed, or locked by a receiver; 0 if it is neither."""
    held = holder(ledger, message.lease)
    if message.state is not MessageState.LEASED or (ledger.sessions.enabled and held is None):
        return message.wakes
    return message.expiry if held is None else held.expiry


def peek(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Look at messages that are not settled."""
    found = [
        (offset, offset, kind_of(message), message.count, *([time] if (time := _time_of(ledger, message)) else []))
        for offset, message in ledger.messages_in(*PEEKED)
        if offset >= op["from"] and may_be_of(ledger, op.get("session"), message)
    ]
    return {"cursor": ledger.cursor, "found": found[: op["limit"]], "skipped": ledger.skipped_ahead}


def purge(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Settle messages that wait below an offset, unseen."""
    waiting = ledger.messages_in(MessageState.FILED, MessageState.REDELIVERABLE, MessageState.POSTPONED)
    purged = [offset for offset, _ in waiting if offset < op["upto"]]
    for offset in purged:
        del ledger.messages[offset]
    update_free_sessions(ledger)
    ahead = max(0, op["upto"] - ledger.cursor)
    if ahead:
        ledger.cursor, ledger.epoch = op["upto"], ""
    return {"purged": len(purged) + ahead, "more": False}
