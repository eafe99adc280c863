"""Rules of subscriptions, as requests and answers of management hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafkabus._core.amqp_encoding import plain_value
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus_mapping.amqp.types import Described, Int, ULong

RULE: Final = ULong(0x13700000004)
SQL_FILTER: Final = ULong(0x1370000006)
TRUE_FILTER: Final = ULong(0x1370000007)
FALSE_FILTER: Final = ULong(0x1370000008)
CORRELATION_FILTER: Final = ULong(0x1370000009)
EMPTY_ACTION: Final = ULong(0x13700000005)
SQL_ACTION: Final = ULong(0x13700000006)
LEVEL: Final = Int(20)
"""The level of the filter language."""

_CORRELATED: Final = (
    *("correlation_id", "message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id", "content_type"),
    "properties",
)
_TRUE, _FALSE = TrueRuleFilter().sql_expression, FalseRuleFilter().sql_expression


def described_rule(rule: RuleProperties) -> Described:
    """Return a rule as answers hold it."""
    expression = None if rule.action is None else rule.action.sql_expression
    action = Described(EMPTY_ACTION, []) if expression is None else Described(SQL_ACTION, [expression, LEVEL])
    return Described(RULE, [_described_filter(rule.filter), action, rule.name, rule.created_at_utc])


def _described_filter(given: SqlRuleFilter | CorrelationRuleFilter) -> Described:
    if isinstance(given, CorrelationRuleFilter):
        fields: list[Any] = [getattr(given, name) for name in _CORRELATED]
        fields[-1] = dict(fields[-1] or {})
        return Described(CORRELATION_FILTER, fields)
    if isinstance(given, TrueRuleFilter):
        return Described(TRUE_FILTER, [])
    if isinstance(given, FalseRuleFilter):
        return Described(FALSE_FILTER, [])
    return Described(SQL_FILTER, [given.sql_expression, LEVEL])


def filter_of(description: Any) -> tuple[SqlRuleFilter | CorrelationRuleFilter, SqlRuleAction | None]:
    """Return the filter and the action of a rule that a request describes.

    Raises:
        AmqpError: It describes no rule.
    """
    asked = _texts(description)
    if asked is None:
        raise AmqpError(ARGUMENT_ERROR, "rule-description is a map")
    action, sql, correlation = (
        _texts(asked.get(name)) for name in ("sql-rule-action", "sql-filter", "correlation-filter")
    )
    made = SqlRuleAction(_expression(action)) if action else None
    if sql is not None:
        expression = _expression(sql)
        known = {_TRUE: TrueRuleFilter, _FALSE: FalseRuleFilter}.get(expression)
        return (SqlRuleFilter(expression) if known is None else known()), made
    if correlation is not None:
        given = {name: correlation.get(name.replace("_", "-")) for name in _CORRELATED}
        if not isinstance(given["properties"] or {}, Mapping):
            raise AmqpError(ARGUMENT_ERROR, f"the properties are {given['properties']!r:.60}: they are a map")
        return CorrelationRuleFilter(**{name: plain_value(value) or None for name, value in given.items()}), made
    return TrueRuleFilter(), made


def _texts(value: Any) -> dict[str, Any] | None:
    return {str(key): member for key, member in value.items()} if isinstance(value, Mapping) else None


def _expression(given: Mapping[str, Any]) -> str:
    expression = given.get("expression")
    if not isinstance(expression, str):
        raise AmqpError(ARGUMENT_ERROR, f"the expression is {expression!r:.60}: it is a text")
    return str(expression)
