"""Transfers of a message into another log: an intent that any client can finish; see ``lua/transfer.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.lease import give_back
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import update_free_sessions
from kafkabus.testing.ledger.settle import forget_properties, take_changed

MOST_LATE = 100
"""How many late transfers are noted."""


def move_until(message: Message, intent: str, due: int) -> None:
    """Have a message move, until its transfer wants attention."""
    message.state, message.intent, message.due = MessageState.MOVING, intent, due


def note_late(ledger: MemoryLedger, offset: int, size: int) -> None:
    """Note that a transfer is late, if few others are."""
    if offset in ledger.late or len(ledger.late) < MOST_LATE:
        ledger.late[offset] = size


def begin_transfer(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Begin the transfers of a lease's messages."""
    due = ledger.now + op["orphan_ms"]
    return take_changed(ledger, op, lambda message: move_until(message, op["intent"], due))


def end_transfer(ledger: MemoryLedger, op: Arguments) -> Reply:
    """End a transfer; the first copy wins."""
    message = ledger.messages.get(op["offset"])
    if message is None or message.state not in {MessageState.MOVING, MessageState.MOVED}:
        return {}
    if message.state is MessageState.MOVING:
        message.state, message.at, message.due = MessageState.MOVED, op["at"], ledger.now + op["keep_ms"]
        ledger.late.pop(op["offset"], None)
        forget_properties(ledger, [op["offset"]])
    return {"winner": message.at}


def adopt_transfers(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Make late transfers those of the caller; forget those that ended a while ago."""
    orphans: list[tuple[int, int, str]] = []
    late = [
        (offset, message)
        for offset, message in ledger.messages_in(MessageState.MOVING, MessageState.PREPARED, MessageState.MOVED)
        if message.due <= ledger.now
    ]
    for offset, message in sorted(late, key=lambda item: item[1].due)[: op["limit"]]:
        if message.state is MessageState.MOVED:
            del ledger.messages[offset]
        else:
            message.due = ledger.now + op["orphan_ms"]
            note_late(ledger, offset, ledger.late.get(offset, 0))
            orphans.append((offset, message.count, message.intent))
    return {"orphans": orphans, "more": len(late) >= op["limit"]}


def note_refusal(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Note that a transfer's destination refuses its copy."""
    if not ledger.is_in(op["offset"], MessageState.MOVING):
        return {"new": False}
    is_new = not ledger.late.get(op["offset"])
    note_late(ledger, op["offset"], op["bytes"])
    return {"new": is_new and op["offset"] in ledger.late}


def retreat(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Give up a transfer: the message waits again, or is done with because the log does not have it any more."""
    message = ledger.messages.get(op["offset"])
    if message is not None and (message.state, message.intent) == (MessageState.MOVING, op["intent"]):
        ledger.late.pop(op["offset"], None)
        if op["gone"]:
            del ledger.messages[op["offset"]]
        else:
            give_back(ledger, message)
    return {}


def skip_record(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Have no claim grant a record."""
    offset = op["offset"]
    if offset >= ledger.cursor:
        ledger.skipped.add(offset)
        return {"skip": True}
    waits = ledger.is_in(offset, MessageState.REDELIVERABLE, MessageState.POSTPONED, MessageState.FILED)
    if waits:
        del ledger.messages[offset]
        update_free_sessions(ledger)
    return {"skip": waits}
