"""Messages that wait, received or settled by their sequence numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.exceptions import MessageLockLostError, MessageNotFoundError
from kafkabus.management import CorrelationRuleFilter, RetryPolicy
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
HOUR = timedelta(hours=1)
RECEIVE_AND_DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


async def send(client: ServiceBusClient, queue: str, *bodies: str, **parts: Any) -> None:
    """Send messages of one partition, or one session."""
    given = parts or {"partition_key": "k"}
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body, **given) for body in bodies])


async def numbers_of(receiver: ServiceBusReceiver) -> dict[str, int]:
    """Return the sequence numbers of all messages, by their bodies."""
    return {str(one): one.sequence_number or 0 for one in await receiver.peek_messages(50, sequence_number=1)}


async def rest_of(receiver: ServiceBusReceiver, count: int) -> list[tuple[str, int | None]]:
    """Receive and complete so many messages; return their bodies and delivery counts, in their order."""
    came: list[ServiceBusReceivedMessage] = []
    while len(came) < count:
        came += await receiver.receive_messages(count - len(came), max_wait_time=PATIENCE)
    await receiver.complete_messages(came)
    assert await receiver.receive_messages(1, max_wait_time=0.5) == []
    return [(str(one), one.delivery_count) for one in came]


@pytest.mark.parametrize("granted_before", [False, True])
async def test_a_message_is_received_by_its_number(client: ServiceBusClient, queue: str, granted_before: bool) -> None:
    """One that no receiver has come to yet, or that came back; the others are as they were."""
    await send(client, queue, *"012345")
    async with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        numbers = await numbers_of(receiver)
        if granted_before:
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < 6:
                messages += await receiver.receive_messages(6, max_wait_time=PATIENCE)
            await receiver.abandon_messages(messages)
        count = int(granted_before)
        three, one = await receiver.receive_messages_by_sequence_number([numbers["3"], numbers["1"]])
        assert [(str(message), message.delivery_count) for message in (three, one)] == [("3", count), ("1", count)]
        assert three.lock_token is not None
        await receiver.renew_message_lock(three)
        await receiver.complete_message(three)
        await receiver.abandon_message(one)
        assert sorted(await rest_of(other, 5)) == sorted([("1", count + 1), *((body, count) for body in "0245")])


async def test_a_lock_ends_and_the_message_comes(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """It comes in its place, one delivery counted."""
    await send(client, queue, *"012")
    async with client.get_queue_receiver(queue) as receiver:
        numbers = await numbers_of(receiver)
        (message,) = await receiver.receive_messages_by_sequence_number(numbers["1"])
        await later(queue, 120)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        assert sorted(await rest_of(receiver, 3)) == [("0", 0), ("1", 1), ("2", 0)]


async def test_all_or_none(client: ServiceBusClient, other_client: ServiceBusClient, queue: str) -> None:
    """A number that is not there, settled, locked, deferred, or named of a partition that is none; nothing is received then."""
    await send(client, queue, *"012345")
    async with client.get_queue_receiver(queue) as receiver, other_client.get_queue_receiver(queue) as other:
        numbers = await numbers_of(receiver)
        (settled,) = await receiver.receive_messages_by_sequence_number(numbers["0"])
        await receiver.complete_message(settled)
        await other.receive_messages_by_sequence_number(numbers["1"])
        (deferred,) = await receiver.receive_messages_by_sequence_number(numbers["2"])
        await receiver.defer_message(deferred)
        bad = [numbers["0"], numbers["1"], numbers["2"], numbers["5"] + 1, numbers["5"] + 1000, 40 << 48 | 1, -5]
        for number in bad:
            with pytest.raises(MessageNotFoundError, match=r"wait|sequence number"):
                await receiver.receive_messages_by_sequence_number([numbers["3"], number])
        with pytest.raises(ValueError, match="at most 1,000"):
            await receiver.receive_messages_by_sequence_number(list(range(1001)))
        assert await receiver.receive_messages_by_sequence_number([]) == []
        # Neither locked nor counted, and the deferred one is deferred.
        assert await rest_of(receiver, 3) == [("3", 0), ("4", 0), ("5", 0)]
        (again,) = await receiver.receive_deferred_messages(numbers["2"])
        await receiver.complete_message(again)


async def test_a_postponed_message_is_received_before_its_time(client: ServiceBusClient, queue: str) -> None:
    """Its delay is over with that."""
    await send(client, queue, "0")
    async with client.get_queue_receiver(queue) as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=PATIENCE)
        await receiver.abandon_message(message, delay=HOUR)
        (again,) = await receiver.receive_messages_by_sequence_number(message.sequence_number or 0)
        assert again.delivery_count == 1
        await receiver.abandon_message(again)
        assert await rest_of(receiver, 1) == [("0", 2)]


async def test_received_and_deleted(client: ServiceBusClient, queue: str) -> None:
    """In that mode, the message is settled with that."""
    await send(client, queue, *"012")
    async with (
        client.get_queue_receiver(queue, receive_mode=RECEIVE_AND_DELETE) as receiver,
        client.get_queue_receiver(queue) as other,
    ):
        numbers = await numbers_of(other)
        (message,) = await receiver.receive_messages_by_sequence_number(numbers["1"])
        assert str(message) == "1"
        with pytest.raises(ValueError, match="PEEK_LOCK"):
            await receiver.dead_letter_messages_by_sequence_number(numbers["0"])
        with pytest.raises(ValueError, match="PEEK_LOCK"):
            await receiver.postpone_messages_by_sequence_number(numbers["0"], 5)
        assert await rest_of(other, 2) == [("0", 0), ("2", 0)]


async def test_messages_are_settled_without_being_received(
    client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """Deleted, dead-lettered, postponed, and made available again; no delivery is counted."""
    await send(client, queue, *"01234")
    async with (
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead,
    ):
        numbers = await numbers_of(receiver)
        await receiver.delete_messages_by_sequence_number([numbers["0"], numbers["4"]])
        await receiver.dead_letter_messages_by_sequence_number(numbers["1"], "why", "in more words")
        await receiver.postpone_messages_by_sequence_number(numbers["2"], HOUR)
        (letter,) = await dead.receive_messages(1, max_wait_time=PATIENCE)
        assert (str(letter), letter.dead_letter_reason, letter.delivery_count) == ("1", "why", 0)
        assert await rest_of(receiver, 1) == [("3", 0)]
        (seen,) = await receiver.peek_messages(5, sequence_number=1)
        assert seen.postponed_until_utc is not None
        await later(queue, 1800)
        await receiver.postpone_messages_by_sequence_number(numbers["2"], HOUR)
        await later(queue, 1900)
        assert await receiver.receive_messages(1, max_wait_time=0.5) == []
        await receiver.postpone_messages_by_sequence_number(numbers["2"], 0)
        assert await rest_of(receiver, 1) == [("2", 0)]
        for delay in (-1, 604_801):
            with pytest.raises(ValueError, match="7 days"):
                await receiver.postpone_messages_by_sequence_number(numbers["2"], delay)


async def test_in_a_session(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Of the session that the receiver holds; a message that goes back has its place in it."""
    queue = await make_queue(requires_session=True)
    await send(client, queue, *"012", session_id="a")
    await send(client, queue, "x", session_id="b")
    async with client.get_queue_receiver(queue, session_id="b") as receiver:
        foreign = (await numbers_of(receiver))["x"]
    async with client.get_queue_receiver(queue, session_id="a") as receiver:
        numbers = await numbers_of(receiver)
        (message,) = await receiver.receive_messages_by_sequence_number(numbers["1"])
        with pytest.raises(MessageNotFoundError, match="another session"):
            await receiver.receive_messages_by_sequence_number(foreign)
        await receiver.abandon_message(message)
        (second,) = await receiver.receive_messages_by_sequence_number(numbers["2"])
        await receiver.complete_message(second)
        assert await rest_of(receiver, 2) == [("0", 0), ("1", 1)]
    async with client.get_queue_receiver(queue, session_id="b") as receiver:
        assert await rest_of(receiver, 1) == [("x", 0)]


