# Generated from tests/contract/aio/test_locks.py by tools/generate_blocking.py. Do not edit.
"""Keeping locks: renewal by hand and by a renewer, prefetched messages, too many deliveries, times to live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from kafkabus._sync.compat import Bell, sleep
from kafkabus.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    MessageAlreadySettled,
    MessageLockLostError,
    ServiceBusError,
)
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue

PATIENCE = 60.0


def until_past(moment: datetime | None) -> None:
    """Wait until a moment has passed."""
    assert moment is not None
    sleep(max(0.0, (moment - datetime.now(timezone.utc)).total_seconds() + 0.05))


def until_renewed(message: ServiceBusReceivedMessage, times: int) -> None:
    """Wait until a lock was moved on so many times."""
    deadline = time.monotonic() + PATIENCE
    seen = {message.locked_until_utc}
    while len(seen) <= times:
        assert time.monotonic() < deadline, f"renewed {len(seen) - 1} times"
        assert message.auto_renew_error is None
        sleep(0.02)
        seen.add(message.locked_until_utc)


def test_a_renewed_lock_lasts_longer_than_the_others_of_its_batch(
    client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """Its token stays the same. The other messages come back."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        first, second, third = receiver.receive_messages(3, max_wait_time=60)
        later(queue, 45)
        token, locked_until = second.lock_token, second.locked_until_utc
        assert locked_until is not None
        renewed = receiver.renew_message_lock(second, timeout=5)
        assert renewed == second.locked_until_utc
        assert renewed > locked_until + timedelta(seconds=40)
        later(queue, 30)
        again = receiver.receive_messages(3, max_wait_time=60)
        assert sorted((str(message), message.delivery_count) for message in again) == [("0", 1), ("2", 1)]
        assert second.lock_token == token
        receiver.complete_message(second)
        for stale in (first, third):
            with pytest.raises(MessageLockLostError):
                receiver.renew_message_lock(stale)
        with pytest.raises(MessageAlreadySettled):
            receiver.renew_message_lock(second)


def test_a_renewer_keeps_locks_until_their_messages_are_settled(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """A renewer keeps the locks of many messages at once, far beyond the locks' duration."""
    queue = make_queue(lock_duration=timedelta(seconds=3))
    with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(queue, auto_lock_renewer=renewer) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(300)])
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 300:
            messages += receiver.receive_messages(300, max_wait_time=60)
        until_renewed(messages[0], 3)
        receiver.complete_messages(messages)
        assert receiver.receive_messages(max_wait_time=1.5) == []


