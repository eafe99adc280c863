"""The states that applications keep of their sessions; see ``lua/session_state.lua``."""

from __future__ import annotations

from kafkabus.testing.ledger.layout import MemoryLedger, SavedState
from kafkabus.testing.ledger.lease import expire_leases
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import locked_by


def tell_state(name: str, state: SavedState) -> Reply:
    """Return a session's state as a reply."""
    reply: Reply = {"session": name, "version": state.version, "updated": state.updated}
    reply |= {} if state.value is None else {"value": state.value}
    return reply | ({} if state.stored else {"unstored": True})


def session_asked(ledger: MemoryLedger, op: Arguments) -> str | None:
    """Return the session that an operation is about; None if its lease has expired."""
    if "session" in op:
        return str(op["session"])
    held = locked_by(ledger, op["lease"])
    return None if held is None else held.name


def get_state(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return the state of a session."""
    expire_leases(ledger)
    name = session_asked(ledger, op)
    if name is None:
        return {"gone": True}
    state = ledger.sessions.states.get(name)
    return {} if state is None else tell_state(name, state)


def set_state(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Set or clear the state of a session."""
    expire_leases(ledger)
    name = session_asked(ledger, op)
    if name is None:
        return {"gone": True}
    before = ledger.sessions.states.get(name)
    version = max(before.version if before else 0, ledger.version) + 1
    state = SavedState(version, ledger.now, stored=False, value=op.get("value"))
    ledger.sessions.states[name] = state
    return tell_state(name, state)


def note_stored_state(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Note that a state's record is stored; return the state that counts if that is another."""
    states, name = ledger.sessions.states, op["session"]
    state = states.get(name)
    if state is None:
        # The new state is not the one whose record exists, although both may have the same version.
        states[name] = SavedState(ledger.version + 1, ledger.now, stored=False, value=None)
        is_lost = op["version"] > ledger.sessions.cleared
        return tell_state(name, states[name]) | ({"lost": True} if is_lost else {})
    if state.version != op["version"]:
        return tell_state(name, state) | ({"lost": True} if op["version"] > state.version else {})
    state.stored = True
    if state.value is None:
        ledger.sessions.cleared = state.version
        del states[name]
    return {}


def list_updated_states(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return the sessions whose state was set after a moment."""
    states = ledger.sessions.states.items()
    return {"names": [name for name, state in states if state.value is not None and state.updated > op["after"]]}
