"""Conversion between AMQP messages as applications have them and the sections in which AMQP 1.0 encodes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from kafkabus._core.amqp_message import AmqpAnnotatedMessage, AmqpMessageBodyType
from kafkabus_mapping.amqp.decimals import decimal_of
from kafkabus_mapping.amqp.sections import Sections
from kafkabus_mapping.amqp.types import DecimalBits, Described
from kafkabus_mapping.amqp_values import DATETIME_OFFSET, TIMESPAN, amqp_value
from kafkabus_mapping.codec import to_milliseconds

_TICKS = 10
_PLAIN: Final[list[tuple[type[Any], Callable[[Any], Any]]]] = [(str, str), (int, int), (float, float), (bytes, bytes)]


def to_annotated_message(sections: Sections) -> AmqpAnnotatedMessage:
    """Return the message of these sections; values of types that only AMQP has become values of Python's nearest types.

    Raises:
        TypeError: A field is of a type that it cannot have.
        ValueError: A duration is longer than any of Python's.
    """
    header = {name: plain_value(value) for name, value in sections.header.items()}
    if "ttl" in header:
        header["time_to_live"] = header.pop("ttl")
    properties = {name: milliseconds_of(plain_value(value)) for name, value in sections.properties.items()}
    body: dict[str, Any] = {"value_body": plain_value(sections.value)}
    if sections.data:
        body = {"data_body": sections.data}
    elif sections.sequences:
        body = {"sequence_body": plain_value(sections.sequences)}
    return AmqpAnnotatedMessage(
        header=header,
        properties=properties,
        application_properties=plain_value(sections.application_properties),
        annotations=plain_value(sections.message_annotations),
        delivery_annotations=plain_value(sections.delivery_annotations),
        footer=plain_value(sections.footer),
        **body,
    )


def sections_of(message: AmqpAnnotatedMessage) -> Sections:
    """Return a message's sections."""
    header = _present(message.header)
    if "time_to_live" in header:
        header["ttl"] = header.pop("time_to_live")
    sections = Sections(
        header=header,
        delivery_annotations=_key_by_name(message.delivery_annotations),
        message_annotations=_key_by_name(message.annotations),
        properties=_present(message.properties),
        application_properties=_key_by_name(message.application_properties),
        footer=_key_by_name(message.footer),
    )
    if message.body_type is AmqpMessageBodyType.DATA:
        sections.data = message.pieces()
    elif message.body_type is AmqpMessageBodyType.SEQUENCE:
        sections.sequences = amqp_value(message.sequences())
    else:
        sections.value = amqp_value(message.body)
    return sections


def plain_value(value: Any) -> Any:  # noqa: PLR0911 - a case each
    """Return a decoded value in Python's own types; a decimal that is no finite number as its bytes.

    Raises:
        ValueError: A duration is longer than any of Python's, or a moment is not in its years.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, DecimalBits):
        with contextlib.suppress(ValueError):
            return decimal_of(value)
        return bytes(value)
    for kind, make in _PLAIN:
        if isinstance(value, kind):
            return make(value)
    if isinstance(value, Described):
        convert = _DESCRIBED.get(value.descriptor)
        return plain_value(value.value) if convert is None else convert(value.value)
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return {_hashable(plain_value(key)): plain_value(item) for key, item in value.items()}
    return value


def _duration_of(ticks: Any) -> timedelta:
    try:
        # Towards zero, so that the longest duration is none that AMQP could not carry.
        return timedelta(microseconds=int(ticks) // _TICKS if ticks > 0 else -(-int(ticks) // _TICKS))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{ticks!r:.80} is no duration: {error}") from error


def _moment_of(ticks: Any) -> datetime:
    try:
        return _FIRST_MOMENT + timedelta(microseconds=int(ticks) // _TICKS)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{ticks!r:.80} is no DateTimeOffset, in the years 1 to 9999: {error}") from error


_FIRST_MOMENT: Final = datetime(1, 1, 1, tzinfo=timezone.utc)
_DESCRIBED: Final[Mapping[Any, Callable[[Any], Any]]] = {TIMESPAN: _duration_of, DATETIME_OFFSET: _moment_of}
"""Functions that return Python's value of a described one, by the descriptor."""


def _hashable(key: Any) -> Any:
    """Return a key of a mapping; an array as a tuple."""
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


def _key_by_name(values: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Return values by name in types that AMQP has; a name that came as bytes is text."""
    return {key.decode() if isinstance(key, bytes) else key: amqp_value(value) for key, value in (values or {}).items()}


def _present(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if value is not None}


def milliseconds_of(value: Any) -> Any:
    """Return a moment in milliseconds since 1970, as azure.servicebus gives it; return other values as they are."""
    return to_milliseconds(value) if isinstance(value, datetime) else value
