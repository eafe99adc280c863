"""A ledger without Redis: the state of each message, and the changes that operations make to it.

This is a plain model of the scripts in ``kafkabus/_ledger/lua``. It keeps no ranges and no bits, searches through all
messages, and gives the same replies as the scripts; tests run both and compare. The opening comments of the Lua files give
the arguments and the reply of each operation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafkabus._ledger.operations import read_runs
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of

Arguments = dict[str, Any]
Reply = dict[str, Any]


OVERDUE_MS = 2000
"""How long a claim waits for a client that activates scheduled messages, in ms, as in ``lua/claim.lua``."""


class MessageState(Enum):
    """The state of a message that was granted before, or seized."""

    FILED = "filed"
    """In its session, to be granted to the receiver that locks the session."""
    REDELIVERABLE = "redeliverable"
    """To be granted again."""
    LEASED = "leased"
    """Locked under a lease until a moment."""
    DEFERRED = "deferred"
    """Only to be received by offset."""
    SCHEDULED = "scheduled"
    """Not to be granted before its time."""
    MOVING = "moving"
    """On its way into another log."""
    PREPARED = "prepared"
    """Settled, or not, by a transaction."""
    MOVED = "moved"
    """Moved into another log; the ledger remembers the place for a while."""


LOOKING = {"claim", "peek", "snapshot", "refused"}
MOST_LATE = 100
"""How many late transfers are noted; see ``lua/transfer.lua``."""
"""Operations that may change nothing; if one does, messages get into other states, or the cursor moves."""
TIMED = {
    MessageState.LEASED,
    MessageState.SCHEDULED,
    MessageState.MOVING,
    MessageState.PREPARED,
    MessageState.MOVED,
}
"""The states that end, or want attention, at a time."""


@dataclass(slots=True)
class Message:
    """A message in the ledger.

    Attributes:
        state: The message's state.
        count: The number of its deliveries so far.
        lease: The lease that holds it.
        expiry: When its lock expires, ms.
        deferred: Whether it was deferred before it was leased, and becomes deferred again afterwards.
        due: When its transfer needs attention, or its scheduled time comes, ms.
        intent: The intent of its transfer.
        at: The offset of its copy.
        verb: The operation that the transaction that prepared it does with it.
        session: The session that it is filed under.
        sorted: Whether its lease is only for sorting it into a session, so that no delivery is counted.
    """

    state: MessageState
    count: int
    lease: str = ""
    expiry: int = 0
    deferred: bool = False
    due: int = 0
    intent: str = ""
    at: int = 0
    verb: str = ""
    session: str | None = None
    sorted: bool = False


@dataclass(slots=True)
class Lock:
    """The lock of a session.

    Attributes:
        session: The session's id.
        expiry: When the lock expires, ms.
        most: The number of deliveries after which a message is dead-lettered.
    """

    session: str
    expiry: int
    most: int


@dataclass(slots=True)
class SessionState:
    """The state that an application keeps of a session.

    Attributes:
        version: The version of the state, which grows with each change.
        updated: When the state was set, ms.
        value: The state in base 64; None if it was cleared.
        stored: Whether the record of the state is stored in Kafka.
    """

    version: int
    updated: int
    value: str | None
    stored: bool = False


class MemoryLedger:
    """A ledger in memory.

    Args:
        cursor: The first offset to grant.
        has_message_ttl: Whether messages have their own time to live.
        version: The first version.

    Attributes:
        cursor: The first offset that was never granted.
        version: The version, which every request raises.
        has_message_ttl: The argument, or the value that was marked since.
        epoch: Leader epoch of the record right before the cursor; empty if it is unknown.
        leader: The latest leader epoch of the records before the cursor; empty if none is known.
        notify: Whether the last request made messages available.
        changed: The name of the last request that may have changed anything; empty if none did.
        has_sessions: Whether messages are filed under sessions.
        dedup_upto: The offset up to which duplicates are known; None without duplicate detection.
        schedules: Whether records of scheduled messages are in the log.
        transacts: Whether transactions may have stored records in it.
        rules: The version of a subscription's rules that a claiming client must know.
    """

    def __init__(
        self, cursor: int, *, has_message_ttl: bool = False, version: int = 1, dedup_upto: int | None = None
    ) -> None:
        self.cursor = cursor
        self.version = version
        self.has_message_ttl = has_message_ttl
        self.epoch = ""
        self.leader = ""
        self.notify = False
        self.changed = ""
        self.has_sessions = False
        self.dedup_upto = dedup_upto
        self.schedules = False
        self.transacts = False
        self.rules = 0
        self._ruled_from: int | None = None
        self._proven = 0
        self._dedup_epoch = -1
        self._torn = False
        self._duplicates: set[int] = set()
        self._ids: dict[str, tuple[int, int, str]] = {}
        self._messages: dict[int, Message] = {}
        self._skipped: set[int] = set()
        self._slots: dict[str, tuple[int, str]] = {}
        self._locks: dict[str, Lock] = {}
        self._returned = 0
        self._free: dict[str, None] = {}
        self._filer: str | None = None
        self._unplaced = False
        self._states: dict[str, SessionState] = {}
        self._cleared = 0
        self._closed = False
        self._late: dict[int, int] = {}
        self._changed: dict[tuple[int, bool], dict[str, str]] = {}
        self._may_have_changed = False

    @classmethod
    def restored(cls, text: str, now: int) -> MemoryLedger:
        """Return a ledger restored from its checkpoint; see ``Written.to_script``."""
        state = json.loads(text)
        ledger = cls(
            int(state["cursor"]), has_message_ttl=bool(state["has_message_ttl"]), version=int(state["version"])
        )
        ledger.epoch = ledger.leader = state.get("epoch", "")
        for kind, where in (("waiting", MessageState.REDELIVERABLE), ("deferred", MessageState.DEFERRED)):
            for first, last, count in state[kind]:
                for offset in range(int(first), int(last) + 1):
                    ledger._messages[offset] = Message(where, int(count))
        for offset, count, intent in state["moving"]:
            ledger._messages[int(offset)] = Message(MessageState.MOVING, int(count), intent=intent, due=now)
        ledger._skipped, ledger.transacts = set(map(int, state["skipped"])), True
        ledger.schedules = bool(state["schedules"])
        ledger.rules = int(state.get("rules", 0))
        for offset, when in state["scheduled"]:
            ledger._messages[int(offset)] = Message(MessageState.SCHEDULED, 0, due=int(when))
            ledger._skipped.add(int(offset))
        for offset, change, prepared in state.get("changes", ()):
            ledger._change(int(offset), change, prepared=prepared)
        ledger._unplaced = bool(state["waiting"])
        if "dedup_upto" in state:
            ledger.dedup_upto, ledger._proven = int(state["dedup_upto"]), int(state["dedup_checkpoint"])
            ledger._dedup_epoch = int(state.get("dedup_epoch", -1))
            ledger._duplicates = set(offsets_of([(int(first), int(last)) for first, last in state["duplicates"]]))
            ledger._skipped |= ledger._duplicates
        for session, version_of_it, updated, value in state["states"]:
            ledger._states[session] = SessionState(int(version_of_it), int(updated), value, stored=True)
        return ledger

    @property
    def in_flight(self) -> int:
        """The number of messages that were granted and are not settled."""
        return sum(message.state is not MessageState.MOVED for message in self._messages.values())

    @property
    def scheduled(self) -> int:
        """The number of these messages that wait for their scheduled time."""
        return len(self._in(MessageState.SCHEDULED))

    @property
    def moving(self) -> int:
        """The number of these messages that are on their way into another log."""
        return len(self._in(MessageState.MOVING))

    @property
    def refused(self) -> list[tuple[int, int]]:
        """The offsets of messages whose copies their destinations refuse, and the copies' sizes in bytes."""
        return [(offset, size) for offset, size in self._late.items() if size]

    def figures(self) -> list[int]:
        """Return the numbers of ``lua/figures.lua``."""
        return [
            self.cursor,
            self.in_flight,
            self.scheduled,
            self.moving,
            len(self._skipped_ahead()),
            len(self._in(MessageState.DEFERRED)),
            len(self._in(MessageState.REDELIVERABLE)),
            len(self._locks),
            self._returned,
        ]

    def request(self, slot: str, number: int, operations: Sequence[Arguments], now: int) -> str:
        """Run a client's request, once for each of its numbers.

        Args:
            slot: The client's slot.
            number: The number of the request, which the client raises by one each time.
            operations: The operations to run, in order.
            now: The time, ms since 1970.

        Returns:
            The reply as JSON.
        """
        last, reply = self._slots.get(slot, (0, ""))
        self.notify = False
        if number == last:
            return reply
        if number < last:
            return json.dumps({"status": "stale"})
        self._torn = False
        before = self._outline()
        replies = [self._do(operation, now) for operation in operations]
        self.version += 1
        if self._outline() != before or not all(operation["op"] in LOOKING for operation in operations):
            self.changed = f"{self.version}:{now}"
        answer: Reply = {"status": "ok", "now": str(now), "replies": replies}
        reply = json.dumps(answer | ({"changes": True} if self._may_have_changed else {}))
        self._slots[slot] = (number, reply)
        return reply

    def _do(self, operation: Arguments, now: int) -> Reply:
        before = self.cursor
        ranges = operation.get("ranges")
        if isinstance(ranges, str):
            operation = operation | {"ranges": [(first, last) for first, last, _ in read_runs(ranges)]}
        reply: Reply = getattr(self, f"_{operation['op']}")(operation, now)
        if self.cursor != before:
            ahead = "ahead" in operation
            known = ahead or self.cursor <= operation.get("epoch_to", 0)
            seen = "epoch" in operation and (known or self.cursor - 1 in offsets_of(operation.get("runs", ())))
            self.leader = str(operation.get("epoch", self.leader))
            self.epoch = self.leader if seen else ""
        return reply

    def due(self) -> int | None:
        """Return when upkeep has to look at the earliest, ms since 1970; None if nothing is due at a time."""
        times = [
            message.expiry if message.state is MessageState.LEASED else message.due
            for message in self._messages.values()
            if message.state in TIMED
        ]
        return min([*times, *(lock.expiry for lock in self._locks.values())], default=None)

    def _outline(self) -> tuple[int, Counter[MessageState]]:
        return self.cursor, Counter(message.state for message in self._messages.values())

    # Operations that only read.

    def _in(self, *states: MessageState) -> list[tuple[int, Message]]:
        """Return the messages in these states, in the log's order."""
        return sorted(
            ((offset, message) for offset, message in self._messages.items() if message.state in states),
            key=lambda one: one[0],
        )

    def _is(self, offset: int, state: MessageState) -> bool:
        message = self._messages.get(offset)
        return message is not None and message.state is state

    def _peek(self, op: Arguments, _now: int) -> Reply:
        found = [
            (offset, offset, _kind(message), message.count)
            for offset, message in self._in(
                MessageState.FILED,
                MessageState.REDELIVERABLE,
                MessageState.LEASED,
                MessageState.DEFERRED,
                MessageState.SCHEDULED,
            )
            if offset >= op["from"] and self._may_be_of(op.get("session"), message)
        ]
        return {"cursor": self.cursor, "found": found[: op["limit"]], "skipped": self._skipped_ahead()}

    def _snapshot(self, op: Arguments, _now: int) -> Reply:
        self._closed = self._closed or "close" in op
        waiting: list[tuple[int, int, int]] = []
        deferred: list[tuple[int, int, int]] = []
        for offset, message in self._in(
            MessageState.FILED, MessageState.REDELIVERABLE, MessageState.LEASED, MessageState.DEFERRED
        ):
            home = deferred if message.deferred or message.state is MessageState.DEFERRED else waiting
            home.append((offset, offset, message.count + (message.state is MessageState.LEASED and not message.sorted)))
        reply: Reply = {
            "cursor": self.cursor,
            "version": self.version,
            "waiting": waiting,
            "deferred": deferred,
            "moving": [
                (offset, message.count, message.intent)
                for offset, message in self._in(MessageState.MOVING, MessageState.PREPARED)
            ],
            "skipped": self._skipped_ahead(),
            "scheduled": [(offset, message.due) for offset, message in self._in(MessageState.SCHEDULED)],
        }
        reply |= {"schedules": True} if self.schedules else {}
        if self.dedup_upto is not None:
            reply |= {"dedup_upto": max(self.dedup_upto, self._proven), "duplicates": sorted(self._duplicates)}
            reply |= {"dedup_epoch": self._dedup_epoch} if self._dedup_epoch >= 0 else {}
        self._changed = {one: change for one, change in self._changed.items() if self._is_still_changed(*one)}
        self._may_have_changed = bool(self._changed)
        if self._changed:
            reply["changed"] = sorted(self.changed_properties())
        return (
            reply
            | ({"has_message_ttl": True} if self.has_message_ttl else {})
            | ({"epoch": self.epoch} if self.epoch else {})
        )

    def _is_still_changed(self, offset: int, prepared: bool) -> bool:
        """Return whether changed properties are those of a message that is not settled."""
        message = self._messages.get(offset)
        if message is not None and message.state is MessageState.PREPARED:
            return True
        if prepared or message is None or message.state in {MessageState.SCHEDULED, MessageState.MOVED}:
            return not prepared and offset >= self.cursor
        return True

    def _may_be_of(self, session: str | None, message: Message) -> bool:
        """Return whether a message may belong to a session, as far as the ledger knows; always true without a session."""
        known = message.session if message.state is MessageState.FILED else None
        if message.state is MessageState.LEASED and message.lease in self._locks:
            known = self._locks[message.lease].session
        return session is None or known is None or known == session

    @property
    def has_voids(self) -> bool:
        """Whether some records beyond the cursor will never be granted."""
        return bool(self._skipped_ahead())

    def _skipped_ahead(self) -> list[int]:
        return sorted(offset for offset in self._skipped if offset >= self.cursor)

    # Operations that grant messages to a lease.

    def _claim(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        if "exclusive" in op:
            held = self._in(MessageState.LEASED, MessageState.MOVING, MessageState.PREPARED)
            if len(held) > len(self.refused) or self._locks:
                return self._grant(op | {"want": 0}, now) | {"limited": True, "redeliverable": 0}
            if self._in(MessageState.REDELIVERABLE):
                op = {name: value for name, value in op.items() if name not in {"from", "ahead"}}
        return self._grant(op, now)

    def _grant(self, op: Arguments, now: int) -> Reply:
        again = [] if self._placing else self._in(MessageState.REDELIVERABLE)[: op["want"]]
        granted = [(offset, offset, message.count) for offset, message in again]
        self._lease(op, (offset for offset, _ in again), now, sort=self.has_sessions or "exclusive" in op)
        if again and self.has_sessions:
            self._filer = op["lease"]
        fresh: list[int] = []
        reply: Reply = {"again": granted} | (self._ruled(op) if again or "from" in op else {})
        if op["settle_on_claim"] and (self.schedules or self._may_have_changed):
            op |= {"settle_on_claim": False}
            reply["leased"] = True
        if "ahead" in op:
            wanted = op["want"] - len(again)
            if self.leader and self.leader != str(op.get("epoch", "")):
                reply["epoch_mismatch"] = True
            elif op["ahead"] > self.cursor and wanted > 0 and self.dedup_upto is None and not self._has_stale_rules(op):
                upto = min(op["ahead"], self.cursor + wanted)
                op |= {"from": self.cursor, "upto": upto, "runs": [(self.cursor, upto - 1)]}
        if "from" in op and (refused := self._refuses(op)):
            reply[refused] = True
        elif "from" in op:
            unseen = [
                offset for offset in offsets_of(op["runs"]) if offset >= self.cursor and offset not in self._skipped
            ]
            in_flight = self.in_flight - len(self._in(MessageState.DEFERRED, MessageState.SCHEDULED))
            want = op["want"] - len(again)
            most = want if op["settle_on_claim"] else max(0, min(want, op["limit"] - in_flight))
            fresh, rest = unseen[:most], unseen[most:]
            self.cursor = rest[0] if rest else max(self.cursor, op["upto"])
            if most < want and self.cursor < op["upto"]:
                reply["limited"] = True
            if not op["settle_on_claim"]:
                self._lease(op, fresh, now, sort="exclusive" in op)
        return self._with_state(reply | {"fresh": merge_offsets(fresh), "expiry": now + op["lock_ms"]}, now)

    def _refuses(self, op: Arguments) -> str:
        """Return the reason for which the records read are not granted; empty if they are."""
        if op["from"] > self.cursor:
            return "ahead"
        if self._has_stale_rules(op):
            return "stale_rules"
        return "not_deduplicated" if self._not_deduplicated(op["upto"]) else ""

    def _has_stale_rules(self, op: Arguments) -> bool:
        """Return whether the client selected the records by rules that were changed since."""
        return bool(op.get("rules", 0) < self.rules)

    def _ruled(self, op: Arguments) -> Reply:
        """Return the reply to a client whose rules are out of date."""
        return {"stale_rules": True} if self._has_stale_rules(op) else {}

    def _with_state(self, reply: Reply, now: int) -> Reply:
        expiries = [message.expiry for _, message in self._in(MessageState.LEASED)]
        expiries += [lock.expiry for lock in self._locks.values()]
        if expiries:
            reply["due"] = min(expiries)
        if self._free:
            reply["free"] = True
        if any(message.due <= now - OVERDUE_MS for _, message in self._in(MessageState.SCHEDULED)):
            reply["overdue"] = True
        return reply | {
            "cursor": self.cursor,
            "redeliverable": 0 if self._placing else len(self._in(MessageState.REDELIVERABLE)),
            "moves": any(
                message.due <= now
                for _, message in self._in(MessageState.MOVING, MessageState.PREPARED, MessageState.MOVED)
            ),
        }

    def _recall(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        lock = self._locked_by(op["lease"], now)
        if op["session"] and lock is None:
            return {"missing": [], "gone": True}
        offsets = offsets_of(op["ranges"])
        missing = [offset for offset in offsets if not self._is(offset, MessageState.DEFERRED)]
        if missing:
            return {"missing": merge_offsets(missing)}
        self._lease(op, offsets, now, deferred=True)
        again = [(offset, offset, self._messages[offset].count) for offset in offsets]
        reply: Reply = {"missing": [], "again": again, "expiry": lock.expiry if lock else now + op["lock_ms"]}
        return reply | self._ruled(op)

    def _seize(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        if "session" in op and self._locked_by(op["session"], now) is None:
            return {"gone": True}
        outdated = self._has_stale_rules(op)
        moves = "upto" in op and op["from"] <= self.cursor and not self._not_deduplicated(op["upto"]) and not outdated
        seized: list[tuple[int, bool]] = []
        for offset in offsets_of(op["ranges"]):
            if self._is(offset, MessageState.REDELIVERABLE) or self._is(offset, MessageState.FILED):
                seized.append((offset, False))
            elif offset >= self.cursor:
                if offset not in self._skipped and not self._not_deduplicated(offset + 1) and not outdated:
                    seized.append((offset, False))
                    if not moves:
                        self._skipped.add(offset)
            elif self._is(offset, MessageState.DEFERRED):
                seized.append((offset, True))
        if moves:
            self.cursor = max(self.cursor, op["upto"])
        reply = self._seized(op, seized, now)
        self._forget_empty()
        return reply

    def _max_deliveries_exceeded(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        max_deliveries_exceeded = [
            offset for offset, message in self._in(MessageState.REDELIVERABLE) if message.count >= op["count"]
        ]
        return self._seized(op, [(offset, False) for offset in max_deliveries_exceeded[: op["limit"]]], now)

    def _seized(self, op: Arguments, seized: Sequence[tuple[int, bool]], now: int) -> Reply:
        for offset, deferred in seized:
            self._lease(op, [offset], now, deferred=deferred)
        again = [
            (offset, offset, self._messages[offset].count, "d" if deferred else "n") for offset, deferred in seized
        ]
        return {"again": again, "expiry": now + op["lock_ms"]}

    def _lease(
        self, op: Arguments, offsets: Iterable[int], now: int, *, deferred: bool = False, sort: bool = False
    ) -> None:
        for offset in offsets:
            message = self._messages.setdefault(offset, Message(MessageState.LEASED, 0))
            message.state, message.lease, message.deferred = MessageState.LEASED, op["lease"], deferred
            message.expiry, message.sorted = now + op["lock_ms"], sort

    # Making messages available again.

    def _expire(self, now: int) -> None:
        expired = [(lock.expiry, lease) for lease, lock in self._locks.items() if lock.expiry <= now]
        for _, lease in sorted(expired):
            self._expire_lock(lease, now, 1)
        for _, message in self._in(MessageState.LEASED):
            if message.expiry <= now and message.lease not in self._locks:
                self._put_back(message, 0 if message.sorted else 1)

    def _expire_lock(self, lease: str, now: int, counted: int) -> None:
        if any(message.lease == lease for _, message in self._in(MessageState.PREPARED)):
            self._locks[lease].expiry = min(self._locks[lease].expiry, now)
        else:
            self._dissolve(lease, counted)

    def _put_back(self, message: Message, counted: int) -> None:
        message.count += counted
        self._returned += counted
        lock = self._locks.get(message.lease)
        if message.deferred:
            message.state = MessageState.DEFERRED
        elif lock is not None and message.count < lock.most:
            message.state, message.session = MessageState.FILED, lock.session
        else:
            message.state = MessageState.REDELIVERABLE
        message.deferred = message.sorted = False
        self.notify = self.notify or message.state is not MessageState.DEFERRED

    # Duplicates.

    def _not_deduplicated(self, upto: int) -> bool:
        return self.dedup_upto is not None and (upto > self.dedup_upto or self._torn)

    def _detect_duplicates(self, op: Arguments, _now: int) -> Reply:
        dedup_upto = self.dedup_upto or 0
        if "start" in op:
            self._duplicates = {offset for offset in self._duplicates if offset >= op["start"]}
            self.dedup_upto = dedup_upto = max(dedup_upto, op["start"])
        bound, latest = max(dedup_upto, self._proven), max([self._dedup_epoch, *(epoch for _, epoch in op["epochs"])])
        if self._dedup_epoch >= 0:
            self._torn = any(first < bound and epoch > self._dedup_epoch for first, epoch in op["epochs"])
        if self._torn:
            return {"dedup_upto": dedup_upto, "log_truncated": self._dedup_epoch}
        if op["from"] > dedup_upto:
            return {"dedup_upto": dedup_upto, "ahead": True}
        self._dedup_epoch = latest
        for offset, name, at, *copied in op["ids"]:
            if dedup_upto <= offset < op["upto"]:
                self._detect_one(offset, name, at, *copied, window=op["window"])
        self.dedup_upto = max(dedup_upto, op["upto"])
        return {"dedup_upto": self.dedup_upto}

    def _detect_one(self, offset: int, name: str, at: int, source: str = "", *, window: int) -> None:
        first, then, before = self._ids.get(name, (-1, -window - 1, ""))
        recent = first >= 0 and abs(at - then) < window
        copied = recent and bool(source) and source == before
        skip = recent and not copied
        if offset < self._proven or first >= offset:
            skip = offset in self._duplicates
        if skip:
            self._duplicates.add(offset)
            self._skipped.add(offset)
            if self._is(offset, MessageState.SCHEDULED):
                del self._messages[offset]
        elif first <= offset:
            self._ids[name] = (offset, then if copied else at, source)

    # Sessions.

    def _tell_state(self, session: str) -> Reply:
        state = self._states.get(session)
        if state is None:
            return {}
        reply: Reply = {"session": session, "version": state.version, "updated": state.updated}
        reply |= {} if state.value is None else {"value": state.value}
        return reply | ({} if state.stored else {"unstored": True})

    def _state(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        lock = self._locked_by(op["lease"], now)
        return {"gone": True} if lock is None else self._tell_state(lock.session)

    def _set_state(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        lock = self._locked_by(op["lease"], now)
        if lock is None:
            return {"gone": True}
        before = self._states.get(lock.session)
        version = max(before.version if before else 0, self.version) + 1
        self._states[lock.session] = SessionState(version, now, op.get("value"))
        return self._tell_state(lock.session)

    def _stored(self, op: Arguments, now: int) -> Reply:
        session, state = op["session"], self._states.get(op["session"])
        if state is None:
            # The new state is not the one whose record stands, although both may have the same version.
            self._states[session] = SessionState(self.version + 1, now, None)
            return self._tell_state(session) | ({"lost": True} if op["version"] > self._cleared else {})
        if state.version != op["version"]:
            return self._tell_state(session) | ({"lost": True} if op["version"] > state.version else {})
        state.stored = True
        if state.value is None:
            self._cleared = state.version
            del self._states[session]
        return {}

    def _updated(self, op: Arguments, _now: int) -> Reply:
        return {
            "names": [
                session
                for session, state in self._states.items()
                if state.value is not None and state.updated > op["after"]
            ]
        }

    @property
    def _placing(self) -> bool:
        """Whether a client is about to place returned messages in their sessions."""
        return any(message.lease == self._filer for _, message in self._in(MessageState.LEASED))

    def _waiting_in(self, session: str) -> list[tuple[int, Message]]:
        return [one for one in self._in(MessageState.FILED) if one[1].session == session]

    def _forget_empty(self) -> None:
        self._free = {session: None for session in self._free if self._waiting_in(session)}

    def _dissolve(self, lease: str, counted: int) -> None:
        for _, message in self._in(MessageState.LEASED):
            if message.lease == lease:
                self._put_back(message, counted)
        lock = self._locks.pop(lease)
        if self._waiting_in(lock.session):
            self._free.setdefault(lock.session)
            self.notify = True

    def _locked_by(self, lease: str, now: int) -> Lock | None:
        """Return the session's lock, unless it has expired."""
        lock = self._locks.get(lease)
        return lock if lock is not None and lock.expiry > now else None

    def _is_locked(self, session: str) -> bool:
        return any(lock.session == session for lock in self._locks.values())

    def _file(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        reply: Reply = {"again": [], "fresh": [], "expiry": now + op["lock_ms"]}
        refused = self._refuses(op)
        if refused:
            reply[refused] = True
        elif op["upto"] > self.cursor:

            def unseen(runs: Sequence[Range]) -> list[int]:
                return [offset for offset in offsets_of(runs) if offset >= self.cursor and offset not in self._skipped]

            strays = unseen(op["strays"])
            self._lease(op, strays, now, sort=True)
            reply["again"] = [(offset, offset, 0) for offset in strays]
            for session, words, _ in op["sessions"]:
                for offset in unseen([(first, last) for first, last, _ in read_runs(words)]):
                    self._file_one(offset, session)
            self.cursor = op["upto"]
        return self._with_state(reply, now)

    def _file_one(self, offset: int, session: str) -> None:
        message = self._messages.setdefault(offset, Message(MessageState.FILED, 0))
        message.state, message.session = MessageState.FILED, session
        message.deferred = message.sorted = False
        if not self._is_locked(session):
            self._free.setdefault(session)
        self.notify = True

    def _place(self, op: Arguments, now: int) -> Reply:
        taken, lost = self._held_by(op["lease"], [(first, last) for first, last, _ in op["ranges"]], now)
        names = {offset: name for first, last, name in op["ranges"] for offset in range(first, last + 1)}
        for offset in taken:
            self._file_one(offset, names[offset])
        apart, _ = self._held_by(op["lease"], op["strays"], now)
        self._lease({**op, "lease": op["apart"]}, apart, now, sort=True)
        return {"lost": merge_offsets(lost), "expiry": now + op["lock_ms"]}

    def _accept(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        session = op.get("session", next(iter(self._free), None))
        if session is None:
            return {}
        if self._is_locked(session):
            return {"held": True}
        self._free.pop(session, None)
        self._locks[op["lease"]] = Lock(session, now + op["lock_ms"], op["max_deliveries"])
        return {"session": session, "expiry": now + op["lock_ms"]}

    def _next(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        lock = self._locked_by(op["lease"], now)
        if lock is None:
            return {"gone": True}
        self._unplaced = self._unplaced and (self._placing or bool(self._in(MessageState.REDELIVERABLE)))
        if self._unplaced:
            return {"unfiled": True}
        again = self._waiting_in(lock.session)[: op["want"]]
        self._lease({**op, "lock_ms": lock.expiry - now}, (offset for offset, _ in again), now)
        reply: Reply = {
            "again": ",".join(f"{offset}*{message.count}" for offset, message in again),
            "expiry": lock.expiry,
            "cursor": self.cursor,
        }
        return reply | self._ruled(op)

    def _extend(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        lock = self._locked_by(op["lease"], now)
        if lock is None:
            return {"gone": True}
        lock.expiry = now + op["lock_ms"]
        return {"expiry": lock.expiry}

    def _leave(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        if op["lease"] in self._locks:
            self._release(op, now)
            self._expire_lock(op["lease"], now, 0)
        return {}

    def _sessions(self, _op: Arguments, _now: int) -> Reply:
        names = {message.session for _, message in self._in(MessageState.FILED)}
        return {"names": sorted({*names, *(lock.session for lock in self._locks.values())} - {None}, key=str)}

    # Operations that end a lease of messages.

    def _take(self, op: Arguments, now: int, ranges: Sequence[Range] | None = None) -> tuple[list[Message], Reply]:
        """Return the messages of the ranges that the lease holds, changed as asked, and the reply that lists the others."""
        taken, lost = self._held_by(op["lease"], op["ranges"] if ranges is None else ranges, now)
        for offset in taken:
            self._change(offset, op.get("change", {}))
        return [self._messages[offset] for offset in taken], {"lost": merge_offsets(lost)}

    def _change(self, offset: int, change: dict[str, str], *, prepared: bool = False) -> None:
        """Change application properties of a message, or note that a transaction would change them."""
        if change:
            before = {} if prepared else self._changed.get((offset, prepared), {})
            self._changed[offset, prepared] = before | change
            self._may_have_changed = True

    def changed_properties(self) -> dict[str, str]:
        """Return the fields of the key ``properties``."""
        return {f"{'?' * prepared}{offset}": json.dumps(change) for (offset, prepared), change in self._changed.items()}

    def _held_by(self, lease: str, ranges: Sequence[Range], now: int) -> tuple[list[int], list[int]]:
        taken: list[int] = []
        lost: list[int] = []
        for offset in offsets_of(ranges):
            message = self._messages.get(offset)
            mine = message is not None and message.state is MessageState.LEASED and message.lease == lease
            (taken if mine and message is not None and self._expiry_of(message) > now else lost).append(offset)
        return taken, lost

    def _expiry_of(self, message: Message) -> int:
        """Return when a message's lock expires; messages of a locked session are locked as long as the session."""
        lock = self._locks.get(message.lease)
        return message.expiry if lock is None else lock.expiry

    def _complete(self, op: Arguments, now: int) -> Reply:
        taken, lost = self._held_by(op["lease"], op["ranges"], now)
        for offset in taken:
            del self._messages[offset]
            self._changed.pop((offset, False), None)
        return {"lost": merge_offsets(lost)}

    def _abandon(self, op: Arguments, now: int) -> Reply:
        taken, reply = self._take(op, now)
        for message in taken:
            self._put_back(message, 1)
        return reply

    def _release(self, op: Arguments, now: int) -> Reply:
        own = [(offset, offset) for offset, message in self._in(MessageState.LEASED) if message.lease == op["lease"]]
        taken, reply = self._take(op, now, op.get("ranges", own))
        for message in taken:
            self._put_back(message, 0)
        return reply

    def _defer(self, op: Arguments, now: int) -> Reply:
        if len(self._in(MessageState.DEFERRED)) + len(offsets_of(op["ranges"])) > op["limit"]:
            return {"lost": [], "full": op["limit"]}
        taken, reply = self._take(op, now)
        for message in taken:
            message.state, message.deferred = MessageState.DEFERRED, False
        return reply

    def _renew(self, op: Arguments, now: int) -> Reply:
        if op["lease"] in self._locks:
            return {"lost": op["ranges"], "expiry": now + op["lock_ms"]}
        taken, reply = self._take(op, now)
        for message in taken:
            message.expiry = now + op["lock_ms"]
        return reply | {"expiry": now + op["lock_ms"]}

    def _begin(self, op: Arguments, now: int) -> Reply:
        taken, reply = self._take(op, now)
        for message in taken:
            message.state, message.intent, message.due = MessageState.MOVING, op["intent"], now + op["orphan_ms"]
        return reply

    # Transactions.

    def _prepare(self, op: Arguments, now: int) -> Reply:
        held: list[tuple[Arguments, list[int], list[int]]] = []
        for item in op["items"]:
            ranges = [(first, last) for first, last, _ in read_runs(item["ranges"])]
            held.append((item, *self._held_by(item["lease"], ranges, now)))
        reply: Reply = {"lost": [merge_offsets(lost) for _, _, lost in held]}
        if self._closed:
            return {"lost": [merge_offsets([*taken, *lost]) for _, taken, lost in held]}
        if any(lost for _, _, lost in held):
            return reply
        coming = sum(len(taken) for item, taken, _ in held if item["verb"] == "defer")
        if coming and len(self._in(MessageState.DEFERRED)) + coming > op["limit"]:
            return reply | {"full": op["limit"]}
        for item, taken, _ in held:
            for offset in taken:
                message = self._messages[offset]
                if message.state is MessageState.PREPARED:
                    continue  # If a message is named twice, the first one counts.
                kind = "d" if message.deferred else "s" if message.sorted else "n"
                parts = ("prepared", item["verb"], message.lease, kind, self._expiry_of(message), op["transaction"])
                message.state, message.verb, message.due = MessageState.PREPARED, item["verb"], now + op["orphan_ms"]
                message.intent = ":".join(map(str, parts))
                self._change(offset, item.get("change", {}), prepared=True)
        return reply

    def _prepared(self, op: Arguments) -> list[tuple[int, Message]]:
        """Return the messages that a transaction prepared."""
        wanted = set(offsets_of(op["ranges"]))
        return [
            (offset, message)
            for offset, message in self._in(MessageState.PREPARED)
            if offset in wanted and message.intent.endswith(f":{op['transaction']}")
        ]

    def _commit(self, op: Arguments, _now: int) -> Reply:
        for offset, message in self._prepared(op):
            self._late.pop(offset, None)
            self._change(offset, self._changed.pop((offset, True), {}))
            if message.verb == "complete":
                del self._messages[offset]
            elif message.verb == "defer":
                message.state, message.deferred = MessageState.DEFERRED, False
            else:
                self._put_back(message, 1)
        return {}

    def _rollback(self, op: Arguments, now: int) -> Reply:
        for offset, message in self._prepared(op):
            self._late.pop(offset, None)
            self._changed.pop((offset, True), None)
            if self._expiry_of(message) > now:
                message.state = MessageState.LEASED
            else:
                self._put_back(message, 1)
        return {}

    # Transfers.

    def _moved(self, op: Arguments, now: int) -> Reply:
        message = self._messages.get(op["offset"])
        if message is None or message.state not in {MessageState.MOVING, MessageState.MOVED}:
            return {}
        if message.state is MessageState.MOVING:
            message.state, message.at, message.due = MessageState.MOVED, op["at"], now + op["keep_ms"]
            self._late.pop(op["offset"], None)
            self._changed.pop((op["offset"], False), None)
        return {"winner": message.at}

    def _adopt(self, op: Arguments, now: int) -> Reply:
        orphans: list[tuple[int, int, str]] = []
        late = [
            one for one in self._in(MessageState.MOVING, MessageState.PREPARED, MessageState.MOVED) if one[1].due <= now
        ]
        for offset, message in sorted(late, key=lambda one: one[1].due)[: op["limit"]]:
            if message.state is MessageState.MOVED:
                del self._messages[offset]
            else:
                message.due = now + op["orphan_ms"]
                self._note_late(offset, self._late.get(offset, 0))
                orphans.append((offset, message.count, message.intent))
        return {"orphans": orphans, "more": len(late) >= op["limit"]}

    def _refused(self, op: Arguments, _now: int) -> Reply:
        is_new = self._is(op["offset"], MessageState.MOVING) and not self._late.get(op["offset"])
        if self._is(op["offset"], MessageState.MOVING):
            self._note_late(op["offset"], op["bytes"])
        return {"new": is_new and op["offset"] in self._late}

    def _note_late(self, offset: int, size: int) -> None:
        if offset in self._late or len(self._late) < MOST_LATE:
            self._late[offset] = size

    def _retreat(self, op: Arguments, _now: int) -> Reply:
        message = self._messages.get(op["offset"])
        if message is not None and (message.state, message.intent) == (MessageState.MOVING, op["intent"]):
            self._late.pop(op["offset"], None)
            if op["gone"]:
                del self._messages[op["offset"]]
            else:
                message.state, message.deferred, self.notify = MessageState.REDELIVERABLE, False, True
        return {}

    def _skip(self, op: Arguments, _now: int) -> Reply:
        offset = op["offset"]
        if offset >= self.cursor:
            self._skipped.add(offset)
            return {"skip": True}
        skip = self._is(offset, MessageState.REDELIVERABLE) or self._is(offset, MessageState.FILED)
        if skip:
            del self._messages[offset]
            self._forget_empty()
        return {"skip": skip}

    # The rest.

    def _mark(self, op: Arguments, _now: int) -> Reply:
        setattr(self, op["name"], True)
        return {}

    def _rule(self, op: Arguments, _now: int) -> Reply:
        if op["version"] > self.rules or self._ruled_from is None:
            self.rules, self._ruled_from = max(self.rules, op["version"]), max(op["end"], self.cursor)
        return {"from": self._ruled_from}

    # Scheduled messages.

    def _schedule(self, op: Arguments, _now: int) -> Reply:
        for offset, when in op["items"]:
            if offset >= self.cursor and offset not in self._skipped:
                self._messages[offset] = Message(MessageState.SCHEDULED, 0, due=when)
                self._skipped.add(offset)
                self.schedules = True
        return {}

    def _postpone(self, op: Arguments, now: int) -> Reply:
        times = dict(op["items"])
        taken, lost = self._held_by(op["lease"], [(offset, offset) for offset in times], now)
        for offset in taken:
            self._messages[offset] = Message(MessageState.SCHEDULED, 0, due=times[offset])
            self.schedules = True
        return {"lost": merge_offsets(lost)}

    def _cancel(self, op: Arguments, _now: int) -> Reply:
        missing = [offset for offset in op["offsets"] if not self._is(offset, MessageState.SCHEDULED)]
        for offset in set(op["offsets"]) - set(missing):
            del self._messages[offset]
        return {"missing": missing}

    def _activate(self, op: Arguments, now: int) -> Reply:
        due = [one for one in self._in(MessageState.SCHEDULED) if one[1].due <= op.get("upto_ms", now)]
        due = sorted(due, key=lambda one: one[1].due)[: op["limit"]]
        begun = [(offset, message) for offset, message in due if not self._not_deduplicated(offset + 1)]
        for _, message in begun:
            message.state, message.intent, message.due = MessageState.MOVING, op["intent"], now + op["orphan_ms"]
        return {"begun": [offset for offset, _ in begun]}

    def _purge(self, op: Arguments, _now: int) -> Reply:
        waiting = [
            offset for offset, _ in self._in(MessageState.FILED, MessageState.REDELIVERABLE) if offset < op["upto"]
        ]
        for offset in waiting:
            del self._messages[offset]
        self._forget_empty()
        purged = len(waiting) + max(0, op["upto"] - self.cursor)
        self.cursor = max(self.cursor, op["upto"])
        return {"purged": purged, "more": False}


def _kind(message: Message) -> str:
    if message.state is MessageState.SCHEDULED:
        return "t"
    return "d" if message.deferred or message.state is MessageState.DEFERRED else "n"
