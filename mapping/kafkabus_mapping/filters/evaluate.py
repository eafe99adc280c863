"""Evaluation of filters on a message: the result is true, false or unknown, as Service Bus documents it.

Operators choose their operand types as in C#: integers have 64 bits and divide towards zero, an integer beside a float
becomes a float, ``=`` and ``<>`` take two values of one kind, ``<`` and the like two numbers, two times or two durations. Other
operands are an error of the message's evaluation, not of the filter: another message may have other values. For every operator
a missing or NULL operand makes the result unknown. AND does not evaluate operands behind a false one, nor OR those behind a
true one, so these cannot cause errors.

A number beside a decimal becomes a decimal: an integer exactly, a float as its shortest text has it, so that 0.1 is 0.1. The
results of decimals are exact, or an error: they have 34 digits at the most, like AMQP's decimals. A time minus a time is a
duration.
"""

from __future__ import annotations

import math
import operator
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any, Protocol

from kafkabus_mapping.codec import EPOCH, Envelope
from kafkabus_mapping.filters.decimals import compute_decimals, to_decimal
from kafkabus_mapping.filters.nodes import (
    SYSTEM_PROPERTIES,
    TEXT_PROPERTIES,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Every,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Lookup,
    NewId,
    Not,
    Parameter,
    Property,
    Sign,
    Some,
    Value,
)
from kafkabus_mapping.filters.parse import INT64, INTEGERS, LONGEST, LONGEST_TEXT, is_character
from kafkabus_mapping.filters.segments import Segment


class FilterEvaluationError(ValueError):
    """A filter or an action cannot be evaluated on a message; the error says why."""


class Subject(Protocol):
    """A message, as filters see it."""

    @property
    def envelope(self) -> Envelope:
        """The message's properties."""
        ...

    @property
    def sequence_number(self) -> int:
        """Its sequence number; for the rules of subscriptions, that in the topic."""
        ...

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued, in UTC."""
        ...

    @property
    def size(self) -> int:
        """The size of its body, in bytes."""
        ...

    @property
    def time_to_live(self) -> timedelta | None:
        """The default time to live, for a message without one."""
        ...

    @property
    def delivery_count(self) -> int:
        """How often it was delivered; 0 for the rules of subscriptions, as the message is new then."""
        ...

    @property
    def user(self) -> Mapping[str, Value]:
        """The application properties by their lower-case names; see ``user_properties``."""
        ...


@dataclass(slots=True)
class MessageSubject:
    """A message whose properties are known; see ``Subject``.

    Attributes:
        envelope: The message's properties.
        sequence_number: Its sequence number in the topic.
        enqueued_at: When it was enqueued, in UTC.
        size: The size of its body, in bytes.
        time_to_live: The default time to live, for a message without one.
        delivery_count: How often it was delivered.
    """

    envelope: Envelope
    sequence_number: int = 0
    enqueued_at: datetime = EPOCH
    size: int = 0
    time_to_live: timedelta | None = None
    delivery_count: int = 0
    _user: dict[str, Value] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def user(self) -> Mapping[str, Value]:
        """The application properties by their lower-case names; see ``user_properties``."""
        if self._user is None:
            self._user = user_properties(self.envelope.application_properties or {}, self.envelope.foreign)
        return self._user


def user_properties(
    properties: Mapping[str | bytes, Value], foreign: Collection[str] | None = None
) -> dict[str, Value]:
    """Return application properties by their lower-case names; if names differ only by case, the last one counts.

    Args:
        properties: The properties.
        foreign: The names of those that are headers of other producers; their values are texts if they are UTF-8.
    """
    if foreign is None:
        return {lower_name(key): value for key, value in properties.items()}
    return {lower_name(key): _text_of(value) if key in foreign else value for key, value in properties.items()}


def _lives(subject: Subject) -> timedelta | None:
    """Return a message's time to live; None means for ever."""
    lives = [life for life in (subject.envelope.time_to_live, subject.time_to_live) if life is not None]
    return min(lives, default=None)


