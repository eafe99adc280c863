# Generated from tests/contract/aio/test_topic_administration.py by tools/generate_blocking.py. Do not edit.
"""Administration of topics, subscriptions and rules: settings are kept, reported, changed, listed and refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.admin import base
from kafkabus.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
)
from kafkabus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionProperties,
    TopicProperties,
    TrueRuleFilter,
)
from kafkabus_mapping.entities import FOREVER
from tests.contract.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.receiving import take

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def unique(prefix: str) -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def rules_of(administration: ServiceBusAdministrationClient, topic: str, subscription: str) -> list[str]:
    """Return the names of a subscription's rules."""
    return [rule.name for rule in administration.list_rules(topic, subscription)]


def received(client: ServiceBusClient, topic: str, subscription: str, count: int) -> list[str]:
    """Receive and complete so many messages, and see that no more come; return their bodies."""
    with client.get_subscription_receiver(topic, subscription) as receiver:
        messages = take(receiver, count)
        receiver.complete_messages(messages)
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
    return [str(message) for message in messages]


# The default settings, and the given ones.


def test_a_new_topic_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Its counts are 0. The size of a partitioned topic is that of all its partitions."""
    name = make_topic(partitioned=False)
    topic = administration.get_topic(name)
    assert (topic.name, topic.status, topic.availability_status) == (name, "Active", "Available")
    assert (topic.enable_partitioning, topic.requires_duplicate_detection, topic.enable_express) == (False,) * 3
    assert (topic.max_size_in_megabytes, topic.max_message_size_in_kilobytes) == (1024, 256)
    assert (topic.default_message_time_to_live, topic.auto_delete_on_idle) == (FOREVER, FOREVER)
    assert topic.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (topic.enable_batched_operations, topic.support_ordering) == (True, True)
    assert (topic.filtering_messages_before_publishing, topic.user_metadata) == (False, "")
    assert topic.authorization_rules == []
    counts = administration.get_topic_runtime_properties(name)
    assert (counts.name, counts.subscription_count, counts.scheduled_message_count) == (name, 0, 0)
    assert (counts.sql_filter_count, counts.correlation_filter_count) == (0, 0)
    assert counts.created_at_utc == counts.updated_at_utc == counts.accessed_at_utc
    assert abs(counts.created_at_utc - datetime.now(timezone.utc)) < timedelta(seconds=30)
    partitioned = administration.get_topic(make_topic())
    assert (partitioned.enable_partitioning, partitioned.max_size_in_megabytes) == (True, 16 * 1024)


def test_a_new_subscription_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It has one rule, which every message matches."""
    topic = make_topic("one")
    subscription = administration.get_subscription(topic, "one")
    assert (subscription.name, subscription.status, subscription.availability_status) == ("one", "Active", "Available")
    assert (subscription.lock_duration, subscription.max_delivery_count) == (timedelta(minutes=1), 10)
    assert (subscription.requires_session, subscription.dead_lettering_on_message_expiration) == (False, False)
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is True
    assert (subscription.default_message_time_to_live, subscription.auto_delete_on_idle) == (FOREVER, FOREVER)
    assert (subscription.forward_to, subscription.forward_dead_lettered_messages_to) == (None, None)
    assert (subscription.enable_batched_operations, subscription.user_metadata) == (True, "")
    counts = administration.get_subscription_runtime_properties(topic, "one")
    assert (counts.name, counts.total_message_count, counts.active_message_count) == ("one", 0, 0)
    assert (counts.dead_letter_message_count, counts.transfer_message_count) == (0, 0)
    assert counts.transfer_dead_letter_message_count == 0
    assert counts.created_at_utc == counts.updated_at_utc == counts.accessed_at_utc
    assert rules_of(administration, topic, "one") == ["$Default"]
    rule = administration.get_rule(topic, "one", "$Default")
    assert (rule.name, type(rule.filter), rule.action) == ("$Default", TrueRuleFilter, None)
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.filter.sql_expression == "1=1"
    assert rule.created_at_utc == counts.created_at_utc
    assert (administration.get_topic_runtime_properties(topic)).sql_filter_count == 1


def test_all_settings_of_a_topic_can_be_given_and_are_kept(
    administration: ServiceBusAdministrationClient,
) -> None:
    """Durations are timedeltas or ISO 8601 texts. Creating returns the stored settings."""
    authorization = AuthorizationRule(key_name="send", rights=[AccessRights.SEND], primary_key="p", secondary_key="s")
    given: dict[str, Any] = {
        "default_message_time_to_live": "PT5M",
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=3),
        "enable_batched_operations": False,
        "size_in_bytes": 7,
        "filtering_messages_before_publishing": True,
        "authorization_rules": [authorization],
        "support_ordering": False,
        "auto_delete_on_idle": timedelta(days=3),
        "enable_partitioning": True,
        "enable_express": True,
        "user_metadata": "mine",
        "max_message_size_in_kilobytes": 256,
        "status": "ReceiveDisabled",
        "settled_retention": timedelta(hours=2),
    }
    name = unique("settings")
    created = administration.create_topic(name, max_size_in_megabytes=2048, **given)
    try:
        assert created == administration.get_topic(name)
        told = dict(given, default_message_time_to_live=timedelta(minutes=5), status=EntityStatus.RECEIVE_DISABLED)
        assert created == TopicProperties(
            name,
            **told,
            max_size_in_megabytes=16 * 2048,
            availability_status=created.availability_status,
        )
    finally:
        administration.delete_topic(name)


