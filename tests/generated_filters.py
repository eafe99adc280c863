"""Strategies for messages, and for filters that say something about them.

Most filters compare what can be compared: of wholly random ones nearly all are errors, which any two evaluators agree on.
"""

from __future__ import annotations

import math
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters.evaluate import MessageSubject
from kafkabus_mapping.filters.nodes import SYSTEM_PROPERTIES

_NAMES = ("i", "I", "f", "t", "b", "at", "for", "id", "raw", "d", "any", "Ü", "with space", "sys.Label")
_TEXTS = st.text(alphabet="aAb%_\\é𝄞'\n", max_size=6)
_NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
_MOMENTS = st.integers(-(10**11), 10**11).map(lambda micros: _NOON + timedelta(microseconds=micros)) | st.sampled_from(
    [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc)]
)
_DURATIONS = st.timedeltas(min_value=timedelta(-1), max_value=timedelta(1)) | st.sampled_from(
    [timedelta(0), timedelta.max, timedelta.min]
)
_INTEGERS = st.integers(-3, 9) | st.sampled_from(
    [2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, -(2**70), 3037000500]
)
_REALS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5, 1e-9, 1e300, math.nan, math.inf, -math.inf, 2.0**53])


def _decimal(value: int, places: int) -> Decimal:
    return Decimal((value < 0, tuple(map(int, str(abs(value)))), -places))


_DECIMALS = st.builds(
    _decimal,
    st.integers(-30, 130) | st.integers(-(10**34) + 1, 10**34 - 1),
    st.integers(-3, 4) | st.sampled_from([-6000, 40, 6000]),
)
_UUIDS = st.sampled_from([uuid.UUID(int=n << 64) for n in range(3)])
_VALUES = st.one_of(
    st.none(), st.booleans(), _INTEGERS, _REALS, _TEXTS, _MOMENTS, _DURATIONS, _UUIDS, st.binary(max_size=3), _DECIMALS
)
_KINDS = {
    "i": _INTEGERS,
    "f": _REALS,
    "t": _TEXTS,
    "b": st.booleans(),
    "at": _MOMENTS,
    "for": _DURATIONS,
    "id": _UUIDS,
    "raw": st.binary(max_size=3),
    "d": _DECIMALS,
}
_SHORT = st.none() | _TEXTS

PARAMETERS: dict[str, Any] = {
    "@i": 3,
    "@big": 2**64,
    "@f": 1.5,
    "@nan": math.nan,
    "@t": "a%",
    "@name": "sys.LABEL",
    "@b": True,
    "@at": _NOON,
    "@for": timedelta(seconds=1),
    "@id": uuid.UUID(int=0),
    "@raw": b"a",
    "@d": Decimal("1.50"),
    "@null": None,
}
"""Values of what filters may name."""


