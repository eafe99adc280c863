# Generated from tests/contract/aio/test_by_number.py by tools/generate_blocking.py. Do not edit.
"""Messages that wait, received or settled by their sequence numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafkabus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.exceptions import MessageLockLostError, MessageNotFoundError
from kafkabus.management import CorrelationRuleFilter, RetryPolicy
from tests.contract.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
HOUR = timedelta(hours=1)
RECEIVE_AND_DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def send(client: ServiceBusClient, queue: str, *bodies: str, **parts: Any) -> None:
    """Send messages of one partition, or one session."""
    given = parts or {"partition_key": "k"}
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **given) for body in bodies])


def numbers_of(receiver: ServiceBusReceiver) -> dict[str, int]:
    """Return the sequence numbers of all messages, by their bodies."""
    return {str(one): one.sequence_number or 0 for one in receiver.peek_messages(50, sequence_number=1)}


def rest_of(receiver: ServiceBusReceiver, count: int) -> list[tuple[str, int | None]]:
    """Receive and complete so many messages; return their bodies and delivery counts, in their order."""
    came: list[ServiceBusReceivedMessage] = []
    while len(came) < count:
        came += receiver.receive_messages(count - len(came), max_wait_time=PATIENCE)
    receiver.complete_messages(came)
    assert receiver.receive_messages(1, max_wait_time=0.5) == []
    return [(str(one), one.delivery_count) for one in came]


@pytest.mark.parametrize("granted_before", [False, True])
def test_a_message_is_received_by_its_number(client: ServiceBusClient, queue: str, granted_before: bool) -> None:
    """One that no receiver has come to yet, or that came back; the others are as they were."""
    send(client, queue, *"012345")
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        numbers = numbers_of(receiver)
        if granted_before:
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < 6:
                messages += receiver.receive_messages(6, max_wait_time=PATIENCE)
            receiver.abandon_messages(messages)
        count = int(granted_before)
        three, one = receiver.receive_messages_by_sequence_number([numbers["3"], numbers["1"]])
        assert [(str(message), message.delivery_count) for message in (three, one)] == [("3", count), ("1", count)]
        assert three.lock_token is not None
        receiver.renew_message_lock(three)
        receiver.complete_message(three)
        receiver.abandon_message(one)
        assert sorted(rest_of(other, 5)) == sorted([("1", count + 1), *((body, count) for body in "0245")])


def test_a_lock_ends_and_the_message_comes(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """It comes in its place, one delivery counted."""
    send(client, queue, *"012")
    with client.get_queue_receiver(queue) as receiver:
        numbers = numbers_of(receiver)
        (message,) = receiver.receive_messages_by_sequence_number(numbers["1"])
        later(queue, 120)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        assert sorted(rest_of(receiver, 3)) == [("0", 0), ("1", 1), ("2", 0)]


def test_all_or_none(client: ServiceBusClient, other_client: ServiceBusClient, queue: str) -> None:
    """A number that is not there, settled, locked, deferred, or named of a partition that is none; nothing is received then."""
    send(client, queue, *"012345")
    with client.get_queue_receiver(queue) as receiver, other_client.get_queue_receiver(queue) as other:
        numbers = numbers_of(receiver)
        (settled,) = receiver.receive_messages_by_sequence_number(numbers["0"])
        receiver.complete_message(settled)
        other.receive_messages_by_sequence_number(numbers["1"])
        (deferred,) = receiver.receive_messages_by_sequence_number(numbers["2"])
        receiver.defer_message(deferred)
        bad = [numbers["0"], numbers["1"], numbers["2"], numbers["5"] + 1, numbers["5"] + 1000, 40 << 48 | 1, -5]
        for number in bad:
            with pytest.raises(MessageNotFoundError, match=r"wait|sequence number"):
                receiver.receive_messages_by_sequence_number([numbers["3"], number])
        with pytest.raises(ValueError, match="at most 1,000"):
            receiver.receive_messages_by_sequence_number(list(range(1001)))
        assert receiver.receive_messages_by_sequence_number([]) == []
        # Neither locked nor counted, and the deferred one is deferred.
        assert rest_of(receiver, 3) == [("3", 0), ("4", 0), ("5", 0)]
        (again,) = receiver.receive_deferred_messages(numbers["2"])
        receiver.complete_message(again)


def test_a_postponed_message_is_received_before_its_time(client: ServiceBusClient, queue: str) -> None:
    """Its delay is over with that."""
    send(client, queue, "0")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        receiver.abandon_message(message, delay=HOUR)
        (again,) = receiver.receive_messages_by_sequence_number(message.sequence_number or 0)
        assert again.delivery_count == 1
        receiver.abandon_message(again)
        assert rest_of(receiver, 1) == [("0", 2)]


def test_received_and_deleted(client: ServiceBusClient, queue: str) -> None:
    """In that mode, the message is settled with that."""
    send(client, queue, *"012")
    with (
        client.get_queue_receiver(queue, receive_mode=RECEIVE_AND_DELETE) as receiver,
        client.get_queue_receiver(queue) as other,
    ):
        numbers = numbers_of(other)
        (message,) = receiver.receive_messages_by_sequence_number(numbers["1"])
        assert str(message) == "1"
        with pytest.raises(ValueError, match="PEEK_LOCK"):
            receiver.dead_letter_messages_by_sequence_number(numbers["0"])
        with pytest.raises(ValueError, match="PEEK_LOCK"):
            receiver.postpone_messages_by_sequence_number(numbers["0"], 5)
        assert rest_of(other, 2) == [("0", 0), ("2", 0)]


def test_messages_are_settled_without_being_received(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """Deleted, dead-lettered, postponed, and made available again; no delivery is counted."""
    send(client, queue, *"01234")
    with (
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead,
    ):
        numbers = numbers_of(receiver)
        receiver.delete_messages_by_sequence_number([numbers["0"], numbers["4"]])
        receiver.dead_letter_messages_by_sequence_number(numbers["1"], "why", "in more words")
        receiver.postpone_messages_by_sequence_number(numbers["2"], HOUR)
        (letter,) = dead.receive_messages(1, max_wait_time=PATIENCE)
        assert (str(letter), letter.dead_letter_reason, letter.delivery_count) == ("1", "why", 0)
        assert rest_of(receiver, 1) == [("3", 0)]
        (seen,) = receiver.peek_messages(5, sequence_number=1)
        assert seen.postponed_until_utc is not None
        later(queue, 1800)
        receiver.postpone_messages_by_sequence_number(numbers["2"], HOUR)
        later(queue, 1900)
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
        receiver.postpone_messages_by_sequence_number(numbers["2"], 0)
        assert rest_of(receiver, 1) == [("2", 0)]
        for delay in (-1, 604_801):
            with pytest.raises(ValueError, match="7 days"):
                receiver.postpone_messages_by_sequence_number(numbers["2"], delay)


def test_in_a_session(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Of the session that the receiver holds; a message that goes back has its place in it."""
    queue = make_queue(requires_session=True)
    send(client, queue, *"012", session_id="a")
    send(client, queue, "x", session_id="b")
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        foreign = (numbers_of(receiver))["x"]
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        numbers = numbers_of(receiver)
        (message,) = receiver.receive_messages_by_sequence_number(numbers["1"])
        with pytest.raises(MessageNotFoundError, match="another session"):
            receiver.receive_messages_by_sequence_number(foreign)
        receiver.abandon_message(message)
        (second,) = receiver.receive_messages_by_sequence_number(numbers["2"])
        receiver.complete_message(second)
        assert rest_of(receiver, 2) == [("0", 0), ("1", 1)]
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        assert rest_of(receiver, 1) == [("x", 0)]


