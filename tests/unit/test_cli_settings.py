"""The command line writes the settings of rules and entities."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from uuid import UUID

from kafkabus.cli.commands.rule import _row
from kafkabus.cli.settings import settings_json
from kafkabus.management import CorrelationRuleFilter, RuleProperties, SqlRuleAction, SqlRuleFilter
from kafkabus_mapping.properties import PropertyValue

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
VALUES: dict[str, PropertyValue] = {
    "when": NOON,
    "long": timedelta(minutes=5),
    "who": UUID(int=1),
    "raw": b"ab",
    "n": 1,
    "yes": True,
    "nothing": None,
}


def rule(filter_: CorrelationRuleFilter | SqlRuleFilter) -> RuleProperties:
    """Return a rule with such a filter."""
    return RuleProperties(name="r", filter=filter_, action=SqlRuleAction("SET a = 1"), created_at_utc=NOON)


def test_whatever_a_rule_can_hold_is_written_as_json() -> None:
    """That includes its values."""
    written = {
        "when": "2026-01-31T12:00:00+00:00",
        "long": "PT5M",
        "who": "00000000-0000-0000-0000-000000000001",
        "raw": "YWI=",
        "n": 1,
        "yes": True,
        "nothing": None,
    }
    correlated = json.loads(json.dumps(settings_json(rule(CorrelationRuleFilter(label="x", properties=VALUES)))))
    assert correlated["filter"]["properties"] == written
    parameters = {f"@{name}": value for name, value in VALUES.items()}
    sql = json.loads(json.dumps(settings_json(rule(SqlRuleFilter("a = @n", parameters)))))
    assert sql["filter"]["parameters"] == {f"@{name}": value for name, value in written.items()}


def test_a_person_sees_what_a_rule_asks_for() -> None:
    """The text has the message's own properties and the application's alike."""
    asks = CorrelationRuleFilter(label="x", properties={"color": "red", "when": NOON})
    assert _row(rule(asks)) == ["r", "label=x, color=red, when=2026-01-31T12:00:00+00:00", "SET a = 1"]