def test_all_settings_of_a_subscription_can_be_given_and_are_kept(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """The destination of forwarding is reported as an address. With sessions, only dead letters are forwarded."""
    topic, queue = make_topic(), make_queue()
    given: dict[str, Any] = {
        "lock_duration": "PT13S",
        "requires_session": False,
        "default_message_time_to_live": timedelta(minutes=5),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 14,
        "enable_batched_operations": False,
        "user_metadata": "mine",
        "auto_delete_on_idle": timedelta(days=3),
        "status": "SendDisabled",
    }
    created = administration.create_subscription(
        topic, "all", forward_to=queue, forward_dead_lettered_messages_to=queue, **given
    )
    address = f"sb://{administration.fully_qualified_namespace}/{queue}"
    assert created == administration.get_subscription(topic, "all")
    told = dict(given, lock_duration=timedelta(seconds=13), status=EntityStatus.SEND_DISABLED)
    assert created == SubscriptionProperties(
        "all",
        **told,
        forward_to=address,
        forward_dead_lettered_messages_to=address,
        availability_status=created.availability_status,
    )
    with pytest.raises(InvalidOperationError, match=r"forward_to=.* with requires_session"):
        administration.create_subscription(topic, "sessions", requires_session=True, forward_to=queue)
    sessions = administration.create_subscription(
        topic, "sessions", requires_session=True, forward_dead_lettered_messages_to=address
    )
    assert (sessions.requires_session, sessions.forward_dead_lettered_messages_to) == (True, address)


def test_properties_can_be_made_by_hand() -> None:
    """The name comes first, then all settings. A missing one raises a TypeError."""
    with pytest.raises(TypeError, match="max_delivery_count"):
        SubscriptionProperties("s")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="support_ordering"):
        TopicProperties("t")  # type: ignore[call-arg]
    rule = RuleProperties("r", filter=TrueRuleFilter(), action=None, created_at_utc=NOON)
    assert (rule.name, dict(rule)["created_at_utc"]) == ("r", NOON)
    assert (FalseRuleFilter().sql_expression, TrueRuleFilter().sql_expression) == ("1>1", "1=1")
    assert (SqlRuleFilter("a = 1").requires_preprocessing, SqlRuleAction().sql_expression) == (True, None)


# Names.


