"""Values as AMQP 1.0 encodes them (part 1 of its specification, sections 1.2 to 1.6).

If AMQP has several types for one of Python's, Python's type represents the usual one and its subclasses the others, so
that a decoded value is encoded as it was. ``int`` is a ``long``, ``float`` a ``double``, ``str`` a ``string``, ``bytes`` a
``binary``, ``datetime`` a ``timestamp``, ``uuid.UUID`` a ``uuid``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

DEEPEST = 64
"""The maximum depth of nested values; the same as in Azure's SDK for Python."""
MOST_VALUES: Final = 1 << 32
"""The maximum number of elements unless another one is given."""
MOST_WITHOUT_BYTES = 65_536
"""The maximum number of zero-byte elements in all arrays of a value together; the size of the data does not bound them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)

_U8, _I8 = struct.Struct(">B"), struct.Struct(">b")
_U16, _I16 = struct.Struct(">H"), struct.Struct(">h")
_U32, _I32 = struct.Struct(">I"), struct.Struct(">i")
_U64, _I64 = struct.Struct(">Q"), struct.Struct(">q")
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")
_TWO_U8, _TWO_U32 = struct.Struct(">BB"), struct.Struct(">II")


MOST_NUMBERS_AS_KEYS: Final = 1_000
"""The most keys that are numbers, times or UUIDs, of the maps of a value that have more than a few keys."""
FEW_KEYS: Final = 16
"""How many keys of a map are few."""


class AmqpDecodeError(ValueError):
    """The bytes are not an AMQP value; the error says at which byte, and why."""


class UByte(int):
    """An unsigned number of 8 bits."""


class UShort(int):
    """An unsigned number of 16 bits."""


class UInt(int):
    """An unsigned number of 32 bits."""


class ULong(int):
    """An unsigned number of 64 bits."""


class Byte(int):
    """A number of 8 bits."""


class Short(int):
    """A number of 16 bits."""


class Int(int):
    """A number of 32 bits."""


class Float(float):
    """A binary floating point number of 32 bits."""


class Symbol(str):
    """A symbolic name in ASCII, such as the name of an annotation."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class Milliseconds(int):
    """A ``timestamp`` outside of the years that ``datetime`` supports, as milliseconds since 1970."""


class DecimalBits(bytes):
    """A decimal number of 32, 64 or 128 bits, as its 4, 8 or 16 encoded bytes."""


class Array(tuple[Any, ...]):
    """Values of one type; an array with values of several types cannot be encoded."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with a descriptor, which names its type in a higher layer.

    Attributes:
        descriptor: A ``ULong`` or a ``Symbol``.
        value: The value.
    """

    descriptor: Any
    value: Any


