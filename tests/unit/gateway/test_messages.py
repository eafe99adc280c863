"""Each message that the gateway accepts can be delivered; so can each record of any producer."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._core.delivery import Delivery
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage, as_message, outgoing_of
from kafkabus._core.record import StoredRecord
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.messages import decode_transfer, encode_message
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus_mapping import headers as h
from kafkabus_mapping.amqp.sections import (
    DATA,
    FOOTER,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTIES_FIELDS,
    VALUE,
    Sections,
    decode_sections,
)
from kafkabus_mapping.amqp.types import (
    Byte,
    DecimalBits,
    Described,
    Int,
    Milliseconds,
    Symbol,
    UByte,
    UInt,
    ULong,
    encode,
)
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.formats import FIRST, LATEST
from kafkabus_mapping.properties import encode_value

NOW = 1_769_860_800_000


def section(code: int, content: Any) -> bytes:
    """Return a section, whatever is in it."""
    return encode(Described(ULong(code), content))


def header(**fields: Any) -> bytes:
    """Return a header with fields of any type."""
    return section(HEADER, [fields.get(name) for name in HEADER_FIELDS])


def properties(**fields: Any) -> bytes:
    """Return properties with fields of any type."""
    return section(PROPERTIES, [fields.get(name) for name in PROPERTIES_FIELDS])


def delivered(headers: list[tuple[str, bytes | None]], body: bytes | None = b"x") -> Sections:
    """Return a record as clients of the gateway get it."""
    record = StoredRecord(("t", 0, 4), (None, body, headers), (1, NOW))
    return decode_sections(encode_message(ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))))


def received(outgoing: Outgoing) -> ServiceBusReceivedMessage:
    """Return a message as a receiver gets it."""
    record = StoredRecord(("t", 0, 4), (None, outgoing.value, outgoing.headers), (1, NOW))
    return ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))


def carried(**parts: Any) -> Sections:
    """Return a message with such a header ``sb-amqp`` as clients of the gateway get it."""
    return delivered([(h.AMQP, encode_value(parts).encode())])


UNCARRIED = [
    ("content_type", properties(content_type="größe")),
    ("content_type", properties(content_type=5)),
    ("content_encoding", properties(content_encoding="größe")),
    ("group_sequence", properties(group_sequence=-1)),
    ("group_sequence", properties(group_sequence="first")),
    ("group_sequence", properties(group_sequence=1 << 40)),
    ("user_id", properties(user_id=5)),
    ("creation_time", properties(creation_time="now")),
    ("absolute_expiry_time", properties(absolute_expiry_time=1.5)),
    ("priority", header(priority=300)),
    ("priority", header(priority="high")),
    ("priority", header(priority=True)),
    ("durable", header(durable="yes")),
    ("durable", header(durable=[])),
    ("first_acquirer", header(first_acquirer=1)),
    ("ttl", header(ttl=Int(-5))),
    ("ttl", header(ttl=True)),
    ("ttl", header(ttl=ULong((1 << 64) - 1))),
    ("annotations", section(MESSAGE_ANNOTATIONS, {"größe": 1})),
    ("annotations", section(MESSAGE_ANNOTATIONS, {None: 1})),
    ("annotations", section(MESSAGE_ANNOTATIONS, {1.5: 1})),
    ("delivery_annotations", section(0x71, {"größe": 1})),
    ("footer", section(FOOTER, {"größe": 1})),
    ("footer", section(FOOTER, {True: 1})),
    ("application_properties", section(0x74, {b"x": 1})),
]
"""Sections that a client of AMQP may say and no message can have, with the names of the parts that are wrong."""


@pytest.mark.parametrize(("name", "wrong"), UNCARRIED)
def test_what_amqp_does_not_allow_is_refused_by_name(name: str, wrong: bytes) -> None:
    """The error names the part; nothing is stored."""
    with pytest.raises(AmqpError, match=name) as caught:
        list(decode_transfer(wrong + section(VALUE, "x"), 0, LATEST))
    assert caught.value.condition == ARGUMENT_ERROR


def test_a_map_that_says_a_key_twice_is_refused() -> None:
    """Python would keep one of two keys that are equal as numbers."""
    with pytest.raises(AmqpError, match="twice"):
        list(decode_transfer(b"\x00\x53\x77\xc1\x07\x04\x54\x01\x41\x52\x01\x42", 0, LATEST))


PRICED = section(0x74, {"amount": DecimalBits(bytes.fromhex("303c00000000000000000000000004e2"))})


def test_decimals_and_data_sections_are_as_the_format_has_them() -> None:
    """In the first format, decimals are bytes, and data sections joined; clients of AMQP get decimals all the same."""
    said = PRICED + section(DATA, b"aa") + section(DATA, b"b")
    for written_format, amount, sections in ((FIRST, bytes, [b"aab"]), (LATEST, Decimal, [b"aa", b"b"])):
        (outgoing,) = decode_transfer(said, 0, written_format)
        assert type((outgoing.envelope.application_properties or {})["amount"]) is amount
        message = received(outgoing)
        assert list(message.body) == sections
        again = decode_sections(encode_message(message))
        assert (again.data, again.application_properties) == (sections, decode_sections(said).application_properties)


@pytest.mark.parametrize("key", ["größe", "größe".encode()])
def test_a_partition_key_may_be_bytes(key: str | bytes) -> None:
    """Azure's SDK for Python sends that of a message that it received so."""
    said = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): key}) + section(VALUE, "x")
    (outgoing,) = decode_transfer(said, 0, LATEST)
    assert outgoing.envelope.partition_key == "größe"


