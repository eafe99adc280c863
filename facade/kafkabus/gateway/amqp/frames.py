"""Frames: the pieces of a connection's bytes (part 2 of AMQP 1.0's specification, section 2.3)."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from kafkabus.gateway.amqp.conditions import DECODE_ERROR, FRAMING_ERROR, AmqpError
from kafkabus.gateway.amqp.performatives import Composite, decode_composite
from kafkabus_mapping.amqp.types import AmqpDecodeError, Described, decode_counted

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

SMALLEST_MAX_FRAME: Final = 512
"""The smallest maximum size of frames that a peer may set, in bytes."""
MOST_VALUES: Final = 4_096
"""The most elements of all lists, maps and arrays of a performative: a frame of 64 KB may have 60,000, which take 0.1 s."""
FEW_ELEMENTS: Final = 100
"""How many elements of a performative are not counted: each has as many, in the fields that it has to have."""
ELEMENT_BYTES: Final = 64
"""About how many bytes of memory an element takes."""
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A frame without a performative, which keeps a connection alive."""

_HEAD = struct.Struct(">IBBH")
HEAD_BYTES: Final = _HEAD.size
"""How many bytes of a frame precede its performative."""


class Frame(NamedTuple):
    """A frame.

    Attributes:
        kind: ``AMQP_FRAME`` or ``SASL_FRAME``.
        channel: The session's channel.
        performative: Its statement; None if it is empty.
        payload: The bytes behind the performative.
        kept: About how many bytes of memory the performative takes.
    """

    kind: int
    channel: int
    performative: Composite | None
    payload: bytes
    kept: int = 0


class FrameReader:
    """Cuts a stream of bytes into frames.

    Attributes:
        largest: The size of the largest frame that is read, in bytes.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._buffer = bytearray()

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes that came."""
        self._buffer += data

    def clear(self) -> None:
        """Forget the bytes that came."""
        self._buffer = bytearray()

    def header(self) -> bytes | None:
        """Return the protocol header that the bytes begin with; None as long as it is not there as a whole."""
        if len(self._buffer) < HEADER_SIZE:
            return None
        header = bytes(self._buffer[:HEADER_SIZE])
        del self._buffer[:HEADER_SIZE]
        return header

    def frame(self) -> Frame | None:
        """Return the next frame; None as long as it is not there as a whole.

        Raises:
            AmqpError: The bytes are no frame.
        """
        if len(self._buffer) < _HEAD.size:
            return None
        size, offset, kind, channel = _HEAD.unpack_from(self._buffer)
        if size > self.largest:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size} bytes is larger than {self.largest}")
        body = offset * 4
        if not _HEAD.size <= body <= size:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size} bytes has its body at byte {body}")
        if kind not in {AMQP_FRAME, SASL_FRAME}:
            raise AmqpError(FRAMING_ERROR, f"no frame is of type {kind}")
        if len(self._buffer) < size:
            return None
        content = bytes(self._buffer[body:size])
        del self._buffer[:size]
        return _frame(kind, channel, content)


def _frame(kind: int, channel: int, content: bytes) -> Frame:
    if not content:
        return Frame(kind, channel, None, b"")
    try:
        value, at, elements = decode_counted(content, 0, MOST_VALUES)
    except AmqpDecodeError as error:
        raise AmqpError(DECODE_ERROR, f"a frame's performative does not decode: {error}") from error
    performative = decode_composite(value) if isinstance(value, Described) else value
    if not isinstance(performative, Composite):
        raise AmqpError(DECODE_ERROR, f"{value!r:.60} is no performative")
    return Frame(kind, channel, performative, content[at:], at + ELEMENT_BYTES * max(0, elements - FEW_ELEMENTS))


def frame_of(channel: int, performative: bytes, payload: bytes = b"", kind: int = AMQP_FRAME) -> bytes:
    """Return an encoded frame.

    Args:
        channel: The session's channel.
        performative: The encoded performative.
        payload: The bytes behind it.
        kind: ``AMQP_FRAME`` or ``SASL_FRAME``.
    """
    size = _HEAD.size + len(performative) + len(payload)
    return b"".join((_HEAD.pack(size, 2, kind, channel), performative, payload))


def described(value: object) -> Any:
    """Return a value of a message; a composite if it is one.

    Raises:
        AmqpError: A field of the composite is missing, or of a type that it cannot have.
    """
    return decode_composite(value) if isinstance(value, Described) else value
