"""The columns of an entity: a message's properties as Catalyst expressions over the Kafka source's columns.

The rules are those of ``kafkabus_mapping.codec.decode_headers``: if a header is repeated, the last valid one counts; a record
from a producer other than kafkabus is a message too; no record can fail a job. Spark computes only the columns that a query
uses.

Nearly all records are usual: their headers are kafkabus's own, valid, and each is there once. Spark compiles what these need.
Two of Spark's limits give the steps their shape:

- An expression with a lambda, or ``from_json``, is interpreted, and the projection that contains it is rebuilt in each task
  from its serialized tree. All of these are in the step ``_read``, as few as possible, and below a condition that usual records
  without application properties do not meet.
- Steps before and after it are one Java method each, and Java does not compile a method beyond 8,000 bytes.
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
_TEXT_HEADERS: Final = (*(header for _, header in h.TEXT_FIELDS), h.ADDRESSED_TO, h.TRACEPARENT, h.TRACESTATE)
_HEADER_OF: Final = dict(h.TEXT_FIELDS)

_MILLISECOND: Final = timedelta(milliseconds=1)
LONGEST_DELTA: Final = timedelta.max // _MILLISECOND
_LONGEST_INTERVAL: Final = (2**63 - 1) // 1000
"""Milliseconds in the longest interval that Spark supports, 292,271 years."""
YEAR_ONE: Final = -62_135_596_800_000
YEAR_TEN_THOUSAND: Final = 253_402_300_800_000
"""The range of Python's timestamps, in milliseconds since 1970; the end is excluded."""
_LONGEST: Final = 2**63 - 1
MOST_PLACES: Final = 38
"""The most digits of Spark's decimals."""

_WHOLE_NUMBER: Final = r"^[ \t\n\x0B\f\r]*[+-]?[0-9]+(_[0-9]+)*[ \t\n\x0B\f\r]*$"
"""The texts that Python's ``int`` accepts."""
_TAGGED: Final = (
    r"OBJECT<((int|float): (STRING|BIGINT|DOUBLE|DECIMAL\([0-9,]+\))|(bytes|uuid|datetime|decimal): STRING"
    r"|timedelta: (BIGINT|DOUBLE|DECIMAL\([0-9,]+\)))>"
)
_JSON_OPTIONS: Final = {"allowSingleQuotes": "false"}

_VALID: Final = "_valid"
_USUAL: Final = "_usual"
_JSON: Final = "_json"
_NUMBER: Final = "_number_"
_NUMBER_TEXT: Final = "_number_text_"
_CLEAN: Final = "_clean"
_READ: Final = "_read"
_NAMES: Final = "_names"
_TEXTS: Final = "_texts"
_KINDS: Final = "_kinds"
_RAW: Final = "_raw_"
"""Names of columns that exist only between the steps."""


@dataclass(frozen=True)
class Choice:
    """A selection of messages.

    Attributes:
        predicate: SQL of the condition, over the columns that the module ``predicate`` names.
        system: Names of the system properties that the condition uses.
    """

    predicate: str
    system: frozenset[str]


def decode_records(
    source: DataFrame,
    *,
    default_time_to_live: timedelta | None,
    expires: bool,
    wanted: Choice | None = None,
    also: Sequence[str] = (),
) -> DataFrame:
    """Return the columns of an entity, over a Kafka source with headers.

    Application properties are decoded in steps, each in a separate projection: Catalyst joins projections only if that
    repeats no expression, while within one projection each use of a long expression is another copy of it.

    Args:
        source: The Kafka source's columns.
        default_time_to_live: The entity's default time to live; None means for ever.
        expires: Whether the entity's messages expire at all; those of a dead-letter queue do not.
        wanted: The selection of messages; default all.
        also: More columns of the source, which the result has as they are.
    """
    steps = prepare_records(source)
    if wanted is not None:
        steps = filterable(steps, wanted.system, default_time_to_live).where(F.expr(wanted.predicate))
    return steps.select(*build_once(source.sparkSession, _columns, default_time_to_live, expires), *also)


def prepare_records(source: DataFrame) -> DataFrame:
    """Return a Kafka source with the additional columns that the entity's columns and filters are computed from."""
    spark = source.sparkSession
    for step in (_header_checks, _property_columns, _numbers, _told_apart, _read, _clean, _names):
        source = source.withColumns(build_once(spark, step))
    return source