async def test_of_a_subscription(client: ServiceBusClient, administration: Any, make_topic: MakeTopic) -> None:
    """Only its own messages; other subscriptions are as they were."""
    topic = await make_topic("all", "red")
    await administration.create_rule(topic, "red", "red", filter=CorrelationRuleFilter(label="red"))
    await administration.delete_rule(topic, "red", "$Default")
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(
            [ServiceBusMessage(body, subject="red" if body in "13" else None, partition_key="k") for body in "0123"]
        )
    async with (
        client.get_subscription_receiver(topic, "all") as everything,
        client.get_subscription_receiver(topic, "red") as red,
    ):
        numbers = await numbers_of(everything)
        with pytest.raises(MessageNotFoundError):
            await red.receive_messages_by_sequence_number(numbers["2"])
        (message,) = await red.receive_messages_by_sequence_number(numbers["3"])
        await red.complete_message(message)
        assert await rest_of(red, 1) == [("1", 0)]
        assert await rest_of(everything, 4) == [(body, 0) for body in "0123"]


async def test_a_duplicate_is_not_received(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It is found before; the first message with its id is received."""
    queue = await make_queue(requires_duplicate_detection=True)
    await send(client, queue, "0", message_id="m")
    await send(client, queue, "again", message_id="m")
    await send(client, queue, "1", message_id="n")
    async with client.get_queue_receiver(queue) as receiver:
        numbers = await numbers_of(receiver)
        assert numbers.keys() == {"0", "1"}
        (message,) = await receiver.receive_messages_by_sequence_number(numbers["1"])
        await receiver.complete_message(message)
        assert await rest_of(receiver, 1) == [("0", 0)]


async def test_a_retry_policy_leaves_them_alone(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Messages that a call gives back because another number was wrong are available at once."""
    queue = await make_queue(retry_policy=RetryPolicy.fixed(HOUR))
    await send(client, queue, *"01")
    async with client.get_queue_receiver(queue) as receiver:
        numbers = await numbers_of(receiver)
        (one,) = await receiver.receive_messages_by_sequence_number(numbers["1"])
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_messages_by_sequence_number([numbers["0"], numbers["1"]])
        await receiver.complete_message(one)
        assert await rest_of(receiver, 1) == [("0", 0)]
