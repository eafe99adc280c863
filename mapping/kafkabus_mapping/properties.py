"""Application properties as JSON that Spark and people can read; types that JSON does not have are tagged.

A property's value is a JSON string, number, boolean or null; an object with one member is a tagged value:
``{"datetime": "2026-01-31T12:00:00.000001+00:00"}``, ``{"uuid": "…"}``, ``{"bytes": "<base64>"}``, ``{"int": "…"}``
for integers beyond 2**53, ``{"float": "nan"}`` for floats that JSON cannot write, ``{"timedelta": <microseconds>}``, and from
format 2 on ``{"decimal": "12.50"}``.

Within a body or annotations, values of types that only AMQP has are tagged with their type: ``{"int32": 5}``. There, a decimal
has its bits in AMQP: ``{"decimal": {"bytes": "<base64>"}}``, in the first format as well.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from kafkabus_mapping.amqp.decimals import bits_of
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
)

PropertyValue = str | bytes | int | float | bool | uuid.UUID | datetime | timedelta | Decimal | None
"""The types of an application property's value."""

T = TypeVar("T")

EXACT_IN_JSON = 1 << 53
"""The largest absolute value of an integer that is written as a JSON number; larger ones are tagged."""
_SURROGATE = b"\\ud"
_MICROSECOND = timedelta(microseconds=1)


class PropertyRuleError(TypeError):
    """Messages cannot carry an application property; the error names the key, the type and the allowed types."""


def encode_properties(properties: Mapping[str | bytes, PropertyValue]) -> str:
    """Return application properties as the JSON text of their header.

    Raises:
        PropertyRuleError: A key is not text, or a value has a type that messages cannot carry.
    """
    return _json(_encode_object(properties))


def _encode_object(properties: Mapping[Any, PropertyValue]) -> dict[str, object]:
    encoded: dict[str, object] = {}
    for key, value in properties.items():
        encoded[_text_key(key)] = value if type(value) is str or type(value) is bool else _encode_value(key, value)
    return encoded


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_changes(properties: Mapping[Any, PropertyValue]) -> dict[str, str]:
    """Return the value of each application property as JSON text, by its name, as ledgers keep changed ones.

    Raises:
        PropertyRuleError: A key is not text, or a value has a type that messages cannot carry.
        ValueError: A text holds half of a surrogate pair.
    """
    changes = {name: _json(value) for name, value in _encode_object(properties).items()}
    for name, text in changes.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError as error:  # noqa: PERF203 - the error names the property
            raise ValueError(
                f"application property {name[:80]!r}: its name or value holds half of a surrogate pair, which is no text; "
                "leave it out, or carry it as bytes"
            ) from error
    return changes


def read_changes(changes: Mapping[str, str]) -> dict[str | bytes, PropertyValue]:
    """Return the application properties that ``write_changes`` wrote.

    Raises:
        ValueError: The texts are not such JSON.
    """
    return {name: _decode_json(_decode_value, text) for name, text in changes.items()}


def encode_value(value: object) -> str:
    """Return any value that AMQP can carry as JSON text: values of properties, and lists and mappings of such values.

    A list becomes a JSON array; a mapping becomes ``{"map": [[key, value], …]}``, because its keys need not be text.

    Raises:
        PropertyRuleError: A value has a type that messages cannot carry.
    """
    return _json(_encode_tree(value))


def decode_value(text: str | bytes) -> Any:
    """Return the value of a text that ``encode_value`` wrote.

    Raises:
        ValueError: The text is not in the format of ``encode_value``.
    """
    return _decode_json(_decode_tree, text)


_OF_AMQP: Mapping[type[Any], str] = {
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int32",
    Float: "float32",
    Symbol: "symbol",
    Char: "char",
    Milliseconds: "milliseconds",
    DecimalBits: "decimal",
    Array: "array",
    Described: "described",
}
"""Tags of types that only AMQP has, whose values are encoded as those of the types that Python has for them."""
_TO_AMQP = {tag: kind for kind, tag in _OF_AMQP.items()}


def _encode_tree(value: object) -> object:
    if isinstance(value, Decimal):
        # As a client of AMQP sends it; the tag is the same one, and its content distinguishes them.
        value = bits_of(value)
    tag = _OF_AMQP.get(type(value))
    if tag is not None:
        return {tag: _encode_tree(_plain(value))}
    if isinstance(value, (list, tuple)):
        return [_encode_tree(element) for element in value]
    if isinstance(value, Mapping):
        return {"map": [[_encode_tree(key), _encode_tree(element)] for key, element in value.items()]}
    return _encode_value("value", value)


