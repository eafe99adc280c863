"""Messages as AMQP has them, without anything being sent."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus import ServiceBusMessage
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from kafkabus.message import ServiceBusReceivedMessage, as_message
from kafkabus.record import Delivery, StoredRecord
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.properties import PropertyRuleError, decode_value, encode_value

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 64)
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.binary(max_size=9)
    | st.uuids()
    | st.datetimes(timezones=st.just(timezone.utc))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


def received(message: object) -> ServiceBusReceivedMessage:
    """A message as it comes out when it went in like this."""
    outgoing = as_message(message)._outgoing()
    record = StoredRecord(("t", 0, 0), (None, outgoing.value, outgoing.headers), (1, 0))
    return ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))


@given(VALUES)
def test_any_value_is_carried(value: object) -> None:
    """With its type."""
    assert decode_value(encode_value(value)) == value


@given(VALUES)
def test_a_value_body_comes_out_as_it_went_in(value: object) -> None:
    """As a value, also when it is sent again."""
    message = received(AmqpAnnotatedMessage(value_body=value))
    assert (message.body_type, message.body) == (AmqpMessageBodyType.VALUE, value)
    assert received(message).body == value
    assert message.raw_amqp_message.body == value


def test_a_sequence_body_is_a_list_of_lists() -> None:
    """A flat list is one of them."""
    message = received(AmqpAnnotatedMessage(sequence_body=[1, "two", b"3"]))
    assert (message.body_type, message.body) == (AmqpMessageBodyType.SEQUENCE, [[1, "two", b"3"]])
    assert received(AmqpAnnotatedMessage(sequence_body=[[1], [2, 3]])).body == [[1], [2, 3]]
    assert str(message) == "[[1, 'two', b'3']]"


def test_a_data_body_is_bytes_in_one_piece() -> None:
    """However many it was given in."""
    message = received(AmqpAnnotatedMessage(data_body=[b"a", "b"]))
    assert (message.body_type, b"".join(message.body)) == (AmqpMessageBodyType.DATA, b"ab")


def test_everything_else_is_carried() -> None:
    """Header, footer, annotations and properties; what a message has a name for is there under that name."""
    message = received(
        AmqpAnnotatedMessage(
            data_body=b"x",
            header={"priority": 7, "durable": True, "time_to_live": 30_000},
            footer={"checksum": 1},
            properties=AmqpMessageProperties(
                message_id="m", subject=b"s", group_id="g", user_id=b"u", group_sequence=3, content_encoding="utf-8"
            ),
            application_properties={"colour": "red"},
            annotations={"x-opt-partition-key": "g", "mine": uuid.UUID(int=5)},
            delivery_annotations={"at": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        )
    )
    assert (message.message_id, message.subject, message.session_id, message.partition_key) == ("m", "s", "g", "g")
    assert message.time_to_live is not None
    raw = message.raw_amqp_message
    assert (raw.header, raw.properties) != (None, None)
    header: Any = raw.header
    properties: Any = raw.properties
    assert (header.priority, header.durable, header.time_to_live, header["first_acquirer"]) == (7, True, 30_000, None)
    assert (properties.subject, properties.user_id, properties.group_sequence) == (b"s", b"u", 3)
    assert properties["content_encoding"] == "utf-8"
    assert raw.footer == {"checksum": 1}
    assert raw.annotations == {"mine": uuid.UUID(int=5), b"x-opt-partition-key": b"g"}
    assert raw.delivery_annotations == {"at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    assert raw.application_properties == {b"colour": b"red"}


def test_a_plain_message_as_amqp_has_it() -> None:
    """Text as it was given, no body as no value."""
    raw = ServiceBusMessage("x", subject="s").raw_amqp_message
    assert (raw.body_type, list(raw.body)) == (AmqpMessageBodyType.DATA, [b"x"])
    assert raw.properties is not None
    assert raw.properties.subject == "s"
    empty = ServiceBusMessage(None).raw_amqp_message
    assert (empty.body_type, empty.body) == (AmqpMessageBodyType.VALUE, None)


def test_a_body_that_is_not_what_it_says_is_bytes() -> None:
    """As of a foreign producer."""
    record = StoredRecord(("t", 0, 0), (None, b"{no json", [("sb-body-type", b"value")]), (1, 0))
    message = ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))
    assert b"".join(message.body) == b"{no json"


def test_what_no_message_carries_is_refused() -> None:
    """Before anything is sent; so is anything but one body."""
    with pytest.raises(PropertyRuleError, match="object"):
        as_message(AmqpAnnotatedMessage(value_body=[object()]))
    with pytest.raises(TypeError, match="data_body is int"):
        as_message(AmqpAnnotatedMessage(data_body=[1]))
    with pytest.raises(TypeError, match="sequence_body is str"):
        as_message(AmqpAnnotatedMessage(sequence_body="x"))
    with pytest.raises(ValueError, match="0 bodies"):
        AmqpAnnotatedMessage()
    with pytest.raises(ValueError, match="2 bodies"):
        AmqpAnnotatedMessage(data_body=b"x", value_body=1)


def test_headers_and_properties_are_mappings_too() -> None:
    """With a fixed set of names."""
    header = AmqpMessageHeader(priority=1)
    header["durable"] = True
    assert (dict(header)["priority"], header.has_key("durable"), "colour" in header) == (1, True, False)
    assert header == {**dict.fromkeys(header), "priority": 1, "durable": True}
    with pytest.raises(KeyError, match="colour"):
        header["colour"] = "red"
