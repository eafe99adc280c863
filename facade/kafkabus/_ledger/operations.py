"""Operations on a ledger and their replies: the Python side of ``lua/``, without I/O."""

from __future__ import annotations

import json
import operator
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from kafkabus._ledger.keys import LedgerKeys
from kafkabus._ledger.ranges import Counted, Range, common, joined, merge_offsets
from kafkabus._ledger.snapshot import Snapshot

_RUN = re.compile(r"(\d+)(?:-(\d+))?(?:\*(\d+))?")

IN_FLIGHT_LIMIT = 100_000
"""How many messages of a partition may be granted and neither settled nor deferred; nothing new is granted beyond."""


class Ledger:
    """One ledger as one client uses it: its keys, its numbered requests, what waits for the next of them.

    A client has at most one request under way per ledger. One whose reply was lost stays in doubt and is sent again,
    under its number, before anything else.
    """

    __slots__ = (
        *("_ahead_ms", "_skew_ms", "channel", "in_doubt", "keys", "measured_at_ms", "number", "partition", "pending"),
        "script_keys",
    )

    def __init__(self, keys: LedgerKeys, *, partition: int, channel: str, client_id: str) -> None:
        self.keys = keys
        self.partition = partition
        self.channel = channel
        self.script_keys = (*keys.shared, keys.slot(client_id))
        self.number = 0
        self.pending: deque[Operation] = deque()
        self.in_doubt: Request | None = None
        self.measured_at_ms: float | None = None
        self._ahead_ms = self._skew_ms = 0.0

    def set_clock(self, now_ms: int, asked_at: float, skew_ms: int = 0) -> None:
        """Its clock showed ``now_ms`` when it answered what was asked at ``asked_at``, on the monotonic clock.

        Args:
            now_ms: ms since 1970.
            asked_at: In seconds.
            skew_ms: How many ms of that passed for a test alone.
        """
        self._ahead_ms, self._skew_ms = now_ms - asked_at * 1000, skew_ms

    @property
    def skew_ms(self) -> float:
        """How many ms passed for a test alone."""
        return self._skew_ms

    @property
    def offset_ms(self) -> float | None:
        """What its clock shows at the beginning of the monotonic clock, ms since 1970; None where it never answered."""
        return self._ahead_ms - self._skew_ms if self._ahead_ms else None

    def seconds_until(self, moment_ms: int) -> float:
        """How long it is until its clock shows ``moment_ms``; never more than that, for what it knows of its clock."""
        return (moment_ms - self._ahead_ms) / 1000 - time.monotonic()

    def next_request(self) -> Request | None:
        """The request to send now: the one in doubt, else what is pending (settlements before claims), else none.

        What would be granted to nobody, as its caller was cancelled, is not asked for: whoever asks next, in the same
        request, would be granted what is behind it.
        """
        if self.in_doubt is None:
            operations: list[Operation] = []
            while self.pending:
                operation = self.pending.popleft()
                if not (operation.abandoned and isinstance(operation, _GRANTING)):
                    operations.append(operation)
            if not operations:
                return None
            if len(operations) > 1:
                operations.sort(key=lambda operation: isinstance(operation, _GRANTING))
            self.number += 1
            self.in_doubt = Request(self, self.number, operations)
        return self.in_doubt


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Where a ledger stands.

    Attributes:
        cursor: The next offset never granted.
        held: How many messages were granted and are not settled.
        version: Raised by every request.
        mortal: Whether messages with times to live of their own were sent.
        epoch: Leader epoch of the record right before the cursor, where it is known.
        judged: Up to where it is known which records are duplicates; None where none are detected.
        scheduled: How many of the messages held wait for their time.
        schedules: Whether the log holds records of such.
        moving: How many of the messages held are on their way into another log.
        transacts: Whether transactions may have stored records in the log.
        voids: Whether some records beyond the cursor may be none that will be granted: duplicates, those that are or were
            scheduled, those that were granted out of turn.
    """

    cursor: int
    held: int
    version: int
    mortal: bool
    epoch: int | None = None
    judged: int | None = None
    scheduled: int = 0
    schedules: bool = False
    moving: int = 0
    transacts: bool = False
    voids: bool = False


class Operation:
    """Something to be done by a ledger; ``reply`` or ``error`` is set once it is ``done``.

    Attributes:
        abandoned: Whether its caller stopped waiting before it was done.
    """

    __slots__ = ("abandoned", "done", "error", "ledger", "reply")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.abandoned = False
        self.done = False
        self.reply: Any = None
        self.error: BaseException | None = None

    @property
    def single(self) -> tuple[str, str, int] | None:
        """Verb, lease and offset, where it settles one message and does nothing else."""
        return None

    def arguments(self) -> dict[str, Any]:
        """The operation as its script reads it."""
        raise NotImplementedError

    def undo(self) -> Operation | None:
        """What gives back what it was granted, once done, where nobody has seen that; None where it grants nothing."""
        return None

    def resolve(self, reply: dict[str, Any]) -> None:
        """Take the script's reply."""
        self.reply = reply
        self.done = True

    def fail(self, error: BaseException) -> None:
        """Take an error in place of a reply: whether the ledger did it is unknown."""
        self.error = error
        self.abandoned = True
        self.done = True


