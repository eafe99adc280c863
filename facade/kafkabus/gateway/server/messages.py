"""Messages between AMQP's sections and the records that hold them; values keep the types that AMQP has for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from kafkabus._core.amqp_encoding import milliseconds_of, plain_value
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage, envelope_of, receipt_of
from kafkabus._core.raw_message import (
    CARRIED_HEADER,
    CARRIED_PROPERTIES,
    IDENTIFIERS,
    OF_THE_BROKER,
    PARTITION_KEY,
    PEEKED_LOCKED_UNTIL,
    POSTPONED_UNTIL,
    SCHEDULED,
    TEXTS,
    decode_carried,
    identifier_in,
    plain,
    text_of,
)
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus_mapping.amqp.decimals import decimal_of
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
    Sections,
    decode_sections,
    encode_sections,
)
from kafkabus_mapping.amqp.types import (
    AmqpDecodeError,
    DecimalBits,
    Described,
    Int,
    Milliseconds,
    Symbol,
    UInt,
    ULong,
    encode,
)
from kafkabus_mapping.amqp_values import (
    LARGEST_UINT,
    amqp_value,
    annotation_key,
    field_value,
    nearest_field,
    nearest_key,
    nearest_symbol,
    nearest_value,
)
from kafkabus_mapping.codec import (
    MAX_IDENTIFIER,
    Envelope,
    encode_headers,
    from_milliseconds,
    join_sections,
    record_size,
    split_sections,
    to_milliseconds,
)
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.formats import FIRST, LATEST
from kafkabus_mapping.headers import PREFIX
from kafkabus_mapping.properties import decode_value, encode_value

BATCH_FORMAT: Final = 0x80013700
"""The message format of a transfer that carries several messages."""
MOST_VALUES: Final = 65_536
"""The most elements of all lists, maps and arrays of a section of a message, or of a request."""
LARGE: Final = 16_384
"""From how many bytes on a message may take long to parse."""
DEEPEST_BATCH: Final = 10_000
"""The most messages of a batch."""

_TICK_EPOCH: Final = 621_355_968_000_000_000
_OWN: Final = frozenset({*OF_THE_BROKER, PARTITION_KEY, SCHEDULED})
_LIMITED: Final = frozenset({"message_id", "session_id", "partition_key", "reply_to_session_id"})
_CARRIED: Final = frozenset(CARRIED_PROPERTIES)
_PLAIN: Final = frozenset({type(None), str, int, float, bool, bytes, uuid.UUID, datetime})
"""Types whose values are stored in a way that preserves the type."""
_LARGEST_TTL: Final = LARGEST_UINT
_LATEST: Final = 253_402_300_799_999
"""The end of the year 9999, ms since 1970."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_PART: Final = "application_properties"
"""The part of a message's carried data that holds the types of its application properties."""


def to_ticks(moment: datetime) -> int:
    """Return a moment as .NET counts it, in units of 100 ns since the year 1."""
    return _TICK_EPOCH + to_milliseconds(moment) * 10_000


def decode_transfer(payload: bytes, message_format: int, written_format: int) -> Iterator[Outgoing]:
    """Yield the messages of a transfer, as they are stored.

    Args:
        payload: The transfer's bytes.
        message_format: 0 for one message, ``BATCH_FORMAT`` for several.
        written_format: The format that is written to the namespace.

    Raises:
        AmqpError: The bytes are no such messages, or break a rule that all entities have.
    """
    try:
        if message_format != BATCH_FORMAT:
            yield _decode_sized(payload, written_format)
            return
        pieces = decode_sections(payload, MOST_VALUES).data
        if not 0 < len(pieces) <= DEEPEST_BATCH:
            raise AmqpError(ARGUMENT_ERROR, f"a batch of {len(pieces)} messages: it has 1 to {DEEPEST_BATCH}")
        for piece in pieces:
            yield _decode_sized(piece, written_format)
    except (TypeError, ValueError, OverflowError) as error:
        what = "the transfer holds no AMQP message: " if isinstance(error, AmqpDecodeError) else ""
        raise AmqpError(ARGUMENT_ERROR, f"{what}{error}") from error