T = TypeVar("T")
_MOST_BUILT: Final = 100
"""How many sets of expressions a session keeps, as each holds objects in Java."""
_built: WeakKeyDictionary[SparkSession, dict[object, Any]] = WeakKeyDictionary()


def build_once(spark: SparkSession, build: Callable[..., T], *arguments: Hashable) -> T:
    """Return the expressions that a function builds; it is called once in a session, as it calls Java thousands of times."""
    known = _built.setdefault(spark, {})
    key = build, *arguments
    if key not in known:
        if len(known) >= _MOST_BUILT:
            del known[next(iter(known))]
        known[key] = build(*arguments)
    found: T = known[key]
    return found


def _header_checks() -> dict[str, Column]:
    """Return the names of the headers, and whether the values of all are valid UTF-8."""
    # A comma ends a character that is cut off. A header without a value is not valid.
    valid = F.expr("is_valid_utf8(array_join(CAST(headers.value AS ARRAY<STRING>), ',', CAST(X'FF' AS STRING)))")
    return {_NAMES: F.col("headers.key"), _VALID: F.coalesce(valid, F.lit(True))}


def _property_columns() -> dict[str, Column]:
    """Return application properties as JSON, and the texts of numbers: those of the first header of each name."""

    def first(header: str) -> Column:
        position = F.array_position(_NAMES, header)
        return F.get("headers", (position - 1).cast("int"))["value"].cast("string")

    texts = {f"{_NUMBER_TEXT}{name}": first(header) for header, (name, *_) in _NUMBERS.items()}
    return {_JSON: first(h.APPLICATION_PROPERTIES), **texts}


def _numbers() -> dict[str, Column]:
    return {f"{_NUMBER}{name}": F.col(f"{_NUMBER_TEXT}{name}").try_cast("bigint") for name, *_ in _NUMBERS.values()}


def _told_apart() -> dict[str, Column]:
    """Return whether a record is usual: only valid headers of kafkabus, each once, with numbers as kafkabus writes them."""
    ours = F.lit(0)
    for header in (*_TEXT_HEADERS, h.APPLICATION_PROPERTIES):
        ours = ours + F.array_contains(_NAMES, header).cast("int")
    for name, lowest, highest in _NUMBERS.values():
        number = F.col(f"{_NUMBER}{name}")
        valid = number.between(lowest, highest) & (number.cast("string") == F.col(f"{_NUMBER_TEXT}{name}"))
        ours = ours + F.coalesce(valid, F.lit(False)).cast("int")
    return {_USUAL: F.coalesce(F.col(_VALID) & (ours == F.size(_NAMES)), F.lit(True))}


def _read() -> dict[str, Column]:
    """Return what Spark interprets.

    ``clean`` has the headers whose values are text, if not all are. ``read`` is null if a usual record has no application
    properties; else it has these as JSON, as a map of their values as written, and with foreign headers as readable text.
    """
    clean = F.filter("headers", lambda header: _text(header["value"]).isNotNull())
    empty_fields = {"json": "string", "foreign": HEADERS_TYPE, **{name: "bigint" for name, *_ in _NUMBERS.values()}}

    def of_usual(raw: Column) -> Column:
        nothing = (F.lit(None).cast(kind).alias(name) for name, kind in empty_fields.items())
        return F.struct(raw.alias("raw"), raw.alias("all"), *nothing)

    simple = F.when(F.col(_USUAL) & _is_plain(F.col(_JSON)), _simple_properties(F.col(_JSON)))
    unusual = bind(F.transform("headers", _parse_header), _of_unusual)
    properties = bind(simple, lambda raw: F.when(raw.isNotNull(), of_usual(raw)).otherwise(unusual))
    return {
        _CLEAN: F.when(~F.col(_VALID), clean),
        _READ: F.when(~F.col(_USUAL) | F.col(_JSON).isNotNull(), properties),
    }


def _parse_header(header: Column) -> Column:
    """Return a header with its value as a text, number and properties, of which those are null that it should or cannot be."""
    name = header["key"]

    def parse(text: Column) -> Column:
        own = F.when(name == h.APPLICATION_PROPERTIES, parsed_properties(text))
        return F.struct(
            name.alias("key"),
            header["value"],
            text.alias("text"),
            _number_of(name, text).alias("number"),
            own.alias("own"),
        )

    return bind(_text(header["value"]), parse)


