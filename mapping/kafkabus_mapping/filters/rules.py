"""Rules of a subscription: which messages it gets, and as what.

All rules without an action that match give the message once, as it is; each rule with one gives a copy of its own, which names
the rule (Service Bus, "Topic filters and actions").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters.actions import Changed, compile_action
from kafkabus_mapping.filters.evaluate import (
    Decided,
    FilterEvaluationError,
    Subject,
    are_equal,
    compile_condition,
    system_value,
)
from kafkabus_mapping.filters.parse import parse_action, parse_filter
from kafkabus_mapping.properties import PropertyValue, decode_properties, encode_properties

RULE_NAME = "RuleName"
"""Application property of a copy: the rule that made it."""


def _read_values(values: Any) -> Any:
    """Values as they were given, or as JSON has them."""
    if isinstance(values, str):
        return decode_properties(values)
    if isinstance(values, Mapping):
        return decode_properties(encode_properties(values)) if values else {}
    return values


Values = Annotated[dict[str, Any], BeforeValidator(_read_values), PlainSerializer(encode_properties, return_type=str)]
"""Values by name, such as application properties have; in JSON the text of their header."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Valued(_Part):
    """What has values by name.

    Attributes:
        naive: Names of those that are times and were given without a time zone; they are UTC, and told as they were given.
    """

    naive: tuple[str, ...] = ()


class TrueFilterDescription(_Part):
    """Every message matches."""

    kind: Literal["true"] = "true"


class FalseFilterDescription(_Part):
    """No message matches."""

    kind: Literal["false"] = "false"


class SqlFilterDescription(_Valued):
    """What a SQL expression says.

    Attributes:
        expression: See ``sql.lark``.
        parameters: Values of its parameters, by name with the ``@``.
    """

    kind: Literal["sql"] = "sql"
    expression: str
    parameters: Values = Field(default_factory=dict)


class CorrelationFilterDescription(_Valued):
    """A message matches whose properties equal all those that are given; texts do with their case.

    Attributes:
        properties: Application properties; their names without case.
    """

    kind: Literal["correlation"] = "correlation"
    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Values = Field(default_factory=dict)


FilterDescription = Annotated[
    TrueFilterDescription | FalseFilterDescription | SqlFilterDescription | CorrelationFilterDescription,
    Field(discriminator="kind"),
]


class SqlActionDescription(_Valued):
    """What is done to a copy.

    Attributes:
        expression: See ``sql.lark``.
        parameters: Values of its parameters, by name with the ``@``.
    """

    expression: str
    parameters: Values = Field(default_factory=dict)


class RuleDescription(_Part):
    """A rule.

    Attributes:
        name: Its name.
        filter: Which messages it is about.
        action: What is done to the copy that it makes; None: it makes none.
        created_at: When it was created, UTC.
    """

    name: str
    filter: FilterDescription = TrueFilterDescription()
    action: SqlActionDescription | None = None
    created_at: datetime


SYSTEM_OF = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


@dataclass
class Selected:
    """What a subscription gets of a message.

    Attributes:
        as_it_is: Whether it gets the message.
        copies: Properties of its copies, in the order of the rules that made them.
        errors: Why rules could not be carried out, by their names; they gave nothing.
    """

    as_it_is: bool = False
    copies: list[Envelope] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.as_it_is or bool(self.copies)


Selection = Callable[[Subject], Selected]


def compile_rules(rules: Sequence[RuleDescription]) -> Selection:
    """A function that says what a subscription with these rules gets of a message.

    Raises:
        FilterSyntaxError: An expression is none.
        ValueError: A parameter has no value.
    """
    compiled = [(rule.name, compile_filter(rule.filter), _compile_action(rule.action)) for rule in rules]

    def select(subject: Subject) -> Selected:
        selected = Selected()
        for name, matches, change in compiled:
            _apply(selected, subject, name, matches, change)
        return selected

    return select


def _apply(selected: Selected, subject: Subject, name: str, matches: Decided, change: Changed | None) -> None:
    if change is None and selected.as_it_is:
        return
    try:
        if matches(subject) is not True:
            return
        if change is None:
            selected.as_it_is = True
        else:
            selected.copies.append(_named(change(subject), name))
    except FilterEvaluationError as error:
        selected.errors[name] = str(error)


def compile_filter(described: FilterDescription) -> Decided:
    """A function that says whether a message matches.

    Raises:
        FilterSyntaxError: The expression is none.
        ValueError: A parameter has no value.
    """
    match described:
        case SqlFilterDescription():
            return compile_condition(parse_filter(described.expression), described.parameters)
        case CorrelationFilterDescription():
            return _compile_correlation(described)
        case _:
            always = isinstance(described, TrueFilterDescription)
            return lambda _: always


def _compile_correlation(described: CorrelationFilterDescription) -> Decided:
    system: list[tuple[Callable[[Subject], PropertyValue], str]] = [
        (system_value(name), wanted)
        for attribute, name in SYSTEM_OF.items()
        if (wanted := getattr(described, attribute)) is not None
    ]
    user = [(name.lower(), wanted) for name, wanted in described.properties.items()]

    def matches(subject: Subject) -> bool:
        return all(value(subject) == wanted for value, wanted in system) and all(
            are_equal(subject.user.get(name), wanted) for name, wanted in user
        )

    return matches


def _compile_action(described: SqlActionDescription | None) -> Changed | None:
    return None if described is None else compile_action(parse_action(described.expression), described.parameters)


def _named(envelope: Envelope, rule: str) -> Envelope:
    properties = dict(envelope.application_properties or {})
    return replace(envelope, application_properties={**properties, RULE_NAME: rule})
