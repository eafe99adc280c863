"""Operations of ``lua/claim.lua``: granting messages that were read, and messages that came back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation
from kafkabus._ledger.operations.settle import Settlement
from kafkabus._ledger.operations.wire_format import read_ranges
from kafkabus._ledger.ranges import Range

IN_FLIGHT_LIMIT = 100_000
"""How many messages of a partition may be granted and neither settled nor deferred; no new message is granted beyond."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The records that a claimer has read: all from ``start`` to before ``upto``; ``runs`` are the messages among them.

    ``epoch`` is the leader epoch of all of these; None if they have several, or it is not known. If ``epoch_to`` is given,
    no record before that offset, message or not, is of a later one.
    """

    start: int
    upto: int
    runs: Sequence[Range]
    epoch: int | None = None
    epoch_to: int | None = None

    @property
    def epochs(self) -> dict[str, int]:
        """The epochs, as arguments of scripts."""
        told = {} if self.epoch is None else {"epoch": self.epoch}
        return told if self.epoch_to is None else told | {"epoch_to": self.epoch_to}


@dataclass(slots=True)
class Granted:
    """A claim's grant, and the state of the ledger then.

    Attributes:
        again: First and last offset and delivery count of ranges that were granted before; to be read by offset.
        fresh: Ranges never granted before, out of what the claimer had read; or unseen, if it claimed ahead.
        cursor: The ledger's cursor, afterwards.
        ahead: Whether the claimer had read beyond the cursor: it must go back to the cursor.
        now: When it was granted, ms since 1970 on Redis's clock.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
        redeliverable: How many ranges still wait to be granted again.
        due_in: Seconds until the next lease of the ledger expires, or its next postponed message is due; None if neither.
        moves: Whether a transfer wants attention.
        limited: Whether more would have been granted, had there not been so many in flight.
        epoch_mismatch: Whether nothing was granted ahead because another leader took over; the log has to be read from the
            cursor.
        free: Whether sessions wait that no client holds.
        overdue: Whether some scheduled messages were not activated in time.
        stale_rules: Whether the caller goes by rules that were changed since; then nothing new was granted.
    """

    again: list[tuple[int, int, int]]
    fresh: list[Range]
    cursor: int
    ahead: bool
    now: int
    expiry: int
    redeliverable: int
    due_in: float | None
    moves: bool
    limited: bool = False
    epoch_mismatch: bool = False
    free: bool = False
    overdue: bool = False
    stale_rules: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log, as its leader reports it.

    Attributes:
        end: Its committed end.
        epoch: The leader's epoch; None if the leader does not report it.
    """

    end: int
    epoch: int | None = None


class Claim(Operation):
    """Claims messages under a lease id that the client made up; see ``lua/claim.lua``.

    Attributes:
        granted: The grant, known when done.
        settle_on_claim: Whether messages that were never granted before were settled by it; they were not if scheduled
            messages may be among them.
        exclusive: Whether nothing is granted while anything else is under way, and no new message before those granted before.
        rules: Version of the subscription's rules by which ``seen`` was chosen; 0 if there are no rules.
        by: The receiver, as leases name it; None if they do not.
    """

    __slots__ = (
        "_granted",
        "ahead",
        "by",
        "exclusive",
        "lease",
        "limit",
        "lock_ms",
        "rules",
        "seen",
        "settle_on_claim",
        "want",
    )
    grants = True

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        *,
        want: int,
        lock_ms: int,
        seen: Seen | None = None,
        ahead: Tail | None = None,
        settle_on_claim: bool = False,
        limit: int = IN_FLIGHT_LIMIT,
        exclusive: bool = False,
        rules: int = 0,
        by: str | None = None,
    ) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.rules = rules
        self.by = by
        self.want = want
        self.exclusive = exclusive
        self.lock_ms = lock_ms
        self.seen = seen
        self.ahead = ahead
        self.settle_on_claim = settle_on_claim
        self.limit = limit
        self._granted: Granted | None = None

    @classmethod
    def poll(cls, ledger: Ledger) -> Claim:
        """Return a claim that is granted nothing: expired locks end, and the answer gives the ledger's position."""
        return cls(ledger, "", want=0, lock_ms=0)

    @property
    def was_granted(self) -> bool:
        """Whether the ledger has answered."""
        return self._granted is not None

    @property
    def granted(self) -> Granted:
        """The grant.

        Raises:
            RuntimeError: The claim is not done.
        """
        if self._granted is None:
            raise RuntimeError("the claim is not done")
        return self._granted

    @property
    def unseen(self) -> list[Range]:
        """Ranges that were leased before the claimer read them: claimed ahead, never granted before."""
        return [] if self.ahead is None else self.granted.fresh

    @override
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "op": "claim",
            "lease": self.lease,
            "want": self.want,
            "lock_ms": self.lock_ms,
            "settle_on_claim": self.settle_on_claim,
            "limit": self.limit,
        }
        if self.seen is not None:
            arguments.update({"from": self.seen.start, "upto": self.seen.upto, "runs": self.seen.runs})
            arguments.update(self.seen.epochs)
        if self.exclusive:
            arguments["exclusive"] = True
        if self.ahead is not None:
            arguments["ahead"] = self.ahead.end
            if self.ahead.epoch is not None:
                arguments["epoch"] = self.ahead.epoch
        return with_rules(with_holder(arguments, self.by), self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, None)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self._granted = read_granted(reply)
        self.settle_on_claim = self.settle_on_claim and "leased" not in reply
        super().resolve(reply)


def read_granted(reply: dict[str, Any]) -> Granted:
    """Read out of a claim's reply what it was granted, and the ledger's position."""
    due = reply.get("due")
    return Granted(
        again=[(int(first), int(last), int(count)) for first, last, count in reply["again"]],
        fresh=read_ranges(reply["fresh"]),
        cursor=int(reply["cursor"]),
        ahead=bool(reply.get("ahead")),
        now=reply["now"],
        expiry=int(reply["expiry"]),
        redeliverable=int(reply["redeliverable"]),
        due_in=None if not due else max(0.0, (int(due) - reply["now"]) / 1000),
        moves=bool(reply["moves"]),
        limited="limited" in reply,
        epoch_mismatch="epoch_mismatch" in reply,
        free="free" in reply,
        overdue="overdue" in reply,
        stale_rules="stale_rules" in reply,
    )


def new_lease() -> str:
    """Make up a lease id: 64 random bits, so that no two are alike."""
    return os.urandom(8).hex()


def with_holder(arguments: dict[str, Any], by: str | None) -> dict[str, Any]:
    """Add the receiver that locks messages, if leases are to name it."""
    return arguments if by is None else arguments | {"by": by}


def with_rules(arguments: dict[str, Any], rules: int) -> dict[str, Any]:
    """Add the version of a subscription's rules by which the caller goes; 0: the operation is not about a subscription."""
    return arguments | {"rules": rules} if rules else arguments
