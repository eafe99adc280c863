"""Administration of topics, subscriptions and rules: settings are kept, reported, changed, listed and refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.admin import base
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
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
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionProperties,
    TopicProperties,
    TrueRuleFilter,
)
from kafkabus_mapping.entities import FOREVER
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.aio.receiving import take

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def unique(prefix: str) -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def rules_of(administration: ServiceBusAdministrationClient, topic: str, subscription: str) -> list[str]:
    """Return the names of a subscription's rules."""
    return [rule.name async for rule in administration.list_rules(topic, subscription)]


async def received(client: ServiceBusClient, topic: str, subscription: str, count: int) -> list[str]:
    """Receive and complete so many messages, and see that no more come; return their bodies."""
    async with client.get_subscription_receiver(topic, subscription) as receiver:
        messages = await take(receiver, count)
        await receiver.complete_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=0.5) == []
    return [str(message) for message in messages]


# The default settings, and the given ones.


async def test_a_new_topic_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Its counts are 0. The size of a partitioned topic is that of all its partitions."""
    name = await make_topic(partitioned=False)
    topic = await administration.get_topic(name)
    assert (topic.name, topic.status, topic.availability_status) == (name, "Active", "Available")
    assert (topic.enable_partitioning, topic.requires_duplicate_detection, topic.enable_express) == (False,) * 3
    assert (topic.max_size_in_megabytes, topic.max_message_size_in_kilobytes) == (1024, 256)
    assert (topic.default_message_time_to_live, topic.auto_delete_on_idle) == (FOREVER, FOREVER)
    assert topic.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (topic.enable_batched_operations, topic.support_ordering) == (True, True)
    assert (topic.filtering_messages_before_publishing, topic.user_metadata) == (False, "")
    assert topic.authorization_rules == []
    counts = await administration.get_topic_runtime_properties(name)
    assert (counts.name, counts.subscription_count, counts.scheduled_message_count) == (name, 0, 0)
    assert (counts.sql_filter_count, counts.correlation_filter_count) == (0, 0)
    assert counts.created_at_utc == counts.updated_at_utc == counts.accessed_at_utc
    assert abs(counts.created_at_utc - datetime.now(timezone.utc)) < timedelta(seconds=30)
    partitioned = await administration.get_topic(await make_topic())
    assert (partitioned.enable_partitioning, partitioned.max_size_in_megabytes) == (True, 16 * 1024)


async def test_a_new_subscription_has_the_services_defaults(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It has one rule, which every message matches."""
    topic = await make_topic("one")
    subscription = await administration.get_subscription(topic, "one")
    assert (subscription.name, subscription.status, subscription.availability_status) == ("one", "Active", "Available")
    assert (subscription.lock_duration, subscription.max_delivery_count) == (timedelta(minutes=1), 10)
    assert (subscription.requires_session, subscription.dead_lettering_on_message_expiration) == (False, False)
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is True
    assert (subscription.default_message_time_to_live, subscription.auto_delete_on_idle) == (FOREVER, FOREVER)
    assert (subscription.forward_to, subscription.forward_dead_lettered_messages_to) == (None, None)
    assert (subscription.enable_batched_operations, subscription.user_metadata) == (True, "")
    counts = await administration.get_subscription_runtime_properties(topic, "one")
    assert (counts.name, counts.total_message_count, counts.active_message_count) == ("one", 0, 0)
    assert (counts.dead_letter_message_count, counts.transfer_message_count) == (0, 0)
    assert counts.transfer_dead_letter_message_count == 0
    assert counts.created_at_utc == counts.updated_at_utc == counts.accessed_at_utc
    assert await rules_of(administration, topic, "one") == ["$Default"]
    rule = await administration.get_rule(topic, "one", "$Default")
    assert (rule.name, type(rule.filter), rule.action) == ("$Default", TrueRuleFilter, None)
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.filter.sql_expression == "1=1"
    assert rule.created_at_utc == counts.created_at_utc
    assert (await administration.get_topic_runtime_properties(topic)).sql_filter_count == 1


