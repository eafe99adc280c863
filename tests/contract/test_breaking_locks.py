# Generated from tests/contract/aio/test_breaking_locks.py by tools/generate_blocking.py. Do not edit.
"""Locks that administration shows and breaks: the receiver that had one can settle nothing any more, as if it had expired."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError, SessionLockLostError
from kafkabus.management import MessageLock, ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
SKEW = timedelta(seconds=30)
"""How far the test's clock and the ledger's may differ."""


def send(client: ServiceBusClient, queue: str, *bodies: str, **parts: Any) -> None:
    """Send messages, one batch."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **parts) for body in bodies])


def locks_of(administration: ServiceBusAdministrationClient, entity: str) -> list[MessageLock]:
    """Return the locks of an entity."""
    return list(administration.list_locks(entity))


def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive so many messages."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        messages += receiver.receive_messages(count - len(messages), max_wait_time=PATIENCE)
    return messages


def test_locks_say_who_has_which_messages(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Since when and until when; settled messages are not among them, and an entity without locks has none."""
    queue = make_queue(partitioned=False)
    assert locks_of(administration, queue) == []
    send(client, queue, "1", "2", "3", "4", "5")
    name = "orders|worker:1@é"
    with client.get_queue_receiver(queue, client_identifier=name) as receiver:
        first, second, third = received(receiver, 3)
        receiver.complete_message(second)
        with client.get_queue_receiver(queue) as other:
            (fourth,) = received(other, 1)
            mine, others = locks_of(administration, queue)
            assert (mine.client_identifier, others.client_identifier) == (name, other.client_identifier)
            assert mine.sequence_numbers == [(1, 1), (3, 3)]
            assert others.sequence_numbers == [(fourth.sequence_number, fourth.sequence_number)]
            assert (mine.message_count, others.message_count, mine.session_id) == (2, 1, None)
            assert mine.locked_until_utc == first.locked_until_utc
            assert mine.locked_since_utc is not None
            assert abs(datetime.now(timezone.utc) - mine.locked_since_utc) < SKEW
            renewed = receiver.renew_message_lock(third)
            after = locks_of(administration, queue)
            assert sorted(lock.sequence_numbers for lock in after) == [[(1, 1)], [(3, 3)], [(4, 4)]]
            (later,) = (lock for lock in after if lock.sequence_numbers == [(3, 3)])
            assert (later.locked_until_utc, later.locked_since_utc) == (renewed, mine.locked_since_utc)
        receiver.complete_messages([first, third])
        assert [lock.sequence_numbers for lock in locks_of(administration, queue)] == [[(4, 4)]]


def test_a_broken_lock_is_as_an_expired_one(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """The message comes again, a delivery counted; its holder cannot settle or renew it; the others stay locked."""
    queue = make_queue(partitioned=False)
    send(client, queue, "1", "2", "3")
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        first, second, third = received(receiver, 3)
        administration.break_lock(queue, second.sequence_number)
        (again,) = received(other, 1)
        assert (again.sequence_number, again.delivery_count) == (second.sequence_number, 1)
        for stale in (receiver.complete_message, receiver.abandon_message, receiver.renew_message_lock):
            with pytest.raises(MessageLockLostError):
                stale(second)
        receiver.complete_messages([first, third])
        other.complete_message(again)
        assert locks_of(administration, queue) == []


def test_a_lock_is_broken_once(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """A second time, or for a message that is settled or was never there, it is an error, and nothing changes."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = received(receiver, 1)
        number = message.sequence_number
        administration.break_lock(queue, number)
        for wrong in (number, number + 1):
            with pytest.raises(MessageNotFoundError, match=f"message {wrong} is not locked, or no longer"):
                administration.break_lock(queue, wrong)
        (again,) = received(receiver, 1)
        assert again.delivery_count == 1
        receiver.complete_message(again)
        with pytest.raises(MessageNotFoundError, match="is not locked"):
            administration.break_lock(queue, number)
        with pytest.raises(MessageNotFoundError, match="it has 16 partitions"):
            administration.break_lock(queue, 99 << 48 | 1)


def test_too_many_broken_locks_dead_letter_a_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Each counts a delivery."""
    queue = make_queue(partitioned=False, max_delivery_count=2)
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            (message,) = received(receiver, 1)
            administration.break_lock(queue, message.sequence_number)
        with client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead:
            while not (letters := dead.receive_messages(max_wait_time=2)):
                assert receiver.receive_messages(max_wait_time=0.5) == []
            (lock,) = locks_of(administration, f"{queue}/$DeadLetterQueue")
            assert (lock.message_count, lock.client_identifier) == (1, dead.client_identifier)
            administration.break_lock(f"{queue}/$deadletterqueue", letters[0].sequence_number)
            with pytest.raises(MessageLockLostError):
                dead.complete_message(letters[0])


def test_a_deferred_message_stays_deferred(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """Its lock can be broken as well; then it can be received by its number again."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = received(receiver, 1)
        receiver.defer_message(message)
        number = message.sequence_number
        receiver.receive_deferred_messages(number)
        (lock,) = locks_of(administration, queue)
        assert (lock.sequence_numbers, lock.client_identifier) == ([(number, number)], receiver.client_identifier)
        administration.break_lock(queue, number)
        (again,) = receiver.receive_deferred_messages(number)
        assert again.delivery_count == 1


def test_a_message_received_by_its_number_names_its_holder(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """As any other."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        (peeked,) = receiver.peek_messages(1)
        receiver.receive_messages_by_sequence_number(peeked.sequence_number)
        (lock,) = locks_of(administration, queue)
        assert lock.client_identifier == receiver.client_identifier


def test_a_session_is_taken_from_its_holder(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """With all messages that it received; they come again in order. A message of it is not freed alone."""
    queue = make_queue(requires_session=True)
    send(client, queue, "1", "2", "3", session_id="s")
    with client.get_queue_receiver(queue, session_id="s", client_identifier="stuck") as receiver:
        first, second = received(receiver, 2)
        (lock,) = locks_of(administration, queue)
        assert (lock.session_id, lock.client_identifier, lock.message_count) == ("s", "stuck", 2)
        assert lock.sequence_numbers == [(first.sequence_number, second.sequence_number)]
        assert receiver.session is not None
        assert lock.locked_until_utc == receiver.session.locked_until_utc
        assert lock.locked_since_utc is not None
        with pytest.raises(ServiceBusError, match="is locked by the lock of session 's'"):
            administration.break_lock(queue, first.sequence_number)
        receiver.complete_message(first)
        administration.break_lock(queue, session_id="s")
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(second)
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()
        with pytest.raises(MessageNotFoundError, match="session 's' is not locked"):
            administration.break_lock(queue, session_id="s")
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as other:
            messages = received(other, 2)
            assert [(str(message), message.delivery_count) for message in messages] == [("2", 1), ("3", 0)]


def test_a_locked_session_without_messages_is_listed(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue, later: Advance
) -> None:
    """As long as its lock lasts."""
    queue = make_queue(requires_session=True)
    with client.get_queue_receiver(queue, session_id="idle", client_identifier="first") as receiver:
        assert receiver.session is not None
        (lock,) = locks_of(administration, queue)
        assert (lock.session_id, lock.sequence_numbers, lock.message_count) == ("idle", [], 0)
        assert (lock.client_identifier, lock.locked_until_utc) == ("first", receiver.session.locked_until_utc)
        receiver.session.renew_lock()
        (renewed,) = locks_of(administration, queue)
        assert (renewed.client_identifier, renewed.locked_since_utc) == ("first", lock.locked_since_utc)
        later(queue, 61)
        assert locks_of(administration, queue) == []


def test_locks_of_a_subscription_are_its_own(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """A topic has none: its subscriptions have its messages."""
    topic = make_topic("s", "t")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("1"))
    with client.get_subscription_receiver(topic, "s") as receiver:
        (message,) = received(receiver, 1)
        assert len(locks_of(administration, f"{topic}/Subscriptions/s")) == 1
        assert locks_of(administration, f"{topic}/subscriptions/T") == []
        with pytest.raises(ServiceBusError, match="is a topic, and its subscriptions have its messages"):
            locks_of(administration, topic)
        with pytest.raises(MessageNotFoundError):
            administration.break_lock(f"{topic}/Subscriptions/t", message.sequence_number)
        administration.break_lock(f"{topic}/Subscriptions/s", message.sequence_number)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)


@pytest.mark.parametrize(
    ("entity", "arguments", "complaint"),
    [
        ("", {"sequence_number": 1}, "entity name ''"),
        ("q/$Dead", {"sequence_number": 1}, "a dead-letter queue is NAME/\\$DeadLetterQueue"),
        (None, {}, "give a sequence number, or session_id="),
        (None, {"sequence_number": 1, "session_id": "s"}, "give a sequence number, or session_id="),
        (None, {"sequence_number": 0}, "sequence number 0 names no record"),
        ("nowhere", {"sequence_number": 1}, "nowhere"),
    ],
)
def test_wrong_names_and_numbers_are_refused(
    administration: ServiceBusAdministrationClient,
    queue: str,
    entity: str | None,
    arguments: dict[str, Any],
    complaint: str,
) -> None:
    """With the rule and the remedy."""
    with pytest.raises((ValueError, ServiceBusError), match=complaint):
        administration.break_lock(queue if entity is None else entity, **arguments)