def _decode_sized(message: bytes, written_format: int) -> Outgoing:
    """Return a message as it is stored; it counts with its size in AMQP, by which clients fill their batches."""
    return decode_message(decode_sections(message, MOST_VALUES), written_format)._replace(size=len(message))


def decode_message(sections: Sections, written_format: int = LATEST) -> Outgoing:
    """Return a message as it is stored.

    Args:
        sections: The message.
        written_format: The format that is written to the namespace. In the first one, decimals are bytes, and data sections
            are joined.

    Raises:
        TypeError: A value is of a type that it cannot have.
        ValueError: A value breaks a rule.
    """
    envelope, carried = Envelope(), dict[str, Mapping[Any, Any]]()
    carried["properties"] = _read_properties(envelope, sections.properties)
    if sections.message_annotations:
        carried["annotations"] = _read_annotations(envelope, sections.message_annotations)
    _check_identifiers(envelope)
    if sections.header:
        envelope.time_to_live = _life(sections)
        carried["header"] = {name: sections.header[name] for name in CARRIED_HEADER if name in sections.header}
    if sections.application_properties:
        own, carried[_PART] = _application_properties(sections.application_properties, written_format)
        envelope.application_properties = own
    if sections.footer:
        carried["footer"] = _others("footer", sections.footer)
    if sections.delivery_annotations:
        carried["delivery_annotations"] = _others("delivery_annotations", sections.delivery_annotations)
    present = {name: part for name, part in carried.items() if part}
    if present:
        envelope.amqp = _carried_text(present)
    value = _body(sections, envelope, written_format)
    headers = encode_headers(envelope)
    key = envelope.session_id or envelope.partition_key
    return Outgoing(envelope, value, headers, record_size(value, key, headers))


def _carried_text(present: Mapping[str, Mapping[Any, Any]]) -> str:
    """Return the text of the header that carries parts of a message.

    Raises:
        TypeError: A field of the AMQP header has a wrong type.
        ValueError: A field of the AMQP header is out of its bounds.
    """
    if len(present) == 1 and "header" in present:
        with suppress(TypeError):  # A value that cannot be looked up, which is of no field's type.
            return _header_text(tuple((name, type(value), value) for name, value in present["header"].items()))
    if "header" in present:
        _fields(present["header"], CARRIED_HEADER)
    return encode_value(present)


@lru_cache(maxsize=256)
def _header_text(fields: tuple[tuple[str, type[Any], Any], ...]) -> str:
    """Return the text that carries a header, of names, types and values; applications send the same one with each message."""
    header = {name: value for name, _, value in fields}
    _fields(header, CARRIED_HEADER)
    return encode_value({"header": header})


