"""Upkeep's look at a ledger; see ``lua/look.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, MessageState

TIMED = (MessageState.SCHEDULED, MessageState.MOVING, MessageState.PREPARED, MessageState.MOVED)
"""The states that want attention at a time, besides locks that expire."""


def find_due(ledger: MemoryLedger) -> int | None:
    """Return when upkeep has to look at the earliest, ms since 1970; None if nothing is due at a time."""
    times = [message.due for _, message in ledger.messages_in(*TIMED)]
    times += [message.wakes for message in ledger.postponed]
    times += [message.expiry for _, message in ledger.messages_in(MessageState.LEASED)]
    return min([*times, *(held.expiry for held in ledger.sessions.holders.values())], default=None)
