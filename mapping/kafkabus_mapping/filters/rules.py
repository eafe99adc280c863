"""Rules of a subscription: they select messages of the topic and may change copies of them.

If rules without an action match, the subscription gets the message once, unchanged. For each rule with an action that
matches, it gets a changed copy that names the rule (Service Bus, "Topic filters and actions").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters.actions import Changed, compile_action
from kafkabus_mapping.filters.evaluate import (
    Decided,
    FilterEvaluationError,
    MessageSubject,
    Subject,
    are_equal,
    compile_condition,
    system_value,
)
from kafkabus_mapping.filters.parse import parse_action, parse_filter
from kafkabus_mapping.properties import PropertyValue, decode_properties, encode_properties

RULE_NAME = "RuleName"
"""The application property of a copy with the name of the rule that made it."""


def _read_values(values: Any) -> Any:
    """Return values that were given as objects or as JSON text."""
    if isinstance(values, str):
        return decode_properties(values)
    if isinstance(values, Mapping):
        return decode_properties(encode_properties(values)) if values else {}
    return values


Values = Annotated[dict[str, Any], BeforeValidator(_read_values), PlainSerializer(encode_properties, return_type=str)]
"""Values by name, of the types of application properties; in JSON, the text of their header."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Valued(_Part):
    """A filter or an action with values by name.

    Attributes:
        naive: Names of times that were given without a time zone; they are taken as UTC and returned without a zone.
    """

    naive: tuple[str, ...] = ()


class TrueFilterDescription(_Part):
    """A filter that every message matches."""

    kind: Literal["true"] = "true"


class FalseFilterDescription(_Part):
    """A filter that no message matches."""

    kind: Literal["false"] = "false"


class SqlFilterDescription(_Valued):
    """A filter with a SQL expression.

    Attributes:
        expression: See ``sql.lark``.
        parameters: Values of its parameters, by name with the ``@``.
    """

    kind: Literal["sql"] = "sql"
    expression: str
    parameters: Values = Field(default_factory=dict)


class CorrelationFilterDescription(_Valued):
    """A filter that a message matches if its properties equal all those of the filter; texts are compared case-sensitively.

    Attributes:
        properties: Application properties; their names are case-insensitive.
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
    """An action with a SQL expression, which changes a copy.

    Attributes:
        expression: See ``sql.lark``.
        parameters: Values of its parameters, by name with the ``@``.
    """

    expression: str
    parameters: Values = Field(default_factory=dict)


class RuleDescription(_Part):
    """A rule.

    Attributes:
        name: The rule's name.
        filter: The filter that selects messages.
        action: The action that changes the rule's copy of a message; None if the rule makes no copies.
        created_at: When the rule was created, UTC.
    """

    name: str
    filter: FilterDescription = TrueFilterDescription()
    action: SqlActionDescription | None = None
    created_at: datetime


def has_decimals(rule: RuleDescription) -> bool:
    """Return whether a value of a rule's filter or action is a decimal, which the first format cannot store."""
    values: list[Any] = []
    match rule.filter:
        case SqlFilterDescription():
            values += rule.filter.parameters.values()
        case CorrelationFilterDescription():
            values += rule.filter.properties.values()
        case _:
            pass
    if rule.action is not None:
        values += rule.action.parameters.values()
    return any(isinstance(value, Decimal) for value in values)


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
    """The result of a subscription's rules for a message.

    Attributes:
        as_it_is: Whether the subscription gets the message unchanged.
        copies: Properties of the copies that it gets, in the order of the rules that made them.
        errors: Errors of rules that could not be evaluated, by the names of the rules; such rules select nothing.
    """

    as_it_is: bool = False
    copies: list[Envelope] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.as_it_is or bool(self.copies)


Selection = Callable[[MessageSubject], Selected]


def compile_rules(rules: Sequence[RuleDescription]) -> Selection:
    """Return a function that evaluates these rules on a message.

    Raises:
        FilterSyntaxError: An expression is not valid.
        ValueError: A parameter has no value.
    """
    compiled = [(rule.name, compile_filter(rule.filter), _compile_action(rule.action)) for rule in rules]

    def select(subject: MessageSubject) -> Selected:
        selected = Selected()
        for name, matches, change in compiled:
            _apply(selected, subject, name, matches, change)
        return selected

    return select


def _apply(selected: Selected, subject: MessageSubject, name: str, matches: Decided, change: Changed | None) -> None:
    if change is None and selected.as_it_is:
        return
    try:
        if matches(subject) is not True:
            return
        if change is None:
            selected.as_it_is = True
        else:
            selected.copies.append(_add_rule_name(change(subject), name))
    except FilterEvaluationError as error:
        selected.errors[name] = str(error)


def compile_filter(described: FilterDescription) -> Decided:
    """Return a function that decides whether a message matches a filter.

    Raises:
        FilterSyntaxError: The expression is not valid.
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


def _add_rule_name(envelope: Envelope, rule: str) -> Envelope:
    properties = dict(envelope.application_properties or {})
    return replace(envelope, application_properties={**properties, RULE_NAME: rule})
