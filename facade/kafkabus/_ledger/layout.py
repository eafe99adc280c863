"""The layout of a ledger in Redis: its keys, the fields of its hash, and the grammars of its values.

The scripts have the same from ``lua/layout.lua``, which ``tools/generate_lua.py`` writes; ``make check`` compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Group(Enum):
    """The ledgers that have a key."""

    ALL = "every ledger"
    SESSIONS = "if messages have sessions"
    DUPLICATES = "if duplicates are detected"


@dataclass(frozen=True, slots=True)
class Key:
    """A Redis key of a ledger.

    Attributes:
        name: The last part of the key, and in capitals the name of the scripts' variable.
        kind: The Redis type.
        holds: The content, for the scripts' opening comment.
        group: The ledgers that have it.
    """

    name: str
    kind: str
    holds: str
    group: Group = Group.ALL


class Reading(Enum):
    """The way in which a request reads a field of ``meta``."""

    NUMBER = "a number"
    FLAG = "a flag, which is set or absent"
    TEXT = "a text"
    LATER = "not at its start"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the hash ``meta``.

    Attributes:
        name: The field's name, also in the scripts' table ``ledger``.
        holds: The content.
        reading: How each request reads it.
        default: The Lua expression for an absent field.
    """

    name: str
    holds: str
    reading: Reading = Reading.LATER
    default: str = "nil"


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of a text that several scripts, or scripts and Python, write and read.

    Attributes:
        name: The name; the scripts have the pattern as ``NAME`` and the writer as ``join_name``.
        form: Literal text with fields: ``<field>`` is a number, ``<field:hex>``, ``<field:word>``, ``<field:kind>``,
            ``<field:flag>`` and ``<field:name>`` are texts of these kinds, ``<field:rest>`` is the rest; ``[…]`` is optional.
    """

    name: str
    form: str

    @property
    def regex(self) -> re.Pattern[str]:
        """The form as a regular expression, with a group for each field."""
        return re.compile(
            "".join(
                f"(?:{re.escape(before)}({_KINDS[kind][0]}))?"
                if optional
                else re.escape(before) + f"({_KINDS[kind][0]})"
                for before, _, kind, optional in self.parts
            ),
            re.DOTALL,
        )

    @property
    def pattern(self) -> str:
        """The form as a Lua pattern, with a capture for each field; an absent optional field captures the empty string."""
        return "".join(
            f"{_lua_literal(before)}?({_KINDS[kind][1].replace('+', '*')})"
            if optional
            else f"{_lua_literal(before)}({_KINDS[kind][1]})"
            for before, _, kind, optional in self.parts
        )

    @property
    def parts(self) -> list[tuple[str, str, str, bool]]:
        """The literal before each field, the field's name and kind, and whether both are optional."""
        return [
            (
                found["optional"] or found["before"] or "",
                found["name"],
                found["kind"] or "number",
                found["optional"] is not None,
            )
            for found in _PART.finditer(self.form)
        ]


_PART = re.compile(r"(?:\[(?P<optional>[^<\]]+)|(?P<before>[^<\[]*))<(?P<name>\w+)(?::(?P<kind>\w+))?>\]?")
_KINDS = {
    "number": (r"\d+", "%d+"),
    "hex": (r"[0-9a-f]+", "%x+"),
    "word": (r"[a-z]+", "%a+"),
    "kind": (r"[nds]", "[nds]"),
    "name": (r"[^:|@]+", "[^:|@]+"),
    "flag": (r"[01]", "[01]"),
    "rest": (r".*", ".*"),
}


def _lua_literal(text: str) -> str:
    return re.sub(r"([^\w\s:|,=<>])", r"%\1", text)