class _Reader:
    """Reads consecutive values from bytes.

    Args:
        data: The bytes.
        at: Index of the first byte to read.
        end: Index behind the last byte to read.
        most: The most elements of all compound values together.
    """

    __slots__ = ("at", "data", "depth", "end", "left", "most", "numbers_as_keys", "room")

    def __init__(self, data: bytes, at: int, end: int, most: int) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.depth = 0
        self.room = MOST_WITHOUT_BYTES
        self.numbers_as_keys = 0
        self.most = self.left = most

    def value(self) -> Any:
        return self.content(self.code())

    def code(self) -> int:
        code: int = self.numbers(_U8)[0]
        return code

    def numbers(self, form: struct.Struct) -> tuple[Any, ...]:
        at = self.at
        if at + form.size > self.end:
            raise AmqpDecodeError(f"at byte {at}: the data ends within a number of {form.size} bytes")
        self.at = at + form.size
        return form.unpack_from(self.data, at)

    def bytes(self, size: int) -> bytes:
        at = self.at
        if at + size > self.end:
            raise AmqpDecodeError(f"at byte {at}: of {size} bytes there are {self.end - at}")
        self.at = at + size
        return self.data[at : at + size]

    def content(self, code: int) -> Any:
        """Read the value that follows a constructor."""
        read = _READERS.get(code)
        if read is None:
            raise AmqpDecodeError(f"at byte {self.at - 1}: no AMQP type has the code 0x{code:02x}")
        if code >= 0xC0 or code == 0:
            self.depth += 1
            if self.depth > DEEPEST:
                raise AmqpDecodeError(f"at byte {self.at - 1}: nested deeper than {DEEPEST}")
            found = read(self)
            self.depth -= 1
            return found
        return read(self)

    def text(self, size: int, encoding: str = "utf-8") -> str:
        at = self.at
        try:
            return self.bytes(size).decode(encoding)
        except UnicodeDecodeError as error:
            raise AmqpDecodeError(f"at byte {at}: no {encoding} text: {error.reason}") from error

    def timestamp(self) -> datetime | Milliseconds:
        moment: int = self.numbers(_I64)[0]
        try:
            return _EPOCH + moment * _MILLISECOND
        except OverflowError:
            return Milliseconds(moment)

    def char(self) -> Char:
        (number,) = self.numbers(_U32)
        try:
            return Char(chr(number))
        except (ValueError, OverflowError) as error:
            raise AmqpDecodeError(f"at byte {self.at - 4}: {number} is no character") from error

    def boolean(self) -> bool:
        at = self.at
        number: int = self.numbers(_U8)[0]
        if number > 1:
            raise AmqpDecodeError(f"at byte {at}: {number} is no boolean")
        return number == 1

    def read_described(self) -> Described:
        return Described(self.value(), self.value())

    def read_bounds(self, form: struct.Struct) -> tuple[int, int]:
        """Read how many elements a compound value has, and at which byte it ends."""
        at = self.at
        (size,) = self.numbers(form)
        end = self.at + size
        if end > self.end:
            raise AmqpDecodeError(f"at byte {at}: of {size} bytes there are {self.end - self.at}")
        (count,) = self.numbers(form)
        self.left -= count
        if self.left < 0:
            raise AmqpDecodeError(f"at byte {at}: there are more than {self.most} elements of lists, maps and arrays")
        return count, end

    def check_end(self, at: int, end: int) -> None:
        """Check that the elements of a compound value end at the byte that its size names."""
        if self.at != end:
            raise AmqpDecodeError(f"at byte {at}: its elements end at byte {self.at}, but its size says byte {end}")

    def list(self, form: struct.Struct) -> list[Any]:
        at = self.at
        count, end = self.read_bounds(form)
        if count > end - self.at:
            raise AmqpDecodeError(f"at byte {at}: {count} elements do not fit into {end - self.at} bytes")
        outer, self.end = self.end, end
        found = [self.value() for _ in range(count)]
        self.end = outer
        self.check_end(at, end)
        return found

    def map(self, form: struct.Struct) -> dict[Any, Any]:
        at = self.at
        elements = self.list(form)
        if len(elements) % 2:
            raise AmqpDecodeError(f"at byte {at}: a map has {len(elements)} keys and values, which is odd")
        if len(elements) > 2 * FEW_KEYS:
            # Python's hashes of numbers are known to all: so many keys of one hash would take minutes.
            self.numbers_as_keys += sum(not isinstance(key, (str, bytes)) for key in elements[::2])
            if self.numbers_as_keys > MOST_NUMBERS_AS_KEYS:
                raise AmqpDecodeError(
                    f"at byte {at}: maps have {self.numbers_as_keys} keys that are no texts: they have at most "
                    f"{MOST_NUMBERS_AS_KEYS} together"
                )
        try:
            found = dict(zip(elements[::2], elements[1::2], strict=True))
        except TypeError as error:
            raise AmqpDecodeError(f"at byte {at}: a key of a map is a list or a map") from error
        if len(found) * 2 < len(elements):
            # Keys of two types may be equal in Python, as 1 and true are; one of them would get lost.
            raise AmqpDecodeError(f"at byte {at}: a map has a key twice")
        return found

    def array(self, form: struct.Struct) -> Array:
        at = self.at
        count, end = self.read_bounds(form)
        outer, self.end = self.end, end
        code, descriptors = self.code(), list[Any]()
        while code == 0:
            descriptors.append(self.value())
            code = self.code()
        if code >> 4 == 4:
            room, self.room = self.room, self.room - count
        else:
            room = end - self.at
        if count > room or len(descriptors) > DEEPEST:
            raise AmqpDecodeError(f"at byte {at}: {count} elements do not fit into {end - self.at} bytes")
        found: list[Any] = []
        for _ in range(count):
            value = self.content(code)
            for descriptor in reversed(descriptors):
                value = Described(descriptor, value)
            found.append(value)
        self.end = outer
        self.check_end(at, end)
        return Array(found)