def _text_of(value: Value) -> Value:
    """Return bytes that are UTF-8 as text, and other values as they are."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
    return value


def lower_name(key: str | bytes) -> str:
    """Return the name of an application property in lower case, as filters compare it."""
    return (key.decode() if isinstance(key, bytes) else key).lower()


def _expires_at(subject: Subject) -> datetime | None:
    """Return when the message expires; None means never, or beyond the years of ``datetime``."""
    lives = _lives(subject)
    try:
        return None if lives is None else subject.enqueued_at + lives
    except OverflowError:
        return None


def _text(field_name: str) -> Callable[[Subject], Value]:
    value: Callable[[Envelope], Value] = operator.attrgetter(field_name)
    return lambda subject: value(subject.envelope)


_SYSTEM: Mapping[str, Callable[[Subject], Value]] = {
    **{name: _text(field_name) for name, field_name in TEXT_PROPERTIES.items()},
    "DeliveryCount": lambda subject: subject.delivery_count,
    "EnqueuedSequenceNumber": lambda subject: subject.envelope.enqueued_sequence_number,
    "EnqueuedTimeUtc": lambda subject: subject.enqueued_at,
    "ExpiresAtUtc": _expires_at,
    "ScheduledEnqueueTimeUtc": lambda subject: subject.envelope.scheduled_enqueue_time_utc,
    "SequenceNumber": lambda subject: subject.sequence_number,
    "Size": lambda subject: subject.size,
    "TimeToLive": _lives,
}

Evaluated = Callable[[Subject], Value]
"""A function that returns an expression's value for a message."""
Decided = Callable[[Subject], "bool | None"]
"""A function that decides whether a condition holds for a message; None means unknown."""


def compile_condition(condition: Condition, parameters: Mapping[str, Value] | None = None) -> Decided:
    """Return a function that decides whether a condition holds for a message.

    Args:
        condition: The condition.
        parameters: Values of its parameters, by name with the ``@``.

    Raises:
        ValueError: A parameter has no value.
    """
    return _Compiler(parameters or {}).condition(condition)


def compile_expression(expression: Expression, parameters: Mapping[str, Value] | None = None) -> Evaluated:
    """Return a function that returns an expression's value for a message; see ``compile_condition``."""
    return _Compiler(parameters or {}).expression(expression)


def given_value(parameters: Mapping[str, Value], name: str) -> Value:
    """Return a parameter's value, taking a time without a zone as UTC; names of parameters are case-insensitive.

    Raises:
        ValueError: The parameter has no value.
    """
    values = {key.lower(): value for key, value in parameters.items()}
    try:
        value = values[name.lower()]
    except KeyError:
        given = ", ".join(sorted(values)) or "none"
        raise ValueError(f"parameter {name} has no value; parameters given: {given}") from None
    return value.replace(tzinfo=timezone.utc) if isinstance(value, datetime) and value.tzinfo is None else value


class _Compiler:
    """Turns trees into closures, which are then used for all messages."""

    def __init__(self, parameters: Mapping[str, Value]) -> None:
        self._parameters = parameters

    def condition(self, node: Condition) -> Decided:  # noqa: PLR0911 - a case each
        match node:
            case Comparison():
                compare, left, right = _COMPARE[node.operator], self.expression(node.left), self.expression(node.right)
                return lambda subject: compare(left(subject), right(subject))
            case Every():
                return _compile_joined([self.condition(operand) for operand in node.operands], until=False)
            case Some():
                return _compile_joined([self.condition(operand) for operand in node.operands], until=True)
            case Not():
                operand = self.condition(node.operand)
                return lambda subject: None if (held := operand(subject)) is None else not held
            case In():
                return _compile_in(self.expression(node.left), [self.expression(option) for option in node.options])
            case Like():
                return self._like(node)
            case IsNull():
                value = self.expression(node.of)
                return lambda subject: value(subject) is None
            case Exists():
                return self._exists(node.of)

    def expression(self, node: Expression) -> Evaluated:  # noqa: PLR0911 - a case each
        match node:
            case Constant():
                return _always(node.value)
            case Parameter():
                return _always(given_value(self._parameters, node.name))
            case Property(name, system=True):
                return _SYSTEM[name]
            case Property(name):
                return lambda subject: subject.user.get(name)
            case Lookup():
                return self._lookup(node)
            case NewId():
                return lambda _: uuid.uuid4()
            case Sign():
                operand, negative = self.expression(node.operand), node.negative
                return lambda subject: _apply_sign(operand(subject), negative)
            case Arithmetic():
                compute, left, right = _COMPUTE[node.operator], self.expression(node.left), self.expression(node.right)
                return lambda subject: compute(left(subject), right(subject))

    def _lookup(self, node: Lookup) -> Evaluated:
        name = self.expression(node.name)

        def look_up(subject: Subject) -> Value:
            found = _property_named(name(subject))
            return None if found is None else _value_of(found, subject)

        return look_up

    def _exists(self, of: Property | Lookup) -> Decided:
        if isinstance(of, Property):
            return lambda subject: _is_there(of, subject)
        name = self.expression(of.name)

        def exists(subject: Subject) -> bool | None:
            found = _property_named(name(subject))
            return None if found is None else _is_there(found, subject)

        return exists

    def _like(self, node: Like) -> Decided:
        left, pattern = self.expression(node.left), self.expression(node.pattern)
        escape = None if node.escape is None else self.expression(node.escape)

        def like(subject: Subject) -> bool | None:
            text, wanted = left(subject), pattern(subject)
            taken = "" if escape is None else escape(subject)
            if text is None or wanted is None or taken is None:
                return None
            if not (isinstance(text, str) and isinstance(wanted, str)):
                raise FilterEvaluationError(f"LIKE takes texts, not {kind_of(text)} and {kind_of(wanted)}")
            if escape is not None and not is_character(taken):
                raise FilterEvaluationError(f"ESCAPE takes a text of one character, not {taken!r}")
            return _matches(text, wanted, str(taken))

        return like


