"""Records for the decode tests: the facade's own, those of other producers, and malformed ones."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal

from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, Headers, encode_headers
from kafkabus_mapping.properties import PropertyValue

PROPERTY_NAMES = ("a", "b", "ü", "with space")
"""Names of properties in the facade's records; no foreign header has one of them."""

TEXTS = (
    "",
    "plain",
    "with 'quotes' and \"more\"",
    "ümlaut ☃ 𝄞",
    "{",
    '{"uuid":"no tag"}',
    "[1]",
    "line\nbreak",
    "null",
    "0",
)
_BROKEN_PROPERTIES = (
    b"",
    b"{",
    b"[1]",
    b"null",
    b"12",
    b'"text"',
    b'{"a":[1]}',
    b'{"a":{"unknown":1}}',
    b'{"a":{"int":"1","uuid":"2"}}',
    b'{"a":{}}',
    b"{'a':1}",
    b'{"a":1} trailing',
    b'{"a":1},{"b":2}',
    b'{"a":1',
    b"\xff\xfe",
    b'{"a":{"int":null}}',
    b'{"a":{"int":true}}',
    b'{"a":{"bytes":5}}',
    b'{"a":{"uuid":5}}',
    b'{"a":{"datetime":5}}',
    b'{"a":{"timedelta":"5"}}',
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
)
_BROKEN_NUMBERS = (b"9" * 5000, b"", b"x", b"1.5", b"1e3", b"--1", b"1_", b"\xff", b"0x10")
_ODD_NUMBERS = (b" 12 ", b"+5", b"1_000", b"-7", b"007")


@dataclass(frozen=True)
class WrittenRecord:
    """A record to write to Kafka."""

    key: bytes | None
    headers: Headers


def generate_records(seed: int, count: int) -> Iterator[WrittenRecord]:
    """Yield so many records; equal seeds give equal records."""
    rng = random.Random(seed)
    makers: tuple[Callable[[random.Random], Headers], ...] = (_facade, _facade, _foreign, _mixed, _broken)
    for _ in range(count):
        key = rng.choice((None, b"", b"key", "schlüssel".encode(), b"\xff\xfe"))
        yield WrittenRecord(key, rng.choice(makers)(rng))


def _facade(rng: random.Random) -> Headers:
    def text() -> str | None:
        return rng.choice((None, *TEXTS))

    return encode_headers(
        Envelope(
            message_id=str(uuid.UUID(int=rng.getrandbits(128))),
            session_id=text(),
            partition_key=text(),
            correlation_id=text(),
            subject=text(),
            content_type=text(),
            to=text(),
            reply_to=text(),
            reply_to_session_id=text(),
            time_to_live=rng.choice((None, timedelta(milliseconds=rng.randrange(1, 10**12)), timedelta(days=10675199))),
            scheduled_enqueue_time_utc=rng.choice((None, datetime(2026, 1, 2, 3, 4, 5, 678000, timezone.utc))),
            application_properties={key: _property(rng) for key in rng.sample(PROPERTY_NAMES, rng.randrange(4))},
            body_type=rng.choice((None, "value", "sequence")),
            data_sections=rng.choice((None, "1,0", "9999", "x")),
            dead_letter_reason=text(),
            dead_letter_error_description=text(),
            dead_letter_source=text(),
            enqueued_sequence_number=rng.choice((None, 1, 15 << 48 | 77)),
            hops=rng.choice((None, 1, 4)),
        )
    )


def _property(rng: random.Random) -> PropertyValue:
    return rng.choice(
        (
            None,
            True,
            rng.choice(TEXTS),
            rng.randrange(-(10**6), 10**6),
            2**60 + rng.randrange(10**6),
            rng.random(),
            float("nan"),
            float("-inf"),
            rng.randbytes(7),
            uuid.UUID(int=rng.getrandbits(128)),
            datetime(2026, 5, 4, 3, 2, 1, rng.randrange(10**6), timezone.utc),
            timedelta(microseconds=rng.randrange(10**12)),
            Decimal(rng.randrange(-(10**33), 10**33)).scaleb(rng.randrange(-40, 40), Context(prec=34)),
        )
    )


def _foreign(rng: random.Random) -> Headers:
    names = ("traceparent", "x", "x", "", "SB-UPPER", "sb", "ünicode")
    return [
        (rng.choice(names), rng.choice((None, b"", b"1", b"\x80binary" * 20, "ü".encode())))
        for _ in range(rng.randrange(4))
    ]


def _mixed(rng: random.Random) -> Headers:
    """Return the facade's headers with foreign ones among them, and some repeated: the last counts."""
    headers = _facade(rng) + _foreign(rng) + _facade(rng)[: rng.randrange(4)] + _foreign(rng)
    if rng.random() < 0.5:
        headers.append((h.APPLICATION_PROPERTIES, json.dumps({"x": "shadows the foreign header", "n": 1}).encode()))
    return headers


def _broken(rng: random.Random) -> Headers:
    headers = _facade(rng)
    for _ in range(rng.randrange(1, 4)):
        spot = rng.randrange(len(headers) + 1)
        headers.insert(spot, rng.choice(_BREAKERS)(rng))
    return headers


def _broken_properties(rng: random.Random) -> tuple[str, bytes]:
    return h.APPLICATION_PROPERTIES, rng.choice(_BROKEN_PROPERTIES)


def _broken_number(rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice((h.TIME_TO_LIVE, h.SCHEDULED_ENQUEUE_TIME, h.ENQUEUED_SEQUENCE_NUMBER))
    return name, rng.choice(_BROKEN_NUMBERS + _ODD_NUMBERS)


def _broken_text(rng: random.Random) -> tuple[str, bytes | None]:
    names = (h.MESSAGE_ID, h.SESSION_ID, h.PARTITION_KEY, h.SUBJECT, h.DEAD_LETTER_REASON, h.ADDRESSED_TO, "sb-unknown")
    return rng.choice(names), rng.choice((None, b"\xff", b"\xed\xa0\x80", b"last"))


_BREAKERS: tuple[Callable[[random.Random], tuple[str, bytes | None]], ...] = (
    _broken_properties,
    _broken_number,
    _broken_text,
)
