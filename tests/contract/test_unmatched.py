# Generated from tests/contract/aio/test_unmatched.py by tools/generate_blocking.py. Do not edit.
"""Messages of a topic that no subscription wants: upkeep moves them on to where ``unmatched_to`` says."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSubQueue
from kafkabus._sync.compat import sleep
from kafkabus.exceptions import InvalidOperationError, MessagingEntityNotFoundError
from kafkabus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)
from kafkabus_mapping.keys import partition_of
from tests.contract.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.receiving import PATIENCE, receive_all

HIDDEN = "~unmatched"


def messages(*colours: str) -> list[ServiceBusMessage]:
    """Return a message of each colour, with its colour as its body and key."""
    return [
        ServiceBusMessage(colour, partition_key=colour, application_properties={"colour": colour}) for colour in colours
    ]


def rule(filter: FalseRuleFilter | SqlRuleFilter | CorrelationRuleFilter) -> RuleProperties:
    """Return a subscription's only rule."""
    return RuleProperties("only", filter=filter, action=None, created_at_utc=datetime.now(timezone.utc))


def bodies_of(receiver: ServiceBusReceiver, count: int, quiet: float = 0.5) -> list[str]:
    """Receive all messages that come, at least ``count``, and return their bodies in the order of the alphabet."""
    with receiver:
        return sorted(map(str, receive_all(receiver, count, quiet=quiet)))


