"""Rules of subscriptions, with the names of ``azure.servicebus.management``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from kafkabus_mapping.field_access import FieldAccess
from kafkabus_mapping.filters.rules import (
    CorrelationFilterDescription,
    FalseFilterDescription,
    FilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TrueFilterDescription,
)
from kafkabus_mapping.properties import PropertyValue

DEFAULT_RULE = "$Default"
"""Name of the rule that a new subscription has; every message matches it."""


@dataclass
class SqlRuleFilter:
    """A filter that matches the messages for which an expression is true.

    Attributes:
        sql_expression: Up to 1,024 characters; see docs/reference/filters.md.
        parameters: Values of its parameters, by name with the ``@``.
        requires_preprocessing: Kept for compatibility.
    """

    sql_expression: str | None = None
    parameters: Mapping[str, PropertyValue] | None = None
    requires_preprocessing: bool = field(default=True, init=False, repr=False)


@dataclass(init=False)
class TrueRuleFilter(SqlRuleFilter):
    """A filter that every message matches."""

    def __init__(self) -> None:
        super().__init__("1=1")


@dataclass(init=False)
class FalseRuleFilter(SqlRuleFilter):
    """A filter that no message matches."""

    def __init__(self) -> None:
        super().__init__("1>1")


@dataclass(kw_only=True)
class CorrelationRuleFilter:
    """A filter that a message matches if its properties equal all those that are given; texts are compared case-sensitively.

    Attributes:
        correlation_id: The message's correlation id.
        message_id: The message's id.
        to: The message's address.
        reply_to: The message's address for replies.
        label: The message's subject.
        session_id: The message's session id.
        reply_to_session_id: The message's session for replies.
        content_type: The message's content type.
        properties: The message's application properties; their names are case-insensitive.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, PropertyValue] | None = None


@dataclass
class SqlRuleAction:
    """An action that changes the copy of a message that a rule makes.

    Attributes:
        sql_expression: ``SET`` and ``REMOVE`` statements, up to 1,024 characters; see docs/reference/filters.md.
        parameters: Values of its parameters, by name with the ``@``.
        requires_preprocessing: Kept for compatibility.
    """

    sql_expression: str | None = None
    parameters: Mapping[str, PropertyValue] | None = None
    requires_preprocessing: bool = field(default=True, init=False, repr=False)


RuleFilter = SqlRuleFilter | CorrelationRuleFilter


@dataclass(kw_only=True)
class RuleProperties(FieldAccess):
    """A rule of a subscription; also a mapping.

    Attributes:
        name: The rule's name, up to 50 characters.
        filter: The filter that selects messages.
        action: The action that changes the rule's copy of a message; None if the rule makes no copies.
        created_at_utc: When the rule was created.
    """

    name: str = field(kw_only=False)
    filter: RuleFilter
    action: SqlRuleAction | None
    created_at_utc: datetime


RULE_FIELDS = RuleProperties.field_names()
"""The fields of a rule."""
_CORRELATED = tuple(field.name for field in fields(CorrelationRuleFilter))


def rule_properties(rule: RuleDescription) -> RuleProperties:
    """Return a rule as administration shows it."""
    action = rule.action
    return RuleProperties(
        name=rule.name,
        filter=_filter_of(rule.filter),
        action=None
        if action is None
        else SqlRuleAction(action.expression, _restore_values(action.parameters, action.naive)),
        created_at_utc=rule.created_at,
    )


def _filter_of(described: FilterDescription) -> RuleFilter:
    match described:
        case TrueFilterDescription():
            return TrueRuleFilter()
        case FalseFilterDescription():
            return FalseRuleFilter()
        case SqlFilterDescription():
            return SqlRuleFilter(described.expression, _restore_values(described.parameters, described.naive))
        case CorrelationFilterDescription():
            given: dict[str, Any] = {name: getattr(described, name) for name in _CORRELATED}
            given["properties"] = _restore_values(described.properties, described.naive)
            return CorrelationRuleFilter(**given)


def _restore_values(values: Mapping[str, Any], naive: Collection[str]) -> dict[str, Any] | None:
    """Return values as they were given; None if there are none."""
    return {name: value.replace(tzinfo=None) if name in naive else value for name, value in values.items()} or None


def _naive(values: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of values that are times without a time zone."""
    return tuple(name for name, value in (values or {}).items() if isinstance(value, datetime) and value.tzinfo is None)


def filter_description(given: object) -> FilterDescription:
    """Return a rule's filter as it is stored.

    Raises:
        TypeError: The argument is no filter.
        ValueError: The filter asks for nothing.
    """
    match given:
        case TrueRuleFilter():
            return TrueFilterDescription()
        case FalseRuleFilter():
            return FalseFilterDescription()
        case SqlRuleFilter(sql_expression=str(expression)):
            parameters = dict(given.parameters or {})
            return SqlFilterDescription(expression=expression, parameters=parameters, naive=_naive(parameters))
        case CorrelationRuleFilter():
            asked = {name: value for name in _CORRELATED if (value := getattr(given, name)) is not None}
            if not asked:
                raise ValueError(
                    "the correlation filter asks for nothing: give at least one property, or TrueRuleFilter()"
                )
            return CorrelationFilterDescription(**asked, naive=_naive(given.properties))
        case SqlRuleFilter():
            raise ValueError(
                f"SqlRuleFilter has the expression {given.sql_expression!r}: give a text such as \"color = 'red'\""
            )
        case _:
            raise TypeError(
                f"filter is {type(given).__name__}: use SqlRuleFilter, CorrelationRuleFilter, TrueRuleFilter or FalseRuleFilter"
            )


def action_description(given: object) -> SqlActionDescription | None:
    """Return a rule's action as it is stored; None if the rule has none.

    Raises:
        TypeError: The argument is no action.
        ValueError: The action has no expression.
    """
    match given:
        case None:
            return None
        case SqlRuleAction(sql_expression=str(expression)):
            parameters = dict(given.parameters or {})
            return SqlActionDescription(expression=expression, parameters=parameters, naive=_naive(parameters))
        case SqlRuleAction():
            raise ValueError(
                f"SqlRuleAction has the expression {given.sql_expression!r}: give a text such as 'SET a = 1'"
            )
        case _:
            raise TypeError(f"action is {type(given).__name__}: use SqlRuleAction, or None")
