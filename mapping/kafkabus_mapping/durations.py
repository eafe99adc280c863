"""Durations as text."""

from __future__ import annotations

from datetime import timedelta


def iso_duration(duration: timedelta) -> str:
    """Write a duration as ISO 8601 and Azure do: ``PT1M30S``."""
    hours, rest = divmod(duration - timedelta(days=duration.days), timedelta(hours=1))
    minutes, rest = divmod(rest, timedelta(minutes=1))
    seconds = (
        f"{rest.seconds}.{rest.microseconds:06}".rstrip("0").rstrip(".") if rest.microseconds else f"{rest.seconds}"
    )
    days = f"{duration.days}D" if duration.days else ""
    time = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes) + f"{seconds}S" * bool(rest)
    return f"P{days}T{time}" if time else f"P{days}" if days else "PT0S"
