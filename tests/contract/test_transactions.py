# Generated from tests/contract/aio/test_transactions.py by tools/generate_blocking.py. Do not edit.
"""Transactions: sends and settlements that happen together or not at all, and the rules of their keys."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from kafkabus._sync.compat import sleep
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    SessionLockLostError,
)
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue
from tests.contract.receiving import take

A_MOMENT = 0.5
"""How long, in seconds, tests wait for a message that should not come."""
PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


class OnPurpose(Exception):
    """An exception that leaves a block."""


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
def kind(make_queue: MakeQueue, request: pytest.FixtureRequest) -> str:
    """Return a new queue."""
    return make_queue(partitioned=request.param)


def keyed(*bodies: str, key: str = "k") -> list[ServiceBusMessage]:
    """Return messages with one key."""
    return [ServiceBusMessage(body, partition_key=key) for body in bodies]


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    """Send messages, in no transaction."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def left_in(client: ServiceBusClient, queue: str, count: int, sub_queue: str | None = None) -> list[str]:
    """Receive and complete so many messages, and see that these are all; return their bodies."""
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        messages = take(receiver, count)
        receiver.complete_messages(messages)
        assert receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        return [str(message) for message in messages]


def test_what_is_sent_and_settled_happens_at_the_end(
    client: ServiceBusClient, kind: str, make_queue: MakeQueue
) -> None:
    """All of it happens at the end, in two queues, and nothing before."""
    other = make_queue()
    send(client, kind, *keyed("order"))
    with client.get_queue_sender(other) as sender, client.get_queue_receiver(kind) as receiver:
        (order,) = take(receiver, 1)
        with client.transaction() as transaction:
            sender.send_messages(keyed("paid", "shipped"), transaction=transaction)
            receiver.complete_message(order, transaction=transaction)
            with client.get_queue_receiver(other) as early:
                assert early.receive_messages(1, max_wait_time=A_MOMENT) == []
                assert early.peek_messages(1) == []
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(order)
    assert left_in(client, other, 2) == ["paid", "shipped"]
    assert left_in(client, kind, 0) == []


def test_an_exception_takes_all_of_it_back(client: ServiceBusClient, kind: str) -> None:
    """The message stays locked as it was, and can be settled in another way."""
    send(client, kind, *keyed("order"))
    with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        (order,) = take(receiver, 1)
        with pytest.raises(OnPurpose):  # noqa: PT012 - the block is what is tested
            with client.transaction() as transaction:
                sender.send_messages(keyed("paid"), transaction=transaction)
                receiver.complete_message(order, transaction=transaction)
                raise OnPurpose
        assert receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        receiver.abandon_message(order)
    assert left_in(client, kind, 1) == ["order"]


def test_all_ways_to_settle(client: ServiceBusClient, kind: str) -> None:
    """Complete, abandon, defer and dead-letter work as they do outside a transaction."""
    send(client, kind, *keyed("complete", "abandon", "defer", "dead-letter"))
    with client.get_queue_receiver(kind) as receiver:
        done, again, later, dead = take(receiver, 4)
        with client.transaction() as transaction:
            receiver.complete_message(done, transaction=transaction)
            receiver.abandon_message(again, transaction=transaction)
            receiver.defer_message(later, transaction=transaction)
            receiver.dead_letter_message(dead, "why", "in more words", transaction=transaction)
        (abandoned,) = take(receiver, 1)
        assert (str(abandoned), abandoned.delivery_count) == ("abandon", 1)
        receiver.complete_message(abandoned)
        assert receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        assert later.sequence_number is not None
        (deferred,) = receiver.receive_deferred_messages(later.sequence_number)
        with client.transaction() as transaction:
            receiver.complete_message(deferred, transaction=transaction)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(later.sequence_number)
    with client.get_queue_receiver(kind, sub_queue="deadletter") as receiver:
        (letter,) = take(receiver, 1)
        assert (str(letter), letter.dead_letter_reason) == ("dead-letter", "why")
        assert letter.dead_letter_error_description == "in more words"
        assert letter.dead_letter_source == kind
        receiver.complete_message(letter)


def test_what_was_taken_back_is_there_once(client: ServiceBusClient, kind: str, later: Advance) -> None:
    """One lock of several was lost. Nothing is done, and the other messages can be settled still."""
    send(client, kind, *keyed("first"))
    with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        (first,) = take(receiver, 1)
        later(kind, 61)
        sender.send_messages(keyed("second", key="another"))
        (*_, second) = take(receiver, 2)
        with pytest.raises(MessageLockLostError, match="nothing else"):  # noqa: PT012 - likewise
            with client.transaction() as transaction:
                sender.send_messages(keyed("third"), transaction=transaction)
                receiver.complete_message(second, transaction=transaction)
                receiver.defer_message(first, transaction=transaction)
        receiver.complete_message(second)
        later(kind, 61)
    assert left_in(client, kind, 1) == [{"first", "second"}.difference({str(second)}).pop()]


