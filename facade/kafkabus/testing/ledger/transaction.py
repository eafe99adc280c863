"""Settlements that are part of a transaction; see ``lua/transaction.lua``."""

from __future__ import annotations

from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.lease import expiry_of, put_back, set_aside
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.settle import keep_properties, read_ranges, select_held


def prepare(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Prepare settlements: all of them, or none."""
    held = [(item, *select_held(ledger, item["lease"], item["ranges"])) for item in op["items"]]
    reply: Reply = {"lost": [merge_offsets(lost) for _, _, lost in held]}
    if ledger.closed:
        return {"lost": [merge_offsets([*taken, *lost]) for _, taken, lost in held]}
    if any(lost for _, _, lost in held):
        return reply
    coming = sum(len(taken) for item, taken, _ in held if item["verb"] == "defer")
    if coming and len(ledger.messages_in(MessageState.DEFERRED)) + coming > op["limit"]:
        return reply | {"full": op["limit"]}
    for item, taken, _ in held:
        for offset in taken:
            message = ledger.messages[offset]
            if message.state is MessageState.PREPARED:
                continue  # If a message is named twice, the first one counts.
            prepare_message(ledger, message, item["verb"], op)
            keep_properties(ledger, offset, item.get("change"), prepared=True)
    return reply


def prepare_message(ledger: MemoryLedger, message: Message, verb: str, op: Arguments) -> None:
    """Have a message leave its lease, with the intent of a transaction."""
    parts = ("prepared", verb, message.lease, message.kind, expiry_of(ledger, message), op["transaction"])
    message.state, message.verb, message.intent = MessageState.PREPARED, verb, ":".join(map(str, parts))
    message.due, message.wakes = ledger.now + op["orphan_ms"], 0


def resolve(ledger: MemoryLedger, op: Arguments) -> list[tuple[int, Message]]:
    """Return the messages that a transaction prepared; they are not late any more."""
    wanted = set(offsets_of(read_ranges(op["ranges"])))
    resolved = [
        (offset, message)
        for offset, message in ledger.messages_in(MessageState.PREPARED)
        if offset in wanted and message.intent.endswith(f":{op['transaction']}")
    ]
    for offset, _ in resolved:
        ledger.late.pop(offset, None)
    return resolved


def resolve_properties(ledger: MemoryLedger, offset: int, *, committed: bool) -> None:
    """Make the changes that were prepared of a message's properties, or drop them."""
    change = ledger.properties.changes.pop((offset, True), None)
    if committed:
        keep_properties(ledger, offset, change)


def commit(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Settle the messages that a transaction prepared, as it says."""
    for offset, message in resolve(ledger, op):
        resolve_properties(ledger, offset, committed=True)
        if message.verb == "complete":
            del ledger.messages[offset]
        elif message.verb == "defer":
            set_aside(message)
        else:
            put_back(ledger, message, message.count + 1)
    return {}


def rollback(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return the messages that a transaction prepared to their lease; if that has expired, they are available again."""
    for offset, message in resolve(ledger, op):
        resolve_properties(ledger, offset, committed=False)
        if expiry_of(ledger, message) > ledger.now:
            message.state = MessageState.LEASED
        else:
            put_back(ledger, message, message.count + 1)
    return {}
