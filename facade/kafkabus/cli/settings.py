"""Settings of entities and rules, for people and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from kafkabus.cli.durations import format_duration, iso_duration

if TYPE_CHECKING:
    from kafkabus.management import QueueProperties, SubscriptionProperties, TopicProperties

_CLEARED = ("forward_to", "forward_dead_lettered_messages_to")
"""Settings that an empty text clears."""
_WRITTEN: Mapping[type, Callable[[Any], str]] = {
    timedelta: iso_duration,
    datetime: datetime.isoformat,
    UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
}
"""How JSON has what it has no kind of value for."""


def given_changes(given: Mapping[str, object], what: str) -> dict[str, object]:
    """Those settings that were given.

    Args:
        given: All that could be; None where one was not.
        what: What they are of, as its command is named.

    Raises:
        typer.BadParameter: None was.
    """
    changes = {setting: value for setting, value in given.items() if value is not None}
    changes.update({setting: None for setting in _CLEARED if changes.get(setting) == ""})
    if not changes:
        raise typer.BadParameter(f"nothing to change: give a setting, see 'kafkabus {what} update --help'")
    return changes


def status_of(properties: QueueProperties | TopicProperties | SubscriptionProperties) -> str:
    """An entity's status, and what is wrong with its partitions."""
    status = properties.status.value
    available = properties.availability_status.value
    return status if available == "Available" else f"{status}, {available}"


def settings_text(properties: Mapping[str, object]) -> dict[str, str]:
    """Settings as a person reads them."""
    return {name: _shown(value) for name, value in properties.items()}


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return ""
    return str(getattr(value, "value", value))


def settings_json(properties: Mapping[str, object]) -> dict[str, object]:
    """Settings as JSON has them, durations as Azure writes them."""
    return {name: _json_value(value) for name, value in properties.items()}


def _json_value(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return settings_json(value)
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    write = next((write for kind, write in _WRITTEN.items() if isinstance(value, kind)), None)
    return value if write is None else write(value)
