"""AMQP 1.0's types and messages: both ways, as another implementation has them, and with any bytes."""

from __future__ import annotations

import pickle
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.servicebus._pyamqp import _decode as azure_decode  # pyright: ignore[reportMissingTypeStubs]
from azure.servicebus._pyamqp import _encode as azure_encode  # pyright: ignore[reportMissingTypeStubs]
from azure.servicebus._pyamqp import message as azure_message  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import given
from hypothesis import strategies as st

from kafkabus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from kafkabus._core.amqp_encoding import sections_of
from kafkabus.amqp import AmqpMessageBodyType
from kafkabus_mapping.amqp import types
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import AmqpDecodeError, Described, Milliseconds, Symbol, ULong, decode, encode

ASCII = st.text(st.characters(max_codepoint=127), max_size=9)
MOMENTS = st.datetimes(timezones=st.just(timezone.utc)).map(
    lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)
)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.uuids(),
    MOMENTS,
    st.integers(0, 255).map(types.UByte),
    st.integers(0, (1 << 16) - 1).map(types.UShort),
    st.integers(0, (1 << 32) - 1).map(types.UInt),
    st.integers(0, (1 << 64) - 1).map(types.ULong),
    st.integers(-128, 127).map(types.Byte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(types.Short),
    st.integers(-(1 << 31), (1 << 31) - 1).map(types.Int),
    st.floats(width=32, allow_nan=False).map(types.Float),
    ASCII.map(types.Symbol),
    st.characters().map(types.Char),
    st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(types.DecimalBits),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(ASCII.map(types.Symbol), inner, max_size=4),
        st.builds(Described, ASCII.map(types.Symbol) | st.integers(0, 1 << 40).map(types.ULong), inner),
        st.lists(ASCII.map(types.Symbol), max_size=4).map(types.Array),
        st.lists(st.integers(0, 1 << 40).map(types.ULong), max_size=4).map(types.Array),
        st.lists(st.lists(inner, max_size=2), max_size=3).map(types.Array),
    ),
    max_leaves=12,
)


def kinds(value: Any) -> Any:
    """Return a value with the type of each of its parts."""
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(one) for one in value]
    if isinstance(value, dict):
        return dict, [(kinds(key), kinds(one)) for key, one in value.items()]
    return type(value), value


@given(VALUES)
def test_a_value_comes_back_as_what_it_was(value: Any) -> None:
    """It keeps its type and the types of all its parts. Nothing is read beyond its end."""
    encoded = encode(value)
    found, end = decode(encoded + b"\x40")
    assert kinds(found) == kinds(value)
    assert end == len(encoded)


def spoilt(value: Any, at: int, byte: int) -> bytes:
    """Return a value's encoding with one changed byte."""
    data = encode(value)
    at %= len(data)
    return data[:at] + bytes([byte]) + data[at + 1 :]


ODD_BYTES = st.binary(max_size=200) | st.builds(spoilt, VALUES, st.integers(0), st.integers(0, 255))


@pytest.mark.parametrize("read", [decode, decode_sections])
@given(data=ODD_BYTES)
def test_no_bytes_do_more_than_be_refused(read: Callable[[bytes], object], data: bytes) -> None:
    """The error names the place."""
    with suppress(AmqpDecodeError):
        read(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\0" * 200_000, "nested deeper"),
        (b"\xc0\xff\x01" * 100, "of 255 bytes there are"),
        (b"\xf0" + struct.pack(">II", 5, 0xFFFFFFFF) + b"\x40", "4294967295 elements do not fit"),
        (b"\xd0" + struct.pack(">II", 9, 0xFFFFFFFF) + b"\x40" * 5, "4294967295 elements do not fit"),
        (b"\xe0\x03\x01" + b"\0\x43\x50", "the data ends within"),
        (b"\xa1\x01\xff", "no utf-8 text"),
        (b"\x73\xff\xff\xff\xff", "is no character"),
        (b"\xc1\x02\x01\x40", "which is odd"),
        (b"\x57", "has the code 0x57"),
        (b"\xc0\x05\x01\x40\x40\x40\x40", "its elements end at"),
    ],
)
def test_bytes_that_would_hurt_are_refused(data: bytes, says: str) -> None:
    """They are refused before they take memory, or the interpreter's stack."""
    with pytest.raises(AmqpDecodeError, match=says):
        decode(data)


def test_arrays_without_bytes_are_bounded_together() -> None:
    """Each of them has few enough elements."""
    one = b"\xf0" + struct.pack(">II", 5, types.MOST_WITHOUT_BYTES) + b"\x40"
    assert len(decode(one)[0]) == types.MOST_WITHOUT_BYTES
    with pytest.raises(AmqpDecodeError, match="do not fit"):
        decode(b"\xd0" + struct.pack(">II", 4 + 2 * len(one), 2) + one + one)


