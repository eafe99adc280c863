"""Topics of several partitions, and plain ones: the partitions of messages, which receivers need not know."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage, ServiceBusSubQueue
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageAlreadySettled,
    MessageLockLostError,
    ServiceBusError,
)
from kafkabus.management import SqlRuleAction, SqlRuleFilter
from kafkabus_mapping.keys import partition_of
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.aio.receiving import take

PARTITIONS = 16
A_MOMENT = 0.5
"""How long, in seconds, tests wait for a message that should not come."""
PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


class OnPurpose(Exception):
    """An exception that leaves a block."""


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
async def kind(make_topic: MakeTopic, request: pytest.FixtureRequest) -> str:
    """Return a new topic with the subscriptions ``one`` and ``two``."""
    return await make_topic("one", "two", partitioned=request.param)


def keyed(*bodies: str, key: str = "k") -> list[ServiceBusMessage]:
    """Return messages with one key."""
    return [ServiceBusMessage(body, partition_key=key) for body in bodies]


def place(message: ServiceBusReceivedMessage) -> int:
    """Return the partition of a message."""
    return (message.sequence_number or 0) >> 48


def by_key(messages: Iterable[ServiceBusReceivedMessage]) -> dict[str | None, list[str]]:
    """Return the bodies for each key, in the order in which they came."""
    found: dict[str | None, list[str]] = defaultdict(list)
    for message in messages:
        found[message.partition_key].append(str(message))
    return found


async def send(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages one after the other."""
    async with client.get_topic_sender(topic) as sender:
        for message in messages:
            await sender.send_messages(message)


