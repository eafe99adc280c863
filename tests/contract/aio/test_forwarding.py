"""Forwarding: upkeep moves messages on, with their keys, and dead-letters those that it cannot move."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from kafkabus._async.compat import sleep
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import InvalidOperationError, MessagingEntityNotFoundError
from kafkabus_mapping.keys import partition_of
from tests.contract.aio.conftest import Advance, MakeQueue
from tests.contract.aio.receiving import receive_all

PATIENCE = 60.0


async def all_of(
    client: ServiceBusClient, queue: str, count: int, sub_queue: ServiceBusSubQueue | None = None
) -> list[ServiceBusReceivedMessage]:
    """Receive and complete messages until ``count`` came, and see that no more come."""
    async with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        return await receive_all(receiver, count)


async def refused(client: ServiceBusClient, queue: str) -> tuple[str | None, str | None]:
    """Return the body of the one message that could not be forwarded, and the reason."""
    (message,) = await all_of(client, queue, 1, ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert message.dead_letter_error_description
    return str(message), message.dead_letter_reason


@pytest.mark.parametrize("there", [True, False], ids=["to partitioned", "to plain"])
@pytest.mark.parametrize("here", [True, False], ids=["from partitioned", "from plain"])
async def test_messages_move_on_with_their_keys(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    here: bool,
    there: bool,
) -> None:
    """Each message comes once, those of a key in order and in the key's partition, with all that its sender gave it."""
    destination = await make_queue(partitioned=there)
    queue = await make_queue(partitioned=here, forward_to=destination)
    async with client.get_queue_sender(queue) as sender:
        for number in range(5):
            await sender.send_messages(
                [ServiceBusMessage(f"{key} {number}", partition_key=key, subject="s") for key in ("a", "b", "c")]
            )
            await sender.send_messages(ServiceBusMessage(f"- {number}", application_properties={"n": number}))
    found = await all_of(client, destination, 20)
    by_key: dict[str | None, list[str]] = defaultdict(list)
    for message in found:
        by_key[message.partition_key].append(str(message))
        assert message.sequence_number is not None
        assert message.enqueued_sequence_number is not None
        assert message.delivery_count == 0
        assert message.dead_letter_reason is None
        if message.partition_key is not None:
            assert message.subject == "s"
            assert message.sequence_number >> 48 == partition_of(message.partition_key, 16 if there else 1)
        else:
            assert message.application_properties == {b"n": int(str(message)[2:])}
    assert {key: by_key[key] for key in "abc"} == {key: [f"{key} {number}" for number in range(5)] for key in "abc"}
    assert sorted(by_key[None]) == [f"- {number}" for number in range(5)]
    counts = await administration.get_queue_runtime_properties(queue)
    assert counts.total_message_count == 0


