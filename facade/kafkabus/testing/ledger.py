"""A ledger without Redis: one state for each message, and what each operation makes of it.

This is the meaning of ``kafkabus/ledger/lua`` in plain words. It keeps no ranges and no bits, finds things by looking at all of
them, and answers as the scripts do; the tests let both do the same and compare. What each operation takes and replies is said
at the head of the Lua files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafkabus.ledger.ranges import Range, merge_offsets, offsets_of

Arguments = dict[str, Any]
Reply = dict[str, Any]


class State(Enum):
    """Where a message is that was granted before, or seized."""

    RETURNED = "returned"
    """To be granted again."""
    LEASED = "leased"
    """Somebody's, until a moment."""
    DEFERRED = "deferred"
    """To be had by offset only."""
    MOVING = "moving"
    """On its way into another log."""
    MOVED = "moved"
    """There; where to is remembered for a while."""


@dataclass(slots=True)
class Message:
    """One message.

    Attributes:
        state: Where it is.
        count: Its deliveries so far.
        lease: Lease that has it.
        expiry: When its lock expires, ms.
        deferred: Whether it was deferred when it was leased, and goes back there.
        due: When its transfer wants attention, ms.
        intent: Of its transfer.
        at: Offset of its copy.
    """

    state: State
    count: int
    lease: str = ""
    expiry: int = 0
    deferred: bool = False
    due: int = 0
    intent: str = ""
    at: int = 0