def _read_properties(envelope: Envelope, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Note properties in an envelope; return those that it has no field for, or whose types its fields do not keep."""
    carried: dict[str, Any] = {}
    for name in IDENTIFIERS:
        value = properties.get(name)
        if value is not None and value != "":
            setattr(envelope, name, text_of(name, value))
            if not isinstance(value, str):
                carried[name] = value
    if envelope.message_id is None:
        envelope.message_id = uuid.uuid4().hex
    for name, field in TEXTS.items():
        value = properties.get(field)
        if value is not None:
            setattr(envelope, name, _text(field, value))
    if envelope.content_type is not None and not envelope.content_type.isascii():
        field_value("content_type", envelope.content_type)
    if not _CARRIED.isdisjoint(properties):
        carried.update(_fields(properties, CARRIED_PROPERTIES))
    return carried


def _read_annotations(envelope: Envelope, annotations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Note annotations in an envelope; return the others."""
    key = annotations.get(PARTITION_KEY)
    if key is not None:
        # Azure's SDK for Python sends the annotations of a message that it received as bytes.
        envelope.partition_key = _text(PARTITION_KEY, plain(key))
    envelope.scheduled_enqueue_time_utc = _moment(SCHEDULED, annotations.get(SCHEDULED))
    return _others("message_annotations", annotations)


def _others(part: str, annotations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return annotations that the broker does not write itself.

    Raises:
        TypeError: A key is neither a symbol nor a number.
        ValueError: A key is not ASCII.
    """
    foreign = {key: value for key, value in annotations.items() if key not in _OWN}
    for key in foreign:
        if type(key) is not Symbol:
            annotation_key(part, key)
    return foreign


def _check_identifiers(envelope: Envelope) -> None:
    """Check identifiers.

    Raises:
        ValueError: One is too long, or the partition key is not the session id.
    """
    if envelope.session_id and envelope.partition_key and envelope.session_id != envelope.partition_key:
        raise ValueError(
            f"the partition key {envelope.partition_key!r} differs from the session id {envelope.session_id!r}: set both "
            "alike, or leave the partition key unset"
        )
    for name in _LIMITED:
        value = getattr(envelope, name)
        if value is not None and len(value) > MAX_IDENTIFIER:
            raise ValueError(f"{name} has {len(value)} characters: the longest is {MAX_IDENTIFIER}; shorten or hash it")


def _application_properties(given: Mapping[Any, Any], written_format: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return application properties as they are stored, and those of them whose types would be lost.

    Raises:
        TypeError: A name is no text.
        ValueError: A decimal is no finite number.
    """
    typed = {name: value for name, value in given.items() if type(value) not in _PLAIN}
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"a key of application_properties is {type(name).__name__}: use text")
    own = dict(given)
    for name, value in typed.items():
        if isinstance(value, DecimalBits):
            own[name] = bytes(value) if written_format == FIRST else decimal_of(value)
        else:
            own[name] = plain_value(value)
    return own, typed


def _body(sections: Sections, envelope: Envelope, written_format: int) -> bytes | None:
    if sections.data:
        body, borders = join_sections(sections.data)
        envelope.data_sections = None if written_format == FIRST else borders
        return body
    if sections.sequences:
        envelope.body_type = "sequence"
        return encode_value(sections.sequences).encode()
    if sections.value is not None:
        envelope.body_type = "value"
        return encode_value(sections.value).encode()
    return None


def _life(sections: Sections) -> timedelta | None:
    """Return the time to live; that of the properties if it is longer than a header can hold."""
    lives = sections.header.get("ttl")
    if lives is not None:
        field_value("ttl", lives)
    begin, end = (sections.properties.get(name) for name in ("creation_time", "absolute_expiry_time"))
    if lives == _LARGEST_TTL and isinstance(begin, datetime) and isinstance(end, datetime):
        return max(end - begin, _LARGEST_TTL * _MILLISECOND)
    return timedelta(milliseconds=lives) if lives else None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}: it is a text")
    return str(value)


def _moment(name: str, value: object) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}: it is a timestamp")
    try:
        return from_milliseconds(value)
    except OverflowError as error:
        raise ValueError(f"{name} is {int(value)} ms since 1970: it is not in the years 1 to 9999") from error


class ShownLock(Enum):
    """How much of a message's lock its receiver is shown.

    Attributes:
        NONE: Nothing: it was peeked, or received and deleted.
        OF_LINK: Its token and, unless its session has the lock, its end.
        OF_REQUEST: Its token and its end: clients need both of a message that they asked for by its number.
    """

    NONE = "none"
    OF_LINK = "of a link"
    OF_REQUEST = "of a request"


def encode_message(
    message: ServiceBusReceivedMessage, lock: ShownLock = ShownLock.NONE, *, for_java: bool = False
) -> bytes:
    """Return a message as receivers get it; this never fails.

    It has the time to live that is in force: its own, or its entity's default if that is shorter.

    A record of a plain Kafka producer, or of an earlier version, may hold values that AMQP cannot carry. They are
    replaced with the nearest values that it can carry; see ``kafkabus_mapping.amqp_values``.

    Args:
        message: The message.
        lock: How much of its lock is shown.
        for_java: Whether the receiver is Azure's SDK for Java, which shows a message without a time to live as one that expires
            when it is enqueued: it gets the largest time to live that a header can hold, 49 days.
    """
    envelope = envelope_of(message)
    carried = decode_carried(envelope) if envelope.amqp is not None else {}
    endless = _LARGEST_TTL if for_java else None
    try:
        return _encode(message, lock, endless, envelope, carried)
    except Exception:  # noqa: BLE001 - whatever is wrong with the record, its receiver gets it
        return _encode(message, lock, endless, *_nearest(envelope, carried))


