"""The messages that wait in each session; see ``lua/session_index.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState, SessionHolder


def waiting_in(ledger: MemoryLedger, name: str) -> list[tuple[int, Message]]:
    """Return the messages that wait in a session, in the log's order."""
    return [(offset, message) for offset, message in ledger.messages_in(MessageState.FILED) if message.session == name]


def starts_postponed(ledger: MemoryLedger, name: str) -> bool:
    """Return whether the first message that waits in a session is postponed."""
    waiting = waiting_in(ledger, name)
    return bool(waiting and waiting[0][1].wakes)


def offer_session(ledger: MemoryLedger, name: str) -> None:
    """Have a session that no client holds wait for its turn, unless nothing of it can be granted."""
    if is_locked(ledger, name):
        return
    if waiting_in(ledger, name) and not starts_postponed(ledger, name):
        ledger.sessions.free.setdefault(name)
    else:
        ledger.sessions.free.pop(name, None)


def free_session(ledger: MemoryLedger, name: str) -> None:
    """Free a session: it waits for its turn, if any message waits in it, or for the time of the first one."""
    offer_session(ledger, name)
    if name in ledger.sessions.free:
        ledger.notify = True


def update_free_sessions(ledger: MemoryLedger) -> None:
    """Have the free sessions be those of which something can be granted, as ``cut_chunk`` does."""
    waiting = {message.session for _, message in ledger.messages_in(MessageState.FILED)}
    for name in {*ledger.sessions.free, *waiting}:
        if name is not None:
            offer_session(ledger, name)


def go_home(ledger: MemoryLedger, name: str, message: Message) -> None:
    """File a message in its session, which is free if no client holds it."""
    message.state, message.session, message.kind = MessageState.FILED, name, "n"
    offer_session(ledger, name)
    ledger.notify = True


def file_words(ledger: MemoryLedger, name: str, offsets: list[int]) -> None:
    """File messages that were never granted in their session."""
    for offset in offsets:
        go_home(ledger, name, ledger.messages.setdefault(offset, Message(MessageState.FILED, 0)))


def holder(ledger: MemoryLedger, lease: str) -> SessionHolder | None:
    """Return the lock of a session by its lease."""
    return ledger.sessions.holders.get(lease)


def locked_by(ledger: MemoryLedger, lease: str) -> SessionHolder | None:
    """Return the lock of a session by its lease, unless it has expired."""
    held = holder(ledger, lease)
    return held if held is not None and held.expiry > ledger.now else None


def is_locked(ledger: MemoryLedger, name: str) -> bool:
    """Return whether a client holds a session."""
    return any(held.name == name for held in ledger.sessions.holders.values())


def filer_lease(ledger: MemoryLedger) -> str | None:
    """Return the lease of the client that is about to place returned messages in their sessions; None if there is none."""
    lease = ledger.sessions.filer_lease
    held = any(message.lease == lease for _, message in ledger.messages_in(MessageState.LEASED))
    return lease if held else None


def unfiled(ledger: MemoryLedger) -> bool:
    """Return whether nothing may be granted yet, because not all messages of a rebuilt ledger are placed."""
    if ledger.sessions.sessions_unfiled:
        waits = bool(ledger.messages_in(MessageState.REDELIVERABLE))
        ledger.sessions.sessions_unfiled = waits or filer_lease(ledger) is not None
    return ledger.sessions.sessions_unfiled