def _plain(value: Any) -> Any:
    """Return the value of a type that only AMQP has as one of Python's."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, float):
        return float(value)
    return int(value) if isinstance(value, int) else list(value)


def _decode_tree(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode_tree(element) for element in value]
    if isinstance(value, dict) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "map":
            return {_decode_tree(key): _decode_tree(element) for key, element in content}
        if tag == "described":
            return Described(*_decode_tree(content))
        if tag in _TO_AMQP:
            return _decode_amqp(_TO_AMQP[tag], _decode_tree(content))
    return _decode_value(value)


_HOLD: Mapping[type[Any], tuple[type[Any], ...]] = {
    Float: (float, int),
    Symbol: (str,),
    Char: (str,),
    DecimalBits: (bytes,),
    Array: (list,),
}
"""Types of the content of a tagged value of AMQP; the other tags have numbers."""


def _decode_amqp(kind: type[Any], content: Any) -> Any:
    if not isinstance(content, _HOLD.get(kind, (int,))) or isinstance(content, bool):
        # As bytes, a number would be so many zeros.
        raise ValueError(f"no AMQP {kind.__name__.lower()} is {type(content).__name__}")
    return kind(content)


def decode_properties(text: str | bytes) -> dict[str, PropertyValue]:
    """Return the application properties in the JSON text of their header.

    Raises:
        ValueError: The text is not such JSON.
    """
    return _decode_json(_decode_object, text)


def _decode_object(loaded: Any) -> dict[str, PropertyValue]:
    if not isinstance(loaded, dict):
        raise ValueError(f"application properties are a JSON object, not {type(loaded).__name__}")
    return {key: _decode_value(value) for key, value in loaded.items()}


def _decode_json(decode: Callable[[Any], T], text: str | bytes) -> T:
    """Apply a function to the JSON of a text, which may come from any producer.

    Raises:
        ValueError: The text is not JSON, contains half of a surrogate pair, or the function does not accept its value.
    """
    try:
        loaded = _load(text)
        if _SURROGATE in (text if isinstance(text, bytes) else text.encode()).lower():
            # Half of a surrogate pair cannot be encoded, so the message could not be sent on.
            json.dumps(loaded, ensure_ascii=False).encode()
        return decode(loaded)
    except (TypeError, AttributeError, OverflowError, RecursionError, InvalidOperation) as error:
        raise ValueError(f"not JSON as kafkabus writes it: {error}") from error


def _load(text: str | bytes) -> Any:
    """Return the value of a JSON text; one that certainly is UTF-8 is decoded without ``json``'s search for its encoding."""
    if isinstance(text, bytes) and text.startswith(b'{"'):
        text = text.decode("utf-8", "surrogatepass")
    return json.loads(text)


def _text_key(key: object) -> str:
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"application property key {key[:80]!r} is not UTF-8: use text") from error
    if isinstance(key, str):
        return key
    raise PropertyRuleError(f"application property key {key!r} is {type(key).__name__}: use str or bytes")


def _encode_value(key: object, value: object) -> object:  # noqa: PLR0911 - a case each
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value) if -EXACT_IN_JSON <= value <= EXACT_IN_JSON else {"int": str(int(value))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, datetime):
        return {"datetime": _in_utc(key, value).isoformat()}
    if isinstance(value, timedelta):
        return {"timedelta": value // _MICROSECOND}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    raise PropertyRuleError(
        f"application property {key!r} is {type(value).__name__}: "
        "use str, bytes, int, float, bool, UUID, datetime, timedelta or Decimal"
    )


def _in_utc(key: object, moment: datetime) -> datetime:
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(
            f"application property {key!r} is {moment}: in UTC, it is not in the years 1 to 9999"
        ) from error


def _finite(number: Decimal) -> Decimal:
    if not number.is_finite():
        raise ValueError(f"a decimal cannot be {number}")
    return number


_CONTENT_OF = {
    "int": (str, int, float),
    "float": (str, int, float),
    "bytes": (str,),
    "uuid": (str,),
    "datetime": (str,),
    "timedelta": (int, float),
    "decimal": (str,),
}
"""Types of the JSON member of a tagged value."""


def _decode_value(value: object) -> PropertyValue:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("an application property cannot be a list")
        return value  # type: ignore[return-value]  # json.loads yields only str, int, float, bool and None here
    if len(value) != 1:
        raise ValueError(f"a tagged application property has one member, not {len(value)}")
    ((tag, content),) = value.items()
    if not isinstance(content, _CONTENT_OF.get(tag, ())) or isinstance(content, bool):
        raise ValueError(f"no application property has the tag {tag!r} and {type(content).__name__}")
    return _decode_tagged(tag, content)


def _decode_tagged(tag: str, content: Any) -> PropertyValue:  # noqa: PLR0911 - a case each
    if tag == "int":
        return int(content)
    if tag == "float":
        return float(content)
    if tag == "bytes":
        return base64.b64decode(content, validate=True)
    if tag == "uuid":
        return uuid.UUID(content)
    if tag == "timedelta":
        return timedelta(microseconds=content)
    if tag == "decimal":
        return _finite(Decimal(content))
    moment = datetime.fromisoformat(content)
    return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