class Settlement(Operation):
    """Takes messages out of a lease: ``complete``, ``abandon`` or ``release``.

    Attributes:
        lost: Ranges that the lease did not hold any more, known when done.
    """

    __slots__ = ("lease", "lost", "ranges", "verb")

    def __init__(self, ledger: Ledger, verb: str, lease: str, ranges: Sequence[Range] | None) -> None:
        super().__init__(ledger)
        self.verb = verb
        self.lease = lease
        self.ranges = ranges
        self.lost: list[Range] = []

    @property
    @override
    def single(self) -> tuple[str, str, int] | None:
        if self.ranges is None or len(self.ranges) != 1 or self.ranges[0][0] != self.ranges[0][1]:
            return None
        return self.verb, self.lease, self.ranges[0][0]

    @override
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"op": self.verb, "lease": self.lease}
        if self.ranges is not None:
            arguments["ranges"] = words_of(self.ranges)
        return arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        lost = read_ranges(reply["lost"])
        # The reply may be to others too, who settle other messages of the lease.
        self.lost = lost if self.ranges is None else common(lost, self.ranges)
        super().resolve(reply)


class Renewal(Settlement):
    """Locks messages of a lease anew.

    Attributes:
        expiry: When their locks expire now, ms since 1970 on Redis's clock, known when done.
    """

    __slots__ = ("expiry", "lock_ms")

    def __init__(self, ledger: Ledger, lease: str, ranges: Sequence[Range], lock_ms: int) -> None:
        super().__init__(ledger, "renew", lease, ranges)
        self.lock_ms = lock_ms
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "lock_ms": self.lock_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.expiry = int(reply["expiry"])
        super().resolve(reply)


class Deferral(Settlement):
    """Sets messages of a lease aside.

    Attributes:
        full: Whether nothing was done, because more than ``limit`` would have been set aside; known when done.
    """

    __slots__ = ("full", "limit")

    def __init__(self, ledger: Ledger, lease: str, ranges: Sequence[Range], limit: int) -> None:
        super().__init__(ledger, "defer", lease, ranges)
        self.limit = limit
        self.full = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "limit": self.limit}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.full = "full" in reply
        super().resolve(reply)


class Begin(Settlement):
    """Begins a transfer: the messages leave the lease with an intent that anybody can finish."""

    __slots__ = ("intent", "orphan_ms")

    def __init__(self, ledger: Ledger, lease: str, ranges: Sequence[Range], intent: str, orphan_ms: int) -> None:
        super().__init__(ledger, "begin", lease, ranges)
        self.intent = intent
        self.orphan_ms = orphan_ms

    @property
    @override
    def single(self) -> None:
        return None

    @override
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "intent": self.intent, "orphan_ms": self.orphan_ms}


