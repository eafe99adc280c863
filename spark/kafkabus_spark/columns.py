"""The columns of an entity: a message's properties as Catalyst expressions over the Kafka source's columns.

The rules are those of ``kafkabus_mapping.codec.decode_headers``: if a header is repeated, the last valid one counts; a record
from a producer other than kafkabus is a message too; no record can fail a job. Spark computes only the columns that a query
uses.

A header is looked up in two steps. The first is generated code, an ``array_position`` in the reversed names: it finds the
last header of the name, which is nearly always valid. Only if its value is not valid, a ``filter`` (which Spark interprets)
looks for an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkabus_mapping import headers as h
from kafkabus_mapping.filters.nodes import TEXT_PROPERTIES
from kafkabus_mapping.numbers import OFFSET_BITS
from kafkabus_spark.kafka import HEADERS_TYPE
from kafkabus_spark.predicate import (
    DURATION,
    INTEGER,
    TEXT,
    TIME,
    USER,
    system_column,
    system_value,
    user_properties,
)

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
_HEADER_OF: Final = dict(h.TEXT_FIELDS)

_MILLISECOND: Final = timedelta(milliseconds=1)
LONGEST_DELTA: Final = timedelta.max // _MILLISECOND
_LONGEST_INTERVAL: Final = (2**63 - 1) // 1000
"""Milliseconds in the longest interval that Spark supports, 292,271 years."""
YEAR_ONE: Final = -62_135_596_800_000
YEAR_TEN_THOUSAND: Final = 253_402_300_800_000
"""The range of Python's timestamps, in milliseconds since 1970; the end is excluded."""
_LONGEST: Final = 2**63 - 1

_WHOLE_NUMBER: Final = r"^[ \t\n\x0B\f\r]*[+-]?[0-9]+(_[0-9]+)*[ \t\n\x0B\f\r]*$"
"""The texts that Python's ``int`` accepts."""
_TAGGED: Final = (
    r"OBJECT<((int|float): (STRING|BIGINT|DOUBLE|DECIMAL\([0-9,]+\))|(bytes|uuid|datetime): STRING"
    r"|timedelta: (BIGINT|DOUBLE|DECIMAL\([0-9,]+\)))>"
)
_JSON_OPTIONS: Final = {"allowSingleQuotes": "false"}

_NAMES: Final = "_names"
_LIVES: Final = "_lives"
_PROPERTIES: Final = "_properties"
_OWN: Final = "_own"
_FOREIGN: Final = "_foreign"
_KINDS: Final = "_kinds"
_RAW: Final = "_raw_"
"""Names of columns that exist only between the steps."""

Parse = Callable[[Column], Column]
"""A function that parses the value of a header; null if it is not valid."""


@dataclass(frozen=True)
class Choice:
    """A selection of messages.

    Attributes:
        predicate: SQL of the condition, over the columns that the module ``predicate`` names.
        system: Names of the system properties that the condition uses.
    """

    predicate: str
    system: frozenset[str]


def decoded(
    source: DataFrame,
    *,
    default_time_to_live: timedelta | None,
    expires: bool,
    wanted: Choice | None = None,
    also: Sequence[str] = (),
) -> DataFrame:
    """Return the columns of an entity, over a Kafka source with headers.

    Application properties are decoded in steps, each in a projection of its own: Catalyst joins projections only if that
    repeats no expression, while within one projection each use of a long expression is another copy of it.

    Args:
        source: The Kafka source's columns.
        default_time_to_live: The entity's default time to live; None means for ever.
        expires: Whether the entity's messages expire at all; those of a dead-letter queue do not.
        wanted: The selection of messages; default all.
        also: More columns of the source, which the result has as they are.
    """
    steps = prepared(source)
    if wanted is not None:
        steps = filterable(steps, wanted.system, default_time_to_live).where(F.expr(wanted.predicate))
    return steps.select(*_built(source.sparkSession, _columns, default_time_to_live, expires), *also)


def prepared(source: DataFrame) -> DataFrame:
    """Return a Kafka source with the additional columns that the entity's columns and filters are computed from."""
    spark = source.sparkSession
    for step in (_names_of_headers, _looked_up, _parsed):
        source = source.withColumns(_built(spark, step))
    return source


T = TypeVar("T")
_expressions: WeakKeyDictionary[SparkSession, dict[object, Any]] = WeakKeyDictionary()