def _number(form: struct.Struct, kind: Callable[[Any], Any] | None = None) -> Callable[[_Reader], Any]:
    if kind is None:
        return lambda reader: reader.numbers(form)[0]
    return lambda reader: kind(reader.numbers(form)[0])


def _sized_reader(form: struct.Struct, read: Callable[[_Reader, int], Any]) -> Callable[[_Reader], Any]:
    return lambda reader: read(reader, reader.numbers(form)[0])


def _symbol(reader: _Reader, size: int) -> Symbol:
    return Symbol(reader.text(size, "ascii"))


_READERS: dict[int, Callable[[_Reader], Any]] = {
    0x00: _Reader.read_described,
    0x40: lambda _: None,
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x43: lambda _: UInt(0),
    0x44: lambda _: ULong(0),
    0x45: lambda _: [],
    0x50: _number(_U8, UByte),
    0x51: _number(_I8, Byte),
    0x52: _number(_U8, UInt),
    0x53: _number(_U8, ULong),
    0x54: _number(_I8, Int),
    0x55: _number(_I8),
    0x56: _Reader.boolean,
    0x60: _number(_U16, UShort),
    0x61: _number(_I16, Short),
    0x70: _number(_U32, UInt),
    0x71: _number(_I32, Int),
    0x72: _number(_F32, Float),
    0x73: _Reader.char,
    0x74: lambda reader: DecimalBits(reader.bytes(4)),
    0x80: _number(_U64, ULong),
    0x81: _number(_I64),
    0x82: _number(_F64),
    0x83: _Reader.timestamp,
    0x84: lambda reader: DecimalBits(reader.bytes(8)),
    0x94: lambda reader: DecimalBits(reader.bytes(16)),
    0x98: lambda reader: uuid.UUID(bytes=reader.bytes(16)),
    0xA0: _sized_reader(_U8, _Reader.bytes),
    0xA1: _sized_reader(_U8, _Reader.text),
    0xA3: _sized_reader(_U8, _symbol),
    0xB0: _sized_reader(_U32, _Reader.bytes),
    0xB1: _sized_reader(_U32, _Reader.text),
    0xB3: _sized_reader(_U32, _symbol),
    0xC0: lambda reader: reader.list(_U8),
    0xC1: lambda reader: reader.map(_U8),
    0xD0: lambda reader: reader.list(_U32),
    0xD1: lambda reader: reader.map(_U32),
    0xE0: lambda reader: reader.array(_U8),
    0xF0: lambda reader: reader.array(_U32),
}
"""Functions that read the content of a value, by the code of its type."""


def decode(data: bytes, at: int = 0, most_values: int = MOST_VALUES) -> tuple[Any, int]:
    """Decode the value that begins at a byte.

    Args:
        data: The bytes; those behind the value are ignored.
        at: Index of the value's first byte.
        most_values: The most elements of all lists, maps and arrays together; each takes about a microsecond.

    Returns:
        The value, and the index behind its last byte.

    Raises:
        AmqpDecodeError: The bytes there are not an AMQP value.
    """
    value, at, _ = decode_counted(data, at, most_values)
    return value, at