def test_a_message_is_in_one_transaction(client: ServiceBusClient, kind: str) -> None:
    """It is settled once, in the transaction or without. Its lock can be renewed while the transaction is open."""
    send(client, kind, *keyed("order"))
    with client.get_queue_receiver(kind) as receiver:
        (order,) = take(receiver, 1)
        with client.transaction() as transaction:
            receiver.complete_message(order, transaction=transaction)
            with pytest.raises(MessageAlreadySettled, match="not over"):
                receiver.abandon_message(order)
            with pytest.raises(MessageAlreadySettled, match="not over"):
                receiver.defer_message(order, transaction=transaction)
            receiver.renew_message_lock(order)
        with pytest.raises(MessageAlreadySettled):
            receiver.abandon_message(order)
    assert left_in(client, kind, 0) == []


def test_a_transaction_is_used_in_its_block(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """It is open for one block. It refuses senders of another client, and messages that are not locked."""
    with client.get_queue_sender(queue) as sender, other_client.get_queue_sender(queue) as other:
        transaction = client.transaction()
        with pytest.raises(ValueError, match="not open"):
            sender.send_messages(keyed("early"), transaction=transaction)
        with transaction:
            with pytest.raises(ValueError, match="another client"):
                other.send_messages(keyed("elsewhere"), transaction=transaction)
            sender.send_messages([], transaction=transaction)
        with pytest.raises(ValueError, match="not open"):
            sender.send_messages(keyed("late"), transaction=transaction)
        with pytest.raises(ValueError, match="one 'with' block"):
            with transaction:
                pass
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        send(client, queue, *keyed("gone"))
        (gone,) = take(receiver, 1)
        with client.transaction() as another:
            with pytest.raises(ValueError, match="not locked"):
                receiver.complete_message(gone, transaction=another)
    assert left_in(client, queue, 0) == []


def test_what_a_transaction_sends_to_a_partitioned_queue_has_a_key(client: ServiceBusClient, queue: str) -> None:
    """A message without a key is refused before anything is sent, and the transaction goes on without it."""
    with client.get_queue_sender(queue) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="has no key"):
            sender.send_messages(ServiceBusMessage("any"), transaction=transaction)
        with pytest.raises(InvalidOperationError, match="has no key"):
            sender.send_messages([*keyed("one"), ServiceBusMessage("any")], transaction=transaction)
        sender.send_messages(keyed("another", key="other"), transaction=transaction)
    assert left_in(client, queue, 1) == ["another"]


