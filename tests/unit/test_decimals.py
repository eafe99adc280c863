"""AMQP's decimals, as Python's, and back."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus_mapping.amqp.decimals import LARGEST_EXPONENT, SMALLEST_EXPONENT, bits_of, check_decimal, decimal_of
from kafkabus_mapping.amqp.types import DecimalBits


@given(
    st.booleans(),
    st.integers(0, 10**34 - 1),
    st.integers(SMALLEST_EXPONENT, LARGEST_EXPONENT).filter(lambda exponent: not -4636 <= exponent <= -4608),
)
def test_a_decimal_of_128_bits_comes_back(negative: bool, digits: int, exponent: int) -> None:
    """With its zeros and its sign."""
    value = Decimal((negative, tuple(map(int, str(digits))), exponent))
    assert str(decimal_of(bits_of(value))) == str(value)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        # By the standard: the exponent's bias is 101, 398 and 6176.
        ("32800005", "5"),
        ("b1800019", "-0.25"),
        ("6cb8967f", "9999999"),
        ("77f8967f", "9.999999E+96"),
        ("31c0000000000001", "1"),
        ("b1a000000000000f", "-1.5"),
        ("6c7386f26fc0ffff", "9999999999999999"),
        ("303c00000000000000000000000004e2", "12.50"),
        ("b0400000000000000000000000000003", "-3"),
        # More digits than the format has are zero.
        ("6cb89680", "0"),
        # As .NET's client encodes 12.50m, -3m and 0.0000000000000000000000000001m.
        ("0c3c00000000000000000000000004e2", "12.50"),
        ("8c400000000000000000000000000003", "-3"),
        ("0c080000000000000000000000000001", "1E-28"),
    ],
)
def test_bits_are_a_number(bits: str, text: str) -> None:
    """In each of the three formats, and in both forms of the significand."""
    assert str(decimal_of(DecimalBits(bytes.fromhex(bits)))) == text


@pytest.mark.parametrize("bits", ["78000000", "f8000000", "7c000000", "7e000000", "78" + 7 * "00", "7c" + 15 * "00"])
def test_infinities_and_nan_are_refused(bits: str) -> None:
    """The error says what to send."""
    with pytest.raises(
        ValueError, match=f"the decimal {bits} is an infinity, or no number: send a finite one, or text"
    ):
        decimal_of(DecimalBits(bytes.fromhex(bits)))


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-Infinity", "9" * 35, "1E+6112", "1E-6177"])
def test_a_decimal_that_amqp_cannot_carry_is_refused(text: str) -> None:
    """By its name."""
    with pytest.raises(ValueError, match=r"^price is "):
        check_decimal("price", Decimal(text))
    with pytest.raises(ValueError, match=r"^a decimal is "):
        bits_of(Decimal(text))
