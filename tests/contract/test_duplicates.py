# Generated from tests/contract/aio/test_duplicates.py by tools/generate_blocking.py. Do not edit.
"""Duplicate detection: among messages with one id within the window, the first is delivered."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from kafkabus.exceptions import InvalidOperationError, MessageNotFoundError
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import MakeQueue
from tests.contract.receiving import receive_all


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
def detecting(make_queue: MakeQueue, request: pytest.FixtureRequest) -> str:
    """A new queue that detects duplicates."""
    return make_queue(partitioned=request.param, requires_duplicate_detection=True)


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    """Send messages as one batch."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def all_of(
    client: ServiceBusClient, queue: str, count: int, mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK
) -> list[str]:
    """Receive and settle so many messages, and see that no more come; return their bodies in alphabetical order."""
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        messages = receive_all(receiver, count, settle=mode is ServiceBusReceiveMode.PEEK_LOCK)
    return sorted(map(str, messages))


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
def test_the_first_of_an_id_is_delivered(client: ServiceBusClient, detecting: str, mode: ServiceBusReceiveMode) -> None:
    """They may be sent in one batch or one after the other, before the first is received or after it."""
    send(client, detecting, ServiceBusMessage("a1", message_id="a"), ServiceBusMessage("b1", message_id="b"))
    send(client, detecting, ServiceBusMessage("a2", message_id="a"))
    send(client, detecting, *(ServiceBusMessage(f"c{number}", message_id="c") for number in range(1, 4)))
    assert all_of(client, detecting, 3, mode) == ["a1", "b1", "c1"]
    send(client, detecting, ServiceBusMessage("b2", message_id="b"), ServiceBusMessage("d1", message_id="d"))
    assert all_of(client, detecting, 1, mode) == ["d1"]


def test_an_id_may_be_a_uuid_and_is_made_up_where_none_is_given(client: ServiceBusClient, detecting: str) -> None:
    """Messages without an id are all different."""
    one = uuid.uuid4()
    send(client, detecting, *(ServiceBusMessage("same", message_id=one) for _ in range(2)))
    send(client, detecting, *(ServiceBusMessage("other") for _ in range(3)))
    assert all_of(client, detecting, 4) == ["other", "other", "other", "same"]


def test_ids_that_differ_behind_a_nul_or_are_empty_are_different(client: ServiceBusClient, detecting: str) -> None:
    """The whole text counts, and an empty id counts as missing: the sender makes one up."""
    ids = ["order\0 1", "order\0 2", "order\0 1", "", ""]
    send(
        client,
        detecting,
        *(ServiceBusMessage(f"{n}", message_id=name, partition_key="k") for n, name in enumerate(ids)),
    )
    assert all_of(client, detecting, 4) == ["0", "1", "3", "4"]


def test_many_senders_at_once(client: ServiceBusClient, other_client: ServiceBusClient, detecting: str) -> None:
    """Each id is delivered once, whichever sender was faster."""

    def send_all(one: ServiceBusClient, name: str) -> None:
        for first in range(0, 100, 20):
            send(
                one,
                detecting,
                *(ServiceBusMessage(f"{number}", message_id=f"{number}") for number in range(first, first + 20)),
                ServiceBusMessage(f"{name}{first}"),
            )

    senders = [(client, "a"), (other_client, "b"), (client, "c")]
    with ThreadPoolExecutor(3) as pool:
        for sent in [pool.submit(send_all, *one) for one in senders]:
            sent.result()
    bodies = all_of(other_client, detecting, 115)
    assert bodies == sorted([str(n) for n in range(100)] + [f"{name}{n}" for name in "abc" for n in range(0, 100, 20)])


