"""Settings of entities and rules as readable text and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from kafkabus.cli.durations import format_duration
from kafkabus.cli.retry_policies import format_policy
from kafkabus_mapping.durations import iso_duration
from kafkabus_mapping.entities import RetryPolicy
from kafkabus_mapping.secret import Secret

if TYPE_CHECKING:
    from kafkabus.management import QueueProperties, SubscriptionProperties, TopicProperties

_CLEARED = ("forward_to", "forward_dead_lettered_messages_to", "unmatched_to", "retry_policy")
"""Settings that an empty text clears."""
_KEYS = ("primary_key", "secondary_key")
"""Settings of authorization rules that are masked."""
_WRITTEN: Mapping[type, Callable[[Any], str]] = {
    timedelta: iso_duration,
    datetime: datetime.isoformat,
    UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
}
"""Functions that convert values of types that JSON does not have."""


def given_changes(given: Mapping[str, object], what: str) -> dict[str, object]:
    """Return the settings that were given.

    Args:
        given: All settings; None for one that was not given.
        what: The kind of entity, as its command is named.

    Raises:
        typer.BadParameter: No setting was given.
    """
    changes = {setting: value for setting, value in given.items() if value is not None}
    changes.update({setting: None for setting in _CLEARED if changes.get(setting) == ""})
    if not changes:
        raise typer.BadParameter(f"nothing to change: give a setting, see 'kafkabus {what} update --help'")
    return changes


def status_of(properties: QueueProperties | TopicProperties | SubscriptionProperties) -> str:
    """Return an entity's status, with its availability if not all partitions are available."""
    status = properties.status.value
    available = properties.availability_status.value
    return status if available == "Available" else f"{status}, {available}"


def settings_text(properties: Mapping[str, object]) -> dict[str, str]:
    """Return settings as readable text."""
    return {name: _format_value(value) for name, value in properties.items()}


def _format_value(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, RetryPolicy):
        return format_policy(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return ""
    return str(getattr(value, "value", value))


def settings_json(properties: Mapping[str, object]) -> dict[str, object]:
    """Return settings for JSON, with durations in Azure's format, and with masks in place of keys."""
    return {
        name: str(Secret(value)) if name in _KEYS and isinstance(value, str) else _json_value(value)
        for name, value in properties.items()
    }


def _json_value(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, RetryPolicy):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return settings_json(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    write = next((write for kind, write in _WRITTEN.items() if isinstance(value, kind)), None)
    return value if write is None else write(value)
