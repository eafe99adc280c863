"""Messages in AMQP's terms, without sending."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus import ServiceBusMessage
from kafkabus._core.delivery import Delivery
from kafkabus._core.message import ServiceBusReceivedMessage, as_message
from kafkabus._core.record import StoredRecord
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from kafkabus_mapping.amqp.types import AmqpDecodeError, decode, encode
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.properties import PropertyRuleError, decode_value, encode_value

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
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
    """Return a message as a receiver gets it if it was sent like this."""
    outgoing = as_message(message)._to_outgoing()
    record = StoredRecord(("t", 0, 0), (None, outgoing.value, outgoing.headers), (1, 0))
    return ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))


@given(VALUES)
def test_any_value_is_carried(value: object) -> None:
    """The value keeps its type."""
    assert decode_value(encode_value(value)) == value


@given(VALUES)
def test_a_value_body_comes_out_as_it_went_in(value: object) -> None:
    """It is a value, also when it is sent again."""
    message = received(AmqpAnnotatedMessage(value_body=value))
    assert (message.body_type, message.body) == (AmqpMessageBodyType.VALUE, value)
    assert received(message).body == value
    assert message.raw_amqp_message.body == value


def test_a_sequence_body_is_a_list_of_lists() -> None:
    """A flat list is one of its lists."""
    message = received(AmqpAnnotatedMessage(sequence_body=[1, "two", b"3"]))
    assert (message.body_type, message.body) == (AmqpMessageBodyType.SEQUENCE, [[1, "two", b"3"]])
    assert received(AmqpAnnotatedMessage(sequence_body=[[1], [2, 3]])).body == [[1], [2, 3]]
    assert str(message) == "[[1, 'two', b'3']]"


def test_a_data_body_is_bytes_in_one_piece() -> None:
    """It may be given in any number of pieces."""
    message = received(AmqpAnnotatedMessage(data_body=[b"a", "b"]))
    assert (message.body_type, b"".join(message.body)) == (AmqpMessageBodyType.DATA, b"ab")


def test_everything_else_is_carried() -> None:
    """Header, footer, annotations and properties are carried; fields that a message has a name for appear under it."""
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
    assert raw.annotations == {
        "mine": uuid.UUID(int=5),
        b"x-opt-partition-key": b"g",
        b"x-opt-enqueued-time": 0,
        b"x-opt-sequence-number": 1,
        b"x-opt-enqueue-sequence-number": 1,
        b"x-opt-message-state": 0,
    }
    assert raw.delivery_annotations == {"at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    assert raw.application_properties == {b"colour": b"red"}


def test_a_plain_message_as_amqp_has_it() -> None:
    """Text is as it was given, and a missing body is no value."""
    raw = ServiceBusMessage("x", subject="s").raw_amqp_message
    assert (raw.body_type, list(raw.body)) == (AmqpMessageBodyType.DATA, [b"x"])
    assert raw.properties is not None
    assert raw.properties.subject == "s"
    empty = ServiceBusMessage(None).raw_amqp_message
    assert (empty.body_type, empty.body) == (AmqpMessageBodyType.VALUE, None)


def test_a_body_that_is_not_what_it_says_is_bytes() -> None:
    """A foreign producer may send such a body."""
    record = StoredRecord(("t", 0, 0), (None, b"{no json", [("sb-body-type", b"value")]), (1, 0))
    message = ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER))
    assert b"".join(message.body) == b"{no json"


def test_what_no_message_carries_is_refused() -> None:
    """It is refused before anything is sent, as is any number of bodies but one."""
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
    """The names are fixed."""
    header = AmqpMessageHeader(priority=1)
    header["durable"] = True
    assert (dict(header)["priority"], header.has_key("durable"), "colour" in header) == (1, True, False)
    assert header == {**dict.fromkeys(header), "priority": 1, "durable": True}
    with pytest.raises(KeyError, match="colour"):
        header["colour"] = "red"


IDENTIFIERS: list[Any] = [uuid.UUID(int=5), b"bytes", b"\xff\x00", 7, (1 << 64) - 1, "text"]


@pytest.mark.parametrize("value", IDENTIFIERS)
def test_an_identifier_comes_back_as_what_it_was(value: Any) -> None:
    """That holds at once, after a receive, and after a resend. All texts describe it in one way."""
    for name in ("message_id", "correlation_id"):
        arguments: dict[str, Any] = {name: value}
        for message in (ServiceBusMessage("x", **arguments), ServiceBusMessage("x")):
            setattr(message, name, value)
            assert getattr(message, name) == value
            assert getattr(received(message), name) == value
            assert type(getattr(received(received(message)), name)) is type(value)
            shown = getattr(received(message).raw_amqp_message.properties, name)
            assert shown == (value.encode() if isinstance(value, str) else value)
            setattr(message, name, "another")
            assert getattr(received(message), name) == "another"
    texts: dict[Any, str] = {b"bytes": "bytes", b"\xff\x00": "ff00"}
    text = texts.get(value, str(value))
    assert ServiceBusMessage("x", message_id=value)._to_outgoing().envelope.message_id == text


@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), (1 << 64, ValueError), (0.5, TypeError), (True, TypeError), ("x" * 129, ValueError)],
)
def test_what_is_no_message_id(value: Any, error: type[Exception]) -> None:
    """It is refused at once."""
    with pytest.raises(error, match="message_id"):
        ServiceBusMessage("x", message_id=value)
    with pytest.raises(error, match="message_id"):
        ServiceBusMessage("x").message_id = value


def test_an_identifier_that_somebody_changed_is_text() -> None:
    """A rule's action changes it, which knows nothing of the type beside it."""
    outgoing = ServiceBusMessage("x", message_id=7)._to_outgoing()
    headers = [(name, b"8" if name == "sb-message-id" else value) for name, value in outgoing.headers]
    record = StoredRecord(("t", 0, 0), (None, outgoing.value, headers), (1, 0))
    assert ServiceBusReceivedMessage(record, Delivery("q", 0, "", 0, 0, FOREVER)).message_id == "8"


