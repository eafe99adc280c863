"""Operations of ``lua/session.lua``: sessions and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.claim import Granted, Seen, new_lease, read_granted, with_holder, with_rules
from kafkabus._ledger.operations.settle import Settlement
from kafkabus._ledger.operations.wire_format import read_ranges, read_runs, words_of_offsets
from kafkabus._ledger.ranges import Range, merge_offsets


class FileMessages(Operation):
    """Files messages that were read under their sessions; see ``lua/session.lua``.

    Attributes:
        granted: The state of the ledger then, and the strays that were leased; known when done.
    """

    __slots__ = ("_granted", "lease", "lock_ms", "rules", "seen", "sessions", "strays")
    grants = True

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        seen: Seen,
        sessions: Mapping[str, Sequence[int]],
        strays: Sequence[Range],
        lock_ms: int,
        *,
        rules: int = 0,
    ) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.rules = rules
        self.seen = seen
        self.sessions = sessions
        self.strays = strays
        self.lock_ms = lock_ms
        self._granted: Granted | None = None

    @property
    def granted(self) -> Granted:
        """The state of the ledger then, and the strays that were leased.

        Raises:
            RuntimeError: The operation is not done.
        """
        if self._granted is None:
            raise RuntimeError("nothing is filed yet")
        return self._granted

    @override
    def arguments(self) -> dict[str, Any]:
        last = self.seen.upto - 1
        arguments: dict[str, Any] = {
            "op": "file_messages",
            "from": self.seen.start,
            "upto": self.seen.upto,
            "runs": [(last, last)] if self.seen.runs and self.seen.runs[-1][1] == last else [],
            "sessions": [(name, words_of_offsets(offsets), len(offsets)) for name, offsets in self.sessions.items()],
            "strays": self.strays,
            "lease": self.lease,
            "lock_ms": self.lock_ms,
        }
        return with_rules(arguments | self.seen.epochs, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, None)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self._granted = read_granted(reply)
        super().resolve(reply)


class PlaceMessages(Operation):
    """Returns messages of a lease to their sessions, no delivery counted, and leases strays among them again.

    Attributes:
        apart: The lease of the strays.
        lost: Ranges that the lease did not hold any more, known when done.
        expiry: When their locks expire, ms since 1970 on Redis's clock; known when done.
    """

    __slots__ = ("_arguments", "apart", "expiry", "lost")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        sessions: Mapping[str, Sequence[int]],
        strays: Sequence[Range],
        lock_ms: int,
    ) -> None:
        super().__init__(ledger)
        self.apart = new_lease()
        self.expiry = 0
        self.lost: list[Range] = []
        placed = sorted((*run, name) for name, offsets in sessions.items() for run in merge_offsets(offsets))
        self._arguments: dict[str, Any] = {
            "op": "place_messages",
            "lease": lease,
            "ranges": placed,
            "strays": strays,
            "apart": self.apart,
            "lock_ms": lock_ms,
        }

    @override
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.expiry = int(reply["expiry"])
        self.lost = read_ranges(reply["lost"])
        super().resolve(reply)


class Accept(Operation):
    """Locks a session; without a name, the one that has waited longest for its turn.

    Attributes:
        accepted: The session's name; None if none was locked. Known when done.
        held: Whether another client holds the session that was asked for.
        by: The receiver, as leases name it; None if they do not.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
    """

    __slots__ = ("accepted", "by", "expiry", "held", "lease", "lock_ms", "max_deliveries", "session")
    grants = True

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        session: str | None,
        lock_ms: int,
        max_deliveries: int,
        *,
        by: str | None = None,
    ) -> None:
        super().__init__(ledger)
        self.by = by
        self.lease = lease
        self.session = session
        self.lock_ms = lock_ms
        self.max_deliveries = max_deliveries
        self.accepted: str | None = None
        self.held = False
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {
            "op": "accept",
            "lease": self.lease,
            "lock_ms": self.lock_ms,
            "max_deliveries": self.max_deliveries,
        }
        return with_holder(arguments if self.session is None else arguments | {"session": self.session}, self.by)

    @override
    def undo(self) -> Operation | None:
        return None if self.accepted is None else Leave(self.ledger, self.lease)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.held = "held" in reply
        self.accepted = reply.get("session")
        self.expiry = int(reply.get("expiry", 0))
        super().resolve(reply)


class GrantNext(Operation):
    """Grants the next messages of a locked session.

    Attributes:
        gone: Whether the lock has expired; known when done.
        unfiled: Whether nothing may be granted before returned ranges are placed in their sessions.
        again: First and last offset and delivery count of the granted ranges, in the session's order.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
        cursor: The offset up to which the log was filed.
        stale_rules: Whether a subscription's rules were changed since those by which the caller goes.
        now: When the messages were granted, ms since 1970 on Redis's clock.
        due_in: In how many seconds the session's next message is due, if it is postponed; else None.
    """

    __slots__ = (
        "again",
        "cursor",
        "due_in",
        "expiry",
        "gone",
        "lease",
        "now",
        "rules",
        "stale_rules",
        "unfiled",
        "want",
    )
    grants = True

    def __init__(self, ledger: Ledger, lease: str, want: int, rules: int = 0) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.want = want
        self.rules = rules
        self.gone = self.unfiled = self.stale_rules = False
        self.again: list[tuple[int, int, int]] = []
        self.expiry = self.cursor = self.now = 0
        self.due_in: float | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return with_rules({"op": "grant_next", "lease": self.lease, "want": self.want}, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, [(first, last) for first, last, _ in self.again])

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.gone, self.unfiled = "gone" in reply, "unfiled" in reply
        if not (self.gone or self.unfiled):
            self.again = read_runs(reply["again"])
            self.expiry, self.cursor, self.now = int(reply["expiry"]), int(reply["cursor"]), reply["now"]
            self.stale_rules = "stale_rules" in reply
            due = reply.get("due")
            self.due_in = None if due is None else max(0.0, (int(due) - self.now) / 1000)
        super().resolve(reply)


class Extend(Operation):
    """Renews the lock of a session.

    Attributes:
        expiry: When the lock expires now, ms since 1970 on Redis's clock; None if it had expired. Known when done.
    """

    __slots__ = ("expiry", "lease", "lock_ms")

    def __init__(self, ledger: Ledger, lease: str, lock_ms: int) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.lock_ms = lock_ms
        self.expiry: int | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "extend", "lease": self.lease, "lock_ms": self.lock_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.expiry = None if "gone" in reply else int(reply["expiry"])
        super().resolve(reply)


class Leave(Operation):
    """Gives a session up: messages that were granted and not settled go back to it, no delivery counted."""

    __slots__ = ("lease",)

    def __init__(self, ledger: Ledger, lease: str) -> None:
        super().__init__(ledger)
        self.lease = lease

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "leave", "lease": self.lease}


class ListSessions(Operation):
    """Asks for the names of all sessions that have messages waiting or are locked.

    Attributes:
        names: The names, known when done.
    """

    __slots__ = ("names",)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.names: list[str] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "list_sessions"}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.names = list(reply["names"])
        super().resolve(reply)