def test_what_amqp_has_no_type_for_is_not_encoded() -> None:
    """The error names it."""
    for value, error, says in [
        (object(), TypeError, "AMQP has no such type"),
        (types.UByte(256), ValueError, "out of the bounds of AMQP's ubyte"),
        (1 << 63, ValueError, "out of the bounds of AMQP's int"),
        (types.Symbol("ä"), ValueError, "is no AMQP symbol"),
        ("\ud800", ValueError, "surrogate"),
        (types.Array(("a", 1)), TypeError, "all of one type"),
    ]:
        with pytest.raises(error, match=says):
            encode(value)
    with pytest.raises(ValueError, match="has no field 'colour'"):
        encode_sections(Sections(header={"colour": 1}))


MESSAGES = st.builds(
    Sections,
    header=st.fixed_dictionaries(
        {},
        optional={
            "durable": st.booleans(),
            "priority": st.integers(0, 255),
            "ttl": st.integers(0, (1 << 32) - 1),
            "first_acquirer": st.booleans(),
            "delivery_count": st.integers(0, (1 << 32) - 1),
        },
    ),
    message_annotations=st.dictionaries(ASCII, st.text(max_size=5) | st.integers(0, 9) | MOMENTS, max_size=3),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "message_id": st.text(max_size=9) | st.uuids() | st.binary(max_size=9) | st.integers(0, (1 << 64) - 1),
            "user_id": st.binary(max_size=9),
            "subject": st.text(max_size=9),
            "content_type": ASCII,
            "creation_time": st.integers(0, 1 << 41),
            "group_id": st.text(max_size=9),
            "group_sequence": st.integers(0, (1 << 32) - 1),
        },
    ),
    application_properties=st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(0, 9), max_size=3),
    data=st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    footer=st.dictionaries(ASCII, st.integers(0, 9), max_size=2),
)


@given(MESSAGES)
def test_messages_are_as_another_implementation_has_them(message: Sections) -> None:
    """azure-servicebus reads the encoded messages, and its own are read here."""
    theirs = azure_decode.decode_payload(memoryview(encode_sections(message)))
    ours = decode_sections(encode_sections(message))
    assert _joined(theirs.data) == b"".join(message.data)
    assert theirs.application_properties == (_in_bytes(message.application_properties) or None)
    assert theirs.message_annotations == (_in_bytes(message.message_annotations) or None)
    for name, value in message.properties.items():
        assert getattr(theirs.properties, name) == _in_bytes(value)
        known = ours.properties[name]
        assert (_in_bytes(known) if isinstance(known, datetime) else known) == value
    for name, value in message.header.items():
        assert getattr(theirs.header, name) == ours.header[name] == value
    again = decode_sections(bytes(azure_encode.encode_payload(bytearray(), azure_message.Message(
        properties=azure_message.Properties(**message.properties),
        application_properties=message.application_properties or None,
        data=message.data,
    ))))  # fmt: skip
    assert again.data == message.data
    assert again.application_properties == message.application_properties
    assert again.properties.get("message_id") == message.properties.get("message_id")


def _joined(pieces: Any) -> bytes:
    return b"".join(pieces)


def _in_bytes(value: Any) -> Any:
    """Return properties as azure-servicebus gives them: texts in bytes, times in milliseconds."""
    if isinstance(value, dict):
        return {_in_bytes(key): _in_bytes(one) for key, one in value.items()}
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    return value.encode() if isinstance(value, str) else value


def test_sections_may_be_named_by_symbols() -> None:
    """AMQP allows that; times may be beyond any year."""
    data = encode(Described(Symbol("amqp:properties:list"), ["m"])) + encode(
        Described(Symbol("amqp:data:binary"), b"x")
    )
    found = decode_sections(data)
    assert (found.properties, found.data) == ({"message_id": "m"}, [b"x"])
    assert kinds(decode(encode(Milliseconds(1 << 60)))[0]) == (Milliseconds, 1 << 60)


WHOLE = Sections(
    header={"durable": True, "priority": 4, "ttl": 30_000, "delivery_count": 1},
    delivery_annotations={"x-opt-lock-token": uuid.UUID(int=7)},
    message_annotations={
        "x-opt-partition-key": "session",
        "x-opt-sequence-number": 5,
        "x-opt-enqueue-sequence-number": 4,
        "x-opt-enqueued-time": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "x-opt-locked-until": datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc),
        "x-opt-message-state": 1,
        "x-opt-deadletter-source": "orders",
        "mine": 3,
    },
    properties={
        "message_id": "m",
        "content_type": "application/json",
        "correlation_id": uuid.UUID(int=5),
        "subject": "s",
        "reply_to": "r",
        "group_id": "session",
        "reply_to_group_id": "other",
    },
    application_properties={"colour": "red", "lasts": Described(Symbol("com.microsoft:timespan"), 50_000_000)},
    data=[b"hello ", b"world"],
)


