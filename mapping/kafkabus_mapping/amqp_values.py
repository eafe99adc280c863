"""The rules of AMQP for the values of a message, and substitutes for values that break them.

Senders refuse such a value by its name: ``amqp_value``, ``field_value`` and ``annotation_key`` raise for it. Records hold some
nevertheless, because plain Kafka producers and earlier versions wrote them. Receivers get a replacement from
``nearest_value``, ``nearest_field`` and ``nearest_key``, which never raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from kafkabus_mapping.amqp.decimals import bits_of, check_decimal
from kafkabus_mapping.amqp.types import (
    DEEPEST,
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
from kafkabus_mapping.properties import encode_value

TIMESPAN: Final = Symbol("com.microsoft:timespan")
"""Descriptor of a duration, in ticks of 100 ns, as Microsoft's SDKs send them."""
DATETIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")
"""Descriptor of a moment, in ticks of 100 ns since the year 1 in UTC, as Microsoft's SDK for .NET sends a DateTimeOffset."""
LARGEST_LONG: Final = (1 << 63) - 1
LARGEST_ULONG: Final = (1 << 64) - 1
LARGEST_UINT: Final = (1 << 32) - 1
LONGEST_TIMESPAN: Final = LARGEST_LONG // 10
"""The longest duration that AMQP can carry, in microseconds."""
_SMALLEST_LONG: Final = -(1 << 63)
_TICKS: Final = 10
_MICROSECOND: Final = timedelta(microseconds=1)
_DEEP: Final = DEEPEST - 8
"""From this depth on, a value is carried as text; the sections around it, and what it holds, need the rest."""
_ASCII: Final = "".join(map(chr, range(128)))
_AS_THEY_ARE: Final = frozenset(
    {
        *(type(None), bool, str, bytes, float, UUID, datetime, Array, Described),
        *(UByte, UShort, UInt, ULong, Byte, Short, Int, Float, Symbol, Char, Milliseconds, DecimalBits),
    }
)
"""Types that AMQP has as well."""


