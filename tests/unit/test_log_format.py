"""Log lines as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from kafkabus._runtime.log_format import JsonFormatter, TextFormatter
from kafkabus._runtime.repetitions import RepetitionFilter


def record(message: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    """Return a warning, logged at the end of the first day of 1970."""
    caught = None
    if error:
        try:
            raise ValueError("broken")
        except ValueError:
            caught = sys.exc_info()
    made = logging.LogRecord("kafkabus.upkeep", logging.WARNING, "", 0, message, arguments, caught)
    made.created = 86_399.9994
    return made


def in_json(made: logging.LogRecord) -> dict[str, Any]:
    """Return the members of a record's line."""
    line = JsonFormatter().format(made)
    assert "\n" not in line
    members = json.loads(line)
    assert isinstance(members, dict)
    return members


def test_an_event_s_values_are_members() -> None:
    """Numbers stay numbers; what follows the values is in the message alone."""
    made = record("full entity=%s partitions=%s limit_mb=%d: 100%% of it", "orders", [1, 2], 1024)
    assert in_json(made) == {
        "time": "1970-01-01T23:59:59.999Z",
        "level": "warning",
        "logger": "kafkabus.upkeep",
        "message": "full entity=orders partitions=[1, 2] limit_mb=1024: 100% of it",
        "event": "full",
        "entity": "orders",
        "partitions": "[1, 2]",
        "limit_mb": 1024,
    }


def test_a_message_without_named_values_has_no_event() -> None:
    """That is so for other libraries' lines, whose places have no names."""
    assert in_json(record("%s [%s] %s", "FAIL", "rdkafka#1", "no broker")).keys() == {
        "time",
        "level",
        "logger",
        "message",
    }


def test_a_value_hides_no_other_member() -> None:
    """It gets another name."""
    members = in_json(record("odd level=%s time=%s", "high", 5))
    assert (members["level"], members["level_"], members["time_"]) == ("warning", "high", 5)


def test_a_traceback_is_a_member_of_the_same_line() -> None:
    """In text, it follows on lines of its own."""
    assert "ValueError: broken" in in_json(record("upkeep_entity entity=%s", "orders", error=True))["exception"]
    first, *rest = TextFormatter().format(record("upkeep_entity entity=%s", "orders", error=True)).splitlines()
    assert first == "1970-01-01T23:59:59.999Z WARNING kafkabus.upkeep: upkeep_entity entity=orders"
    assert rest[-1] == "ValueError: broken"


def test_left_out_lines_are_counted() -> None:
    """The line that passes after a period says how many did not."""
    now = [0.0]
    repetitions = RepetitionFilter(60.0, lambda: now[0])
    for _ in range(3):
        repetitions.filter(record("upkeep_entity entity=%s", "orders"))
    now[0] = 61.0
    last = record("upkeep_entity entity=%s", "orders")
    assert repetitions.filter(last)
    assert (in_json(last)["left_out"], in_json(last)["event"]) == (2, "upkeep_entity")
