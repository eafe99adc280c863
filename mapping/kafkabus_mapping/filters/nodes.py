"""What a SQL filter or action says, as a tree: the parser builds it, evaluators walk it.

Trees are plain values: two of the same text are equal. ``depth`` bounds how deep evaluators recurse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

Value = str | bytes | int | float | bool | UUID | datetime | timedelta | None
"""What an expression yields. None stands for NULL, and for what is not there: both are unknown to every operator."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal.

    Attributes:
        value: Text, a 64-bit integer, a float, a boolean or None.
    """

    value: Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that is given with the filter.

    Attributes:
        name: With its ``@``, as it was written.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message.

    Attributes:
        name: In lower case, as names do not differ by case; a system property's as ``SYSTEM_PROPERTIES`` has it.
        system: Whether it is one of the message's own, instead of one that the application set.
        written: Its name as it was written, which one that an action adds gets.
    """

    name: str
    system: bool = False
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """``property(name)``: the property of that name.

    Attributes:
        name: What yields its name, which may begin with ``sys.`` or ``user.``.
    """

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a random UUID, another one each time."""


@dataclass(frozen=True, slots=True)
class Sign:
    """An expression with a sign.

    Attributes:
        negative: Whether that is a minus.
        operand: The expression.
    """

    negative: bool
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two expressions and what is between them.

    Attributes:
        operator: One of ``+ - * / %``.
        left: The first.
        right: The second.
    """

    operator: str
    left: Expression
    right: Expression


Expression = Constant | Parameter | Property | Lookup | NewId | Sign | Arithmetic
"""What yields a value."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two expressions compared.

    Attributes:
        operator: One of ``= <> < <= > >=``.
        left: The first.
        right: The second.
    """

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a property is missing, or has no value.

    Attributes:
        of: The property.
    """

    of: Property | Lookup


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether a message has a property, whatever its value.

    Attributes:
        of: The property.
    """

    of: Property | Lookup


@dataclass(frozen=True, slots=True)
class In:
    """Whether an expression equals one of several.

    Attributes:
        left: The expression.
        options: The others, in order.
    """

    left: Expression
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text is as a pattern says.

    Attributes:
        left: The text.
        pattern: In which ``%`` stands for any text and ``_`` for any character.
        escape: What yields the character that takes the meaning from the next one; None: there is none.
    """

    left: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True, slots=True)
class Not:
    """A condition, negated.

    Attributes:
        operand: The condition.
    """

    operand: Condition


@dataclass(frozen=True, slots=True)
class Every:
    """Conditions joined by AND.

    Attributes:
        operands: In order: from the first that is false on none is looked at.
    """

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Conditions joined by OR.

    Attributes:
        operands: In order: from the first that is true on none is looked at.
    """

    operands: tuple[Condition, ...]


Condition = Comparison | IsNull | Exists | In | Like | Not | Every | Some
"""What is true, false or unknown."""


@dataclass(frozen=True, slots=True)
class Set:
    """``SET property = expression``.

    Attributes:
        target: The property.
        value: What it is from then on.
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
"""One step of an action."""

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
"""Names of a message's own properties by their lower case. Label and Subject are the same."""

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
"""Those that are texts, and their names in an ``Envelope``."""

WRITABLE = TEXT_PROPERTIES.keys() - {"DeadLetterSource", "PartitionKey", "SessionId"}
"""Those that an action may set: what decides about a message's place and time stays."""
