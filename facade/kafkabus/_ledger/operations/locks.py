"""Operations of ``lua/locks.lua``: the locks of messages and sessions, as operators see them and end them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock of a session, or of messages without one.

    Attributes:
        expiry: When it ends, ms since 1970.
        since: When it began, ms since 1970; None if its receiver did not say who it is.
        by: The receiver, as leases name it; empty if it did not say who it is.
        session: The session; None if messages are locked without one.
    """

    expiry: int
    since: int | None
    by: str
    session: str | None


@dataclass(frozen=True, slots=True)
class LockedRange:
    """Locked messages.

    Attributes:
        first: Their first offset.
        last: Their last offset.
        count: How often they were delivered before.
        deferred: Whether they are deferred.
        lock: Their lock, or that of their session.
    """

    first: int
    last: int
    count: int
    deferred: bool
    lock: HeldLock


class ListLocks(Operation):
    """Lists up to ``limit`` locked ranges from an offset on, and the locks of sessions.

    Attributes:
        found: The locked ranges, in the log's order; known when done.
        sessions: The locks of sessions, also of those that were granted no message.
        has_more: Whether there are more ranges.
    """

    __slots__ = ("found", "has_more", "limit", "sessions", "start")

    def __init__(self, ledger: Ledger, start: int, limit: int) -> None:
        super().__init__(ledger)
        self.start = start
        self.limit = limit
        self.found: list[LockedRange] = []
        self.sessions: list[HeldLock] = []
        self.has_more = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "list_locks", "from": self.start, "limit": self.limit}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.found = [
            LockedRange(
                int(first),
                int(last),
                int(count),
                kind == "d",
                HeldLock(int(expiry), int(since) if since else None, by, session[0] if session else None),
            )
            for first, last, count, kind, expiry, since, by, *session in reply["locks"]
        ]
        self.sessions = [
            HeldLock(int(expiry), int(since) if since else None, by, session)
            for session, expiry, since, by in reply["sessions"]
        ]
        self.has_more = "more" in reply
        super().resolve(reply)


class BreakLock(Operation):
    """Ends the lock of a message, or of a session, as if it had expired.

    Args:
        ledger: The ledger.
        target: The offset of the message, or the session.

    Attributes:
        is_broken: Whether there was such a lock; known when done.
        session: The session whose lock the message is under, so that nothing was done; None if there is none.
    """

    __slots__ = ("is_broken", "session", "target")

    def __init__(self, ledger: Ledger, target: int | str) -> None:
        super().__init__(ledger)
        self.target = target
        self.is_broken = False
        self.session: str | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "break_lock", "session" if isinstance(self.target, str) else "offset": self.target}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.is_broken, self.session = "broken" in reply, reply.get("session")
        super().resolve(reply)
