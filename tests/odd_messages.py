"""Messages and records as no sensible program makes them: any section, any type, any size.

A random number generator decides, so that both Hypothesis and ``tests.faults.fuzz_messages`` can make them up.
"""

from __future__ import annotations

import decimal
import json
import random
import string
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from kafkabus import ServiceBusMessage
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus_mapping import headers as h
from kafkabus_mapping.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTIES_FIELDS,
    SEQUENCE,
    VALUE,
    decode_sections,
)
from kafkabus_mapping.amqp.types import (
    Array,
    Byte,
    Char,
    DecimalBits,
    Described,
    Float,
    Int,
    Milliseconds,
    Short,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)
from kafkabus_mapping.amqp_values import TIMESPAN
from kafkabus_mapping.codec import EPOCH, Headers

NUMBER: Final = "n"
"""The application property that numbers a message."""
_LARGE: Final = (1000, 100_000, 400_000)
_LETTERS: Final = (*string.ascii_letters, *"-/%:; 0", "\0", "\n", "ä", "€", "\U0001d11e")
_BITS: Final[Sequence[tuple[type[int], int, int]]] = (
    *((UByte, 0, 1 << 8), (UShort, 0, 1 << 16), (UInt, 0, 1 << 32), (ULong, 0, 1 << 64)),
    *((Byte, -(1 << 7), 1 << 7), (Short, -(1 << 15), 1 << 15), (Int, -(1 << 31), 1 << 31), (int, -(1 << 63), 1 << 63)),
)
_FLOATS: Final = (0.0, -0.0, 1.5, 1e300, float("inf"), float("nan"))


def text(chance: random.Random) -> str:
    """Return any text."""
    return "".join(chance.choices(_LETTERS, k=chance.choice((0, 1, 3, 9, 130))))


def ascii_text(chance: random.Random) -> str:
    """Return a short text of ASCII."""
    return "".join(chance.choices(string.ascii_letters, k=chance.randrange(1, 9)))


def _whole(chance: random.Random) -> int:
    kind, low, end = chance.choice(_BITS)
    return kind(chance.choice((low, end - 1, chance.randrange(low, end), min(5, end - 1))))


def _moment(chance: random.Random) -> datetime:
    return EPOCH + timedelta(milliseconds=chance.randrange(-(10**13), 10**14))


_SCALARS: Final[Sequence[Callable[[random.Random], Any]]] = (
    lambda _: None,
    lambda chance: chance.random() < 0.5,
    _whole,
    _whole,
    lambda chance: chance.choice(_FLOATS),
    lambda chance: Float(chance.choice((0.0, 1.5, float("inf"), float("nan")))),
    lambda chance: Char(chance.choice(_LETTERS)),
    lambda chance: DecimalBits(chance.randbytes(chance.choice((4, 8, 16)))),
    text,
    lambda chance: Symbol(ascii_text(chance)),
    lambda chance: chance.randbytes(chance.randrange(9)),
    lambda chance: uuid.UUID(int=chance.getrandbits(128)),
    _moment,
    lambda chance: Milliseconds(chance.choice((1 << 60, -(1 << 63)))),
    lambda chance: Described(TIMESPAN, chance.choice((0, 15, -(1 << 63), (1 << 63) - 1))),
)


def _described(chance: random.Random, depth: int) -> Any:
    return Described(
        chance.choice((ULong(chance.randrange(1 << 64)), Symbol(ascii_text(chance)))), value(chance, depth)
    )


def _array(chance: random.Random, _depth: int) -> Any:
    kind, low, end = chance.choice(_BITS)
    items = [kind(chance.randrange(low, end)) for _ in range(chance.randrange(4))]
    return Array(
        chance.choice(
            (items, [text(chance), ""], [True, False], [[1], []], [{"a": 1}, {}], [Described(Symbol("d"), 1)])
        )
    )