def test_the_raw_message_is_the_message() -> None:
    """Settings of the raw message are sent, and show at the message; settings of the message show at the raw one."""
    message = ServiceBusMessage("x", subject="s", time_to_live=60)
    raw = message.raw_amqp_message
    assert raw is message.raw_amqp_message
    properties: Any = raw.properties
    header: Any = raw.header
    assert properties.absolute_expiry_time == properties.creation_time + 60_000
    properties.subject, properties.user_id, properties.message_id, properties.group_id = "other", b"u", "id", "session"
    header.priority, header.time_to_live = 3, 5_000
    raw.annotations = {"x-opt-partition-key": "session", "mine": 1}
    raw.delivery_annotations, raw.footer, raw.application_properties = {"d": 1}, {"f": 2}, {"a": 3}
    assert (message.subject, message.message_id, message.session_id) == ("other", "id", "session")
    assert (message.partition_key, message.time_to_live) == ("session", timedelta(seconds=5))
    message.content_type, message.correlation_id, message.session_id, message.partition_key = "c", "r", "s", "s"
    message.time_to_live = 7
    due = datetime(2030, 1, 1, tzinfo=timezone.utc)
    message.scheduled_enqueue_time_utc = due
    assert (properties.content_type, properties.correlation_id, properties.group_id) == ("c", "r", "s")
    assert raw.annotations == {"x-opt-partition-key": "s", "mine": 1, "x-opt-scheduled-enqueue-time": due}
    assert header.time_to_live == 7_000
    there = received(message)
    assert (there.subject, there.message_id, there.session_id, there.partition_key) == ("other", "id", "s", "s")
    assert (there.time_to_live, there.scheduled_enqueue_time_utc) == (timedelta(seconds=7), due)
    found: Any = there.raw_amqp_message
    assert (found.properties.user_id, found.header.priority, found.header.time_to_live) == (b"u", 3, 7_000)
    assert (found.annotations["mine"], found.delivery_annotations, found.footer) == (1, {"d": 1}, {"f": 2})
    assert found.annotations[b"x-opt-scheduled-enqueue-time"] == 1893456000000
    assert found.application_properties == {b"a": 3}