RUN = Grammar("run", "<first>[-<last>][*<count>]")
"""A range of offsets, and how often its messages were delivered; runs are joined by commas."""
RETURNED = Grammar("returned", "<first>:<last>:<count>")
DEFERRED = Grammar("deferred", "<offset>:<count>")
SCHEDULED = Grammar("scheduled", "<offset>:<when>")
POSTPONED = Grammar("postponed", "<offset>:<count>:<session:rest>")
MOVE = Grammar("move", "<count>|<intent:rest>")
PREPARED = Grammar("prepared", "prepared:<verb:word>:<lease:hex>:<kind:kind>:<expiry>:<transaction:rest>")
"""The intent of a message that a transaction prepared."""
STATE = Grammar("state", "<version>|<updated>|<stored:flag>|<value:rest>")
HOLDER = Grammar("holder", "<expiry>|<max_deliveries>[@<since>][@<by:name>]|<session:rest>")
"""The lock of a session: since when, ms, and by which receiver, by its identifier, percent-encoded."""
IDENTIFIER = Grammar("identifier", "<offset>:<when>:<source:rest>")
LATE = Grammar("late", ",<offset>:<since>:<bytes>")
"""A transfer that was not finished in time, since when, ms, and the size of its copy if the destination refuses it, else 0."""

GRAMMARS = (RUN, RETURNED, DEFERRED, SCHEDULED, POSTPONED, MOVE, PREPARED, STATE, HOLDER, IDENTIFIER, LATE)

KEYS = (
    Key("meta", "hash", "the fields below"),
    Key(
        "leases",
        "hash",
        'lease id -> "<first>:<last>:<count>:<kind>:<expiry ms>:<bits>[:<since ms>:<by>]|…", disjoint segments in offset '
        "order, since when and by which receiver, by its identifier, percent-encoded, if it said so; kind is d if "
        "the messages were deferred and go back there, s if they are being filed (session.lua) or claimed exclusively and "
        "their expiry counts no delivery, else n; bits, one character an offset, are '1' if the message has left the lease; "
        'no bits mean that all stay. The lease that locks a session: "<run>[d],…", d if they were deferred',
    ),
    Key("expiries", "zset", "lease id by when its first segment expires, ms, or by an earlier time"),
    Key("redeliverable", "zset", f'"{RETURNED.form}" by first: ranges granted before, to be granted again'),
    Key("moving", "hash", f'offset -> "{MOVE.form}" while a transfer is under way, or a transaction (transaction.lua)'),
    Key(
        "moves",
        "zset",
        "offset, with 15 digits, by when it wants attention, ms: when an unfinished transfer becomes an orphan, or an ended "
        "one is forgotten",
    ),
    Key("skipped", "zset", "offset by itself: records beyond the cursor that no claim may grant"),
    Key("deferred", "zset", f'"{DEFERRED.form}" by offset: set aside, granted by offset only'),
    Key("scheduled", "zset", f'"{SCHEDULED.form}" by offset: not granted before their time; claims skip them'),
    Key("due", "zset", "the same offsets, with 15 digits, by when that is, ms"),
    Key(
        "postponed",
        "zset",
        f'"{POSTPONED.form}" by offset: returned, and not granted before a time. In a ledger with sessions, the message waits '
        "in its session, or in redeliverable until it is filed; the session is empty if it is not known yet",
    ),
    Key("wakes", "zset", "the same offsets, with 15 digits, by that time, ms"),
    Key("moved", "hash", "offset -> offset there, of transfers that ended lately"),
    Key(
        "properties",
        "hash",
        "offset -> JSON object: changed application properties of a message that is not settled, name -> JSON text; "
        '"?" and an offset -> the same, by a transaction that is not over. Of messages that are settled, until the next '
        "checkpoint at the latest. Clients read it themselves",
    ),
    Key(
        "sessions",
        "hash",
        '"=<session>" -> "<lease>|<low>|<high>": the lease that locks it, if any, and the numbers of its first and last chunk; '
        '"<number>=<session>" -> a chunk of what waits in it, in offset order: "<run>,…"',
        Group.SESSIONS,
    ),
    Key("free", "zset", "session that waits and that no client holds, by its turn", Group.SESSIONS),
    Key("holders", "hash", f'lease that locks a session -> "{HOLDER.form}"', Group.SESSIONS),
    Key(
        "states",
        "hash",
        f'session -> "{STATE.form}": updated is when it was set, ms; stored is 1 if it has its record; the value is in base '
        '64, "-" if it was cleared',
        Group.SESSIONS,
    ),
    Key(
        "duplicates",
        "zset",
        "offset by itself: records that were found to be duplicates, as long as the log has them",
        Group.DUPLICATES,
    ),
    *(
        Key(f"ids{number}", "hash", f'id -> "{IDENTIFIER.form}"; see duplicates.lua', Group.DUPLICATES)
        for number in range(4)
    ),
)
"""The keys of a ledger, in the order of the scripts' ``KEYS``; the client's slot, or the mark of a rebuild, follows them."""