def _built(spark: SparkSession, build: Callable[..., T], *arguments: Hashable) -> T:
    """Return the expressions that a function builds; it is called once in a session, as it calls Java thousands of times."""
    known = _expressions.setdefault(spark, {})
    key = build, *arguments
    if key not in known:
        known[key] = build(*arguments)
    found: T = known[key]
    return found


def _names_of_headers() -> dict[str, Column]:
    return {_NAMES: F.reverse(F.col("headers.key"))}


def _looked_up() -> dict[str, Column]:
    return {
        _LIVES: _last(h.TIME_TO_LIVE, _time_to_live),
        _PROPERTIES: _last(h.APPLICATION_PROPERTIES, parsed_properties),
    }


def _parsed() -> dict[str, Column]:
    return {_OWN: _own_properties(), _FOREIGN: _foreign_headers()}


def _columns(default_time_to_live: timedelta | None, expires: bool) -> list[Column]:
    lives = F.col(_LIVES)
    texts = {name: _last(header, _text) for name, header in _TEXT_COLUMNS}
    enqueued = F.col("timestamp")
    return [
        F.col("value").alias("body"),
        _message_id().alias("message_id"),
        texts["session_id"].alias("session_id"),
        _partition_key().alias("partition_key"),
        *(texts[name].alias(name) for name in ("correlation_id", "subject", "content_type", "to", "reply_to")),
        texts["reply_to_session_id"].alias("reply_to_session_id"),
        interval(lives).alias("time_to_live"),
        F.timestamp_millis(_last(h.SCHEDULED_ENQUEUE_TIME, _moment)).alias("scheduled_enqueue_time_utc"),
        _sequence_number().alias("sequence_number"),
        F.col("partition").alias("partition_id"),
        F.col("offset"),
        enqueued.alias("enqueued_time_utc"),
        _expiry(lives, default_time_to_live, expires).alias("expires_at_utc"),
        *(texts[name].alias(name) for name in texts if name.startswith("dead_letter")),
        F.coalesce(_last(h.ENQUEUED_SEQUENCE_NUMBER, _number), _sequence_number()).alias("enqueued_sequence_number"),
        texts["body_type"].alias("body_type"),
        _all_properties().alias("application_properties"),
        _last(h.APPLICATION_PROPERTIES, _text).alias("application_properties_json"),
        F.col("headers"),
    ]


def _last(name: str, parse: Parse) -> Column:
    """Return the parsed value of the last valid header of a name, or null."""
    position = F.array_position(F.col(_NAMES), name)
    # headers.value would copy the values of all headers.
    value = F.get("headers", (F.size("headers") - position).cast("int"))["value"]
    valid = F.filter("headers", lambda header: (header["key"] == name) & parse(header["value"]).isNotNull())
    earlier = parse(F.try_element_at(valid, F.lit(-1))["value"])
    return F.when(position > 0, F.coalesce(parse(value), earlier))


def last_value(name: str) -> Column:
    """Return the value of the last header of a name, valid or not; null if there is none."""
    return F.try_element_at(F.filter("headers", lambda header: header["key"] == name), F.lit(-1))["value"]


def _text(value: Column) -> Column:
    return F.try_validate_utf8(value.cast("string"))


def _whole_number(value: Column, lowest: int, highest: int) -> Column:
    text = _text(value)
    number = F.regexp_replace(text, "[^0-9-]", "").try_cast("bigint")
    return F.when(text.rlike(_WHOLE_NUMBER) & number.between(lowest, highest), number)


def _time_to_live(value: Column) -> Column:
    return _whole_number(value, -LONGEST_DELTA, LONGEST_DELTA)


def _moment(value: Column) -> Column:
    return _whole_number(value, YEAR_ONE, YEAR_TEN_THOUSAND - 1)


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


def interval(milliseconds: Column) -> Column:
    """Return an interval of so many milliseconds, or the longest or shortest one if that is beyond."""
    return _within(milliseconds, _LONGEST_INTERVAL) * F.expr("INTERVAL '0.001' SECOND")


def _within(number: Column, bound: int) -> Column:
    """Limit a number by a bound on both sides; null stays null, which ``least`` and ``greatest`` would ignore."""
    return F.when(number > bound, F.lit(bound)).when(number < -bound, F.lit(-bound)).otherwise(number)


