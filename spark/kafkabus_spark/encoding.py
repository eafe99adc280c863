"""Messages as Kafka records, by Catalyst expressions: key, partition, headers, and the rules that a message may break.

The rules are those of ``kafkabus.ServiceBusMessage`` and of its sender, and the headers those of
``kafkabus_mapping.codec.encode_headers``: Spark writes the records that the SDK would send.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kafkabus_mapping import headers as h
from kafkabus_mapping.amqp.decimals import MOST_DIGITS
from kafkabus_mapping.amqp_values import LONGEST_TIMESPAN
from kafkabus_mapping.codec import MAX_IDENTIFIER
from kafkabus_mapping.formats import FIRST
from kafkabus_mapping.properties import EXACT_IN_JSON
from kafkabus_spark.columns import (
    LONGEST_DELTA,
    YEAR_ONE,
    YEAR_TEN_THOUSAND,
    base64,
    bind,
    build_once,
    is_tagged,
    last_value,
    parsed_object,
    parsed_properties,
    readable,
)
from kafkabus_spark.kafka import HEADERS_TYPE

BODY: Final = "body"
MESSAGE_ID, SESSION_ID, PARTITION_KEY, BODY_TYPE = "message_id", "session_id", "partition_key", "body_type"
CONTENT_TYPE: Final = "content_type"
TEXTS: Final = (
    *(MESSAGE_ID, SESSION_ID, PARTITION_KEY, "correlation_id", "subject", "content_type", "to", "reply_to"),
    *("reply_to_session_id", BODY_TYPE),
)
"""The columns of text, each with a header, in the order of these headers."""
TIME_TO_LIVE, SCHEDULED = "time_to_live", "scheduled_enqueue_time_utc"
PROPERTIES, PROPERTIES_JSON = "application_properties", "application_properties_json"
HEADERS, DATA_SECTIONS = "headers", "data_sections"
WRITTEN: Final = (BODY, *TEXTS, DATA_SECTIONS, TIME_TO_LIVE, SCHEDULED, PROPERTIES, PROPERTIES_JSON, HEADERS)
"""The columns that are written."""
READ_ONLY: Final = frozenset(
    {
        *("sequence_number", "partition_id", "offset", "enqueued_time_utc", "expires_at_utc"),
        *("enqueued_sequence_number", "dead_letter_reason", "dead_letter_error_description", "dead_letter_source"),
        *("settled", "state", "checkpoint_time", "original"),
    }
)
"""The columns of ``read`` and ``dead_letters`` that a new message does not have: they are not written."""

PROBLEM: Final = "problem"
"""The column that names the rule that a message breaks; null if it breaks none."""
DOUBT: Final = "_doubt"
"""The column that says whether a message may break a rule: it is true if one is broken, and rarely else."""
NAME: Final = "_name"
"""The column by which an error names a message."""
SINK: Final = {name: f"_sink_{name}" for name in ("key", "value", "headers", "partition")}
"""The columns of Spark's Kafka sink, and their names among the messages' columns."""

_IDENTIFIERS: Final = (MESSAGE_ID, SESSION_ID, PARTITION_KEY, "reply_to_session_id")
_OWN: Final = "_own_"
_ID: Final = f"{_OWN}{MESSAGE_ID}"
_ID_DIGITS: Final = 32
_DAY: Final = timedelta(days=1) // timedelta(microseconds=1)
_SHOWN: Final = 80

_WHOLE: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES: Final = (T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True)
class EntityRules:
    """The rules of an entity for its messages.

    Attributes:
        name: The entity's name.
        partitions: The number of its partitions.
        requires_session: Whether messages need a session id.
        detects_duplicates: Whether the message id decides the partition of a message that has no other key.
        max_message_bytes: The maximum size of a message, properties included.
        written_format: The format that is written to the namespace.
    """

    name: str
    partitions: int
    requires_session: bool
    detects_duplicates: bool
    max_message_bytes: int
    written_format: int


def check_columns(schema: T.StructType) -> None:
    """Check that the columns of a frame are those of messages.

    Raises:
        ValueError: A column is unknown, missing, or of a type that it cannot have; the error says what to do.
    """
    known = {*WRITTEN, *READ_ONLY}
    for field in schema.fields:
        name = field.name.lower()
        if name not in known:
            (like,) = get_close_matches(name, sorted(known), n=1) or ("",)
            raise ValueError(
                f"column {field.name!r} is none that a message has"
                + (f" (is {like!r} meant?)" if like else "")
                + f": drop it, or put it into {PROPERTIES!r}, as F.struct({field.name!r}) does"
            )
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if BODY not in types:
        raise ValueError(f"no column {BODY!r}: name the messages' bodies so, as binary or text")
    for name, kind in types.items():
        if name in _KINDS and not isinstance(kind, _KINDS[name][0]):
            raise ValueError(f"column {name!r} is {kind.simpleString()}: {_KINDS[name][1]}")
    if PROPERTIES in types:
        _check_properties(types[PROPERTIES])


_TEXT_WANTED: Final = "use text, as cast('string') makes it"
_KINDS: Final[Mapping[str, tuple[tuple[type[T.DataType], ...], str]]] = {
    BODY: ((T.BinaryType, T.StringType), "use binary or text, as F.to_json makes it of a struct"),
    **dict.fromkeys(TEXTS, ((T.StringType,), _TEXT_WANTED)),
    PROPERTIES_JSON: ((T.StringType,), _TEXT_WANTED),
    TIME_TO_LIVE: ((T.DayTimeIntervalType, *_WHOLE), "use an interval day to second, or whole seconds"),
    SCHEDULED: (_TIMES, "use a timestamp"),
    PROPERTIES: ((T.MapType, T.StructType), "use a map of texts to values, or a struct"),
    HEADERS: ((T.ArrayType,), "use the headers that read returns, or drop it"),
    DATA_SECTIONS: ((T.ArrayType,), "use lengths in bytes, as read returns them, or drop it"),
}
"""The types that a column may have, and what to do if it has another one."""


def _check_properties(kind: T.DataType) -> None:
    """Check the types of application properties: of a map's keys and values, or of a struct's fields."""
    if isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            raise ValueError(f"column {PROPERTIES!r} has keys of type {kind.keyType.simpleString()}: use text")
        values = [(PROPERTIES, kind.valueType)]
    else:
        values = [(f"{PROPERTIES}.{field.name}", field.dataType) for field in _fields(kind)]
    for name, value in values:
        if not isinstance(value, _PROPERTY_TYPES):
            raise ValueError(
                f"{name} is {value.simpleString()}: an application property is text, a boolean, a whole number, a float, a "
                "double, a decimal, binary, a timestamp, an interval day to second, or a variant of these; cast it, as to "
                "text with F.to_json"
            )
        if isinstance(value, T.DecimalType) and value.precision > MOST_DIGITS:
            raise ValueError(
                f"{name} is {value.simpleString()}: AMQP's decimals have {MOST_DIGITS} digits; cast it to "
                f"decimal({MOST_DIGITS},{min(value.scale, MOST_DIGITS)}), or to text"
            )


_PROPERTY_TYPES: Final = (
    *(T.StringType, T.BooleanType, *_WHOLE, T.FloatType, T.DoubleType, T.BinaryType, *_TIMES, T.DayTimeIntervalType),
    *(T.DecimalType, T.VariantType, T.NullType),
)


def has_decimals(schema: T.StructType) -> bool:
    """Return whether a decimal is among the application properties, which the first format cannot store."""
    kinds = [field.dataType for field in schema.fields if field.name.lower() == PROPERTIES]
    values = [
        value
        for kind in kinds
        for value in ([kind.valueType] if isinstance(kind, T.MapType) else [field.dataType for field in _fields(kind)])
    ]
    return any(isinstance(value, T.DecimalType) for value in values)


def encode_messages(messages: DataFrame, rules: EntityRules) -> DataFrame:
    """Return messages with additional columns: those of Spark's Kafka sink (``SINK``), ``PROBLEM``, ``DOUBT`` and ``NAME``.

    ``DOUBT`` takes less time than ``PROBLEM``, for which Spark makes the JSON of the application properties.

    Each step is a separate projection, because within one projection each use of a long expression is another copy of it.

    Args:
        messages: The messages, whose columns ``check_columns`` has checked.
        rules: The entity's rules for them.
    """
    types = tuple((field.name.lower(), field.dataType) for field in messages.schema.fields)
    own, records = build_once(messages.sparkSession, _expressions, types, rules)
    steps = messages.withColumns(own)
    message_id = F.coalesce(F.nullif(_own(MESSAGE_ID), F.lit("")), _new_id(name for name in own if name != _ID))
    return steps.withColumn(_ID, message_id).withColumns(records)


def _expressions(
    types: Sequence[tuple[str, T.DataType]], rules: EntityRules
) -> tuple[dict[str, Column], dict[str, Column]]:
    """Return the columns of the values of a message's parts, and those that are made of these."""
    kinds = dict(types)
    own = {name: column for name, column in _values(kinds, rules).items() if column is not None}
    texts = {header: _own(name).cast("string") for name, header in _HEADERS.items() if name in own}
    key = _effective_key(own, rules)
    octets = {header: F.octet_length(text) for header, text in texts.items()} | {h.MESSAGE_ID: _octets_of_id(kinds)}
    problems = _problems(own, kinds, rules)
    doubts = [condition for condition, _ in problems]
    if PROPERTIES in kinds:
        garbled = ~reduce(and_, map(F.is_valid_utf8, _texts_of_properties(kinds[PROPERTIES])), F.lit(True))
        doubts.append(garbled)
        # JSON has this character in place of bytes that are no text, and to look for it takes less time.
        replaced = F.contains(_own(PROPERTIES), F.lit("\ufffd"))
        said = F.lit(f"{PROPERTIES} has a text whose bytes are not UTF-8: give it as binary")
        problems.append((replaced & garbled, said))
    size = longest = _size(own, octets)
    if _are_texts(kinds):
        longest = _size(own, octets | {h.APPLICATION_PROPERTIES: _longest_properties(kinds[PROPERTIES])})
    doubts.append(longest > rules.max_message_bytes)
    problems.append((size > rules.max_message_bytes, _problem_text("it has ", size.cast("bigint"), _too_large(rules))))
    return {f"{_OWN}{name}": column for name, column in own.items()}, {
        SINK["key"]: key,
        SINK["value"]: _own(BODY),
        SINK["headers"]: F.concat(*(_entry(header, text.cast("binary")) for header, text in texts.items())),
        SINK["partition"]: F.pmod(F.crc32(key), F.lit(rules.partitions)).cast("int"),
        PROBLEM: F.coalesce(*(F.when(condition, said) for condition, said in problems)),
        DOUBT: reduce(or_, doubts),
        NAME: _name(kinds),
    }