def _of_unusual(headers: Column) -> Column:
    """Return the fields of ``read`` of a record that may have any headers."""

    def last(name: str, field: str) -> Column:
        valid = F.filter(headers, lambda header: (header["key"] == name) & header[field].isNotNull())
        return F.try_element_at(valid, F.lit(-1))[field]

    def is_ours(header: Column) -> Column:
        is_text = header["key"].isin(*_TEXT_HEADERS) & header["text"].isNotNull()
        return F.coalesce(is_text | header["number"].isNotNull() | header["own"].isNotNull(), F.lit(False))

    def both(found: Column) -> Column:
        own, foreign = found["own"], found["foreign"]
        return F.struct(
            own["raw"].alias("raw"),
            _all_properties(own, foreign).alias("all"),
            own["json"].alias("json"),
            F.transform(foreign, lambda header: F.struct(header["key"], header["value"])).alias("foreign"),
            *(last(header, "number").alias(name) for header, (name, *_) in _NUMBERS.items()),
        )

    foreign = F.filter(headers, lambda header: ~is_ours(header))
    return bind(F.struct(last(h.APPLICATION_PROPERTIES, "own").alias("own"), foreign.alias("foreign")), both)


def _clean() -> dict[str, Column]:
    return {_CLEAN: F.coalesce(F.col(_CLEAN), F.col("headers"), F.array().cast(HEADERS_TYPE))}


def _names() -> dict[str, Column]:
    texts = F.reverse(F.col(_CLEAN)["value"].cast("array<string>"))
    return {_NAMES: F.reverse(F.col(_CLEAN)["key"]), _TEXTS: F.concat(F.array(F.lit(None).cast("string")), texts)}


def _simple_properties(text: Column) -> Column:
    """Return the map of a JSON object without nested values; null if the text is none, or has a name twice."""

    def is_simple(objects: Column) -> Column:
        names = F.map_keys(F.get(objects, F.lit(0)))
        return (F.size(objects) == 1) & (F.size(F.array_distinct(names)) == F.size(names))

    return F.get(_only_if(_objects_in(text, "string"), is_simple), F.lit(0))


def _columns(default_time_to_live: timedelta | None, expires: bool) -> list[Column]:
    texts = {name: _last(header) for name, header in _TEXT_COLUMNS}
    return [
        F.col("value").alias("body"),
        _message_id().alias("message_id"),
        texts["session_id"].alias("session_id"),
        _partition_key().alias("partition_key"),
        *(texts[name].alias(name) for name in ("correlation_id", "subject", "content_type", "to", "reply_to")),
        texts["reply_to_session_id"].alias("reply_to_session_id"),
        interval(_number(h.TIME_TO_LIVE)).alias("time_to_live"),
        F.timestamp_millis(_number(h.SCHEDULED_ENQUEUE_TIME)).alias("scheduled_enqueue_time_utc"),
        _sequence_number().alias("sequence_number"),
        F.col("partition").alias("partition_id"),
        F.col("offset"),
        F.col("timestamp").alias("enqueued_time_utc"),
        _expiry(default_time_to_live, expires).alias("expires_at_utc"),
        *(texts[name].alias(name) for name in texts if name.startswith("dead_letter")),
        F.coalesce(_number(h.ENQUEUED_SEQUENCE_NUMBER), _sequence_number()).alias("enqueued_sequence_number"),
        texts["body_type"].alias("body_type"),
        _data_sections(_last(h.DATA_SECTIONS)).alias("data_sections"),
        F.coalesce(F.col(_READ)["all"], _no_properties()).alias("application_properties"),
        _last(h.APPLICATION_PROPERTIES).alias("application_properties_json"),
        F.col("headers"),
    ]


def _data_sections(borders: Column) -> Column:
    """Return the lengths of a body's data sections; null if there is only one, or the header does not fit the body."""
    lengths = F.transform(F.split(borders, ","), lambda length: length.try_cast("int"))
    valid = F.when(borders.rlike("^[0-9]+(,[0-9]+)*$"), lengths)

    def with_last(lengths: Column) -> Column:
        total = F.aggregate(lengths, F.lit(0).cast("bigint"), lambda total, length: total + length)
        last = F.length("value") - total
        return F.when(last >= 0, F.concat(lengths, F.array(last.cast("int"))))

    return F.when(valid.isNotNull(), bind(valid, with_last))