async def test_all_settings_of_a_topic_can_be_given_and_are_kept(
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
    created = await administration.create_topic(name, max_size_in_megabytes=2048, **given)
    try:
        assert created == await administration.get_topic(name)
        told = dict(given, default_message_time_to_live=timedelta(minutes=5), status=EntityStatus.RECEIVE_DISABLED)
        assert created == TopicProperties(
            name,
            **told,
            max_size_in_megabytes=16 * 2048,
            availability_status=created.availability_status,
        )
    finally:
        await administration.delete_topic(name)


async def test_all_settings_of_a_subscription_can_be_given_and_are_kept(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """The destination of forwarding is reported as an address. With sessions, only dead letters are forwarded."""
    topic, queue = await make_topic(), await make_queue()
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
    created = await administration.create_subscription(
        topic, "all", forward_to=queue, forward_dead_lettered_messages_to=queue, **given
    )
    address = f"sb://{administration.fully_qualified_namespace}/{queue}"
    assert created == await administration.get_subscription(topic, "all")
    told = dict(given, lock_duration=timedelta(seconds=13), status=EntityStatus.SEND_DISABLED)
    assert created == SubscriptionProperties(
        "all",
        **told,
        forward_to=address,
        forward_dead_lettered_messages_to=address,
        availability_status=created.availability_status,
    )
    with pytest.raises(InvalidOperationError, match=r"forward_to=.* with requires_session"):
        await administration.create_subscription(topic, "sessions", requires_session=True, forward_to=queue)
    sessions = await administration.create_subscription(
        topic, "sessions", requires_session=True, forward_dead_lettered_messages_to=address
    )
    assert (sessions.requires_session, sessions.forward_dead_lettered_messages_to) == (True, address)


async def test_properties_can_be_made_by_hand() -> None:
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


async def test_names_with_slashes_dots_and_underscores_work(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Only topics' names have slashes; clients may write names in another case, and get the creator's spelling."""
    topics = [unique(prefix) for prefix in ("News/eu-1", "news_eu.1", "news.eu_1")]
    try:
        for topic in topics:
            await administration.create_topic(topic)
            subscription = await administration.create_subscription(topic, "Audit.log_eu-1")
            rule = await administration.create_rule(topic.upper(), "audit.LOG_eu-1", "Large.or_not-1")
            assert (subscription.name, rule.name) == ("Audit.log_eu-1", "Large.or_not-1")
            assert (await administration.get_rule(topic, "audit.log_EU-1", "large.OR_not-1")).name == "Large.or_not-1"
            async with client.get_topic_sender(topic.upper()) as sender:
                await sender.send_messages(ServiceBusMessage(topic))
            assert await received(client, topic.lower(), "AUDIT.log_eu-1", 1) == [topic]
            assert [one.name async for one in administration.list_subscriptions(topic.upper())] == ["Audit.log_eu-1"]
        listed = [one.name async for one in administration.list_topics()]
        assert [listed.count(topic) for topic in topics] == [1, 1, 1]
    finally:
        for topic in topics:
            await administration.delete_topic(topic)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a b", "ä", "x" * 261, "a/Subscriptions/b"])
async def test_bad_names_of_topics_are_refused(administration: ServiceBusAdministrationClient, name: str) -> None:
    """Every operation refuses them, before any request."""
    for call in (
        administration.create_topic,
        administration.get_topic,
        administration.get_topic_runtime_properties,
        administration.delete_topic,
    ):
        with pytest.raises(ValueError, match="entity name"):
            await call(name)
    with pytest.raises(ValueError, match="entity name"):
        await administration.create_subscription(name, "one")
    with pytest.raises(ValueError, match="entity name"):
        assert [one.name async for one in administration.list_subscriptions(name)]


@pytest.mark.parametrize("name", ["", "/a", "a/b", "a b", "ä", "$", ".a", "x" * 51])
@pytest.mark.rules
async def test_bad_names_of_subscriptions_and_rules_are_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, name: str
) -> None:
    """A name has up to 50 characters and no slashes. A rule's name may begin with a dollar, as ``$Default`` does."""
    topic = await make_topic("one")
    for call in (
        administration.create_subscription,
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ):
        with pytest.raises(ValueError, match="subscription name"):
            await call(topic, name)
    for call_rule in (administration.create_rule, administration.get_rule, administration.delete_rule):
        with pytest.raises(ValueError, match="rule name"):
            await call_rule(topic, "one", name)
    known = await administration.get_rule(topic, "one", "$Default")
    with pytest.raises(ValueError, match="rule name"):
        await administration.update_rule(topic, "one", {**known, "name": name})
    longest = "x" * 50
    await administration.create_subscription(topic, longest)
    await administration.create_rule(topic, longest, longest)
    assert await rules_of(administration, topic, longest) == ["$Default", longest]
    assert await rules_of(administration, topic, "one") == ["$Default"]


@pytest.mark.parametrize("name", [None, 5])
async def test_names_that_are_no_texts_are_refused(administration: ServiceBusAdministrationClient, name: Any) -> None:
    """A TypeError is raised before any request."""
    kind = type(name).__name__
    for call in (
        administration.create_topic,
        administration.get_topic,
        administration.get_topic_runtime_properties,
        administration.delete_topic,
    ):
        with pytest.raises(TypeError, match=f"entity name is {kind}"):
            await call(name)
    for call_subscription in (
        administration.create_subscription,
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ):
        with pytest.raises(TypeError, match=f"subscription name is {kind}"):
            await call_subscription("t", name)
        with pytest.raises(TypeError, match=f"entity name is {kind}"):
            await call_subscription(name, "s")
    for call_rule in (administration.create_rule, administration.get_rule, administration.delete_rule):
        with pytest.raises(TypeError, match=f"rule name is {kind}"):
            await call_rule("t", "s", name)


async def test_a_name_can_be_taken_once(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Queues and topics share one set of names, in which case does not count.

    A subscription's name is unique in its topic, and a rule's name in its subscription.
    """
    topic, other, queue = await make_topic("one"), await make_topic(), await make_queue()
    for taken in (topic, topic.upper(), queue):
        with pytest.raises(MessagingEntityAlreadyExistsError, match=taken):
            await administration.create_topic(taken)
    await administration.create_subscription(other, "one")
    for subscribed in (topic, other):
        with pytest.raises(MessagingEntityAlreadyExistsError, match="subscription 'One' of topic"):
            await administration.create_subscription(subscribed, "One")
        await administration.create_rule(subscribed, "one", "mine")
        with pytest.raises(MessagingEntityAlreadyExistsError, match="has a rule 'MINE' already"):
            await administration.create_rule(subscribed, "one", "MINE")
        assert await rules_of(administration, subscribed, "one") == ["$Default", "mine"]


async def test_what_is_not_there_is_named(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """The error names the topic, the subscription or the rule. A queue is no topic, and a topic no queue."""
    topic, queue = await make_topic("one"), await make_queue()
    properties = await administration.get_topic(topic)
    subscription = await administration.get_subscription(topic, "one")
    rule = await administration.get_rule(topic, "one", "$Default")
    nobody = unique("nobody")
    for name in (nobody, queue):
        calls: list[Callable[[], Awaitable[object]]] = [
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
                await call()
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
            assert [one.name async for one in administration.list_subscriptions(name)]
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
            assert [one.name async for one in administration.list_subscriptions_runtime_properties(name)]
        with pytest.raises(MessagingEntityNotFoundError):
            await administration.update_subscription(name, subscription)
    without = [
        administration.get_subscription,
        administration.get_subscription_runtime_properties,
        administration.delete_subscription,
    ]
    for call_subscription in without:
        with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
            await call_subscription(topic, "two")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        await administration.update_subscription(topic, subscription, name="two")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        await administration.create_rule(topic, "two", "mine")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        await rules_of(administration, topic, "two")
    for call_rule in (administration.get_rule, administration.delete_rule):
        with pytest.raises(MessagingEntityNotFoundError, match="has no rule 'two'"):
            await call_rule(topic, "one", "two")
    with pytest.raises(MessagingEntityNotFoundError, match="has no rule 'two'"):
        await administration.update_rule(topic, "one", rule, name="two")
    for call_queue in (administration.get_queue, administration.delete_queue):
        with pytest.raises(MessagingEntityNotFoundError, match=f"there is no queue '{topic}'"):
            await call_queue(topic)


async def test_what_nobody_made_is_not_used(client: ServiceBusClient, make_topic: MakeTopic) -> None:
    """Sending, receiving and asking for sessions fail. The error names the missing entity."""
    topic, nobody = await make_topic("one"), unique("nobody")
    with pytest.raises(MessagingEntityNotFoundError, match=f"'{nobody}'"):
        await client.get_topic_sender(nobody).send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError, match=f"'{nobody}'"):
        await client.get_subscription_receiver(nobody, "one").receive_messages(max_wait_time=1)
    with pytest.raises(MessagingEntityNotFoundError, match="no subscription 'two'"):
        await client.get_subscription_receiver(topic, "two").peek_messages()
    with pytest.raises(MessagingEntityNotFoundError, match="no subscription 'two'"):
        assert [str(name) async for name in client.list_subscription_sessions(topic, "two")]


# Entities are deleted, listed and changed.


async def test_a_deleted_topic_is_gone_with_its_subscriptions(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, other_client: ServiceBusClient
) -> None:
    """The next topic of that name has no subscription. A new one begins empty, with its dead letters and rules."""
    name = unique("again")
    await administration.create_topic(name, enable_partitioning=True)
    await administration.create_subscription(name, "one", user_metadata="old")
    await administration.create_rule(name, "one", "none", filter=FalseRuleFilter())
    async with client.get_topic_sender(name) as sender, client.get_subscription_receiver(name, "one") as receiver:
        await sender.send_messages([ServiceBusMessage("old"), ServiceBusMessage("dead")])
        messages = await take(receiver, 2)
        await receiver.dead_letter_message(messages[0])
        await receiver.abandon_message(messages[1])
    await administration.delete_topic(name)
    with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
        await administration.get_subscription(name, "one")
    with pytest.raises(MessagingEntityNotFoundError, match=f"there is no topic '{name}'"):
        await administration.delete_topic(name)
    assert name not in [topic.name async for topic in administration.list_topics()]
    await administration.create_topic(name)
    try:
        assert [one.name async for one in administration.list_subscriptions(name)] == []
        assert (await administration.get_topic_runtime_properties(name)).subscription_count == 0
        assert (await administration.create_subscription(name, "one")).user_metadata == ""
        assert await rules_of(administration, name, "one") == ["$Default"]
        counts = await administration.get_subscription_runtime_properties(name, "one")
        assert (counts.total_message_count, counts.dead_letter_message_count) == (0, 0)
        async with other_client.get_topic_sender(name) as sender:
            await sender.send_messages(ServiceBusMessage("new"))
        assert await received(other_client, name, "one", 1) == ["new"]
    finally:
        await administration.delete_topic(name)


async def test_a_deleted_subscription_is_gone_with_its_dead_letters(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """The topic's other subscriptions keep theirs."""
    topic = await make_topic("one", "two")
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(
            [ServiceBusMessage("x", partition_key="k"), ServiceBusMessage("y", partition_key="k")]
        )
    for name in ("one", "two"):
        async with client.get_subscription_receiver(topic, name) as receiver:
            (message, _) = await take(receiver, 2)
            await receiver.dead_letter_message(message)
    await administration.delete_subscription(topic, "one")
    assert [one.name async for one in administration.list_subscriptions(topic)] == ["two"]
    await administration.create_subscription(topic, "one")
    counted = [
        (one.name, one.active_message_count, one.dead_letter_message_count)
        async for one in administration.list_subscriptions_runtime_properties(topic)
    ]
    assert counted == [("one", 0, 0), ("two", 1, 1)]


async def test_listings_are_complete_and_ordered_by_name(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Topics are listed without queues, with their properties or their counts. Rules begin with ``$Default``."""
    queue = await make_queue()
    topics = sorted([await make_topic(partitioned=False) for _ in range(6)])
    names = sorted(f"s{number}" for number in range(12))
    for name in reversed(names):
        await administration.create_subscription(topics[0], name)
        await administration.create_rule(topics[0], "s9", name)
    listed = [one.name async for one in administration.list_topics()]
    counted = [one.name async for one in administration.list_topics_runtime_properties()]
    for names_of_all in (listed, counted):
        assert [name for name in names_of_all if name in topics] == topics
    assert queue not in listed
    assert topics[0] not in [one.name async for one in administration.list_queues()]
    assert [one.name async for one in administration.list_subscriptions(topics[0])] == names
    assert [one.name async for one in administration.list_subscriptions_runtime_properties(topics[0])] == names
    assert [one.name async for one in administration.list_subscriptions(topics[1])] == []
    assert await rules_of(administration, topics[0], "s9") == ["$Default", *names]
    counts = await administration.get_topic_runtime_properties(topics[0])
    assert (counts.subscription_count, counts.sql_filter_count) == (12, 24)


async def test_counts_leave_out_what_was_deleted_meanwhile(
    administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave out queues, topics and subscriptions that were deleted between being listed and being counted."""
    monkeypatch.setattr(base, "LISTED_AT_ONCE", 1)
    prefix = f"x-{uuid.uuid4().hex[:12]}"
    for name in (f"{prefix}-1", f"{prefix}-2"):
        await administration.create_queue(f"{name}-queue")
        await administration.create_topic(name, enable_partitioning=False)
        await administration.create_subscription(f"{prefix}-1", name[-1])
    queues, topics = administration.list_queues_runtime_properties(), administration.list_topics_runtime_properties()
    subscriptions = administration.list_subscriptions_runtime_properties(f"{prefix}-1")
    listings: tuple[Any, ...] = (queues, topics, subscriptions)
    for listing in listings:
        while not (await anext(listing)).name.startswith((prefix, "1")):
            pass
    await administration.delete_subscription(f"{prefix}-1", "2")
    await administration.delete_topic(f"{prefix}-2")
    await administration.delete_queue(f"{prefix}-2-queue")
    rest = [counts.name for listing in listings async for counts in listing]
    assert not [name for name in rest if name.startswith(prefix) or name == "2"]
    await administration.delete_topic(f"{prefix}-1")
    await administration.delete_queue(f"{prefix}-1-queue")


async def test_settings_of_a_topic_can_be_changed(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Settings change by attribute, mapping or keyword. None restores the default, and reported settings are accepted."""
    name = await make_topic("one")
    topic = await administration.get_topic(name)
    topic.user_metadata = "by attribute"
    topic.max_size_in_megabytes = 2048
    await administration.update_topic(topic, auto_delete_on_idle="P1D")
    changed = await administration.get_topic(name)
    assert (changed.user_metadata, changed.auto_delete_on_idle) == ("by attribute", timedelta(days=1))
    assert changed.max_size_in_megabytes == 16 * 2048
    await administration.update_topic(dict(changed), user_metadata=None, support_ordering=False)
    changed = await administration.get_topic(name)
    assert (changed.user_metadata, changed.support_ordering, changed.max_size_in_megabytes) == ("", False, 16 * 2048)
    counts = await administration.get_topic_runtime_properties(name)
    assert counts.updated_at_utc > counts.created_at_utc
    assert (await administration.get_subscription(name, "one")).user_metadata == ""


async def test_settings_of_a_subscription_can_be_changed(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """Settings change as a queue's do. A name or an address sets the destination, and None clears it.

    The destination is reported as an address.
    """
    topic, queue = await make_topic("one", "two"), await make_queue()
    subscription = await administration.get_subscription(topic, "one")
    subscription.lock_duration = timedelta(seconds=21)
    given: dict[str, Any] = {"max_delivery_count": 3, "forward_to": queue, "forward_dead_lettered_messages_to": topic}
    await administration.update_subscription(topic, subscription, **given)
    changed = await administration.get_subscription(topic, "one")
    host = administration.fully_qualified_namespace
    assert (changed.lock_duration, changed.max_delivery_count) == (timedelta(seconds=21), 3)
    assert (changed.forward_to, changed.forward_dead_lettered_messages_to) == (
        f"sb://{host}/{queue}",
        f"sb://{host}/{topic}",
    )
    await administration.update_subscription(topic.upper(), changed, forward_dead_lettered_messages_to=None)
    changed = await administration.get_subscription(topic, "one")
    assert (changed.forward_to, changed.forward_dead_lettered_messages_to) == (f"sb://{host}/{queue}", None)
    await administration.update_subscription(topic, dict(changed), forward_to=None, lock_duration=None)
    changed = await administration.get_subscription(topic, "one")
    assert (changed.forward_to, changed.lock_duration, changed.max_delivery_count) == (None, timedelta(minutes=1), 3)
    counts = await administration.get_subscription_runtime_properties(topic, "one")
    assert counts.updated_at_utc > counts.created_at_utc
    other = await administration.get_subscription(topic, "two")
    assert dict(other) == {**changed, "name": "two", "max_delivery_count": 10}


async def test_changing_and_deleting_return_none(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The calls return None; an application asks for the new settings."""
    topic, other = await make_topic("one"), unique("deleted")
    await administration.create_topic(other)
    rule = await administration.get_rule(topic, "one", "$Default")
    calls: list[Callable[[], Awaitable[object]]] = [
        partial(administration.update_topic, await administration.get_topic(topic)),
        partial(administration.update_subscription, topic, await administration.get_subscription(topic, "one")),
        partial(administration.update_rule, topic, "one", rule),
        partial(administration.delete_rule, topic, "one", "$Default"),
        partial(administration.delete_subscription, topic, "one"),
        partial(administration.delete_topic, other),
    ]
    assert [await call() for call in calls] == [None] * len(calls)


@pytest.mark.rules
async def test_a_change_of_a_topic_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The error names the value, the rule and the remedy, and nothing changes."""
    name = await make_topic()
    topic = await administration.get_topic(name)
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
            await administration.update_topic(topic, **settings)
    assert await administration.get_topic(name) == topic
    for none in (None, name, 5):
        with pytest.raises(TypeError, match="is no topic's properties"):
            await administration.update_topic(none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing.*user_metadata"):
        await administration.update_topic({"name": name})
    with pytest.raises(TypeError, match="name is int"):
        await administration.update_topic(topic, name=5)
    with pytest.raises(ValueError, match="entity name ''"):
        await administration.update_topic(topic, name="")


@pytest.mark.rules
async def test_a_change_of_a_subscription_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The error names the value and the rule; an entity that could not be created does not exist."""
    topic = await make_topic("one")
    known = await administration.get_subscription(topic, "one")
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
            await administration.create_subscription(topic, "two", **settings)
        with pytest.raises(InvalidOperationError, match=pattern):
            await administration.update_subscription(topic, known, **settings)
    for unknown, pattern in (
        ({"requires_session": True}, "requires_session=True.*fixed at creation"),
        ({"colour": "red"}, r"\['colour'\]"),
        ({"max_size_in_megabytes": 1024}, r"\['max_size_in_megabytes'\]"),
    ):
        with pytest.raises(InvalidOperationError, match=pattern):
            await administration.update_subscription(topic, known, **unknown)
    for setting in ("forward_to", "forward_dead_lettered_messages_to"):
        nobody: dict[str, Any] = {setting: "nobody"}
        with pytest.raises(MessagingEntityNotFoundError, match=f"{setting}='nobody'"):
            await administration.update_subscription(topic, known, **nobody)
        with pytest.raises(MessagingEntityNotFoundError, match=f"{setting}='nobody'"):
            await administration.create_subscription(topic, "two", **nobody)
    assert {one.name: one async for one in administration.list_subscriptions(topic)} == {"one": known}
    for none in ("one", 5):
        with pytest.raises(TypeError, match="is no subscription's properties"):
            await administration.update_subscription(topic, none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing.*max_delivery_count"):
        await administration.update_subscription(topic, {"name": "one"})
    with pytest.raises(ValueError, match="subscription name ''"):
        await administration.update_subscription(topic, known, name="")


# Rules.


async def test_rules_can_be_changed(administration: ServiceBusAdministrationClient, make_topic: MakeTopic) -> None:
    """Filter and action change by attribute, mapping or keyword. Name and time of creation stay."""
    topic = await make_topic("one")
    made = await administration.create_rule(
        topic, "one", "Mine", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET a = 2")
    )
    rule = await administration.get_rule(topic, "one", "mine")
    assert rule == made
    rule.filter = CorrelationRuleFilter(label="x")
    await administration.update_rule(topic, "one", rule)
    assert await administration.get_rule(topic, "one", "Mine") == rule
    await administration.update_rule(topic, "one", dict(rule), action=None, name="MINE")
    rule = await administration.get_rule(topic, "one", "Mine")
    assert (rule.name, rule.action, rule.filter) == ("Mine", None, CorrelationRuleFilter(label="x"))
    later = datetime.now(timezone.utc) + timedelta(days=1)
    changed: dict[str, Any] = {"filter": FalseRuleFilter(), "action": SqlRuleAction("REMOVE b")}
    await administration.update_rule(topic, "one", rule, created_at_utc=later, **changed)
    assert await administration.get_rule(topic, "one", "Mine") == RuleProperties(
        "Mine", created_at_utc=made.created_at_utc, **changed
    )
    await administration.delete_rule(topic, "one", "mine")
    assert await rules_of(administration, topic, "one") == ["$Default"]
    await administration.delete_rule(topic, "one", "$default")
    assert await rules_of(administration, topic, "one") == []


async def test_a_subscription_can_be_created_with_its_first_rule(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It has that rule instead of the default one, and a malformed rule creates nothing."""
    topic = await make_topic()
    rule = RuleProperties("red", filter=SqlRuleFilter("colour = 'red'"), action=None, created_at_utc=NOON)
    await administration.create_subscription(topic, "one", default_rule=rule)
    rules = [(one.name, one.filter, one.action) async for one in administration.list_rules(topic, "one")]
    assert rules == [("red", rule.filter, None)]
    async with client.get_topic_sender(topic) as sender:
        colours = [ServiceBusMessage(one, application_properties={"colour": one}) for one in ("blue", "red")]
        await sender.send_messages(colours)
    async with client.get_subscription_receiver(topic, "one", max_wait_time=5) as receiver:
        [message] = await take(receiver, 1)
        assert str(message) == "red"
    for name, expression in (("red", "red = = 1"), ("no/name", "red = 1")):
        wrong = RuleProperties(name, filter=SqlRuleFilter(expression), action=None, created_at_utc=NOON)
        with pytest.raises(InvalidOperationError):
            await administration.create_subscription(topic, "two", default_rule=wrong)
    assert [one.name async for one in administration.list_subscriptions(topic)] == ["one"]


@pytest.mark.rules
async def test_a_rule_that_is_none_is_refused(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The existing rule stays as it was."""
    topic = await make_topic("one")
    made = await administration.create_rule(topic, "one", "mine", filter=SqlRuleFilter("a = 1"))
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
            await administration.create_rule(topic, "one", "bad", **settings)
        with pytest.raises(error, match=pattern):
            await administration.update_rule(topic, "one", made, **settings)
    with pytest.raises(InvalidOperationError, match=r"no settings \['colour'\]"):
        await administration.update_rule(topic, "one", made, colour="red")
    for none in (None, "mine", 5):
        with pytest.raises(TypeError, match="is no rule's properties"):
            await administration.update_rule(topic, "one", none)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are missing: \['action', 'filter'\]"):
        await administration.update_rule(topic, "one", {"name": "mine"})
    assert await administration.get_rule(topic, "one", "mine") == made
    assert await rules_of(administration, topic, "one") == ["$Default", "mine"]


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
async def test_values_of_filters_count_with_their_types(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    value: Any,
    others: list[Any],
) -> None:
    """Each is a parameter of an expression, and a property that must be equal. A text is no number."""
    topic = await make_topic("sql", "correlated", partitioned=False)
    filters: dict[str, Any] = {
        "sql": SqlRuleFilter("EXISTS(v) AND v = @value", parameters={"@value": value}),
        "correlated": CorrelationRuleFilter(properties={"V": value}),
    }
    for name, filter_ in filters.items():
        await administration.update_subscription(
            topic,
            await administration.get_subscription(topic, name),
            dead_lettering_on_filter_evaluation_exceptions=False,
        )
        await administration.create_rule(topic, name, "mine", filter=filter_)
        await administration.delete_rule(topic, name, "$Default")
        kept: Any = (await administration.get_rule(topic, name, "mine")).filter
        assert kept == filter_
        (there,) = (kept.parameters if name == "sql" else kept.properties).values()
        assert type(there) is type(value)
    async with client.get_topic_sender(topic) as sender:
        odd = [ServiceBusMessage("other", application_properties={"v": other}) for other in (*others, "5", 5)]
        fitting = ServiceBusMessage("fits", application_properties={"v": value})
        await sender.send_messages([*odd, fitting, ServiceBusMessage("none")])
    for name in filters:
        assert await received(client, topic, name, 1) == ["fits"]


@pytest.mark.rules
async def test_a_correlation_filter_names_system_properties(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It names each by itself, and all of them together, with their case."""
    topic = await make_topic("all", partitioned=False)
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
    await administration.update_rule(
        topic,
        "all",
        await administration.get_rule(topic, "all", "$Default"),
        filter=CorrelationRuleFilter(**wanted, properties={"n": 1}),
    )
    for name, value in wanted.items():
        subscription = name.replace("_", "-")
        only: dict[str, Any] = {name: value}
        await administration.create_subscription(topic, subscription)
        await administration.create_rule(topic, subscription, "mine", filter=CorrelationRuleFilter(**only))
        await administration.delete_rule(topic, subscription, "$Default")
    arguments = {"subject" if name == "label" else name: value for name, value in wanted.items()}
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("without", **arguments))
        for name in arguments:
            await sender.send_messages(ServiceBusMessage(f"but for {name}", **dict(arguments, **{name: "ELSE"})))
        await sender.send_messages(ServiceBusMessage("with", **arguments, application_properties={"n": 1}))
    assert await received(client, topic, "all", 1) == ["with"]
    bodies = ["without", *(f"but for {name}" for name in arguments), "with"]
    for name in wanted:
        argument = "subject" if name == "label" else name
        assert await received(client, topic, name.replace("_", "-"), len(bodies) - 1) == [
            body for body in bodies if body != f"but for {argument}"
        ]


async def test_an_action_sets_and_removes_properties(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """It changes its own properties and the system's, from parameters and from the message. Others stay, and the body."""
    topic = await make_topic("one", partitioned=False)
    action = SqlRuleAction(
        "SET sys.Label = 'new'; SET sys.To = sys.ReplyTo; SET since = @since; SET sum = a + @more; REMOVE a",
        parameters={"@since": NOON, "@more": 1 << 40},
    )
    await administration.update_rule(
        topic, "one", await administration.get_rule(topic, "one", "$Default"), action=action
    )
    kept = await administration.get_rule(topic, "one", "$Default")
    assert (kept.action, type(kept.filter)) == (action, TrueRuleFilter)
    sent = ServiceBusMessage(
        "body",
        subject="old",
        reply_to="me",
        correlation_id="c",
        message_id="m",
        application_properties={"a": 2, "b": "kept"},
    )
    async with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        await sender.send_messages(sent)
        (message,) = await take(receiver, 1)
        assert (str(message), message.subject, message.to, message.reply_to) == ("body", "new", "me", "me")
        assert (message.correlation_id, message.message_id) == ("c", "m")
        assert message.application_properties == {
            b"b": b"kept",
            b"since": NOON,
            b"sum": 2 + (1 << 40),
            b"RuleName": b"$Default",
        }
        await receiver.complete_message(message)


async def test_no_rule_is_no_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The subscription gets messages again when it has a rule."""
    topic = await make_topic("one", partitioned=False)
    await administration.delete_rule(topic, "one", "$Default")
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("nobody's"))
        await administration.create_rule(topic, "one", "$Default")
        await sender.send_messages(ServiceBusMessage("its own"))
    assert await received(client, topic, "one", 1) == ["its own"]


# Counts and statuses.


async def test_counts_of_filters_and_scheduled_messages_are_the_topics(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """The topic counts those of all its subscriptions; a scheduled message belongs to no subscription yet.

    A cancelled one does not count.
    """
    topic = await make_topic("one", "two")
    await administration.create_rule(topic, "one", "c", filter=CorrelationRuleFilter(label="x"))
    await administration.create_rule(topic, "two", "c", filter=CorrelationRuleFilter(label="x"))
    await administration.create_rule(topic, "two", "s", filter=SqlRuleFilter("a = 1"))
    counts = await administration.get_topic_runtime_properties(topic)
    assert (counts.subscription_count, counts.sql_filter_count, counts.correlation_filter_count) == (2, 3, 2)
    due = datetime.now(timezone.utc) + timedelta(days=1)
    async with client.get_topic_sender(topic) as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], due)
        assert (await administration.get_topic_runtime_properties(topic)).scheduled_message_count == 2
        await sender.cancel_scheduled_messages(numbers[0])
    assert (await administration.get_topic_runtime_properties(topic)).scheduled_message_count == 1
    deadline, waiting = time.monotonic() + 20, [2, 2]
    while waiting != [0, 0] and time.monotonic() < deadline:
        # Messages in the log that the subscription does not want count until a client has looked at them.
        waiting = [one.total_message_count async for one in administration.list_subscriptions_runtime_properties(topic)]
    assert waiting == [0, 0]


async def test_sending_and_receiving_are_accesses(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic, later: Advance
) -> None:
    """A send is an access of the topic and all its subscriptions, a receive one of the subscription alone."""
    topic = await make_topic("one", "two", partitioned=False)

    async def accessed(name: str) -> datetime:
        return (await administration.get_subscription_runtime_properties(topic, name)).accessed_at_utc

    # Times of creation have microseconds, times of sends milliseconds.
    while datetime.now(timezone.utc) - await accessed("two") < timedelta(milliseconds=1):
        pass
    async with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.peek_messages(1)
        sent = message.enqueued_time_utc
        assert (await administration.get_topic_runtime_properties(topic)).accessed_at_utc == sent
        assert await accessed("one") == await accessed("two") == sent
        await later(f"{topic}/Subscriptions/one", 2)
        await receiver.complete_messages(await take(receiver, 1))
    assert await accessed("one") > sent
    assert await accessed("two") == sent


async def test_a_disabled_topic_takes_and_gives_nothing_until_it_is_enabled(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    make_topic: MakeTopic,
) -> None:
    """Its subscriptions neither take nor give messages. Their messages are there afterwards."""
    topic = await make_topic("one", partitioned=False)
    properties = await administration.get_topic(topic)
    await client.get_topic_sender(topic).send_messages(ServiceBusMessage("x"))
    await administration.update_topic(properties, status=EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        await other_client.get_topic_sender(topic).send_messages(ServiceBusMessage("y"))
    with pytest.raises(MessagingEntityDisabledError, match="Disabled"):
        await other_client.get_subscription_receiver(topic, "one").receive_messages(max_wait_time=1)
    assert (await administration.get_subscription(topic, "one")).status == "Active"
    await administration.update_topic(properties, status=EntityStatus.ACTIVE)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert await received(other_client, topic, "one", 1) == ["x"]
            break
        except MessagingEntityDisabledError:
            assert time.monotonic() < deadline