def test_the_parts_of_a_raw_message_may_be_replaced() -> None:
    """The new parts are objects that stay the application's, mappings, or nothing."""
    message = ServiceBusMessage("x", subject="s", time_to_live=60, message_id="m")
    raw = message.raw_amqp_message
    header, properties = AmqpMessageHeader(), AmqpMessageProperties(subject="new", message_id=uuid.UUID(int=3))
    raw.header, raw.properties = header, properties
    header.time_to_live, properties.to = 1_000, "there"
    assert (message.time_to_live, message.to, message.subject) == (timedelta(seconds=1), "there", "new")
    assert received(message).message_id == uuid.UUID(int=3)
    raw.header, raw.properties = None, {"subject": "last"}
    assert (message.time_to_live, message.subject, message.to) == (None, "last", None)
    raw.properties = raw.annotations = None
    message.subject, message.partition_key = "again", "k"
    assert (received(message).subject, received(message).partition_key) == ("again", "k")
    assert message.message_id


def test_what_was_received_is_changed_and_sent_again() -> None:
    """The raw message is changed. The broker's annotations stay behind, and texts may be bytes, as they were."""
    message = received(ServiceBusMessage("x", subject="s", message_id="m"))
    raw: Any = message.raw_amqp_message
    raw.properties.subject = b"new"
    raw.annotations[b"x-opt-partition-key"] = b"k"
    raw.header.priority = 9
    again = received(message)
    assert (again.subject, again.partition_key, again.message_id) == ("new", "k", "m")
    assert decode_value(message._to_outgoing().envelope.amqp or "") == {"header": {"priority": 9}}
    assert as_message(raw) is message


@pytest.mark.parametrize(
    ("part", "value", "error", "says"),
    [
        ("properties", {"subject": 5}, TypeError, "subject is int"),
        ("properties", {"group_id": "x" * 129}, ValueError, "session_id has 129"),
        ("properties", {"message_id": 0.5}, TypeError, "message_id is float"),
        ("annotations", {"x-opt-partition-key": 5}, TypeError, "partition_key is int"),
        ("annotations", {"mine": object()}, PropertyRuleError, "object"),
    ],
)
def test_what_a_raw_message_cannot_be_is_refused(part: str, value: Any, error: type[Exception], says: str) -> None:
    """It is refused before anything is sent."""
    message = ServiceBusMessage("x")
    setattr(message.raw_amqp_message, part, value)
    with pytest.raises(error, match=says):
        message._to_outgoing()


def test_no_time_to_live() -> None:
    """Zero means none, as in azure.servicebus."""
    message = ServiceBusMessage("x", time_to_live=0)
    assert message.time_to_live is None
    message.time_to_live = timedelta(0)
    assert received(message).time_to_live is None
    with pytest.raises(ValueError, match="time_to_live -1 day"):
        message.time_to_live = timedelta(days=-1)


def test_the_values_of_a_header_are_a_sequence() -> None:
    """Its names and its items are sequences as well."""
    header = AmqpMessageHeader(priority=3)
    assert header.values()[-1] == 3
    assert (header.keys()[0], header.items()[-1]) == ("delivery_count", ("priority", 3))


@pytest.mark.parametrize("kind", [int, uuid.UUID])
def test_a_map_has_few_keys_that_are_numbers(kind: type) -> None:
    """Python's hashes of numbers are known: a map of 10,000 keys with one hash would take seconds."""
    prime = 2**61 - 1
    keys = [uuid.UUID(int=number * prime) if kind is uuid.UUID else number for number in range(1, 1_002)]
    decode(encode(dict.fromkeys(keys[:1_000])))
    with pytest.raises(AmqpDecodeError, match="1001 keys that are no texts"):
        decode(encode(dict.fromkeys(keys)))
    with pytest.raises(AmqpDecodeError, match="keys that are no texts"):
        decode(encode([dict.fromkeys(keys[:600]), dict.fromkeys(keys[:600])]))
    decode(encode(dict.fromkeys(map(str, range(5_000)))))
