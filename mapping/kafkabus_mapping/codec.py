"""Messages as Kafka records: value = body, key = partition key, headers = properties.

``Envelope`` holds everything about a message except its body. A record from a producer other than kafkabus is a valid
message too: its key becomes the partition key, its foreign headers become application properties, and its message id is
derived from its topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import attrgetter
from typing import Any

from kafkabus_mapping import headers as h
from kafkabus_mapping.properties import PropertyValue, decode_properties, encode_properties

Headers = list[tuple[str, "bytes | None"]]
"""The headers of a record. Texts are encoded to bytes, because Kafka's client cuts a ``str`` at its first NUL."""

MAX_IDENTIFIER = 128
"""Longest message id, session id, partition key and reply-to session id, in characters; Service Bus's limit."""
LONGEST_REASON = 4096
"""The maximum number of characters of a dead letter's reason, and of its description; Service Bus's limit."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_FIELD_OF = {header: field for field, header in h.TEXT_FIELDS}
_TEXT_HEADERS = tuple(header for _, header in h.TEXT_FIELDS)
_text_values = attrgetter(*(field for field, _ in h.TEXT_FIELDS))
_READ_OVER = frozenset({h.ADDRESSED_TO, h.TRACEPARENT, h.TRACESTATE})
"""Headers that say nothing about the message: the first one names the subscription that receives the record."""
_LARGEST = (1 << 63) - 1
_ALL_BUT_ONE = len(_TEXT_HEADERS) - 1


@dataclass(slots=True)
class Envelope:
    """The properties of a message.

    Attributes:
        message_id: Up to 128 characters.
        session_id: Up to 128 characters; None outside sessions.
        partition_key: Up to 128 characters; equals ``session_id`` if both are set.
        correlation_id: Free text.
        subject: Free text; older clients call it label.
        content_type: MIME type of the body.
        to: Forwarding address, not interpreted.
        reply_to: The entity to send replies to.
        reply_to_session_id: The session to send replies to, up to 128 characters.
        time_to_live: How long the message can be received after it was enqueued; None means the entity's default.
        scheduled_enqueue_time_utc: When the message becomes receivable; None means at once.
        application_properties: The application's own properties; empty if it set none.
        body_type: ``sequence`` or ``value`` for a JSON body; None for bytes.
        data_sections: The lengths of a body's data sections but the last, joined by commas; None if there is only one.
        amqp: JSON text of the AMQP header, footer and annotations; None if none was set.
        dead_letter_reason: Why the message was dead-lettered.
        dead_letter_error_description: A longer explanation of why the message was dead-lettered.
        dead_letter_source: The entity that the message was dead-lettered from.
        enqueued_sequence_number: The sequence number of the message in the entity where it was first enqueued.
        transfer_source: Identity of the record that a transfer copied.
        hops: How often the message was forwarded; None means never.
        foreign: The names of application properties that another producer wrote as headers; None if there are none. Filters
            take their values as texts, if they are UTF-8.
    """

    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_time_utc: datetime | None = None
    application_properties: Mapping[str | bytes, PropertyValue] | None = None
    body_type: str | None = None
    data_sections: str | None = None
    amqp: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_error_description: str | None = None
    dead_letter_source: str | None = None
    enqueued_sequence_number: int | None = None
    transfer_source: str | None = None
    hops: int | None = None
    foreign: frozenset[str] | None = None


def encode_headers(envelope: Envelope) -> Headers:
    """Return the headers of an envelope, in a fixed order; properties that are None have no header.

    Raises:
        PropertyRuleError: An application property has a type that messages cannot carry.
        ValueError: A text holds half of a surrogate pair.
    """
    texts = _text_values(envelope)
    headers: Headers
    if texts.count(None) == _ALL_BUT_ONE and texts[0] is not None:
        # Fast path for most messages: the message id is the only text.
        headers = [(_TEXT_HEADERS[0], _utf_8(_TEXT_HEADERS[0], texts[0]))]
    else:
        headers = [
            (header, _utf_8(header, value))
            for header, value in zip(_TEXT_HEADERS, texts, strict=True)
            if value is not None
        ]
    if envelope.time_to_live is not None:
        headers.append((h.TIME_TO_LIVE, b"%d" % (envelope.time_to_live // _MILLISECOND)))
    if envelope.scheduled_enqueue_time_utc is not None:
        headers.append((h.SCHEDULED_ENQUEUE_TIME, b"%d" % to_milliseconds(envelope.scheduled_enqueue_time_utc)))
    if envelope.enqueued_sequence_number is not None:
        headers.append((h.ENQUEUED_SEQUENCE_NUMBER, b"%d" % envelope.enqueued_sequence_number))
    if envelope.hops is not None:
        headers.append((h.HOPS, b"%d" % envelope.hops))
    properties = envelope.application_properties
    if properties and envelope.foreign is not None:
        properties = _split_off_foreign(properties, envelope.foreign, headers)
    if properties:
        headers.append((h.APPLICATION_PROPERTIES, _utf_8(h.APPLICATION_PROPERTIES, encode_properties(properties))))
    return headers


def _split_off_foreign(
    properties: Mapping[str | bytes, PropertyValue], names: frozenset[str], headers: Headers
) -> dict[str | bytes, PropertyValue]:
    """Write the bytes that another producer wrote as headers as such; return the other properties."""
    remaining: dict[str | bytes, PropertyValue] = {}
    for key, value in properties.items():
        name = key.decode(errors="replace") if isinstance(key, bytes) else key
        if name in names and isinstance(value, bytes):
            headers.append((name, value))
        else:
            remaining[key] = value
    return remaining


def _utf_8(header: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{header.removeprefix(h.PREFIX)} is {value[:80]!r}: half of a surrogate pair, at position {error.start}, is no "
            "text; leave it out, or carry it as bytes in an application property"
        ) from error


def decode_headers(headers: Iterable[tuple[str, bytes | None]] | None, *, key: bytes | None, place: str) -> Envelope:
    """Return the envelope of a record from any producer; every record can be decoded.

    An ``sb-`` header that does not parse is kept as an application property under its own name, so that nothing is lost.

    Args:
        headers: The record's headers; if a name is repeated, the last one counts.
        key: The record's key; becomes the partition key if the record has no message id header.
        place: ``topic/partition/offset``; becomes the message id of a record that has none.
    """
    envelope = Envelope()
    foreign: dict[str | bytes, PropertyValue] = {}
    properties: dict[str, PropertyValue] = {}
    for name, value in headers or ():
        try:
            if value is None or not name.startswith(h.PREFIX):
                foreign[name] = value
            elif name in _FIELD_OF:
                setattr(envelope, _FIELD_OF[name], value.decode())
            elif name == h.APPLICATION_PROPERTIES:
                properties = decode_properties(value)
            elif name in _READ_OVER:
                value.decode()  # Checked only.
            else:
                _decode_number(envelope, name, value)
        except (ValueError, OverflowError):  # noqa: PERF203 - one broken header must not spoil the others
            foreign[name] = value
    if envelope.message_id is None:
        envelope.message_id = place
        envelope.partition_key = envelope.partition_key or _key_text(key)
    if foreign:
        envelope.foreign = frozenset(map(str, foreign.keys() - properties.keys())) or None
    foreign.update(properties)
    envelope.application_properties = foreign
    return envelope


def change_properties(
    headers: Iterable[tuple[str, bytes | None]], changes: Mapping[str | bytes, PropertyValue]
) -> Headers:
    """Return the headers of a record with other application properties: those that are named, and its own.

    Args:
        headers: The record's headers.
        changes: The application properties to change, or to add.

    Raises:
        PropertyRuleError: One of these has a type that messages cannot carry.
    """
    properties: dict[Any, PropertyValue] = {}
    remaining: Headers = []
    for name, value in headers:
        if name == h.APPLICATION_PROPERTIES and value is not None:
            with suppress(ValueError):  # Of a plain producer; what does not parse stays a separate header.
                properties = {**decode_properties(value)}
                continue
        remaining.append((name, value))
    text = encode_properties(properties | dict(changes))
    return [*remaining, (h.APPLICATION_PROPERTIES, _utf_8(h.APPLICATION_PROPERTIES, text))]


def join_sections(sections: Sequence[bytes]) -> tuple[bytes, str | None]:
    """Return the body of these data sections, and ``Envelope.data_sections``."""
    if len(sections) == 1:
        return sections[0], None
    return b"".join(sections), ",".join(str(len(section)) for section in sections[:-1])


def split_sections(body: bytes, data_sections: str | None) -> list[bytes]:
    """Return the data sections of a body; only one if their lengths do not fit it, as those of a foreign producer may not.

    Args:
        body: The body.
        data_sections: See ``Envelope.data_sections``.
    """
    if data_sections is None:
        return [body]
    lengths = data_sections.split(",")
    if not all(length.isascii() and length.isdigit() and len(length) < 20 for length in lengths):
        return [body]
    sections: list[bytes] = []
    begin = 0
    for length in map(int, lengths):
        sections.append(body[begin : begin + length])
        begin += length
    return [*sections, body[begin:]] if begin <= len(body) else [body]


def to_milliseconds(moment: datetime) -> int:
    """Return a moment as milliseconds since 1970 UTC; a naive moment is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """Return the moment that is so many milliseconds after 1970, in UTC.

    Raises:
        OverflowError: The moment is beyond the year 9999.
    """
    return EPOCH + timedelta(milliseconds=milliseconds)