def _mapping(chance: random.Random, depth: int) -> Any:
    return {chance.choice(_SCALARS)(chance): value(chance, depth) for _ in range(chance.randrange(4))}


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return any value that AMQP can encode."""
    if depth > 3 or chance.random() < 0.6:
        return chance.choice(_SCALARS)(chance)
    if chance.random() < 0.02:
        nested: Any = []
        for _ in range(chance.randrange(70)):
            nested = [nested]
        return nested
    compound = chance.choice((_described, _array, _mapping))
    return compound(chance, depth + 1) if chance.random() < 0.7 else [value(chance, depth + 1) for _ in range(3)]


# Over AMQP.

_USUAL_FIELDS: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "durable": lambda chance: chance.random() < 0.5,
    "first_acquirer": lambda chance: chance.random() < 0.5,
    "priority": lambda chance: UByte(chance.randrange(256)),
    "ttl": lambda chance: UInt(chance.choice((0, 10**8, (1 << 32) - 1))),
    "delivery_count": lambda chance: UInt(chance.randrange(9)),
    "message_id": lambda chance: chance.choice((ascii_text(chance), uuid.uuid4(), b"\xff", ULong(5))),
    "correlation_id": lambda chance: chance.choice((text(chance), uuid.uuid4(), b"\xff", ULong((1 << 64) - 1))),
    "user_id": lambda chance: chance.randbytes(3),
    "creation_time": _moment,
    "absolute_expiry_time": _moment,
    "content_type": lambda chance: Symbol(ascii_text(chance)),
    "content_encoding": lambda chance: Symbol(ascii_text(chance)),
    "group_sequence": lambda chance: UInt(chance.randrange(1 << 32)),
}


def _fields(chance: random.Random, names: Sequence[str], oddness: float) -> list[Any]:
    fields: list[Any] = []
    for name in names:
        usual = _USUAL_FIELDS.get(name, text)
        make = value if chance.random() < oddness else usual
        # A message that lives for a short time would be gone rightly.
        short = name == "ttl" and make is value
        fields.append((Int(-5) if short else make(chance)) if chance.random() < 0.4 else None)
    return fields


def _annotations(chance: random.Random, oddness: float) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for _ in range(chance.randrange(4)):
        key = chance.choice(_SCALARS)(chance) if chance.random() < oddness else Symbol(ascii_text(chance))
        found[key] = value(chance)
    if chance.random() < 0.1:
        found[Symbol("x-opt-sequence-number")] = value(chance)
    return found


def _body(chance: random.Random) -> list[tuple[int, Any]]:
    kind = chance.randrange(4)
    if kind == 0:
        size = chance.choice(_LARGE) if chance.random() < 0.02 else chance.randrange(20)
        return [(DATA, chance.randbytes(size)) for _ in range(chance.randrange(1, 3))]
    if kind == 1:
        return [(SEQUENCE, [value(chance) for _ in range(chance.randrange(3))]) for _ in range(chance.randrange(1, 3))]
    return [(VALUE, value(chance))] if kind == 2 else []


def payload(chance: random.Random, number: int) -> bytes:
    """Return a message in AMQP's encoding, most of whose fields are right, or of which nothing is."""
    oddness = chance.choice((0.0, 0.0, 0.0, 0.02, 0.5))
    own: dict[Any, Any] = {}
    for _ in range(chance.randrange(4)):
        own[ascii_text(chance)] = chance.choice(_SCALARS)(chance)
    if chance.random() < oddness:
        own |= {chance.choice(_SCALARS)(chance): value(chance)}
    parts: list[tuple[int, Any]] = [
        (HEADER, _fields(chance, HEADER_FIELDS, oddness)),
        (DELIVERY_ANNOTATIONS, _annotations(chance, oddness)),
        (MESSAGE_ANNOTATIONS, _annotations(chance, oddness)),
        (PROPERTIES, _fields(chance, PROPERTIES_FIELDS, oddness)),
    ]
    parts = [part for part in parts if chance.random() < 0.5]
    parts += [(APPLICATION_PROPERTIES, {**own, NUMBER: number}), *_body(chance)]
    if chance.random() < 0.3:
        parts.append((FOOTER, _annotations(chance, oddness)))
    encoded = b""
    for code, content in parts:
        try:
            encoded += encode(Described(ULong(code), content))
        except ValueError:  # noqa: PERF203 - what is nested too deep cannot be said at all
            if code == APPLICATION_PROPERTIES:
                encoded += encode(Described(ULong(code), {NUMBER: number}))
    return _spoilt(chance, encoded, number) if chance.random() < 0.02 else encoded


