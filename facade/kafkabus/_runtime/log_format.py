"""Forms of log lines: for people, and as JSON for programs.

Messages open with the name of the event, then values by name: ``upkeep_entity entity=%s error=%s``. In JSON, the name and the
values are separate members, so that a search needs no regular expression.
"""

from __future__ import annotations

import json
import logging
import re
import textwrap
from collections.abc import Iterator
from datetime import datetime, timezone

from typing_extensions import override

from kafkabus._runtime.repetitions import LEFT_OUT

_EVENT = re.compile(r"([a-z]+(?:_[a-z]+)*)(?= \w+=%)")
"""The name of the event at the beginning of a message's template, if values by name follow it."""
_NOT_PLAIN = re.compile(r"[\s=\"]")
"""Characters that end a value in a line."""
_PLACE = re.compile(r"(?:(?P<name>\w+)=)?%(?:%|(?P<kind>[-#0 +]*[\d.]*[a-zA-Z]))")
"""A place of a template that takes an argument, with the name before it; ``%%`` takes none."""


LONGEST_VALUE = 200
"""The most characters that a line shows of a client's value; of an error, it shows twice as many."""


def in_one_line(text: str) -> str:
    """Return a text with escapes in place of characters that end lines, control terminals or are not seen."""
    return text if text.isprintable() else "".join(map(_escape, text))


def shown_name(value: object) -> str:
    """Return a name that a client chose, for a line: clipped, and quoted if it could be taken for more of the line."""
    text = _clip(str(value), LONGEST_VALUE)
    is_plain = text.isprintable() and text != "" and _NOT_PLAIN.search(text) is None
    return text if is_plain else in_one_line(json.dumps(text, ensure_ascii=False))


def shown_error(error: object) -> str:
    """Return an error, which may have words of a client, for the end of a line: clipped, and in one line."""
    return in_one_line(_clip(str(error), 2 * LONGEST_VALUE))


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class TextFormatter(logging.Formatter):
    """Writes a record as a line: time, level, logger and message; a traceback follows on lines that begin with spaces."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        line = f"{_time_of(record)} {record.levelname} {record.name}: {in_one_line(record.getMessage())}"
        # An error may have words of a client: none of them begins a line that could be taken for another record.
        traced = (in_one_line(traced_line) for traced_line in _trace_of(record).splitlines())
        return "\n".join([line, *(textwrap.indent(traced_line, "  ") for traced_line in traced)])


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object on one line.

    Its members are ``time``, ``level``, ``logger``, ``message``, the event's name as ``event`` if it has one, the message's
    named values, ``left_out`` if lines like it were left out before, and ``exception`` if there is a traceback. A value that
    would hide one of these members gets an underscore.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        members: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = _EVENT.match(str(record.msg))
        if event is not None:
            members["event"] = event[1]
        if LEFT_OUT in record.__dict__:
            members[LEFT_OUT] = record.__dict__[LEFT_OUT]
        if trace := _trace_of(record):
            members["exception"] = trace
        for name, value in named_values(record):
            members[f"{name}_" if name in members else name] = value
        line = json.dumps(members, ensure_ascii=False, default=str)
        # All characters outside of texts are printable.
        return line if line.isprintable() else "".join(map(_escaped_in_json, line))


def named_values(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield the names and the values that a record's message gives as ``name=%s``."""
    if not isinstance(record.args, tuple):
        return
    places = [place for place in _PLACE.finditer(str(record.msg)) if place["kind"] is not None]
    for place, value in zip(places, record.args, strict=False):
        if place["name"] is not None:
            yield place["name"], value if isinstance(value, (bool, int, float)) or value is None else str(value)


def _escaped_in_json(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _time_of(record: logging.LogRecord) -> str:
    """Return a record's time in UTC, as ISO 8601 writes it, to the millisecond."""
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace_of(record: logging.LogRecord) -> str:
    return "" if record.exc_info is None else logging.Formatter().formatException(record.exc_info)