def test_what_a_transaction_sends_to_partitioned_queues_has_one_key(
    client: ServiceBusClient, queue: str, make_queue: MakeQueue
) -> None:
    """The rule holds across several queues; the key may be a session or a partition key."""
    other, sessions = make_queue(), make_queue(requires_session=True)
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_sender(other) as another,
        client.get_queue_sender(sessions) as third,
    ):
        with client.transaction() as transaction:
            sender.send_messages(keyed("one"), transaction=transaction)
            for wrong in (sender, another):
                with pytest.raises(InvalidOperationError, match="'k'"):
                    wrong.send_messages(keyed("two", key="l"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'k'"):
                third.send_messages(ServiceBusMessage("three", session_id="l"), transaction=transaction)
            third.send_messages(ServiceBusMessage("three", session_id="k"), transaction=transaction)
        with client.transaction() as transaction:
            with pytest.raises(InvalidOperationError, match="'k'"):
                sender.send_messages([*keyed("two"), *keyed("four", key="l")], transaction=transaction)
    assert left_in(client, queue, 1) == ["one"]
    assert left_in(client, other, 0) == []


def test_a_message_id_is_the_key_where_duplicates_are_detected(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It is the key as in any send. Two messages without another key contradict each other; one alone is accepted."""
    queue = make_queue(requires_duplicate_detection=True)
    with client.get_queue_sender(queue) as sender:
        with client.transaction() as transaction:
            sender.send_messages(ServiceBusMessage("one", message_id="a"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'a'"):
                sender.send_messages(ServiceBusMessage("two", message_id="b"), transaction=transaction)
        with client.transaction() as transaction:
            sender.send_messages(ServiceBusMessage("again", message_id="a"), transaction=transaction)
    assert left_in(client, queue, 1) == ["one"]


@pytest.mark.parametrize("partitioned", [True, False])
def test_the_rules_of_sessions_hold_in_a_transaction(
    client: ServiceBusClient, make_queue: MakeQueue, partitioned: bool
) -> None:
    """A session is needed if the queue has sessions, and a partition key must equal it in every queue."""
    queue = make_queue(partitioned=partitioned, requires_session=True)
    odd = ServiceBusMessage("odd", session_id="s")
    odd.raw_amqp_message.annotations = {"x-opt-partition-key": "t"}
    with client.get_queue_sender(queue) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="no session_id"):
            sender.send_messages(keyed("none"), transaction=transaction)
        with pytest.raises(ValueError, match="partition"):
            sender.send_messages({"body": b"both", "session_id": "s", "partition_key": "t"}, transaction=transaction)
        sender.send_messages(ServiceBusMessage("one", session_id="s"), transaction=transaction)
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert [str(message) for message in take(receiver, 1)] == ["one"]


def test_sessions_of_one_transaction(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A transaction sends to several sessions of a plain queue, but not of a partitioned one."""
    plain, partitioned = (
        make_queue(partitioned=False, requires_session=True),
        make_queue(requires_session=True),
    )
    with client.get_queue_sender(plain) as sender, client.transaction() as transaction:
        sender.send_messages(
            [ServiceBusMessage("a", session_id="a"), ServiceBusMessage("b", session_id="b")], transaction=transaction
        )
    with client.get_queue_sender(partitioned) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="one session_id or partition_key"):
            sender.send_messages(
                [ServiceBusMessage("a", session_id="a"), ServiceBusMessage("b", session_id="b")],
                transaction=transaction,
            )
    for session in "ab":
        with client.get_queue_receiver(plain, session_id=session) as receiver:
            assert [str(message) for message in take(receiver, 1)] == [session]


def test_messages_of_a_session_are_settled(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """They are settled in order, even after a rollback."""
    queue = make_queue(requires_session=True)
    send(client, queue, *[ServiceBusMessage(str(number), session_id="s") for number in range(4)])
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        messages = take(receiver, 4)
        with client.transaction() as transaction:
            receiver.complete_messages(messages[:2], transaction=transaction)
        with pytest.raises(OnPurpose):  # noqa: PT012 - the block is what is tested
            with client.transaction() as transaction:
                receiver.complete_messages(messages[2:], transaction=transaction)
                raise OnPurpose
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert [str(message) for message in take(receiver, 2)] == ["2", "3"]


def test_a_session_whose_lock_was_lost(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """Nothing of the transaction is done."""
    queue, other = make_queue(requires_session=True), make_queue()
    send(client, queue, ServiceBusMessage("x", session_id="s"))
    with client.get_queue_receiver(queue, session_id="s") as receiver, client.get_queue_sender(other) as sender:
        (message,) = take(receiver, 1)
        later(queue, 61)
        with pytest.raises(SessionLockLostError):  # noqa: PT012 - likewise
            with client.transaction() as transaction:
                sender.send_messages(keyed("y"), transaction=transaction)
                receiver.complete_message(message, transaction=transaction)
    assert left_in(client, other, 0) == []
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert [str(message) for message in take(receiver, 1)] == ["x"]


def test_a_scheduled_message_of_a_transaction(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str, later: Advance
) -> None:
    """It waits for its time like any other."""
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    with client.get_queue_sender(kind) as sender, client.transaction() as transaction:
        message = ServiceBusMessage("x", partition_key="k", scheduled_enqueue_time_utc=due)
        sender.send_messages([message, *keyed("now")], transaction=transaction)
    assert (administration.get_queue_runtime_properties(kind)).scheduled_message_count == 1
    assert left_in(client, kind, 1) == ["now"]
    later(kind, 3601)
    assert left_in(client, kind, 1) == ["x"]


def test_counts_after_a_transaction(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """Kafka's own records at its end do not count as messages, nor do messages of an aborted transaction."""

    def count(wanted: int) -> None:
        found, until = -1, time.monotonic() + PATIENCE
        while found != wanted and time.monotonic() < until:
            counts = administration.get_queue_runtime_properties(kind)
            found = counts.active_message_count
            assert counts.total_message_count == found
            sleep(0.05)
        assert found == wanted

    with client.get_queue_receiver(kind) as receiver, client.get_queue_sender(kind) as sender:
        for number in range(3):
            with client.transaction() as transaction:
                sender.send_messages(keyed(f"a {number}", f"b {number}"), transaction=transaction)
        count(6)
        messages = take(receiver, 6)
        with client.transaction() as transaction:
            sender.send_messages(keyed("c"), transaction=transaction)
            receiver.complete_messages(messages[:4], transaction=transaction)
        count(3)
        receiver.complete_messages([*messages[4:], *take(receiver, 1)])
        count(0)


def counted(administration: ServiceBusAdministrationClient, queue: str, active: int, dead: int) -> None:
    """Wait until so many messages are counted; never more, though brokers may end a transaction a moment after its commit."""
    deadline = time.monotonic() + PATIENCE
    found = (-1, -1)
    while found != (active, dead):
        assert time.monotonic() < deadline, found
        counts = administration.get_queue_runtime_properties(queue)
        found = counts.active_message_count, counts.dead_letter_message_count
        assert found[0] <= active
        assert found[1] <= dead
        sleep(0.05)


def test_the_end_of_a_transaction_is_no_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """The counts are right as soon as it is committed, also those of the dead-letter queue, and when some are received."""
    sender, receiver = client.get_queue_sender(kind), client.get_queue_receiver(kind)
    for sent in range(1, 4):
        with client.transaction() as transaction:
            sender.send_messages(keyed(str(sent)), transaction=transaction)
        counted(administration, kind, sent, 0)
    messages = take(receiver, 2)
    with client.transaction() as transaction:
        receiver.complete_message(messages[0], transaction=transaction)
        receiver.dead_letter_message(messages[1], transaction=transaction)
        sender.send_messages(keyed("4"), transaction=transaction)
    counted(administration, kind, 2, 1)
    for left in (1, 0):
        receiver.complete_messages(take(receiver, 1))
        counted(administration, kind, left, 1)