async def all_from(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages, and see that no more come."""
    async with receiver:
        messages = await take(receiver, count)
        await receiver.complete_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
    return messages


async def left_in(client: ServiceBusClient, topic: str, subscription: str, count: int) -> list[str]:
    """Return the bodies of the messages of a subscription, which has so many and no others."""
    return [str(message) for message in await all_from(client.get_subscription_receiver(topic, subscription), count)]


# Partitions.


async def test_a_topic_has_sixteen_partitions_or_one(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Both kinds exist in one namespace. A subscription's counts are sums over its own partitions."""
    partitioned, plain = await make_topic("one", "two"), await make_topic("one", partitioned=False)
    for topic in (partitioned, plain):
        await send(client, topic, *(ServiceBusMessage(f"{number}") for number in range(2 * PARTITIONS)))
    async with client.get_subscription_receiver(partitioned, "one") as receiver:
        messages = await take(receiver, 6)
        await receiver.complete_messages(messages[:3])
        await receiver.dead_letter_messages(messages[3:5])
        await receiver.abandon_message(messages[5])
        counts = await administration.get_subscription_runtime_properties(partitioned, "one")
        totals = counts.total_message_count, counts.active_message_count, counts.dead_letter_message_count
        assert totals == (29, 27, 2)
        gone, dead = [place(message) for message in messages[:5]], [place(message) for message in messages[3:5]]
        assert [one.partition for one in counts.partitions] == list(range(PARTITIONS))
        assert [one.active_message_count for one in counts.partitions] == [2 - gone.count(n) for n in range(PARTITIONS)]
        assert [one.dead_letter_message_count for one in counts.partitions] == [
            dead.count(n) for n in range(PARTITIONS)
        ]
    untouched = await administration.get_subscription_runtime_properties(partitioned, "two")
    assert [one.active_message_count for one in untouched.partitions] == [2] * PARTITIONS
    single = await administration.get_subscription_runtime_properties(plain, "one")
    assert [one.active_message_count for one in single.partitions] == [single.active_message_count] == [2 * PARTITIONS]
    messages = await all_from(client.get_subscription_receiver(plain, "one"), 2 * PARTITIONS)
    assert [message.sequence_number for message in messages] == list(range(1, 2 * PARTITIONS + 1))


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
async def test_the_choice_is_made_at_creation(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic, partitioned: bool
) -> None:
    """The choice holds for the topic and all its subscriptions. The error names the value given at creation."""
    topic = await make_topic("one", partitioned=partitioned)
    known = await administration.get_topic(topic)
    with pytest.raises(InvalidOperationError, match=f"fixed at creation as {partitioned}"):
        await administration.update_topic(known, enable_partitioning=not partitioned)
    await administration.update_topic(known, enable_partitioning=partitioned, user_metadata="x")
    subscription = await administration.get_subscription(topic, "one")
    with pytest.raises(InvalidOperationError, match=r"no settings \['enable_partitioning'\]"):
        await administration.update_subscription(topic, subscription, enable_partitioning=not partitioned)
    assert (await administration.get_topic(topic)).enable_partitioning is partitioned
    counts = await administration.get_subscription_runtime_properties(topic, "one")
    assert len(counts.partitions) == (PARTITIONS if partitioned else 1)


async def test_the_size_of_a_topic_is_that_of_its_partitions(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Each partition may have 1 to 5 GB, set at creation or later."""
    for gigabytes in range(1, 6):
        size = 1024 * gigabytes
        topic = await make_topic(max_size_in_megabytes=size)
        assert (await administration.get_topic(topic)).max_size_in_megabytes == PARTITIONS * size
        plain = await make_topic(partitioned=False, max_size_in_megabytes=size)
        assert (await administration.get_topic(plain)).max_size_in_megabytes == size
        known = await administration.get_topic(plain)
        await administration.update_topic(known, max_size_in_megabytes=5120)
        assert (await administration.get_topic(plain)).max_size_in_megabytes == 5120
    for wrong in (0, 1000, 6144, 10_240):
        with pytest.raises(InvalidOperationError, match=f"max_size_in_megabytes={wrong}"):
            await make_topic(max_size_in_megabytes=wrong)


# Sending.


async def test_messages_of_one_key_are_in_one_partition_of_a_topic(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """They are in order, in each subscription. A session id is a key, and a list may mix keys."""
    topic = await make_topic("one", "two")
    async with client.get_topic_sender(topic) as sender:
        for number in range(10):
            await sender.send_messages(
                [
                    ServiceBusMessage(f"{number}", partition_key="a"),
                    ServiceBusMessage(f"{number}", partition_key="b"),
                    ServiceBusMessage(f"{number}", session_id="c"),
                    ServiceBusMessage(f"{number}", session_id="d", partition_key="d"),
                ]
            )
    for subscription in ("one", "two"):
        bodies, places = defaultdict(list), defaultdict(set)
        for message in await all_from(client.get_subscription_receiver(topic, subscription), 40):
            key = message.session_id or message.partition_key
            bodies[key].append(str(message))
            places[key].add(place(message))
        assert bodies == {key: [f"{number}" for number in range(10)] for key in "abcd"}
        assert places == {key: {partition_of(key, PARTITIONS)} for key in "abcd"}


async def test_a_key_that_contradicts_the_session_is_refused_by_a_topic(client: ServiceBusClient, kind: str) -> None:
    """The whole list is refused before any message is sent, however the message was made."""
    with pytest.raises(ValueError, match="partition_key"):
        ServiceBusMessage("x", session_id="a", partition_key="b")
    odd = ServiceBusMessage("odd", partition_key="b")
    odd.session_id = "a"
    async with client.get_topic_sender(kind) as sender:
        for wrong in (odd, [ServiceBusMessage("even", session_id="a"), odd]):
            with pytest.raises(InvalidOperationError, match=r"'a'.*'b'|'b'.*'a'"):
                await sender.send_messages(wrong)
        with pytest.raises(ValueError, match="partition_key"):
            await sender.send_messages({"body": b"both", "session_id": "a", "partition_key": "b"})
    assert await left_in(client, kind, "one", 0) == []


@pytest.mark.parametrize("detects", [True, False], ids=["detecting", "not detecting"])
async def test_a_message_id_is_the_key_of_a_topic_that_detects_duplicates(
    client: ServiceBusClient, make_topic: MakeTopic, detects: bool
) -> None:
    """There all copies meet in one partition, and one of them is delivered. In other topics the id is no key."""
    topic = await make_topic("one", "two", requires_duplicate_detection=detects)
    await send(client, topic, *(ServiceBusMessage(name, message_id=name) for name in "abcdefgh" * 2))
    for subscription in ("one", "two"):
        found = await all_from(client.get_subscription_receiver(topic, subscription), 8 if detects else 16)
        assert sorted(map(str, found)) == sorted("abcdefgh" if detects else "abcdefgh" * 2)
        if detects:
            assert all(place(message) == partition_of(str(message), PARTITIONS) for message in found)
        else:
            assert {place(message) for message in found} == set(range(PARTITIONS))


async def test_keyless_messages_go_round_the_partitions_of_a_topic(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """Sixteen sends reach all sixteen; a list without keys stays together."""
    topic = await make_topic("one", "two")
    await send(client, topic, *(ServiceBusMessage(f"{number}") for number in range(PARTITIONS)))
    for subscription in ("one", "two"):
        found = await all_from(client.get_subscription_receiver(topic, subscription), PARTITIONS)
        assert sorted(place(message) for message in found) == list(range(PARTITIONS))
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(10)])
    found = await all_from(client.get_subscription_receiver(topic, "one"), 10)
    assert len({place(message) for message in found}) == 1
    assert [str(message) for message in found] == [f"{number}" for number in range(10)]


async def test_a_short_timeout_draws_a_warning_on_a_partitioned_topic(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """15 s leave no time for another partition. The message is sent anyway."""
    topic = await make_topic("one")
    async with client.get_topic_sender(topic) as sender:
        with pytest.warns(UserWarning, match="15 s leaves no time for another partition"):
            await sender.send_messages(ServiceBusMessage("x"), timeout=15)
        await sender.send_messages(ServiceBusMessage("y"), timeout=16)
    assert sorted(await left_in(client, topic, "one", 2)) == ["x", "y"]


# Receiving and peeking: the same whether the topic is partitioned or plain.


async def test_whoever_receives_from_a_subscription_needs_to_know_of_no_partition(
    client: ServiceBusClient, kind: str, later: Advance
) -> None:
    """Messages of all partitions are received, completed, abandoned and renewed. They come again after their locks."""
    bodies = [f"{number}" for number in range(2 * PARTITIONS)]
    await send(client, kind, *map(ServiceBusMessage, bodies))
    async with client.get_subscription_receiver(kind, "one") as receiver:
        messages = await take(receiver, len(bodies))
        assert sorted(map(str, messages)) == sorted(bodies)
        assert {message.delivery_count for message in messages} == {0}
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        done, abandoned, renewed, lost = messages[::4], messages[1::4], messages[2::4], messages[3::4]
        await receiver.complete_messages(done)
        await receiver.abandon_messages(abandoned)
        again = await take(receiver, len(abandoned))
        assert sorted(map(str, again)) == sorted(map(str, abandoned))
        assert {message.delivery_count for message in again} == {1}
        await receiver.complete_messages(again)
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(again[0])
        await later(f"{kind}/Subscriptions/one", 45)
        for message in renewed:
            before = message.locked_until_utc
            assert before is not None
            assert await receiver.renew_message_lock(message) > before + timedelta(seconds=30)
        await later(f"{kind}/Subscriptions/one", 30)
        again = await take(receiver, len(lost))
        assert sorted(map(str, again)) == sorted(map(str, lost))
        assert {message.delivery_count for message in again} == {1}
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(lost[0])
        await receiver.complete_messages([*again, *renewed])
    assert await left_in(client, kind, "one", 0) == []
    assert sorted(await left_in(client, kind, "two", len(bodies))) == sorted(bodies)


async def test_deferred_messages_of_a_subscription_come_together_or_not_at_all(
    client: ServiceBusClient, kind: str
) -> None:
    """They come from any partition, in the order of the request. Another subscription has deferred none of them."""
    await send(client, kind, *(ServiceBusMessage(f"{number}") for number in range(6)))
    async with client.get_subscription_receiver(kind, "one") as receiver:
        messages = await take(receiver, 6)
        await receiver.defer_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        numbers = {str(message): message.sequence_number or 0 for message in messages}
        wanted = [numbers[body] for body in ("4", "0", "2")]
        with pytest.raises(ServiceBusError):
            await receiver.receive_deferred_messages([*wanted, max(numbers.values()) + 1])
        async with client.get_subscription_receiver(kind, "two") as other:
            with pytest.raises(ServiceBusError):
                await other.receive_deferred_messages(wanted)
        again = await receiver.receive_deferred_messages(wanted)
        assert [(str(one), one.state) for one in again] == [
            (b, ServiceBusMessageState.DEFERRED) for b in ("4", "0", "2")
        ]
        await receiver.complete_messages(again)
        rest = await receiver.receive_deferred_messages([numbers[body] for body in ("1", "3", "5")])
        await receiver.dead_letter_messages(rest, reason="late")
    dead = client.get_subscription_receiver(kind, "one", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    found = [(str(message), message.dead_letter_reason) for message in await all_from(dead, 3)]
    assert sorted(found) == [("1", "late"), ("3", "late"), ("5", "late")]
    assert sorted(await left_in(client, kind, "two", 6)) == sorted(numbers)


async def test_dead_letters_of_a_subscription_keep_their_keys(client: ServiceBusClient, kind: str) -> None:
    """In the dead-letter queue they are in the partitions of their keys, in order, with the reason."""
    await send(client, kind, *(message for n in range(3) for key in "abc" for message in keyed(f"{key}{n}", key=key)))
    async with client.get_subscription_receiver(kind, "one") as receiver:
        messages = await take(receiver, 9)
        for message in messages:
            await receiver.dead_letter_message(message, reason="Bad", error_description=str(message))
    partitions = {place(message) for message in messages}
    dead = await all_from(client.get_subscription_receiver(kind, "one", sub_queue="deadletter"), 9)
    assert by_key(dead) == {key: [f"{key}{n}" for n in range(3)] for key in "abc"}
    assert {place(message) for message in dead} == partitions
    for message in dead:
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("Bad", str(message))
        assert message.dead_letter_source == f"{kind}/Subscriptions/one"
        properties: Any = message.application_properties
        assert properties[b"DeadLetterReason"] == b"Bad"
    async with client.get_subscription_receiver(kind, "two", sub_queue="deadletter") as other:
        assert await other.peek_messages(9) == []


async def test_prefetched_messages_of_a_subscription_are_given_back_at_close(
    client: ServiceBusClient, other_client: ServiceBusClient, kind: str
) -> None:
    """They are uncounted. Messages that were handed out stay locked."""
    await send(client, kind, *(ServiceBusMessage(f"{number}") for number in range(10)))
    async with client.get_subscription_receiver(kind, "one", prefetch_count=20) as receiver:
        (first,) = await receiver.receive_messages(1, max_wait_time=PATIENCE)
    async with other_client.get_subscription_receiver(kind, "one") as other:
        messages = await take(other, 9)
        assert await other.receive_messages(1, max_wait_time=A_MOMENT) == []
        assert {str(message) for message in (first, *messages)} == {f"{number}" for number in range(10)}
        assert {message.delivery_count for message in messages} == {0}
        await other.complete_messages([first, *messages])


async def test_peeking_at_a_subscription_shows_each_message_once(client: ServiceBusClient, kind: str) -> None:
    """It shows waiting, locked and deferred messages of all partitions, no settled ones.

    Another subscription shows all.
    """

    async def all_peeked(receiver: ServiceBusReceiver) -> list[str]:
        bodies: list[str] = []
        while messages := await receiver.peek_messages(3):
            bodies += map(str, messages)
        return bodies

    await send(client, kind, *(ServiceBusMessage(f"{number}") for number in range(20)))
    async with client.get_subscription_receiver(kind, "one") as receiver:
        locked, deferred, done = await take(receiver, 3)
        await receiver.defer_message(deferred)
        await receiver.complete_message(done)
        there = {f"{number}" for number in range(20)} - {str(done)}
    async with client.get_subscription_receiver(kind, "one") as receiver:
        bodies = await all_peeked(receiver)
        assert (set(bodies), len(bodies)) == (there, 19)
        await send(client, kind, ServiceBusMessage("late"))
        assert await all_peeked(receiver) == ["late"]
        (again,) = await receiver.peek_messages(1, sequence_number=locked.sequence_number)
        assert (str(again), again.lock_token) == (str(locked), None)
        await receiver.complete_message(locked)
    async with client.get_subscription_receiver(kind, "two") as receiver:
        assert len(await all_peeked(receiver)) == 21


async def test_a_lone_message_of_a_subscription_comes_with_the_first_receive(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """The message may be in any partition."""
    topic = await make_topic("one")
    async with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        for number in range(PARTITIONS):
            await sender.send_messages(ServiceBusMessage(f"{number}"))
            (message,) = await receiver.receive_messages(max_wait_time=PATIENCE)
            assert str(message) == f"{number}"
            await receiver.complete_message(message)


# Transactions from a subscription to a topic.


async def test_what_is_sent_to_a_topic_and_settled_in_a_subscription_happens_at_the_end(
    client: ServiceBusClient, kind: str, make_topic: MakeTopic
) -> None:
    """All of it happens at the end, for every subscription of the destination, and nothing before."""
    there = await make_topic("one", "two")
    await send(client, kind, *keyed("order"))
    async with (
        client.get_topic_sender(there) as sender,
        client.get_subscription_receiver(kind, "one") as receiver,
        client.get_subscription_receiver(there, "one") as early,
    ):
        (order,) = await take(receiver, 1)
        async with client.transaction() as transaction:
            await sender.send_messages(keyed("paid", "shipped"), transaction=transaction)
            await receiver.complete_message(order, transaction=transaction)
            assert await early.receive_messages(1, max_wait_time=A_MOMENT) == []
            assert await early.peek_messages(1) == []
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(order)
    for name in ("one", "two"):
        assert await left_in(client, there, name, 2) == ["paid", "shipped"]
    assert await left_in(client, kind, "one", 0) == []
    assert await left_in(client, kind, "two", 1) == ["order"]


async def test_an_exception_takes_back_what_was_sent_to_a_topic(client: ServiceBusClient, kind: str) -> None:
    """The subscription's message stays locked as it was, and can be settled in another way."""
    await send(client, kind, *keyed("order"))
    async with client.get_topic_sender(kind) as sender, client.get_subscription_receiver(kind, "one") as receiver:
        (order,) = await take(receiver, 1)
        with pytest.raises(OnPurpose):  # noqa: PT012 - the block is what is tested
            async with client.transaction() as transaction:
                await sender.send_messages(keyed("paid"), transaction=transaction)
                await receiver.complete_message(order, transaction=transaction)
                raise OnPurpose
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
        await receiver.abandon_message(order)
    for name in ("one", "two"):
        assert await left_in(client, kind, name, 1) == ["order"]


async def test_all_ways_to_settle_a_subscriptions_messages_in_a_transaction(
    client: ServiceBusClient, kind: str
) -> None:
    """Messages are completed, abandoned, deferred and dead-lettered in this subscription alone."""
    bodies = ["complete", "abandon", "defer", "dead-letter"]
    await send(client, kind, *keyed(*bodies))
    async with client.get_subscription_receiver(kind, "one") as receiver:
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
        await receiver.complete_messages(await receiver.receive_deferred_messages(later.sequence_number))
    (letter,) = await all_from(client.get_subscription_receiver(kind, "one", sub_queue="deadletter"), 1)
    assert (str(letter), letter.dead_letter_reason) == ("dead-letter", "why")
    assert letter.dead_letter_source == f"{kind}/Subscriptions/one"
    assert await left_in(client, kind, "two", 4) == bodies


async def test_what_a_transaction_sends_to_partitioned_topics_has_one_key(
    client: ServiceBusClient, make_topic: MakeTopic, make_queue: MakeQueue
) -> None:
    """The key holds for queues and other topics, too.

    Messages without it or with another key are refused before any send.
    """
    topic, other, queue = await make_topic("one"), await make_topic("one"), await make_queue()
    async with (
        client.get_topic_sender(topic) as sender,
        client.get_topic_sender(other) as another,
        client.get_queue_sender(queue) as third,
    ):
        async with client.transaction() as transaction:
            with pytest.raises(InvalidOperationError, match="has no key"):
                await sender.send_messages(ServiceBusMessage("any", message_id="m"), transaction=transaction)
            await sender.send_messages(keyed("first"), transaction=transaction)
            for wrong in (sender, another, third):
                with pytest.raises(InvalidOperationError, match="'k'"):
                    await wrong.send_messages(keyed("second", key="l"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'k'"):
                await another.send_messages(ServiceBusMessage("third", session_id="l"), transaction=transaction)
            await another.send_messages(ServiceBusMessage("third", session_id="k"), transaction=transaction)
            await third.send_messages(keyed("fourth"), transaction=transaction)
    assert await left_in(client, topic, "one", 1) == ["first"]
    assert await left_in(client, other, "one", 1) == ["third"]
    assert [str(message) for message in await all_from(client.get_queue_receiver(queue), 1)] == ["fourth"]


async def test_a_message_id_is_the_key_of_a_transaction_where_a_topic_detects_duplicates(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """Two messages without another key therefore contradict each other.

    A duplicate in a transaction counts as one, too.
    """
    topic = await make_topic("one", "two", requires_duplicate_detection=True)
    async with client.get_topic_sender(topic) as sender:
        async with client.transaction() as transaction:
            await sender.send_messages(ServiceBusMessage("one", message_id="a"), transaction=transaction)
            with pytest.raises(InvalidOperationError, match="'a'"):
                await sender.send_messages(ServiceBusMessage("two", message_id="b"), transaction=transaction)
        async with client.transaction() as transaction:
            await sender.send_messages(ServiceBusMessage("again", message_id="a"), transaction=transaction)
    for name in ("one", "two"):
        assert await left_in(client, topic, name, 1) == ["one"]


async def test_a_plain_topic_takes_what_has_no_key_in_a_transaction(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """It also takes several keys."""
    topic = await make_topic("one", "two", partitioned=False)
    async with client.get_topic_sender(topic) as sender, client.transaction() as transaction:
        await sender.send_messages(ServiceBusMessage("none"), transaction=transaction)
        await sender.send_messages([*keyed("k"), *keyed("l", key="l")], transaction=transaction)
    for name in ("one", "two"):
        assert await left_in(client, topic, name, 3) == ["none", "k", "l"]


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
async def test_sessions_of_a_topic_in_one_transaction(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic, partitioned: bool
) -> None:
    """A transaction sends to several sessions of a plain topic, to one of a partitioned one.

    A partition key equals the session.
    """
    topic = await make_topic(partitioned=partitioned)
    await administration.create_subscription(topic, "sessions", requires_session=True)
    several = [ServiceBusMessage("a", session_id="a"), ServiceBusMessage("b", session_id="b")]
    odd = ServiceBusMessage("odd", partition_key="b")
    odd.session_id = "a"
    async with client.get_topic_sender(topic) as sender, client.transaction() as transaction:
        with pytest.raises(InvalidOperationError, match=r"'a'.*'b'|'b'.*'a'"):
            await sender.send_messages(odd, transaction=transaction)
        if partitioned:
            with pytest.raises(InvalidOperationError, match="one session_id or partition_key"):
                await sender.send_messages(several, transaction=transaction)
            await sender.send_messages(several[0], transaction=transaction)
        else:
            await sender.send_messages(several, transaction=transaction)
    for session in "a" if partitioned else "ab":
        async with client.get_subscription_receiver(topic, "sessions", session_id=session) as receiver:
            (message,) = await take(receiver, 1)
            assert str(message) == session
            async with client.transaction() as transaction:
                await receiver.complete_message(message, transaction=transaction)
    assert [str(name) async for name in client.list_subscription_sessions(topic, "sessions")] == []


# Forwarding.


@pytest.mark.parametrize("there", [True, False], ids=["to partitioned", "to plain"])
@pytest.mark.parametrize("here", [True, False], ids=["from partitioned", "from plain"])
async def test_a_subscription_forwards_messages_with_their_keys(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
    here: bool,
    there: bool,
) -> None:
    """Messages of a key go in order, in the key's partition, to a queue and to all subscriptions of another topic."""
    queue, onward = await make_queue(partitioned=there), await make_topic("x", "y", partitioned=there)
    topic = await make_topic("kept", partitioned=here)
    await administration.create_subscription(topic, "to-queue", forward_to=queue)
    await administration.create_subscription(topic, "to-topic", forward_to=onward)
    async with client.get_topic_sender(topic) as sender:
        for number in range(5):
            await sender.send_messages([m for key in "abc" for m in keyed(f"{number}", key=key)])
            await sender.send_messages(ServiceBusMessage(f"{number}", subject="s"))
    for receiver in (
        client.get_queue_receiver(queue),
        client.get_subscription_receiver(onward, "x"),
        client.get_subscription_receiver(onward, "y"),
        client.get_subscription_receiver(topic, "kept"),
    ):
        found = await all_from(receiver, 20)
        bodies = by_key(found)
        assert {key: bodies[key] for key in "abc"} == {key: [f"{number}" for number in range(5)] for key in "abc"}
        assert sorted(bodies[None]) == [f"{number}" for number in range(5)]
        partitions = PARTITIONS if (here if receiver.entity_path.startswith(topic) else there) else 1
        for message in found:
            assert (message.delivery_count, message.dead_letter_reason) == (0, None)
            if message.partition_key is not None:
                assert place(message) == partition_of(message.partition_key, partitions)
            else:
                assert message.subject == "s"
    counts = await administration.get_subscription_runtime_properties(topic, "to-queue")
    assert (counts.total_message_count, counts.transfer_message_count) == (0, 0)


async def test_a_chain_of_queues_and_topics_has_four_hops(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
) -> None:
    """The chain is queue, topic, subscription, queue, and on.

    A message that would take a fifth hop is dead-lettered there.
    """
    beyond = await make_queue(partitioned=False)
    last = await make_queue(forward_to=beyond)
    second = await make_topic("watched")
    await administration.create_subscription(second, "onward", forward_to=last)
    middle = await make_queue(partitioned=False, forward_to=second)
    first = await make_topic("watched", partitioned=False)
    await administration.create_subscription(first, "onward", forward_to=middle)
    queue = await make_queue(forward_to=first)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(keyed("0", "1", "2"))
    for watched in (first, second):
        assert await left_in(client, watched, "watched", 3) == ["0", "1", "2"]
    stuck = await all_from(client.get_queue_receiver(last, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER), 3)
    assert [(str(message), message.dead_letter_reason) for message in stuck] == [
        (body, "MaxTransferHopCountExceeded") for body in "012"
    ]
    assert {(message.partition_key, place(message)) for message in stuck} == {("k", partition_of("k", PARTITIONS))}
    async with client.get_topic_sender(first) as sender:
        await sender.send_messages(keyed("near"))
    assert [str(message) for message in await all_from(client.get_queue_receiver(beyond), 1)] == ["near"]


async def test_a_subscription_forwards_what_its_rules_make(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
) -> None:
    """They forward only messages that their rules want, as their actions change them."""
    topic, queue = await make_topic("kept"), await make_queue()
    await administration.create_subscription(topic, "dear")
    await administration.create_rule(
        topic, "dear", "gross", filter=SqlRuleFilter("price > 5"), action=SqlRuleAction("SET price = price * 2")
    )
    await administration.delete_rule(topic, "dear", "$Default")
    await administration.update_subscription(
        topic, await administration.get_subscription(topic, "dear"), forward_to=queue
    )
    prices = (3, 7, 5, 9)
    await send(client, topic, *(ServiceBusMessage("x", application_properties={"price": price}) for price in prices))
    found: list[Any] = [
        message.application_properties for message in await all_from(client.get_queue_receiver(queue), 2)
    ]
    assert sorted(one[b"price"] for one in found) == [14, 18]
    assert {one[b"RuleName"] for one in found} == {b"gross"}
    kept: list[Any] = [
        m.application_properties for m in await all_from(client.get_subscription_receiver(topic, "kept"), 4)
    ]
    assert sorted(one[b"price"] for one in kept) == [3, 5, 7, 9]


async def test_what_a_subscription_cannot_forward_is_kept_apart(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
) -> None:
    """The messages are counted, and received from their own queue; a receiver's error says where they are."""
    closed = await make_queue(status="SendDisabled")
    topic = await make_topic("kept")
    await administration.create_subscription(topic, "moved", forward_to=closed)
    with pytest.raises(InvalidOperationError, match=closed):
        await client.get_subscription_receiver(topic, "moved").receive_messages(max_wait_time=1)
    await send(client, topic, *keyed("x"))
    deadline = time.monotonic() + PATIENCE
    while True:
        # A message on its way counts in both.
        counts = await administration.get_subscription_runtime_properties(topic, "moved")
        counted = counts.transfer_dead_letter_message_count, counts.total_message_count
        if counted == (1, 1) or time.monotonic() > deadline:
            break
    assert counted == (1, 1)
    apart = [one.partition for one in counts.partitions if one.transfer_dead_letter_message_count == 1]
    assert apart == [partition_of("k", PARTITIONS)]
    (message,) = await all_from(client.get_subscription_receiver(topic, "moved", sub_queue="transferdeadletter"), 1)
    assert (str(message), message.dead_letter_reason) == ("x", "MessagingEntityDisabled")
    assert await left_in(client, topic, "kept", 1) == ["x"]


async def test_dead_letters_of_a_subscription_move_on(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
) -> None:
    """They go to a topic, with their key and the reason for being dead. Live messages stay."""
    morgue, topic = await make_topic("one", "two"), await make_topic("plain", partitioned=False)
    await administration.create_subscription(
        topic, "sessions", requires_session=True, forward_dead_lettered_messages_to=morgue
    )
    await send(client, topic, *(ServiceBusMessage(body, session_id="s") for body in ("dead", "alive")))
    async with client.get_subscription_receiver(topic, "sessions", session_id="s") as receiver:
        dead, alive = await take(receiver, 2)
        await receiver.dead_letter_message(dead, "Bad", "It is bad.")
        for name in ("one", "two"):
            (message,) = await all_from(client.get_subscription_receiver(morgue, name), 1)
            assert (str(message), message.session_id, place(message)) == ("dead", "s", partition_of("s", PARTITIONS))
            assert (message.dead_letter_reason, message.dead_letter_error_description) == ("Bad", "It is bad.")
            assert message.dead_letter_source == f"{topic}/Subscriptions/sessions"
            assert message.enqueued_sequence_number == dead.sequence_number
        await receiver.complete_message(alive)
    with pytest.raises(InvalidOperationError, match="forwards"):
        await client.get_subscription_receiver(topic, "sessions", sub_queue="deadletter").receive_messages()
    assert await left_in(client, topic, "plain", 2) == ["dead", "alive"]
