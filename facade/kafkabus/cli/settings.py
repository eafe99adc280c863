"""Settings of entities and rules, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import typer

from kafkabus.cli.durations import format_duration, iso_duration

if TYPE_CHECKING:
    from kafkabus.management import QueueProperties, SubscriptionProperties, TopicProperties

_CLEARED = ("forward_to", "forward_dead_lettered_messages_to")
"""Settings that an empty text clears."""


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
    if isinstance(value, timedelta):
        return iso_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _json_value(one) for name, one in asdict(value).items()}
    return value