def test_of_a_subscription(client: ServiceBusClient, administration: Any, make_topic: MakeTopic) -> None:
    """Only its own messages; other subscriptions are as they were."""
    topic = make_topic("all", "red")
    administration.create_rule(topic, "red", "red", filter=CorrelationRuleFilter(label="red"))
    administration.delete_rule(topic, "red", "$Default")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(
            [ServiceBusMessage(body, subject="red" if body in "13" else None, partition_key="k") for body in "0123"]
        )
    with (
        client.get_subscription_receiver(topic, "all") as everything,
        client.get_subscription_receiver(topic, "red") as red,
    ):
        numbers = numbers_of(everything)
        with pytest.raises(MessageNotFoundError):
            red.receive_messages_by_sequence_number(numbers["2"])
        (message,) = red.receive_messages_by_sequence_number(numbers["3"])
        red.complete_message(message)
        assert rest_of(red, 1) == [("1", 0)]
        assert rest_of(everything, 4) == [(body, 0) for body in "0123"]


def test_a_duplicate_is_not_received(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It is found before; the first message with its id is received."""
    queue = make_queue(requires_duplicate_detection=True)
    send(client, queue, "0", message_id="m")
    send(client, queue, "again", message_id="m")
    send(client, queue, "1", message_id="n")
    with client.get_queue_receiver(queue) as receiver:
        numbers = numbers_of(receiver)
        assert numbers.keys() == {"0", "1"}
        (message,) = receiver.receive_messages_by_sequence_number(numbers["1"])
        receiver.complete_message(message)
        assert rest_of(receiver, 1) == [("0", 0)]


def test_a_retry_policy_leaves_them_alone(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Messages that a call gives back because another number was wrong are available at once."""
    queue = make_queue(retry_policy=RetryPolicy.fixed(HOUR))
    send(client, queue, *"01")
    with client.get_queue_receiver(queue) as receiver:
        numbers = numbers_of(receiver)
        (one,) = receiver.receive_messages_by_sequence_number(numbers["1"])
        with pytest.raises(MessageNotFoundError):
            receiver.receive_messages_by_sequence_number([numbers["0"], numbers["1"]])
        receiver.complete_message(one)
        assert rest_of(receiver, 1) == [("0", 0)]