def record_size(value: bytes | None, key: str | bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the size of a record as limits and quotas count it: body, key, header names and values, in bytes."""
    size = len(value or b"") + (_size(key) if key else 0)
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size


def _size(content: str | bytes) -> int:
    return len(content) if isinstance(content, bytes) or content.isascii() else len(content.encode())


def read_time_to_live(value: bytes) -> int:
    """Return the time to live that a header holds, in milliseconds.

    Raises:
        ValueError: The header is not a whole number, or negative: the message would expire before it is stored.
        OverflowError: The time is longer than ``timedelta`` allows.
    """
    lives = timedelta(milliseconds=int(value)) // _MILLISECOND
    if lives < 0:
        raise ValueError(f"a time to live of {lives} ms is negative")
    return lives


def read_moment(value: bytes) -> int:
    """Return the time that a header holds, in milliseconds since 1970.

    Raises:
        ValueError: The header is not a whole number.
        OverflowError: The time is not in the years 1 to 9999.
    """
    return to_milliseconds(from_milliseconds(int(value)))


def _read_number(value: bytes) -> int:
    number = int(value)
    if not -_LARGEST <= number <= _LARGEST:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def _decode_number(envelope: Envelope, name: str, value: bytes) -> None:
    if name == h.TIME_TO_LIVE:
        envelope.time_to_live = timedelta(milliseconds=read_time_to_live(value))
    elif name == h.SCHEDULED_ENQUEUE_TIME:
        envelope.scheduled_enqueue_time_utc = from_milliseconds(read_moment(value))
    elif name == h.ENQUEUED_SEQUENCE_NUMBER:
        envelope.enqueued_sequence_number = _read_number(value)
    elif name == h.HOPS:
        envelope.hops = _read_number(value)
    else:
        raise ValueError(f"header {name} is not one of kafkabus's")


def _key_text(key: bytes | None) -> str | None:
    if not key:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
