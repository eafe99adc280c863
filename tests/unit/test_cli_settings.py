"""The command line writes the settings of rules and entities."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
import typer

from kafkabus.cli.commands.rule import _row
from kafkabus.cli.retry_policies import changed_policy, given_policy, parse_policy
from kafkabus.cli.settings import given_changes, settings_json, settings_text
from kafkabus.management import CorrelationRuleFilter, RetryPolicy, RuleProperties, SqlRuleAction, SqlRuleFilter
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


@pytest.mark.parametrize(
    ("text", "policy", "written"),
    [
        ("fixed:10s", RetryPolicy.fixed(10), "fixed:10s"),
        (" Fixed: PT90S", RetryPolicy.fixed(90), "fixed:1m30s"),
        ("exponential:1s:5m", RetryPolicy.exponential(1, 300), "exponential:1s:5m"),
        ("list:10s, 1 minute,10m", RetryPolicy.by_delivery_count([10, 60, 600]), "list:10s,1m,10m"),
        ("LIST:0s", RetryPolicy.by_delivery_count([0]), "list:0s"),
    ],
)
def test_retry_policies_are_read_and_written(text: str, policy: RetryPolicy, written: str) -> None:
    """A written policy is read as the same one; JSON has it as the administration takes it."""
    assert (parse_policy(text), settings_text({"p": policy})) == (policy, {"p": written})
    assert parse_policy(written) == policy
    shown = json.loads(json.dumps(settings_json({"p": policy})))["p"]
    assert RetryPolicy.model_validate(shown) == policy
    assert settings_json({"p": None}) == {"p": None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("linear:10s", "'linear:10s' is no retry policy: write fixed:10s, exponential:1s:5m or list:10s,1m,10m"),
        ("10s", "'10s' is no retry policy: write fixed:10s, "),
        ("fixed", "'fixed' is no retry policy: write fixed:10s, "),
        ("", "'' is no retry policy: write fixed:10s, "),
        ("fixed:10", "'fixed:10': '10' is no duration: write numbers with their units d, h, m, s or ms, like 10s, "),
        ("fixed:8d", "'fixed:8d': a delay is 8 days, 0:00:00: the longest one is 7 days; choose a shorter one"),
        ("exponential:1s", "'exponential:1s': write the first delay and the longest one, as in exponential:1s:5m"),
        (
            "exponential:5m:1s",
            "'exponential:5m:1s': the first delay is 0:05:00: it may not exceed the longest one, 0:00:01",
        ),
        ("list:10s,", "'list:10s,': '' is no duration: write numbers"),
    ],
)
def test_what_is_no_retry_policy_is_refused(text: str, said: str) -> None:
    """By the option's name, with the value, the rule and the remedy."""
    with pytest.raises(typer.BadParameter) as refused:
        given_policy(text)
    assert str(refused.value).startswith(f"--retry-policy {said}")
    with pytest.raises(typer.BadParameter) as refused:
        changed_policy(text)
    assert str(refused.value).startswith(f"--retry-policy {said}")
    assert str(refused.value).endswith("; 'none' removes the policy")


def test_only_an_update_removes_a_retry_policy() -> None:
    """An entity that is created has none anyway."""
    assert given_changes({"retry_policy": changed_policy(" None")}, "queue") == {"retry_policy": None}
    assert changed_policy(None) is given_policy(None) is None
    with pytest.raises(
        typer.BadParameter, match=r"^--retry-policy 'none': a new entity has no policy unless one is given"
    ):
        given_policy("none")


def test_a_person_sees_what_a_rule_asks_for() -> None:
    """The text has the message's own properties and the application's alike."""
    asks = CorrelationRuleFilter(label="x", properties={"color": "red", "when": NOON})
    assert _row(rule(asks)) == ["r", "label=x, color=red, when=2026-01-31T12:00:00+00:00", "SET a = 1"]
