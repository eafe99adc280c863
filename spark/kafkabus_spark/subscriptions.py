"""The selection of a subscription's records from its topic, by the subscription's description in Kafka."""

from __future__ import annotations

from kafkabus_mapping import headers as h
from kafkabus_mapping.entities import SubscriptionDescription
from kafkabus_mapping.filters.parse import parse_filter
from kafkabus_mapping.filters.rules import (
    SYSTEM_OF,
    CorrelationFilterDescription,
    FilterDescription,
    RuleDescription,
    SqlFilterDescription,
    TrueFilterDescription,
)
from kafkabus_mapping.names import EntityPath
from kafkabus_spark.columns import Choice
from kafkabus_spark.predicate import (
    TRUE,
    application_property,
    equals,
    predicate,
    quote_text,
    system_column,
    system_properties,
)


def choice(description: SubscriptionDescription) -> Choice:
    """Return the selection of the topic's records that a subscription gets.

    Raises:
        ValueError: A rule of the subscription has an action.
    """
    asked: set[str] = set()
    cases = " ".join(
        f"WHEN offset >= element_at(array({', '.join(f'{offset}L' for offset in rule_set.offsets)}), partition + 1) "
        f"THEN {' OR '.join([_matches(rule, asked) for rule in rule_set.rules]) or 'FALSE'}"
        for rule_set in reversed(description.rule_sets)
    )
    # A scheduled message is stored twice; only the copy that is stored at its scheduled time counts.
    waits = f"({_has(h.SCHEDULED_ENQUEUE_TIME)} AND NOT {_has(h.TRANSFER_SOURCE)})"
    key = quote_text(EntityPath(description.name).key)
    to_this = f"exists(headers, h -> h.key = '{h.ADDRESSED_TO}' AND CAST(h.value AS STRING) = {key})"
    by_rules = f"NOT {waits} AND CASE {cases} ELSE FALSE END"
    return Choice(f"CASE WHEN {_has(h.ADDRESSED_TO)} THEN {to_this} ELSE {by_rules} END", frozenset(asked))


def _has(header: str) -> str:
    """Return SQL for whether a record has a header."""
    return f"coalesce(exists(headers, h -> h.key = '{header}'), FALSE)"


def _matches(rule: RuleDescription, asked: set[str]) -> str:
    """Return SQL for whether a rule matches; add the system properties that it uses to ``asked``."""
    if rule.action is not None:
        raise ValueError(
            f"rule {rule.name!r} has an action, and Spark cannot compute the copies that actions make: read the topic, or the "
            "entity that the subscription forwards to"
        )
    return f"({_holds(rule.filter, asked)})"


def _holds(described: FilterDescription, asked: set[str]) -> str:
    match described:
        case SqlFilterDescription():
            condition = parse_filter(described.expression)
            asked.update(system_properties(condition))
            return f"{predicate(condition, described.parameters)} = {TRUE}"
        case CorrelationFilterDescription():
            own = {name: value for key, name in SYSTEM_OF.items() if (value := getattr(described, key)) is not None}
            asked.update(own)
            wanted = [equals(system_column(name), value) for name, value in own.items()]
            wanted += [
                equals(application_property(quote_text(name.lower())), value)
                for name, value in described.properties.items()
            ]
            return " AND ".join(wanted)
        case _:
            return str(isinstance(described, TrueFilterDescription)).upper()
