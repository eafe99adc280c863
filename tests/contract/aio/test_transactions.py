"""Transactions: sends and settlements that happen together or not at all, and the rules of their keys."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from kafkabus._async.compat import sleep
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    SessionLockLostError,
)
from tests.contract.aio.conftest import Advance, MakeQueue
from tests.contract.aio.receiving import take

A_MOMENT = 0.5
"""How long, in seconds, tests wait for a message that should not come."""
PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


class OnPurpose(Exception):
    """An exception that leaves a block."""


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
async def kind(make_queue: MakeQueue, request: pytest.FixtureRequest) -> str:
    """Return a new queue."""
    return await make_queue(partitioned=request.param)


def keyed(*bodies: str, key: str = "k") -> list[ServiceBusMessage]:
    """Return messages with one key."""
    return [ServiceBusMessage(body, partition_key=key) for body in bodies]


async def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    """Send messages, in no transaction."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(list(messages))


async def left_in(client: ServiceBusClient, queue: str, count: int, sub_queue: str | None = None) -> list[str]:
    """Receive and complete so many messages, and see that these are all; return their bodies."""
    async with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        messages = await take(receiver, count)
        await receiver.complete_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        return [str(message) for message in messages]


async def test_what_is_sent_and_settled_happens_at_the_end(
    client: ServiceBusClient, kind: str, make_queue: MakeQueue
) -> None:
    """All of it happens at the end, in two queues, and nothing before."""
    other = await make_queue()
    await send(client, kind, *keyed("order"))
    async with client.get_queue_sender(other) as sender, client.get_queue_receiver(kind) as receiver:
        (order,) = await take(receiver, 1)
        async with client.transaction() as transaction:
            await sender.send_messages(keyed("paid", "shipped"), transaction=transaction)
            await receiver.complete_message(order, transaction=transaction)
            async with client.get_queue_receiver(other) as early:
                assert await early.receive_messages(1, max_wait_time=A_MOMENT) == []
                assert await early.peek_messages(1) == []
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(order)
    assert await left_in(client, other, 2) == ["paid", "shipped"]
    assert await left_in(client, kind, 0) == []


async def test_an_exception_takes_all_of_it_back(client: ServiceBusClient, kind: str) -> None:
    """The message stays locked as it was, and can be settled in another way."""
    await send(client, kind, *keyed("order"))
    async with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        (order,) = await take(receiver, 1)
        with pytest.raises(OnPurpose):  # noqa: PT012 - the block is what is tested
            async with client.transaction() as transaction:
                await sender.send_messages(keyed("paid"), transaction=transaction)
                await receiver.complete_message(order, transaction=transaction)
                raise OnPurpose
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        await receiver.abandon_message(order)
    assert await left_in(client, kind, 1) == ["order"]


async def test_all_ways_to_settle(client: ServiceBusClient, kind: str) -> None:
    """Complete, abandon, defer and dead-letter work as they do outside a transaction."""
    await send(client, kind, *keyed("complete", "abandon", "defer", "dead-letter"))
    async with client.get_queue_receiver(kind) as receiver:
        done, again, later, dead = await take(receiver, 4)
        async with client.transaction() as transaction:
            await receiver.complete_message(done, transaction=transaction)
            await receiver.abandon_message(again, transaction=transaction)
            await receiver.defer_message(later, transaction=transaction)
            await receiver.dead_letter_message(dead, "why", "in more words", transaction=transaction)
        (abandoned,) = await take(receiver, 1)
        assert (str(abandoned), abandoned.delivery_count) == ("abandon", 1)
        await receiver.complete_message(abandoned)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        assert later.sequence_number is not None
        (deferred,) = await receiver.receive_deferred_messages(later.sequence_number)
        async with client.transaction() as transaction:
            await receiver.complete_message(deferred, transaction=transaction)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(later.sequence_number)
    async with client.get_queue_receiver(kind, sub_queue="deadletter") as receiver:
        (letter,) = await take(receiver, 1)
        assert (str(letter), letter.dead_letter_reason) == ("dead-letter", "why")
        assert letter.dead_letter_error_description == "in more words"
        assert letter.dead_letter_source == kind
        await receiver.complete_message(letter)


