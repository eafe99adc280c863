"""Formatting of messages for output."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import TYPE_CHECKING

from kafkabus.cli.terminal import printable

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusReceivedMessage


def body_text(message: ServiceBusReceivedMessage) -> str:
    """Return a message's body as the commands print it."""
    return printable(body_of(message))


def json_text(message: ServiceBusReceivedMessage) -> str:
    """Return a message as a JSON object on one line."""
    return json.dumps(_fields(message), ensure_ascii=False)


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    """Return a message's body as Kafka holds it: bytes, or JSON for a body of another kind."""
    return message._body or b""


def _fields(message: ServiceBusReceivedMessage) -> dict[str, object]:
    """Return the fields of a message for JSON, without those that are not set."""
    fields: dict[str, object] = {
        **_body_field(message),
        "message_id": message.message_id,
        "sequence_number": message.sequence_number,
        "partition": message.sequence_number >> 48,
        "enqueued_time_utc": message.enqueued_time_utc,
        "expires_at_utc": message.expires_at_utc,
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "postponed_until_utc": message.postponed_until_utc,
        "peeked_locked_until_utc": message.peeked_locked_until_utc,
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "subject": message.subject,
        "correlation_id": message.correlation_id,
        "content_type": message.content_type,
        "to": message.to,
        "reply_to": message.reply_to,
        "reply_to_session_id": message.reply_to_session_id,
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_error_description": message.dead_letter_error_description,
        "dead_letter_source": message.dead_letter_source,
    }
    present = {name: _json_value(value) for name, value in fields.items() if value is not None}
    properties = message.application_properties
    if properties:
        present["application_properties"] = {
            str(_json_value(name)): _json_value(value) for name, value in properties.items()
        }
    return present


def _body_field(message: ServiceBusReceivedMessage) -> dict[str, object]:
    body = body_of(message)
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _json_value(value: object) -> object:
    """Return a property's value in JSON's types; received texts are bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
