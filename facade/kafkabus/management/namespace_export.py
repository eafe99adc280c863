"""Writes the file that describes the entities of a namespace; see ``namespace_file``, which reads it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from pydantic.alias_generators import to_pascal

from kafkabus._core.rule_properties import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from kafkabus._sync.admin.queues import ServiceBusAdministrationClient
from kafkabus.management.namespace_file import FORWARDS, NOT_IN_FILES
from kafkabus_mapping.durations import iso_duration
from kafkabus_mapping.entities import RetryPolicy
from kafkabus_mapping.filters.rules import SYSTEM_OF
from kafkabus_mapping.namespaces import LONGEST_LOCK
from kafkabus_mapping.properties import encode_properties

_DERIVED = frozenset({"max_message_size_in_kilobytes", "default_rule"})
"""Arguments that say nothing of an entity itself: the tier decides on the first one, and rules are written one by one."""

Entry = dict[str, Any]
"""An object of the file."""


def export_namespace(administration: ServiceBusAdministrationClient) -> Entry:
    """Return the content of a file that describes all entities of a namespace, without keys of authorization rules.

    ``NamespaceFile.apply`` makes the same entities of it in an empty namespace, and changes nothing in this one.

    Args:
        administration: A client of the namespace.

    Raises:
        ServiceBusCommunicationError: Kafka or Redis cannot be reached.
    """
    namespace = administration.get_namespace_properties()
    described: Entry = {"Name": namespace.name, "MessagingSku": namespace.messaging_sku.value}
    if namespace.partitions is not None:
        described["Partitions"] = namespace.partitions
    if namespace.longest_lock != LONGEST_LOCK:
        described["LongestLock"] = iso_duration(namespace.longest_lock)
    described["Queues"] = [
        {"Name": queue.name, "Properties": _settings(queue, administration.create_queue)}
        for queue in administration.list_queues()
    ]
    described["Topics"] = [
        {
            "Name": topic.name,
            "Properties": _settings(topic, administration.create_topic),
            "Subscriptions": [
                _subscription(administration, topic.name, subscription)
                for subscription in administration.list_subscriptions(topic.name)
            ],
        }
        for topic in administration.list_topics()
    ]
    return {"UserConfig": {"Namespaces": [described]}}


def _subscription(administration: ServiceBusAdministrationClient, topic: str, subscription: Any) -> Entry:
    rules = sorted(administration.list_rules(topic, subscription.name), key=lambda rule: rule.name)
    return {
        "Name": subscription.name,
        "Properties": _settings(subscription, administration.create_subscription),
        **({"Rules": [_rule(rule) for rule in rules]} if rules else {"DefaultRule": False}),
    }


def _settings(properties: Any, create: Callable[..., object]) -> Entry:
    """Return the settings of an entity by the names that they have in files."""
    names = (name for name in inspect.signature(create).parameters if name not in NOT_IN_FILES and name not in _DERIVED)
    values = {name: getattr(properties, name) for name in names}
    return {
        to_pascal(name): _value(name, value)
        for name, value in values.items()
        if value is not None and not callable(value)
    }


def _value(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return iso_duration(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, RetryPolicy):
        return {to_pascal(part): content for part, content in value.model_dump(mode="json").items()}
    if name in FORWARDS:
        return urlsplit(str(value)).path.strip("/") if "://" in str(value) else str(value)
    return value


def _rule(rule: RuleProperties) -> Entry:
    described = _filter(rule.filter)
    if rule.action is not None:
        described["Action"] = _expression(rule.action)
    return {"Name": rule.name, "Properties": described}


def _filter(given: object) -> Entry:
    match given:
        case TrueRuleFilter():
            return {"FilterType": "True"}
        case FalseRuleFilter():
            return {"FilterType": "False"}
        case SqlRuleFilter():
            return {"FilterType": "Sql", "SqlFilter": _expression(given)}
        case CorrelationRuleFilter():
            asked = {name: getattr(given, name) for name in SYSTEM_OF if getattr(given, name) is not None}
            correlated: Entry = {to_pascal(name): value for name, value in asked.items()}
            if given.properties:
                correlated["Properties"] = _values(given.properties)
            return {"FilterType": "Correlation", "CorrelationFilter": correlated}
        case _:
            raise TypeError(f"a rule's filter is {type(given).__name__}")


def _expression(given: SqlRuleFilter | SqlRuleAction) -> Entry:
    written: Entry = {"SqlExpression": given.sql_expression}
    if given.parameters:
        written["Parameters"] = _values(given.parameters)
    return written


def _values(values: Mapping[Any, Any]) -> Entry:
    """Return values of parameters or properties; those that JSON does not have are tagged, as in records' headers."""
    written: Entry = json.loads(encode_properties(values))
    return written
