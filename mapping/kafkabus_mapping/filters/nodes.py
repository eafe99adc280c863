"""Syntax trees of SQL filters and actions: the parser builds them, evaluators walk them.

Trees are plain values: two trees of the same text are equal. ``depth`` bounds how deep evaluators recurse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

Value = str | bytes | int | float | bool | UUID | datetime | timedelta | Decimal | None
"""The types of an expression's value. None is NULL or a missing property; operators treat both as unknown."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal.

    Attributes:
        value: Text, a 64-bit integer, a float, a boolean or None.
    """

    value: Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, whose value is given with the filter.

    Attributes:
        name: The parameter's name with its ``@``, as written.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message.

    Attributes:
        name: The name in lower case, because names are case-insensitive; that of a system property as in ``SYSTEM_PROPERTIES``.
        system: Whether it is a system property, not an application property.
        written: The name as written; an action that adds the property uses this one.
    """

    name: str
    system: bool = False
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """``property(name)``: the property of that name.

    Attributes:
        name: The expression for the property's name, which may begin with ``sys.`` or ``user.``.
    """

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a new random UUID at each evaluation."""


@dataclass(frozen=True, slots=True)
class Sign:
    """An expression with a sign.

    Attributes:
        negative: Whether the sign is a minus.
        operand: The expression.
    """

    negative: bool
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """An arithmetic operation on two expressions.

    Attributes:
        operator: One of ``+ - * / %``.
        left: The left expression.
        right: The right expression.
    """

    operator: str
    left: Expression
    right: Expression


Expression = Constant | Parameter | Property | Lookup | NewId | Sign | Arithmetic
"""A node that yields a value."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two expressions.

    Attributes:
        operator: One of ``= <> < <= > >=``.
        left: The left expression.
        right: The right expression.
    """

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """A test whether a property is missing or NULL.

    Attributes:
        of: The property.
    """

    of: Property | Lookup


@dataclass(frozen=True, slots=True)
class Exists:
    """A test whether a message has a property, whatever its value.

    Attributes:
        of: The property.
    """

    of: Property | Lookup


@dataclass(frozen=True, slots=True)
class In:
    """A test whether an expression equals one of several others.

    Attributes:
        left: The expression.
        options: The expressions to compare it with, in order.
    """

    left: Expression
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A test whether a text matches a pattern.

    Attributes:
        left: The text.
        pattern: The pattern, in which ``%`` matches any text and ``_`` any character.
        escape: The expression for the escape character, after which ``%`` and ``_`` match themselves, or None.
    """

    left: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True, slots=True)
class Not:
    """A negated condition.

    Attributes:
        operand: The condition.
    """

    operand: Condition


@dataclass(frozen=True, slots=True)
class Every:
    """Conditions joined by AND.

    Attributes:
        operands: The conditions, evaluated in order up to the first that is false.
    """

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Conditions joined by OR.

    Attributes:
        operands: The conditions, evaluated in order up to the first that is true.
    """

    operands: tuple[Condition, ...]


Condition = Comparison | IsNull | Exists | In | Like | Not | Every | Some
"""A node that is true, false or unknown for a message."""


@dataclass(frozen=True, slots=True)
class Set:
    """``SET property = expression``.

    Attributes:
        target: The property.
        value: The expression for its new value.
    """

    target: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """``REMOVE property``.

    Attributes:
        target: The property.
    """

    target: Property


Statement = Set | Remove
"""A statement of an action."""

SYSTEM_PROPERTIES = {
    name.lower(): name
    for name in (
        "ContentType",
        "CorrelationId",
        "DeadLetterSource",
        "DeliveryCount",
        "EnqueuedSequenceNumber",
        "EnqueuedTimeUtc",
        "ExpiresAtUtc",
        "Label",
        "MessageId",
        "PartitionKey",
        "ReplyTo",
        "ReplyToSessionId",
        "ScheduledEnqueueTimeUtc",
        "SequenceNumber",
        "SessionId",
        "Size",
        "Subject",
        "TimeToLive",
        "To",
    )
}
"""Names of system properties by their lower-case form. Label and Subject are the same property."""

TEXT_PROPERTIES = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "DeadLetterSource": "dead_letter_source",
    "Label": "subject",
    "MessageId": "message_id",
    "PartitionKey": "partition_key",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "Subject": "subject",
    "To": "to",
}
"""System properties that are texts, with the names of their fields in an ``Envelope``."""

WRITABLE = TEXT_PROPERTIES.keys() - {"DeadLetterSource", "PartitionKey", "SessionId"}
"""System properties that an action may set; those that decide where and when a message is received are read-only."""