def _always(value: Value) -> Evaluated:
    return lambda _: value


def _compile_joined(conditions: Sequence[Decided], *, until: bool) -> Decided:
    """Join conditions by OR, or by AND; see ``_join``. Most filters have one of these, so that there is no generator."""

    def join(subject: Subject) -> bool | None:
        held: bool | None = not until
        for condition in conditions:
            result = condition(subject)
            if result is until:
                return until
            if result is None:
                held = None
        return held

    return join


def _join(results: Iterable[bool | None], *, until: bool) -> bool | None:
    """Join results by OR, or by AND; stop at the first that is true, or false, respectively."""
    held: bool | None = not until
    for result in results:
        if result is until:
            return until
        if result is None:
            held = None
    return held


def _compile_in(left: Evaluated, options: list[Evaluated]) -> Decided:
    equal = _COMPARE["="]

    def is_in(subject: Subject) -> bool | None:
        value = left(subject)
        return None if value is None else _join((equal(value, option(subject)) for option in options), until=True)

    return is_in


def _property_named(name: Value) -> Property | None:
    """Return the property that ``property(name)`` refers to."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise FilterEvaluationError(f"property(name) takes a text, not {kind_of(name)}")
    scope, dot, rest = name.partition(".")
    if dot and scope.lower() == "user":
        return Property(rest.lower())
    if dot and scope.lower() == "sys":
        if rest.lower() not in SYSTEM_PROPERTIES:
            raise FilterEvaluationError(f"a message has no property {name}")
        return Property(SYSTEM_PROPERTIES[rest.lower()], system=True)
    return Property(name.lower())


def _value_of(named: Property, subject: Subject) -> Value:
    return _SYSTEM[named.name](subject) if named.system else subject.user.get(named.name)


def _is_there(named: Property, subject: Subject) -> bool:
    return _SYSTEM[named.name](subject) is not None if named.system else named.name in subject.user


_KINDS: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    uuid.UUID: "a UUID",
    datetime: "a time",
    timedelta: "a duration",
    Decimal: "a decimal",
}


def kind_of(value: Value) -> str:
    """Return the kind of a value, in words."""
    return _KINDS.get(type(value), type(value).__name__)


def _numbers(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Return two numbers, both as decimals or floats if one of them is one; return None if they are not both numbers."""
    if type(left) is int and type(right) is int and left in INTEGERS and right in INTEGERS:
        return left, right
    kinds = {type(left), type(right)}
    if not kinds <= {int, float, Decimal}:
        return None
    for number in (left, right):
        if type(number) is int and number not in INTEGERS:
            raise FilterEvaluationError(f"{number} has more than 64 bits")
    if Decimal in kinds:
        return to_decimal(left), to_decimal(right)
    return (left, right) if kinds == {int} else (float(left), float(right))


_ORDERED = (datetime, timedelta)
_EQUATED = (str, bool, uuid.UUID, *_ORDERED)