@st.composite
def subjects(draw: st.DrawFn) -> MessageSubject:
    """A message."""
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=9))
    properties: dict[Any, Any] = {name: draw(_KINDS.get(name.lower(), _VALUES)) for name in names}
    label, session = draw(_SHORT), draw(_SHORT)
    envelope = Envelope(
        message_id=draw(_TEXTS),
        session_id=session,
        partition_key=session if session is not None else draw(_SHORT),
        correlation_id=draw(_SHORT),
        subject=label,
        time_to_live=draw(st.none() | st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta.max])),
        scheduled_enqueue_time_utc=draw(st.none() | st.just(_NOON)),
        enqueued_sequence_number=draw(st.none() | st.integers(1, 9)),
        application_properties=properties,
    )
    return MessageSubject(
        envelope,
        sequence_number=draw(st.integers(1, 9)),
        enqueued_at=_NOON + timedelta(milliseconds=draw(st.integers(-1, 1))),
        size=draw(st.integers(0, 4)),
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_PATTERNS = st.text(alphabet="aAb%_\\é𝄞", max_size=6).map(_quoted)
_SYSTEM = st.sampled_from(sorted(set(SYSTEM_PROPERTIES.values()))).map("sys.{}".format)
_PROPERTIES = (
    st.sampled_from(
        [f"[{name}]" for name in _NAMES if "." not in name] + ["user.i", "missing", "ce_type", "Foreign", "Long"]
    )
    | _SYSTEM
)
_LOOKED_UP = st.sampled_from(
    ["p('I')", "p('user.t')", "p('sys.label')", "p(@name)", "p(t)", "p('sys.none')", "p(missing)", "p(i)", "p('ü')"]
)
_ATOMS = (
    st.sampled_from(["1", "0", "-3", "2.0", "1.5e0", "9223372036854775807", "0.0", "TRUE", "FALSE", "NULL", "newid()"])
    | _TEXTS.map(_quoted)
    | _PROPERTIES
    | _LOOKED_UP
    | st.sampled_from(sorted(PARAMETERS))
)
_NUMBERS = st.sampled_from(
    ["[i]", "[f]", "[d]", "@d", "1", "-3", "2.5", "0", "-0.0", "@i", "9223372036854775807", "sys.Size", "missing"]
)
_WORDS = _TEXTS.map(_quoted) | st.sampled_from(
    ["[t]", "ce_type", "sys.Label", "sys.MessageId", "@t", "p('t')", "missing"]
)
_ALIKE = st.sampled_from(
    [
        ("[b]", "TRUE"),
        ("[b]", "@b"),
        ("[at]", "@at"),
        ("[for]", "@for"),
        ("[d]", "@d"),
        ("[d]", "1.5"),
        ("[at] - @at", "[for]"),
        ("[d] * [d]", "@d / 2"),
        ("[id]", "@id"),
        ("[raw]", "@raw"),
        ("sys.EnqueuedTimeUtc", "@at"),
        ("sys.ExpiresAtUtc", "[at]"),
        ("sys.TimeToLive", "[for]"),
        ("sys.SessionId", "[t]"),
    ]
)


def _joined(parts: tuple[str, ...]) -> str:
    return f"({' '.join(parts)})"


def _arithmetic(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from("+-*/%"), inner).map(_joined) | inner.map("(- {})".format)


_COMPUTED = st.recursive(_NUMBERS, _arithmetic, max_leaves=4)
_ANY = st.recursive(_ATOMS, _arithmetic, max_leaves=3)
_SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def _like(draw: st.DrawFn) -> str:
    left = draw(_WORDS | _ATOMS)
    pattern = draw(_PATTERNS | _PATTERNS | _WORDS | _ATOMS)
    escape = draw(st.sampled_from(["", "", r" ESCAPE '\'", " ESCAPE 'a'", " ESCAPE t", " ESCAPE missing"]))
    return f"{left} {draw(st.sampled_from(['', 'NOT ']))}LIKE {pattern}{escape}"


@st.composite
def _within(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from([_COMPUTED, _WORDS, _ANY]))
    options = ", ".join(draw(st.lists(kind, min_size=1, max_size=3)))
    return f"{draw(kind)} {draw(st.sampled_from(['', 'NOT ']))}IN ({options})"


_TESTS = st.one_of(
    st.tuples(_COMPUTED, _SIGNS, _COMPUTED).map(" ".join),
    st.tuples(_WORDS, st.sampled_from(["=", "<>"]), _WORDS).map(" ".join),
    st.tuples(_ALIKE, _SIGNS).map(lambda drawn: f"{drawn[0][0]} {drawn[1]} {drawn[0][1]}"),
    st.tuples(_ANY, _SIGNS, _ANY).map(" ".join),
    _like(),
    _within(),
    st.tuples(_PROPERTIES | _LOOKED_UP, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    (_PROPERTIES | _LOOKED_UP).map("EXISTS({})".format),
)


def filters() -> st.SearchStrategy[str]:
    """The text of a filter, over messages' properties and ``PARAMETERS``."""
    return st.recursive(
        _TESTS,
        lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(_joined) | inner.map("NOT {}".format),
        max_leaves=4,
    )
