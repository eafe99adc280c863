"""Operations of ``lua/inspect.lua``: looking at messages that are not settled, and reporting log and rules to a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from kafkabus._ledger.operations.base import Ledger, Operation


@dataclass(frozen=True, slots=True)
class PeekedRange:
    """A range of messages that are not settled.

    Attributes:
        first: Its first offset.
        last: Its last one.
        deferred: Whether the messages are set aside.
        count: Their deliveries so far.
        scheduled: Whether the messages wait for their time.
        postponed_until: The time before which they are not granted again, ms since 1970; None if they are not postponed.
        locked_until: The time until which a receiver has them locked, ms since 1970; None if none has.
    """

    first: int
    last: int
    deferred: bool
    count: int
    scheduled: bool = False
    postponed_until: int | None = None
    locked_until: int | None = None


class Peek(Operation):
    """Looks at up to ``limit`` messages below the cursor: all messages, or those that may be of a session.

    Attributes:
        cursor: The ledger's cursor; from there on all messages but ``skipped`` wait. Known when done.
        found: Messages below the cursor that are not settled, and scheduled ones beyond it, ascending.
        skipped: Offsets of records beyond the cursor that are no messages.
    """

    __slots__ = ("cursor", "found", "limit", "session", "skipped", "start")

    def __init__(self, ledger: Ledger, start: int, limit: int, session: str | None = None) -> None:
        super().__init__(ledger)
        self.session = session
        self.start = start
        self.limit = limit
        self.cursor = 0
        self.found: list[PeekedRange] = []
        self.skipped: set[int] = set()

    @override
    def arguments(self) -> dict[str, Any]:
        arguments = {"op": "peek", "from": self.start, "limit": self.limit}
        return arguments if self.session is None else arguments | {"session": self.session}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.cursor = int(reply["cursor"])
        self.found = [
            PeekedRange(
                int(first),
                int(last),
                kind == "d",
                int(count),
                kind == "t",
                # A message whose time has come may still be listed as postponed.
                int(until[0]) if until and kind == "p" else None,
                int(until[0]) if until and kind != "p" else None,
            )
            for first, last, kind, count, *until in reply["found"]
        ]
        self.skipped = set(map(int, reply["skipped"]))
        super().resolve(reply)


class Purge(Operation):
    """Settles messages that wait below ``upto``, postponed ones too, unseen.

    Attributes:
        purged: How many offsets were settled; known when done.
        more: Whether ``limit`` ranges that were granted before waited, so that the purge is to be done again.
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
"""A mark that senders set on a log: it may hold messages with individual times to live, scheduled ones, transactions'."""


MARKS: tuple[MarkName, ...] = ("has_message_ttl", "schedules", "transacts")


class Mark(Operation):
    """Reports to a ledger what its log may hold.

    Args:
        ledger: The log's ledger.
        name: The mark.
    """

    __slots__ = ("name",)

    def __init__(self, ledger: Ledger, name: MarkName) -> None:
        super().__init__(ledger)
        self.name = name

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "mark", "name": self.name}


class SetRulesVersion(Operation):
    """Has no message granted any more that earlier rules of a subscription than these chose.

    Attributes:
        counts_from: The offset from which on these rules count: the end of the log when the ledger first received them, or
            the cursor if that was beyond; known when done.
    """

    __slots__ = ("_end", "counts_from", "version")

    def __init__(self, ledger: Ledger, version: int, end: int) -> None:
        super().__init__(ledger)
        self.version = version
        self.counts_from = 0
        self._end = end

    @override
    def arguments(self) -> dict[str, Any]:
        return {"op": "set_rules_version", "version": self.version, "end": self._end}

    @override
    def resolve(self, reply: dict[str, Any]) -> None:
        self.counts_from = int(reply["from"])
        super().resolve(reply)