class Moved(Operation):
    """Ends a transfer: the copy stands at an offset of the destination.

    Attributes:
        winner: The offset of the copy that counts, None where the ledger knows nothing of the transfer any more.
    """

    __slots__ = ("at", "keep_ms", "offset", "winner")

    def __init__(self, ledger: Ledger, offset: int, at: int, keep_ms: int) -> None:
        super().__init__(ledger)
        self.offset = offset
        self.at = at
        self.keep_ms = keep_ms
        self.winner: int | None = None

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "moved", "offset": self.offset, "at": self.at, "keep_ms": self.keep_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        winner = reply.get("winner") if reply else None
        self.winner = int(winner) if winner is not None else None
        super().resolve(reply)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A transfer that its owner did not finish.

    Attributes:
        offset: Of the message in the source.
        count: Its deliveries so far.
        intent: What was to be done, as its owner wrote it.
    """

    offset: int
    count: int
    intent: str


class Adopt(Operation):
    """Makes transfers whose owner is late the caller's own.

    Attributes:
        orphans: What was adopted, known when done.
        more: Whether there may be more.
    """

    __slots__ = ("limit", "more", "orphan_ms", "orphans")

    def __init__(self, ledger: Ledger, limit: int, orphan_ms: int) -> None:
        super().__init__(ledger)
        self.limit = limit
        self.orphan_ms = orphan_ms
        self.orphans: list[Orphan] = []
        self.more = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "adopt", "limit": self.limit, "orphan_ms": self.orphan_ms}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.orphans = [Orphan(int(offset), int(count), intent) for offset, count, intent in reply["orphans"]]
        self.more = bool(reply["more"])
        super().resolve(reply)


class Retreat(Operation):
    """Lets a message wait again whose transfer cannot be made, unless somebody made it or began another one meanwhile.

    One that is gone from the log is done with.
    """

    __slots__ = ("gone", "intent", "offset")

    def __init__(self, ledger: Ledger, orphan: Orphan, *, gone: bool = False) -> None:
        super().__init__(ledger)
        self.offset = orphan.offset
        self.intent = orphan.intent
        self.gone = gone

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "retreat", "offset": self.offset, "intent": self.intent, "gone": self.gone}


class Prepare(Operation):
    """Prepares settlements that a transaction carries out, or takes back, once it is known what became of it: all or none.

    Args:
        ledger: Where.
        items: Verb, lease and ranges of offsets of each; the verb is ``complete``, ``abandon`` or ``defer``.
        transaction: What names it.
        orphan_ms: After how many milliseconds somebody else looks what became of it.
        limit: How many messages may be deferred.

    Attributes:
        lost: Ranges that the leases did not hold any more, by item; where there are any, nothing was done. Known when done.
        full: Whether nothing was done, because more than ``limit`` would have been set aside.
    """

    __slots__ = ("full", "items", "limit", "lost", "orphan_ms", "transaction")

    def __init__(
        self,
        ledger: Ledger,
        items: Sequence[tuple[str, str, Sequence[Range]]],
        transaction: str,
        orphan_ms: int,
        limit: int,
    ) -> None:
        super().__init__(ledger)
        self.items = items
        self.transaction = transaction
        self.orphan_ms = orphan_ms
        self.limit = limit
        self.lost: list[list[Range]] = []
        self.full = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {
            "op": "prepare",
            "items": [{"verb": verb, "lease": lease, "ranges": words_of(ranges)} for verb, lease, ranges in self.items],
            "transaction": self.transaction,
            "orphan_ms": self.orphan_ms,
            "limit": self.limit,
        }

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = [read_ranges(lost) for lost in reply["lost"]]
        self.full = "full" in reply
        super().resolve(reply)


class Resolve(Operation):
    """Settles what a transaction prepared, or takes it back; what it did not, or somebody resolved, stays as it is."""

    __slots__ = ("ranges", "transaction", "verb")

    def __init__(self, ledger: Ledger, ranges: Sequence[Range], transaction: str, *, committed: bool) -> None:
        super().__init__(ledger)
        self.ranges = ranges
        self.transaction = transaction
        self.verb = "commit" if committed else "rollback"

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": self.verb, "ranges": words_of(self.ranges), "transaction": self.transaction}


class Void(Operation):
    """Takes a record that is a losing copy out of what will be granted.

    Attributes:
        void: False where it was granted already.
    """

    __slots__ = ("offset", "void")

    def __init__(self, ledger: Ledger, offset: int) -> None:
        super().__init__(ledger)
        self.offset = offset
        self.void = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "void", "offset": self.offset}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.void = bool(reply["void"])
        super().resolve(reply)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a claimer has read: every record from ``start`` to before ``upto``; ``runs`` are the messages among them.

    ``epoch`` is the leader epoch of all of these; None where they have several, or it is not known. Where ``epoch_to`` is
    given, nothing before that offset, message or not, is of a later one.
    """

    start: int
    upto: int
    runs: Sequence[Range]
    epoch: int | None = None
    epoch_to: int | None = None

    @property
    def epochs(self) -> dict[str, int]:
        """What scripts are told of epochs."""
        told = {} if self.epoch is None else {"epoch": self.epoch}
        return told if self.epoch_to is None else told | {"epoch_to": self.epoch_to}