def _spoilt(chance: random.Random, encoded: bytes, number: int) -> bytes:
    """Return a message with one byte changed, unless its number would be another one."""
    at = chance.randrange(len(encoded))
    spoilt = encoded[:at] + bytes([chance.randrange(256)]) + encoded[at + 1 :]
    try:
        found = decode_sections(spoilt).application_properties.get(NUMBER)
    except ValueError:
        return spoilt
    return spoilt if found == number else encoded


# By the SDK.


def _python_value(chance: random.Random) -> Any:
    """Return any value of Python's, those included that no message carries."""
    odd = (
        *(1 << 64, -(1 << 63) - 1, 1 << 400, timedelta.max, timedelta.min, "\ud800", object(), bytearray(b"x")),
        decimal.Decimal(chance.choice(("NaN", "-Infinity", "1E+9999", "9" * 35))),
    )
    usual = (
        *(timedelta(1), 5, 1 << 63, "x", "ä", b"\xff", None, True, 1.5, float("nan"), _moment(chance), uuid.uuid4()),
        decimal.Decimal(chance.choice(("12.50", "-0", "1E+6000", "9" * 34))),
    )
    moments = (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), datetime.min.replace(tzinfo=timezone.utc))
    return chance.choice(chance.choice((usual, usual, usual, odd, moments)))


def _nested_value(chance: random.Random) -> Any:
    inner = [_python_value(chance) for _ in range(chance.randrange(3))]
    return chance.choice((_python_value(chance), inner, {"a": inner, 5: inner}, [inner, (1, 2)]))


def sdk_message(chance: random.Random, number: int) -> Any:
    """Return a message for the SDK, or raise what its constructors raise."""
    odd = chance.random() < 0.3
    own: dict[Any, Any] = {ascii_text(chance): _python_value(chance) if odd else text(chance)}
    own[NUMBER] = number
    if chance.random() < 0.5:
        return ServiceBusMessage(
            chance.choice((None, b"x", text(chance))),
            application_properties=own,
            content_type=chance.choice((None, "text/plain", text(chance) if odd else "")),
            subject=chance.choice((None, text(chance))),
            correlation_id=chance.choice((None, text(chance), uuid.uuid4(), b"\xff", -1 if odd else 5)),
            message_id=chance.choice((None, text(chance), uuid.uuid4(), b"\xff", 5)),
            time_to_live=chance.choice((None, timedelta.max, timedelta(hours=1), -5 if odd else 0)),
        )
    bodies: Mapping[str, Any] = {
        "data_body": chance.choice((b"x", [b"x", "y"], [b"", b"x" * 9, b""])),
        "value_body": _nested_value(chance),
        "sequence_body": [_nested_value(chance)],
    }
    kind = chance.choice(list(bodies))
    keys = (ascii_text(chance), ascii_text(chance).encode(), *((5, "ä", None, -1, 1.5) if odd else ()))
    parts: dict[str, Any] = {
        "header": {"priority": chance.choice((4, 300, -1, "x") if odd else (4,)), "durable": True},
        "properties": {
            "group_sequence": chance.choice((0, -1, 1 << 40, "x") if odd else (0,)),
            "content_encoding": chance.choice(("utf-8", b"utf-8", *(("ä", 5) if odd else ()))),
            "creation_time": chance.choice((5, _moment(chance), *((1 << 70, "now") if odd else ()))),
        },
        **{
            name: {chance.choice(keys): _nested_value(chance)}
            for name in ("annotations", "delivery_annotations", "footer")
        },
    }
    chosen = {name: part for name, part in parts.items() if chance.random() < 0.4}
    return AmqpAnnotatedMessage(application_properties=own, **{kind: bodies[kind]}, **chosen)


