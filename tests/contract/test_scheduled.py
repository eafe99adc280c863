# Generated from tests/contract/aio/test_scheduled.py by tools/generate_blocking.py. Do not edit.
"""Scheduled messages: kept until their time, peeked, counted, cancelled, enqueued once."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
)
from kafkabus._sync.compat import sleep
from kafkabus.exceptions import MessageNotFoundError
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue
from tests.contract.receiving import receive_all

HOUR = timedelta(hours=1)


def soon(wait: timedelta = HOUR) -> datetime:
    """Return a time soon to come, to the millisecond."""
    moment = datetime.now(timezone.utc) + wait
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
def kind(make_queue: MakeQueue, request: pytest.FixtureRequest) -> str:
    """Return a new queue."""
    return make_queue(partitioned=request.param)


def all_of(
    client: ServiceBusClient, queue: str, count: int, mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK
) -> list[str]:
    """Receive and settle so many messages, and see that no more come; return their bodies."""
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        messages = receive_all(receiver, count, quiet=1.0, settle=mode is ServiceBusReceiveMode.PEEK_LOCK)
    return [str(message) for message in messages]


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
def test_a_message_comes_at_its_time_and_not_before(
    client: ServiceBusClient, kind: str, later: Advance, mode: ServiceBusReceiveMode
) -> None:
    """Other messages are sent and received before; messages due at the same time come in the order in which they were sent."""
    due = soon()
    with client.get_queue_sender(kind) as sender:
        sender.send_messages([ServiceBusMessage(f"before {number}", partition_key="k") for number in range(3)])
        sender.schedule_messages(
            [ServiceBusMessage(f"scheduled {number}", partition_key="k") for number in range(12)], due
        )
        sender.send_messages(ServiceBusMessage("after", partition_key="k"))
        assert all_of(client, kind, 4, mode) == ["before 0", "before 1", "before 2", "after"]
        later(kind, 3601)
        assert all_of(client, kind, 12, mode) == [f"scheduled {number}" for number in range(12)]
        assert all_of(client, kind, 0, mode) == []


def test_what_a_message_says_of_its_time(client: ServiceBusClient, kind: str) -> None:
    """It gets a new sequence number when it is enqueued, at its time or a moment later."""
    due = soon(timedelta(seconds=1.5))
    message = ServiceBusMessage("x", message_id="one", application_properties={"a": 1})
    with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        (number,) = sender.schedule_messages(message, due)
        assert message.scheduled_enqueue_time_utc is None
        (received,) = receiver.receive_messages(max_wait_time=20)
        assert (received.message_id, received.scheduled_enqueue_time_utc) == ("one", due)
        assert (received.state, received.delivery_count) == (ServiceBusMessageState.ACTIVE, 0)
        assert received.enqueued_time_utc is not None
        assert timedelta() <= received.enqueued_time_utc - due < timedelta(seconds=5)
        assert received.sequence_number != number
        assert received.application_properties == {b"a": 1}
        receiver.complete_message(received)


def test_a_time_on_a_message_that_is_sent(client: ServiceBusClient, kind: str, later: Advance) -> None:
    """The message is scheduled, and the others of its batch are not."""
    messages = [ServiceBusMessage("at once"), ServiceBusMessage("later", scheduled_enqueue_time_utc=soon())]
    with client.get_queue_sender(kind) as sender:
        sender.send_messages(messages)
        assert all_of(client, kind, 1) == ["at once"]
        later(kind, 3601)
        assert all_of(client, kind, 1) == ["later"]
        messages[1].scheduled_enqueue_time_utc = None
        sender.send_messages(messages)
        assert sorted(all_of(client, kind, 2)) == ["at once", "later"]


def test_scheduled_messages_are_peeked_and_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """They are shown among the others, in the order of their sequence numbers, received or not."""
    with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        number = 0
        for name in "abc":
            sender.send_messages(ServiceBusMessage(name, partition_key="k"))
            (number,) = sender.schedule_messages(ServiceBusMessage(name.upper(), partition_key="k"), soon())

        def peeked() -> list[tuple[str, bool]]:
            found = []
            from_number = 1
            while page := receiver.peek_messages(2, sequence_number=from_number):
                found += [(str(one), one.state is ServiceBusMessageState.SCHEDULED) for one in page]
                assert page[-1].sequence_number is not None
                from_number = page[-1].sequence_number + 1
            assert page == []
            return found

        def counts() -> tuple[int, int, int]:
            told = administration.get_queue_runtime_properties(kind)
            return told.active_message_count, told.scheduled_message_count, told.total_message_count

        everything = [("a", False), ("A", True), ("b", False), ("B", True), ("c", False), ("C", True)]
        assert (peeked(), counts()) == (everything, (3, 3, 6))
        messages = receiver.receive_messages(2, max_wait_time=60)
        messages += receiver.receive_messages(3 - len(messages), max_wait_time=60) if len(messages) < 3 else []
        assert (peeked(), counts()) == (everything, (3, 3, 6))
        receiver.complete_messages(messages)
        sender.cancel_scheduled_messages(number)
        assert (peeked(), counts()) == ([("A", True), ("B", True)], (0, 2, 2))


def test_messages_count_once_when_their_time_has_come(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str, later: Advance
) -> None:
    """They count even if no receiver received any before; cancelled ones do not count."""
    with client.get_queue_sender(kind) as sender:
        sender.send_messages(ServiceBusMessage("before", partition_key="k"))
        messages = [ServiceBusMessage(str(number), partition_key="k") for number in range(5)]
        numbers = sender.schedule_messages(messages, soon())
        sender.cancel_scheduled_messages(numbers[:2])

    def counts() -> tuple[int, int, int]:
        told = administration.get_queue_runtime_properties(kind)
        return told.active_message_count, told.scheduled_message_count, told.total_message_count

    assert counts() == (1, 3, 4)
    later(kind, 3601)
    deadline = time.monotonic() + 20
    while counts() != (4, 0, 4) and time.monotonic() < deadline:
        sleep(0.05)
    assert counts() == (4, 0, 4)


def test_cancelled_messages_never_come(client: ServiceBusClient, kind: str, later: Advance) -> None:
    """One message or several are cancelled.

    A number that is not scheduled is an error; the others are cancelled anyway.
    """
    with client.get_queue_sender(kind) as sender:
        assert sender.schedule_messages([], soon()) == []
        sender.cancel_scheduled_messages([])
        numbers = sender.schedule_messages([ServiceBusMessage(str(number)) for number in range(4)], soon())
        assert len(set(numbers)) == 4
        sender.cancel_scheduled_messages(numbers[0])
        with pytest.raises(MessageNotFoundError, match=rf"numbers \[{numbers[0]}\]"):
            sender.cancel_scheduled_messages(numbers[:3])
        for wrong in (0, -1, 1 << 60):
            with pytest.raises(MessageNotFoundError):
                sender.cancel_scheduled_messages(wrong)
        later(kind, 3601)
        assert all_of(client, kind, 1) == ["3"]
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[3])


def test_scheduled_messages_of_sessions(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """Each joins its session at its time, behind the messages that were sent until then."""
    queue = make_queue(requires_session=True)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages([ServiceBusMessage(f"{one}2", session_id=one) for one in "ab"], soon())
        sender.send_messages([ServiceBusMessage(f"{one}1", session_id=one) for one in "ab"])

        def sessions() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for _ in range(2):
                with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
                    messages = receiver.receive_messages(10, max_wait_time=60)
                    assert receiver.session is not None
                    assert receiver.session.session_id is not None
                    found[receiver.session.session_id] = [str(message) for message in messages]
                    receiver.complete_messages(messages)
            return found

        assert sessions() == {"a": ["a1"], "b": ["b1"]}
        later(queue, 3601)
        assert sessions() == {"a": ["a2"], "b": ["b2"]}


def test_an_id_counts_from_when_its_message_was_scheduled(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """The enqueued message is no duplicate of itself."""
    queue = make_queue(requires_duplicate_detection=True)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled", message_id="a"), soon())
        sender.send_messages(ServiceBusMessage("sent", message_id="a"))
        sender.schedule_messages(ServiceBusMessage("again", message_id="a"), soon())
        assert all_of(client, queue, 0) == []
        later(queue, 3601)
        assert all_of(client, queue, 1) == ["scheduled"]


def test_bad_times_and_messages(client: ServiceBusClient, kind: str) -> None:
    """They are refused before anything is sent. A time in the past means at once."""
    with client.get_queue_sender(kind) as sender:
        with pytest.raises(TypeError):
            sender.schedule_messages(ServiceBusMessage("x"), 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            sender.schedule_messages([ServiceBusMessage("x"), "y"], soon())  # type: ignore[list-item]
        with pytest.raises(TypeError):
            sender.schedule_messages(sender.create_message_batch(), soon())  # type: ignore[arg-type]
        sender.schedule_messages([{"body": "x"}], datetime(2020, 1, 1))  # noqa: DTZ001 - naive on purpose
        assert all_of(client, kind, 1) == ["x"]