class MemoryLedger:
    """One ledger.

    Args:
        cursor: The first offset to grant.
        mortal: Whether messages bring times to live of their own.
        version: What it begins with.

    Attributes:
        cursor: The next offset never granted.
        version: Raised by every request.
        mortal: As given, or as marked since.
        epoch: Leader epoch of the record right before the cursor, empty where it is not known.
        leader: The latest leader epoch of which any record was that the cursor passed, empty where none is known.
        rings: Whether the last request made something available.
    """

    def __init__(self, cursor: int, *, mortal: bool = False, version: int = 1) -> None:
        self.cursor = cursor
        self.version = version
        self.mortal = mortal
        self.epoch = ""
        self.leader = ""
        self.rings = False
        self._messages: dict[int, Message] = {}
        self._voids: set[int] = set()
        self._slots: dict[str, tuple[int, str]] = {}

    @classmethod
    def restored(cls, text: str, now: int) -> MemoryLedger:
        """A ledger of what was written down of one; see ``Snapshot.to_script``."""
        state = json.loads(text)
        ledger = cls(int(state["cursor"]), mortal=bool(state["mortal"]), version=int(state["version"]))
        ledger.epoch = ledger.leader = state.get("epoch", "")
        for kind, where in (("waiting", State.RETURNED), ("deferred", State.DEFERRED)):
            for first, last, count in state[kind]:
                for offset in range(int(first), int(last) + 1):
                    ledger._messages[offset] = Message(where, int(count))
        for offset, count, intent in state["moving"]:
            ledger._messages[int(offset)] = Message(State.MOVING, int(count), intent=intent, due=now)
        ledger._voids = set(map(int, state["voids"]))
        return ledger

    @property
    def held(self) -> int:
        """How many messages were granted and are not settled."""
        return sum(message.state is not State.MOVED for message in self._messages.values())

    def request(self, slot: str, number: int, operations: Sequence[Arguments], now: int) -> str:
        """Do what a client asks, once for each of its numbers.

        Args:
            slot: The client's.
            number: Of the request, raised by one each time.
            operations: What is to be done, in order.
            now: The time, ms since 1970.

        Returns:
            The reply as JSON.
        """
        last, reply = self._slots.get(slot, (0, ""))
        self.rings = False
        if number == last:
            return reply
        if number < last:
            return json.dumps({"status": "stale"})
        replies = [self._do(operation, now) for operation in operations]
        self.version += 1
        reply = json.dumps({"status": "ok", "now": str(now), "replies": replies})
        self._slots[slot] = (number, reply)
        return reply

    def _do(self, operation: Arguments, now: int) -> Reply:
        before = self.cursor
        reply: Reply = getattr(self, f"_{operation['op']}")(operation, now)
        if self.cursor != before:
            ahead = "ahead" in operation
            seen = "epoch" in operation and (ahead or self.cursor - 1 in offsets_of(operation["runs"]))
            self.leader = str(operation.get("epoch", self.leader))
            self.epoch = self.leader if seen else ""
        return reply

    # Looking.

    def _in(self, *states: State) -> list[tuple[int, Message]]:
        """Messages in these states, in the log's order."""
        return sorted(
            ((offset, message) for offset, message in self._messages.items() if message.state in states),
            key=lambda one: one[0],
        )

    def _is(self, offset: int, state: State) -> bool:
        message = self._messages.get(offset)
        return message is not None and message.state is state

    def _peek(self, op: Arguments, _now: int) -> Reply:
        found = [
            (offset, offset, "d" if message.deferred or message.state is State.DEFERRED else "n", message.count)
            for offset, message in self._in(State.RETURNED, State.LEASED, State.DEFERRED)
            if offset >= op["from"]
        ]
        return {"cursor": self.cursor, "found": found[: op["limit"]], "voids": self._voids_ahead()}

    def _snapshot(self, _op: Arguments, _now: int) -> Reply:
        waiting: list[tuple[int, int, int]] = []
        deferred: list[tuple[int, int, int]] = []
        for offset, message in self._in(State.RETURNED, State.LEASED, State.DEFERRED):
            home = deferred if message.deferred or message.state is State.DEFERRED else waiting
            home.append((offset, offset, message.count + (message.state is State.LEASED)))
        reply: Reply = {
            "cursor": self.cursor,
            "version": self.version,
            "waiting": waiting,
            "deferred": deferred,
            "moving": [(offset, message.count, message.intent) for offset, message in self._in(State.MOVING)],
            "voids": self._voids_ahead(),
        }
        return reply | ({"mortal": True} if self.mortal else {}) | ({"epoch": self.epoch} if self.epoch else {})

    def _voids_ahead(self) -> list[int]:
        return sorted(offset for offset in self._voids if offset >= self.cursor)

    # Becoming somebody's.

    def _claim(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        again = self._in(State.RETURNED)[: op["want"]]
        granted = [(offset, offset, message.count) for offset, message in again]
        self._lease(op, (offset for offset, _ in again), now)
        fresh: list[int] = []
        reply: Reply = {"again": granted}
        if "ahead" in op:
            wanted = op["want"] - len(again)
            if self.leader and self.leader != str(op.get("epoch", "")):
                reply["unproved"] = True
            elif op["ahead"] > self.cursor and wanted > 0:
                upto = min(op["ahead"], self.cursor + wanted)
                op |= {"from": self.cursor, "upto": upto, "runs": [(self.cursor, upto - 1)]}
        if "from" in op and op["from"] > self.cursor:
            reply["ahead"] = True
        elif "from" in op:
            unseen = [
                offset for offset in offsets_of(op["runs"]) if offset >= self.cursor and offset not in self._voids
            ]
            in_flight = self.held - len(self._in(State.DEFERRED))
            want = op["want"] - len(again)
            most = want if op["take"] else max(0, min(want, op["limit"] - in_flight))
            fresh, rest = unseen[:most], unseen[most:]
            self.cursor = rest[0] if rest else max(self.cursor, op["upto"])
            if most < want and self.cursor < op["upto"]:
                reply["limited"] = True
            if not op["take"]:
                self._lease(op, fresh, now)
        due = min((message.expiry for _, message in self._in(State.LEASED)), default=None)
        if due is not None:
            reply["due"] = due
        if self.mortal:
            reply["mortal"] = True
        return reply | {
            "fresh": merge_offsets(fresh),
            "cursor": self.cursor,
            "expiry": now + op["lock_ms"],
            "returned": len(self._in(State.RETURNED)),
            "moves": any(message.due <= now for _, message in self._in(State.MOVING, State.MOVED)),
        }

    def _recall(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        offsets = offsets_of(op["ranges"])
        missing = [offset for offset in offsets if not self._is(offset, State.DEFERRED)]
        if missing:
            return {"missing": merge_offsets(missing)}
        self._lease(op, offsets, now, deferred=True)
        again = [(offset, offset, self._messages[offset].count) for offset in offsets]
        return {"missing": [], "again": again, "expiry": now + op["lock_ms"]}

    def _seize(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        moves = "upto" in op and op["from"] <= self.cursor
        seized: list[tuple[int, bool]] = []
        for offset in offsets_of(op["ranges"]):
            if self._is(offset, State.RETURNED):
                seized.append((offset, False))
            elif offset >= self.cursor:
                if offset not in self._voids:
                    seized.append((offset, False))
                    if not moves:
                        self._voids.add(offset)
            elif self._is(offset, State.DEFERRED):
                seized.append((offset, True))
        if moves:
            self.cursor = max(self.cursor, op["upto"])
        return self._seized(op, seized, now)

    def _hopeless(self, op: Arguments, now: int) -> Reply:
        self._expire(now)
        hopeless = [offset for offset, message in self._in(State.RETURNED) if message.count >= op["count"]]
        return self._seized(op, [(offset, False) for offset in hopeless[: op["limit"]]], now)

    def _seized(self, op: Arguments, seized: Sequence[tuple[int, bool]], now: int) -> Reply:
        for offset, deferred in seized:
            self._lease(op, [offset], now, deferred=deferred)
        again = [
            (offset, offset, self._messages[offset].count, "d" if deferred else "n") for offset, deferred in seized
        ]
        return {"again": again, "expiry": now + op["lock_ms"]}

    def _lease(self, op: Arguments, offsets: Iterable[int], now: int, *, deferred: bool = False) -> None:
        for offset in offsets:
            message = self._messages.setdefault(offset, Message(State.LEASED, 0))
            message.state, message.lease, message.deferred = State.LEASED, op["lease"], deferred
            message.expiry = now + op["lock_ms"]

    # Going back.

    def _expire(self, now: int) -> None:
        for _, message in self._in(State.LEASED):
            if message.expiry <= now:
                self._put_back(message, 1)

    def _put_back(self, message: Message, counted: int) -> None:
        message.state = State.DEFERRED if message.deferred else State.RETURNED
        message.count += counted
        message.deferred = False
        self.rings = self.rings or message.state is State.RETURNED

    # Leaving a lease.

    def _take(self, op: Arguments, now: int, ranges: Sequence[Range] | None = None) -> tuple[list[Message], Reply]:
        """What the lease holds of the ranges, and the reply that says what it does not hold."""
        taken, lost = self._held_by(op["lease"], op["ranges"] if ranges is None else ranges, now)
        return [self._messages[offset] for offset in taken], {"lost": merge_offsets(lost)}

    def _held_by(self, lease: str, ranges: Sequence[Range], now: int) -> tuple[list[int], list[int]]:
        taken: list[int] = []
        lost: list[int] = []
        for offset in offsets_of(ranges):
            message = self._messages.get(offset)
            mine = message is not None and message.state is State.LEASED and message.lease == lease
            (taken if mine and message is not None and message.expiry > now else lost).append(offset)
        return taken, lost

    def _complete(self, op: Arguments, now: int) -> Reply:
        taken, lost = self._held_by(op["lease"], op["ranges"], now)
        for offset in taken:
            del self._messages[offset]
        return {"lost": merge_offsets(lost)}

    def _abandon(self, op: Arguments, now: int) -> Reply:
        taken, reply = self._take(op, now)
        for message in taken:
            self._put_back(message, 1)
        return reply

    def _release(self, op: Arguments, now: int) -> Reply:
        own = [(offset, offset) for offset, message in self._in(State.LEASED) if message.lease == op["lease"]]
        taken, reply = self._take(op, now, op.get("ranges", own))
        for message in taken:
            self._put_back(message, 0)
        return reply

    def _defer(self, op: Arguments, now: int) -> Reply:
        if len(self._in(State.DEFERRED)) + len(offsets_of(op["ranges"])) > op["limit"]:
            return {"lost": [], "full": op["limit"]}
        taken, reply = self._take(op, now)
        for message in taken:
            message.state, message.deferred = State.DEFERRED, False
        return reply

    def _renew(self, op: Arguments, now: int) -> Reply:
        taken, reply = self._take(op, now)
        for message in taken:
            message.expiry = now + op["lock_ms"]
        return reply | {"expiry": now + op["lock_ms"]}

    def _begin(self, op: Arguments, now: int) -> Reply:
        taken, reply = self._take(op, now)
        for message in taken:
            message.state, message.intent, message.due = State.MOVING, op["intent"], now + op["orphan_ms"]
        return reply

    # Transfers.

    def _moved(self, op: Arguments, now: int) -> Reply:
        message = self._messages.get(op["offset"])
        if message is None or message.state not in {State.MOVING, State.MOVED}:
            return {}
        if message.state is State.MOVING:
            message.state, message.at, message.due = State.MOVED, op["at"], now + op["keep_ms"]
        return {"winner": message.at}

    def _adopt(self, op: Arguments, now: int) -> Reply:
        orphans: list[tuple[int, int, str]] = []
        late = [one for one in self._in(State.MOVING, State.MOVED) if one[1].due <= now]
        for offset, message in sorted(late, key=lambda one: one[1].due)[: op["limit"]]:
            if message.state is State.MOVED:
                del self._messages[offset]
            else:
                message.due = now + op["orphan_ms"]
                orphans.append((offset, message.count, message.intent))
        return {"orphans": orphans}

    def _void(self, op: Arguments, _now: int) -> Reply:
        offset = op["offset"]
        if offset >= self.cursor:
            self._voids.add(offset)
            return {"void": True}
        void = self._is(offset, State.RETURNED)
        if void:
            del self._messages[offset]
        return {"void": void}

    # The rest.

    def _mark(self, _op: Arguments, _now: int) -> Reply:
        self.mortal = True
        return {}

    def _purge(self, op: Arguments, _now: int) -> Reply:
        waiting = [offset for offset, _ in self._in(State.RETURNED) if offset < op["upto"]]
        for offset in waiting:
            del self._messages[offset]
        purged = len(waiting) + max(0, op["upto"] - self.cursor)
        self.cursor = max(self.cursor, op["upto"])
        return {"purged": purged, "more": False}