def test_a_received_message_of_bytes() -> None:
    """It has all that the bytes say, in Azure's types.

    It can be pickled, and sent again without the broker's annotations.
    """
    message = ServiceBusReceivedMessage.from_bytes(encode_sections(WHOLE))
    for one in (message, pickle.loads(pickle.dumps(message))):  # noqa: S301 - our own
        assert isinstance(one, ServiceBusReceivedMessage)
        assert (b"".join(one.body), one.body_type) == (b"hello world", AmqpMessageBodyType.DATA)
        assert (one.message_id, one.content_type, one.correlation_id) == ("m", "application/json", uuid.UUID(int=5))
        assert (one.subject, one.reply_to, one.session_id, one.reply_to_session_id) == ("s", "r", "session", "other")
        assert (one.time_to_live, one.delivery_count, one.partition_key) == (timedelta(seconds=30), 1, "session")
        assert one.application_properties == {b"colour": b"red", b"lasts": timedelta(seconds=5)}
        assert (one.sequence_number, one.enqueued_sequence_number, one.state.name) == (5, 4, "DEFERRED")
        assert one.enqueued_time_utc == datetime(2026, 1, 1, tzinfo=timezone.utc)
        assert one.locked_until_utc == datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)
        assert one.expires_at_utc == datetime(2026, 1, 1, 0, 0, 30, tzinfo=timezone.utc)
        assert (one.lock_token, one.dead_letter_source) == (uuid.UUID(int=7), "orders")
    annotations: Any = message.raw_amqp_message.annotations
    assert (annotations[b"x-opt-enqueued-time"], annotations["mine"]) == (1767225600000, 3)
    again = message._to_outgoing()
    assert again.envelope.amqp is not None
    assert "x-opt" not in again.envelope.amqp


def test_bytes_that_say_little() -> None:
    """Missing parts are None. Bodies may be values or lists as well."""
    message = ServiceBusReceivedMessage.from_bytes(encode_sections(Sections(data=[b"x"])))
    assert b"".join(message.body) == b"x"
    for name in ("message_id", "content_type", "session_id", "lock_token", "sequence_number", "enqueued_time_utc"):
        assert getattr(message, name) is None
    assert repr(message)
    assert ServiceBusReceivedMessage.from_bytes(encode_sections(Sections(value={"key": 1}))).body == {"key": 1}
    assert ServiceBusReceivedMessage.from_bytes(encode_sections(Sections(sequences=[[1, "a"]]))).body == [[1, "a"]]


def test_bytes_of_a_message_that_could_not_be_sent() -> None:
    """A plain Kafka producer may have written it: it can be read."""
    message = ServiceBusReceivedMessage.from_bytes(encode_sections(Sections(properties={"group_id": "x" * 129})))
    assert message.session_id == "x" * 129


@pytest.mark.parametrize(
    ("message", "error", "says"),
    [
        (None, TypeError, "message is NoneType: give the bytes"),
        ("text", TypeError, "message is str: give the bytes"),
        (b"", ValueError, "message is empty"),
        (b"\0\x53\x75", ValueError, "at byte 3"),
        (encode("text"), ValueError, "a section is a described value"),
        (encode(Described(ULong(0x75), "text")), ValueError, "data is str, not bytes"),
        (encode(Described(ULong(0x99), b"x")), ValueError, "no section has the descriptor 153"),
    ],
)
def test_bytes_that_are_no_message(message: Any, error: type[Exception], says: str) -> None:
    """The error says why."""
    with pytest.raises(error, match=says):
        ServiceBusReceivedMessage.from_bytes(message)


def test_a_batch_as_older_versions_had_it() -> None:
    """The batch has each message as AMQP encodes it, and a warning comes."""
    batch = ServiceBusMessageBatch()
    message = ServiceBusMessage("one", message_id=uuid.UUID(int=1), time_to_live=60, partition_key="k")
    batch.add_message(message)
    batch.add_message({"body": "two"})
    with pytest.warns(DeprecationWarning, match="send the batch itself"):
        legacy = batch.message
    one, two = (ServiceBusReceivedMessage.from_bytes(data) for data in legacy.data)
    assert (str(one), one.message_id, one.time_to_live, one.partition_key) == (
        "one",
        uuid.UUID(int=1),
        timedelta(minutes=1),
        "k",
    )
    assert (str(two), legacy.batch_format) == ("two", 0x80013700)
    assert sections_of(message.raw_amqp_message).properties["message_id"] == uuid.UUID(int=1)