FIELDS = (
    Field("cursor", "next offset never granted", Reading.NUMBER),
    Field("version", "raised by every request", Reading.NUMBER, "0"),
    Field("in_flight", "messages granted and not settled", Reading.NUMBER, "0"),
    Field("epoch", "leader epoch of the record right before the cursor, empty if not known", Reading.TEXT, "''"),
    Field(
        "leader",
        "the latest leader epoch of any record that the cursor passed, empty if not known",
        Reading.TEXT,
        "ledger.epoch",
    ),
    Field("skipped", "1 if the key skipped may hold any", Reading.NUMBER, "0"),
    Field("has_message_ttl", "1 if messages with individual times to live are in the log", Reading.FLAG),
    Field("filer_lease", "a lease whose messages are being filed in their sessions"),
    Field("sessions_unfiled", "1 if nothing may be granted before all are filed"),
    Field("cleared", "the highest version of a session's state that was cleared, and whose record is stored"),
    Field("dedup_upto", "below it is known which records are duplicates", Reading.NUMBER, "0"),
    Field("dedup_checkpoint", "below it that is known from a checkpoint", Reading.NUMBER, "0"),
    Field("dedup_epoch", "the latest leader epoch of a record below both", Reading.NUMBER, "-1"),
    Field("schedules", "1 if records of scheduled messages are in the log", Reading.FLAG),
    Field("scheduled", "how many wait for their time"),
    Field("postponed", "how many are postponed"),
    Field(
        "moving",
        "how many transfers are under way, unless a script died; a checkpoint counts them again",
        Reading.NUMBER,
        "0",
    ),
    Field(
        "late",
        "transfers that were not finished in time, and copies that their destinations refuse: some of them, each as "
        f'"{LATE.form}"; in no checkpoint',
        Reading.TEXT,
        "''",
    ),
    Field("returned", "deliveries after which messages waited again; for metrics, and in no checkpoint"),
    Field("properties", "at most how many bytes the key properties holds", Reading.NUMBER, "0"),
    Field("closed", "1 if no transaction prepares anything any more"),
    Field("transacts", "1 if transactions may have stored records"),
    Field("ring", "which hash of ids is filled, and since when each was; see duplicates.lua"),
    Field("latest", "the latest time of a record that was scanned for duplicates, ms"),
    Field("rules", "the version of a subscription's rules that a claim must know", Reading.NUMBER, "0"),
    Field("rules_from", "the offset from which the latest version counts"),
    Field("changed", "names the last request that changed anything; empty if none did", Reading.TEXT, "''"),
    Field(
        "look_at",
        "by when upkeep looks here next, ms; a request that needs it earlier says so. Absent: only when notified",
        Reading.NUMBER,
        "math.huge",
    ),
    Field("clock", "the latest time of this ledger, ms", Reading.NUMBER, "0"),
    Field("slip", "ms by which it is ahead of Redis's clock, because that went back", Reading.NUMBER, "0"),
    Field("test:skew", "in tests, ms that pass without waiting", Reading.NUMBER, "0"),
    Field("test:clock", "in tests, ms by which Redis's clock is wrong", Reading.NUMBER, "0"),
    Field("test:fault", "in tests, which write fails", Reading.NUMBER, "0"),
)
"""The fields of the hash ``meta``."""


def key_names(*, sessions: bool, detects: bool) -> tuple[str, ...]:
    """Return the names of the keys of a ledger, in the order of the scripts' ``KEYS``."""
    left_out = {group for group, wanted in ((Group.SESSIONS, sessions), (Group.DUPLICATES, detects)) if not wanted}
    return tuple(key.name for key in KEYS if key.group not in left_out)
