"""Locks and their ends: completion, abandonment, expiry, dead-lettering."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusMessage, ServiceBusSubQueue
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import MessageAlreadySettled, MessageLockLostError, ServiceBusError
from tests.contract.aio.conftest import Advance, MakeQueue
from tests.contract.aio.receiving import receive_all


async def test_a_completed_message_never_comes_again(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """It comes neither at once nor after its lock would have expired."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await receiver.complete_message(message)
        assert (message.lock_token, message.locked_until_utc) == (None, None)
        await later(queue, 120)
        assert await receiver.receive_messages(max_wait_time=1.5) == []


async def test_a_locked_message_is_seen_by_nobody_else(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """One receiver, of this client or another, holds a delivery at a time."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert message.lock_token is not None
        assert message.locked_until_utc is not None
        assert message.locked_until_utc > datetime.now(timezone.utc) + timedelta(seconds=30)
        assert await client.get_queue_receiver(queue).receive_messages(max_wait_time=0.5) == []
        assert await other_client.get_queue_receiver(queue).receive_messages(max_wait_time=1.5) == []


async def test_settling_twice_is_refused(client: ServiceBusClient, queue: str) -> None:
    """The second settlement of an object raises MessageAlreadySettled, a ValueError and no ServiceBusError."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled) as refused:
            await receiver.complete_message(message)
        assert isinstance(refused.value, ValueError)
        assert not isinstance(refused.value, ServiceBusError)


async def test_an_abandoned_message_comes_back_counted(client: ServiceBusClient, queue: str) -> None:
    """It comes at once, even to the same receiver, with a higher delivery count and another token."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (first,) = await receiver.receive_messages(max_wait_time=60)
        token = first.lock_token
        await receiver.abandon_message(first)
        (second,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(second), second.delivery_count, second.sequence_number) == ("x", 1, first.sequence_number)
        assert second.lock_token != token
        await receiver.complete_message(second)


async def test_as_many_come_back_as_are_asked_for(client: ServiceBusClient, queue: str) -> None:
    """If more messages wait to come back, apart from each other, the receive returns all the same."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(5)])
        messages = await receiver.receive_messages(5, max_wait_time=60)
        await receiver.abandon_messages([messages[0], messages[2], messages[4]])
        for body in ("0", "2", "4"):
            (message,) = await receiver.receive_messages(1, max_wait_time=60)
            assert (str(message), message.delivery_count) == (body, 1)


async def test_an_abandoned_message_reaches_an_idle_receiver_of_another_client(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """A notification wakes the receiver."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (first,) = await receiver.receive_messages(max_wait_time=60)
        other = other_client.get_queue_receiver(queue)
        assert await other.receive_messages(max_wait_time=0.2) == []
        await receiver.abandon_message(first)
        (second,) = await other.receive_messages(max_wait_time=60)
        assert second.delivery_count == 1
        await other.complete_message(second)


async def test_an_expired_lock_gives_the_message_back_and_its_token_settles_nothing(
    client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """A stale token is refused before and after the message is delivered again. The new one works."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (stale,) = await receiver.receive_messages(max_wait_time=60)
        await later(queue, 61)
        with pytest.raises(MessageLockLostError, match="locks expired"):
            await receiver.complete_message(stale)
        (again,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(again), again.delivery_count) == ("x", 1)
        for settle in (receiver.complete_message, receiver.abandon_message, receiver.dead_letter_message):
            with pytest.raises(MessageLockLostError):
                await settle(stale)
        await receiver.complete_message(again)
        await later(queue, 120)
        assert await receiver.receive_messages(max_wait_time=1.5) == []


async def test_another_receiver_of_the_queue_may_settle(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """The token decides, not the object with it. A receiver of another queue is refused."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        dead_letters = client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        with pytest.raises(ValueError, match="settle it with a receiver of that queue"):
            await dead_letters.complete_message(message)
        await other_client.get_queue_receiver(queue).complete_message(message)
        assert await receiver.receive_messages(max_wait_time=0.3) == []


async def test_many_are_settled_at_once_and_only_the_lost_ones_are_named(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """Completing several messages settles the locked ones and names the others."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(6)])
        messages = await receiver.receive_messages(6, max_wait_time=60)
        await receiver.complete_messages(messages[1:3])
        await receiver.abandon_messages([messages[4]])
        (abandoned,) = await other_client.get_queue_receiver(queue).receive_messages(max_wait_time=60)
        assert str(abandoned) == "4"
        await receiver.complete_messages([messages[0], messages[3], messages[5]])
        await later(queue, 61)
        (again,) = await receiver.receive_messages(6, max_wait_time=60)
        assert (str(again), again.delivery_count) == ("4", 2)
        with pytest.raises(MessageLockLostError, match=str(abandoned.sequence_number)):
            await receiver.complete_messages([again, abandoned])
        assert again.lock_token is None
        await later(queue, 61)
        assert await receiver.receive_messages(max_wait_time=1.5) == []


async def test_what_is_no_received_message_cannot_be_settled(client: ServiceBusClient, queue: str) -> None:
    """A TypeError is raised before anything else."""
    receiver = client.get_queue_receiver(queue)
    with pytest.raises(TypeError, match="ServiceBusMessage cannot be settled"):
        await receiver.complete_message(ServiceBusMessage("x"))  # type: ignore[arg-type]  # that is the test


async def test_a_dead_lettered_message_says_why(client: ServiceBusClient, queue: str) -> None:
    """It moves from the queue to its dead-letter queue, with reason, description, source and its key."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(
            ServiceBusMessage("x", message_id="m", partition_key="k", application_properties={"a": 1})
        )
        (message,) = await receiver.receive_messages(max_wait_time=60)
        number = message.sequence_number
        await receiver.dead_letter_message(message, reason="Bad", error_description="very bad")
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(message)
        assert await receiver.receive_messages(max_wait_time=0.3) == []
        async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
            (dead,) = await dead_letters.receive_messages(5, max_wait_time=60)
            assert (str(dead), dead.message_id, dead.partition_key) == ("x", "m", "k")
            assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Bad", "very bad")
            assert (dead.dead_letter_source, dead.enqueued_sequence_number) == (queue, number)
            assert dead.application_properties == {
                b"a": 1,
                b"DeadLetterReason": b"Bad",
                b"DeadLetterErrorDescription": b"very bad",
            }
            await dead_letters.complete_message(dead)
            assert await dead_letters.receive_messages(max_wait_time=0.3) == []


async def test_the_dead_letter_queue_is_a_queue(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """Its messages are locked, abandoned and expire like others, and stay there after any number of deliveries."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
        await receiver.dead_letter_messages(await receiver.receive_messages(2, max_wait_time=60), "Both")
        async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
            for count in range(12):
                messages = await dead_letters.receive_messages(2, max_wait_time=60)
                assert sorted((str(message), message.delivery_count) for message in messages) == [
                    ("x", count),
                    ("y", count),
                ]
                await dead_letters.abandon_messages(messages)
            stale = await dead_letters.receive_messages(2, max_wait_time=60)
            await later(queue, 61)
            with pytest.raises(MessageLockLostError):
                await dead_letters.complete_messages(stale)
            await dead_letters.complete_messages(await dead_letters.receive_messages(2, max_wait_time=60))


async def test_a_message_sent_again_out_of_the_dead_letter_queue_is_as_new(
    client: ServiceBusClient, queue: str
) -> None:
    """The new message has the body and the properties, and nothing of the dead-lettering."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x", application_properties={"a": "b"}))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await receiver.dead_letter_message(message, "Bad")
        async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
            (dead,) = await dead_letters.receive_messages(max_wait_time=60)
            await sender.send_messages(dead)
            await dead_letters.complete_message(dead)
        (again,) = await receiver.receive_messages(max_wait_time=60)
        assert (again.dead_letter_reason, again.dead_letter_source) == (None, None)
        assert again.application_properties == {b"a": b"b"}
        assert again.enqueued_sequence_number == again.sequence_number


@pytest.mark.parametrize("how", ["abandoned", "expired"])
async def test_a_message_delivered_too_often_is_dead_lettered(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    later: Advance,
    how: str,
) -> None:
    """After max_delivery_count failed deliveries it is in the dead-letter queue, with the service's reason."""
    queue = await make_queue(max_delivery_count=3)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        for count in range(3):
            (message,) = await receiver.receive_messages(max_wait_time=60)
            assert message.delivery_count == count
            if how == "abandoned":
                await receiver.abandon_message(message)
            else:
                await later(queue, 61)
        assert await receiver.receive_messages(max_wait_time=2) == []
        async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
            (dead,) = await dead_letters.receive_messages(max_wait_time=60)
            assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
            assert dead.dead_letter_error_description is not None
            assert "3" in dead.dead_letter_error_description
        counts = await administration.get_queue_runtime_properties(queue)
        assert (counts.active_message_count, counts.dead_letter_message_count) == (0, 1)


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (("x" * 4097, None), "reason has 4,097 characters.*4,096"),
        (("why", "x" * 2_500_000), "error_description has 2,500,000 characters.*4,096"),
        (("\ud800", None), "reason holds half of a surrogate pair"),
    ],
    ids=["reason", "description", "surrogate"],
)
@pytest.mark.rules
async def test_reasons_that_cannot_be_stored_are_refused(
    client: ServiceBusClient, queue: str, in_transaction: bool, reasons: tuple[str, str | None], said: str
) -> None:
    """They are refused before anything begins. The longest reasons that Service Bus takes are stored."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=20)
        async with client.transaction() as transaction:
            given = transaction if in_transaction else None
            with pytest.raises(ValueError, match=said):
                await receiver.dead_letter_message(message, *reasons, transaction=given)
        await receiver.dead_letter_message(message, "r" * 4096, "ä" * 4096)
    async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
        (dead,) = await receive_all(dead_letters, 1)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("r" * 4096, "ä" * 4096)
