"""The fields of the bodies of requests to management."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus_mapping.amqp.types import Milliseconds
from kafkabus_mapping.codec import to_milliseconds

MOST_NUMBERS: Final = 10_000
"""How many values an array of a request has at most."""
MOST_DELETED: Final = 4_000
"""The most messages that one request deletes, as Service Bus documents it."""


def read_number(body: Mapping[str, Any], name: str, default: int) -> int:
    """Return a number, 0 or more.

    Raises:
        AmqpError: It is something else.
    """
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a number, 0 or more")
    return int(value)


def read_count_to_delete(body: Mapping[str, Any]) -> int:
    """Return how many messages to delete.

    Raises:
        AmqpError: It is no number, or too large.
    """
    value = body.get("message-count")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_DELETED:
        raise AmqpError(
            service_bus.ARGUMENT_ERROR,
            f"message-count is {value!r:.60}: it is an int from 1 to {MOST_DELETED:,}; nothing was deleted",
        )
    return int(value)


def read_time(body: Mapping[str, Any], name: str) -> int:
    """Return a time in ms since 1970.

    Raises:
        AmqpError: It is no time.
    """
    value = body.get(name)
    if isinstance(value, Milliseconds):
        return int(value)
    if not isinstance(value, datetime):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a timestamp; nothing was deleted")
    return to_milliseconds(value)


def read_text(body: Mapping[str, Any], name: str) -> str:
    """Return a text.

    Raises:
        AmqpError: It is no text.
    """
    value = body.get(name)
    if not isinstance(value, str):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a text")
    return str(value)


def read_array(body: Mapping[str, Any], name: str, kind: type[Any]) -> list[Any]:
    """Return the values of an array, which have one kind.

    Raises:
        AmqpError: It is no such array, or too long.
    """
    value = body.get(name)
    if (
        not isinstance(value, Sequence)
        or len(value) > MOST_NUMBERS
        or not all(isinstance(item, kind) for item in value)
    ):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is an array of up to {MOST_NUMBERS}")
    return [int(item) if kind is int else item for item in value]