def _comparer(sign: str, function: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool | None]:
    equates = sign in {"=", "<>"}
    kinds = _EQUATED if equates else _ORDERED

    def compare(left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None
        if type(left) is str and type(right) is str and equates:
            return function(left, right)
        numbers = _numbers(left, right)
        if numbers is not None:
            return sign == "<>" if _has_nan(*numbers) else function(*numbers)
        if type(left) is type(right) and isinstance(left, kinds):
            return function(left, right)
        raise FilterEvaluationError(f"{sign} does not take {kind_of(left)} and {kind_of(right)}")

    return compare


_COMPARE = {
    "=": _comparer("=", operator.eq),
    "<>": _comparer("<>", operator.ne),
    "<": _comparer("<", operator.lt),
    "<=": _comparer("<=", operator.le),
    ">": _comparer(">", operator.gt),
    ">=": _comparer(">=", operator.ge),
}


def are_equal(left: Value, right: Value) -> bool:
    """Return whether two values are equal for a correlation filter; values of different kinds never are."""
    try:
        return _COMPARE["="](left, right) is True
    except FilterEvaluationError:
        return type(left) is type(right) is bytes and left == right


def system_value(name: str) -> Evaluated:
    """Return a function that returns a system property of a message, by its name in ``SYSTEM_PROPERTIES``."""
    return _SYSTEM[name]


def _has_nan(left: Any, right: Any) -> bool:
    """Return whether one of two numbers is none: decimals do not compare with that."""
    return bool(left != left or right != right)  # noqa: PLR0124 - only NaN differs from itself


def _in_range(value: int | float, *operands: int | float) -> int | float:
    """Return a result that is no integer of more than 64 bits; without operands of 64 bits without a sign, it has one."""
    if isinstance(value, int) and value not in (INT64 if all(operand in INT64 for operand in operands) else INTEGERS):
        raise FilterEvaluationError("the result has more than 64 bits")
    return value


def _apply_sign(value: Value, negative: bool) -> Value:
    if value is None:
        return None
    numbers = _numbers(value, value)
    if numbers is None:
        raise FilterEvaluationError(f"a sign does not go with {kind_of(value)}")
    number: int | float | Decimal = numbers[0]
    if not negative:
        return number
    # Decimal's own minus rounds.
    return number.copy_negate() if isinstance(number, Decimal) else _in_range(-number, number)


def _computer(sign: str, function: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    def compute(left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        numbers = _numbers(left, right)
        if numbers is not None:
            if isinstance(numbers[0], Decimal):
                return _of_decimals(sign, *numbers)
            result: int | float = function(*numbers)
            return _in_range(result, *numbers)
        if sign == "-" and isinstance(left, datetime) and isinstance(right, datetime):
            return left - right
        if sign == "+" and isinstance(left, str) and isinstance(right, str):
            return _together(left, right)
        raise FilterEvaluationError(f"{sign} does not take {kind_of(left)} and {kind_of(right)}")

    return compute


def _of_decimals(sign: str, left: Decimal, right: Decimal) -> Decimal:
    try:
        return compute_decimals(sign, left, right)
    except ArithmeticError as error:
        raise FilterEvaluationError(f"{left} {sign} {right}: {error}") from error


def _together(left: str, right: str) -> str:
    length = len(left) + len(right)
    if length > LONGEST_TEXT:
        # Bounded because an action may double a text repeatedly.
        raise FilterEvaluationError(f"together the texts have {length} characters: {LONGEST_TEXT} are allowed")
    return left + right


def _divide(left: Any, right: Any) -> int | float:
    if isinstance(left, int):
        if right == 0:
            raise FilterEvaluationError("an integer is divided by zero")
        return int(abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)
    return float(left / right)


def _remainder(left: Any, right: Any) -> int | float:
    if isinstance(left, int):
        if right == 0:
            raise FilterEvaluationError("an integer is divided by zero")
        return int(abs(left) % abs(right)) * (-1 if left < 0 else 1)
    if right == 0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


_COMPUTE = {
    "+": _computer("+", operator.add),
    "-": _computer("-", operator.sub),
    "*": _computer("*", operator.mul),
    "/": _computer("/", _divide),
    "%": _computer("%", _remainder),
}


def _matches(text: str, pattern: str, escape: str) -> bool:
    """Return whether a text matches a pattern, which may be at most as long as a filter.

    Each segment between two ``%`` is searched from the end of the one before, and its first place is taken: no later place can
    be better, so the search never goes back.
    """
    if len(pattern) > LONGEST:
        raise FilterEvaluationError(f"the pattern has {len(pattern)} characters: {LONGEST} are allowed")
    first, *rest = _segments(pattern, escape)
    if not first.stands_at(text, 0):
        return False
    if not rest:
        return len(text) == first.length
    *middle, last = rest
    end = first.length
    for segment in middle:
        end = segment.find(text, end)
        if end < 0:
            return False
    start = len(text) - last.length
    return end <= start and last.stands_at(text, start)


@lru_cache(maxsize=1024)
def _segments(pattern: str, escape: str) -> tuple[Segment, ...]:
    """Return the segments before, between and behind the ``%`` of a pattern."""
    parts: list[list[str | None]] = [[]]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if position == len(pattern):
                raise FilterEvaluationError(f"the pattern {pattern!r} ends with its escape character")
            parts[-1].append(pattern[position])
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
        position += 1
    return tuple(Segment(part) for part in parts)
