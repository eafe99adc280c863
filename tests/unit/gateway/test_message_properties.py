"""Everything that AMQP, the SDK or a plain Kafka producer lets in, every reader gets out."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkabus._core.amqp_encoding import plain_value
from kafkabus._core.delivery import Delivery
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage, outgoing_of
from kafkabus._core.raw_message import OF_THE_BROKER, PARTITION_KEY, SCHEDULED, TEXTS, text_of
from kafkabus._core.record import StoredRecord
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.messages import ShownLock, decode_transfer, encode_message
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import DecimalBits, Milliseconds, Symbol, UByte, UInt, ULong, encode
from kafkabus_mapping.amqp_values import amqp_value, annotation_key, field_value
from kafkabus_mapping.codec import Headers
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.properties import encode_value
from tests.effort import effort
from tests.odd_messages import NUMBER, payload, record, sdk_message

CHANCES = st.integers(0, 1 << 32).map(random.Random)
"""Seeds: the messages are too large for Hypothesis to make each decision."""
_TYPES: Mapping[str, tuple[type[Any], ...]] = {
    "durable": (bool,),
    "priority": (UByte,),
    "ttl": (UInt,),
    "first_acquirer": (bool,),
    "delivery_count": (UInt,),
    "message_id": (str, bytes, UUID, ULong),
    "correlation_id": (str, bytes, UUID, ULong),
    "user_id": (bytes,),
    "content_type": (Symbol,),
    "content_encoding": (Symbol,),
    "group_sequence": (UInt,),
}
"""The types that a strict client takes in a field; texts in all others, and moments."""
_OWN = {*OF_THE_BROKER, PARTITION_KEY, SCHEDULED}


def received(key: bytes | None, value: bytes | None, headers: Headers) -> ServiceBusReceivedMessage:
    """Return a record as a receiver gets it."""
    found = StoredRecord(("t", 0, 4), (key, value, headers), (1, 1_769_860_800_000))
    return ServiceBusReceivedMessage(found, Delivery("q", 0, "ab", 0, 5, FOREVER))


def came_out(outgoing: Outgoing) -> ServiceBusReceivedMessage:
    """Return a message that was sent as a receiver gets it."""
    return received(None, outgoing.value, outgoing.headers)


def read_by_all(message: ServiceBusReceivedMessage) -> Sections:
    """Read a message in every way; return what a strict client of the gateway gets.

    Raises:
        AssertionError: A section is not as AMQP's specification says.
    """
    for name in (*message._shown, "body", "body_type", "locked_until_utc"):
        getattr(message, name)
    repr(message)
    again = copy.copy(message)  # By the means of pickling.
    encoded = encode_message(again, ShownLock.OF_REQUEST)
    sections = decode_sections(encode_message(message))
    assert decode_sections(encoded).delivery_annotations[Symbol("x-opt-lock-token")] == message.lock_token
    for fields in (sections.header, sections.properties):
        for name, value in fields.items():
            moment = name in {"creation_time", "absolute_expiry_time"}
            assert moment or type(value) in _TYPES.get(name, (str,)), (name, value)
    for part in (sections.message_annotations, sections.delivery_annotations, sections.footer):
        assert {type(key) for key in part} <= {Symbol, ULong}
    assert {type(key) for key in sections.application_properties} <= {str}
    assert sections.message_annotations[Symbol("x-opt-sequence-number")] == 5
    raw = message.raw_amqp_message
    body = raw.body
    assert raw.body_type is message.body_type
    assert (b"".join(body) if raw.body_type is AmqpMessageBodyType.DATA else body) is not NotImplemented
    shown = ServiceBusReceivedMessage.from_bytes(encoded)
    assert (shown.sequence_number, shown.lock_token) == (5, message.lock_token)
    return sections


def check_refusal(refused: AmqpError) -> None:
    """Check that it is the message's own fault."""
    assert refused.condition == ARGUMENT_ERROR


def annotations_in(part: Mapping[Any, Any]) -> dict[Any, bytes]:
    """Return annotations that are not the broker's, encoded."""
    items = {annotation_key("", key): encode(amqp_value(value)) for key, value in part.items()}
    return {key: value for key, value in items.items() if key not in _OWN}


