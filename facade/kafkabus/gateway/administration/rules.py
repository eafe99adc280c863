"""Rules of subscriptions as elements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from xml.etree.ElementTree import Element, tostring

from kafkabus._core.rule_properties import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus.gateway.administration.atom import (
    DocumentError,
    as_read,
    children,
    description,
    element,
    moment_text,
    type_of,
)
from kafkabus.gateway.administration.values import read_value, value_element
from kafkabus_mapping.properties import PropertyValue

RULE = "RuleDescription"
"""The name of a rule's description."""

_LEVEL = "20"
"""The level of the language of filters, which clients send and expect."""
_CORRELATED = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
"""The properties of messages that a correlation filter compares, by the names of their elements."""


def describe_rule(rule: RuleProperties) -> Element:
    """Return the description of a rule, with an action even if it has none: Go's client needs one."""
    described = description(RULE)
    described.append(_filter_element(rule.filter))
    described.append(_action_element(rule.action))
    described.append(element("CreatedAt", moment_text(rule.created_at_utc)))
    described.append(element("Name", rule.name))
    return described


def read_rule(described: Element, name: str, now: datetime) -> RuleProperties:
    """Return the rule in a description.

    Args:
        described: The description, of a rule or of the first rule of a subscription.
        name: The name of the rule, for a description without one.
        now: The current time.

    Raises:
        DocumentError: The filter or the action has an unknown type, or a value breaks the rule of its type.
    """
    found = children(described)
    given = found.get("Name")
    return RuleProperties(
        name=(given.text if given is not None else None) or name,
        filter=_filter_in(found.get("Filter")),
        action=_action_in(found.get("Action")),
        created_at_utc=now,
    )


def reads_alike(left: RuleFilter | SqlRuleAction | None, right: RuleFilter | SqlRuleAction | None) -> bool:
    """Return whether two filters or actions are the same to a client that reads them in documents.

    Documents cannot hold some characters, and some clients write each end of a line as a line feed.
    """
    return _as_read(left) == _as_read(right)


def _as_read(given: RuleFilter | SqlRuleAction | None) -> str:
    element = _action_element(given) if given is None or isinstance(given, SqlRuleAction) else _filter_element(given)
    return as_read(tostring(element, encoding="unicode"))


def _filter_element(given: RuleFilter) -> Element:
    match given:
        case CorrelationRuleFilter():
            return _correlation_element(given)
        case TrueRuleFilter():
            return _sql_element("Filter", "TrueFilter", given)
        case FalseRuleFilter():
            return _sql_element("Filter", "FalseFilter", given)
        case _:
            return _sql_element("Filter", "SqlFilter", given)


def _correlation_element(given: CorrelationRuleFilter) -> Element:
    node = element("Filter", **{"i:type": "CorrelationFilter"})
    for name, compared in _CORRELATED.items():
        value = getattr(given, compared)
        if value is not None:
            node.append(element(name, value))
    if given.properties:
        node.append(_values_element("Properties", given.properties))
    return node


def _action_element(given: SqlRuleAction | None) -> Element:
    if given is None:
        return element("Action", **{"i:type": "EmptyRuleAction"})
    return _sql_element("Action", "SqlRuleAction", given)


def _sql_element(name: str, kind: str, given: SqlRuleFilter | SqlRuleAction) -> Element:
    node = element(name, **{"i:type": kind})
    node.append(element("SqlExpression", given.sql_expression))
    node.append(element("CompatibilityLevel", _LEVEL))
    if given.parameters:
        node.append(_values_element("Parameters", given.parameters))
    return node


def _values_element(name: str, values: Mapping[str, PropertyValue]) -> Element:
    pairs = element(name)
    for key, value in values.items():
        pair = element("KeyValueOfstringanyType")
        pair.append(element("Key", key))
        pair.append(value_element("Value", value))
        pairs.append(pair)
    return pairs


def _filter_in(node: Element | None) -> RuleFilter:
    if node is None:
        return TrueRuleFilter()
    found = children(node)
    match type_of(node):
        case "TrueFilter":
            return TrueRuleFilter()
        case "FalseFilter":
            return FalseRuleFilter()
        case "SqlFilter":
            return SqlRuleFilter(_expression(found), _values_in(found.get("Parameters")))
        case "CorrelationFilter":
            compared: dict[str, Any] = {
                name: found[own].text or "" for own, name in _CORRELATED.items() if own in found
            }
            return CorrelationRuleFilter(**compared, properties=_values_in(found.get("Properties")))
        case kind:
            raise DocumentError(
                f"a filter of the type {kind!r}: choose from SqlFilter, TrueFilter, FalseFilter and CorrelationFilter"
            )


def _action_in(node: Element | None) -> SqlRuleAction | None:
    if node is None:
        return None
    found = children(node)
    match type_of(node):
        case "" | "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlRuleAction(_expression(found), _values_in(found.get("Parameters")))
        case kind:
            raise DocumentError(f"an action of the type {kind!r}: choose from SqlRuleAction and EmptyRuleAction")


def _expression(found: Mapping[str, Element]) -> str:
    return found["SqlExpression"].text or "" if "SqlExpression" in found else ""


def _values_in(pairs: Element | None) -> dict[str, PropertyValue] | None:
    """Return typed values by their keys; None if there are none."""
    values: dict[str, PropertyValue] = {}
    for pair in () if pairs is None else pairs:
        found = children(pair)
        if "Key" not in found:
            raise DocumentError("a property or a parameter has no Key: write <Key>name</Key><Value>…</Value>")
        values[found["Key"].text or ""] = read_value(found["Value"]) if "Value" in found else None
    return values or None