def decode_counted(data: bytes, at: int, most_values: int) -> tuple[Any, int, int]:
    """Decode a value as ``decode`` does; return the number of elements as well, each of which takes about 64 bytes."""
    reader = _Reader(data, at, len(data), most_values)
    return reader.value(), reader.at, most_values - reader.left


def encode(value: Any) -> bytes:
    """Encode a value in the shortest encoding of its type.

    Raises:
        TypeError: AMQP has no such type, or the values of an array have several types.
        ValueError: A number is out of its type's bounds, or a symbol is not ASCII.
    """
    return _encode(value, 0)


def _encode(value: Any, depth: int) -> bytes:
    kind: type[Any] = type(value)
    write = _WRITERS.get(kind)
    if write is not None:
        try:
            return write(value)
        except _UNWRITABLE as error:
            raise _out_of_bounds(value) from error
    if depth > DEEPEST:
        raise ValueError(f"values are nested deeper than {DEEPEST}")
    if kind is Described:
        return b"\0" + _encode(value.descriptor, depth + 1) + _encode(value.value, depth + 1)
    if kind is Array:
        return _array(value, depth)
    if isinstance(value, Mapping):
        return _compound(0xC1, [part for item in value.items() for part in item], depth)
    if isinstance(value, (list, tuple)):
        return _compound(0xC0, value, depth) if value else b"\x45"
    return _encode_subclass(value)


def _encode_subclass(value: Any) -> bytes:
    """Encode a value of a type that an application derived from one of AMQP's."""
    for known, write in _WRITERS.items():
        if isinstance(value, known):
            try:
                return write(value)
            except _UNWRITABLE as error:
                raise _out_of_bounds(value) from error
    raise TypeError(f"{value!r:.80} is {type(value).__name__}: AMQP has no such type")


_UNWRITABLE = (struct.error, OverflowError, KeyError)
"""Errors of functions that encode a value which its type does not have."""


def _out_of_bounds(value: Any) -> ValueError:
    return ValueError(f"{value!r:.80} is out of the bounds of AMQP's {type(value).__name__.lower()}")