@dataclass(slots=True)
class Granted:
    """What a claim was granted.

    Attributes:
        again: First and last offset and delivery count of ranges that were granted before; to be read by offset.
        fresh: Ranges never granted before, out of what the claimer had read; or unseen, where it claimed ahead.
        cursor: The ledger's, afterwards.
        ahead: Whether the claimer had read beyond the cursor: it must go back to it.
        now: When it was granted, ms since 1970 on Redis's clock.
        expiry: When the lock expires, likewise.
        returned: How many ranges still wait to be granted again.
        due_in: Seconds until the next lease of the ledger expires, None where none is held.
        moves: Whether a transfer wants attention.
        limited: Whether more would have been granted, had there not been so many in flight.
        unproved: Whether nothing was granted ahead, because another leader took over: the log is to be read from the cursor.
        free: Whether sessions wait that nobody holds.
        overdue: Whether some scheduled messages were not activated in time.
        ruled: Whether a subscription's rules were changed since those by which the caller goes: then nothing new was granted.
    """

    again: list[tuple[int, int, int]]
    fresh: list[Range]
    cursor: int
    ahead: bool
    now: int
    expiry: int
    returned: int
    due_in: float | None
    moves: bool
    limited: bool = False
    unproved: bool = False
    free: bool = False
    overdue: bool = False
    ruled: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a log ends, as its leader says.

    Attributes:
        end: Its committed end.
        epoch: The leader's epoch; None where it does not say.
    """

    end: int
    epoch: int | None = None


class Claim(Operation):
    """Claims messages under a lease id that the client made up; see ``lua/claim.lua``.

    Attributes:
        granted: What was granted, known when done.
        take: Whether what was never granted before was settled by it; where scheduled messages may be among it, it was not.
        alone: Whether nothing is granted while anything else is under way, and nothing new before what was granted before.
        rules: Version of the subscription's rules by which what was seen was chosen; 0 where there are none.
    """

    __slots__ = ("_granted", "ahead", "alone", "lease", "limit", "lock_ms", "rules", "seen", "take", "want")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        *,
        want: int,
        lock_ms: int,
        seen: Seen | None = None,
        ahead: Tail | None = None,
        take: bool = False,
        limit: int = IN_FLIGHT_LIMIT,
        alone: bool = False,
        rules: int = 0,
    ) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.rules = rules
        self.want = want
        self.alone = alone
        self.lock_ms = lock_ms
        self.seen = seen
        self.ahead = ahead
        self.take = take
        self.limit = limit
        self._granted: Granted | None = None

    @classmethod
    def of_nothing(cls, ledger: Ledger) -> Claim:
        """A claim that is granted nothing: what has expired goes back, and the answer says where the ledger stands."""
        return cls(ledger, "", want=0, lock_ms=0)

    @property
    def was_granted(self) -> bool:
        """Whether the ledger has answered."""
        return self._granted is not None

    @property
    def granted(self) -> Granted:
        """What was granted.

        Raises:
            RuntimeError: The claim is not done.
        """
        if self._granted is None:
            raise RuntimeError("the claim is not done")
        return self._granted

    @property
    def unseen(self) -> list[Range]:
        """What was leased before anybody read it: claimed ahead, never granted before."""
        return [] if self.ahead is None else self.granted.fresh

    @override
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "op": "claim",
            "lease": self.lease,
            "want": self.want,
            "lock_ms": self.lock_ms,
            "take": self.take,
            "limit": self.limit,
        }
        if self.seen is not None:
            arguments.update({"from": self.seen.start, "upto": self.seen.upto, "runs": self.seen.runs})
            arguments.update(self.seen.epochs)
        if self.alone:
            arguments["alone"] = True
        if self.ahead is not None:
            arguments["ahead"] = self.ahead.end
            if self.ahead.epoch is not None:
                arguments["epoch"] = self.ahead.epoch
        return _with_rules(arguments, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, None)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self._granted = read_granted(reply)
        self.take = self.take and "leased" not in reply
        super().resolve(reply)


class Filing(Operation):
    """Files what was read under its sessions; see ``lua/session.lua``.

    Attributes:
        granted: Where the ledger stands then, and the strays that were leased; known when done.
    """

    __slots__ = ("_granted", "lease", "lock_ms", "rules", "seen", "sessions", "strays")

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
        """See above.

        Raises:
            RuntimeError: It is not done.
        """
        if self._granted is None:
            raise RuntimeError("nothing is filed yet")
        return self._granted

    @override
    def arguments(self) -> dict[str, Any]:
        last = self.seen.upto - 1
        arguments: dict[str, Any] = {
            "op": "file",
            "from": self.seen.start,
            "upto": self.seen.upto,
            "runs": [(last, last)] if self.seen.runs and self.seen.runs[-1][1] == last else [],
            "sessions": [(name, words_of_offsets(offsets), len(offsets)) for name, offsets in self.sessions.items()],
            "strays": self.strays,
            "lease": self.lease,
            "lock_ms": self.lock_ms,
        }
        return _with_rules(arguments | self.seen.epochs, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, None)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self._granted = read_granted(reply)
        super().resolve(reply)


class Place(Operation):
    """Returns messages of a lease to their sessions, no delivery counted, and leases strays among them anew.

    Attributes:
        apart: Lease of the strays.
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
            "op": "place",
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
    """Locks a session; without a name, whichever has waited longest for its turn.

    Attributes:
        accepted: Its name, None where none was locked; known when done.
        held: Whether somebody else holds the one that was asked for.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
    """

    __slots__ = ("accepted", "expiry", "held", "lease", "lock_ms", "most", "session")

    def __init__(self, ledger: Ledger, lease: str, session: str | None, lock_ms: int, most: int) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.session = session
        self.lock_ms = lock_ms
        self.most = most
        self.accepted: str | None = None
        self.held = False
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {"op": "accept", "lease": self.lease, "lock_ms": self.lock_ms, "most": self.most}
        return arguments if self.session is None else arguments | {"session": self.session}

    @override
    def undo(self) -> Operation | None:
        return None if self.accepted is None else Leave(self.ledger, self.lease)

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.held = "held" in reply
        self.accepted = reply.get("session")
        self.expiry = int(reply.get("expiry", 0))
        super().resolve(reply)


class Next(Operation):
    """Grants the next messages of a locked session.

    Attributes:
        gone: Whether the lock has expired; known when done.
        unfiled: Whether nothing may be granted before returned ranges are placed in their sessions.
        again: First and last offset and delivery count of what was granted, in the session's order.
        expiry: When the lock expires, ms since 1970 on Redis's clock.
        cursor: Up to where the log was filed.
        ruled: Whether a subscription's rules were changed since those by which the caller goes.
        now: When that was, ms since 1970 on Redis's clock.
    """

    __slots__ = ("again", "cursor", "expiry", "gone", "lease", "now", "ruled", "rules", "unfiled", "want")

    def __init__(self, ledger: Ledger, lease: str, want: int, rules: int = 0) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.want = want
        self.rules = rules
        self.gone = self.unfiled = self.ruled = False
        self.again: list[tuple[int, int, int]] = []
        self.expiry = self.cursor = self.now = 0

    @override
    def arguments(self) -> dict[str, Any]:
        return _with_rules({"op": "next", "lease": self.lease, "want": self.want}, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, [(first, last) for first, last, _ in self.again])

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.gone, self.unfiled = "gone" in reply, "unfiled" in reply
        if not (self.gone or self.unfiled):
            self.again = read_runs(reply["again"])
            self.expiry, self.cursor, self.now = int(reply["expiry"]), int(reply["cursor"]), reply["now"]
            self.ruled = "ruled" in reply
        super().resolve(reply)


