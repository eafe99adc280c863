"""Durations as the command line reads and writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus.cli.durations import format_duration, parse_duration, parse_moment
from kafkabus_mapping.durations import iso_duration
from kafkabus_mapping.entities import FOREVER


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172_800),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1h30m", 5400),
        (" 10S ", 10),
        ("PT30S", 30),
        ("pt1h30m", 5400),
        ("P1DT0.5S", 86_400.5),
        ("P7D", 604_800),
        ("0s", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """Both spellings, short and ISO 8601, are read in upper and lower case."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "soon", "1x", "30m1h", "P", "PT", "P1H", "1e9s", "٣s x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The message names the value, the rule and an example to write instead."""
    with pytest.raises(ValueError, match="write numbers with their units") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_a_forgotten_unit_is_suggested() -> None:
    """A bare number is refused, and shown with seconds."""
    with pytest.raises(ValueError, match=r"'30' is no duration: .* like 30s, or"):
        parse_duration("30")


@pytest.mark.parametrize("text", ["99999999d", "9" * 400 + "h"])
def test_too_long_durations_are_refused(text: str) -> None:
    """The service's longest duration is the longest."""
    with pytest.raises(ValueError, match="the longest duration is 10675199 days"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "short", "iso"),
    [
        (timedelta(), "0s", "PT0S"),
        (timedelta(seconds=90), "1m30s", "PT1M30S"),
        (timedelta(days=1), "1d", "P1D"),
        (timedelta(days=2, hours=3, milliseconds=500), "2d3h500ms", "P2DT3H0.5S"),
    ],
)
def test_durations_are_written(duration: timedelta, short: str, iso: str) -> None:
    """A duration that was written, for people or as ISO 8601, is read as the same duration."""
    assert (format_duration(duration), iso_duration(duration)) == (short, iso)
    assert parse_duration(short) == parse_duration(iso) == duration


def test_the_longest_duration_is_forever() -> None:
    """The service's default time to live is no readable number. In ISO 8601 it is as Azure writes it."""
    assert format_duration(FOREVER) == "forever"
    assert iso_duration(FOREVER) == "P10675199DT2H48M5.477581S"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 minutes", 300),
        ("1 hour and 30 minutes", 5400),
        ("2 days, 1 hr", 176_400),
        ("90 secs", 90),
        ("1.5 hours", 5400),
        ("20 milliseconds", 0.02),
    ],
)
def test_words(text: str, seconds: float) -> None:
    """Durations are written as people say them."""
    assert parse_duration(text) == timedelta(seconds=seconds)


NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOON),
        ("in 5 minutes", NOON + timedelta(minutes=5)),
        ("In 1h30m", NOON + timedelta(minutes=90)),
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31 12:00", NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31", NOON - timedelta(hours=12)),
    ],
)
def test_moments(text: str, moment: datetime) -> None:
    """Moments are in UTC unless they say otherwise."""
    assert parse_moment(text, NOON) == moment


@pytest.mark.parametrize("text", ["tomorrow", "in", "in a while", "2026-13-01", "", "in 10675199 days"])
def test_no_moments(text: str) -> None:
    """The error names the value."""
    with pytest.raises(
        ValueError, match=re.escape(repr(text)) if not text.startswith("in ") else "in|a while|year 9999"
    ):
        parse_moment(text, NOON)