def test_a_partition_key_that_is_no_text_is_refused() -> None:
    """By its name."""
    said = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): b"\xff"}) + section(VALUE, "x")
    with pytest.raises(AmqpError, match="x-opt-partition-key is bytes: it is a text"):
        list(decode_transfer(said, 0, LATEST))


def test_a_decimal_that_is_no_number_is_refused() -> None:
    """In the first format, it is bytes as well."""
    said = section(0x74, {"amount": DecimalBits(b"\x78" + bytes(15))}) + section(VALUE, "x")
    with pytest.raises(AmqpError, match="is an infinity, or no number"):
        list(decode_transfer(said, 0, LATEST))
    assert len(list(decode_transfer(said, 0, FIRST))) == 1


@pytest.mark.parametrize("ticks", [621_355_968_000_000_000, 638_000_000_000_000_005])
def test_a_moment_of_dotnet_is_a_time(ticks: int) -> None:
    """Its clients send a DateTimeOffset as ticks since the year 1, and get it back so."""
    moment = Described(Symbol("com.microsoft:datetime-offset"), ticks)
    (outgoing,) = decode_transfer(section(0x74, {"at": moment}) + section(VALUE, "x"), 0, LATEST)
    at = (outgoing.envelope.application_properties or {})["at"]
    assert at == datetime(1, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=ticks // 10)
    again = decode_sections(encode_message(received(outgoing)))
    assert again.application_properties["at"] == moment


RAW = [
    ("header", {"priority": 300}, ValueError, "priority is 300"),
    ("header", {"priority": "high"}, TypeError, "priority is str"),
    ("header", {"durable": "yes"}, TypeError, "durable is str"),
    ("header", {"time_to_live": -5}, ValueError, "time_to_live"),
    ("header", {"time_to_live": "5"}, TypeError, "time_to_live is str"),
    ("properties", {"content_type": "größe"}, ValueError, "content_type"),
    ("properties", {"content_encoding": "größe"}, ValueError, "content_encoding"),
    ("properties", {"group_sequence": -1}, ValueError, "group_sequence is -1"),
    ("properties", {"group_sequence": "first"}, TypeError, "group_sequence is str"),
    ("properties", {"group_sequence": 1 << 40}, ValueError, "group_sequence is 1099511627776"),
    ("properties", {"user_id": 5}, TypeError, "user_id is int"),
    ("properties", {"creation_time": "now"}, TypeError, "creation_time is str"),
    ("properties", {"absolute_expiry_time": 1 << 70}, ValueError, "absolute_expiry_time"),
    ("annotations", {"größe": 1}, ValueError, "annotations"),
    ("annotations", {"größe".encode(): 1}, ValueError, "annotations"),
    ("annotations", {1.5: 1}, TypeError, "annotations"),
    ("annotations", {"x-opt-scheduled-enqueue-time": "now"}, TypeError, "x-opt-scheduled-enqueue-time is str"),
    ("annotations", {"large": 1 << 64}, ValueError, "annotations"),
    ("annotations", {"long": [timedelta.max]}, ValueError, "annotations"),
    ("delivery_annotations", {"größe": 1}, ValueError, "delivery_annotations"),
    ("footer", {"größe": 1}, ValueError, "footer"),
    ("footer", {"small": -(1 << 63) - 1}, ValueError, "footer"),
]


@pytest.mark.parametrize(("part", "value", "error", "says"), RAW)
def test_what_amqp_cannot_carry_is_refused_when_it_is_sent(
    part: str, value: Any, error: type[Exception], says: str
) -> None:
    """It makes no difference whether a message is set up by its raw message, or is one of AMQP from the beginning."""
    message, made = ServiceBusMessage("x"), AmqpAnnotatedMessage(data_body=b"x")
    setattr(message.raw_amqp_message, part, value)
    with pytest.raises(error, match=says):
        message._to_outgoing()
    setattr(made, part, value)
    with pytest.raises(error, match=says):
        outgoing_of(made)


@pytest.mark.parametrize(
    ("value", "says"),
    [(1 << 64, "64 bits"), (-(1 << 63) - 1, "64 bits"), (timedelta.max, "longer"), (timedelta.min, "longer")],
)
def test_an_application_property_outside_of_its_type_is_refused(value: Any, says: str) -> None:
    """The error names the property, its value and the limit; bodies have the same limits."""
    with pytest.raises(ValueError, match=f"'size'.*{says}"):
        ServiceBusMessage("x", application_properties={"size": value})._to_outgoing()
    for made in (AmqpAnnotatedMessage(value_body={"a": [value]}), AmqpAnnotatedMessage(sequence_body=[[value]])):
        with pytest.raises(ValueError, match=f"body.*{says}"):
            as_message(made)


def test_a_content_type_is_ascii() -> None:
    """It is refused when it is set, or when the message is made."""
    with pytest.raises(ValueError, match="content_type is 'größe'"):
        ServiceBusMessage("x", content_type="größe")
    message = ServiceBusMessage("x")
    with pytest.raises(ValueError, match="content_type is 'größe'"):
        message.content_type = "größe"


@pytest.mark.parametrize("value", [(1 << 64) - 1, -(1 << 63), timedelta(days=10_675_199), timedelta(days=-10_675_199)])
def test_the_largest_values_are_carried(value: Any) -> None:
    """They come out as AMQP has them."""
    outgoing = ServiceBusMessage("x", application_properties={"size": value})._to_outgoing()
    shown = delivered(outgoing.headers).application_properties["size"]
    if isinstance(value, timedelta):
        assert shown == Described(Symbol("com.microsoft:timespan"), value // timedelta(microseconds=1) * 10)
    else:
        assert shown == value


# Records that came by other ways.


def test_symbols_of_a_plain_producer_are_percent_encoded() -> None:
    """A client that expects a symbol gets one."""
    sections = delivered([(h.CONTENT_TYPE, "text/größe;a=1%".encode())])
    assert type(sections.properties["content_type"]) is Symbol
    assert sections.properties["content_type"] == "text/gr%C3%B6%C3%9Fe;a=1%"
    sections = carried(
        properties={"content_encoding": "größe"},
        annotations={"größe": 1, b"x-bytes": 2, -5: 3},
        footer={"größe": 4, 7: 5},
        delivery_annotations={"größe": 6},
    )
    assert sections.properties["content_encoding"] == "gr%C3%B6%C3%9Fe"
    mine = {key: value for key, value in sections.message_annotations.items() if not str(key).startswith("x-opt-")}
    assert mine == {"gr%C3%B6%C3%9Fe": 1, "x-bytes": 2, "-5": 3}
    assert {type(key) for key in mine} == {Symbol}
    assert sections.footer == {"gr%C3%B6%C3%9Fe": 4, 7: 5}
    assert [type(key) for key in sections.footer] == [Symbol, ULong]
    assert sections.delivery_annotations == {"gr%C3%B6%C3%9Fe": 6}


@pytest.mark.parametrize(
    ("part", "name", "value", "shown"),
    [
        ("header", "priority", 300, UByte(255)),
        ("header", "priority", -1, UByte(0)),
        ("properties", "group_sequence", 1 << 40, UInt((1 << 32) - 1)),
        ("properties", "group_sequence", -1, UInt(0)),
        ("properties", "creation_time", 1 << 70, Milliseconds((1 << 63) - 1)),
    ],
)
def test_numbers_of_a_plain_producer_are_clamped(part: str, name: str, value: int, shown: Any) -> None:
    """The field has the nearest number that it can have."""
    found = getattr(carried(**{part: {name: value}}), part)[name]
    assert (type(found), found) == (type(shown), shown)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("header", "priority", "high"),
        ("header", "durable", "yes"),
        ("properties", "group_sequence", "first"),
        ("properties", "user_id", 5),
        ("properties", "creation_time", "now"),
    ],
)
def test_what_a_field_cannot_be_is_an_application_property(part: str, name: str, value: Any) -> None:
    """It is carried under the name of a header that does not parse."""
    sections = carried(**{part: {name: value}})
    assert name not in getattr(sections, part)
    assert sections.application_properties == {f"sb-{name.replace('_', '-')}": value}