def decimal_property(name: str, scale: int = 18) -> Column:
    """Return an application property as a decimal, computed from its text with all digits.

    Args:
        name: The name of the property.
        scale: How many digits there are behind the point, 0 to 38, default 18; further ones are rounded, half up.

    Returns:
        A column of type ``decimal(38, scale)`` over ``application_properties``; null if the property is missing, no number, or
        too large.

    Raises:
        ValueError: The scale is not from 0 to 38.
    """
    if not 0 <= scale <= MOST_PLACES:
        raise ValueError(
            f"scale {scale}: give 0 to {MOST_PLACES}, as Spark's decimals have at most {MOST_PLACES} digits"
        )
    return F.col("application_properties")[name].try_cast(f"decimal({MOST_PLACES},{scale})")


def _last(name: str) -> Column:
    """Return the value of the last header of a name that is valid text, or null."""
    return F.get(_TEXTS, F.array_position(_NAMES, name).cast("int"))


def _number(header: str) -> Column:
    """Return the value of the last header of a name that is a valid number, or null."""
    name, *_ = _NUMBERS[header]
    return F.when(F.col(_USUAL), F.col(f"{_NUMBER}{name}")).otherwise(F.col(_READ)[name])


def last_value(name: str) -> Column:
    """Return the value of the last header of a name, valid or not; null if there is none."""
    return F.try_element_at(F.filter("headers", lambda header: header["key"] == name), F.lit(-1))["value"]


def _text(value: Column) -> Column:
    return F.try_validate_utf8(value.cast("string"))


_NUMBERS: Final = {
    h.TIME_TO_LIVE: ("lives", 0, LONGEST_DELTA),
    h.SCHEDULED_ENQUEUE_TIME: ("scheduled", YEAR_ONE, YEAR_TEN_THOUSAND - 1),
    h.ENQUEUED_SEQUENCE_NUMBER: ("enqueued", -_LONGEST, _LONGEST),
    h.HOPS: ("hops", -_LONGEST, _LONGEST),
}
"""The headers that hold numbers: a name, and the lowest and the highest number that is valid."""


def _number_of(name: Column, text: Column) -> Column:
    """Return the number in the value of a header; null if the header holds none."""
    number = F.regexp_replace(text, "[^0-9-]", "").try_cast("bigint")
    valid = F.when(~text.rlike(_WHOLE_NUMBER), F.lit(False))
    for header, (_, lowest, highest) in _NUMBERS.items():
        valid = valid.when(name == header, number.between(lowest, highest))
    return F.when(name.isin(*_NUMBERS) & valid, number)


def _message_id() -> Column:
    place = F.concat_ws("/", F.col("topic"), F.col("partition").cast("string"), F.col("offset").cast("string"))
    return F.coalesce(_last(h.MESSAGE_ID), place)


def _partition_key() -> Column:
    named = _last(h.PARTITION_KEY)
    foreign = F.coalesce(F.nullif(named, F.lit("")), F.nullif(_text(F.col("key")), F.lit("")))
    return F.when(_last(h.MESSAGE_ID).isNull(), foreign).otherwise(named)


def _sequence_number() -> Column:
    return F.shiftleft(F.col("partition").cast("bigint"), OFFSET_BITS) + F.col("offset") + 1


def interval(milliseconds: Column) -> Column:
    """Return an interval of so many milliseconds, or the longest or shortest one if that is beyond."""
    return _clamp(milliseconds, _LONGEST_INTERVAL) * F.expr("INTERVAL '0.001' SECOND")


def _clamp(number: Column, bound: int) -> Column:
    """Limit a number by a bound on both sides; null stays null, which ``least`` and ``greatest`` would ignore."""
    return F.when(number > bound, F.lit(bound)).when(number < -bound, F.lit(-bound)).otherwise(number)


def _expiry(default_time_to_live: timedelta | None, expires: bool) -> Column:
    if not expires:
        return F.lit(None).cast("timestamp")
    moment = _end_of(_at_most(_number(h.TIME_TO_LIVE), default_time_to_live))
    return F.timestamp_millis(F.when(moment < YEAR_TEN_THOUSAND, moment))