def _expiry(lives: Column, default_time_to_live: timedelta | None, expires: bool) -> Column:
    if not expires:
        return F.lit(None).cast("timestamp")
    moment = _end_of(_at_most(lives, default_time_to_live))
    return F.timestamp_millis(F.when(moment < YEAR_TEN_THOUSAND, moment))


def _end_of(lives: Column) -> Column:
    """Return when a message expires, in milliseconds since 1970."""
    # Neither term reaches 2**62, so the sum cannot overflow.
    return F.unix_millis("timestamp") + _within(lives, YEAR_TEN_THOUSAND)


def _at_most(lives: Column, default_time_to_live: timedelta | None) -> Column:
    """Return the shorter of a message's time to live and the queue's default; ``least`` ignores a null."""
    return lives if default_time_to_live is None else F.least(lives, F.lit(default_time_to_live // _MILLISECOND))


def parsed_object(text: Column, values: str) -> Column:
    """Parse a JSON object into a map, or null if the text is not one; brackets around it make any trailing text invalid."""
    parsed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"array<map<string,{values}>>", _JSON_OPTIONS)
    return F.get(_only_if(parsed, lambda objects: F.size(objects) == 1), F.lit(0))


def _only_if(value: Column, condition: Callable[[Column], Column]) -> Column:
    """Return a value if it meets a condition, else null; Spark computes the value once, although it is used twice."""
    return F.get(F.filter(F.array(value), condition), F.lit(0))


def _is_plain(text: Column) -> Column:
    """Return whether a JSON object has no second bracket, and so contains no list or object; this holds for nearly all."""
    return F.length(text) - F.length(F.translate(text, "{[", "")) == 1


def parsed_properties(value: Column) -> Column:
    """Return application properties as JSON and as a map of their values as written; null if they are not valid."""
    text = _text(value)

    def is_valid(both: Column) -> Column:
        kinds = F.transform(F.map_values(parsed_object(both["json"], "variant")), F.schema_of_variant)
        nested = F.exists(kinds, lambda kind: kind.rlike("^(OBJECT|ARRAY)<") & ~kind.rlike(f"^{_TAGGED}$"))
        return both["raw"].isNotNull() & (_is_plain(both["json"]) | ~nested)

    return _only_if(F.struct(text.alias("json"), parsed_object(text, "string").alias("raw")), is_valid)


def _own_properties() -> Column:
    """Return application properties as readable text; an empty map if there are none."""
    text, raw = F.col(_PROPERTIES)["json"], F.col(_PROPERTIES)["raw"]
    tagged = F.transform_values(parsed_object(text, "variant"), lambda _, value: is_tagged(value))
    texts = F.map_zip_with(raw, tagged, lambda _, raw, tagged: readable(raw, tagged))
    return F.coalesce(F.when(_is_plain(text), raw).otherwise(texts), F.create_map().cast("map<string,string>"))


def _all_properties() -> Column:
    """Return application properties and foreign headers; for a repeated name the property counts, else the last header."""
    own, foreign = F.col(_OWN), F.coalesce(F.col(_FOREIGN), F.array().cast(HEADERS_TYPE))
    shown = F.transform(foreign, lambda header: F.struct(header["key"], _shown(header["value"]).alias("value")))
    names = F.map_keys(own)
    simple = (F.size(foreign) == 0) & (F.size(F.array_distinct(names)) == F.size(names))
    # A transform of one element binds the map to a name, so that Spark computes it once.
    merged = F.transform(F.array(F.concat(shown, F.map_entries(own))), _last_of_each)
    return F.when(simple, own).otherwise(F.get(merged, F.lit(0)))


def _last_of_each(entries: Column) -> Column:
    def is_last(entry: Column, index: Column) -> Column:
        later = F.slice(entries, index + 2, F.size(entries))
        return ~F.exists(later, lambda other: other["key"] == entry["key"])

    return F.map_from_entries(F.filter(entries, is_last))


def is_tagged(value: Column) -> Column:
    """Return whether the variant of a property is a tagged value; see ``kafkabus_mapping.properties``."""
    return F.schema_of_variant(value).startswith("OBJECT")


def readable(raw: Column, tagged: Column) -> Column:
    """Return a property as readable text: its text as written, or the content of a tagged value."""
    content = F.get(F.map_values(F.from_json(raw, "map<string,string>", _JSON_OPTIONS)), F.lit(0))
    return F.when(tagged, content).otherwise(raw)


def _foreign_headers() -> Column:
    """Return foreign headers: those without the prefix ``sb-``, and those whose value is not valid."""
    return F.filter("headers", lambda header: ~_is_ours(header["key"], header["value"]))


def _is_ours(name: Column, value: Column) -> Column:
    # A value that was found valid before is not parsed again.
    chosen = F.col(_PROPERTIES)["json"]
    says = (
        F.when(~name.startswith(h.PREFIX) | value.isNull(), F.lit(False))
        .when(name.isin(*_TEXT_HEADERS, h.ADDRESSED_TO), _text(value).isNotNull())
        .when(name == h.APPLICATION_PROPERTIES, (_text(value) == chosen) | parsed_properties(value).isNotNull())
        .when(name == h.TIME_TO_LIVE, _time_to_live(value).isNotNull())
        .when(name == h.SCHEDULED_ENQUEUE_TIME, _moment(value).isNotNull())
        .when(name.isin(h.ENQUEUED_SEQUENCE_NUMBER, h.HOPS), _number(value).isNotNull())
    )
    return F.coalesce(says, F.lit(False))


def _shown(value: Column) -> Column:
    return F.coalesce(_text(value), base64(value))


def base64(value: Column) -> Column:
    """Return bytes as base64; Spark 4.0 breaks it into lines."""
    return F.translate(F.base64(value), "\r\n", "")


def filterable(steps: DataFrame, names: Iterable[str], default_time_to_live: timedelta | None) -> DataFrame:
    """Return the columns of a message's properties that filters use; see the module ``predicate``.

    Args:
        steps: The Kafka source as ``prepared`` returns it.
        names: Names of the system properties that the filters use.
        default_time_to_live: The entity's default time to live; None means for ever.
    """
    own = {name: _system_property(name, default_time_to_live) for name in names}
    steps = steps.withColumns({f"{_RAW}{name}": column for name, (_, column) in own.items()})
    packed = {system_column(name): F.expr(system_value(kind, f"{_RAW}{name}")) for name, (kind, _) in own.items()}
    kinds = F.transform_values(
        parsed_object(F.col(_PROPERTIES)["json"], "variant"), lambda _, value: F.schema_of_variant(value)
    )
    steps = steps.withColumns(packed).withColumn(_KINDS, kinds)
    return steps.withColumn(USER, F.expr(user_properties(f"{_PROPERTIES}.raw", _KINDS, _FOREIGN)))


def _system_property(name: str, default_time_to_live: timedelta | None) -> tuple[int, Column]:
    """Return the kind and the column of a system property; times and durations are in milliseconds."""
    if name in _OTHERS_IN_FILTERS:
        kind, column = _OTHERS_IN_FILTERS[name]
        return kind, column(_at_most(F.col(_LIVES), default_time_to_live))
    return TEXT, _last(_HEADER_OF[TEXT_PROPERTIES[name]], _text)


def _moment_of_expiry(lives: Column) -> Column:
    moment = _end_of(lives)
    return F.when(moment.between(YEAR_ONE, YEAR_TEN_THOUSAND - 1), moment)


_OTHERS_IN_FILTERS: Final[Mapping[str, tuple[int, Callable[[Column], Column]]]] = {
    "DeliveryCount": (INTEGER, lambda _: F.lit(0)),
    "EnqueuedSequenceNumber": (INTEGER, lambda _: _last(h.ENQUEUED_SEQUENCE_NUMBER, _number)),
    "EnqueuedTimeUtc": (TIME, lambda _: F.unix_millis("timestamp")),
    "ExpiresAtUtc": (TIME, _moment_of_expiry),
    "MessageId": (TEXT, lambda _: _message_id()),
    "PartitionKey": (TEXT, lambda _: _partition_key()),
    "ScheduledEnqueueTimeUtc": (TIME, lambda _: _last(h.SCHEDULED_ENQUEUE_TIME, _moment)),
    "SequenceNumber": (INTEGER, lambda _: _sequence_number()),
    "Size": (INTEGER, lambda _: F.coalesce(F.octet_length("value"), F.lit(0))),
    "TimeToLive": (DURATION, lambda lives: lives),
}
"""Kinds and columns of the system properties that are not plain text headers; functions of the message's time to live."""
