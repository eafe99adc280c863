"""Scheduled messages, whose time has not come; see ``lua/schedule.lua``."""

from __future__ import annotations

from kafkabus._ledger.ranges import merge_offsets
from kafkabus.testing.ledger.claim import not_deduplicated
from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.settle import select_held
from kafkabus.testing.ledger.transfer import move_until


def put_off(ledger: MemoryLedger, offset: int, when: int) -> None:
    """Have a message wait for its time."""
    ledger.messages[offset] = Message(MessageState.SCHEDULED, 0, due=when)
    ledger.marks.add("schedules")


def call_off(ledger: MemoryLedger, offset: int) -> bool:
    """End a message's wait for its time; return whether it waited."""
    waits = ledger.is_in(offset, MessageState.SCHEDULED)
    if waits:
        del ledger.messages[offset]
    return waits


def schedule(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Have stored records wait for their time."""
    for offset, when in op["items"]:
        if offset >= ledger.cursor and offset not in ledger.skipped:
            put_off(ledger, offset, when)
            ledger.skipped.add(offset)
    return {}


def schedule_held(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Have messages of a lease wait for their time."""
    times = dict(op["items"])
    taken, lost = select_held(ledger, op["lease"], [(offset, offset) for offset in times])
    for offset in taken:
        put_off(ledger, offset, times[offset])
    return {"lost": merge_offsets(lost)}


def cancel(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Settle scheduled messages, unseen."""
    return {"missing": [offset for offset in op["offsets"] if not call_off(ledger, offset)]}


def activate(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Begin transfers of messages that are due."""
    upto_ms = op.get("upto_ms", ledger.now)
    due = [
        (offset, message) for offset, message in ledger.messages_in(MessageState.SCHEDULED) if message.due <= upto_ms
    ]
    due = sorted(due, key=lambda item: item[1].due)[: op["limit"]]
    begun = [(offset, message) for offset, message in due if not not_deduplicated(ledger, offset + 1)]
    for _, message in begun:
        move_until(message, op["intent"], ledger.now + op["orphan_ms"])
    return {"begun": [offset for offset, _ in begun]}
