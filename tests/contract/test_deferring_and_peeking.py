# Generated from tests/contract/aio/test_deferring_and_peeking.py by tools/generate_blocking.py. Do not edit.
"""Messages by sequence number: deferring and peeking; and purges, which delete waiting messages."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from kafkabus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError
from tests.contract.conftest import Advance, MakeQueue


def all_peeked(receiver: ServiceBusReceiver, at_once: int) -> list[str]:
    """Peek until no message comes, and return the bodies."""
    bodies: list[str] = []
    while messages := receiver.peek_messages(at_once):
        bodies += map(str, messages)
    return bodies


def test_a_deferred_message_comes_back_by_its_number_only(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """Receivers do not see it. Once fetched, it is locked, says that it is deferred, and can be completed."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.defer_message(message)
        assert message.lock_token is None
        later(queue, 120)
        assert receiver.receive_messages(max_wait_time=1.5) == []
        (again,) = receiver.receive_deferred_messages(message.sequence_number)
        assert (str(again), again.state, again.delivery_count) == ("x", ServiceBusMessageState.DEFERRED, 0)
        assert again.lock_token is not None
        assert again.locked_until_utc is not None
        assert receiver.renew_message_lock(again) >= again.locked_until_utc
        receiver.complete_message(again)
        with pytest.raises(MessageNotFoundError, match=str(message.sequence_number)):
            receiver.receive_deferred_messages([message.sequence_number])


def test_a_deferred_message_that_is_not_settled_is_deferred_still(
    client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """If it is abandoned or its lock expires, one delivery counts. Its stale token settles nothing."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        number = message.sequence_number
        receiver.defer_message(message)
        (first,) = receiver.receive_deferred_messages(number)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(number)
        receiver.abandon_message(first)
        (second,) = receiver.receive_deferred_messages(number)
        assert second.delivery_count == 1
        later(queue, 61)
        assert receiver.receive_messages(max_wait_time=0.5) == []
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(second)
        (third,) = receiver.receive_deferred_messages(number)
        assert third.delivery_count == 2
        receiver.dead_letter_message(third, "late")
        (dead,) = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER).receive_messages()
        assert (str(dead), dead.dead_letter_reason) == ("x", "late")


def test_deferred_messages_of_all_partitions_come_together_or_not_at_all(client: ServiceBusClient, queue: str) -> None:
    """They come in the order of the request. One unknown number leaves the others as they were."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(6):
            sender.send_messages(ServiceBusMessage(str(number)))
        messages: dict[str, int] = {}
        while len(messages) < 6:
            received = receiver.receive_messages(6, max_wait_time=60)
            receiver.defer_messages(received)
            messages |= {str(message): message.sequence_number for message in received}
        wanted = [messages[body] for body in ("4", "0", "2")]
        for unknown in (wanted[0] + 1, 99 << 48 | 1, 0):
            with pytest.raises(ServiceBusError):
                receiver.receive_deferred_messages([*wanted, unknown])
        assert [str(message) for message in receiver.receive_deferred_messages(wanted)] == ["4", "0", "2"]
        assert receiver.receive_deferred_messages([]) == []


def test_a_deferred_message_is_deleted_by_receiving_it_in_that_mode(client: ServiceBusClient, queue: str) -> None:
    """A second fetch finds nothing, and no message needs settling."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.defer_message(message)
        deleting = client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        (again,) = deleting.receive_deferred_messages(message.sequence_number)
        assert str(again) == "x"
        with pytest.raises(ValueError, match="not locked"):
            deleting.complete_message(again)
        with pytest.raises(MessageNotFoundError):
            deleting.receive_deferred_messages(message.sequence_number)


def test_peeking_on_shows_each_message_of_all_partitions_once(client: ServiceBusClient, queue: str) -> None:
    """Peeking shows waiting, locked and deferred messages, locks none, and shows later messages too."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(20):
            sender.send_messages(ServiceBusMessage(str(number)))
        locked, deferred, done = [
            (client.get_queue_receiver(queue).receive_messages(max_wait_time=60))[0] for _ in range(3)
        ]
        receiver.defer_message(deferred)
        receiver.complete_message(done)
        there = {str(number) for number in range(20)} - {str(done)}
        bodies = all_peeked(receiver, 3)
        assert (set(bodies), len(bodies)) == (there, 19)
        sender.send_messages(ServiceBusMessage("late"))
        assert all_peeked(receiver, 10) == ["late"]
        seen = {str(message): message for message in client.get_queue_receiver(queue).peek_messages(100)}
        assert set(seen) == there | {"late"}
        assert seen[str(deferred)].state == ServiceBusMessageState.DEFERRED
        assert seen[str(locked)].state == ServiceBusMessageState.ACTIVE
        assert (seen[str(locked)].lock_token, seen[str(locked)].locked_until_utc) == (None, None)
        assert len(client.get_queue_receiver(queue).receive_messages(100, max_wait_time=60)) > 0


def test_peeking_from_a_number_goes_by_the_numbers(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """On a plain queue the numbers begin at 1 and are dense. The next peek goes on from there."""
    queue = make_queue(partitioned=False)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages(5, timeout=10) == []
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(1, 8)])
        messages = receiver.peek_messages(2, sequence_number=3)
        assert [(message.sequence_number, str(message)) for message in messages] == [(3, "3"), (4, "4")]
        assert [str(message) for message in receiver.peek_messages(2)] == ["5", "6"]
        assert receiver.peek_messages(0) == []
        other = client.get_queue_receiver(queue)
        other.receive_messages(2, max_wait_time=60)
        assert [str(message) for message in other.peek_messages(2)] == ["3", "4"]


