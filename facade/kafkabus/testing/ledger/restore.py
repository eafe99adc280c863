"""Rebuilding a ledger from its checkpoint; see ``lua/restore.lua``."""

from __future__ import annotations

import json
from typing import Any

from kafkabus._ledger.ranges import offsets_of
from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState, SavedState
from kafkabus.testing.ledger.settle import keep_properties


def restore(text: str, now: int) -> MemoryLedger:
    """Return a ledger restored from its checkpoint; see ``Written.to_script``."""
    state = json.loads(text)
    ledger = MemoryLedger(int(state["cursor"]), int(state["version"]), now=now)
    ledger.epoch = ledger.leader = state.get("epoch", "")
    ledger.rules = int(state.get("rules", 0))
    ledger.marks.add("transacts")
    if state["has_message_ttl"]:
        ledger.marks.add("has_message_ttl")
    if state["schedules"]:
        ledger.marks.add("schedules")
    restore_messages(ledger, state)
    for offset, change, prepared in state.get("changes", ()):
        keep_properties(ledger, int(offset), change, prepared=prepared)
    if "dedup_upto" in state:
        restore_duplicates(ledger, state)
    ledger.sessions.sessions_unfiled = bool(state["waiting"])
    for name, version, updated, value in state["states"]:
        ledger.sessions.states[name] = SavedState(int(version), int(updated), stored=True, value=value)
    return ledger


def restore_messages(ledger: MemoryLedger, state: dict[str, Any]) -> None:
    """Restore the messages that were not settled, and the records that no claim may grant."""
    for field, home in (("waiting", MessageState.REDELIVERABLE), ("deferred", MessageState.DEFERRED)):
        for first, last, count in state[field]:
            for offset in range(int(first), int(last) + 1):
                ledger.messages[offset] = Message(home, int(count))
    for offset, count, intent in state["moving"]:
        ledger.messages[int(offset)] = Message(MessageState.MOVING, int(count), intent=intent, due=ledger.now)
    ledger.skipped = set(map(int, state["skipped"]))
    for offset, count, wakes in state.get("postponed", ()):
        # In a ledger with sessions, it is among those that wait.
        message = ledger.messages.setdefault(int(offset), Message(MessageState.POSTPONED, int(count)))
        message.wakes, ledger.postponing.was_used = int(wakes), True
        if int(offset) >= ledger.cursor:
            ledger.skipped.add(int(offset))
    for offset, when in state["scheduled"]:
        ledger.messages[int(offset)] = Message(MessageState.SCHEDULED, 0, due=int(when))
        ledger.skipped.add(int(offset))


def restore_duplicates(ledger: MemoryLedger, state: dict[str, Any]) -> None:
    """Restore the duplicates, and up to where they are known."""
    keys = ledger.duplicates
    keys.dedup_upto, keys.dedup_checkpoint = int(state["dedup_upto"]), int(state["dedup_checkpoint"])
    keys.dedup_epoch = int(state.get("dedup_epoch", -1))
    keys.duplicates = set(offsets_of([(int(first), int(last)) for first, last in state["duplicates"]]))
    ledger.skipped |= keys.duplicates
