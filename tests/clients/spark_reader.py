"""Messages as Spark shows them, in canonical form: the texts from their columns, types from what a message carries of AMQP."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import Row, SparkSession

from kafkabus_mapping import headers
from kafkabus_mapping.amqp import types
from kafkabus_mapping.properties import decode_properties, decode_value
from kafkabus_spark import read
from kafkabus_spark.columns import last_value

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAMES: Mapping[type[Any], str] = {
    types.Byte: "byte",
    types.Short: "short",
    types.Int: "int",
    types.UByte: "ubyte",
    types.UShort: "ushort",
    types.UInt: "uint",
    types.ULong: "ulong",
    types.Float: "float",
    types.Symbol: "symbol",
    types.Char: "char",
    types.DecimalBits: "decimal32|decimal64|decimal128",
    int: "long",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "binary",
    uuid.UUID: "uuid",
    datetime: "timestamp",
    types.Milliseconds: "timestamp",
    timedelta: "described",
    type(None): "null",
}
_TEXTS = {
    "subject": "subject",
    "content-type": "content_type",
    "to": "to",
    "reply-to": "reply_to",
    "group-id": "session_id",
    "reply-to-group-id": "reply_to_session_id",
}


def forms(spark: SparkSession, connection: str, queue: str) -> dict[str, dict[str, Any]]:
    """Return the messages of a queue by their message ids."""
    columns = (
        *("message_id", "correlation_id", "partition_key", "time_to_live", "body", "body_type"),
        *("application_properties_json", *_TEXTS.values()),
    )
    amqp = last_value(headers.AMQP).alias("amqp")
    rows = read(spark, connection, queue).select(*columns, amqp).collect()
    return {row["message_id"]: _form(row) for row in rows}


def _form(row: Row) -> dict[str, Any]:
    carried: dict[str, Any] = {} if row["amqp"] is None else decode_value(bytes(row["amqp"]))
    header, properties = carried.get("header", {}), carried.get("properties", {})
    own = decode_properties(row["application_properties_json"] or "{}") | carried.get("application_properties", {})
    lives: timedelta | None = row["time_to_live"]
    annotations = {
        name: value
        for name, value in carried.get("annotations", {}).items()
        if not name.startswith("x-opt-") or name == "x-opt-partition-key"
    }
    if row["partition_key"] is not None and row["partition_key"] != row["session_id"]:
        annotations["x-opt-partition-key"] = row["partition_key"]
    return {
        "id": row["message_id"],
        "body": _body(row["body"], row["body_type"]),
        "header": {
            "durable": header.get("durable"),
            "priority": header.get("priority"),
            "ttl": None if lives is None else lives // timedelta(milliseconds=1),
        },
        "properties": {
            "message-id": _typed(properties.get("message_id", row["message_id"])),
            "correlation-id": _or_none(properties.get("correlation_id", row["correlation_id"])),
            # Java's SDK sends an empty one for none.
            "user-id": _or_none(properties.get("user_id") or None),
            "content-encoding": properties.get("content_encoding"),
            **{name: row[column] for name, column in _TEXTS.items()},
        },
        "application-properties": _section(own),
        "annotations": _section(annotations),
        "footer": _section(carried.get("footer", {})),
    }


def _body(body: bytearray, kind: str | None) -> list[Any]:
    if kind == "value":
        return ["value", _typed(decode_value(bytes(body)))]
    if kind == "sequence":
        return ["sequence", [[_typed(item) for item in section] for section in decode_value(bytes(body))]]
    return ["data", [base64.b64encode(body).decode()]]


def _section(section: Mapping[Any, Any]) -> dict[str, list[Any]]:
    return {str(key): _typed(value) for key, value in section.items()}


def _or_none(value: Any) -> list[Any] | None:
    return None if value is None else _typed(value)


def _typed(value: Any) -> list[Any]:
    """Return a value in canonical form."""
    if isinstance(value, types.Array):
        return ["array", [_typed(item) for item in value]]
    if isinstance(value, types.Described):
        return ["described", [_typed(value.descriptor), _typed(value.value)]]
    if isinstance(value, list):
        return ["list", [_typed(item) for item in value]]
    if isinstance(value, Mapping):
        return ["map", sorted([_typed(key), _typed(item)] for key, item in value.items())]
    return [_NAMES[type(value)], _content(value)]


def _content(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        return str(round((value - _EPOCH) / timedelta(milliseconds=1)))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return repr(float(value)) if isinstance(value, float) else str(value)