def check_came_out(went_in: Sections, out: Sections) -> None:
    """Check that a message came out as it went in."""
    for name in ("durable", "priority", "first_acquirer"):
        value = went_in.header.get(name)
        assert out.header.get(name) == (None if value is None else field_value(name, value))
    assert out.header.get("ttl") == (went_in.header.get("ttl") or None)
    for name, value in went_in.properties.items():
        shown = out.properties.get(name)
        if name in {"message_id", "correlation_id"}:
            assert value == "" or (shown, text_of(name, shown)) == (value, text_of(name, value))
        else:
            expected = str(value) if name in TEXTS.values() and name != "content_type" else field_value(name, value)
            assert encode(shown) == encode(expected), name
    for part in ("message_annotations", "delivery_annotations", "footer"):
        assert annotations_in(getattr(out, part)) == annotations_in(getattr(went_in, part))
    own = {
        key.decode() if isinstance(key, bytes) else str(key): encode(value)
        for key, value in went_in.application_properties.items()
    }
    assert {key: encode(value) for key, value in out.application_properties.items()} == own
    assert b"".join(out.data) == b"".join(went_in.data)
    assert [encode(part) for part in out.sequences] == [encode(part) for part in went_in.sequences]
    assert encode(out.value) == encode(went_in.value)


@settings(max_examples=effort(300, 5000))
@given(CHANCES)
def test_what_amqp_lets_in_comes_out(chance: random.Random) -> None:
    """Each message is refused by an argument error, or comes out as it went in, with all types."""
    said = payload(chance, 1)
    try:
        (outgoing,) = decode_transfer(said, 0, LATEST)
    except AmqpError as refused:
        check_refusal(refused)
        return
    message = came_out(outgoing)
    went_in = decode_sections(said)
    check_came_out(went_in, read_by_all(message))
    if went_in.value is not None:
        assert repr(message.body) == repr(plain_value(went_in.value))


@settings(max_examples=effort(300, 5000))
@given(CHANCES)
def test_what_the_sdk_lets_in_comes_out(chance: random.Random) -> None:
    """Each message is refused before it is sent, or comes out equal, at the SDK and at the gateway."""
    try:
        made = sdk_message(chance, 1)
        (outgoing,) = outgoing_of(made)
    except (TypeError, ValueError):
        return
    message = came_out(outgoing)
    out = read_by_all(message)
    if isinstance(made, AmqpAnnotatedMessage) and made.body_type is AmqpMessageBodyType.VALUE:
        assert repr(message.body) == repr(plain_value(made.body))
        assert encode(out.value) == encode(amqp_value(made.body))
    assert out.application_properties[NUMBER] == 1
    own = {key: amqp_value(value) for key, value in (made.application_properties or {}).items()}
    assert {key: encode(value) for key, value in out.application_properties.items()} == {
        key: encode(value) for key, value in own.items()
    }


@settings(max_examples=effort(500, 10_000))
@given(CHANCES)
def test_what_a_plain_producer_writes_comes_out(chance: random.Random) -> None:
    """Every record can be read in every way; its body is not lost, and neither are its headers."""
    key, value, headers = record(chance, 1)
    message = received(key, value, headers)
    out = read_by_all(message)
    assert out.application_properties[NUMBER] == b"1"
    if message.body_type is AmqpMessageBodyType.DATA:
        assert out.data == [value]
    elif message.body_type is AmqpMessageBodyType.SEQUENCE:
        assert len(out.sequences) == len(message.body)
    else:
        assert (out.value is None) == (message.body is None)
    assert set(message.application_properties or {}) <= {name.encode() for name in out.application_properties}


@pytest.mark.parametrize("moment", [Milliseconds(1 << 62), Milliseconds(-(1 << 63))])
def test_moments_outside_of_pythons_years_are_read(moment: Milliseconds) -> None:
    """The SDK shows them as milliseconds."""
    (outgoing,) = outgoing_of(AmqpAnnotatedMessage(data_body=b"x", properties={"creation_time": int(moment)}))
    properties = came_out(outgoing).raw_amqp_message.properties
    assert properties is not None
    assert properties.creation_time == moment


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "user_id"])
def test_a_decimal_is_no_text_and_no_bytes(name: str) -> None:
    """A strict client could not read it in such a field; one that was stored before is shown as another type, or not at all."""
    given = encode_sections(Sections(properties={name: DecimalBits(bytes(4))}, data=[b"x"]))
    with pytest.raises(AmqpError, match=f"{name} is DecimalBits"):
        list(decode_transfer(given, 0, LATEST))
    stored_before = encode_value({"properties": {name: DecimalBits(b"\x22\x50\x00\x01")}})
    read_by_all(received(None, b"x", [("sb-amqp", stored_before.encode()), ("sb-correlation-id", b"\x22P\x00\x01")]))