class Extend(Operation):
    """Locks a session anew.

    Attributes:
        expiry: When the lock expires now, ms since 1970 on Redis's clock; None where it had expired. Known when done.
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
    """Gives a session up: what was granted and not settled goes back to it, no delivery counted."""

    __slots__ = ("lease",)

    def __init__(self, ledger: Ledger, lease: str) -> None:
        super().__init__(ledger)
        self.lease = lease

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "leave", "lease": self.lease}


class Sessions(Operation):
    """Asks for the names of all sessions that have messages waiting or are locked.

    Attributes:
        names: Them, known when done.
    """

    __slots__ = ("names",)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.names: list[str] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "sessions"}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.names = list(reply["names"])
        super().resolve(reply)


@dataclass(frozen=True, slots=True)
class State:
    """What an application keeps of a session.

    Attributes:
        session: Its name.
        version: A later state has a higher one.
        updated: When it was set, ms since 1970 on Redis's clock.
        value: It, in base 64; None where it was cleared.
        stored: Whether its record is known to stand.
    """

    session: str
    version: int
    updated: int
    value: str | None
    stored: bool


class _OfState(Operation):
    """Tells of the state of a session.

    Attributes:
        gone: Whether the session's lock has expired; known when done.
        state: The state, None where there is none, or nothing is left to be done.
    """

    __slots__ = ("gone", "state")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.gone = False
        self.state: State | None = None

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.gone = "gone" in reply
        if "session" in reply:
            self.state = State(
                session=reply["session"],
                version=int(reply["version"]),
                updated=int(reply["updated"]),
                value=reply.get("value"),
                stored="unstored" not in reply,
            )
        super().resolve(reply)


class GetState(_OfState):
    """Asks for the state of a locked session."""

    __slots__ = ("lease",)

    def __init__(self, ledger: Ledger, lease: str) -> None:
        super().__init__(ledger)
        self.lease = lease

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "state", "lease": self.lease}


class SetState(_OfState):
    """Sets the state of a locked session, in base 64; None clears it."""

    __slots__ = ("lease", "value")

    def __init__(self, ledger: Ledger, lease: str, value: str | None) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.value = value

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {"op": "set_state", "lease": self.lease}
        return arguments if self.value is None else arguments | {"value": self.value}


class StateStored(_OfState):
    """Says that a record of a state was stored; ``state`` is what is to be stored instead, where that is another.

    Attributes:
        lost: Whether that is not a later one: Redis lost this one, and the session's lock with it. Known when done.
    """

    __slots__ = ("lost", "session", "version")

    def __init__(self, ledger: Ledger, session: str, version: int) -> None:
        super().__init__(ledger)
        self.session = session
        self.version = version
        self.lost = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "stored", "session": self.session, "version": self.version}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = "lost" in reply
        super().resolve(reply)


class StatesUpdated(Operation):
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
        return {"op": "updated", "after": self.after}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.names = list(reply["names"])
        super().resolve(reply)


class Recall(Operation):
    """Locks deferred messages, all of them or none.

    Attributes:
        gone: Whether nothing was done because the session's lock, by which they were to be locked, has expired.
        missing: Ranges that are not deferred, for which nothing was done; known when done.
        again: First and last offset and delivery count of what was locked.
        ruled: Whether a subscription's rules were changed since those by which the caller goes.
        now: When that was, ms since 1970 on Redis's clock.
        expiry: When the locks expire, ms since 1970 on Redis's clock.
    """

    __slots__ = ("again", "expiry", "gone", "lease", "lock_ms", "missing", "now", "ranges", "ruled", "rules", "session")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        ranges: Sequence[Range],
        lock_ms: int,
        *,
        session: bool = False,
        rules: int = 0,
    ) -> None:
        super().__init__(ledger)
        self.session = session
        self.rules = rules
        self.gone = self.ruled = False
        self.lease = lease
        self.ranges = ranges
        self.lock_ms = lock_ms
        self.missing: list[Range] = []
        self.again: list[tuple[int, int, int]] = []
        self.now = 0
        self.expiry = 0

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {
            "op": "recall",
            "lease": self.lease,
            "ranges": self.ranges,
            "lock_ms": self.lock_ms,
            "session": self.session,
        }
        return _with_rules(arguments, self.rules)

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, [(first, last) for first, last, _ in self.again])

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.missing, self.gone = read_ranges(reply["missing"]), "gone" in reply
        if not (self.missing or self.gone):
            self.again = [(int(first), int(last), int(count)) for first, last, count in reply["again"]]
            self.now = reply["now"]
            self.expiry = int(reply["expiry"])
            self.ruled = "ruled" in reply
        super().resolve(reply)


class Seize(Operation):
    """Locks what waits in ranges of offsets, wherever it waits, or what was delivered too often.

    Attributes:
        again: First and last offset, delivery count, and whether it was deferred, of what was locked; known when done.
        expiry: When the locks expire, ms since 1970 on Redis's clock.
    """

    __slots__ = ("_arguments", "again", "expiry", "lease")

    def __init__(
        self,
        ledger: Ledger,
        lease: str,
        ranges: Sequence[Range],
        lock_ms: int,
        seen: Seen | None = None,
        rules: int = 0,
    ) -> None:
        super().__init__(ledger)
        self.lease = lease
        self.again: list[tuple[int, int, int, bool]] = []
        self.expiry = 0
        arguments: dict[str, Any] = {"op": "seize", "lease": lease, "ranges": ranges, "lock_ms": lock_ms}
        if seen is not None:
            arguments |= {"from": seen.start, "upto": seen.upto, **seen.epochs}
        self._arguments = _with_rules(arguments, rules)

    @classmethod
    def hopeless(cls, ledger: Ledger, lease: str, count: int, lock_ms: int, limit: int) -> Seize:
        """Locks up to ``limit`` returned ranges that were delivered ``count`` times or more."""
        seize = cls(ledger, lease, [], lock_ms)
        seize._arguments = {"op": "hopeless", "lease": lease, "count": count, "lock_ms": lock_ms, "limit": limit}
        return seize

    @override
    def undo(self) -> Operation:
        return Settlement(self.ledger, "release", self.lease, None)

    @override
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.again = [(int(first), int(last), int(count), kind == "d") for first, last, count, kind in reply["again"]]
        self.expiry = int(reply["expiry"])
        super().resolve(reply)


MarkName = Literal["mortal", "schedules", "transacts"]
"""What senders say of a log: that it may hold messages with times to live of their own, scheduled ones, transactions'."""
MARKS: tuple[MarkName, ...] = ("mortal", "schedules", "transacts")


