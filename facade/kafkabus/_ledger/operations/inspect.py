"""Operations of ``lua/inspect.lua``: looking at what is not settled, and what a ledger is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation


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
        cursor: The ledger's; from there on all messages but ``skipped`` wait. Known when done.
        found: What is not settled below it, and scheduled beyond it, ascending.
        skipped: Offsets of records beyond it that are no messages.
    """

    __slots__ = ("cursor", "found", "limit", "session", "skipped", "start")

    def __init__(self, ledger: Ledger, start: int, limit: int, session: str | None = None) -> None:
        super().__init__(ledger)
        self.session = session
        self.start = start
        self.limit = limit
        self.cursor = 0
        self.found: list[Found] = []
        self.skipped: set[int] = set()

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
        self.skipped = set(map(int, reply["skipped"]))
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


MarkName = Literal["has_message_ttl", "schedules", "transacts"]
"""What senders say of a log: that it may hold messages with times to live of their own, scheduled ones, transactions'."""


MARKS: tuple[MarkName, ...] = ("has_message_ttl", "schedules", "transacts")


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