async def test_what_was_taken_back_is_there_once(client: ServiceBusClient, kind: str, later: Advance) -> None:
    """One lock of several was lost. Nothing is done, and the other messages can be settled still."""
    await send(client, kind, *keyed("first"))
    async with client.get_queue_sender(kind) as sender, client.get_queue_receiver(kind) as receiver:
        (first,) = await take(receiver, 1)
        await later(kind, 61)
        await sender.send_messages(keyed("second", key="another"))
        (*_, second) = await take(receiver, 2)
        with pytest.raises(MessageLockLostError, match="nothing else"):  # noqa: PT012 - likewise
            async with client.transaction() as transaction:
                await sender.send_messages(keyed("third"), transaction=transaction)
                await receiver.complete_message(second, transaction=transaction)
                await receiver.defer_message(first, transaction=transaction)
        await receiver.complete_message(second)
        await later(kind, 61)
    assert await left_in(client, kind, 1) == [{"first", "second"}.difference({str(second)}).pop()]


async def test_a_message_is_in_one_transaction(client: ServiceBusClient, kind: str) -> None:
    """It is settled once, in the transaction or without. Its lock can be renewed while the transaction is open."""
    await send(client, kind, *keyed("order"))
    async with client.get_queue_receiver(kind) as receiver:
        (order,) = await take(receiver, 1)
        async with client.transaction() as transaction:
            await receiver.complete_message(order, transaction=transaction)
            with pytest.raises(MessageAlreadySettled, match="not over"):
                await receiver.abandon_message(order)
            with pytest.raises(MessageAlreadySettled, match="not over"):
                await receiver.defer_message(order, transaction=transaction)
            await receiver.renew_message_lock(order)
        with pytest.raises(MessageAlreadySettled):
            await receiver.abandon_message(order)
    assert await left_in(client, kind, 0) == []


async def test_a_transaction_is_used_in_its_block(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """It is open for one block. It refuses senders of another client, and messages that are not locked."""
    async with client.get_queue_sender(queue) as sender, other_client.get_queue_sender(queue) as other:
        transaction = client.transaction()
        with pytest.raises(ValueError, match="not open"):
            await sender.send_messages(keyed("early"), transaction=transaction)
        async with transaction:
            with pytest.raises(ValueError, match="another client"):
                await other.send_messages(keyed("elsewhere"), transaction=transaction)
            await sender.send_messages([], transaction=transaction)
        with pytest.raises(ValueError, match="not open"):
            await sender.send_messages(keyed("late"), transaction=transaction)
        with pytest.raises(ValueError, match="one 'with' block"):
            async with transaction:
                pass
    async with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        await send(client, queue, *keyed("gone"))
        (gone,) = await take(receiver, 1)
        async with client.transaction() as another:
            with pytest.raises(ValueError, match="not locked"):
                await receiver.complete_message(gone, transaction=another)
    assert await left_in(client, queue, 0) == []


async def test_what_a_transaction_sends_to_a_partitioned_queue_has_a_key(client: ServiceBusClient, queue: str) -> None:
    """A message without a key is refused before anything is sent, and the transaction goes on without it."""
    async with client.get_queue_sender(queue) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="has no key"):
            await sender.send_messages(ServiceBusMessage("any"), transaction=transaction)
        with pytest.raises(InvalidOperationError, match="has no key"):
            await sender.send_messages([*keyed("one"), ServiceBusMessage("any")], transaction=transaction)
        await sender.send_messages(keyed("another", key="other"), transaction=transaction)
    assert await left_in(client, queue, 1) == ["another"]