class Mark(Operation):
    """Says what a log may hold.

    Args:
        ledger: Of the log.
        name: What.
    """

    __slots__ = ("name",)

    def __init__(self, ledger: Ledger, name: MarkName) -> None:
        super().__init__(ledger)
        self.name = name

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "mark", "name": self.name}


class Rule(Operation):
    """Has nothing granted any more that was chosen by earlier rules of a subscription than these.

    Attributes:
        counts_from: From which offset on they count: the end of the log when that was said first; known when done.
    """

    __slots__ = ("_end", "counts_from", "version")

    def __init__(self, ledger: Ledger, version: int, end: int) -> None:
        super().__init__(ledger)
        self.version = version
        self.counts_from = 0
        self._end = end

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "rule", "version": self.version, "end": self._end}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.counts_from = int(reply["from"])
        super().resolve(reply)


class Schedule(Operation):
    """Says which records were stored whose time has not come; see ``lua/schedule.lua``.

    Args:
        ledger: Where.
        items: Offset, and when it is due, ms since 1970 on Redis's clock, of each, ascending.
    """

    __slots__ = ("items",)

    def __init__(self, ledger: Ledger, items: Sequence[tuple[int, int]]) -> None:
        super().__init__(ledger)
        self.items = items

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "schedule", "items": self.items}


class Postpone(Schedule):
    """Says likewise of messages of a lease, which leave it.

    Attributes:
        lost: Ranges that the lease did not hold any more, known when done.
    """

    __slots__ = ("lease", "lost")

    def __init__(self, ledger: Ledger, lease: str, items: Sequence[tuple[int, int]]) -> None:
        super().__init__(ledger, items)
        self.lease = lease
        self.lost: list[Range] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "postpone", "lease": self.lease, "items": self.items}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.lost = read_ranges(reply["lost"])
        super().resolve(reply)


class Cancel(Operation):
    """Settles messages that wait for their time.

    Attributes:
        missing: Those of ``offsets`` that did not, known when done.
    """

    __slots__ = ("missing", "offsets")

    def __init__(self, ledger: Ledger, offsets: Sequence[int]) -> None:
        super().__init__(ledger)
        self.offsets = offsets
        self.missing: list[int] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "cancel", "offsets": self.offsets}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.missing = list(map(int, reply["missing"]))
        super().resolve(reply)


