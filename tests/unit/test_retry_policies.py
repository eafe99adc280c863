"""Retry policies: what they say, and which are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus._async.admin.base import validate
from kafkabus.exceptions import InvalidOperationError
from kafkabus.management import RetryPolicy
from kafkabus_mapping.entities import QueueDescription

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
KNOWN = {"name": "q", "topic": "t", "topic_id": "i", "created_at": NOW, "updated_at": NOW}


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (RetryPolicy.fixed(0), [0]),
        (RetryPolicy.fixed(timedelta(days=7)), [604_800]),
        (RetryPolicy.exponential(1, 5), [1, 2, 4, 5]),
        (RetryPolicy.exponential(timedelta(minutes=5), 300), [300]),
        (RetryPolicy.by_delivery_count([10, timedelta(minutes=1), 0]), [10, 60, 0]),
        (RetryPolicy.by_delivery_count([1] * 2000), [1] * 2000),
    ],
)
def test_a_policy_has_a_delay_for_each_delivery(policy: RetryPolicy, seconds: list[int]) -> None:
    """The last one applies after all later deliveries."""
    assert policy.delays_ms == [1000 * delay for delay in seconds]


TOO_LONG = timedelta(days=7, microseconds=1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RetryPolicy.fixed(-1), "a delay is -0:00:01: the shortest one is 0; choose a longer one"),
        (
            lambda: RetryPolicy.by_delivery_count([1, TOO_LONG]),
            "a delay is 7 days, 0:00:00.000001: the longest one is 7 days; choose a shorter one",
        ),
        (
            lambda: RetryPolicy.by_delivery_count([]),
            "delays is empty: give at least one delay, or None in place of the policy",
        ),
        (
            lambda: RetryPolicy.by_delivery_count([1] * 2001),
            "delays has 2,001 delays: a message has up to 2,000 deliveries; leave the others out",
        ),
        (
            lambda: RetryPolicy.exponential(10, 5),
            "the first delay is 0:00:10: it may not exceed the longest one, 0:00:05; choose a shorter one",
        ),
        (
            lambda: RetryPolicy.exponential(0, 5),
            "the first delay is 0, which does not grow by doubling: choose a longer one",
        ),
        (
            lambda: RetryPolicy.fixed(float("nan")),
            "delay nan is no duration: give a timedelta, seconds, or a text in ISO 8601, such as 'PT10S'",
        ),
    ],
)
def test_a_policy_that_breaks_a_rule_is_refused(make: Callable[[], RetryPolicy], text: str) -> None:
    """The error names the value, the rule and the remedy."""
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        make()


def queue_with(policy: object) -> QueueDescription:
    """Return a queue with such a setting."""
    return validate(QueueDescription, {**KNOWN, "retry_policy": policy}, "created")


def test_a_mapping_is_a_policy_too() -> None:
    """With durations as administration takes them; the queue's description has it, and is read again."""
    described = queue_with({"kind": "list", "delays": ["PT10S", 60, timedelta(minutes=10)]})
    assert described.retry_policy == RetryPolicy.by_delivery_count([10, 60, 600])
    assert described == queue_with(described.retry_policy)
    stored = json.loads(described.to_text())
    assert stored["retry_policy"] == {"kind": "list", "delays": ["PT10S", "PT1M", "PT10M"]}
    assert QueueDescription.model_validate(stored) == described


def test_a_queue_without_a_policy_is_stored_as_before() -> None:
    """Programs of format 1 refuse a setting that they do not have."""
    assert "retry_policy" not in json.loads(queue_with(None).to_text())


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"kind": "linear", "delays": [1]}, "kind 'linear' is unknown: choose 'fixed', 'exponential' or 'list'"),
        ({"delays": [1]}, "kind is missing: a policy has a kind and delays; give both"),
        ({"kind": "fixed"}, "delays is missing: a policy has a kind and delays; give both"),
        (
            {"kind": "fixed", "delays": [1], "jitter": 2},
            "there is no 'jitter': a policy has a kind and delays; leave the ",
        ),
        ({"kind": "fixed", "delays": 5}, "delays is 5: give a list of delays"),
        (
            {"kind": "fixed", "delays": [1, 2]},
            "delays has 2 delays: kind 'fixed' has one; leave the others out, or choose ",
        ),
        ({"kind": "fixed", "delays": []}, "delays is empty: give at least one delay, or None in place of the policy"),
        (
            {"kind": "exponential", "delays": [1]},
            "delays has 1 delay: kind 'exponential' has two; give the first one and ",
        ),
        (
            {"kind": "exponential", "delays": [5, 1]},
            "the first delay is 0:00:05: it may not exceed the longest one, 0:00:01",
        ),
        (
            {"kind": "fixed", "delays": ["soon"]},
            "delay 'soon' is no duration: give a timedelta, seconds, or a text in ISO ",
        ),
        ({"kind": "list", "delays": [1, -1]}, "a delay is -0:00:01: the shortest one is 0; choose a longer one"),
        ("fixed:10s", "'fixed:10s' is no policy: give a RetryPolicy, or a mapping with its kind and delays"),
    ],
)
def test_administration_refuses_what_is_no_policy(policy: object, text: str) -> None:
    """Its error names the entity and the setting."""
    with pytest.raises(InvalidOperationError) as refused:
        queue_with(policy)
    assert f"queue 'q' cannot be created: retry_policy: {text}" in str(refused.value)
    assert "\n" not in str(refused.value)
