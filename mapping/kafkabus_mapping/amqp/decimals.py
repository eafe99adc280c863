"""AMQP's decimals: IEEE 754-2008's formats of 32, 64 and 128 bits, with the significand as a binary integer.

AMQP 1.0, part 1, sections 1.6.13 to 1.6.15.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from kafkabus_mapping.amqp.types import DecimalBits

MOST_DIGITS: Final = 34
"""The most significant digits of a decimal of 128 bits."""


class _Format(NamedTuple):
    """One of the formats.

    Attributes:
        exponent_bits: How many bits the exponent has.
        significand_bits: How many bits the significand has in the usual form; in the other one, it has three more, 100.
        bias: The difference between the stored exponent and the one that is meant.
        digits: The most digits of the significand.
    """

    exponent_bits: int
    significand_bits: int
    bias: int
    digits: int


_FORMATS: Final = {4: _Format(8, 23, 101, 7), 8: _Format(10, 53, 398, 16), 16: _Format(14, 113, 6176, MOST_DIGITS)}
"""The formats by their numbers of bytes."""
_LARGE: Final = _FORMATS[16]
SMALLEST_EXPONENT: Final = -_LARGE.bias
LARGEST_EXPONENT: Final = (3 << (_LARGE.exponent_bits - 2)) - 1 - _LARGE.bias
_OF_DOTNET: Final = range(-4608 - 28, -4608 + 1)
"""Exponents that encode those of 0 to -28: .NET's client (Microsoft.Azure.Amqp) shifts the upper bits by 9 in place of 7."""


def decimal_of(bits: DecimalBits) -> Decimal:
    """Return the number that bits encode; see ``_OF_DOTNET`` for what is read otherwise than the specification says.

    Raises:
        ValueError: The bits encode an infinity, or no number.
    """
    layout = _FORMATS[len(bits)]
    raw = int.from_bytes(bits, "big")
    sign = raw >> (len(bits) * 8 - 1)
    width = layout.significand_bits
    if (raw >> (width + layout.exponent_bits - 4)) & 0b1111 == 0b1111:
        raise ValueError(f"the decimal {bits.hex()} is an infinity, or no number: send a finite one, or text")
    lead = 0
    if (raw >> (width + layout.exponent_bits - 2)) & 0b11 == 0b11:
        lead, width = 0b100 << (width - 2), width - 2
    exponent = ((raw >> width) & ((1 << layout.exponent_bits) - 1)) - layout.bias
    significand = lead | raw & ((1 << width) - 1)
    if significand >= 10**layout.digits:
        significand = 0  # As the standard says of such encodings.
    if len(bits) == 16 and exponent in _OF_DOTNET:
        exponent += -_OF_DOTNET[-1]
    return Decimal((sign, tuple(map(int, str(significand))), exponent))


def bits_of(value: Decimal) -> DecimalBits:
    """Return a number in the format of 128 bits.

    Raises:
        ValueError: It is an infinity or no number, has more than 34 digits, or too large or small an exponent.
    """
    check_decimal("a decimal", value)
    significand, scale = parts_of(value)
    raw = value.is_signed() << 127 | (_LARGE.bias - scale) << _LARGE.significand_bits | abs(significand)
    return DecimalBits(raw.to_bytes(16, "big"))


def parts_of(value: Decimal) -> tuple[int, int]:
    """Return a finite number as an integer and its scale: how many of the integer's digits are behind the point."""
    sign, digits, exponent = value.as_tuple()
    significand = int("".join(map(str, digits)))
    return -significand if sign else significand, -int(exponent)


def check_decimal(name: str, value: Decimal) -> None:
    """Check that AMQP can carry a number as it is.

    Args:
        name: Its name, for errors.
        value: The number.

    Raises:
        ValueError: It is an infinity or no number, has more than 34 digits, or too large or small an exponent.
    """
    if not value.is_finite():
        raise ValueError(f"{name} is {value}: send a finite number, or text")
    significand, scale = parts_of(value)
    if abs(significand) >= 10**MOST_DIGITS:
        raise ValueError(
            f"{name} is {value!s:.60}, which has more than {MOST_DIGITS} digits: AMQP carries no more; round it, or send text"
        )
    if not SMALLEST_EXPONENT <= -scale <= LARGEST_EXPONENT:
        raise ValueError(
            f"{name} is {value}: AMQP's exponents are from {SMALLEST_EXPONENT} to {LARGEST_EXPONENT}; round it, or send text"
        )
