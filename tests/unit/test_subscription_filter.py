"""The records that a subscription gets: the check of the headers alone agrees with the check of the decoded message."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkabus._core.record import ChangedRecord, StoredRecord, envelope_of
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, encode_headers
from kafkabus_mapping.entities import RuleSet
from kafkabus_mapping.filters.evaluate import Subject
from kafkabus_mapping.filters.rules import (
    CorrelationFilterDescription,
    FalseFilterDescription,
    RuleDescription,
    Selected,
    SqlActionDescription,
    SqlFilterDescription,
    TrueFilterDescription,
)
from tests.effort import effort

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
KEY = "t/subscriptions/s"
TEXTS = st.just("red") | st.sampled_from(["red", "Red", "a b", 'q"q', "\u00fc", "", "1"])
VALUES = TEXTS | st.sampled_from([1, 1.0, True, b"red", None])
NAMES = st.just("color") | st.sampled_from(["color", "Color", "size"])
SHORT = st.none() | TEXTS
ENVELOPES = st.builds(
    Envelope,
    message_id=SHORT,
    session_id=SHORT,
    subject=SHORT,
    to=SHORT,
    correlation_id=SHORT,
    application_properties=st.dictionaries(NAMES, VALUES, max_size=2),
)
OTHERS = st.lists(
    st.sampled_from(
        [
            ("color", b"red"),
            (h.ADDRESSED_TO, KEY.encode()),
            (h.ADDRESSED_TO, b"t/subscriptions/other"),
            (h.SCHEDULED_ENQUEUE_TIME, b"1"),
            (h.APPLICATION_PROPERTIES, b'{"color":"\\u0072ed"}'),
            (h.SUBJECT, b"red"),
            (h.SUBJECT, None),
        ]
    ),
    max_size=2,
)
WANTED = st.dictionaries(NAMES, VALUES.filter(lambda value: value is not None), max_size=2)
FILTERS = st.one_of(
    st.builds(CorrelationFilterDescription, properties=WANTED),
    st.builds(CorrelationFilterDescription, label=SHORT, to=SHORT, properties=WANTED),
    st.builds(CorrelationFilterDescription, correlation_id=TEXTS, message_id=SHORT, session_id=SHORT),
    st.just(FalseFilterDescription()),
)


def subscription_filter(*rules: Any, action: str | None = None) -> SubscriptionFilter:
    """Return a subscription with such filters."""
    described = tuple(
        RuleDescription(
            name=f"r{number}",
            filter=one,
            action=None if action is None else SqlActionDescription(expression=action),
            created_at=NOON,
        )
        for number, one in enumerate(rules)
    )
    sets = [RuleSet(rules=described, offsets=(0,))]
    return SubscriptionFilter(KEY, sets, keeps_faulty=True, time_to_live=None, max_message_bytes=None)


def record(envelope: Envelope, *others: tuple[str, bytes | None]) -> StoredRecord:
    """Return a record of a message, with further headers."""
    return StoredRecord(("t", 0, 7), (None, b"body", [*encode_headers(envelope), *others]), (1, 0))


@settings(max_examples=effort(300, 2000))
@given(st.lists(FILTERS, min_size=1, max_size=3), ENVELOPES, OTHERS)
def test_what_the_headers_rule_out_nobody_wants(
    filters: list[Any], envelope: Envelope, others: list[tuple[str, bytes | None]]
) -> None:
    """The headers may have any contents, in any spelling."""
    quick, slow = subscription_filter(*filters), subscription_filter(*filters)
    slow._gate = None
    one = record(envelope, *others)
    wanted = slow.select_wanted([one])
    event(f"gate: {quick._gate is not None}, wanted: {bool(wanted)}")
    assert quick.select_wanted([one]) == wanted


def test_rules_that_need_all_of_a_message_are_asked_of_each() -> None:
    """The headers do not decide if a rule takes every message, or asks for a property that they only hold encoded."""
    red = CorrelationFilterDescription(label="red")
    assert subscription_filter(red)._gate is not None
    for other in (TrueFilterDescription(), CorrelationFilterDescription(properties={"n": 1})):
        assert subscription_filter(red, other)._gate is None


@pytest.mark.parametrize(
    ("rule", "value", "wanted"),
    [
        (SqlFilterDescription(expression="ce_type = 'order.created'"), b"order.created", True),
        (SqlFilterDescription(expression="CE_TYPE LIKE '%.cre_ted'"), b"order.created", True),
        (SqlFilterDescription(expression="ce_type = 'order.created'"), b"order.deleted", False),
        (CorrelationFilterDescription(properties={"ce_type": "gr\u00f6\u00dfe"}), "gr\u00f6\u00dfe".encode(), True),
        (CorrelationFilterDescription(label="x", properties={"ce_type": "a"}), b"a", False),
        (CorrelationFilterDescription(properties={"ce_type": b"\xff"}), b"\xff", True),
        (CorrelationFilterDescription(properties={"ce_type": b"a"}), b"a", False),
        (SqlFilterDescription(expression="ce_type IS NULL"), None, True),
    ],
)
def test_headers_of_plain_producers_are_texts_to_rules(rule: Any, value: bytes | None, wanted: bool) -> None:
    """If they are UTF-8, as CloudEvents' are."""
    plain = StoredRecord(("t", 0, 7), (b"k", b"{}", [("ce_type", value)]), (1, 0))
    assert bool(subscription_filter(rule).select_wanted([plain])) == wanted


def test_an_action_leaves_headers_of_plain_producers_as_they_are() -> None:
    """A rule of another entity, to which the copy is forwarded, compares them as well; receivers get bytes."""
    plain = StoredRecord(("t", 0, 7), (b"k", b"{}", [("ce_type", b"a"), ("odd", b"\xff"), ("trace", b"1")]), (1, 0))
    rule = SqlFilterDescription(expression="ce_type = 'a'")
    (changed,) = subscription_filter(rule, action="SET trace = trace + ce_type").select_received([plain])
    headers = changed.headers() or []
    assert {("ce_type", b"a"), ("odd", b"\xff")} <= {*headers}
    assert envelope_of(changed).application_properties == {
        "ce_type": b"a",
        "odd": b"\xff",
        "trace": "1a",
        "RuleName": "r0",
    }
    again = StoredRecord(("u", 0, 1), (b"k", b"{}", headers), (1, 0))
    assert subscription_filter(rule).select_wanted([again]) == [again]


def test_a_record_that_an_action_changed_is_received_again_as_it_is() -> None:
    """That holds even if its rule would not want it any more."""
    choose = subscription_filter(CorrelationFilterDescription(label="red"), action="SET sys.Label = 'blue'")
    (changed,) = choose.select_received([record(Envelope(subject="red"))])
    assert isinstance(changed, ChangedRecord)
    assert envelope_of(changed).subject == "blue"
    assert choose.select_received([changed]) == [changed]


def test_a_record_that_is_asked_for_several_times_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different calls ask whether it can be had, why not, and for its copies, and a filter may take long."""
    asked: list[str | None] = []
    one = subscription_filter(SqlFilterDescription(expression="color = 'red'"), action="SET color = 'blue'")

    def select(subject: Subject) -> Selected:
        asked.append(subject.envelope.message_id)
        return Selected(copies=[subject.envelope])

    monkeypatch.setattr(one._sets[0][1], "select", select)
    records = [record(Envelope(message_id=name, application_properties={"color": "red"})) for name in ("a", "b")]
    for each in records:
        assert (one.complaint(each), one.copies_of(each), one.sets_apart(each)) == (None, [], False)
    assert asked == ["a", "b"]
