"""Rules of a subscription: which messages match, how many copies there are, and the stored form of rules."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.entities import RuleSet, SubscriptionDescription, read_description
from kafkabus_mapping.filters.evaluate import MessageSubject
from kafkabus_mapping.filters.parse import FilterSyntaxError
from kafkabus_mapping.filters.rules import (
    CorrelationFilterDescription,
    FalseFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
    TrueFilterDescription,
    compile_filter,
    compile_rules,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
VALUES: dict[Any, Any] = {
    "n": 1,
    "f": 1.5,
    "t": "x",
    "b": True,
    "at": NOON,
    "for": timedelta(seconds=1),
    "id": uuid.UUID(int=1),
    "raw": b"\x00",
}
SUBJECT = MessageSubject(
    Envelope(
        message_id="m",
        correlation_id="high",
        to="t",
        reply_to="r",
        subject="red",
        session_id="s",
        reply_to_session_id="rs",
        content_type="c",
        application_properties=dict(VALUES),
    )
)


def rule(name: str, expression: str, action: str | None = None) -> RuleDescription:
    """Return a rule with a SQL filter."""
    return RuleDescription(
        name=name,
        filter=SqlFilterDescription(expression=expression),
        action=None if action is None else SqlActionDescription(expression=action),
        created_at=NOON,
    )


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        ({}, True),
        ({"correlation_id": "high"}, True),
        ({"correlation_id": "High"}, False),
        ({"message_id": "m", "to": "t", "reply_to": "r", "label": "red", "session_id": "s"}, True),
        ({"reply_to_session_id": "rs", "content_type": "c"}, True),
        ({"label": "red", "to": "other"}, False),
        ({"label": "red", "properties": {"n": 1}}, True),
        ({"label": "red", "properties": {"n": 2}}, False),
        ({"properties": dict(VALUES)}, True),
        ({"properties": {"N": 1.0}}, True),
        ({"properties": {"n": "1"}}, False),
        ({"properties": {"n": True}}, False),
        ({"properties": {"raw": b"\x00"}}, True),
        ({"properties": {"raw": b"\x01"}}, False),
        ({"properties": {"missing": 1}}, False),
    ],
)
def test_a_correlation_filter_wants_all_that_it_names(given: dict[str, Any], matches: bool) -> None:
    """The case of texts counts, and the case of names does not."""
    assert compile_filter(CorrelationFilterDescription(**given))(SUBJECT) is matches


def test_boolean_filters() -> None:
    """They match all messages, or none."""
    assert compile_filter(TrueFilterDescription())(SUBJECT) is True
    assert compile_filter(FalseFilterDescription())(SUBJECT) is False


def test_rules_without_actions_give_one_message_and_each_with_one_a_copy() -> None:
    """The service's own example is the model: five rules match, two of them have actions."""
    selected = compile_rules(
        [
            rule("a", "n = 1"),
            rule("b", "1 = 1", "SET n = n + 1"),
            rule("c", "t = 'x'"),
            rule("d", "f > 1", "REMOVE n; SET sys.Label = 'blue'"),
            rule("e", "b = TRUE"),
            rule("f", "n = 2", "SET n = 100"),
        ]
    )(SUBJECT)
    assert (selected.as_it_is, selected.errors) == (True, {})
    b, d = selected.copies
    assert b.application_properties == {**VALUES, "n": 2, "RuleName": "b"}
    assert (b.subject, d.subject) == ("red", "blue")
    assert d.application_properties == {
        **{name: value for name, value in VALUES.items() if name != "n"},
        "RuleName": "d",
    }
    assert SUBJECT.envelope.application_properties == VALUES


def test_what_cannot_be_said_gives_nothing_and_is_told() -> None:
    """Other rules are not affected."""
    select = compile_rules(
        [
            rule("broken", "t > 1"),
            rule("unknown", "missing = 1"),
            rule("fine", "n = 1", "SET sys.Label = n"),
            rule("x", "n = 1"),
        ]
    )
    selected = select(SUBJECT)
    assert (selected.as_it_is, selected.copies) == (True, [])
    assert selected.errors == {
        "broken": "> does not take a text and an integer",
        "fine": "sys.Label takes a text, not an integer",
    }
    assert not compile_rules([rule("unknown", "missing = 1")])(SUBJECT)
    assert not compile_rules([])(SUBJECT)


