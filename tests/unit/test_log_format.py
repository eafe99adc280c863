"""Log lines as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from kafkabus._runtime.log_format import JsonFormatter, TextFormatter, shown_error, shown_name
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
    """In text, it follows on separate lines."""
    assert "ValueError: broken" in in_json(record("upkeep_entity entity=%s", "orders", error=True))["exception"]
    first, *rest = TextFormatter().format(record("upkeep_entity entity=%s", "orders", error=True)).splitlines()
    assert first == "1970-01-01T23:59:59.999Z WARNING kafkabus.upkeep: upkeep_entity entity=orders"
    assert rest[-1] == "  ValueError: broken"


FORGED = "x\r\n1970-01-01T00:00:00.000Z INFO kafkabus.gateway: link_refused\x1b[2J\u2028\u202e\x85\x7f\U000e0001\ud800"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_value_begins_no_line(formatter: logging.Formatter) -> None:
    """Nor does it control the terminal of a reader, or change what is seen."""
    line = formatter.format(record("connection_opened container=%s", FORGED))
    assert line.isprintable()
    assert "1970" in line


def test_json_keeps_what_it_escapes() -> None:
    """A program gets the value as it was."""
    assert in_json(record("connection_opened container=%s", FORGED))["container"] == FORGED


def test_the_text_of_an_error_begins_no_line() -> None:
    """A record begins with its time; lines of a traceback begin with spaces."""
    try:
        raise ValueError(FORGED)
    except ValueError:
        made = logging.LogRecord("kafkabus.gateway", logging.ERROR, "", 0, "unexpected error", (), sys.exc_info())
    first, *rest = TextFormatter().format(made).splitlines()
    assert first.endswith("kafkabus.gateway: unexpected error")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("link-1", "link-1"),
        ("überall/七", "überall/七"),
        (None, "None"),
        ("", '""'),
        ("a peer=10.0.0.1", '"a peer=10.0.0.1"'),
        ('"', r'"\""'),
        ("a\nb\x85", r'"a\nb\x85"'),
        ("x" * 1_000, "x" * 200 + "…"),
        ("\n" * 1_000, '"' + r"\n" * 200 + '…"'),
    ],
)
def test_a_name_is_one_value_of_a_line(name: object, shown: str) -> None:
    """Others are quoted, and long ones clipped."""
    assert shown_name(name) == shown


def test_an_error_is_clipped() -> None:
    """It may have spaces: it is the last of a line."""
    assert shown_error(ValueError("a b\nc")) == r"a b\nc"
    assert len(shown_error("x" * 1_000)) == 401


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