_HEADERS: Final = {field: header for field, header in h.TEXT_FIELDS if field in {*TEXTS, "amqp", DATA_SECTIONS}} | {
    TIME_TO_LIVE: h.TIME_TO_LIVE,
    SCHEDULED: h.SCHEDULED_ENQUEUE_TIME,
    PROPERTIES: h.APPLICATION_PROPERTIES,
}
"""The values that have headers, and these, in their order."""


def _values(types: Mapping[str, T.DataType], rules: EntityRules) -> dict[str, Column | None]:
    """Return the values of a message's parts as its record holds them; None if the frame has no column for one."""
    return {
        BODY: F.col(BODY).cast("binary"),
        MESSAGE_ID: F.col(MESSAGE_ID) if MESSAGE_ID in types else F.lit(None).cast("string"),
        **{name: F.col(name) if name in types else None for name in TEXTS if name != MESSAGE_ID},
        DATA_SECTIONS: _data_sections() if DATA_SECTIONS in types and rules.written_format > FIRST else None,
        "amqp": _amqp() if HEADERS in types else None,
        TIME_TO_LIVE: _time_to_live(types[TIME_TO_LIVE]) if TIME_TO_LIVE in types else None,
        SCHEDULED: _milliseconds(F.col(SCHEDULED), types[SCHEDULED]) if SCHEDULED in types else None,
        PROPERTIES: _properties(types),
    }