async def test_nobody_receives_from_a_queue_that_forwards(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """The error says where its messages are."""
    destination = await make_queue()
    queue = await make_queue(forward_to=destination)
    async with client.get_queue_receiver(queue) as receiver:
        with pytest.raises(InvalidOperationError, match=destination):
            await receiver.receive_messages(max_wait_time=1)
        assert await receiver.peek_messages() == []


async def test_a_chain_has_four_hops(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A message that would take a fifth hop is dead-lettered where it is, with the first queue's number."""
    names = [await make_queue(partitioned=False)]
    for number in range(5):
        names.append(await make_queue(partitioned=number % 2 == 0, forward_to=names[-1]))
    names.reverse()
    async with client.get_queue_sender(names[0]) as far, client.get_queue_sender(names[1]) as near:
        await near.send_messages(ServiceBusMessage("four hops"))
        (message,) = await all_of(client, names[5], 1)
        assert (str(message), message.enqueued_sequence_number is not None) == ("four hops", True)
        await far.send_messages(ServiceBusMessage("five hops"))
        assert await refused(client, names[4]) == ("five hops", "MaxTransferHopCountExceeded")
    assert await all_of(client, names[5], 0) == []


async def test_a_destination_that_is_gone(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Its messages are counted and received apart. The queue goes on when the destination exists again."""
    await administration.create_queue("for-a-while")
    queue = await make_queue(forward_to="for-a-while", partitioned=False)
    await administration.delete_queue("for-a-while")
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("nowhere to go", partition_key="k"))
        deadline = time.monotonic() + PATIENCE
        while True:
            counts = await administration.get_queue_runtime_properties(queue)
            there = counts.transfer_dead_letter_message_count, counts.total_message_count
            if there == (1, 1) or time.monotonic() > deadline:
                break
            # A message on its way counts in both queues.
            await sleep(0.05)
        assert there == (1, 1)
        assert counts.partitions[0].transfer_dead_letter_message_count == 1
        assert await refused(client, queue) == ("nowhere to go", "MessagingEntityNotFound")
        await administration.create_queue("for-a-while")
        await sender.send_messages(ServiceBusMessage("somewhere to go"))
        found = await all_of(client, "for-a-while", 1)
        found += await all_of(client, queue, 1 - len(found), ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
        assert [str(message) for message in found] == ["somewhere to go"]
    await administration.delete_queue("for-a-while")


async def test_a_destination_that_refuses(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """The destination may refuse all messages, or only this one."""
    destination = await make_queue(requires_session=True)
    queue = await make_queue(forward_to=destination)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x", session_id="s"))
        await sender.send_messages(ServiceBusMessage("y", partition_key="s"))
    async with client.get_queue_receiver(destination, session_id="s", max_wait_time=PATIENCE) as receiver:
        (message,) = await receiver.receive_messages(2)
        assert (str(message), message.session_id) == ("x", "s")
    assert await refused(client, queue) == ("y", "Session ID is null")
    closed = await make_queue(status="SendDisabled")
    queue = await make_queue(forward_to=closed)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("z"))
    assert await refused(client, queue) == ("z", "MessagingEntityDisabled")
    counts = await administration.get_queue_runtime_properties(closed)
    assert counts.total_message_count == 0


async def test_a_queue_with_sessions_moves_them_on(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """In the order of each session. Once it forwards no more, its own receivers get what comes."""
    destination = await make_queue(requires_session=True)
    queue = await make_queue(requires_session=True, forward_to=destination)
    async with client.get_queue_sender(queue) as sender:
        with pytest.raises(InvalidOperationError, match="session_id"):
            await sender.send_messages(ServiceBusMessage("x"))
        for number in range(10):
            await sender.send_messages(
                [ServiceBusMessage(f"{name}{number}", session_id=name) for name in ("a", "b", "c")]
            )
        for name in ("a", "b", "c"):
            async with client.get_queue_receiver(destination, session_id=name, max_wait_time=PATIENCE) as receiver:
                assert [str(one) for one in await receive_all(receiver, 10)] == [f"{name}{n}" for n in range(10)]
        with pytest.raises(InvalidOperationError, match="forwards its messages"):
            async with client.get_queue_receiver(queue, session_id="a") as receiver:
                await receiver.receive_messages(1, max_wait_time=1)
        await administration.update_queue(await administration.get_queue(queue), max_delivery_count=3)
        await administration.update_queue(await administration.get_queue(queue), forward_to=None)
        await sender.send_messages([ServiceBusMessage(f"a{number}", session_id="a") for number in range(10, 13)])
    found: list[str] = []
    for place in (destination, queue):
        async with client.get_queue_receiver(place, session_id="a") as receiver:
            # Upkeep may hear of the change a moment later.
            while len(found) < 3 and (came := await receiver.receive_messages(3, max_wait_time=2)):
                await receiver.complete_messages(came)
                found += map(str, came)
    assert found == ["a10", "a11", "a12"]


async def test_dead_letters_move_on(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """They keep the reason for being dead. Live messages stay, even in sessions."""
    morgue = await make_queue()
    queue = await make_queue(requires_session=True, forward_dead_lettered_messages_to=morgue)
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, session_id="s", max_wait_time=PATIENCE) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(body, session_id="s") for body in ("dead", "alive")])
        dead, alive = await receiver.receive_messages(2)
        await receiver.dead_letter_message(dead, "Bad", "It is bad.")
        (message,) = await all_of(client, morgue, 1)
        assert (str(message), message.session_id) == ("dead", "s")
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("Bad", "It is bad.")
        assert message.dead_letter_source == queue
        assert message.enqueued_sequence_number == dead.sequence_number
        await receiver.complete_message(alive)
    with pytest.raises(InvalidOperationError, match="forwards"):
        await client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER).receive_messages()


async def test_to_a_queue_that_detects_duplicates(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Ids are keys there, and the first of two messages with one id comes."""
    destination = await make_queue(requires_duplicate_detection=True)
    queue = await make_queue(forward_to=destination, partitioned=False)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(f"{one} {two}", message_id=one) for two in "12" for one in "abc"])
    found = await all_of(client, destination, 3)
    assert sorted(map(str, found)) == ["a 1", "b 1", "c 1"]
    assert {(message.sequence_number or 0) >> 48 for message in found} == {partition_of(one, 16) for one in "abc"}


async def test_a_message_moves_on_at_its_time(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """A scheduled message waits in the queue to which it was sent. Its time to live goes along."""
    destination = await make_queue()
    queue = await make_queue(forward_to=destination)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    async with client.get_queue_sender(queue) as sender:
        await sender.schedule_messages(ServiceBusMessage("later"), due)
        await sender.send_messages(ServiceBusMessage("now", time_to_live=timedelta(minutes=5)))
    (message,) = await all_of(client, destination, 1)
    assert (str(message), message.time_to_live) == ("now", timedelta(minutes=5))
    await later(queue, 3601)
    assert [str(message) for message in await all_of(client, destination, 1)] == ["later"]


async def test_messages_that_go_in_a_circle_end_after_four_hops(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """A queue may forward to itself or to one that leads back, and a subscription to its topic.

    A warning reports the circle.
    """
    one, two = await make_queue(partitioned=False), await make_queue(partitioned=False)
    with pytest.warns(UserWarning, match=f"forward_to='{one}': its messages come back to '{one}'"):
        await administration.update_queue(await administration.get_queue(one), forward_to=one)
    await client.get_queue_sender(one).send_messages(ServiceBusMessage("round"))
    assert await refused(client, one) == ("round", "MaxTransferHopCountExceeded")
    await administration.update_queue(await administration.get_queue(one), forward_to=two)
    with pytest.warns(UserWarning, match=f"forward_to='{one}': its messages come back to '{two}'"):
        await administration.update_queue(await administration.get_queue(two), forward_to=one)
    topic = f"{one}-topic"
    await administration.create_topic(topic)
    with pytest.warns(UserWarning, match=f"forward_to='{topic}': its messages come back to '{topic}'"):
        await administration.create_subscription(topic, "s", forward_to=topic)
    await administration.update_queue(await administration.get_queue(two), forward_to=topic)
    with pytest.warns(UserWarning, match=f"forward_to='{one}': its messages come back to '{topic}'"):
        await administration.create_subscription(topic, "t", forward_to=one)
    await administration.delete_topic(topic)


async def test_where_a_queue_forwards_to_is_a_setting(
    administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """The setting is given as an address or a name, reported as an address, and names another existing queue."""
    destination, queue = await make_queue(), await make_queue()
    known = await administration.get_queue(queue)
    assert (known.forward_to, known.forward_dead_lettered_messages_to) == (None, None)
    await administration.update_queue(known, forward_to=destination, forward_dead_lettered_messages_to=destination)
    known = await administration.get_queue(queue)
    await administration.update_queue(known)
    assert await administration.get_queue(queue) == replace(known, name=queue)
    address = known.forward_to
    assert address is not None
    assert address.startswith("sb://")
    assert address.endswith(f"/{destination}")
    assert known.forward_dead_lettered_messages_to == address
    known = await administration.get_queue(queue)
    await administration.update_queue(known, max_delivery_count=3)
    await administration.update_queue(await administration.get_queue(queue), forward_dead_lettered_messages_to=None)
    known = await administration.get_queue(queue)
    assert (known.forward_to, known.forward_dead_lettered_messages_to) == (address, None)
    for wrong, why in (
        ("sb://elsewhere.example/q", "within their namespace"),
        ("a//b", "entity name"),
    ):
        with pytest.raises(InvalidOperationError, match=why):
            await administration.update_queue(known, forward_to=wrong)
    for setting in ("forward_to", "forward_dead_lettered_messages_to"):
        with pytest.raises(MessagingEntityNotFoundError, match=f"{setting}='nobody'"):
            await make_queue(**{setting: "nobody"})
    kept = await make_queue(requires_session=True)
    with pytest.raises(InvalidOperationError, match="a queue with sessions forwards only if it was created so"):
        await administration.update_queue(await administration.get_queue(kept), forward_to=destination)
