"""The columns of an entity: a message's properties as Catalyst expressions over the Kafka source's columns.

The rules are those of ``kafkabus_mapping.codec.decode_headers``: of a header that comes twice the last valid one counts; a
record that no facade wrote is a message too; nothing in a record fails a job. Spark computes only the columns that a query
uses.

A header is looked up in two steps. The first is generated code, an ``array_position`` in the reversed names: it finds the
last header of the name, which is nearly always the valid one. Only where its value is not valid, a ``filter`` (which Spark
interprets) looks for an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafkabus_mapping import headers as h
from kafkabus_mapping.numbers import OFFSET_BITS

_TEXT_COLUMNS: Final = (
    ("session_id", h.SESSION_ID),
    ("correlation_id", h.CORRELATION_ID),
    ("subject", h.SUBJECT),
    ("content_type", h.CONTENT_TYPE),
    ("to", h.TO),
    ("reply_to", h.REPLY_TO),
    ("reply_to_session_id", h.REPLY_TO_SESSION_ID),
    ("body_type", h.BODY_TYPE),
    ("dead_letter_reason", h.DEAD_LETTER_REASON),
    ("dead_letter_error_description", h.DEAD_LETTER_DESCRIPTION),
    ("dead_letter_source", h.DEAD_LETTER_SOURCE),
)
_TEXT_HEADERS: Final = (h.MESSAGE_ID, *(header for _, header in h.TEXT_FIELDS))

_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST_DELTA: Final = timedelta.max // _MILLISECOND
_LONGEST_INTERVAL: Final = (2**63 - 1) // 1000
"""Milliseconds in the longest interval that Spark holds, 292,271 years."""
_YEAR_ONE: Final = -62_135_596_800_000
_YEAR_TEN_THOUSAND: Final = 253_402_300_800_000
"""Milliseconds since 1970 of the first and past the last moment that a timestamp in Python can be."""
_LONGEST: Final = 2**63 - 1

_WHOLE_NUMBER: Final = r"^[ \t\n\x0B\f\r]*[+-]?[0-9]+(_[0-9]+)*[ \t\n\x0B\f\r]*$"
"""What Python's ``int`` takes."""
_TAGGED: Final = r"OBJECT<(int|float|bytes|uuid|datetime|timedelta): (STRING|BIGINT|DOUBLE|DECIMAL\([0-9,]+\))>"
_JSON_OPTIONS: Final = {"allowSingleQuotes": "false"}

Parse = Callable[[Column], Column]
"""From a header's value to what it says; null where it is not valid."""


def entity_columns(*, default_time_to_live: timedelta | None, expires: bool) -> list[Column]:
    """The columns of an entity, over a Kafka source with headers.

    Args:
        default_time_to_live: The entity's, or None where it is for ever.
        expires: Whether the entity's messages expire at all; those of a dead-letter queue do not.
    """
    lives = _last(h.TIME_TO_LIVE, _time_to_live)
    texts = {name: _last(header, _text) for name, header in _TEXT_COLUMNS}
    enqueued = F.col("timestamp")
    return [
        F.col("value").alias("body"),
        _message_id().alias("message_id"),
        texts["session_id"].alias("session_id"),
        _partition_key().alias("partition_key"),
        *(texts[name].alias(name) for name in ("correlation_id", "subject", "content_type", "to", "reply_to")),
        texts["reply_to_session_id"].alias("reply_to_session_id"),
        _interval(lives).alias("time_to_live"),
        F.timestamp_millis(_last(h.SCHEDULED_ENQUEUE_TIME, _moment)).alias("scheduled_enqueue_time_utc"),
        _sequence_number().alias("sequence_number"),
        F.col("partition").alias("partition_id"),
        F.col("offset"),
        enqueued.alias("enqueued_time_utc"),
        _expiry(lives, default_time_to_live, expires).alias("expires_at_utc"),
        *(texts[name].alias(name) for name in texts if name.startswith("dead_letter")),
        F.coalesce(_last(h.ENQUEUED_SEQUENCE_NUMBER, _number), _sequence_number()).alias("enqueued_sequence_number"),
        texts["body_type"].alias("body_type"),
        _properties_map().alias("application_properties"),
        _last(h.APPLICATION_PROPERTIES, _properties_text).alias("application_properties_json"),
        F.col("headers"),
    ]


def _last(name: str, parse: Parse) -> Column:
    """What the last valid header of a name says, or null."""
    position = F.array_position(F.reverse(F.col("headers.key")), name)
    value = F.get(F.col("headers.value"), (F.size("headers") - position).cast("int"))
    valid = F.filter("headers", lambda header: (header["key"] == name) & parse(header["value"]).isNotNull())
    earlier = parse(F.try_element_at(valid, F.lit(-1))["value"])
    return F.when(position > 0, F.coalesce(parse(value), earlier))


def _text(value: Column) -> Column:
    return F.try_validate_utf8(value.cast("string"))


def _whole_number(value: Column, lowest: int, highest: int) -> Column:
    text = _text(value)
    number = F.regexp_replace(text, "[^0-9-]", "").try_cast("bigint")
    return F.when(text.rlike(_WHOLE_NUMBER) & number.between(lowest, highest), number)


def _time_to_live(value: Column) -> Column:
    return _whole_number(value, -_LONGEST_DELTA, _LONGEST_DELTA)


def _moment(value: Column) -> Column:
    return _whole_number(value, _YEAR_ONE, _YEAR_TEN_THOUSAND - 1)