def _encode(
    message: ServiceBusReceivedMessage,
    lock: ShownLock,
    endless: int | None,
    envelope: Envelope,
    carried: Mapping[str, Any],
) -> bytes:
    token = None if lock is ShownLock.NONE else message.lock_token
    lives = receipt_of(message).delivery.time_to_live
    if envelope.time_to_live is not None:
        lives = min(lives, envelope.time_to_live)
    ttl = endless if lives >= FOREVER else min(lives // _MILLISECOND, _LARGEST_TTL)
    parts = [_header(message, ttl, carried)]
    if "delivery_annotations" in carried:
        annotations = _shown_annotations("delivery_annotations", _part(carried, "delivery_annotations"))
        if token is not None:
            annotations[_LOCK_TOKEN] = token
        if annotations:
            parts.append(_section(DELIVERY_ANNOTATIONS, annotations))
    elif token is not None:
        parts.append(_TOKEN_ALONE + token.bytes)
    parts.append(_annotations(message, envelope, carried, lock))
    parts.append(_properties(message, lives, envelope, carried))
    parts.append(_shown_properties(envelope, carried))
    parts.append(_encoded_body(message, envelope))
    footer = _part(carried, "footer")
    if footer:
        parts.append(_section(FOOTER, _shown_annotations("footer", footer)))
    return b"".join(parts)


def _nearest(envelope: Envelope, carried: Mapping[str, Any]) -> tuple[Envelope, dict[str, Any]]:
    """Return an envelope, and what it carries, with values that AMQP can carry in place of others.

    A value that its field cannot have at all becomes an application property with the name that the field's header would have.
    """
    parts: dict[str, Any] = {name: nearest_value(_part(carried, name)) for name in _NAMED_PARTS}
    misfits: dict[str | bytes, Any] = {}
    for name, fields in (("header", CARRIED_HEADER), ("properties", CARRIED_PROPERTIES)):
        given = _part(carried, name)
        near = {field: nearest_field(field, given[field]) for field in fields if given.get(field) is not None}
        parts[name] = {**given, **near}
        misfits.update(
            {_header_of(field): nearest_value(given[field]) for field, value in near.items() if value is None}
        )
    for part in ("annotations", "delivery_annotations", "footer"):
        parts[part] = {nearest_key(key): value for key, value in parts[part].items()}
    own: dict[str | bytes, Any] = {
        _as_name(key): nearest_value(value) for key, value in (envelope.application_properties or {}).items()
    }
    content_type = envelope.content_type
    return replace(
        envelope,
        application_properties={**misfits, **own},
        content_type=None if content_type is None else nearest_symbol(content_type),
    ), parts


_NAMED_PARTS: Final = ("annotations", "delivery_annotations", "footer", _PART)


def _header_of(field: str) -> str:
    return f"{PREFIX}{field.replace('_', '-')}"


def _as_name(key: str | bytes) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else key


_NO_BODY: Final = encode_sections(Sections())
_HEADS: Final = {code: b"\x00\x53" + bytes((code,)) for code in range(0x70, 0x79)}


def _section(code: int, content: Any) -> bytes:
    return _HEADS[code] + encode(content)


def _part(carried: Mapping[str, Any], name: str) -> Mapping[Any, Any]:
    part = carried.get(name)
    return part if isinstance(part, dict) else {}


def _header(message: ServiceBusReceivedMessage, ttl: int | None, carried: Mapping[str, Any]) -> bytes:
    header = _part(carried, "header")
    if not header:
        return _plain_header(ttl, message.delivery_count)
    return _encoded_header(_fields(header, CARRIED_HEADER), ttl, message.delivery_count)


@lru_cache(maxsize=256)
def _plain_header(ttl: int | None, delivery_count: int) -> bytes:
    """Return a header in which the sender set nothing but the time to live; there are few different ones."""
    return _encoded_header({}, ttl, delivery_count)


def _encoded_header(values: dict[str, Any], ttl: int | None, delivery_count: int) -> bytes:
    values["ttl"] = None if ttl is None else UInt(ttl)
    values["delivery_count"] = UInt(delivery_count)
    return _section(HEADER, [values.get(name) for name in HEADER_FIELDS])


def _annotations(
    message: ServiceBusReceivedMessage, envelope: Envelope, carried: Mapping[str, Any], lock: ShownLock
) -> bytes:
    receipt, number = receipt_of(message), message.sequence_number
    delivery = receipt.delivery
    shown: dict[Any, Any] = {
        _ENQUEUED_TIME: Milliseconds(receipt.record.timestamp()[1]),
        _SEQUENCE_NUMBER: number,
        _ENQUEUE_SEQUENCE_NUMBER: number
        if envelope.enqueued_sequence_number is None
        else envelope.enqueued_sequence_number,
        _MESSAGE_STATE: Int(message.state),
    }
    if delivery.lease and (lock is ShownLock.OF_REQUEST or (lock is ShownLock.OF_LINK and not delivery.session)):
        # Java's client needs it of a message of a session that it asked for by its number.
        shown[_LOCKED_UNTIL] = Milliseconds(receipt.lock_until)
    if delivery.postponed_until is not None:
        shown[_POSTPONED_UNTIL] = Milliseconds(delivery.postponed_until)
    if delivery.locked_until is not None:
        shown[_PEEKED_LOCKED_UNTIL] = Milliseconds(delivery.locked_until)
    if envelope.partition_key is not None:
        shown[_PARTITION_KEY] = envelope.partition_key
    if envelope.scheduled_enqueue_time_utc is not None:
        shown[_SCHEDULED] = envelope.scheduled_enqueue_time_utc
    if envelope.dead_letter_source is not None:
        shown[_DEADLETTER_SOURCE] = envelope.dead_letter_source
    foreign = _part(carried, "annotations")
    if foreign:
        shown.update(_shown_annotations("message_annotations", foreign))
    return _section(MESSAGE_ANNOTATIONS, shown)


def _shown_annotations(part: str, annotations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return annotations that are not the broker's, as AMQP has them.

    Raises:
        TypeError: AMQP has no such key.
        ValueError: AMQP cannot carry a key or a value.
    """
    found: dict[Any, Any] = {}
    for key, value in annotations.items():
        name = key if type(key) is Symbol else annotation_key(part, key)
        if name not in _OWN:
            found[name] = amqp_value(value)
    return found


_LOCK_TOKEN = Symbol("x-opt-lock-token")
_TOKEN_ALONE: Final = _section(DELIVERY_ANNOTATIONS, {_LOCK_TOKEN: uuid.UUID(int=0)})[:-16]
"""Delivery annotations of which a lock token is the only one, without its bytes at the end."""
_ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
_SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
_ENQUEUE_SEQUENCE_NUMBER = Symbol("x-opt-enqueue-sequence-number")
_MESSAGE_STATE = Symbol("x-opt-message-state")
_LOCKED_UNTIL = Symbol("x-opt-locked-until")
_POSTPONED_UNTIL = Symbol(POSTPONED_UNTIL)
_PEEKED_LOCKED_UNTIL = Symbol(PEEKED_LOCKED_UNTIL)
_PARTITION_KEY = Symbol(PARTITION_KEY)
_SCHEDULED = Symbol(SCHEDULED)
_DEADLETTER_SOURCE = Symbol("x-opt-deadletter-source")


def _properties(
    message: ServiceBusReceivedMessage, lives: timedelta, envelope: Envelope, carried: Mapping[str, Any]
) -> bytes:
    typed = _part(carried, "properties")
    values: dict[str, Any] = {field: getattr(envelope, name) for name, field in TEXTS.items()}
    for name in IDENTIFIERS:
        values[name] = _identifier(identifier_in(envelope, name)) if name in typed else getattr(envelope, name)
    if envelope.content_type is not None:
        values["content_type"] = Symbol(envelope.content_type)
    if typed:
        values.update(_fields(typed, CARRIED_PROPERTIES))
    # If the message has a time to live, its sender may have set when it expires.
    is_told = lives == envelope.time_to_live and "absolute_expiry_time" in values
    if lives < FOREVER and not is_told:
        _show_expiry(values, lives // _MILLISECOND, receipt_of(message).record.timestamp()[1])
    return _section(PROPERTIES, [values.get(name) for name in PROPERTIES_FIELDS])


def _show_expiry(values: dict[str, Any], life: int, enqueued_at: int) -> None:
    """Show when a message expires.

    Args:
        values: The fields of its properties.
        life: Its time to live, in ms.
        enqueued_at: When it was enqueued, ms since 1970.
    """
    begin = values.get("creation_time")
    if begin is None and life > _LARGEST_TTL:
        # SDKs compute a time to live that the header cannot hold.
        begin = values["creation_time"] = Milliseconds(enqueued_at)
    since = enqueued_at if begin is None else milliseconds_of(begin)
    values["absolute_expiry_time"] = Milliseconds(min(since + life, _LATEST))


def _shown_properties(envelope: Envelope, carried: Mapping[str, Any]) -> bytes:
    given = envelope.application_properties
    if not given and envelope.dead_letter_reason is None and envelope.dead_letter_error_description is None:
        return b""
    typed = _part(carried, _PART)
    shown: dict[Any, Any] = {}
    for key, value in (given or {}).items():
        name = key.decode() if isinstance(key, bytes) else key
        original = typed.get(name)
        shown[name] = original if original is not None and _stands_for(original, value) else amqp_value(value)
    if envelope.dead_letter_reason is not None:
        shown[_REASON] = envelope.dead_letter_reason
    if envelope.dead_letter_error_description is not None:
        shown[_DESCRIPTION] = envelope.dead_letter_error_description
    return _section(APPLICATION_PROPERTIES, shown)


def _stands_for(original: Any, value: Any) -> bool:
    """Return whether a value of a property is that of a type of AMQP; no NaN equals another."""
    if isinstance(original, DecimalBits) and isinstance(value, bytes):
        return bool(original == value)  # It was stored in the first format.
    if isinstance(original, Described) and isinstance(value, int):
        return bool(original.value == value)  # A DateTimeOffset, as earlier versions stored it.
    plain = plain_value(original)
    return bool(plain == value or (plain != plain and value != value))  # noqa: PLR0124 - only NaN differs from itself


def _encoded_body(message: ServiceBusReceivedMessage, envelope: Envelope) -> bytes:
    body = receipt_of(message).body
    if body is None:
        return _NO_BODY
    if envelope.body_type is not None:
        try:
            return _encoded_value(decode_value(body), envelope.body_type)
        except ValueError:
            # Of a foreign producer; the bytes are what there is.
            pass
    return b"".join(_section(DATA, section) for section in split_sections(body, envelope.data_sections))


def _encoded_value(value: Any, body_type: str) -> bytes:
    """Return a body that is no bytes.

    Raises:
        ValueError: The body is to be a sequence, and is none.
    """
    if body_type == "sequence" and not (isinstance(value, list) and all(isinstance(part, list) for part in value)):
        raise ValueError(f"a body of sequences is {type(value).__name__}")
    try:
        return _value_sections(amqp_value(value), body_type)
    except Exception:  # noqa: BLE001 - whatever is wrong with the value, its receiver gets the nearest one
        return _value_sections(nearest_value(value), body_type)


def _value_sections(value: Any, body_type: str) -> bytes:
    return encode_sections(Sections(sequences=value) if body_type == "sequence" else Sections(value=value))


def _fields(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return those of some fields that have names like these, as AMQP has them.

    Raises:
        TypeError: AMQP has another type for a field.
        ValueError: A value is out of the bounds of its field.
    """
    return {name: field_value(name, given[name]) for name in names if given.get(name) is not None}


def _identifier(value: Any) -> Any:
    return ULong(value) if isinstance(value, int) else value