async def test_what_a_transaction_sends_to_partitioned_queues_has_one_key(
    client: ServiceBusClient, queue: str, make_queue: MakeQueue
) -> None:
    """The rule holds across several queues; the key may be a session or a partition key."""
    other, sessions = await make_queue(), await make_queue(requires_session=True)
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_sender(other) as another,
        client.get_queue_sender(sessions) as third,
    ):
        async with client.transaction() as transaction:
            await sender.send_messages(keyed("one"), transaction=transaction)
            for wrong in (sender, another):
                with pytest.raises(InvalidOperationError, match="'k'"):
                    await wrong.send_messages(keyed("two", key="l"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'k'"):
                await third.send_messages(ServiceBusMessage("three", session_id="l"), transaction=transaction)
            await third.send_messages(ServiceBusMessage("three", session_id="k"), transaction=transaction)
        async with client.transaction() as transaction:
            with pytest.raises(InvalidOperationError, match="'k'"):
                await sender.send_messages([*keyed("two"), *keyed("four", key="l")], transaction=transaction)
    assert await left_in(client, queue, 1) == ["one"]
    assert await left_in(client, other, 0) == []


async def test_a_message_id_is_the_key_where_duplicates_are_detected(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """It is the key as in any send. Two messages without another key contradict each other; one alone is accepted."""
    queue = await make_queue(requires_duplicate_detection=True)
    async with client.get_queue_sender(queue) as sender:
        async with client.transaction() as transaction:
            await sender.send_messages(ServiceBusMessage("one", message_id="a"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'a'"):
                await sender.send_messages(ServiceBusMessage("two", message_id="b"), transaction=transaction)
        async with client.transaction() as transaction:
            await sender.send_messages(ServiceBusMessage("again", message_id="a"), transaction=transaction)
    assert await left_in(client, queue, 1) == ["one"]


@pytest.mark.parametrize("partitioned", [True, False])
async def test_the_rules_of_sessions_hold_in_a_transaction(
    client: ServiceBusClient, make_queue: MakeQueue, partitioned: bool
) -> None:
    """A session is needed if the queue has sessions, and a partition key must equal it in every queue."""
    queue = await make_queue(partitioned=partitioned, requires_session=True)
    odd = ServiceBusMessage("odd", session_id="s")
    odd.raw_amqp_message.annotations = {"x-opt-partition-key": "t"}
    async with client.get_queue_sender(queue) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="no session_id"):
            await sender.send_messages(keyed("none"), transaction=transaction)
        with pytest.raises(ValueError, match="partition"):
            await sender.send_messages(
                {"body": b"both", "session_id": "s", "partition_key": "t"}, transaction=transaction
            )
        await sender.send_messages(ServiceBusMessage("one", session_id="s"), transaction=transaction)
    async with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert [str(message) for message in await take(receiver, 1)] == ["one"]


async def test_sessions_of_one_transaction(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A transaction sends to several sessions of a plain queue, but not of a partitioned one."""
    plain, partitioned = (
        await make_queue(partitioned=False, requires_session=True),
        await make_queue(requires_session=True),
    )
    async with client.get_queue_sender(plain) as sender, client.transaction() as transaction:
        await sender.send_messages(
            [ServiceBusMessage("a", session_id="a"), ServiceBusMessage("b", session_id="b")], transaction=transaction
        )
    async with client.get_queue_sender(partitioned) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match="one session_id or partition_key"):
            await sender.send_messages(
                [ServiceBusMessage("a", session_id="a"), ServiceBusMessage("b", session_id="b")],
                transaction=transaction,
            )
    for session in "ab":
        async with client.get_queue_receiver(plain, session_id=session) as receiver:
            assert [str(message) for message in await take(receiver, 1)] == [session]


async def test_messages_of_a_session_are_settled(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """They are settled in order, even after a rollback."""
    queue = await make_queue(requires_session=True)
    await send(client, queue, *[ServiceBusMessage(str(number), session_id="s") for number in range(4)])
    async with client.get_queue_receiver(queue, session_id="s") as receiver:
        messages = await take(receiver, 4)
        async with client.transaction() as transaction:
            await receiver.complete_messages(messages[:2], transaction=transaction)
        with pytest.raises(OnPurpose):  # noqa: PT012 - the block is what is tested
            async with client.transaction() as transaction:
                await receiver.complete_messages(messages[2:], transaction=transaction)
                raise OnPurpose
    async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert [str(message) for message in await take(receiver, 2)] == ["2", "3"]


async def test_a_session_whose_lock_was_lost(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """Nothing of the transaction is done."""
    queue, other = await make_queue(requires_session=True), await make_queue()
    await send(client, queue, ServiceBusMessage("x", session_id="s"))
    async with client.get_queue_receiver(queue, session_id="s") as receiver, client.get_queue_sender(other) as sender:
        (message,) = await take(receiver, 1)
        await later(queue, 61)
        with pytest.raises(SessionLockLostError):  # noqa: PT012 - likewise
            async with client.transaction() as transaction:
                await sender.send_messages(keyed("y"), transaction=transaction)
                await receiver.complete_message(message, transaction=transaction)
    assert await left_in(client, other, 0) == []
    async with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert [str(message) for message in await take(receiver, 1)] == ["x"]


async def test_a_scheduled_message_of_a_transaction(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str, later: Advance
) -> None:
    """It waits for its time like any other."""
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    async with client.get_queue_sender(kind) as sender, client.transaction() as transaction:
        message = ServiceBusMessage("x", partition_key="k", scheduled_enqueue_time_utc=due)
        await sender.send_messages([message, *keyed("now")], transaction=transaction)
    assert (await administration.get_queue_runtime_properties(kind)).scheduled_message_count == 1
    assert await left_in(client, kind, 1) == ["now"]
    await later(kind, 3601)
    assert await left_in(client, kind, 1) == ["x"]


async def test_counts_after_a_transaction(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """Kafka's own records at its end do not count as messages, nor do messages of an aborted transaction."""

    async def count(wanted: int) -> None:
        found, until = -1, time.monotonic() + PATIENCE
        while found != wanted and time.monotonic() < until:
            counts = await administration.get_queue_runtime_properties(kind)
            found = counts.active_message_count
            assert counts.total_message_count == found
            await sleep(0.05)
        assert found == wanted

    async with client.get_queue_receiver(kind) as receiver, client.get_queue_sender(kind) as sender:
        for number in range(3):
            async with client.transaction() as transaction:
                await sender.send_messages(keyed(f"a {number}", f"b {number}"), transaction=transaction)
        await count(6)
        messages = await take(receiver, 6)
        async with client.transaction() as transaction:
            await sender.send_messages(keyed("c"), transaction=transaction)
            await receiver.complete_messages(messages[:4], transaction=transaction)
        await count(3)
        await receiver.complete_messages([*messages[4:], *await take(receiver, 1)])
        await count(0)


async def counted(administration: ServiceBusAdministrationClient, queue: str, active: int, dead: int) -> None:
    """Wait until so many messages are counted; never more, though brokers may end a transaction a moment after its commit."""
    deadline = time.monotonic() + PATIENCE
    found = (-1, -1)
    while found != (active, dead):
        assert time.monotonic() < deadline, found
        counts = await administration.get_queue_runtime_properties(queue)
        found = counts.active_message_count, counts.dead_letter_message_count
        assert found[0] <= active
        assert found[1] <= dead
        await sleep(0.05)


async def test_the_end_of_a_transaction_is_no_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, kind: str
) -> None:
    """The counts are right as soon as it is committed, also those of the dead-letter queue, and when some are received."""
    sender, receiver = client.get_queue_sender(kind), client.get_queue_receiver(kind)
    for sent in range(1, 4):
        async with client.transaction() as transaction:
            await sender.send_messages(keyed(str(sent)), transaction=transaction)
        await counted(administration, kind, sent, 0)
    messages = await take(receiver, 2)
    async with client.transaction() as transaction:
        await receiver.complete_message(messages[0], transaction=transaction)
        await receiver.dead_letter_message(messages[1], transaction=transaction)
        await sender.send_messages(keyed("4"), transaction=transaction)
    await counted(administration, kind, 2, 1)
    for left in (1, 0):
        await receiver.complete_messages(await take(receiver, 1))
        await counted(administration, kind, left, 1)