def amqp_value(value: Any) -> Any:  # noqa: PLR0911 - a case each
    """Return a value in a type that AMQP has: durations as ``TIMESPAN``, large numbers as ``ULong``, decimals as bits.

    Raises:
        ValueError: An integer has more than 64 bits, a decimal more than 34 digits, or a duration is longer than AMQP's.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        return value if _SMALLEST_LONG <= value <= LARGEST_LONG else _large(value)
    if isinstance(value, timedelta):
        return _timespan(value)
    if isinstance(value, Decimal):
        return bits_of(value)
    if isinstance(value, (list, tuple)):
        return [amqp_value(item) for item in value]
    if isinstance(value, Mapping):
        return {amqp_value(key): amqp_value(item) for key, item in value.items()}
    return value


def _large(number: int) -> ULong:
    if not 0 < number <= LARGEST_ULONG:
        raise ValueError(
            f"{number:#x} has more than 64 bits: AMQP's numbers are from -2**63 to 2**64 - 1; send text instead"
        )
    return ULong(number)


def _timespan(duration: timedelta) -> Described:
    ticks = duration // _MICROSECOND * _TICKS
    if not _SMALLEST_LONG <= ticks <= LARGEST_LONG:
        raise ValueError(
            f"a duration of {duration.days} days is longer than AMQP's longest, 10,675,199 days; send a shorter one, or text"
        )
    return Described(TIMESPAN, ticks)


def check_value(name: str, value: Any) -> None:
    """Check that AMQP can carry a value.

    Args:
        name: Its name, for errors.
        value: Any value.

    Raises:
        TypeError: AMQP has no type for it, or for a value within it.
        ValueError: A number, a duration or a text is none of AMQP's, or values are nested too deep.
    """
    try:
        encode(amqp_value(value))
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}") from error


def check_properties(properties: Mapping[str | bytes, Any]) -> None:
    """Check that AMQP can carry numbers and durations among application properties; other types cannot be wrong.

    Raises:
        ValueError: It cannot.
    """
    for name, value in properties.items():
        if isinstance(value, (int, timedelta)):
            check_value(f"application property {name!r}", int(value) if isinstance(value, int) else value)
        elif isinstance(value, Decimal):
            check_decimal(f"application property {name!r}", value)


# Fields of the header and of the properties.


def _boolean(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{name} is {type(value).__name__}: use True or False")
    return value


def _number(kind: type[int], largest: int) -> Callable[[str, Any], int]:
    def convert(name: str, value: Any) -> int:
        if not isinstance(value, int) or type(value) is bool:
            raise TypeError(f"{name} is {type(value).__name__}: use a whole number from 0 to {largest}")
        if not 0 <= value <= largest:
            raise ValueError(f"{name} is {int(value)}: use a whole number from 0 to {largest}")
        return kind(value)

    return convert


def _symbol(name: str, value: Any) -> Symbol:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(value).__name__}: use text")
    if not text.isascii():
        raise ValueError(f"{name} is {text[:80]!r}: AMQP carries it in ASCII only; percent-encode the other characters")
    return Symbol(text)


def _binary(name: str, value: Any) -> bytes:
    if not isinstance(value, (bytes, str)) or isinstance(value, DecimalBits):
        raise TypeError(f"{name} is {type(value).__name__}: use bytes or text")
    return value.encode() if isinstance(value, str) else value


def _moment(name: str, value: Any) -> datetime | Milliseconds:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, int) or type(value) is bool:
        raise TypeError(f"{name} is {type(value).__name__}: use datetime, or milliseconds since 1970")
    if not _SMALLEST_LONG <= value <= LARGEST_LONG:
        raise ValueError(f"{name} is {value:#x}: milliseconds since 1970 have at most 64 bits")
    return Milliseconds(value)


_FIELDS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "durable": _boolean,
    "priority": _number(UByte, 255),
    "first_acquirer": _boolean,
    "ttl": _number(UInt, LARGEST_UINT),
    "user_id": _binary,
    "content_type": _symbol,
    "content_encoding": _symbol,
    "absolute_expiry_time": _moment,
    "creation_time": _moment,
    "group_sequence": _number(UInt, LARGEST_UINT),
}
"""Fields that are not texts and not identifiers, with functions that return their values in AMQP's types."""
_BOUNDS: Final = {
    "priority": (0, 255),
    "group_sequence": (0, LARGEST_UINT),
    "absolute_expiry_time": (_SMALLEST_LONG, LARGEST_LONG),
    "creation_time": (_SMALLEST_LONG, LARGEST_LONG),
}
"""The smallest and the largest value of fields that are numbers."""


def field_value(name: str, value: Any) -> Any:
    """Return the value of a header's or properties' field in the type that AMQP has for it.

    Args:
        name: The field, as in ``sections``.
        value: Its value, other than None.

    Raises:
        TypeError: The field cannot have a value of this type.
        ValueError: The value is out of the field's bounds.
    """
    convert = _FIELDS.get(name)
    return value if convert is None else convert(name, value)


def annotation_key(part: str, key: Any) -> Any:
    """Return the key of an annotation in the type that AMQP has for it.

    Args:
        part: The annotations' name, for errors.
        key: A text, or bytes with one, or a number.

    Raises:
        TypeError: The key is none of these.
        ValueError: A text is not ASCII, or a number negative or beyond 64 bits.
    """
    kind = type(key)
    if kind is Symbol or kind is ULong:
        return key
    if isinstance(key, (str, bytes)):
        return _symbol(f"a key of {part}", key)
    if not isinstance(key, int) or kind is bool:
        raise TypeError(f"a key of {part} is {kind.__name__}: use text")
    if not 0 <= key <= LARGEST_ULONG:
        raise ValueError(f"a key of {part} is {key:#x}: use text, or a number from 0 to 2**64 - 1")
    return ULong(key)