def test_values_of_a_plain_producer_are_clamped_or_text() -> None:
    """A number beyond 64 bits is text, a duration beyond AMQP's is the longest one."""
    properties = b'{"a": {"int": "36893488147419103232"}, "b": {"timedelta": 86399999999999999999}, "c": 5}'
    longest = Described(Symbol("com.microsoft:timespan"), (1 << 63) - 1)
    sections = delivered([(h.APPLICATION_PROPERTIES, properties)])
    assert sections.application_properties == {"a": "36893488147419103232", "b": longest, "c": 5}
    sections = carried(annotations={"a": [1 << 65, timedelta.min], "b": UByte(300), "c": Byte(5)})
    found = sections.message_annotations
    assert found["a"] == ["36893488147419103232", Described(Symbol("com.microsoft:timespan"), -(1 << 63))]
    assert (type(found["b"]), found["b"]) == (int, 300)
    assert (type(found["c"]), found["c"]) == (Byte, 5)


def test_a_body_of_a_plain_producer_is_carried_as_far_as_amqp_can() -> None:
    """A value stays a value if it is JSON; else receivers get its bytes."""
    sections = delivered([(h.BODY_TYPE, b"value")], b'[{"int": "36893488147419103232"}, {"char": "ab"}]')
    assert sections.value == ["36893488147419103232", "ab"]
    for body in (b"no JSON", b'{"decimal": 9999999999999}', b'{"map": [[[1], 2]]}', b"[" * 5000):
        assert delivered([(h.BODY_TYPE, b"value")], body).data == [body]
    assert delivered([(h.BODY_TYPE, b"sequence")], b"5").data == [b"5"]