def test_a_renewer_gives_up_when_it_was_told_to(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """The message says so, its lock is left to expire, and the error of a settlement names the reason."""
    queue = make_queue(lock_duration=timedelta(minutes=1))
    with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer(max_lock_renewal_duration=0.5) as renewer,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        renewer.register(receiver, message)
        deadline = time.monotonic() + PATIENCE
        while message.auto_renew_error is None:
            assert time.monotonic() < deadline
            sleep(0.02)
        assert isinstance(message.auto_renew_error, AutoLockRenewTimeout)
        later(queue, 61)
        with pytest.raises(MessageLockLostError) as lost:
            receiver.complete_message(message)
        assert isinstance(lost.value.inner_exception, AutoLockRenewTimeout)


def test_a_renewer_tells_of_a_lock_that_was_lost(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """It calls the callback with the message and the error, but not for a message that was settled before."""
    queue = make_queue(lock_duration=timedelta(seconds=3))
    told: list[tuple[ServiceBusReceivedMessage, Exception | None]] = []
    bell = Bell()

    def tell(message: ServiceBusReceivedMessage, error: Exception | None) -> None:
        told.append((message, error))
        bell.ring()

    with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer(on_lock_renew_failure=tell) as renewer,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages([ServiceBusMessage("x", partition_key="k"), ServiceBusMessage("y", partition_key="k")])
        lost, settled = receiver.receive_messages(2, max_wait_time=60)
        renewer.register(receiver, lost, max_lock_renewal_duration=60)
        renewer.register(receiver, settled)
        receiver.complete_message(settled)
        later(queue, 30)
        bell.wait(PATIENCE)
        assert [(message, type(error)) for message, error in told] == [(lost, AutoLockRenewFailed)]
        assert isinstance(lost.auto_renew_error, AutoLockRenewFailed)


def test_a_renewer_takes_only_locked_messages_and_only_while_it_is_open(client: ServiceBusClient, queue: str) -> None:
    """Peeked and deleted messages, and other objects, are refused. A closed renewer refuses all."""
    renewer = AutoLockRenewer()
    with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, auto_lock_renewer=renewer
        )
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        (peeked,) = receiver.peek_messages()
        with pytest.raises(ValueError, match="peeked"):
            renewer.register(receiver, peeked)
        with pytest.raises(TypeError, match="ServiceBusMessage"):
            renewer.register(receiver, ServiceBusMessage("x"))  # type: ignore[arg-type]
        (message,) = receiver.receive_messages(max_wait_time=60)
        renewer.register(receiver, message)
        renewer.close()
        with pytest.raises(ServiceBusError, match="closed"):
            renewer.register(receiver, message)
        with pytest.raises(ServiceBusError, match="closed"):
            with renewer:
                pass
        receiver.complete_message(message)


def test_prefetched_messages_are_handed_out_without_asking_and_given_back_at_close(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """Other receivers get the rest of them only after the receiver is closed, with a delivery count of 0."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(6)])
    with client.get_queue_receiver(queue, prefetch_count=5) as receiver:
        bodies = [str((receiver.receive_messages(max_wait_time=60))[0]) for _ in range(2)]
        assert bodies == ["0", "1"]
        assert other_client.get_queue_receiver(queue).receive_messages(max_wait_time=1.5) == []
        third, fourth = receiver.receive_messages(2, max_wait_time=60)
        assert [str(third), str(fourth)] == ["2", "3"]
        receiver.complete_messages([third, fourth])
    rest = other_client.get_queue_receiver(queue).receive_messages(9, max_wait_time=60)
    assert [(str(message), message.delivery_count) for message in rest] == [("4", 0), ("5", 0)]


def test_a_prefetched_message_is_never_handed_out_expired(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It is locked again, or comes back as any message does whose lock expired, and can be completed."""
    queue = make_queue(lock_duration=timedelta(seconds=2))
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, prefetch_count=5) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        (first,) = receiver.receive_messages(max_wait_time=60)
        until_past(first.locked_until_utc)
        bodies: list[str] = []
        while len(bodies) < 3:
            for message in receiver.receive_messages(1, max_wait_time=60):
                receiver.complete_message(message)
                bodies.append(str(message))
        assert sorted(bodies) == ["0", "1", "2"]


def test_receiving_as_many_as_are_prefetched(client: ServiceBusClient, queue: str) -> None:
    """A count of None means that number. Without prefetching there is no such count."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(6)])
    assert client.get_queue_receiver(queue).receive_messages(None, max_wait_time=5) == []
    with client.get_queue_receiver(queue, prefetch_count=3) as receiver:
        assert [str(message) for message in receiver.receive_messages(None, max_wait_time=60)] == ["0", "1", "2"]
    for count in (-1, 50_001):
        with pytest.raises(ValueError, match=f"{count}"):
            client.get_queue_receiver(queue, prefetch_count=count)


def test_receive_and_delete_deletes_nothing_ahead(client: ServiceBusClient, queue: str) -> None:
    """Opening such a receiver takes nothing, with prefetching or without. A receive takes the messages that it returns."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(10)])
    looking = client.get_queue_receiver(queue)
    with client.get_queue_receiver(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=2, max_wait_time=3
    ) as receiver:
        assert len(looking.peek_messages(20)) == 10
        assert len(receiver.receive_messages(3, max_wait_time=60)) == 3
        assert [str(message) for message in receiver] == ["3", "4", "5", "6", "7", "8", "9"]
    assert client.get_queue_receiver(queue).peek_messages(20) == []


def test_the_last_abandon_dead_letters_at_once(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """No receiver need receive the message again for that."""
    queue = make_queue(max_delivery_count=2)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        for _ in range(2):
            (message,) = receiver.receive_messages(max_wait_time=60)
            receiver.abandon_message(message)
    (dead,) = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER).peek_messages()
    assert (str(dead), dead.dead_letter_reason) == ("x", "MaxDeliveryCountExceeded")


def expired(client: ServiceBusClient, queue: str, messages: Sequence[ServiceBusMessage]) -> list[str]:
    """Send messages, wait until the first should be over, and receive what is left."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(list(messages))
        (peeked,) = receiver.peek_messages()
        until_past(peeked.expires_at_utc)
        return [str(message) for message in receiver.receive_messages(10, max_wait_time=1.5)]


def test_a_message_whose_time_to_live_is_over_is_not_received(client: ServiceBusClient, queue: str) -> None:
    """It is deleted if the queue does not dead-letter such messages. Other messages are received."""
    messages = [
        ServiceBusMessage("short", time_to_live=timedelta(milliseconds=300), partition_key="k"),
        ServiceBusMessage("long", time_to_live=3600, partition_key="k"),
        ServiceBusMessage("for ever", partition_key="k"),
    ]
    assert expired(client, queue, messages) == ["long", "for ever"]
    dead_letters = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert dead_letters.receive_messages(max_wait_time=0.5) == []


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
def test_an_expired_message_is_dead_lettered_where_the_queue_says_so(
    client: ServiceBusClient, make_queue: MakeQueue, mode: ServiceBusReceiveMode
) -> None:
    """A receiver finds it in the dead-letter queue, where it does not expire again.

    That holds for the queue's own time to live, too.
    """
    queue = make_queue(default_message_time_to_live=timedelta(seconds=1), dead_lettering_on_message_expiration=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", time_to_live=3600))
        (peeked,) = client.get_queue_receiver(queue).peek_messages()
        assert peeked.expires_at_utc == peeked.enqueued_time_utc + timedelta(seconds=1)
        until_past(peeked.expires_at_utc)
        receiver = client.get_queue_receiver(queue, receive_mode=mode)
        assert receiver.receive_messages(max_wait_time=1.5) == []
        dead_letters = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        (dead,) = dead_letters.receive_messages(max_wait_time=60)
        assert (str(dead), dead.dead_letter_reason) == ("x", "TTLExpiredException")
        dead_letters.complete_message(dead)


def test_a_deferred_message_expires_too(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A fetch by its number does not find it."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x", time_to_live=300))
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.defer_message(message)
        later(queue, 320)
        with pytest.raises(ServiceBusError, match=str(message.sequence_number)):
            receiver.receive_deferred_messages(message.sequence_number)


def dead_bodies(client: ServiceBusClient, queue: str, count: int) -> list[tuple[str, str | None]]:
    """Wait until so many messages are dead-lettered, without a receiver; return their bodies and reasons."""
    deadline = time.monotonic() + PATIENCE
    while True:
        dead = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER).peek_messages(10)
        if len(dead) >= count:
            return sorted((str(message), message.dead_letter_reason) for message in dead)
        assert time.monotonic() < deadline, f"{len(dead)} of {count} dead-lettered"
        sleep(0.1)


def test_expired_messages_are_dead_lettered_without_anybody_having_touched_them(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """That holds on an idle queue, by the queue's time to live."""
    queue = make_queue(default_message_time_to_live=timedelta(seconds=1), dead_lettering_on_message_expiration=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        assert dead_bodies(client, queue, 2) == [("a", "TTLExpiredException"), ("b", "TTLExpiredException")]
    assert client.get_queue_receiver(queue).peek_messages(10) == []


def test_a_message_expires_between_others_that_do_not(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It waits or is deferred. The others, without a time to live, are delivered with a delivery count of 0."""
    queue = make_queue(dead_lettering_on_message_expiration=True)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("deferred", time_to_live=2, partition_key="k"))
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.defer_message(message)
        sender.send_messages(
            [
                ServiceBusMessage("first", partition_key="k"),
                ServiceBusMessage("short", time_to_live=1, partition_key="k"),
                ServiceBusMessage("last", partition_key="k"),
            ]
        )
        reason = "TTLExpiredException"
        assert dead_bodies(client, queue, 2) == [("deferred", reason), ("short", reason)]
        messages = receiver.receive_messages(5, max_wait_time=60)
        assert [(str(message), message.delivery_count) for message in messages] == [("first", 0), ("last", 0)]


def test_expired_messages_that_are_not_kept_are_gone(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """They are not counted any more."""
    queue = make_queue(default_message_time_to_live=timedelta(seconds=1))
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    deadline = time.monotonic() + PATIENCE
    while (administration.get_queue_runtime_properties(queue)).total_message_count:
        assert time.monotonic() < deadline
        sleep(0.1)


def test_a_message_whose_last_lock_expired_is_dead_lettered_without_a_receiver(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """Its deliveries are used up."""
    queue = make_queue(max_delivery_count=1)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        assert receiver.receive_messages(max_wait_time=60)
    later(queue, 61)
    assert dead_bodies(client, queue, 1) == [("x", "MaxDeliveryCountExceeded")]