def test_names_with_slashes_dots_and_underscores_work(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Only topics' names have slashes; clients may write names in another case, and get the creator's spelling."""
    topics = [unique(prefix) for prefix in ("News/eu-1", "news_eu.1", "news.eu_1")]
    try:
        for topic in topics:
            administration.create_topic(topic)
            subscription = administration.create_subscription(topic, "Audit.log_eu-1")
            rule = administration.create_rule(topic.upper(), "audit.LOG_eu-1", "Large.or_not-1")
            assert (subscription.name, rule.name) == ("Audit.log_eu-1", "Large.or_not-1")
            assert (administration.get_rule(topic, "audit.log_EU-1", "large.OR_not-1")).name == "Large.or_not-1"
            with client.get_topic_sender(topic.upper()) as sender:
                sender.send_messages(ServiceBusMessage(topic))
            assert received(client, topic.lower(), "AUDIT.log_eu-1", 1) == [topic]
            assert [one.name for one in administration.list_subscriptions(topic.upper())] == ["Audit.log_eu-1"]
        listed = [one.name for one in administration.list_topics()]
        assert [listed.count(topic) for topic in topics] == [1, 1, 1]
    finally:
        for topic in topics:
            administration.delete_topic(topic)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a b", "ä", "x" * 261, "a/Subscriptions/b"])
def test_bad_names_of_topics_are_refused(administration: ServiceBusAdministrationClient, name: str) -> None:
    """Every operation refuses them, before any request."""
    for call in (
        administration.create_topic,
        administration.get_topic,
        administration.get_topic_runtime_properties,
        administration.delete_topic,
    ):
        with pytest.raises(ValueError, match="entity name"):
            call(name)
    with pytest.raises(ValueError, match="entity name"):
        administration.create_subscription(name, "one")
    with pytest.raises(ValueError, match="entity name"):
        assert [one.name for one in administration.list_subscriptions(name)]


@pytest.mark.parametrize("name", ["", "/a", "a/b", "a b", "ä", "$", ".a", "x" * 51])
@pytest.mark.rules
def test_bad_names_of_subscriptions_and_rules_are_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, name: str
) -> None:
    """A name has up to 50 characters and no slashes. A rule's name may begin with a dollar, as ``$Default`` does."""
    topic = make_topic("one")
    for call in (
        administration.create_subscription,
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ):
        with pytest.raises(ValueError, match="subscription name"):
            call(topic, name)
    for call_rule in (administration.create_rule, administration.get_rule, administration.delete_rule):
        with pytest.raises(ValueError, match="rule name"):
            call_rule(topic, "one", name)
    known = administration.get_rule(topic, "one", "$Default")
    with pytest.raises(ValueError, match="rule name"):
        administration.update_rule(topic, "one", {**known, "name": name})
    longest = "x" * 50
    administration.create_subscription(topic, longest)
    administration.create_rule(topic, longest, longest)
    assert rules_of(administration, topic, longest) == ["$Default", longest]
    assert rules_of(administration, topic, "one") == ["$Default"]


@pytest.mark.parametrize("name", [None, 5])
def test_names_that_are_no_texts_are_refused(administration: ServiceBusAdministrationClient, name: Any) -> None:
    """A TypeError is raised before any request."""
    kind = type(name).__name__
    for call in (
        administration.create_topic,
        administration.get_topic,
        administration.get_topic_runtime_properties,
        administration.delete_topic,
    ):
        with pytest.raises(TypeError, match=f"entity name is {kind}"):
            call(name)
    for call_subscription in (
        administration.create_subscription,
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ):
        with pytest.raises(TypeError, match=f"subscription name is {kind}"):
            call_subscription("t", name)
        with pytest.raises(TypeError, match=f"entity name is {kind}"):
            call_subscription(name, "s")
    for call_rule in (administration.create_rule, administration.get_rule, administration.delete_rule):
        with pytest.raises(TypeError, match=f"rule name is {kind}"):
            call_rule("t", "s", name)


def test_a_name_can_be_taken_once(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Queues and topics share one set of names, in which case does not count.

    A subscription's name is unique in its topic, and a rule's name in its subscription.
    """
    topic, other, queue = make_topic("one"), make_topic(), make_queue()
    for taken in (topic, topic.upper(), queue):
        with pytest.raises(MessagingEntityAlreadyExistsError, match=taken):
            administration.create_topic(taken)
    administration.create_subscription(other, "one")
    for subscribed in (topic, other):
        with pytest.raises(MessagingEntityAlreadyExistsError, match="subscription 'One' of topic"):
            administration.create_subscription(subscribed, "One")
        administration.create_rule(subscribed, "one", "mine")
        with pytest.raises(MessagingEntityAlreadyExistsError, match="has a rule 'MINE' already"):
            administration.create_rule(subscribed, "one", "MINE")
        assert rules_of(administration, subscribed, "one") == ["$Default", "mine"]


def test_what_is_not_there_is_named(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """The error names the topic, the subscription or the rule. A queue is no topic, and a topic no queue."""
    topic, queue = make_topic("one"), make_queue()
    properties = administration.get_topic(topic)
    subscription = administration.get_subscription(topic, "one")
    rule = administration.get_rule(topic, "one", "$Default")
    nobody = unique("nobody")
    for name in (nobody, queue):
        calls: list[Callable[[], object]] = [
            partial(administration.get_topic, name),
            partial(administration.get_topic_runtime_properties, name),
            partial(administration.get_topic_log_usage, name),
            partial(administration.delete_topic, name),
            partial(administration.update_topic, {**properties, "name": name}),
            partial(administration.create_subscription, name, "one"),
            partial(administration.get_subscription, name, "one"),
            partial(administration.delete_subscription, name, "one"),
            partial(administration.create_rule, name, "one", "mine"),
        ]
        for call in calls:
            with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
                call()
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
            assert [one.name for one in administration.list_subscriptions(name)]
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
            assert [one.name for one in administration.list_subscriptions_runtime_properties(name)]
        with pytest.raises(MessagingEntityNotFoundError):
            administration.update_subscription(name, subscription)
    without = [
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ]
    for call_subscription in without:
        with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
            call_subscription(topic, "two")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        administration.update_subscription(topic, subscription, name="two")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        administration.create_rule(topic, "two", "mine")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        rules_of(administration, topic, "two")
    for call_rule in (administration.get_rule, administration.delete_rule):
        with pytest.raises(MessagingEntityNotFoundError, match="has no rule 'two'"):
            call_rule(topic, "one", "two")
    with pytest.raises(MessagingEntityNotFoundError, match="has no rule 'two'"):
        administration.update_rule(topic, "one", rule, name="two")
    for call_queue in (administration.get_queue, administration.delete_queue):
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no queue '{topic}'"):
            call_queue(topic)


def test_what_nobody_made_is_not_used(client: ServiceBusClient, make_topic: MakeTopic) -> None:
    """Sending, receiving and asking for sessions fail. The error names the missing entity."""
    topic, nobody = make_topic("one"), unique("nobody")
    with pytest.raises(MessagingEntityNotFoundError, match=f"'{nobody}'"):
        client.get_topic_sender(nobody).send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError, match=f"'{nobody}'"):
        client.get_subscription_receiver(nobody, "one").receive_messages(max_wait_time=1)
    with pytest.raises(MessagingEntityNotFoundError, match="no subscription 'two'"):
        client.get_subscription_receiver(topic, "two").peek_messages()
    with pytest.raises(MessagingEntityNotFoundError, match="no subscription 'two'"):
        assert [str(name) for name in client.list_subscription_sessions(topic, "two")]


# Entities are deleted, listed and changed.


def test_a_deleted_topic_is_gone_with_its_subscriptions(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, other_client: ServiceBusClient
) -> None:
    """The next topic of that name has no subscription. A new one begins empty, with its dead letters and rules."""
    name = unique("again")
    administration.create_topic(name, enable_partitioning=True)
    administration.create_subscription(name, "one", user_metadata="old")
    administration.create_rule(name, "one", "none", filter=FalseRuleFilter())
    with client.get_topic_sender(name) as sender, client.get_subscription_receiver(name, "one") as receiver:
        sender.send_messages([ServiceBusMessage("old"), ServiceBusMessage("dead")])
        messages = take(receiver, 2)
        receiver.dead_letter_message(messages[0])
        receiver.abandon_message(messages[1])
    administration.delete_topic(name)
    with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
        administration.get_subscription(name, "one")
    with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
        administration.delete_topic(name)
    assert name not in [topic.name for topic in administration.list_topics()]
    administration.create_topic(name)
    try:
        assert [one.name for one in administration.list_subscriptions(name)] == []
        assert (administration.get_topic_runtime_properties(name)).subscription_count == 0
        assert (administration.create_subscription(name, "one")).user_metadata == ""
        assert rules_of(administration, name, "one") == ["$Default"]
        counts = administration.get_subscription_runtime_properties(name, "one")
        assert (counts.total_message_count, counts.dead_letter_message_count) == (0, 0)
        with other_client.get_topic_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("new"))
        assert received(other_client, name, "one", 1) == ["new"]
    finally:
        administration.delete_topic(name)


def test_a_deleted_subscription_is_gone_with_its_dead_letters(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """The topic's other subscriptions keep theirs."""
    topic = make_topic("one", "two")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages([ServiceBusMessage("x", partition_key="k"), ServiceBusMessage("y", partition_key="k")])
    for name in ("one", "two"):
        with client.get_subscription_receiver(topic, name) as receiver:
            (message, _) = take(receiver, 2)
            receiver.dead_letter_message(message)
    administration.delete_subscription(topic, "one")
    assert [one.name for one in administration.list_subscriptions(topic)] == ["two"]
    administration.create_subscription(topic, "one")
    counted = [
        (one.name, one.active_message_count, one.dead_letter_message_count)
        for one in administration.list_subscriptions_runtime_properties(topic)
    ]
    assert counted == [("one", 0, 0), ("two", 1, 1)]


def test_listings_are_complete_and_ordered_by_name(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Topics are listed without queues, with their properties or their counts. Rules begin with ``$Default``."""
    queue = make_queue()
    topics = sorted([make_topic(partitioned=False) for _ in range(6)])
    names = sorted(f"s{number}" for number in range(12))
    for name in reversed(names):
        administration.create_subscription(topics[0], name)
        administration.create_rule(topics[0], "s9", name)
    listed = [one.name for one in administration.list_topics()]
    counted = [one.name for one in administration.list_topics_runtime_properties()]
    for names_of_all in (listed, counted):
        assert [name for name in names_of_all if name in topics] == topics
    assert queue not in listed
    assert topics[0] not in [one.name for one in administration.list_queues()]
    assert [one.name for one in administration.list_subscriptions(topics[0])] == names
    assert [one.name for one in administration.list_subscriptions_runtime_properties(topics[0])] == names
    assert [one.name for one in administration.list_subscriptions(topics[1])] == []
    assert rules_of(administration, topics[0], "s9") == ["$Default", *names]
    counts = administration.get_topic_runtime_properties(topics[0])
    assert (counts.subscription_count, counts.sql_filter_count) == (12, 24)


def test_counts_leave_out_what_was_deleted_meanwhile(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave out queues, topics and subscriptions that were deleted between being listed and being counted."""
    monkeypatch.setattr(base, "LISTED_AT_ONCE", 1)
    prefix = f"x-{uuid.uuid4().hex[:12]}"
    for name in (f"{prefix}-1", f"{prefix}-2"):
        administration.create_queue(f"{name}-queue")
        administration.create_topic(name, enable_partitioning=False)
        administration.create_subscription(f"{prefix}-1", name[-1])
    queues, topics = administration.list_queues_runtime_properties(), administration.list_topics_runtime_properties()
    subscriptions = administration.list_subscriptions_runtime_properties(f"{prefix}-1")
    listings: tuple[Any, ...] = (queues, topics, subscriptions)
    for listing in listings:
        while not (next(listing)).name.startswith((prefix, "1")):
            pass
    administration.delete_subscription(f"{prefix}-1", "2")
    administration.delete_topic(f"{prefix}-2")
    administration.delete_queue(f"{prefix}-2-queue")
    rest = [counts.name for listing in listings for counts in listing]
    assert not [name for name in rest if name.startswith(prefix) or name == "2"]
    administration.delete_topic(f"{prefix}-1")
    administration.delete_queue(f"{prefix}-1-queue")


def test_settings_of_a_topic_can_be_changed(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Settings change by attribute, mapping or keyword. None restores the default, and reported settings are accepted."""
    name = make_topic("one")
    topic = administration.get_topic(name)
    topic.user_metadata = "by attribute"
    topic.max_size_in_megabytes = 2048
    administration.update_topic(topic, auto_delete_on_idle="P1D")
    changed = administration.get_topic(name)
    assert (changed.user_metadata, changed.auto_delete_on_idle) == ("by attribute", timedelta(days=1))
    assert changed.max_size_in_megabytes == 16 * 2048
    administration.update_topic(dict(changed), user_metadata=None, support_ordering=False)
    changed = administration.get_topic(name)
    assert (changed.user_metadata, changed.support_ordering, changed.max_size_in_megabytes) == ("", False, 16 * 2048)
    counts = administration.get_topic_runtime_properties(name)
    assert counts.updated_at_utc > counts.created_at_utc
    assert (administration.get_subscription(name, "one")).user_metadata == ""


def test_settings_of_a_subscription_can_be_changed(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Settings change as a queue's do. A name or an address sets the destination, and None clears it.

    The destination is reported as an address.
    """
    topic, queue = make_topic("one", "two"), make_queue()
    subscription = administration.get_subscription(topic, "one")
    subscription.lock_duration = timedelta(seconds=21)
    given: dict[str, Any] = {"max_delivery_count": 3, "forward_to": queue, "forward_dead_lettered_messages_to": topic}
    administration.update_subscription(topic, subscription, **given)
    changed = administration.get_subscription(topic, "one")
    host = administration.fully_qualified_namespace
    assert (changed.lock_duration, changed.max_delivery_count) == (timedelta(seconds=21), 3)
    assert (changed.forward_to, changed.forward_dead_lettered_messages_to) == (
        f"sb://{host}/{queue}",
        f"sb://{host}/{topic}",
    )
    administration.update_subscription(topic.upper(), changed, forward_dead_lettered_messages_to=None)
    changed = administration.get_subscription(topic, "one")
    assert (changed.forward_to, changed.forward_dead_lettered_messages_to) == (f"sb://{host}/{queue}", None)
    administration.update_subscription(topic, dict(changed), forward_to=None, lock_duration=None)
    changed = administration.get_subscription(topic, "one")
    assert (changed.forward_to, changed.lock_duration, changed.max_delivery_count) == (None, timedelta(minutes=1), 3)
    counts = administration.get_subscription_runtime_properties(topic, "one")
    assert counts.updated_at_utc > counts.created_at_utc
    other = administration.get_subscription(topic, "two")
    assert dict(other) == {**changed, "name": "two", "max_delivery_count": 10}


def test_changing_and_deleting_return_none(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The calls return None; an application asks for the new settings."""
    topic, other = make_topic("one"), unique("deleted")
    administration.create_topic(other)
    rule = administration.get_rule(topic, "one", "$Default")
    calls: list[Callable[[], object]] = [
        partial(administration.update_topic, administration.get_topic(topic)),
        partial(administration.update_subscription, topic, administration.get_subscription(topic, "one")),
        partial(administration.update_rule, topic, "one", rule),
        partial(administration.delete_rule, topic, "one", "$Default"),
        partial(administration.delete_subscription, topic, "one"),
        partial(administration.delete_topic, other),
    ]
    assert [call() for call in calls] == [None] * len(calls)


@pytest.mark.rules
def test_a_change_of_a_topic_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The error names the value, the rule and the remedy, and nothing changes."""
    name = make_topic()
    topic = administration.get_topic(name)
    refused: list[tuple[dict[str, object], str]] = [
        ({"requires_duplicate_detection": True}, "requires_duplicate_detection=True.*fixed at creation"),
        ({"requires_session": True}, r"no settings \['requires_session'\]"),
        ({"forward_to": name}, r"no settings \['forward_to'\]"),
        ({"default_message_time_to_live": timedelta(0)}, "default_message_time_to_live=0:00:00.*1 second"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "auto_delete_on_idle=0:04:00.*5 minutes"),
        ({"max_message_size_in_kilobytes": 1024}, "up to 256 KB"),
        ({"user_metadata": "x" * 1025}, "user_metadata"),
        ({"status": "Sleeping"}, "status=Sleeping"),
        ({"status": "Deleting"}, "status 'Deleting' cannot be set.*choose from .*delete_topic"),
        ({"status": "Creating"}, "status 'Creating' cannot be set"),
        ({"status": "Unknown"}, "status 'Unknown' cannot be set"),
        ({"colour": "red"}, r"\['colour'\]"),
    ]
    for settings, pattern in refused:
        with pytest.raises(InvalidOperationError, match=pattern):
            administration.update_topic(topic, **settings)
    assert administration.get_topic(name) == topic
    for none in (None, name, 5):
        with pytest.raises(TypeError, match="is no topic's properties"):
            administration.update_topic(none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing.*user_metadata"):
        administration.update_topic({"name": name})
    with pytest.raises(TypeError, match="name is int"):
        administration.update_topic(topic, name=5)
    with pytest.raises(ValueError, match="entity name ''"):
        administration.update_topic(topic, name="")


@pytest.mark.rules
def test_a_change_of_a_subscription_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The error names the value and the rule; an entity that could not be created does not exist."""
    topic = make_topic("one")
    known = administration.get_subscription(topic, "one")
    bounds: list[tuple[dict[str, Any], str]] = [
        ({"max_delivery_count": 0}, "max_delivery_count=0.*greater than or equal to 1"),
        ({"max_delivery_count": 2001}, "max_delivery_count=2001"),
        ({"lock_duration": timedelta(minutes=6)}, "lock_duration=0:06:00.*0:05:00"),
        ({"default_message_time_to_live": "PT0S"}, "default_message_time_to_live"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "auto_delete_on_idle"),
        ({"user_metadata": "x" * 1025}, "user_metadata"),
        ({"status": "Sleeping"}, "status=Sleeping"),
        ({"forward_to": "sb://elsewhere.example/q"}, "within their namespace"),
        ({"forward_to": f"{topic}/Subscriptions/one"}, "leave it out"),
    ]
    for settings, pattern in bounds:
        with pytest.raises(InvalidOperationError, match=pattern):
            administration.create_subscription(topic, "two", **settings)
        with pytest.raises(InvalidOperationError, match=pattern):
            administration.update_subscription(topic, known, **settings)
    for unknown, pattern in (
        ({"requires_session": True}, "requires_session=True.*fixed at creation"),
        ({"colour": "red"}, r"\['colour'\]"),
        ({"max_size_in_megabytes": 1024}, r"\['max_size_in_megabytes'\]"),
    ):
        with pytest.raises(InvalidOperationError, match=pattern):
            administration.update_subscription(topic, known, **unknown)
    for setting in ("forward_to", "forward_dead_lettered_messages_to"):
        nobody: dict[str, Any] = {setting: "nobody"}
        with pytest.raises(MessagingEntityNotFoundError, match=f"{setting}='nobody'"):
            administration.update_subscription(topic, known, **nobody)
        with pytest.raises(MessagingEntityNotFoundError, match=f"{setting}='nobody'"):
            administration.create_subscription(topic, "two", **nobody)
    assert {one.name: one for one in administration.list_subscriptions(topic)} == {"one": known}
    for none in ("one", 5):
        with pytest.raises(TypeError, match="is no subscription's properties"):
            administration.update_subscription(topic, none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing.*max_delivery_count"):
        administration.update_subscription(topic, {"name": "one"})
    with pytest.raises(ValueError, match="subscription name ''"):
        administration.update_subscription(topic, known, name="")


# Rules.


def test_rules_can_be_changed(administration: ServiceBusAdministrationClient, make_topic: MakeTopic) -> None:
    """Filter and action change by attribute, mapping or keyword. Name and time of creation stay."""
    topic = make_topic("one")
    made = administration.create_rule(
        topic, "one", "Mine", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET a = 2")
    )
    rule = administration.get_rule(topic, "one", "mine")
    assert rule == made
    rule.filter = CorrelationRuleFilter(label="x")
    administration.update_rule(topic, "one", rule)
    assert administration.get_rule(topic, "one", "Mine") == rule
    administration.update_rule(topic, "one", dict(rule), action=None, name="MINE")
    rule = administration.get_rule(topic, "one", "Mine")
    assert (rule.name, rule.action, rule.filter) == ("Mine", None, CorrelationRuleFilter(label="x"))
    later = datetime.now(timezone.utc) + timedelta(days=1)
    changed: dict[str, Any] = {"filter": FalseRuleFilter(), "action": SqlRuleAction("REMOVE b")}
    administration.update_rule(topic, "one", rule, created_at_utc=later, **changed)
    assert administration.get_rule(topic, "one", "Mine") == RuleProperties(
        "Mine", created_at_utc=made.created_at_utc, **changed
    )
    administration.delete_rule(topic, "one", "mine")
    assert rules_of(administration, topic, "one") == ["$Default"]
    administration.delete_rule(topic, "one", "$default")
    assert rules_of(administration, topic, "one") == []


def test_a_subscription_can_be_created_with_its_first_rule(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It has that rule instead of the default one, and a malformed rule creates nothing."""
    topic = make_topic()
    rule = RuleProperties("red", filter=SqlRuleFilter("colour = 'red'"), action=None, created_at_utc=NOON)
    administration.create_subscription(topic, "one", default_rule=rule)
    rules = [(one.name, one.filter, one.action) for one in administration.list_rules(topic, "one")]
    assert rules == [("red", rule.filter, None)]
    with client.get_topic_sender(topic) as sender:
        colours = [ServiceBusMessage(one, application_properties={"colour": one}) for one in ("blue", "red")]
        sender.send_messages(colours)
    with client.get_subscription_receiver(topic, "one", max_wait_time=5) as receiver:
        [message] = take(receiver, 1)
        assert str(message) == "red"
    for name, expression in (("red", "red = = 1"), ("no/name", "red = 1")):
        wrong = RuleProperties(name, filter=SqlRuleFilter(expression), action=None, created_at_utc=NOON)
        with pytest.raises(InvalidOperationError):
            administration.create_subscription(topic, "two", default_rule=wrong)
    assert [one.name for one in administration.list_subscriptions(topic)] == ["one"]


@pytest.mark.rules
def test_a_rule_that_is_none_is_refused(administration: ServiceBusAdministrationClient, make_topic: MakeTopic) -> None:
    """The existing rule stays as it was."""
    topic = make_topic("one")
    made = administration.create_rule(topic, "one", "mine", filter=SqlRuleFilter("a = 1"))
    wrong: list[tuple[type[Exception], dict[str, Any], str]] = [
        (TypeError, {"filter": "a = 1"}, "filter is str"),
        (TypeError, {"filter": None}, "filter is NoneType"),
        (TypeError, {"filter": {"sql_expression": "a = 1"}}, "filter is dict"),
        (TypeError, {"action": "SET a = 1"}, "action is str"),
        (InvalidOperationError, {"filter": SqlRuleFilter()}, "expression None"),
        (InvalidOperationError, {"action": SqlRuleAction()}, "expression None"),
        (InvalidOperationError, {"filter": SqlRuleFilter("a = ")}, r"rule '\w+': line 1"),
        (InvalidOperationError, {"filter": SqlRuleFilter("a = 1 OR " * 114 + "a = 1")}, "1,?024"),
        (InvalidOperationError, {"filter": SqlRuleFilter("a = @x", parameters={"@y": 1})}, "@x has no value"),
        (InvalidOperationError, {"filter": CorrelationRuleFilter()}, "asks for nothing"),
        (InvalidOperationError, {"filter": CorrelationRuleFilter(label=5)}, "label=5"),  # type: ignore[arg-type]
        (InvalidOperationError, {"action": SqlRuleAction("a = 1")}, "REMOVE or SET"),
        (InvalidOperationError, {"action": SqlRuleAction("SET a = @x")}, "@x has no value"),
        (InvalidOperationError, {"action": SqlRuleAction("SET sys.SessionId = 's'")}, "SessionId"),
        (
            InvalidOperationError,
            {"action": SqlRuleAction("SET sys.ScheduledEnqueueTimeUtc = a")},
            "ScheduledEnqueueTimeUtc",
        ),
        (InvalidOperationError, {"filter": SqlRuleFilter("sys.Colour = 1")}, "Colour"),
    ]
    for error, settings, pattern in wrong:
        with pytest.raises(error, match=pattern):
            administration.create_rule(topic, "one", "bad", **settings)
        with pytest.raises(error, match=pattern):
            administration.update_rule(topic, "one", made, **settings)
    with pytest.raises(InvalidOperationError, match=r"no settings \['colour'\]"):
        administration.update_rule(topic, "one", made, colour="red")
    for none in (None, "mine", 5):
        with pytest.raises(TypeError, match="is no rule's properties"):
            administration.update_rule(topic, "one", none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing: \['action', 'filter'\]"):
        administration.update_rule(topic, "one", {"name": "mine"})
    assert administration.get_rule(topic, "one", "mine") == made
    assert rules_of(administration, topic, "one") == ["$Default", "mine"]


@pytest.mark.parametrize(
    ("value", "others"),
    [
        ("x", ["X", "y"]),
        (7, [8, 7.5]),
        (1 << 40, [1, (1 << 40) + 1]),
        (1.5, [1, 2.5]),
        (True, [False]),
        (NOON, [NOON + timedelta(seconds=1)]),
        (NOON.replace(tzinfo=None), [NOON + timedelta(seconds=1)]),
        (timedelta(seconds=3), [timedelta(seconds=4)]),
    ],
    ids=["text", "int", "long", "float", "bool", "time", "naive time", "duration"],
)
@pytest.mark.rules
def test_values_of_filters_count_with_their_types(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    value: Any,
    others: list[Any],
) -> None:
    """Each is a parameter of an expression, and a property that must be equal. A text is no number."""
    topic = make_topic("sql", "correlated", partitioned=False)
    filters: dict[str, Any] = {
        "sql": SqlRuleFilter("EXISTS(v) AND v = @value", parameters={"@value": value}),
        "correlated": CorrelationRuleFilter(properties={"V": value}),
    }
    for name, filter_ in filters.items():
        administration.update_subscription(
            topic,
            administration.get_subscription(topic, name),
            dead_lettering_on_filter_evaluation_exceptions=False,
        )
        administration.create_rule(topic, name, "mine", filter=filter_)
        administration.delete_rule(topic, name, "$Default")
        kept: Any = (administration.get_rule(topic, name, "mine")).filter
        assert kept == filter_
        (there,) = (kept.parameters if name == "sql" else kept.properties).values()
        assert type(there) is type(value)
    with client.get_topic_sender(topic) as sender:
        odd = [ServiceBusMessage("other", application_properties={"v": other}) for other in (*others, "5", 5)]
        fitting = ServiceBusMessage("fits", application_properties={"v": value})
        sender.send_messages([*odd, fitting, ServiceBusMessage("none")])
    for name in filters:
        assert received(client, topic, name, 1) == ["fits"]


@pytest.mark.rules
def test_a_correlation_filter_names_system_properties(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It names each by itself, and all of them together, with their case."""
    topic = make_topic("all", partitioned=False)
    wanted: dict[str, Any] = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "ct",
    }
    administration.update_rule(
        topic,
        "all",
        administration.get_rule(topic, "all", "$Default"),
        filter=CorrelationRuleFilter(**wanted, properties={"n": 1}),
    )
    for name, value in wanted.items():
        subscription = name.replace("_", "-")
        only: dict[str, Any] = {name: value}
        administration.create_subscription(topic, subscription)
        administration.create_rule(topic, subscription, "mine", filter=CorrelationRuleFilter(**only))
        administration.delete_rule(topic, subscription, "$Default")
    arguments = {"subject" if name == "label" else name: value for name, value in wanted.items()}
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("without", **arguments))
        for name in arguments:
            sender.send_messages(ServiceBusMessage(f"but for {name}", **dict(arguments, **{name: "ELSE"})))
        sender.send_messages(ServiceBusMessage("with", **arguments, application_properties={"n": 1}))
    assert received(client, topic, "all", 1) == ["with"]
    bodies = ["without", *(f"but for {name}" for name in arguments), "with"]
    for name in wanted:
        argument = "subject" if name == "label" else name
        assert received(client, topic, name.replace("_", "-"), len(bodies) - 1) == [
            body for body in bodies if body != f"but for {argument}"
        ]


def test_an_action_sets_and_removes_properties(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It changes its own properties and the system's, from parameters and from the message. Others stay, and the body."""
    topic = make_topic("one", partitioned=False)
    action = SqlRuleAction(
        "SET sys.Label = 'new'; SET sys.To = sys.ReplyTo; SET since = @since; SET sum = a + @more; REMOVE a",
        parameters={"@since": NOON, "@more": 1 << 40},
    )
    administration.update_rule(topic, "one", administration.get_rule(topic, "one", "$Default"), action=action)
    kept = administration.get_rule(topic, "one", "$Default")
    assert (kept.action, type(kept.filter)) == (action, TrueRuleFilter)
    sent = ServiceBusMessage(
        "body",
        subject="old",
        reply_to="me",
        correlation_id="c",
        message_id="m",
        application_properties={"a": 2, "b": "kept"},
    )
    with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        sender.send_messages(sent)
        (message,) = take(receiver, 1)
        assert (str(message), message.subject, message.to, message.reply_to) == ("body", "new", "me", "me")
        assert (message.correlation_id, message.message_id) == ("c", "m")
        assert message.application_properties == {
            b"b": b"kept",
            b"since": NOON,
            b"sum": 2 + (1 << 40),
            b"RuleName": b"$Default",
        }
        receiver.complete_message(message)


def test_no_rule_is_no_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The subscription gets messages again when it has a rule."""
    topic = make_topic("one", partitioned=False)
    administration.delete_rule(topic, "one", "$Default")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("nobody's"))
        administration.create_rule(topic, "one", "$Default")
        sender.send_messages(ServiceBusMessage("its own"))
    assert received(client, topic, "one", 1) == ["its own"]


# Counts and statuses.


def test_counts_of_filters_and_scheduled_messages_are_the_topics(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """The topic counts those of all its subscriptions; a scheduled message belongs to no subscription yet.

    A cancelled one does not count.
    """
    topic = make_topic("one", "two")
    administration.create_rule(topic, "one", "c", filter=CorrelationRuleFilter(label="x"))
    administration.create_rule(topic, "two", "c", filter=CorrelationRuleFilter(label="x"))
    administration.create_rule(topic, "two", "s", filter=SqlRuleFilter("a = 1"))
    counts = administration.get_topic_runtime_properties(topic)
    assert (counts.subscription_count, counts.sql_filter_count, counts.correlation_filter_count) == (2, 3, 2)
    due = datetime.now(timezone.utc) + timedelta(days=1)
    with client.get_topic_sender(topic) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], due)
        assert (administration.get_topic_runtime_properties(topic)).scheduled_message_count == 2
        sender.cancel_scheduled_messages(numbers[0])
    assert (administration.get_topic_runtime_properties(topic)).scheduled_message_count == 1
    deadline, waiting = time.monotonic() + 20, [2, 2]
    while waiting != [0, 0] and time.monotonic() < deadline:
        # Messages in the log that the subscription does not want count until a client has looked at them.
        waiting = [one.total_message_count for one in administration.list_subscriptions_runtime_properties(topic)]
    assert waiting == [0, 0]


def test_sending_and_receiving_are_accesses(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic, later: Advance
) -> None:
    """A send is an access of the topic and all its subscriptions, a receive one of the subscription alone."""
    topic = make_topic("one", "two", partitioned=False)

    def accessed(name: str) -> datetime:
        return (administration.get_subscription_runtime_properties(topic, name)).accessed_at_utc

    # Times of creation have microseconds, times of sends milliseconds.
    while datetime.now(timezone.utc) - accessed("two") < timedelta(milliseconds=1):
        pass
    with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.peek_messages(1)
        sent = message.enqueued_time_utc
        assert (administration.get_topic_runtime_properties(topic)).accessed_at_utc == sent
        assert accessed("one") == accessed("two") == sent
        later(f"{topic}/Subscriptions/one", 2)
        receiver.complete_messages(take(receiver, 1))
    assert accessed("one") > sent
    assert accessed("two") == sent


def test_a_disabled_topic_takes_and_gives_nothing_until_it_is_enabled(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    make_topic: MakeTopic,
) -> None:
    """Its subscriptions neither take nor give messages. Their messages are there afterwards."""
    topic = make_topic("one", partitioned=False)
    properties = administration.get_topic(topic)
    client.get_topic_sender(topic).send_messages(ServiceBusMessage("x"))
    administration.update_topic(properties, status=EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        other_client.get_topic_sender(topic).send_messages(ServiceBusMessage("y"))
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        other_client.get_subscription_receiver(topic, "one").receive_messages(max_wait_time=1)
    assert (administration.get_subscription(topic, "one")).status == "Active"
    administration.update_topic(properties, status=EntityStatus.ACTIVE)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert received(other_client, topic, "one", 1) == ["x"]
            break
        except MessagingEntityDisabledError:
            assert time.monotonic() < deadline
