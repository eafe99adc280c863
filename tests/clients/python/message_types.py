"""Messages with every type that the Python SDK can write, and messages as the SDK shows them, in canonical form.

A value is a pair of its AMQP type and its content. If the SDK does not distinguish types, the first has each of them, as in
``int|long``.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from tests.clients.python.harness import PATIENCE_S, Sdk, say, want

Canonical: TypeAlias = dict[str, Any]

_INTEGERS = "byte|int|long|short|timestamp|ubyte|uint|ulong|ushort"
_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_INSTANT = datetime(2025, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "int": 5,
    "negative": -7,
    "int-largest": 2**31 - 1,
    "double": 1.5,
    "string": "text ü",
    "string-empty": "",
    "string-long": "x" * 300,
    "binary": b"\x00\xff",
    "uuid": _ID,
    "timestamp": _INSTANT,
}


def typed(value: Any) -> list[Any]:
    """Return a value in canonical form."""
    for kind, convert in _FORMS:
        if isinstance(value, kind):
            form: list[Any] = convert(value)
            return form
    raise TypeError(f"a value of type {type(value).__name__} has no canonical form")


def _milliseconds(value: datetime) -> str:
    aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return str(round((aware - _EPOCH) / timedelta(milliseconds=1)))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_FORMS: tuple[tuple[Any, Callable[[Any], list[Any]]], ...] = (
    (type(None), lambda value: ["null", value]),
    (bool, lambda value: ["boolean", value]),
    (int, lambda value: [_INTEGERS, str(value)]),
    (float, lambda value: ["double|float", repr(value)]),
    (str, lambda value: ["string|symbol", value]),
    ((bytes, bytearray), lambda value: ["binary|string|symbol", _base64(bytes(value))]),
    (uuid.UUID, lambda value: ["uuid", str(value)]),
    (timedelta, lambda value: ["described", str(value)]),
    (datetime, lambda value: ["timestamp", _milliseconds(value)]),
    ((list, tuple), lambda value: ["array|list", [typed(item) for item in value]]),
    (Mapping, lambda value: ["map", sorted([typed(key), typed(item)] for key, item in value.items())]),
)


def canonical(message: Any) -> Canonical:
    """Return a message with its AMQP sections in canonical form.

    Args:
        message: An ``AmqpAnnotatedMessage``, made or received.
    """
    properties = message.properties
    header = message.header
    return {
        "id": _text(properties.message_id),
        "body": _body(message),
        "header": {
            "durable": getattr(header, "durable", None),
            "priority": getattr(header, "priority", None),
            "ttl": getattr(header, "time_to_live", None),
        },
        "properties": {
            **{_dashed(name): _typed_property(getattr(properties, name)) for name in _TYPED},
            **{_dashed(name): _text(getattr(properties, name)) for name in _TEXTS},
        },
        "application-properties": _section(message.application_properties),
        "annotations": {
            key: value
            for key, value in _section(message.annotations).items()
            if not key.startswith("x-opt-") or key == "x-opt-partition-key"
        },
        "footer": _section(message.footer),
    }


_TYPED = ("message_id", "correlation_id", "user_id")
_TEXTS = ("subject", "content_type", "content_encoding", "to", "reply_to", "group_id", "reply_to_group_id")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _typed_property(value: Any) -> list[Any] | None:
    # Java sends an empty user id if there is none.
    return None if value in {None, b""} else typed(value)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _section(section: Mapping[Any, Any] | None) -> dict[str, list[Any]]:
    return {_text(key): typed(value) for key, value in (section or {}).items()}


def _body(message: Any) -> list[Any]:
    kind = message.body_type.value
    if kind == "value":
        return ["value", typed(message.body)]
    if kind == "sequence":
        return ["sequence", [[typed(item) for item in section] for section in message.body]]
    return ["data", [_base64(section) for section in message.body]]


def messages(sdk: Sdk) -> Iterable[Any]:
    """Yield messages with every kind of body, and every type of value."""
    amqp = sdk.amqp

    def make(identity: str, more: dict[str, Any] | None = None, **parts: Any) -> Any:
        named = amqp.AmqpMessageProperties(message_id=identity, **(more or {}))
        return amqp.AmqpAnnotatedMessage(properties=named, **parts)

    # azure.servicebus takes bytes for UTF-8 there.
    properties = {name: value for name, value in _VALUES.items() if not isinstance(value, bytes)}
    yield make("data", data_body=b"\x00bytes\xff")
    yield make("data-empty", data_body=b"")
    yield make("data-sections", data_body=[b"one", b"two"])
    for name, value in _VALUES.items():
        if value:  # azure.servicebus sends null for others, at which Java's receiver breaks off
            yield make(f"value-{name}", value_body=value)
    yield make("value-list", value_body=[1, "two", None, [3.5]])
    yield make("value-map", value_body={"a": 1, "b": {"c": b"\x01"}})
    yield make("sequence", sequence_body=[[1, "two", None]])
    yield make("sequences", sequence_body=[[1], ["two", 3]])
    yield make("application-properties", data_body=b"", application_properties=properties)
    yield make(
        "annotations",
        data_body=b"",
        annotations={"x-opt-partition-key": "key", "test-annotation": "text", "test-number": 5},
        footer={"test-footer": "text"},
        header=amqp.AmqpMessageHeader(durable=True, priority=7, time_to_live=3_600_000),
    )
    yield make(
        "properties",
        {
            "correlation_id": "correlation",
            "subject": "subject",
            "content_type": "text/plain",
            "content_encoding": "utf-8",
            "to": "to",
            "reply_to": "reply-to",
            "group_id": "group",
            "reply_to_group_id": "reply-to-group",
            "user_id": b"user",
        },
        data_body=b"",
    )
    yield amqp.AmqpAnnotatedMessage(
        data_body=b"", properties=amqp.AmqpMessageProperties(message_id=_ID, correlation_id=_ID)
    )


async def send_types(sdk: Sdk, queue: str) -> None:
    """Send the messages, and print each in canonical form."""
    async with sdk.client() as client, client.get_queue_sender(queue) as sender:
        for message in messages(sdk):
            form = canonical(message)
            await sender.send_messages(message)
            say(_plain_id(form))


def _plain_id(form: Canonical) -> Canonical:
    return {**form, "id": str(form["id"])}


async def receive_types(sdk: Sdk, queue: str, count: int) -> None:
    """Receive so many messages, and print each in canonical form."""
    async with sdk.client() as client, client.get_queue_receiver(queue) as receiver:
        while count:
            received = await receiver.receive_messages(max_message_count=count, max_wait_time=PATIENCE_S)
            want(received, f"{count} messages did not come in {PATIENCE_S:g} s")
            for message in received:
                say(_plain_id(canonical(message.raw_amqp_message)))
                await receiver.complete_message(message)
            count -= len(received)