class Activate(Operation):
    """Begins transfers of messages whose time has come.

    Args:
        ledger: Where.
        limit: Of how many at the most.
        intent: What the transfers are to do.
        orphan_ms: After how many milliseconds somebody else finishes them.
        upto_ms: The time, ms since 1970; by default the ledger's, which is wrong where Redis's clock is.

    Attributes:
        begun: Their offsets, those that were due first first; known when done.
    """

    __slots__ = ("begun", "intent", "limit", "orphan_ms", "upto_ms")

    def __init__(self, ledger: Ledger, limit: int, intent: str, orphan_ms: int, upto_ms: int | None = None) -> None:
        super().__init__(ledger)
        self.limit = limit
        self.intent = intent
        self.orphan_ms = orphan_ms
        self.upto_ms = upto_ms
        self.begun: list[int] = []

    @override
    def arguments(self) -> dict[str, Any]:
        return {
            "op": "activate",
            "limit": self.limit,
            "intent": self.intent,
            "orphan_ms": self.orphan_ms,
        } | ({} if self.upto_ms is None else {"upto_ms": self.upto_ms})

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.begun = list(map(int, reply["begun"]))
        super().resolve(reply)


@dataclass(frozen=True, slots=True)
class Found:
    """A range of messages that are not settled.

    Attributes:
        first: Its first offset.
        last: Its last one.
        deferred: Whether they are set aside.
        count: Their deliveries so far.
        scheduled: Whether they wait for their time.
    """

    first: int
    last: int
    deferred: bool
    count: int
    scheduled: bool = False


class Peek(Operation):
    """Looks at up to ``limit`` messages below the cursor, all or those that may be of a session.

    Attributes:
        cursor: The ledger's; from there on all messages but ``voids`` wait. Known when done.
        found: What is not settled below it, and scheduled beyond it, ascending.
        voids: Offsets of records beyond it that are no messages.
    """

    __slots__ = ("cursor", "found", "limit", "session", "start", "voids")

    def __init__(self, ledger: Ledger, start: int, limit: int, session: str | None = None) -> None:
        super().__init__(ledger)
        self.session = session
        self.start = start
        self.limit = limit
        self.cursor = 0
        self.found: list[Found] = []
        self.voids: set[int] = set()

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {"op": "peek", "from": self.start, "limit": self.limit}
        return arguments if self.session is None else arguments | {"session": self.session}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.cursor = int(reply["cursor"])
        self.found = [
            Found(int(first), int(last), kind == "d", int(count), kind == "t")
            for first, last, kind, count in reply["found"]
        ]
        self.voids = set(map(int, reply["voids"]))
        super().resolve(reply)


class Judge(Operation):
    """Finds which of the records that were read are duplicates; see ``lua/detect.lua``.

    Args:
        ledger: Where.
        start: Every record from here …
        upto: … to before here was read.
        ids: Offset, id, time in ms since 1970, and source where it is a copy, of each that has an id, ascending.
        epochs: Leader epochs of records before ``upto``, as far as they are known, ascending: the offset of the first
            with each.
        window_ms: For how long an id counts.
        log_start: What lies before counts no more; None where that is not known, or was said before.

    Attributes:
        start: As given.
        ahead: Whether nothing was judged, because what lies before was not; known when done.
        judged: Up to where it is known which records are duplicates.
        torn: The latest leader epoch of the records that were judged, where one of those seen has a later one: the log was
            truncated. Else None.
    """

    __slots__ = ("_arguments", "ahead", "judged", "start", "torn")

    def __init__(
        self,
        ledger: Ledger,
        start: int,
        upto: int,
        ids: Sequence[Sequence[object]],
        epochs: Sequence[tuple[int, int]],
        window_ms: int,
        log_start: int | None = None,
    ) -> None:
        super().__init__(ledger)
        self.start = start
        self.ahead = False
        self.judged = 0
        self.torn: int | None = None
        self._arguments: dict[str, Any] = {
            "op": "judge",
            "from": start,
            "upto": upto,
            "ids": ids,
            "epochs": epochs,
            "window": window_ms,
        }
        if log_start is not None:
            self._arguments["start"] = log_start

    @override
    def arguments(self) -> dict[str, Any]:
        return self._arguments

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.ahead, self.judged = "ahead" in reply, int(reply["judged"])
        self.torn = int(reply["torn"]) if "torn" in reply else None
        super().resolve(reply)


class Purge(Operation):
    """Settles what waits below ``upto``, unseen.

    Attributes:
        purged: How many offsets were, known when done.
        more: Whether more than ``limit`` ranges that were granted before waited, so that it is to be done again.
    """

    __slots__ = ("limit", "more", "purged", "upto")

    def __init__(self, ledger: Ledger, upto: int, limit: int = 1000) -> None:
        super().__init__(ledger)
        self.upto = upto
        self.limit = limit
        self.purged = 0
        self.more = False

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "purge", "upto": self.upto, "limit": self.limit}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.purged = int(reply["purged"])
        self.more = bool(reply["more"])
        super().resolve(reply)


