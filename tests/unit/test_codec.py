"""Messages become records and come back with every property; foreign and broken records do no harm."""

from __future__ import annotations

import json
import math
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus._core.record import StoredRecord, enqueue_time_of, own_time_to_live
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import (
    EPOCH,
    Envelope,
    decode_headers,
    encode_headers,
    from_milliseconds,
    join_sections,
    record_size,
    split_sections,
    to_milliseconds,
)
from kafkabus_mapping.properties import PropertyRuleError, PropertyValue, decode_properties, encode_properties

TEXT = st.none() | st.text(max_size=20)
VALUES = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False),
    st.booleans(),
    st.uuids(),
    st.datetimes(timezones=st.just(timezone.utc)),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
NAMES = [
    *(header for _, header in h.TEXT_FIELDS),
    h.TIME_TO_LIVE,
    h.SCHEDULED_ENQUEUE_TIME,
    h.ENQUEUED_SEQUENCE_NUMBER,
    h.HOPS,
    h.TRANSFER_SOURCE,
    h.APPLICATION_PROPERTIES,
    "other",
]
ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["int", "float", "bytes", "uuid", "datetime", "timedelta", "decimal", "x"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=6,
)
ODD_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.integers().map(lambda number: b"%d" % number),
    st.integers(1, 6000).map(lambda digits: b"9" * digits),
    st.dictionaries(st.text(max_size=2), ODD_JSON, max_size=3).map(lambda one: json.dumps(one).encode()),
    st.integers(1, 100_000).map(lambda depth: b'{"x":' + b"[" * depth + b"]" * depth + b"}"),
)
FOREIGN_HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), ODD_VALUES), max_size=8)
"""Headers as any producer may write them."""
MOMENTS = st.integers(0, 10**13).map(from_milliseconds)
ENVELOPES = st.builds(
    Envelope,
    message_id=st.text(max_size=20),
    session_id=TEXT,
    partition_key=TEXT,
    correlation_id=TEXT,
    subject=TEXT,
    content_type=TEXT,
    to=TEXT,
    reply_to=TEXT,
    reply_to_session_id=TEXT,
    time_to_live=st.none() | st.integers(1, 10**14).map(lambda ms: timedelta(milliseconds=ms)),
    scheduled_enqueue_time_utc=st.none() | MOMENTS,
    application_properties=st.dictionaries(st.text(max_size=10), VALUES, max_size=4),
    body_type=TEXT,
    data_sections=TEXT,
    amqp=TEXT,
    dead_letter_reason=TEXT,
    dead_letter_error_description=TEXT,
    dead_letter_source=TEXT,
    enqueued_sequence_number=st.none() | st.integers(1, (1 << 63) - 1),
    transfer_source=TEXT,
)


@given(ENVELOPES)
def test_every_property_comes_back(envelope: Envelope) -> None:
    """All properties that were set come back, and no others."""
    headers = encode_headers(envelope)
    assert all(name.startswith(h.PREFIX) for name, _ in headers)
    assert decode_headers(headers, key=None, place="t/0/0") == envelope


@given(FOREIGN_HEADERS, st.none() | st.binary(max_size=8))
def test_no_record_is_undecodable(headers: list[tuple[str, bytes | None]], key: bytes | None) -> None:
    """A record of any producer has a message id, can be stored once more, and has the same times for all decoders."""
    envelope = decode_headers(headers, key=key, place="t/1/2")
    assert envelope.message_id is not None
    encode_headers(envelope)
    record = StoredRecord(("t", 1, 2), (key, b"", headers), (1, 0))
    lives, due = own_time_to_live(record), enqueue_time_of(record)
    assert envelope.time_to_live == (None if lives is None else timedelta(milliseconds=lives))
    if not any(name == h.TRANSFER_SOURCE for name, _ in headers):
        assert envelope.scheduled_enqueue_time_utc == (None if due is None else from_milliseconds(due))


def test_a_plain_producers_record_is_a_message() -> None:
    """Its place is its id, its key its partition key, its headers are application properties."""
    envelope = decode_headers([("trace", b"1"), ("empty", None)], key=b"k", place="t/1/2")
    assert (envelope.message_id, envelope.partition_key) == ("t/1/2", "k")
    assert envelope.application_properties == {"trace": b"1", "empty": None}
    assert decode_headers(None, key=b"\xff", place="t/1/2").partition_key is None


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=5))
def test_data_sections_come_back(sections: list[bytes]) -> None:
    """Their borders are in a header; a single section has none."""
    body, borders = join_sections(sections)
    assert body == b"".join(sections)
    assert (borders is None) == (len(sections) == 1)
    assert split_sections(body, borders) == sections


