"""Leases, and messages that go back to the state from which they came; see ``lua/lease.lua``."""

from __future__ import annotations

from collections.abc import Iterable

from kafkabus.testing.ledger.layout import Kind, MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.session_index import free_session, go_home, holder, offer_session


def leased(ledger: MemoryLedger, lease: str) -> list[tuple[int, Message]]:
    """Return the messages of a lease, in the log's order."""
    return [(offset, message) for offset, message in ledger.messages_in(MessageState.LEASED) if message.lease == lease]


def give_back(ledger: MemoryLedger, message: Message) -> None:
    """Make a message available to be granted again."""
    message.state, message.kind = MessageState.REDELIVERABLE, "n"
    ledger.notify = True


def set_aside(message: Message) -> None:
    """Set a message aside, granted by offset only."""
    message.state, message.kind = MessageState.DEFERRED, "n"


def put_back(ledger: MemoryLedger, message: Message, count: int, delay: int | None = None) -> None:
    """Return a message of a lease to the state from which it came, delivered ``count`` times.

    A session's message that was delivered too often is made available without its session, to be dead-lettered. Other
    messages are postponed by the delay, ms; by default by that of the retry policy, if this delivery is counted.
    """
    if delay is None:
        delay = (
            ledger.postponing.policy.find_delay(count)
            if ledger.postponing.policy is not None and count > message.count
            else 0
        )
    ledger.returned += count - message.count
    message.count = count
    held = holder(ledger, message.lease)
    if message.kind == "d":
        set_aside(message)
        return
    is_filed = held is not None and count < held.max_deliveries
    if delay > 0 and (is_filed or held is None):
        message.wakes, ledger.postponing.was_used = ledger.now + delay, True
    if held is not None and is_filed:
        go_home(ledger, held.name, message)
    elif message.wakes and not ledger.sessions.enabled:
        message.state, message.kind = MessageState.POSTPONED, "n"
    else:
        give_back(ledger, message)


def wake_postponed(ledger: MemoryLedger) -> None:
    """Make the postponed messages available whose time has come."""
    due = [message for message in ledger.postponed if message.wakes <= ledger.now]
    for message in sorted(due, key=lambda message: message.wakes):
        message.wakes = 0
        ledger.notify = True
        if message.state is MessageState.POSTPONED:
            give_back(ledger, message)
        elif message.state is MessageState.FILED and message.session is not None:
            offer_session(ledger, message.session)


def write_lease(
    ledger: MemoryLedger, lease: str, offsets: Iterable[int], *, lock_ms: int, kind: Kind = "n", by: str | None = None
) -> None:
    """Lock messages under a lease, of a receiver if it said who it is."""
    for offset in offsets:
        message = ledger.messages.setdefault(offset, Message(MessageState.LEASED, 0))
        message.state, message.lease, message.kind = MessageState.LEASED, lease, kind
        message.expiry = ledger.now + lock_ms
        message.since, message.by = (0, "") if by is None else (ledger.now, by)


def expiry_of(ledger: MemoryLedger, message: Message) -> int:
    """Return when a message's lock expires; messages of a locked session are locked as long as the session."""
    held = holder(ledger, message.lease)
    return message.expiry if held is None else held.expiry


def dissolve(ledger: MemoryLedger, lease: str, counted: int) -> None:
    """End a lease that locks a session: its messages go back, ``counted`` deliveries added."""
    for _, message in leased(ledger, lease):
        put_back(ledger, message, message.count + counted)
    held = ledger.sessions.holders.pop(lease)
    free_session(ledger, held.name)


def in_doubt(ledger: MemoryLedger, lease: str) -> bool:
    """Return whether messages of a lease are part of a transaction whose outcome is unknown."""
    return any(message.lease == lease for _, message in ledger.messages_in(MessageState.PREPARED))


def expire_holder(ledger: MemoryLedger, lease: str, counted: int) -> None:
    """End a lease that locks a session, and has expired or was given up: now, or once all is known of its messages."""
    if in_doubt(ledger, lease):
        held = ledger.sessions.holders[lease]
        held.expiry = min(held.expiry, ledger.now)
    else:
        dissolve(ledger, lease, counted)


def delivered(message: Message) -> int:
    """Return how often a message was delivered once its lock expires."""
    return message.count + (0 if message.kind == "s" else 1)


def expire_leases(ledger: MemoryLedger) -> None:
    """Return messages whose locks have expired, each delivery counted; wake postponed ones whose time has come."""
    expired = [(held.expiry, lease) for lease, held in ledger.sessions.holders.items() if held.expiry <= ledger.now]
    for _, lease in sorted(expired):
        expire_holder(ledger, lease, 1)
    for _, message in ledger.messages_in(MessageState.LEASED):
        if message.expiry <= ledger.now and holder(ledger, message.lease) is None:
            put_back(ledger, message, delivered(message))
    wake_postponed(ledger)