def test_a_rule_outlives_being_written_down() -> None:
    """The kinds of all its values are kept."""
    rules = [
        RuleDescription(name="$Default", created_at=NOON),
        RuleDescription(name="none", filter=FalseFilterDescription(), created_at=NOON),
        RuleDescription(
            name="sql",
            filter=SqlFilterDescription(
                expression="n = @n", parameters={f"@{name}": one for name, one in VALUES.items()}
            ),
            action=SqlActionDescription(expression="SET a = @a", parameters={"@a": 1 << 60}),
            created_at=NOON,
        ),
        RuleDescription(
            name="like", filter=CorrelationFilterDescription(label="red", properties=dict(VALUES)), created_at=NOON
        ),
    ]
    for one in rules:
        read = RuleDescription.model_validate_json(one.model_dump_json())
        assert read == one
        assert bool(compile_rules([read])(SUBJECT)) is (one.name != "none")


def test_what_is_no_expression_is_refused_when_rules_are_compiled() -> None:
    """That holds for filters and actions alike."""
    with pytest.raises(FilterSyntaxError):
        compile_rules([rule("a", "n =")])
    with pytest.raises(FilterSyntaxError):
        compile_rules([rule("a", "n = 1", "SET")])


def described(*rule_sets: RuleSet, **settings: Any) -> SubscriptionDescription:
    """Return a subscription with these rules."""
    return SubscriptionDescription(
        name="t/Subscriptions/s",
        topic="ns.t",
        topic_id="id",
        topic_entity="t",
        uid="u",
        rule_sets=rule_sets,
        created_at=NOON,
        updated_at=NOON,
        **settings,
    )


def test_a_rule_of_many_sets_is_written_once() -> None:
    """Rules that differ in the type of a value alone are two. Reading returns what was written."""
    rules = [
        RuleDescription(name="r", filter=CorrelationFilterDescription(properties={"n": value}), created_at=NOON)
        for value in (1, 1.0, True, NOON, "x" * 1000)
    ]
    sets = [RuleSet(rules=tuple(rules[: 1 + n % 5]), offsets=(n, 0)) for n in range(100)]
    before = described(*sets, partitions=2, changing=(rules[4], rules[0]))
    text = before.model_dump_json()
    after = read_description(text)
    assert after == before
    assert isinstance(after, SubscriptionDescription)
    (first,) = after.rule_sets[0].rules
    assert isinstance(first.filter, CorrelationFilterDescription)
    assert type(first.filter.properties["n"]) is int
    assert len(text) < 10_000
    assert SubscriptionDescription.model_validate(before.model_dump()) == before


def test_over_another_topic_a_subscription_begins_anew() -> None:
    """It begins with its present rules: there are no messages from the time of earlier ones."""
    true, false = (
        RuleDescription(name="a", created_at=NOON),
        RuleDescription(name="b", filter=FalseFilterDescription(), created_at=NOON),
    )
    before = described(RuleSet(rules=(false,), offsets=(0,)), RuleSet(rules=(true,), offsets=(50,)))
    after = before.with_topic("other")
    assert after.topic_id == "other"
    assert after.rule_sets == (RuleSet(rules=(true,), offsets=(0,)),)


def test_what_follows_a_cut_goes_by_the_last_rules() -> None:
    """The last rules count from beyond the present end of the log. Other partitions stay as they are."""
    true, false = TrueFilterDescription(), FalseFilterDescription()
    rules = [RuleDescription(name="r", filter=one, created_at=NOON) for one in (true, false)]
    before = described(
        *(RuleSet(rules=(rule,), offsets=offsets) for rule, offsets in zip(rules, [(0, 0), (50, 60)], strict=True)),
        partitions=2,
    )
    assert [one.offsets for one in before.cut(1, 20).rule_sets] == [(0, 0), (50, 20)]
    assert before.cut(0, 100) == before
