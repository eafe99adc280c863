"""Operations of ``lua/session_state.lua``: the states of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation


@dataclass(frozen=True, slots=True)
class StoredSessionState:
    """A state that an application keeps of a session.

    Attributes:
        session: The session's name.
        version: A later state has a higher one.
        updated: When it was set, ms since 1970 on Redis's clock.
        value: The state, in base 64; None if it was cleared.
        stored: Whether its record is known to be stored.
    """

    session: str
    version: int
    updated: int
    value: str | None
    stored: bool


class _OfState(Operation):
    """An operation whose reply holds the state of a session.

    Attributes:
        gone: Whether the session's lock has expired; known when done.
        state: The state; None if there is none, or nothing is left to be done.
    """

    __slots__ = ("gone", "state")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.gone = False
        self.state: StoredSessionState | None = None

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.gone = "gone" in reply
        if "session" in reply:
            self.state = StoredSessionState(
                session=reply["session"],
                version=int(reply["version"]),
                updated=int(reply["updated"]),
                value=reply.get("value"),
                stored="unstored" not in reply,
            )
        super().resolve(reply)


class GetState(_OfState):
    """Asks for the state of the session that a lease locks, or of one that is named, whether it is locked or not."""

    __slots__ = ("lease", "session")

    def __init__(self, ledger: Ledger, lease: str = "", *, session: str | None = None) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.session = session

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "get_state"} | _about(self.lease, self.session)


class SetState(_OfState):
    """Sets the state of a session, in base 64; None clears it. See ``GetState``."""

    __slots__ = ("lease", "session", "value")

    def __init__(self, ledger: Ledger, lease: str, value: str | None, *, session: str | None = None) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.session = session
        self.value = value

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {"op": "set_state"} | _about(self.lease, self.session)
        return arguments if self.value is None else arguments | {"value": self.value}


def _about(lease: str, session: str | None) -> dict[str, Any]:
    return {"lease": lease} if session is None else {"session": session}


class NoteStoredState(_OfState):
    """Reports to a ledger that a state's record was stored; ``state`` is the state to be stored instead, if another one counts.

    Attributes:
        lost: Whether that one is not later: Redis lost the stored one, and the session's lock with it. Known when done.
    """

    __slots__ = ("lost", "session", "version")

    def __init__(self, ledger: Ledger, session: str, version: int) -> None:
        super().__init__(ledger)
        self.session = session
        self.version = version
        self.lost = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "note_stored_state", "session": self.session, "version": self.version}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = "lost" in reply
        super().resolve(reply)


class ListUpdatedStates(Operation):
    """Asks which sessions' states were set after a moment.

    Attributes:
        names: The sessions, known when done.
    """

    __slots__ = ("after", "names")

    def __init__(self, ledger: Ledger, after: int) -> None:
        super().__init__(ledger)
        self.after = after
        self.names: list[str] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "list_updated_states", "after": self.after}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.names = list(reply["names"])
        super().resolve(reply)