# By plain Kafka producers.

_TAGS: Final = (
    *(
        "int",
        "float",
        "bytes",
        "uuid",
        "datetime",
        "timedelta",
        "map",
        "ubyte",
        "uint",
        "ulong",
        "byte",
        "int32",
        "float32",
    ),
    *("symbol", "char", "milliseconds", "decimal", "array", "described", "x"),
)
_JSON: Final = (
    None,
    True,
    5,
    -1,
    300,
    1 << 40,
    1 << 70,
    9_999_999_999_999,
    1e308,
    "x",
    "ä",
    "",
    "AAE=",
    "2026-01-01T00:00:00",
)
_PARTS: Final = ("header", "properties", "annotations", "delivery_annotations", "footer", "application_properties")
_NAMES: Final = (
    *("durable", "priority", "first_acquirer", "user_id", "content_encoding", "creation_time", "group_sequence"),
    *(
        "absolute_expiry_time",
        "message_id",
        "correlation_id",
        "x-opt-sequence-number",
        "x-opt-lock-token",
        "größe",
        "x",
    ),
)
_HEADERS: Final = (
    *(header for _, header in h.TEXT_FIELDS),
    h.APPLICATION_PROPERTIES,
    h.ENQUEUED_SEQUENCE_NUMBER,
    h.HOPS,
    "other",
    "",
)


def _json(chance: random.Random, depth: int = 0) -> Any:
    """Return a value of JSON, which may look as kafkabus's."""
    if depth > 4 or chance.random() < 0.5:
        return chance.choice(_JSON)
    if chance.random() < 0.5:
        return {chance.choice(_TAGS): _json(chance, depth + 1)}
    if chance.random() < 0.5:
        return {"map": [[chance.choice(_NAMES), _json(chance, depth + 1)] for _ in range(chance.randrange(4))]}
    return [_json(chance, depth + 1) for _ in range(chance.randrange(4))]


def _content(chance: random.Random, name: str) -> bytes | None:
    kind = chance.randrange(8)
    if name == h.AMQP and kind < 6:
        entries = [
            [part, {"map": [[chance.choice(_NAMES), _json(chance)] for _ in range(chance.randrange(4))]}]
            for part in chance.choices(_PARTS, k=chance.randrange(4))
        ]
        return json.dumps({"map": entries}).encode()
    if name == h.APPLICATION_PROPERTIES and kind < 6:
        return json.dumps({f"{text(chance)}-": _json(chance) for _ in range(chance.randrange(4))}).encode()
    if name == h.CONTENT_TYPE and kind < 4:
        return text(chance).encode()
    return (text(chance).encode(), b"sequence", b"value", b"\xff\xfe", b"-5", b"9" * 30, None, b"[" * 5000)[kind]


def record(chance: random.Random, number: int) -> tuple[bytes | None, bytes | None, Headers]:
    """Return key, value and headers of a record that a plain producer may write."""
    headers: Headers = []
    often = (h.AMQP, h.APPLICATION_PROPERTIES, h.CONTENT_TYPE)
    for name in (*chance.choices(_HEADERS, k=chance.randrange(5)), *chance.choices(often, k=chance.randrange(3))):
        headers.append((name, _content(chance, name)))
    headers += [(name, chance.choice((b"-5", b"x", b"-9" * 9))) for name in (h.TIME_TO_LIVE,) if chance.random() < 0.3]
    headers += [
        (name, chance.choice((b"5", b"-1", b"x"))) for name in (h.SCHEDULED_ENQUEUE_TIME,) if chance.random() < 0.1
    ]
    headers.append((NUMBER, b"%d" % number))
    body = chance.choice((None, b"", b"x", b"\xff", json.dumps(_json(chance)).encode(), b"[" * 5000))
    return chance.choice((None, b"k", b"\xff")), body, headers