def _own(name: str) -> Column:
    return F.col(f"{_OWN}{name}")


def _new_id(columns: Iterable[str]) -> Column:
    """Return an id for a message that has none, or an empty one: two messages with an empty id would be duplicates.

    A task that Spark repeats may get its rows in another order. An id that followed from a row's place alone, as ``uuid()``
    does, would then go to another message, which an entity that detects duplicates would drop. And the seed of ``uuid()`` is
    part of the generated code, which Spark would compile again for each call.

    Args:
        columns: The columns of the message's other values.
    """
    place = F.monotonically_increasing_id().cast("string")
    digest = F.sha2(F.concat_ws("-", F.lit(uuid.uuid4().hex), place, F.xxhash64(*columns).cast("string")), 256)
    return F.left(digest, F.lit(_ID_DIGITS))


def _effective_key(own: Mapping[str, Column], rules: EntityRules) -> Column:
    names = [SESSION_ID, PARTITION_KEY, *([MESSAGE_ID] if rules.detects_duplicates else [])]
    return F.coalesce(*(_own(name) for name in names if name in own), F.lit(None).cast("string")).cast("binary")


def _entry(header: str, value: Column) -> Column:
    """Return a header as an array of one, or as an empty one if there is no value; to join these is generated code."""
    entry = F.array(F.struct(F.lit(header).alias("key"), value.alias("value")))
    return entry if header == h.MESSAGE_ID else F.when(value.isNotNull(), entry).otherwise(F.array().cast(HEADERS_TYPE))