def test_a_plain_producer_says_nothing_in_the_brokers_name() -> None:
    """Annotations of the broker are the broker's."""
    sections = carried(annotations={"x-opt-sequence-number": "first", "x-opt-partition-key": "k", "x-mine": 1})
    found = sections.message_annotations
    assert (found["x-opt-sequence-number"], found["x-mine"], "x-opt-partition-key" in found) == (5, 1, False)


def test_a_negative_time_to_live_is_none() -> None:
    """The message does not vanish; the header is an application property, as any other that does not parse."""
    sections = delivered([(h.TIME_TO_LIVE, b"-5")])
    assert "ttl" not in sections.header
    assert sections.application_properties == {"sb-time-to-live": b"-5"}


def test_what_sdks_and_gateway_write_is_the_same_for_a_moment() -> None:
    """A time outside of Python's years passes through as it came."""
    (outgoing,) = decode_transfer(properties(creation_time=Milliseconds(1 << 60)) + section(VALUE, None), 0, LATEST)
    assert delivered(outgoing.headers, None).properties["creation_time"] == Milliseconds(1 << 60)
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    (outgoing,) = decode_transfer(properties(creation_time=moment) + section(VALUE, None), 0, LATEST)
    assert delivered(outgoing.headers, None).properties["creation_time"] == moment
