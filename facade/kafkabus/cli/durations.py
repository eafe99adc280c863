"""Parsing and formatting of durations and times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from kafkabus_mapping.entities import FOREVER

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_WORDS = {"day": "d", "hour": "h", "hr": "h", "minute": "m", "min": "m", "second": "s", "sec": "s", "millisecond": "ms"}
_NUMBER = r"\d+(?:\.\d+)?"
_SHORT = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS))
_ISO = re.compile(
    rf"P(?:(?P<d>{_NUMBER})D)?(?:T(?=\d)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Read a duration: ``30s``, ``1h30m``, ``5 minutes``, or as ISO 8601 and Azure write it, ``PT30S``.

    Args:
        text: The duration, in either case.

    Raises:
        ValueError: The text is not a duration, or exceeds the service's longest; the error names value, rule and remedy.
    """
    given = text.strip()
    match = _SHORT.fullmatch(_abbreviate_units(given.lower())) or _ISO.fullmatch(given.upper())
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


def parse_moment(text: str, now: datetime) -> datetime:
    """Read a time: ISO 8601, as in ``2030-01-31T12:00:00+01:00``, in UTC if it names no zone; or ``in 5 minutes``.

    Args:
        text: The time.
        now: The time that ``in …`` is relative to, in UTC.

    Raises:
        ValueError: The text is not a time; the error names value, rule and remedy.
    """
    given = text.strip()
    if given.lower() == "now":
        return now
    if given.lower().startswith("in "):
        try:
            return now + parse_duration(given[3:])
        except OverflowError as error:
            raise ValueError(f"{text!r} is after the year 9999: choose an earlier time") from error
    try:
        # Python 3.10 does not accept Z.
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", given))
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no time: write 'in 5 minutes', or ISO 8601, like 2030-01-31T12:00:00 (UTC) or "
            "2030-01-31T12:00:00+01:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _abbreviate_units(text: str) -> str:
    """Replace the words of units in a duration, as in ``1 hour and 30 minutes``, by their letters."""
    for word, unit in _WORDS.items():
        text = re.sub(rf"(?<=[\d ]){word}s?\b", unit, text)
    return re.sub(r"\s+|,|\band\b", "", text)


def format_duration(duration: timedelta) -> str:
    """Write a duration for people, in a form that ``parse_duration`` accepts: ``1m30s``.

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


def _example(given: str) -> str:
    # A number without a unit most likely means seconds.
    return f"{given}s" if re.fullmatch(_NUMBER, given) else "30s or 1h30m"