def _amqp() -> Column:
    return last_value(h.AMQP).cast("string")


def _data_sections() -> Column:
    """Return the lengths of all data sections but the last; null if they are not those of the body, or there is only one."""
    lengths = F.col(DATA_SECTIONS).cast("array<bigint>")
    total = F.aggregate(lengths, F.lit(0).cast("bigint"), lambda total, length: total + length)
    fit = (F.size(lengths) > 1) & (F.array_min(lengths) >= 0) & (total == F.octet_length(F.col(BODY)))
    return F.when(fit, F.array_join(F.slice(lengths, F.lit(1), F.size(lengths) - 1).cast("array<string>"), ","))


def _time_to_live(kind: T.DataType) -> Column:
    """Return a time to live in milliseconds; 0 is none, as in Azure's SDK."""
    given = F.col(TIME_TO_LIVE)
    if isinstance(kind, T.DayTimeIntervalType):
        return F.unix_millis(F.timestamp_micros(F.nullif(microseconds(given), F.lit(0))))
    # A time beyond the longest one is a problem; as a product it would not fit.
    seconds = F.least(F.nullif(given.cast("bigint"), F.lit(0)), F.lit(LONGEST_DELTA // 1000 + 1))
    return F.when(given.isNotNull(), seconds * 1000)


def microseconds(interval: Column) -> Column:
    """Return the length of an interval in microseconds."""
    # Of an interval with fewer fields, the others cannot be extracted.
    interval = interval.cast("interval day to second")
    days, hours, minutes = (F.extract(F.lit(part), interval).cast("bigint") for part in ("DAY", "HOUR", "MINUTE"))
    seconds = (F.extract(F.lit("SECOND"), interval) * 1_000_000).cast("bigint")
    return ((days * 24 + hours) * 60 + minutes) * 60_000_000 + seconds


def _since_1970(moment: Column, kind: T.DataType) -> Column:
    """Return a moment in microseconds since 1970; one without a time zone is in UTC, as in Azure's SDK."""
    if isinstance(kind, T.TimestampNTZType):
        return microseconds(moment - F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"))
    return F.unix_micros(moment)


def _milliseconds(moment: Column, kind: T.DataType) -> Column:
    return F.unix_millis(F.timestamp_micros(_since_1970(moment, kind)))


def _properties(types: Mapping[str, T.DataType]) -> Column | None:
    """Return the JSON text of the application properties; null if there are none."""
    kind = types.get(PROPERTIES)
    if kind is None:
        return F.nullif(F.col(PROPERTIES_JSON), F.lit("{}")) if PROPERTIES_JSON in types else None
    if not isinstance(kind, T.MapType):
        return _object(F.concat_ws(",", *(_member(field) for field in _fields(kind))))
    value_type = kind.valueType
    if isinstance(value_type, T.StringType) and PROPERTIES_JSON in types:
        return _properties_as_read()
    if isinstance(value_type, T.StringType):
        return F.when(F.size(PROPERTIES) > 0, F.to_json(PROPERTIES, {"ignoreNullFields": "false"}))
    return _members(F.map_entries(PROPERTIES), lambda entry: _json(entry["value"], value_type))


def _fields(kind: T.DataType) -> list[T.StructField]:
    return kind.fields if isinstance(kind, T.StructType) else []


def _member(field: T.StructField) -> Column:
    """Return a field of the application properties as a member of a JSON object; null if it is null."""
    name = json.dumps(field.name, ensure_ascii=False)
    return F.concat(F.lit(f"{name}:"), _json(F.col(PROPERTIES)[field.name], field.dataType))


def _properties_as_read() -> Column:
    """Return properties with the types of the JSON that they were read from, if they are still what was read."""
    text = F.col(PROPERTIES_JSON)
    read = F.struct(parsed_properties(text)["raw"].alias("raw"), parsed_object(text, "variant").alias("typed"))

    def again(read: Column) -> Column:
        def member(entry: Column) -> Column:
            raw, typed = (F.try_element_at(read[name], entry["key"]) for name in ("raw", "typed"))
            same = typed.isNotNull() & readable(raw, is_tagged(typed)).eqNullSafe(entry["value"])
            return F.when(same, F.to_json(typed)).otherwise(_quote(entry["value"]))

        return _members(F.map_entries(PROPERTIES), member)

    return bind(read, again)


def _members(entries: Column, encode: Callable[[Column], Column]) -> Column:
    """Return a JSON object of entries, whose values a function encodes; null for none."""

    def member(entry: Column) -> Column:
        return F.concat(_quote(entry["key"]), F.lit(":"), F.coalesce(encode(entry), F.lit("null")))

    return _object(F.array_join(F.transform(entries, member), ","))


def _object(members: Column) -> Column:
    return F.when(members != "", F.concat(F.lit("{"), members, F.lit("}")))


def _quote(text: Column) -> Column:
    """Return a text as JSON has it; null as ``null``."""
    # Quotes keep the brackets that belong to the text.
    return F.btrim(F.to_json(F.array(text)), F.lit("[]"))


def _json(value: Column, kind: T.DataType) -> Column:  # noqa: PLR0911 - a case each
    """Return the value of an application property as JSON, see ``kafkabus_mapping.properties``; null if it is null."""
    text = value.cast("string")
    match kind:
        case T.StringType():
            return F.when(value.isNotNull(), _quote(value))
        case T.BinaryType():
            return _tag("bytes", _in_quotes(base64(value)))
        case T.LongType():
            exact = value.between(-EXACT_IN_JSON, EXACT_IN_JSON)
            return F.when(exact, text).otherwise(_tag("int", _in_quotes(text)))
        case T.FloatType() | T.DoubleType():
            # Python writes them so; it compares NaN as larger than any number.
            said = F.when(F.isnan(value), F.lit("nan")).when(value > 0, F.lit("inf")).otherwise(F.lit("-inf"))
            return F.when(F.abs(value) < float("inf"), text).when(value.isNotNull(), _tag("float", _in_quotes(said)))
        case T.TimestampType() | T.TimestampNTZType():
            return _tag("datetime", _in_quotes(_isoformat(_since_1970(value, kind))))
        case T.DayTimeIntervalType():
            return _tag("timedelta", microseconds(value).cast("string"))
        case T.DecimalType():
            return _tag("decimal", _in_quotes(text))
        case T.VariantType():
            return F.to_json(value)
        case _:
            return text


def _tag(tag: str, content: Column) -> Column:
    return F.concat(F.lit(f'{{"{tag}":'), content, F.lit("}"))


def _in_quotes(text: Column) -> Column:
    return F.concat(F.lit('"'), text, F.lit('"'))


def _isoformat(microseconds: Column) -> Column:
    """Return a moment as Python's ``datetime.isoformat`` writes it in UTC, whatever the session's time zone is."""
    time = F.pmod(microseconds, F.lit(_DAY))
    # A quotient is a double, and exact only if it is rounded.
    day = F.date_from_unix_date(F.round((microseconds - time) / _DAY).cast("int")).cast("string")
    seconds, rest = (time / 1_000_000).cast("int"), F.pmod(time, F.lit(1_000_000))
    clock = F.format_string(
        "%02d:%02d:%02d", (seconds / 3600).cast("int"), (seconds / 60).cast("int") % 60, seconds % 60
    )
    fraction = F.when(rest > 0, F.format_string(".%06d", rest)).otherwise(F.lit(""))
    return F.concat(day, F.lit("T"), clock, fraction, F.lit("+00:00"))


def _problems(
    own: Mapping[str, Column], types: Mapping[str, T.DataType], rules: EntityRules
) -> list[tuple[Column, Column]]:
    """Return the rules whose conditions both columns share: these conditions, and the value and the remedy."""
    found: list[tuple[Column, Column]] = []
    for name in (name for name in TEXTS if name in types):
        text = F.col(name)
        found.append((~F.is_valid_utf8(text), F.lit(f"{name} is no text: its bytes are not UTF-8")))
        if name in _IDENTIFIERS:
            length = F.length(text)
            said = _problem_text(
                f"{name} has ", length, f" characters: the longest is {MAX_IDENTIFIER}; shorten or hash it"
            )
            # To count characters takes longer.
            found.append(((F.octet_length(text) > MAX_IDENTIFIER) & (length > MAX_IDENTIFIER), said))
    found += _problems_of_amqp(types)
    if {SESSION_ID, PARTITION_KEY} <= types.keys():
        session, key = F.col(SESSION_ID), F.col(PARTITION_KEY)
        said = _problem_text(PARTITION_KEY + " '", key, "' differs from session_id '", session, "': ", _ALIKE)
        found.append((session != key, said))
    if rules.requires_session:
        missing = F.col(SESSION_ID).isNull()
        found.append((missing, F.lit(f"no session_id, and {rules.name!r} requires sessions: set one")))
    if BODY_TYPE in types:
        found += _problems_of_body_types()
    if TIME_TO_LIVE in own:
        lives = _own(TIME_TO_LIVE)
        said = _problem_text(
            f"{TIME_TO_LIVE} is ", lives, " ms: give a positive duration, or none for the entity's default"
        )
        found += [
            (lives < 0, said),
            (lives > LONGEST_DELTA, F.lit(f"{TIME_TO_LIVE} is longer than Python's timedelta.max")),
        ]
    if SCHEDULED in own:
        outside = ~_own(SCHEDULED).between(YEAR_ONE, YEAR_TEN_THOUSAND - 1)
        found.append((outside, F.lit(f"{SCHEDULED} is not in the years 1 to 9999")))
    if _may_be_malformed(types):
        wrong = _own(PROPERTIES).isNotNull() & parsed_properties(_own(PROPERTIES)).isNull()
        said = _problem_text("application properties ", F.left(_own(PROPERTIES), F.lit(_SHOWN)), ": ", _NOT_PROPERTIES)
        found.append((wrong, said))
    return found


def _problems_of_amqp(types: Mapping[str, T.DataType]) -> list[tuple[Column, Column]]:
    """Return the rules that AMQP has for the values of a message."""
    found: list[tuple[Column, Column]] = []
    if CONTENT_TYPE in types:
        content_type = F.col(CONTENT_TYPE)
        said = _problem_text(CONTENT_TYPE + " is '", content_type, "': ", _ASCII_ONLY)
        found.append((F.length(content_type) != F.octet_length(content_type), said))
    if PROPERTIES in types and _may_have_durations(types[PROPERTIES]):
        longest = _longest_duration(types[PROPERTIES])
        said = _problem_text(
            f"{PROPERTIES} has a duration of ", longest, f" us: the longest of AMQP has {LONGEST_TIMESPAN}"
        )
        found.append((longest > LONGEST_TIMESPAN, said))
    return found


def _may_have_durations(kind: T.DataType) -> bool:
    """Return whether there are intervals among application properties."""
    values = [kind.valueType] if isinstance(kind, T.MapType) else [field.dataType for field in _fields(kind)]
    return any(isinstance(value, T.DayTimeIntervalType) for value in values)


def _longest_duration(kind: T.DataType) -> Column:
    """Return the length of the longest interval among application properties, in microseconds; null if there is none."""
    if isinstance(kind, T.MapType):
        return F.array_max(F.transform(F.map_values(PROPERTIES), lambda value: F.abs(microseconds(value))))
    names = [field.name for field in _fields(kind) if isinstance(field.dataType, T.DayTimeIntervalType)]
    lengths = [F.abs(microseconds(F.col(PROPERTIES)[name])) for name in names]
    return F.greatest(F.lit(None).cast("bigint"), F.lit(None).cast("bigint"), *lengths)


def _texts_of_properties(kind: T.DataType) -> list[Column]:
    """Return the texts of application properties; names and values of a map as one text."""
    if not isinstance(kind, T.MapType):
        return [F.col(PROPERTIES)[field.name] for field in _fields(kind) if isinstance(field.dataType, T.StringType)]
    values = [F.map_values(PROPERTIES)] if isinstance(kind.valueType, T.StringType) else []
    # A comma ends a character that is cut off.
    return [F.concat_ws(",", F.map_keys(PROPERTIES), *values)]


def _too_large(rules: EntityRules) -> str:
    return f" bytes, properties included: {rules.name!r} takes messages of {rules.max_message_bytes}; make it smaller"


_ASCII_ONLY: Final = "AMQP carries it in ASCII only; percent-encode the other characters"
_ALIKE: Final = "a session's messages share one partition; set both alike, or leave partition_key unset"
_NOT_PROPERTIES: Final = "this is no JSON object of texts, numbers, booleans, nulls and tagged values"


def _problem_text(*parts: Column | str) -> Column:
    return F.concat(*(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))


def _problems_of_body_types() -> list[tuple[Column, Column]]:
    kind, body = F.col(BODY_TYPE), F.col(BODY).cast("string")
    unknown = kind.isNotNull() & ~kind.isin("sequence", "value")
    broken = kind.isNotNull() & (body.isNull() | F.try_parse_json(body).isNull())
    return [
        (
            unknown,
            _problem_text("body_type '", kind, "': choose 'sequence' or 'value' for JSON bodies, or none for bytes"),
        ),
        (
            broken,
            _problem_text("body_type '", kind, "' and a body that is not JSON: leave body_type unset, or write JSON"),
        ),
    ]


def _may_be_malformed(types: Mapping[str, T.DataType]) -> bool:
    """Return whether application properties come as JSON, or with values of which only the data say what they are."""
    kind = types.get(PROPERTIES)
    if kind is None:
        return PROPERTIES_JSON in types
    values = [kind.valueType] if isinstance(kind, T.MapType) else [field.dataType for field in _fields(kind)]
    return any(isinstance(value, T.VariantType) for value in values)


def _size(own: Mapping[str, Column], octets: Mapping[str, Column]) -> Column:
    """Return a message's size as ``kafkabus_mapping.codec.record_size`` counts it.

    Args:
        own: The values of the message's parts.
        octets: The sizes of its headers' values, null for those that it does not have.
    """
    # Sums of doubles are exact here, and Spark looks for no overflow in them.
    size = F.coalesce(F.octet_length(_own(BODY)).cast("double"), F.lit(0.0))
    keys = [F.octet_length(_own(name)) for name in (SESSION_ID, PARTITION_KEY) if name in own]
    if keys:
        # If both keys are set, they are equal.
        size = size + F.greatest(F.lit(0.0), *keys)
    for header, count in octets.items():
        size = size + F.coalesce(count + F.lit(float(len(header))), F.lit(0.0))
    return size


def _octets_of_id(types: Mapping[str, T.DataType]) -> Column:
    """Return the size of a message's id.

    The column of the id would give it, too, but Spark leaves out no step below a new id, which is another one each time.
    """
    new = F.lit(_ID_DIGITS)
    return F.coalesce(F.octet_length(F.nullif(MESSAGE_ID, F.lit(""))), new) if MESSAGE_ID in types else new


def _are_texts(types: Mapping[str, T.DataType]) -> bool:
    """Return whether application properties are a map of texts, whose types are not distinguished."""
    kind = types.get(PROPERTIES)
    return isinstance(kind, T.MapType) and isinstance(kind.valueType, T.StringType) and PROPERTIES_JSON not in types


def _longest_properties(kind: T.DataType) -> Column:
    """Return the size that application properties have as JSON at the most; they are a map of texts."""
    # A control character takes six bytes. Beside its texts a property has at most four quotes, a colon and a comma, or "null".
    (texts,) = _texts_of_properties(kind)
    return F.octet_length(texts) * F.lit(6.0) + F.size(PROPERTIES) * F.lit(8.0) + F.lit(2.0)


def _name(types: Mapping[str, T.DataType]) -> Column:
    """Return the words by which an error names a message: its id, else its number, else how its body begins."""
    names = [
        F.concat(F.lit(f"{name} '"), F.left(F.col(name).cast("string"), F.lit(_SHOWN)), F.lit("'"))
        for name in (MESSAGE_ID, "sequence_number")
        if name in types
    ]
    begin = F.left(F.coalesce(F.col(BODY).cast("string"), F.lit("")), F.lit(_SHOWN))
    return F.coalesce(*names, F.concat(F.lit("body '"), begin, F.lit("'")))
