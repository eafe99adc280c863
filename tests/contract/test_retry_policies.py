# Generated from tests/contract/aio/test_retry_policies.py by tools/generate_blocking.py. Do not edit.
"""Retry policies as settings of queues and subscriptions, and counts of the messages that are postponed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.exceptions import InvalidOperationError, MessagingEntityNotFoundError
from kafkabus.management import RetryPolicy, ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.receiving import take

FIXED = RetryPolicy.fixed(10)
GROWING = RetryPolicy.exponential(timedelta(seconds=1), timedelta(minutes=5))


def test_a_queue_has_a_policy_until_it_is_removed(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """It is given as such or as a mapping; other changes leave it as it is."""
    queue = make_queue()
    assert (administration.get_queue(queue)).retry_policy is None
    administration.update_queue(administration.get_queue(queue), retry_policy=FIXED)
    properties = administration.get_queue(queue)
    assert properties.retry_policy == FIXED
    properties.max_delivery_count = 3
    administration.update_queue(properties)
    changed = administration.get_queue(queue)
    assert (changed.retry_policy, changed.max_delivery_count) == (FIXED, 3)
    administration.update_queue(changed, retry_policy={"kind": "exponential", "delays": ["PT1S", 300]})
    assert (administration.get_queue(queue)).retry_policy == GROWING
    administration.update_queue(changed, retry_policy=None)
    assert (administration.get_queue(queue)).retry_policy is None
    given = make_queue(retry_policy={"kind": "fixed", "delays": [10]})
    assert (administration.get_queue(given)).retry_policy == FIXED


def test_a_subscription_has_a_policy_until_it_is_removed(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Each subscription of a topic has its own."""
    topic = make_topic("plain")
    made = administration.create_subscription(topic, "patient", retry_policy=GROWING)
    assert made.retry_policy == GROWING
    administration.update_subscription(topic, made, max_delivery_count=3)
    changed = administration.get_subscription(topic, "patient")
    assert (changed.retry_policy, changed.max_delivery_count) == (GROWING, 3)
    assert (administration.get_subscription(topic, "plain")).retry_policy is None
    administration.update_subscription(topic, made, retry_policy=None)
    assert (administration.get_subscription(topic, "patient")).retry_policy is None


def test_a_policy_that_breaks_a_rule_is_refused(
    administration: ServiceBusAdministrationClient, queue: str, make_topic: MakeTopic
) -> None:
    """Nothing is created or changed, and the error names the setting."""
    text = "retry_policy: kind 'linear' is unknown: choose 'fixed', 'exponential' or 'list'"
    linear = {"kind": "linear", "delays": [1]}
    with pytest.raises(InvalidOperationError, match=f"^queue 'linear' cannot be created: {text}$"):
        administration.create_queue("linear", retry_policy=linear)
    with pytest.raises(MessagingEntityNotFoundError):
        administration.get_queue("linear")
    properties = administration.get_queue(queue)
    with pytest.raises(InvalidOperationError, match=f"^queue '{queue}' cannot be updated: {text}$"):
        administration.update_queue(properties, retry_policy=linear)
    assert administration.get_queue(queue) == properties
    topic = make_topic()
    with pytest.raises(
        InvalidOperationError, match="retry_policy: a delay is 8 days, 0:00:00: the longest one is 7 days"
    ):
        administration.create_subscription(topic, "one", retry_policy={"kind": "fixed", "delays": [timedelta(days=8)]})


def test_postponed_messages_are_counted_among_the_active_ones(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """By partition, too; once their time has come, they are no longer postponed."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        messages = take(receiver, 3)
        receiver.abandon_messages(messages[:2], delay=timedelta(hours=1))
        counts = administration.get_queue_runtime_properties(queue)
        assert (counts.active_message_count, counts.postponed_message_count, counts.total_message_count) == (3, 2, 3)
        by_partition = [(one.active_message_count, one.postponed_message_count) for one in counts.partitions]
        assert sorted(by_partition)[-2:] == [(0, 0), (3, 2)]
        (listed,) = [one for one in administration.list_queues_runtime_properties() if one.name == queue]
        assert listed.postponed_message_count == 2
        receiver.complete_message(messages[2])
        later(queue, 3601)
        receiver.complete_messages(take(receiver, 2))
        counts = administration.get_queue_runtime_properties(queue)
        assert (counts.active_message_count, counts.postponed_message_count) == (0, 0)


def test_postponed_messages_of_a_subscription_are_counted(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """For it alone."""
    topic = make_topic("one", "two", partitioned=False)
    with (
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "one") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = take(receiver, 1)
        receiver.abandon_message(message, delay=60)
        for name, postponed in (("one", 1), ("two", 0)):
            counts = administration.get_subscription_runtime_properties(topic, name)
            assert (counts.active_message_count, counts.postponed_message_count) == (1, postponed)
            assert counts.partitions[0].postponed_message_count == postponed


def test_postponed_messages_of_sessions_are_counted(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """They are, although they keep their places in their sessions."""
    queue = make_queue(partitioned=False, requires_session=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number), session_id="s") for number in range(2)])
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        (message, *_) = take(receiver, 1)
        receiver.abandon_message(message, delay=60)
        counts = administration.get_queue_runtime_properties(queue)
    assert (counts.active_message_count, counts.postponed_message_count) == (2, 1)