def _compound(code: int, elements: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    content = b"".join([_encode(element, depth + 1) for element in elements])
    return _frame(code, len(elements), content)


def _frame(code: int, count: int, content: bytes) -> bytes:
    if count < 256 and len(content) < 255:
        return bytes((code, len(content) + 1, count)) + content
    return bytes((code + 0x10,)) + _TWO_U32.pack(len(content) + 4, count) + content


def _array(value: Array, depth: int) -> bytes:
    encoded = [_encode_in_array(element, depth + 1) for element in value] or [(b"\x40", b"")]
    constructors = {constructor for constructor, _ in encoded}
    if len(constructors) > 1:
        raise TypeError(f"the values of an AMQP array are all of one type: {value!r:.80}")
    content = constructors.pop() + b"".join([content for _, content in encoded])
    return _frame(0xE0, len(value), content)


def _encode_in_array(value: Any, depth: int) -> tuple[bytes, bytes]:
    """Return a constructor that fits all values of the value's type, and the value's content."""
    if type(value) is Described:
        constructor, content = _encode_in_array(value.value, depth)
        return b"\0" + _encode(value.descriptor, depth) + constructor, content
    encoded = _encode(value, depth)
    wide = _WIDE.get(encoded[0])
    if wide is None:
        return encoded[:1], encoded[1:]
    code, pad = wide
    return bytes((code,)), pad(encoded)


def _widen(encoded: bytes) -> bytes:
    """Replace the one-byte size of an encoded value by four bytes."""
    return _U32.pack(encoded[1]) + encoded[2:]


def _widen_compound(encoded: bytes) -> bytes:
    if encoded[0] == 0x45:
        return _TWO_U32.pack(4, 0)
    return _TWO_U32.pack(encoded[1] + 3, encoded[2]) + encoded[3:]


_WIDE: dict[int, tuple[int, Callable[[bytes], bytes]]] = {
    0x41: (0x56, lambda _: b"\1"),
    0x42: (0x56, lambda _: b"\0"),
    0x43: (0x70, lambda _: _U32.pack(0)),
    0x44: (0x80, lambda _: _U64.pack(0)),
    0x45: (0xD0, _widen_compound),
    0x52: (0x70, lambda encoded: _U32.pack(encoded[1])),
    0x53: (0x80, lambda encoded: _U64.pack(encoded[1])),
    0x54: (0x71, lambda encoded: _I32.pack(*_I8.unpack_from(encoded, 1))),
    0x55: (0x81, lambda encoded: _I64.pack(*_I8.unpack_from(encoded, 1))),
    0xA0: (0xB0, _widen),
    0xA1: (0xB1, _widen),
    0xA3: (0xB3, _widen),
    0xC0: (0xD0, _widen_compound),
    0xC1: (0xD1, _widen_compound),
    0xE0: (0xF0, _widen_compound),
}
"""Wide constructors by the short ones that they replace in arrays, whose values share one constructor."""


def _short(small: int, large: int, form: struct.Struct, lowest: int, highest: int) -> Callable[[int], bytes]:
    """Return a function that encodes a number in one byte if it fits, else in the large form."""

    def write(value: int) -> bytes:
        if lowest <= value <= highest:
            return bytes((small, value & 0xFF))
        return bytes((large,)) + form.pack(value)

    return write


def _unsigned_encoder(zero: int, small: int, large: int, form: struct.Struct) -> Callable[[int], bytes]:
    write = _short(small, large, form, 1, 255)
    return lambda value: write(value) if value else bytes((zero,))


def _variable(code: int, content: bytes) -> bytes:
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code + 0x10,)) + _U32.pack(len(content)) + content


def _fixed_encoder(code: int, form: struct.Struct) -> Callable[[Any], bytes]:
    head = bytes((code,))
    return lambda value: head + form.pack(value)


def _encode_symbol(value: str) -> bytes:
    try:
        return _variable(0xA3, value.encode("ascii"))
    except UnicodeEncodeError as error:
        raise ValueError(f"{str(value)!r} is no AMQP symbol: it is not ASCII") from error


def _encode_text(value: str) -> bytes:
    try:
        return _variable(0xA1, value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{value!r:.80} holds half of a surrogate pair: it is no text") from error


def _encode_moment(value: datetime) -> bytes:
    aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return b"\x83" + _I64.pack((aware - _EPOCH) // _MILLISECOND)


_WRITERS: dict[type[Any], Callable[[Any], bytes]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    str: _encode_text,
    bytes: lambda value: _variable(0xA0, value),
    int: _short(0x55, 0x81, _I64, -128, 127),
    float: _fixed_encoder(0x82, _F64),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    datetime: _encode_moment,
    UByte: _fixed_encoder(0x50, _U8),
    UShort: _fixed_encoder(0x60, _U16),
    UInt: _unsigned_encoder(0x43, 0x52, 0x70, _U32),
    ULong: _unsigned_encoder(0x44, 0x53, 0x80, _U64),
    Byte: _fixed_encoder(0x51, _I8),
    Short: _fixed_encoder(0x61, _I16),
    Int: _short(0x54, 0x71, _I32, -128, 127),
    Float: _fixed_encoder(0x72, _F32),
    Symbol: _encode_symbol,
    Char: lambda value: b"\x73" + _U32.pack(ord(value)),
    Milliseconds: _fixed_encoder(0x83, _I64),
    DecimalBits: lambda value: {4: b"\x74", 8: b"\x84", 16: b"\x94"}[len(value)] + value,
    bytearray: lambda value: _variable(0xA0, bytes(value)),
}
"""Functions that encode a value, by its type."""