@pytest.mark.parametrize("borders", ["", "x", "1,", "-1", "1,9", "٣", "9" * 30, "1 ,1", "+1"])
def test_borders_that_do_not_fit_a_body_are_none(borders: str) -> None:
    """A foreign producer may write anything."""
    assert split_sections(b"abcd", borders) == [b"abcd"]


def test_trace_context_is_no_property() -> None:
    """It is read over."""
    headers: list[tuple[str, bytes | None]] = [(h.TRACEPARENT, b"00-1-2-00"), (h.TRACESTATE, b"a=b")]
    assert decode_headers(headers, key=None, place="t/0/0").application_properties == {}


def test_a_header_that_does_not_parse_is_kept_as_a_property() -> None:
    """Nothing of a record is lost."""
    envelope = decode_headers(
        [(h.TIME_TO_LIVE, b"soon"), (h.SUBJECT, b"\xff"), ("sb-new", b"x")], key=None, place="t/0/0"
    )
    assert (envelope.time_to_live, envelope.subject) == (None, None)
    assert envelope.application_properties == {h.TIME_TO_LIVE: b"soon", h.SUBJECT: b"\xff", "sb-new": b"x"}


def test_the_last_of_repeated_headers_counts() -> None:
    """Kafka's own lastHeader does the same."""
    envelope = decode_headers([(h.MESSAGE_ID, b"a"), (h.MESSAGE_ID, b"b")], key=None, place="t/0/0")
    assert envelope.message_id == "b"


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=5))
def test_application_properties_keep_their_types(properties: dict[str | bytes, PropertyValue]) -> None:
    """That holds for every type that a message may carry."""
    decoded = decode_properties(encode_properties(properties))
    assert decoded == properties
    assert [type(value) for value in decoded.values()] == [type(value) for value in properties.values()]


def test_what_json_cannot_write_is_tagged() -> None:
    """Not a number is a number, too."""
    text = encode_properties(
        {"nan": math.nan, "inf": -math.inf, "big": 1 << 60, b"key": b"\x00", "id": uuid.UUID(int=1)}
    )
    assert text == (
        '{"nan":{"float":"nan"},"inf":{"float":"-inf"},"big":{"int":"1152921504606846976"},"key":{"bytes":"AA=="},'
        '"id":{"uuid":"00000000-0000-0000-0000-000000000001"}}'
    )
    decoded = decode_properties(text)
    assert isinstance(decoded["nan"], float)
    assert math.isnan(decoded["nan"])


@pytest.mark.parametrize(("key", "value"), [("k", [1]), ("k", {"a": 1}), ("k", object()), (5, "v")])
def test_other_types_are_refused(key: object, value: object) -> None:
    """The error names key, type and the allowed types."""
    with pytest.raises(PropertyRuleError, match=r"application property.*use"):
        encode_properties({key: value})  # type: ignore[dict-item]  # that is the test


@pytest.mark.parametrize(
    "text", ["", "[]", "1", '{"a":[1]}', '{"a":{}}', '{"a":{"x":1,"y":2}}', '{"a":{"new":1}}', '{"a":{"uuid":"no"}}']
)
def test_other_json_is_refused(text: str) -> None:
    """The codec then keeps the header as it came."""
    with pytest.raises(ValueError, match=r".+"):
        decode_properties(text)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 1, 1)))  # noqa: DTZ001 - naive on purpose
def test_times_are_milliseconds_since_1970(moment: datetime) -> None:
    """Times without a zone are UTC."""
    aware = moment.replace(tzinfo=timezone.utc)
    assert to_milliseconds(moment) == to_milliseconds(aware) == (aware - EPOCH) // timedelta(milliseconds=1)
    assert aware - from_milliseconds(to_milliseconds(aware)) < timedelta(milliseconds=1)


def test_size_counts_everything_in_bytes() -> None:
    """Body, key, header names and values, as UTF-8."""
    assert record_size(b"12345", "ä", [("ab", "ö".encode()), ("c", b"xyz"), ("d", None)]) == 5 + 2 + 4 + 4 + 1
    assert record_size(None, None, []) == 0
