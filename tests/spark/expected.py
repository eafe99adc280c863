"""The expected form of a record in Spark, made by the facade's own decoder."""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from kafkabus_mapping.codec import decode_headers, split_sections, to_milliseconds
from kafkabus_mapping.numbers import sequence_number
from kafkabus_mapping.properties import PropertyValue
from tests.spark.records import PROPERTY_NAMES

TEXT_COLUMNS = (
    "message_id",
    "session_id",
    "partition_key",
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "body_type",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
)


def expected_row(
    headers: list[tuple[str, bytes | None]],
    key: bytes | None,
    topic: str,
    partition: int,
    offset: int,
    *,
    body: bytes,
) -> dict[str, Any]:
    """Return a record's columns, by the facade's decoder."""
    envelope = decode_headers(headers, key=key, place=f"{topic}/{partition}/{offset}")
    number = sequence_number(partition, offset)
    moved = envelope.enqueued_sequence_number
    return {
        **{name: getattr(envelope, name) for name in TEXT_COLUMNS},
        "data_sections": _lengths(split_sections(body, envelope.data_sections)),
        "time_to_live": envelope.time_to_live,
        "scheduled_enqueue_time_utc": envelope.scheduled_enqueue_time_utc
        and to_milliseconds(envelope.scheduled_enqueue_time_utc),
        "sequence_number": number,
        "enqueued_sequence_number": number if moved is None else moved,
        "application_properties": _shown(envelope.application_properties or {}),
    }


def read_floats(
    shown: Mapping[str, str | None], expected: Mapping[str, str | float | None]
) -> dict[str, str | float | None]:
    """Read numbers back in properties that Spark shows if a float is expected: Java writes it in its own way."""
    return {
        name: float(text) if text is not None and isinstance(expected.get(name), float) else text
        for name, text in shown.items()
    }


def _lengths(sections: list[bytes]) -> list[int] | None:
    return None if len(sections) == 1 else [len(section) for section in sections]


def _shown(properties: Mapping[str | bytes, PropertyValue]) -> dict[str, str | float | None]:
    return {str(key): _text(value, own=key in PROPERTY_NAMES) for key, value in properties.items()}


def _text(value: PropertyValue, *, own: bool) -> str | float | None:
    if value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if own else _foreign_text(value)
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, float, Decimal)):
        return str(value)
    return json.dumps(value)


def _foreign_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