def _end_of(lives: Column) -> Column:
    """Return when a message expires, in milliseconds since 1970."""
    # Neither term reaches 2**62, so the sum cannot overflow.
    return F.unix_millis("timestamp") + _clamp(lives, YEAR_TEN_THOUSAND)


def _at_most(lives: Column, default_time_to_live: timedelta | None) -> Column:
    """Return the shorter of a message's time to live and the queue's default; ``least`` ignores a null."""
    return lives if default_time_to_live is None else F.least(lives, F.lit(default_time_to_live // _MILLISECOND))


def parsed_object(text: Column, values: str) -> Column:
    """Parse a JSON object into a map, or null if the text is not one."""
    return F.get(_only_if(_objects_in(text, values), lambda objects: F.size(objects) == 1), F.lit(0))


def _objects_in(text: Column, values: str) -> Column:
    """Parse JSON objects into maps; brackets around them make any trailing text invalid."""
    return F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"array<map<string,{values}>>", _JSON_OPTIONS)


def _only_if(value: Column, condition: Callable[[Column], Column]) -> Column:
    """Return a value if it meets a condition, else null; Spark computes the value once, although it is used twice."""
    return F.get(F.filter(F.array(value), condition), F.lit(0))


def bind(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return what a function makes of a value, which Spark computes once, however often the function uses it.

    Spark interprets the expression, and generates no code for it, which keeps the programs of tasks short.
    """
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _is_plain(text: Column) -> Column:
    """Return whether a JSON object has no second bracket, and so contains no list or object; this holds for nearly all."""
    return F.length(text) - F.length(F.translate(text, "{[", "")) == 1


def parsed_properties(value: Column) -> Column:
    """Return application properties, binary or string, as JSON and as a map of their values as written; null if not valid."""
    text = _text(value)

    def is_valid(both: Column) -> Column:
        kinds = F.transform(F.map_values(parsed_object(both["json"], "variant")), F.schema_of_variant)
        nested = F.exists(kinds, lambda kind: kind.rlike("^(OBJECT|ARRAY)<") & ~kind.rlike(f"^{_TAGGED}$"))
        return both["raw"].isNotNull() & (_is_plain(both["json"]) | ~nested)

    return _only_if(F.struct(text.alias("json"), parsed_object(text, "string").alias("raw")), is_valid)


def with_changes(messages: DataFrame, column: str) -> DataFrame:
    """Return messages with the application properties that were changed when they were returned, without the column of these.

    Args:
        messages: The messages, decoded.
        column: The column of the changes: name to JSON text; null without any.
    """
    changes, json_name = F.col(column), "application_properties_json"

    def merge(properties: Column, changed: Column) -> Column:
        return bind(F.concat(F.map_entries(properties), F.map_entries(changed)), _last_of_each)

    texts = bind(parsed_properties(_object_of(changes)), _own_properties)
    # A header that does not parse stays one of the headers.
    before = F.coalesce(bind(F.col(json_name), _values_as_written), F.create_map().cast("map<string,string>"))
    changed = {
        "application_properties": merge(F.col("application_properties"), texts),
        json_name: _object_of(merge(before, changes)),
    }
    whole = {name: F.when(changes.isNotNull(), new).otherwise(F.col(name)) for name, new in changed.items()}
    return messages.withColumns(whole).drop(column)


def _values_as_written(text: Column) -> Column:
    """Return the values of a JSON object as JSON texts, with the digits that they have there; null if it is none."""
    raw, kinds = parsed_object(text, "string"), parsed_object(text, "variant")

    def value(_: Column, raw: Column, kind: Column) -> Column:
        is_text = F.coalesce(F.schema_of_variant(kind) == "STRING", F.lit(False))
        return F.when(is_text, _quote(raw)).otherwise(F.coalesce(raw, F.lit("null")))

    return F.map_zip_with(raw, kinds, value)


def _object_of(values: Column) -> Column:
    """Return the JSON object with these values, which are JSON texts, by name."""
    members = F.transform(
        F.map_entries(values), lambda entry: F.concat(_quote(entry["key"]), F.lit(":"), entry["value"])
    )
    return F.concat(F.lit("{"), F.array_join(members, ","), F.lit("}"))


def _quote(text: Column) -> Column:
    """Return a text as JSON."""
    listed = F.to_json(F.array(text))
    return F.substring(listed, F.lit(2), F.length(listed) - 2)


def _own_properties(own: Column) -> Column:
    """Return application properties as readable text; an empty map if there are none."""
    text, raw = own["json"], own["raw"]
    tagged = F.transform_values(parsed_object(text, "variant"), lambda _, value: is_tagged(value))
    texts = F.map_zip_with(raw, tagged, lambda _, raw, tagged: readable(raw, tagged))
    return F.when(_is_plain(text), raw).otherwise(texts)


def _all_properties(own: Column, foreign: Column) -> Column:
    """Return application properties and foreign headers; for a repeated name the property counts, else the last header."""
    shown = F.transform(
        foreign,
        lambda header: F.struct(header["key"], F.coalesce(header["text"], base64(header["value"])).alias("value")),
    )

    def merge(texts: Column) -> Column:
        names = F.map_keys(texts)
        simple = (F.size(foreign) == 0) & (F.size(F.array_distinct(names)) == F.size(names))
        return F.when(simple, texts).otherwise(bind(F.concat(shown, F.map_entries(texts)), _last_of_each))

    return bind(F.coalesce(_own_properties(own), _no_properties()), merge)


def _no_properties() -> Column:
    return F.create_map().cast("map<string,string>")


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


def base64(value: Column) -> Column:
    """Return bytes as base64; Spark 4.0 breaks it into lines."""
    return F.translate(F.base64(value), "\r\n", "")


def filterable(steps: DataFrame, names: Iterable[str], default_time_to_live: timedelta | None) -> DataFrame:
    """Return the columns of a message's properties that filters use; see the module ``predicate``.

    Args:
        steps: The Kafka source as ``prepare_records`` returns it.
        names: Names of the system properties that the filters use.
        default_time_to_live: The entity's default time to live; None means for ever.
    """
    own = {name: _system_property(name, default_time_to_live) for name in names}
    steps = steps.withColumns({f"{_RAW}{name}": column for name, (_, column) in own.items()})
    packed = {system_column(name): F.expr(system_value(kind, f"{_RAW}{name}")) for name, (kind, _) in own.items()}
    # A usual record has its JSON beside.
    text = F.coalesce(F.col(_READ)["json"], F.when(F.col(_USUAL), F.col(_JSON)))
    kinds = F.transform_values(parsed_object(text, "variant"), lambda _, value: F.schema_of_variant(value))
    steps = steps.withColumns(packed).withColumn(_KINDS, kinds)
    return steps.withColumn(USER, F.expr(user_properties(f"{_READ}.raw", _KINDS, f"{_READ}.foreign")))


def _system_property(name: str, default_time_to_live: timedelta | None) -> tuple[int, Column]:
    """Return the kind and the column of a system property; times and durations are in milliseconds."""
    if name in _OTHERS_IN_FILTERS:
        kind, column = _OTHERS_IN_FILTERS[name]
        return kind, column(_at_most(_number(h.TIME_TO_LIVE), default_time_to_live))
    return TEXT, _last(_HEADER_OF[TEXT_PROPERTIES[name]])


def _moment_of_expiry(lives: Column) -> Column:
    moment = _end_of(lives)
    return F.when(moment.between(YEAR_ONE, YEAR_TEN_THOUSAND - 1), moment)


_OTHERS_IN_FILTERS: Final[Mapping[str, tuple[int, Callable[[Column], Column]]]] = {
    "DeliveryCount": (INTEGER, lambda _: F.lit(0)),
    "EnqueuedSequenceNumber": (INTEGER, lambda _: _number(h.ENQUEUED_SEQUENCE_NUMBER)),
    "EnqueuedTimeUtc": (TIME, lambda _: F.unix_millis("timestamp")),
    "ExpiresAtUtc": (TIME, _moment_of_expiry),
    "MessageId": (TEXT, lambda _: _message_id()),
    "PartitionKey": (TEXT, lambda _: _partition_key()),
    "ScheduledEnqueueTimeUtc": (TIME, lambda _: _number(h.SCHEDULED_ENQUEUE_TIME)),
    "SequenceNumber": (INTEGER, lambda _: _sequence_number()),
    "Size": (INTEGER, lambda _: F.coalesce(F.octet_length("value"), F.lit(0))),
    "TimeToLive": (DURATION, lambda lives: lives),
}
"""Kinds and columns of the system properties that are not plain text headers; functions of the message's time to live."""
