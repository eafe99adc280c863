"""Values of elements as text: durations, numbers, and the typed values of rules."""

from __future__ import annotations

import base64
import math
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from xml.etree.ElementTree import Element

from pydantic import TypeAdapter, ValidationError

from kafkabus.gateway.administration.atom import DocumentError, element, moment_text, type_of
from kafkabus_mapping.amqp.decimals import check_decimal
from kafkabus_mapping.durations import iso_duration
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.properties import PropertyValue

FOR_EVER = "P10675199DT2H48M5.4775807S"
"""The longest duration as Azure writes it, in tenths of microseconds, which Python does not count."""
SCHEMA = "http://www.w3.org/2001/XMLSchema"
"""The namespace of most types of values."""
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
"""The namespace of the other types."""

_PREFIX = "d6p1"
"""The prefix of types: JavaScript's client cuts off as many characters without looking for a colon."""
_DURATION = re.compile(r"-?P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_INT = range(-(1 << 31), 1 << 31)
_ROUNDED = timedelta(milliseconds=1)
_DURATIONS = TypeAdapter(timedelta)
_MOMENTS = TypeAdapter(datetime)
_INFINITIES = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan}


def duration_text(duration: timedelta) -> str:
    """Return a duration as Azure writes it."""
    if duration < timedelta():
        return f"-{duration_text(-duration)}"
    return FOR_EVER if duration >= FOREVER else iso_duration(duration)


def read_duration(text: str) -> timedelta:
    """Return a duration; one that is all but the longest is the longest, since clients round it.

    Raises:
        ValueError: The text is no duration.
    """
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError("write a duration as ISO 8601 does, such as PT30S or P1DT12H")
    try:
        duration = _DURATIONS.validate_python(text.strip())
    except ValidationError:
        return FOREVER  # The pattern lets only those fail that are too long.
    return FOREVER if duration > FOREVER - _ROUNDED else duration


def read_integer(text: str) -> int:
    """Return a whole number.

    Raises:
        ValueError: The text is no whole number.
    """
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError("write a whole number")
    return int(text)


def read_boolean(text: str) -> bool:
    """Return a truth value.

    Raises:
        ValueError: The text is none.
    """
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise ValueError("write true or false")


def read_moment(text: str) -> datetime:
    """Return a time; without a zone if the text has none.

    Raises:
        ValueError: The text is no time.
    """
    try:
        return _MOMENTS.validate_python(text.strip())
    except ValidationError as error:
        raise ValueError("write a time as ISO 8601 does, such as 2030-01-31T12:00:00Z") from error


def value_element(name: str, value: PropertyValue) -> Element:
    """Return an element with a value of any type that properties have, which it declares."""
    if value is None:
        return element(name, **{"i:nil": "true"})
    kind, text = _type_and_text(value)
    namespace = SERIALIZATION if kind == "guid" else SCHEMA
    return element(name, text, **{f"xmlns:{_PREFIX}": namespace, "i:type": f"{_PREFIX}:{kind}"})


def read_value(node: Element) -> PropertyValue:
    """Return the value in an element, of the type that it declares.

    Raises:
        DocumentError: The type is unknown, or the text is no value of that type.
    """
    kind, text = type_of(node) or "string", node.text or ""
    if kind not in _READERS:
        raise DocumentError(f"a value of the type {kind!r}: choose from {', '.join(_READERS)}")
    try:
        return _READERS[kind](text)
    except ValueError as error:
        raise DocumentError(f"{text!r} is no value of the type {kind}: {error}") from error


def _type_and_text(  # noqa: PLR0911 - a case each
    value: str | bytes | float | uuid.UUID | datetime | timedelta | Decimal,
) -> tuple[str, str]:
    """Return the name of a value's type, and the value as text."""
    match value:
        case bool():
            return "boolean", str(value).lower()
        case int():
            return "int" if value in _INT else "long", str(int(value))
        case float():
            return "double", _float_text(value)
        case datetime():
            return "dateTime", moment_text(value) if value.tzinfo else value.isoformat()
        case timedelta():
            return "duration", duration_text(value)
        case uuid.UUID():
            return "guid", str(value)
        case Decimal():
            # XML's decimals have no exponents.
            return "decimal", f"{value:f}"
        case bytes():
            return "base64Binary", base64.b64encode(value).decode("ascii")
        case _:
            return "string", str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "INF" if value > 0 else "-INF"


def _read_float(text: str) -> float:
    return _INFINITIES[text] if text in _INFINITIES else float(text)


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_decimal(text: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation as error:
        raise ValueError("write a decimal with digits and a point, such as 12.50") from error
    check_decimal("it", value)
    return value


_READERS: Mapping[str, Callable[[str], PropertyValue]] = {
    "string": str,
    "int": read_integer,
    "long": read_integer,
    "double": _read_float,
    "boolean": read_boolean,
    "dateTime": read_moment,
    "duration": read_duration,
    "guid": uuid.UUID,
    "base64Binary": _read_bytes,
    "float": _read_float,
    "decimal": _read_decimal,
    **dict.fromkeys(
        ("short", "byte", "unsignedByte", "unsignedShort", "unsignedInt", "unsignedLong", "integer"), read_integer
    ),
    "char": str,
}
"""The types that values declare, with the functions that read them."""