def test_peeking_goes_on_from_a_number_through_all_later_partitions(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """It shows messages of later partitions again, although the receiver has looked at them before."""
    queue = make_queue(partitioned=True)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(str(number), partition_key=str(number)) for number in range(20)])
        messages = receiver.peek_messages(100)
        assert (len(messages), receiver.peek_messages(1)) == (20, [])
        first = min(message.sequence_number or 0 for message in messages)
        again = [str(message) for message in receiver.peek_messages(1, sequence_number=first)]
        assert sorted(again + all_peeked(receiver, 100), key=int) == [str(number) for number in range(20)]


def test_peeking_returns_no_more_than_fits(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A call returns 256 KiB at most, and at least one message. The next peek shows the rest."""
    queue = make_queue(partitioned=False)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(5):
            sender.send_messages(ServiceBusMessage(str(number) * 100_000))
        counts = []
        while messages := receiver.peek_messages(10):
            counts.append(len(messages))
        assert counts == [2, 2, 1]


def test_a_peeked_message_cannot_be_settled_and_can_be_sent_again(client: ServiceBusClient, queue: str) -> None:
    """It has no lock, and its copy is a new message."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x", subject="s"))
        (peeked,) = receiver.peek_messages()
        for settle in (
            receiver.complete_message,
            receiver.abandon_message,
            receiver.defer_message,
            receiver.dead_letter_message,
            receiver.renew_message_lock,
        ):
            with pytest.raises(ValueError, match="not locked"):
                settle(peeked)
        sender.send_messages(pickle.loads(pickle.dumps(peeked)))  # noqa: S301 - its own
        assert [message.subject for message in client.get_queue_receiver(queue).peek_messages(9)] == ["s", "s"]


def test_the_dead_letter_queue_can_be_peeked(client: ServiceBusClient, queue: str) -> None:
    """It is peeked as any other queue is."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.dead_letter_message(message, "why")
        with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
            (dead,) = dead_letters.peek_messages()
            assert (str(dead), dead.dead_letter_reason) == ("x", "why")


def test_a_purge_leaves_nothing_that_waits(client: ServiceBusClient, queue: str) -> None:
    """Locked and deferred messages stay; a later message is delivered."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(10)])
        first, second, third = receiver.receive_messages(3, max_wait_time=60)
        receiver.defer_message(first)
        receiver.abandon_message(second)
        assert receiver.purge_messages() == 8
        assert receiver.receive_messages(max_wait_time=1.5) == []
        receiver.complete_message(third)
        receiver.complete_messages(receiver.receive_deferred_messages(first.sequence_number))
        assert client.get_queue_receiver(queue).peek_messages(10) == []
        sender.send_messages(ServiceBusMessage("later", partition_key="k"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        assert str(message) == "later"


def test_a_purge_may_spare_what_is_new(client: ServiceBusClient, queue: str) -> None:
    """The time at which the broker stored a message decides."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (peeked,) = receiver.peek_messages()
        assert receiver.purge_messages(before_enqueue_time_utc=peeked.enqueued_time_utc) == 0
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        assert receiver.purge_messages(before_enqueue_time_utc=tomorrow) == 1


def test_what_makes_no_sense_is_refused(client: ServiceBusClient, queue: str) -> None:
    """The arguments are refused before any request."""
    receiver = client.get_queue_receiver(queue)
    with pytest.raises(ValueError, match="max_message_count -1"):
        receiver.peek_messages(-1)
    with pytest.raises(ValueError, match="timeout 0"):
        receiver.peek_messages(timeout=0)
    with pytest.raises(ValueError, match="sequence number -1"):
        receiver.peek_messages(sequence_number=-1)
    with pytest.raises(ValueError, match="timeout -1"):
        receiver.receive_deferred_messages([1], timeout=-1)
