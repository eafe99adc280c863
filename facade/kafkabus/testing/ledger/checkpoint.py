"""The snapshot of a ledger that is written down outside of Redis; see ``lua/checkpoint.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, MessageState
from kafkabus.testing.ledger.lease import delivered
from kafkabus.testing.ledger.prelude import Arguments, Reply

Counts = list[tuple[int, int, int]]


def is_still_changed(ledger: MemoryLedger, offset: int, *, prepared: bool) -> bool:
    """Return whether changed properties are those of a message that is not settled."""
    message = ledger.messages.get(offset)
    if message is not None and message.state is MessageState.PREPARED:
        return True
    if prepared or message is None or message.state in {MessageState.SCHEDULED, MessageState.MOVED}:
        return not prepared and offset >= ledger.cursor
    return True


def fields_of_changed(ledger: MemoryLedger) -> list[str]:
    """Return the fields of changed properties of messages that are not settled; forget other ones."""
    properties = ledger.properties
    properties.changes = {
        (offset, prepared): change
        for (offset, prepared), change in properties.changes.items()
        if is_still_changed(ledger, offset, prepared=prepared)
    }
    properties.may_exist = bool(properties.changes)
    return sorted(ledger.property_fields())


def list_waiting(ledger: MemoryLedger) -> tuple[Counts, Counts]:
    """Return the messages that are available once no client holds any, and those that are deferred then."""
    waiting, deferred = Counts(), Counts()
    homes = MessageState.FILED, MessageState.REDELIVERABLE, MessageState.POSTPONED, MessageState.DEFERRED
    for offset, message in ledger.messages_in(*homes, MessageState.LEASED):
        home = deferred if message.kind == "d" or message.state is MessageState.DEFERRED else waiting
        home.append((offset, offset, delivered(message) if message.state is MessageState.LEASED else message.count))
    return waiting, deferred


def take_snapshot(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return the state of a ledger, from which it can be rebuilt."""
    ledger.closed = ledger.closed or "close" in op
    waiting, deferred = list_waiting(ledger)
    moving = ledger.messages_in(MessageState.MOVING, MessageState.PREPARED)
    reply: Reply = {
        "cursor": ledger.cursor,
        "version": ledger.version,
        "waiting": waiting,
        "deferred": deferred,
        "moving": [(offset, message.count, message.intent) for offset, message in moving],
        "skipped": ledger.skipped_ahead,
        "scheduled": [(offset, message.due) for offset, message in ledger.messages_in(MessageState.SCHEDULED)],
        "postponed": [(offset, message.wakes) for offset, message in ledger.messages.items() if message.wakes],
    }
    reply |= {name: True for name in ("schedules", "has_message_ttl") if name in ledger.marks}
    if ledger.epoch:
        reply["epoch"] = ledger.epoch
    keys = ledger.duplicates
    if keys.dedup_upto is not None:
        reply |= {
            "dedup_upto": max(keys.dedup_upto, keys.dedup_checkpoint),
            "duplicates": sorted(keys.duplicates),
        }
        reply |= {"dedup_epoch": keys.dedup_epoch} if keys.dedup_epoch >= 0 else {}
    if changed := fields_of_changed(ledger):
        reply["changed"] = changed
    return reply
