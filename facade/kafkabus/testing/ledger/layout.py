"""The state of a ledger, as ``lua/layout.lua`` lays it out in keys and in fields of ``meta``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from kafkabus._ledger.operations import MarkName

Kind = Literal["n", "d", "s"]
"""The kind of a lease's messages: ``d`` if they were deferred and become deferred again, ``s`` if their expiry counts no
delivery, else ``n``."""


class MessageState(Enum):
    """The state of a message that was granted before, or seized: the key that has it."""

    FILED = "sessions"
    """In its session, to be granted to the receiver that locks the session."""
    REDELIVERABLE = "redeliverable"
    """To be granted again."""
    LEASED = "leases"
    """Locked under a lease until a moment."""
    DEFERRED = "deferred"
    """Only to be received by offset."""
    POSTPONED = "postponed"
    """To be granted again, not before its time. In a ledger with sessions, such a message is filed or redeliverable."""
    SCHEDULED = "scheduled"
    """Not to be granted before its time."""
    MOVING = "moving"
    """On its way into another log."""
    PREPARED = "prepared"
    """Settled, or not, by a transaction; the scripts have it among the moving ones."""
    MOVED = "moved"
    """Moved into another log; the ledger remembers the place for a while."""


@dataclass(slots=True)
class Message:
    """A message in the ledger.

    Attributes:
        state: The message's state.
        count: The number of its deliveries so far.
        kind: The kind of its lease, or of the last one.
        lease: The lease that holds it.
        expiry: When its lock expires, ms.
        due: When its transfer needs attention, or its scheduled time comes, ms.
        intent: The intent of its transfer.
        at: The offset of its copy.
        verb: The operation that the transaction that prepared it does with it.
        session: The session that it is filed under.
        wakes: The time before which it is not granted, ms; 0 if it is not postponed.
        since: When its lock began, ms; 0 if its receiver did not say who it is.
        by: The receiver that has it locked, by its identifier.
    """

    state: MessageState
    count: int
    kind: Kind = "n"
    lease: str = ""
    expiry: int = 0
    due: int = 0
    intent: str = ""
    at: int = 0
    verb: str = ""
    session: str | None = None
    wakes: int = 0
    since: int = 0
    by: str = ""


@dataclass(slots=True)
class SessionHolder:
    """The lock of a session.

    Attributes:
        expiry: When the lock expires, ms.
        max_deliveries: The number of deliveries after which a message is dead-lettered.
        name: The session's id.
        since: When the lock began, ms; 0 if its receiver did not say who it is.
        by: The receiver that has it, by its identifier.
    """

    expiry: int
    max_deliveries: int
    name: str
    since: int = 0
    by: str = ""


@dataclass(slots=True)
class SavedState:
    """The state that an application keeps of a session.

    Attributes:
        version: The version of the state, which grows with each change.
        updated: When the state was set, ms.
        stored: Whether the record of the state is stored in Kafka.
        value: The state in base 64; None if it was cleared.
    """

    version: int
    updated: int
    stored: bool
    value: str | None


@dataclass(frozen=True, slots=True)
class Identifier:
    """The latest message with an id.

    Attributes:
        offset: The message's offset.
        when: When it was stored, ms.
        source: The message of which it is a copy; empty if it is none.
    """

    offset: int
    when: int
    source: str


@dataclass(slots=True)
class SessionKeys:
    """The keys that a ledger has if messages have sessions.

    Attributes:
        enabled: Whether messages have sessions.
        filer_lease: The lease whose messages are being filed in their sessions.
        sessions_unfiled: Whether nothing may be granted before all messages are filed.
        cleared: The highest version of a session's state that was cleared, and whose record is stored.
        free: The sessions that wait and that no client holds, in the order of their turns.
        holders: The lock of a session by its lease.
        states: The state of each session that has one.
    """

    enabled: bool = False
    filer_lease: str | None = None
    sessions_unfiled: bool = False
    cleared: int = 0
    free: dict[str, None] = field(default_factory=dict)
    holders: dict[str, SessionHolder] = field(default_factory=dict)
    states: dict[str, SavedState] = field(default_factory=dict)


@dataclass(slots=True)
class DuplicateKeys:
    """The keys and fields that a ledger has if duplicates are detected.

    Attributes:
        dedup_upto: The offset up to which duplicates are known; None without duplicate detection.
        dedup_checkpoint: The offset up to which a checkpoint knows them.
        dedup_epoch: The latest leader epoch of a record below both; -1 if it is unknown.
        log_truncated: Whether the running request found that scanned records are gone from the log.
        duplicates: The offsets of duplicates.
        ids: The latest message with each id.
    """

    dedup_upto: int | None = None
    dedup_checkpoint: int = 0
    dedup_epoch: int = -1
    log_truncated: bool = False
    duplicates: set[int] = field(default_factory=set)
    ids: dict[str, Identifier] = field(default_factory=dict)


@dataclass(slots=True)
class Properties:
    """The changed application properties of messages.

    Attributes:
        changes: The changes by offset, and whether a transaction that is not over makes them.
        may_exist: Whether any may be kept, by the ledger's count.
    """

    changes: dict[tuple[int, bool], dict[str, str]] = field(default_factory=dict)
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """The delays after which returned messages are available again.

    Attributes:
        delays: The delay after each delivery, ms; the last one counts after all later ones.
        most: The number of deliveries after which a message is dead-lettered, without a delay.
    """

    delays: Sequence[int]
    most: int

    def find_delay(self, count: int) -> int:
        """Return the delay after so many deliveries, ms; 0 if a message is not to be delivered again."""
        return self.delays[min(count, len(self.delays)) - 1] if count < self.most else 0


@dataclass(slots=True)
class Postponing:
    """The parts of a ledger that postpone messages.

    Attributes:
        policy: The entity's retry policy, as the running request says; None without one.
        was_used: Whether any message was ever postponed.
    """

    policy: RetryDelays | None = None
    was_used: bool = False


@dataclass(slots=True)
class MemoryLedger:
    """A ledger in memory.

    Attributes:
        cursor: The first offset that was never granted.
        version: The version, which every request raises.
        epoch: Leader epoch of the record right before the cursor; empty if it is unknown.
        leader: The latest leader epoch of the records before the cursor; empty if none is known.
        marks: The marks that senders set on the log.
        rules: The version of a subscription's rules that a claiming client must know.
        rules_from: The offset from which that version counts; None if it is unknown.
        late: Transfers that were not finished in time: the size of a copy that its destination refuses, else 0, by offset.
        returned: The number of deliveries after which messages waited again.
        closed: Whether no transaction prepares anything any more.
        changed: The name of the last request that may have changed anything; empty if none did.
        now: The time of the running request, ms since 1970.
        postponing: The retry policy, and whether any message was ever postponed.
        notify: Whether the last request made messages available.
        messages: The messages that were granted, seized, scheduled or filed, by offset.
        skipped: The records that no claim may grant; those before the cursor do not count.
        properties: The changed properties of messages.
        sessions: The keys for sessions.
        duplicates: The keys for duplicates.
        slots: The number of each client's last request, and its reply.
    """

    cursor: int
    version: int = 1
    epoch: str = ""
    leader: str = ""
    marks: set[MarkName] = field(default_factory=set)
    rules: int = 0
    rules_from: int | None = None
    late: dict[int, int] = field(default_factory=dict)
    returned: int = 0
    closed: bool = False
    changed: str = ""
    now: int = 0
    postponing: Postponing = field(default_factory=Postponing)
    notify: bool = False
    messages: dict[int, Message] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    properties: Properties = field(default_factory=Properties)
    sessions: SessionKeys = field(default_factory=SessionKeys)
    duplicates: DuplicateKeys = field(default_factory=DuplicateKeys)
    slots: dict[str, tuple[int, str]] = field(default_factory=dict)

    def messages_in(self, *states: MessageState) -> list[tuple[int, Message]]:
        """Return the messages in these states, in the log's order."""
        return sorted(
            ((offset, message) for offset, message in self.messages.items() if message.state in states),
            key=lambda item: item[0],
        )

    def is_in(self, offset: int, *states: MessageState) -> bool:
        """Return whether there is a message at an offset, in one of these states."""
        message = self.messages.get(offset)
        return message is not None and message.state in states

    @property
    def in_flight(self) -> int:
        """The number of messages that were granted and are not settled."""
        return sum(message.state is not MessageState.MOVED for message in self.messages.values())

    @property
    def postponed(self) -> list[Message]:
        """The messages that are postponed; there is no search as long as none ever was."""
        return [message for message in self.messages.values() if message.wakes] if self.postponing.was_used else []

    @property
    def skipped_ahead(self) -> list[int]:
        """The records beyond the cursor that no claim may grant."""
        return sorted(offset for offset in self.skipped if offset >= self.cursor)

    def meta_fields(self) -> dict[str, str]:
        """Return the fields of the key ``meta`` that clients read."""
        fields = {
            "cursor": self.cursor,
            "in_flight": self.in_flight,
            "version": self.version,
            "moving": len(self.messages_in(MessageState.MOVING)),
            "changed": self.changed,
            "epoch": self.epoch,
        }
        if self.duplicates.dedup_upto is not None:
            fields["dedup_upto"] = self.duplicates.dedup_upto
        if self.skipped_ahead:
            fields["skipped"] = 1
        if postponed := self.postponed:
            fields["postponed"] = len(postponed)
        if "schedules" in self.marks:
            fields["scheduled"] = len(self.messages_in(MessageState.SCHEDULED))
        return {name: str(value) for name, value in fields.items()} | dict.fromkeys(self.marks, "1")

    def property_fields(self) -> dict[str, str]:
        """Return the fields of the key ``properties``."""
        return {
            f"{'?' * prepared}{offset}": json.dumps(change)
            for (offset, prepared), change in self.properties.changes.items()
        }
