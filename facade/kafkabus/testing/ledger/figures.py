"""Figures of a ledger for metrics; see ``lua/figures.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, MessageState


def read_figures(ledger: MemoryLedger) -> list[int]:
    """Return the numbers of ``lua/figures.lua``."""
    return [
        ledger.cursor,
        ledger.in_flight,
        len(ledger.messages_in(MessageState.SCHEDULED)),
        len(ledger.messages_in(MessageState.MOVING)),
        len(ledger.skipped_ahead),
        len(ledger.messages_in(MessageState.DEFERRED)),
        len(ledger.messages_in(MessageState.REDELIVERABLE)),
        len(ledger.postponed),
        len(ledger.sessions.holders),
        len(ledger.sessions.free),
        ledger.returned,
    ]