class Keep(Operation):
    """Asks for all that is to be written down of a ledger.

    Args:
        ledger: Which.
        close: Whether another one follows it, so that no transaction prepares anything here any more.

    Attributes:
        snapshot: It, known when done.
    """

    __slots__ = ("_close", "snapshot")

    def __init__(self, ledger: Ledger, *, close: bool = False) -> None:
        super().__init__(ledger)
        self._close = close
        self.snapshot = Snapshot(0, 0)

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "snapshot", "close": True} if self._close else {"op": "snapshot"}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        duplicates = set(map(int, reply.get("duplicates", ())))
        self.snapshot = Snapshot(
            cursor=int(reply["cursor"]),
            version=int(reply["version"]),
            mortal="mortal" in reply,
            waiting=[(int(first), int(last), int(count)) for first, last, count in reply["waiting"]],
            deferred=[(int(first), int(last), int(count)) for first, last, count in reply["deferred"]],
            moving=[(int(offset), int(count), intent) for offset, count, intent in reply["moving"]],
            # Those that were found to be duplicates are voids anyway.
            voids=[offset for offset in map(int, reply["voids"]) if offset not in duplicates],
            epoch=int(reply["epoch"]) if "epoch" in reply else None,
            schedules="schedules" in reply,
            scheduled=[(int(offset), int(when)) for offset, when in reply["scheduled"]],
            judged=int(reply["judged"]) if "judged" in reply else None,
            judged_epoch=int(reply["judged_epoch"]) if "judged_epoch" in reply else None,
            duplicates=merge_offsets(duplicates),
        )
        super().resolve(reply)


@dataclass(slots=True)
class Request:
    """A numbered request.

    Attributes:
        groups: Its operations in the order in which the ledger does them; those of a group it does as one.
        payload: What is to be done, as the script reads it.
        names: Of the operations.
    """

    ledger: Ledger
    number: int
    operations: list[Operation]
    groups: list[list[Operation]] = field(init=False)
    payload: str = field(init=False)
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = _groups(self.operations)
        arguments = [_arguments(group) for group in self.groups]
        self.payload = json.dumps(arguments, separators=(",", ":"))
        self.names = frozenset(one["op"] for one in arguments)

    def script_arguments(self) -> tuple[object, ...]:
        """What follows the script's name in ``EVALSHA``: the number of keys, the keys, the arguments."""
        ledger = self.ledger
        keys = ledger.script_keys
        return (len(keys), *keys, self.number, ledger.channel, ledger.partition, self.payload)


def _groups(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Operations in groups that the ledger does as one: settlements of one kind, out of one lease, none named twice."""
    groups: dict[object, list[Operation]] = {}
    seen: set[tuple[str, str, int]] = set()
    for operation in operations:
        single = operation.single
        groups.setdefault(operation if single is None or single in seen else single[:2], []).append(operation)
        if single is not None:
            seen.add(single)
    return list(groups.values())


def _arguments(group: list[Operation]) -> dict[str, Any]:
    arguments = group[0].arguments()
    if len(group) > 1:
        arguments["ranges"] = words_of(merge_offsets(single[2] for one in group if (single := one.single)))
    return arguments


def new_lease() -> str:
    """A lease id, as clients make them up: 64 random bits, so that no two are alike."""
    return os.urandom(8).hex()


def _with_rules(arguments: dict[str, Any], rules: int) -> dict[str, Any]:
    """Where an operation is about a subscription, the version of the rules by which the caller goes."""
    return arguments | {"rules": rules} if rules else arguments


def read_granted(reply: dict[str, Any]) -> Granted:
    """What a claim was granted, and where the ledger stands, out of its reply."""
    due = reply.get("due")
    return Granted(
        again=[(int(first), int(last), int(count)) for first, last, count in reply["again"]],
        fresh=read_ranges(reply["fresh"]),
        cursor=int(reply["cursor"]),
        ahead=bool(reply.get("ahead")),
        now=reply["now"],
        expiry=int(reply["expiry"]),
        returned=int(reply["returned"]),
        due_in=None if not due else max(0.0, (int(due) - reply["now"]) / 1000),
        moves=bool(reply["moves"]),
        limited="limited" in reply,
        unproved="unproved" in reply,
        free="free" in reply,
        overdue="overdue" in reply,
        ruled="ruled" in reply,
    )


_GRANTING = (Accept, Claim, Filing, Next, Recall)
"""Operations that make something their caller's, and come last in a request: what is given back in it is granted again."""


def words_of(ranges: Iterable[Range]) -> str:
    """Ranges as the scripts of settling read them: ``"17,20-22"``."""
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in ranges])


def words_of_offsets(ascending: Sequence[int]) -> str:
    """Likewise, of offsets in ascending order."""
    if _are_apart(ascending):
        return ",".join(map(str, ascending))
    return words_of(merge_offsets(ascending))


def _are_apart(ascending: Sequence[int]) -> bool:
    """Whether no offset follows another one at once: such come, message for message, where sessions take turns."""
    return 1 not in map(operator.sub, ascending[1:], ascending)


def read_runs(words: str) -> list[Counted]:
    """Counted ranges as the scripts have them: ``"17,20-22*1"``; those that touch and have the same count are one."""
    if words and "-" not in words and "*" not in words:
        offsets = list(map(int, words.split(",")))
        if _are_apart(offsets):
            return [(offset, offset, 0) for offset in offsets]
    return joined((int(first), int(last or first), int(count or 0)) for first, last, count in _RUN.findall(words))


def read_ranges(reply: Iterable[Sequence[str]]) -> list[Range]:
    """Ranges out of a reply; Lua writes an empty list as an empty object."""
    return [(int(first), int(last)) for first, last in reply]
