"""Durations as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from kafkabus_mapping.entities import FOREVER

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_NUMBER = r"\d+(?:\.\d+)?"
_SHORT = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS))
_ISO = re.compile(
    rf"P(?:(?P<d>{_NUMBER})D)?(?:T(?=\d)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Read a duration: ``30s``, ``1h30m``, ``500ms``, or as ISO 8601 and Azure write it, ``PT30S``.

    Args:
        text: The duration, in either case.

    Raises:
        ValueError: It is none, or longer than the service's longest; the message names value, rule and remedy.
    """
    given = text.strip()
    match = _SHORT.fullmatch(given.lower()) or _ISO.fullmatch(given.upper())
    amounts = {} if match is None else {unit: amount for unit, amount in match.groupdict().items() if amount}
    if not amounts:
        raise ValueError(
            f"{text!r} is no duration: write numbers with their units d, h, m, s or ms, like {_example(given)}, "
            "or ISO 8601, like PT30S"
        )
    try:
        duration = sum((_UNITS[unit] * float(amount) for unit, amount in amounts.items()), timedelta())
    except OverflowError:
        duration = timedelta.max
    if duration > FOREVER:
        raise ValueError(f"{text!r} is too long: the longest duration is {FOREVER.days} days; give a shorter one")
    return duration


def format_duration(duration: timedelta) -> str:
    """Write a duration for people, and so that ``parse_duration`` reads it again: ``1m30s``.

    Args:
        duration: Not negative. The service's longest one is written ``forever``.
    """
    if duration >= FOREVER:
        return "forever"
    parts: list[str] = []
    rest = duration
    for unit, length in _UNITS.items():
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


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


def _example(given: str) -> str:
    # Who forgot the unit most likely meant seconds.
    return f"{given}s" if re.fullmatch(_NUMBER, given) else "30s or 1h30m"