def test_ids_of_different_keys_are_different_on_a_partitioned_queue(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """There the partition key and the message id count together, as in Service Bus.

    On a plain queue the id counts alone.
    """
    for partitioned, expected in ((True, ["x1", "y1"]), (False, ["x1"])):
        queue = make_queue(partitioned=partitioned, requires_duplicate_detection=True)
        for key, number in (("x", 1), ("y", 1), ("x", 2), ("y", 2)):
            send(client, queue, ServiceBusMessage(f"{key}{number}", message_id="id", partition_key=key))
        assert all_of(client, queue, len(expected)) == expected


def test_in_sessions(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Within a session the first of them is delivered, in order."""
    queue = make_queue(requires_session=True, requires_duplicate_detection=True)
    for number in (1, 2):
        for name in "abc":
            send(client, queue, ServiceBusMessage(f"{name}{number}", message_id=name, session_id="s"))
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 3:
            messages += receiver.receive_messages(10, max_wait_time=60)
        receiver.complete_messages(messages)
        assert [str(message) for message in messages] == ["a1", "b1", "c1"]
        assert receiver.receive_messages(10, max_wait_time=0.5) == []


def test_a_duplicate_is_not_peeked(client: ServiceBusClient, detecting: str) -> None:
    """A duplicate does not count as a message."""
    send(client, detecting, ServiceBusMessage("1", message_id="a"), ServiceBusMessage("2", message_id="a"))
    with client.get_queue_receiver(detecting) as receiver:
        assert [str(message) for message in receiver.peek_messages(10)] == ["1"]


def test_a_duplicate_of_a_scheduled_message_cannot_be_cancelled(client: ServiceBusClient, detecting: str) -> None:
    """A cancel of the copy that is dropped would look done, and the other one come."""
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with client.get_queue_sender(detecting) as sender, client.get_queue_receiver(detecting) as receiver:
        first, second = [
            (sender.schedule_messages(ServiceBusMessage(body, message_id="a"), later))[0] for body in ("a1", "a2")
        ]
        with pytest.raises(MessageNotFoundError, match="are duplicates"):
            sender.cancel_scheduled_messages(second)
        assert [one.sequence_number for one in receiver.peek_messages(5, sequence_number=1)] == [first]
        sender.cancel_scheduled_messages(first)
        assert receiver.peek_messages(5, sequence_number=1) == []


def test_a_message_that_comes_again_is_no_duplicate_of_itself(client: ServiceBusClient, detecting: str) -> None:
    """That holds after an abandon and after a deferral."""
    send(client, detecting, ServiceBusMessage("1", message_id="a"))
    with client.get_queue_receiver(detecting) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=60)
        receiver.abandon_message(message)
        (message,) = receiver.receive_messages(max_wait_time=60)
        assert message.delivery_count == 1
        number = message.sequence_number
        assert number is not None
        receiver.defer_message(message)
        (message,) = receiver.receive_deferred_messages(number)
        receiver.complete_message(message)
    assert all_of(client, detecting, 0) == []


def test_the_window_is_kept_within_its_limits(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """The window is 20 seconds to 7 days, 10 minutes by default. Duplicate detection itself cannot be changed later."""
    queue = make_queue(requires_duplicate_detection=True)
    described = administration.get_queue(queue)
    assert described.requires_duplicate_detection is True
    assert described.duplicate_detection_history_time_window == timedelta(minutes=10)
    described.duplicate_detection_history_time_window = timedelta(minutes=20)
    administration.update_queue(described)
    changed = administration.get_queue(queue)
    assert changed.duplicate_detection_history_time_window == timedelta(minutes=20)
    for window in (timedelta(seconds=19), timedelta(days=7, seconds=1)):
        with pytest.raises(Exception, match="duplicate_detection_history_time_window"):
            make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=window)
    changed.requires_duplicate_detection = False
    with pytest.raises(InvalidOperationError, match="requires_duplicate_detection"):
        administration.update_queue(changed)


def test_counts_leave_duplicates_out(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, detecting: str
) -> None:
    """Duplicates do not count among waiting messages."""
    send(client, detecting, *(ServiceBusMessage("1", message_id=name) for name in "aabbc"))
    counts = administration.get_queue_runtime_properties(detecting)
    assert counts.active_message_count == counts.total_message_count == 3
