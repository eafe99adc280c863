"""Conversion between AMQP messages as applications have them and the sections in which AMQP 1.0 encodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from kafkabus._core.amqp_message import AmqpAnnotatedMessage, AmqpMessageBodyType
from kafkabus_mapping.amqp.sections import Sections
from kafkabus_mapping.amqp.types import Described, Symbol, ULong
from kafkabus_mapping.codec import to_milliseconds

TIMESPAN: Final = Symbol("com.microsoft:timespan")
"""Descriptor of a duration, in ticks of 100 ns, as Microsoft's other SDKs send them."""
_MICROSECOND = timedelta(microseconds=1)
_TICKS = 10
_PLAIN: Final[list[tuple[type[Any], Callable[[Any], Any]]]] = [(str, str), (int, int), (float, float), (bytes, bytes)]
_LARGEST_LONG = (1 << 63) - 1


def annotated(sections: Sections) -> AmqpAnnotatedMessage:
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
        delivery_annotations=_amqp_value(message.delivery_annotations or {}),
        message_annotations=_amqp_value(message.annotations or {}),
        properties=_present(message.properties),
        application_properties=_amqp_value(message.application_properties or {}),
        footer=_amqp_value(message.footer or {}),
    )
    if message.body_type is AmqpMessageBodyType.DATA:
        sections.data = message.pieces()
    elif message.body_type is AmqpMessageBodyType.SEQUENCE:
        sections.sequences = _amqp_value(message.sequences())
    else:
        sections.value = _amqp_value(message.body)
    return sections


def plain_value(value: Any) -> Any:  # noqa: PLR0911 - a case each
    """Return a decoded value in Python's own types.

    Raises:
        ValueError: A duration is longer than any of Python's.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind, make in _PLAIN:
        if isinstance(value, kind):
            return make(value)
    if isinstance(value, Described):
        if value.descriptor == TIMESPAN:
            try:
                return timedelta(microseconds=int(value.value) // _TICKS)
            except (TypeError, OverflowError) as error:
                raise ValueError(f"{value.value!r:.80} is no duration: {error}") from error
        return plain_value(value.value)
    if isinstance(value, (list, tuple)):
        return [plain_value(one) for one in value]
    if isinstance(value, Mapping):
        return {plain_value(key): plain_value(one) for key, one in value.items()}
    return value


def _amqp_value(value: Any) -> Any:
    """Return a value in a type that AMQP has."""
    if isinstance(value, timedelta):
        return Described(TIMESPAN, value // _MICROSECOND * _TICKS)
    if isinstance(value, int) and value > _LARGEST_LONG:
        return ULong(value)
    if isinstance(value, (list, tuple)):
        return [_amqp_value(one) for one in value]
    if isinstance(value, Mapping):
        return {_name(key): _amqp_value(one) for key, one in value.items()}
    return value


def _name(key: Any) -> Any:
    """Return a key of a mapping; one that came as bytes becomes text."""
    return key.decode() if isinstance(key, bytes) else _amqp_value(key)


def _present(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if value is not None}


def milliseconds_of(value: Any) -> Any:
    """Return a moment in milliseconds since 1970, as azure.servicebus gives it; return other values as they are."""
    return to_milliseconds(value) if isinstance(value, datetime) else value