def _number(value: Column) -> Column:
    return _whole_number(value, -_LONGEST, _LONGEST)


def _message_id() -> Column:
    place = F.concat_ws("/", F.col("topic"), F.col("partition").cast("string"), F.col("offset").cast("string"))
    return F.coalesce(_last(h.MESSAGE_ID, _text), place)


def _partition_key() -> Column:
    named = _last(h.PARTITION_KEY, _text)
    foreign = F.coalesce(F.nullif(named, F.lit("")), F.nullif(_text(F.col("key")), F.lit("")))
    return F.when(_last(h.MESSAGE_ID, _text).isNull(), foreign).otherwise(named)


def _sequence_number() -> Column:
    return F.shiftleft(F.col("partition").cast("bigint"), OFFSET_BITS) + F.col("offset") + 1


def _interval(milliseconds: Column) -> Column:
    return _within(milliseconds, _LONGEST_INTERVAL) * F.expr("INTERVAL '0.001' SECOND")


def _within(number: Column, bound: int) -> Column:
    """A number cut off at a bound on either side; null stays null, which ``least`` and ``greatest`` would pass over."""
    return F.when(number > bound, F.lit(bound)).when(number < -bound, F.lit(-bound)).otherwise(number)


def _expiry(lives: Column, default_time_to_live: timedelta | None, expires: bool) -> Column:
    if not expires:
        return F.lit(None).cast("timestamp")
    if default_time_to_live is not None:
        # A message that names none lives as long as its queue says: least passes over nulls.
        lives = F.least(lives, F.lit(default_time_to_live // _MILLISECOND))
    # Neither term reaches 2**62, so the sum cannot overflow.
    moment = F.unix_millis(F.col("timestamp")) + _within(lives, _YEAR_TEN_THOUSAND)
    return F.timestamp_millis(F.when(moment < _YEAR_TEN_THOUSAND, moment))


def _parsed(text: Column, values: str) -> Column:
    """A JSON object as a map; null where the text is none. In brackets, so that nothing may follow the object."""
    wrapped = F.concat(F.lit("["), text, F.lit("]"))
    parsed = F.from_json(wrapped, f"array<map<string,{values}>>", _JSON_OPTIONS)
    return F.when(F.size(parsed) == 1, F.get(parsed, F.lit(0)))


def _properties_text(value: Column) -> Column:
    """The JSON of application properties, null where it is no object of plain and tagged values."""
    text = _text(value)
    kinds = F.transform(F.map_values(_parsed(text, "variant")), F.schema_of_variant)
    nested = F.exists(kinds, lambda kind: kind.rlike("^(OBJECT|ARRAY)<") & ~kind.rlike(f"^{_TAGGED}$"))
    # Most properties are plain: a text without a second bracket holds no nested value and no list.
    plain = F.length(text) - F.length(F.translate(text, "{[", "")) == 1
    return F.when(F.when(plain, _parsed(text, "string").isNotNull()).otherwise(~nested), text)


def _properties_map() -> Column:
    text = _last(h.APPLICATION_PROPERTIES, _properties_text)
    raw = _parsed(text, "string")
    plain = F.length(text) - F.length(F.translate(text, "{[", "")) == 1
    readable = F.map_zip_with(raw, F.transform_values(_parsed(text, "variant"), _is_tagged), _readable)
    own = F.coalesce(F.when(plain, raw).otherwise(readable), F.expr("cast(map() as map<string,string>)"))
    foreign = F.coalesce(_foreign_entries(), F.expr("cast(array() as array<struct<key:string,value:string>>)"))
    entries = F.concat(foreign, F.map_entries(own))
    last_of_each = F.filter(entries, lambda entry, i: ~F.array_contains(_keys_after(entries, i), entry["key"]))
    return F.when(F.size(foreign) == 0, own).otherwise(F.map_from_entries(last_of_each))


def _keys_after(entries: Column, index: Column) -> Column:
    rest = F.slice(entries, index + 2, F.size(entries))
    return F.transform(rest, lambda entry: entry["key"])


def _is_tagged(_: Column, value: Column) -> Column:
    return F.schema_of_variant(value).startswith("OBJECT")


def _readable(_: Column, raw: Column, tagged: Column) -> Column:
    content = F.get(F.map_values(F.from_json(raw, "map<string,string>", _JSON_OPTIONS)), F.lit(0))
    return F.when(tagged, content).otherwise(raw)


def _foreign_entries() -> Column:
    """Headers that are not ours, or do not say what ours should."""
    foreign = F.filter("headers", lambda header: ~_is_ours(header["key"], header["value"]))
    return F.transform(foreign, lambda header: F.struct(header["key"], _shown(header["value"]).alias("value")))


def _is_ours(name: Column, value: Column) -> Column:
    says = (
        F.when(~name.startswith(h.PREFIX) | value.isNull(), F.lit(False))
        .when(name.isin(*_TEXT_HEADERS), _text(value).isNotNull())
        .when(name == h.APPLICATION_PROPERTIES, _properties_text(value).isNotNull())
        .when(name == h.TIME_TO_LIVE, _time_to_live(value).isNotNull())
        .when(name == h.SCHEDULED_ENQUEUE_TIME, _moment(value).isNotNull())
        .when(name == h.ENQUEUED_SEQUENCE_NUMBER, _number(value).isNotNull())
    )
    return F.coalesce(says, F.lit(False))


def _shown(value: Column) -> Column:
    return F.coalesce(_text(value), F.base64(value))