def test_what_no_subscription_wants_moves_on(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """Each message is in the subscriptions that want it, or in the destination, whole, in its key's partition and in order."""
    rest = make_queue()
    topic = make_topic(unmatched_to=rest)
    administration.create_subscription(topic, "red", default_rule=rule(SqlRuleFilter("colour = 'red'")))
    administration.create_subscription(
        topic, "blue", default_rule=rule(CorrelationRuleFilter(properties={"colour": "blue"}))
    )
    with client.get_topic_sender(topic) as sender:
        for _ in range(3):
            sender.send_messages(messages("red", "green", "blue", "black"))
    with client.get_queue_receiver(rest) as receiver:
        found = receive_all(receiver, 6)
    assert sorted(map(str, found)) == ["black"] * 3 + ["green"] * 3
    for message in found:
        assert message.application_properties == {b"colour": str(message).encode()}
        assert message.sequence_number is not None
        assert message.sequence_number >> 48 == partition_of(str(message), 16)
        assert (message.delivery_count, message.dead_letter_reason) == (0, None)
        assert message.enqueued_sequence_number is not None
    for name in ("red", "blue"):
        assert bodies_of(client.get_subscription_receiver(topic, name), 3) == [name] * 3


def test_a_topic_without_subscriptions_has_everything_unmatched(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """A subscription that wants everything leaves nothing, also while it is disabled."""
    rest = make_queue(partitioned=False)
    topic = make_topic(partitioned=False, unmatched_to=rest)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(messages("a", "b"))
        assert bodies_of(client.get_queue_receiver(rest), 2) == ["a", "b"]
        administration.create_subscription(topic, "all", status=EntityStatus.DISABLED)
        sender.send_messages(messages("c"))
        administration.delete_rule(topic, "all", "$Default")
        sender.send_messages(messages("d"))
    assert bodies_of(client.get_queue_receiver(rest), 1) == ["d"]
    administration.update_subscription(topic, administration.get_subscription(topic, "all"), status=EntityStatus.ACTIVE)
    assert bodies_of(client.get_subscription_receiver(topic, "all"), 1) == ["c"]


def test_each_message_is_in_a_subscription_or_unmatched(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """Rules change, and a subscription is created, while messages are sent: each message is in one place."""
    rest = make_queue(partitioned=False)
    topic = make_topic("changing", partitioned=False, unmatched_to=rest)
    sent: list[str] = []
    with client.get_topic_sender(topic) as sender:
        for turn in range(8):
            for number in range(5):
                sent.append(f"{turn}.{number}")
                sender.send_messages(messages(sent[-1]))
            if turn % 2:
                administration.create_rule(topic, "changing", "$Default")
            else:
                administration.delete_rule(topic, "changing", "$Default")
            if turn == 4:
                administration.create_subscription(topic, "late", default_rule=rule(SqlRuleFilter("colour LIKE '5%'")))
            sent.append(f"{turn} at once")
            sender.send_messages(messages(sent[-1]))
    by_default = [text for text in sent if text[:2] in {"0.", "2.", "4.", "6."} or text[:2] in {"1 ", "3 ", "5 ", "7 "}]
    late = [text for text in sent if text.startswith("5")]
    assert bodies_of(client.get_subscription_receiver(topic, "changing"), len(by_default)) == sorted(by_default)
    assert bodies_of(client.get_subscription_receiver(topic, "late"), len(late)) == sorted(late)
    others = sorted({*sent} - {*by_default, *late})
    assert bodies_of(client.get_queue_receiver(rest), len(others)) == others


def test_a_message_that_a_rule_cannot_judge(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """It is unmatched, unless the subscription dead-letters it."""
    rest = make_queue()
    topic = make_topic(unmatched_to=rest)
    faulty = rule(SqlRuleFilter("colour > 1"))
    administration.create_subscription(
        topic, "s", default_rule=faulty, dead_lettering_on_filter_evaluation_exceptions=False
    )
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(messages("red"))
        assert bodies_of(client.get_queue_receiver(rest), 1) == ["red"]
        administration.create_subscription(topic, "keeps", default_rule=faulty)
        sender.send_messages(messages("blue"))
    dead = client.get_subscription_receiver(topic, "keeps", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    with client.get_subscription_receiver(topic, "keeps") as receiver:
        assert receiver.receive_messages(max_wait_time=1) == []
    assert bodies_of(dead, 1) == ["blue"]
    assert bodies_of(client.get_queue_receiver(rest), 0) == []


def test_duplicates_scheduled_messages_and_rolled_back_ones(
    client: ServiceBusClient, make_queue: MakeQueue, make_topic: MakeTopic, later: Advance
) -> None:
    """Messages that no subscription would get are not unmatched either."""
    rest = make_queue(partitioned=False)
    topic = make_topic(partitioned=False, unmatched_to=rest, requires_duplicate_detection=True)
    with client.get_topic_sender(topic) as sender:
        due = datetime.now(timezone.utc) + timedelta(hours=1)
        sender.schedule_messages(ServiceBusMessage("later", message_id="3"), due)
        for body in ("once", "twice"):
            sender.send_messages(ServiceBusMessage(body, message_id="1"))
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            with client.transaction() as transaction:
                sender.send_messages(ServiceBusMessage("never", message_id="2"), transaction=transaction)
                raise ZeroDivisionError
    assert bodies_of(client.get_queue_receiver(rest), 1, quiet=1) == ["once"]
    later(topic, 3601)
    assert bodies_of(client.get_queue_receiver(rest), 1) == ["later"]


def test_where_unmatched_messages_go_may_change(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """The setting is a name or an address, and counts from when the update returns; without one, the messages are dropped."""
    one, two = make_queue(), make_queue()
    topic = make_topic()
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(messages("before"))
        known = administration.get_topic(topic)
        assert known.unmatched_to is None
        administration.update_topic(known, unmatched_to=one)
        sender.send_messages(messages("first"))
        assert bodies_of(client.get_queue_receiver(one), 1) == ["first"]
        known = administration.get_topic(topic)
        assert known.unmatched_to is not None
        assert known.unmatched_to.endswith(f"/{one}")
        administration.update_topic(known, unmatched_to=known.unmatched_to.replace(one, two))
        sender.send_messages(messages("second"))
        assert bodies_of(client.get_queue_receiver(two), 1) == ["second"]
        administration.update_topic(administration.get_topic(topic), unmatched_to=None)
        sender.send_messages(messages("third"))
        assert (administration.get_topic(topic)).unmatched_to is None
        with pytest.raises(MessagingEntityNotFoundError):
            administration.get_subscription(topic, HIDDEN)
        administration.update_topic(administration.get_topic(topic), unmatched_to=one)
        sender.send_messages(messages("fourth"))
    assert bodies_of(client.get_queue_receiver(one), 1) == ["fourth"]
    assert bodies_of(client.get_queue_receiver(two), 0) == []


def test_what_the_destination_refuses_is_dead_lettered(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    make_topic: MakeTopic,
) -> None:
    """It is received from the transfer dead-letter queue of upkeep's own subscription, whose name lists do not show."""
    rest = make_queue(requires_session=True)
    topic = make_topic("s", unmatched_to=rest)
    administration.delete_rule(topic, "s", "$Default")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("without a session"))
    where = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
    with client.get_subscription_receiver(topic, HIDDEN, sub_queue=where) as receiver:
        (message,) = receive_all(receiver, 1)
    assert (str(message), message.dead_letter_reason) == ("without a session", "Session ID is null")
    with client.get_subscription_receiver(topic, HIDDEN) as receiver:
        with pytest.raises(InvalidOperationError, match=f"forwards its messages to {rest}"):
            receiver.receive_messages(max_wait_time=1)
    assert [known.name for known in administration.list_subscriptions(topic)] == ["s"]
    assert [counts.name for counts in administration.list_subscriptions_runtime_properties(topic)] == ["s"]
    counts = administration.get_topic_runtime_properties(topic)
    assert (counts.subscription_count, counts.sql_filter_count, counts.correlation_filter_count) == (1, 0, 0)
    deadline = time.monotonic() + PATIENCE
    while (administration.get_subscription_runtime_properties(topic, HIDDEN)).total_message_count:
        assert time.monotonic() < deadline
        sleep(0.05)


def test_upkeep_s_own_subscription_is_left_alone(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue, make_topic: MakeTopic
) -> None:
    """Callers cannot create, change or delete it, and the error names the setting of the topic."""
    topic = make_topic(unmatched_to=make_queue())
    known = administration.get_subscription(topic, HIDDEN)
    refused = pytest.raises(InvalidOperationError, match="unmatched_to of the topic")
    with refused:
        administration.create_subscription(topic, HIDDEN)
    with refused:
        administration.update_subscription(topic, known, max_delivery_count=3)
    with refused:
        administration.delete_subscription(topic, HIDDEN)
    with refused:
        administration.create_rule(topic, HIDDEN, "r")
    with refused:
        administration.delete_rule(topic, HIDDEN, "$Default")


def test_destinations_that_are_refused(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue, make_topic: MakeTopic
) -> None:
    """The error names the setting, its value and the remedy, and the topic stays as it was."""
    topic = make_topic()
    back, again = make_queue(forward_to=topic), make_queue()
    other = make_topic("s", unmatched_to=again)
    administration.update_queue(administration.get_queue(again), forward_to=topic)
    known = administration.get_topic(topic)
    for circle in (topic, topic.upper(), back, other):
        with pytest.raises(
            InvalidOperationError, match=f"unmatched_to='{circle}': .* would come back to topic '{topic}'"
        ):
            administration.update_topic(known, unmatched_to=circle)
    with pytest.raises(InvalidOperationError, match=r"unmatched_to='new': .* would come back to topic 'new'"):
        administration.create_topic("new", unmatched_to="new")
    with pytest.raises(MessagingEntityNotFoundError, match="unmatched_to='nowhere': there is no queue or topic"):
        administration.create_topic("new", unmatched_to="nowhere")
    with pytest.raises(
        InvalidOperationError, match=r"unmatched_to='sb://elsewhere\.example/q': .* within their namespace"
    ):
        administration.update_topic(known, unmatched_to="sb://elsewhere.example/q")
    with pytest.raises(MessagingEntityNotFoundError):
        administration.get_topic("new")
    assert (administration.get_topic(topic)).unmatched_to is None
