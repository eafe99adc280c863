"""Messages as AMQP 1.0 encodes them: a sequence of sections (part 3 of its specification, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkabus_mapping.amqp.types import (
    MOST_VALUES,
    AmqpDecodeError,
    Described,
    Milliseconds,
    Symbol,
    UByte,
    UInt,
    ULong,
    decode,
    encode,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
PROPERTIES_FIELDS: Final = (
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id"),
)

_MAPS: Final = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}
_LISTS: Final = {HEADER: ("header", HEADER_FIELDS), PROPERTIES: ("properties", PROPERTIES_FIELDS)}
_IN_ORDER: Final = (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)
_NAMED: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
"""Symbolic descriptors, which a peer may write in place of the numeric ones."""
_NUMERIC: Final = b"\x00\x53"
"""The beginning of a described value whose descriptor is a number of one byte."""


def _identifier(value: Any) -> Any:
    return ULong(value) if type(value) is int else value


def _moment(value: Any) -> Any:
    return Milliseconds(value) if isinstance(value, int) else value


def _binary(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


_AS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "priority": UByte,
    "ttl": UInt,
    "delivery_count": UInt,
    "group_sequence": UInt,
    "content_type": Symbol,
    "content_encoding": Symbol,
    "message_id": _identifier,
    "correlation_id": _identifier,
    "user_id": _binary,
    "absolute_expiry_time": _moment,
    "creation_time": _moment,
}
"""Converters of fields to their AMQP types; fields without one are encoded as they are."""


@dataclass(slots=True)
class Sections:
    """The sections of a message; a section that is missing is empty here.

    Attributes:
        header: The fields that are set, by their names in ``HEADER_FIELDS``.
        delivery_annotations: Annotations by symbol.
        message_annotations: Annotations by symbol.
        properties: The fields that are set, by their names in ``PROPERTIES_FIELDS``.
        application_properties: Values by name.
        data: The pieces of a body of bytes.
        sequences: The lists of a body of sequences.
        value: The value of a value body; None if the message has no body.
        footer: Annotations by symbol.
    """

    header: dict[str, Any] = field(default_factory=dict[str, Any])
    delivery_annotations: dict[Any, Any] = field(default_factory=dict[Any, Any])
    message_annotations: dict[Any, Any] = field(default_factory=dict[Any, Any])
    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    application_properties: dict[Any, Any] = field(default_factory=dict[Any, Any])
    data: list[bytes] = field(default_factory=list[bytes])
    sequences: list[list[Any]] = field(default_factory=list[list[Any]])
    value: Any = None
    footer: dict[Any, Any] = field(default_factory=dict[Any, Any])


def decode_sections(message: bytes, most_values: int = MOST_VALUES) -> Sections:
    """Return the sections of an encoded message; the bytes may come from any producer and need not be valid.

    Args:
        message: The bytes.
        most_values: The most elements of all lists, maps and arrays of a section together.

    Raises:
        AmqpDecodeError: The bytes are not an AMQP message; the error says at which byte, and why.
    """
    found, at = Sections(), 0
    while at < len(message):
        begins = at
        if message.startswith(_NUMERIC, begins) and begins + 3 < len(message):
            # The usual descriptor, one byte: most of the time would go into reading it as a value.
            descriptor: Any = message[begins + 2]
            content, at = decode(message, begins + 3, most_values)
        else:
            section, at = decode(message, begins, most_values)
            if not isinstance(section, Described):
                raise AmqpDecodeError(f"at byte {begins}: a section is a described value")
            descriptor, content = section
        try:
            _put(found, descriptor, content)
        except (TypeError, ValueError) as error:
            raise AmqpDecodeError(f"at byte {begins}: {error}") from error
    if sum(map(bool, (found.data, found.sequences, found.value is not None))) > 1:
        raise AmqpDecodeError("a message has one body: data, sequences or a value")
    return found


def _put(found: Sections, descriptor: Any, content: Any) -> None:
    code = _NAMED.get(descriptor, descriptor) if type(descriptor) is not int else descriptor
    if code in _LISTS:
        name, names = _LISTS[code]
        values = _check_type(content, list, name)
        if len(values) > len(names):
            raise ValueError(f"{name} has {len(values)} fields, and may have {len(names)}")
        setattr(found, name, {key: value for key, value in zip(names, values, strict=False) if value is not None})
    elif code in _MAPS:
        setattr(found, _MAPS[code], _check_type(content, dict, _MAPS[code]) if content is not None else {})
    elif code == DATA:
        found.data.append(_check_type(content, bytes, "data"))
    elif code == SEQUENCE:
        found.sequences.append(_check_type(content, list, "a sequence"))
    elif code == VALUE:
        found.value = content
    else:
        raise ValueError(f"no section has the descriptor {code!r:.80}")


def _check_type(content: Any, kind: type[Any], name: str) -> Any:
    if not isinstance(content, kind):
        raise TypeError(f"{name} is {type(content).__name__}, not {kind.__name__}")
    return content


def encode_sections(message: Sections) -> bytes:
    """Encode a message; if it has neither data nor sequences, its body is its value.

    Raises:
        TypeError: AMQP has no type for a value.
        ValueError: A number is out of its type's bounds, or a section has an unknown field.
    """
    parts: list[bytes] = []
    for code in _IN_ORDER:
        name, names = _LISTS.get(code) or (_MAPS[code], ())
        content: dict[Any, Any] = getattr(message, name)
        if names:
            unknown = content.keys() - set(names)
            if unknown:
                raise ValueError(f"{name} has no field {min(unknown)!r}: choose from {', '.join(names)}")
            if content:
                parts.append(_section(code, [_field(key, content.get(key)) for key in names]))
        elif content:
            parts.append(_section(code, content if code == APPLICATION_PROPERTIES else _by_symbols(content)))
    if message.data:
        parts += [_section(DATA, piece) for piece in message.data]
    elif message.sequences:
        parts += [_section(SEQUENCE, sequence) for sequence in message.sequences]
    else:
        parts.append(_section(VALUE, message.value))
    if message.footer:
        parts.append(_section(FOOTER, _by_symbols(message.footer)))
    return b"".join(parts)


def _section(code: int, content: Any) -> bytes:
    return encode(Described(ULong(code), content))


def _field(name: str, value: Any) -> Any:
    kind = _AS.get(name)
    return value if kind is None or value is None else kind(value)


def _by_symbols(content: Mapping[Any, Any]) -> dict[Any, Any]:
    return {Symbol(key) if type(key) is str else key: value for key, value in content.items()}
