"""Arithmetic of decimals in filters and actions: the result is exact, or there is none.

A decimal is an integer of up to 34 digits and a scale. Spark computes with integers of up to 38 digits, so no step here needs
more.
"""

from __future__ import annotations

from decimal import Decimal

from kafkabus_mapping.amqp.decimals import MOST_DIGITS, parts_of

WIDEST = 38
"""The most digits of a number in a calculation, as in Spark's decimals."""
MOST_QUOTIENT_DIGITS = 32
"""The most digits of a quotient, as of Spark's integral ones."""


def to_decimal(number: int | float | Decimal) -> Decimal:
    """Return a number as a decimal: an integer exactly, a float as its shortest text has it; NaN and infinities as they are."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def compute_decimals(sign: str, left: Decimal, right: Decimal) -> Decimal:
    """Return the exact result of an operator, with no more zeros behind the point than its operands have.

    Args:
        sign: ``+``, ``-``, ``*``, ``/`` or ``%``.
        left: The operand before it.
        right: The operand behind it.

    Raises:
        ArithmeticError: The result has more than 34 digits, a quotient more than 32, or none is exact; or an operand is not
            finite, or is divided by zero.
    """
    if not (left.is_finite() and right.is_finite()):
        raise ArithmeticError("an operand is not finite")
    if sign in {"/", "%"} and right == 0:
        raise ZeroDivisionError("a decimal is divided by zero")
    (first, first_scale), (second, second_scale) = parts_of(left), parts_of(right)
    if sign == "*":
        return _decimal(_check_range(first * second), first_scale + second_scale)
    if sign == "/":
        return _quotient(first, first_scale, second, second_scale)
    scale = max(first_scale, second_scale)
    first, second = _append_zeros(first, scale - first_scale), _append_zeros(second, scale - second_scale)
    if sign == "%":
        # The sign is that of the dividend, as in C#.
        return _decimal(abs(first) % abs(second) * (-1 if first < 0 else 1), scale)
    return _decimal(_check_range(first + second if sign == "+" else first - second), scale)


def _append_zeros(value: int, places: int) -> int:
    """Return an integer with more digits behind it.

    Raises:
        ArithmeticError: It would have too many.
    """
    if value and places >= WIDEST:
        raise ArithmeticError(f"the operands are too far apart: {WIDEST} digits do not hold both")
    return _check_range(value * 10**places if value else 0)


def _check_range(value: int) -> int:
    if abs(value) >= 10**WIDEST:
        raise ArithmeticError(f"the calculation needs more than {WIDEST} digits")
    return value


def _quotient(first: int, first_scale: int, second: int, second_scale: int) -> Decimal:
    places = WIDEST - len(str(abs(first)))
    quotient, rest = divmod(abs(first) * 10**places, abs(second))
    if rest:
        raise ArithmeticError("the quotient is not exact")
    scale, least = first_scale + places - second_scale, first_scale - second_scale
    while scale > least and quotient % 10 == 0:
        quotient, scale = quotient // 10, scale - 1
    if quotient >= 10**MOST_QUOTIENT_DIGITS:
        raise ArithmeticError(f"the quotient has more than {MOST_QUOTIENT_DIGITS} digits")
    return _decimal(-quotient if (first < 0) != (second < 0) else quotient, scale)


def _decimal(value: int, scale: int) -> Decimal:
    """Return a decimal of these parts.

    Raises:
        ArithmeticError: It has too many digits.
    """
    if abs(value) >= 10**MOST_DIGITS:
        raise ArithmeticError(f"the result has more than {MOST_DIGITS} digits")
    return Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))