def check_annotations(part: str, annotations: Mapping[Any, Any]) -> None:
    """Check that AMQP can carry annotations.

    Raises:
        TypeError: AMQP has no type for a value or a key.
        ValueError: A key is not ASCII, or a value is none of AMQP's.
    """
    for key, value in annotations.items():
        check_value(f"{part}[{key!r}]", value)
        annotation_key(part, key)


# Substitutes for values that AMQP cannot carry.


def nearest_value(value: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - a case each
    """Return the nearest value that AMQP can carry; one that it can carry as it is.

    An integer beyond 64 bits or a decimal beyond 34 digits becomes text, and a duration longer than AMQP's the longest one. A
    value of an AMQP type that the type does not have becomes the number, text or bytes that it is; values that are nested
    too deep become JSON as text.
    """
    if depth > _DEEP:
        return _as_text(value)
    if isinstance(value, timedelta):
        ticks = value // _MICROSECOND * _TICKS
        return Described(TIMESPAN, min(max(ticks, _SMALLEST_LONG), LARGEST_LONG))
    if isinstance(value, Decimal):
        return _nearest_decimal(value)
    if type(value) is Described:
        return Described(*(nearest_value(part, depth + 1) for part in value))
    if isinstance(value, (list, tuple)):
        return _nearest_list(value, depth + 1)
    if isinstance(value, Mapping):
        items = [(nearest_value(key, depth + 1), nearest_value(item, depth + 1)) for key, item in value.items()]
        return {_hashable(key): item for key, item in items}
    return value if _fits(value) else _nearest_scalar(value)


def _nearest_decimal(value: Decimal) -> DecimalBits | str:
    try:
        return bits_of(value)
    except ValueError:
        return str(value)


def _fits(value: Any) -> bool:
    try:
        encode(value)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it cannot be encoded
        return False
    return True


def _nearest_list(values: Any, depth: int) -> Any:
    items = [nearest_value(item, depth) for item in values]
    return Array(items) if type(values) is Array and _fits(Array(items)) else items


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return _as_text(key)
    return key


def _nearest_scalar(value: Any) -> Any:
    if isinstance(value, int):
        number = int(value)
        return next((fit for fit in (number, ULong(number)) if _fits(fit)), str(number))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value) if _fits(str(value)) else value.encode(errors="surrogatepass")
    return bytes(value) if isinstance(value, (bytes, bytearray)) else _as_text(value)


def _as_text(value: Any) -> str:
    """Return a value as JSON; as Python shows it if it has no such form."""
    try:
        text = encode_value(value)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it has no such form
        text = repr(value)
    return text.encode(errors="replace").decode()


def nearest_symbol(text: str | bytes) -> Symbol:
    """Return a text as a symbol; bytes that are not ASCII are percent-encoded."""
    return Symbol(quote(text, safe=_ASCII) if isinstance(text, bytes) else quote(text, _ASCII, errors="surrogatepass"))


def nearest_field(name: str, value: Any) -> Any:
    """Return the nearest value that a field can have, or None if it can have none that is near.

    A number is limited to the field's bounds; what is not ASCII of a text that has to be is percent-encoded.

    Args:
        name: The field.
        value: Its value, other than None.
    """
    try:
        return field_value(name, value)
    except (TypeError, ValueError):
        if name in _BOUNDS and isinstance(value, (int, float)) and math.isfinite(value):
            low, high = _BOUNDS[name]
            return field_value(name, int(min(max(value, low), high)))
        if name in {"content_type", "content_encoding"} and isinstance(value, (str, bytes)):
            return nearest_symbol(value)
        return None


def nearest_key(key: Any) -> Any:
    """Return the nearest key that an annotation can have: one that is neither text nor a number as text."""
    try:
        return annotation_key("", key)
    except (TypeError, ValueError):
        return nearest_symbol(key if isinstance(key, (str, bytes)) else str(key))
