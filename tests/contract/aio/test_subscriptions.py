"""Receivers of subscriptions work as receivers of queues do: contents, locks, sessions, and messages of each."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from kafkabus._async.compat import sleep
from kafkabus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from kafkabus.management import SqlRuleAction, SqlRuleFilter
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.aio.receiving import take

A_MOMENT = 0.5
"""How long, in seconds, tests wait for a message that should not come."""
PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
NOWHERE = (
    "Endpoint=sb://tests.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b;"
    "KafkaBootstrapServers=localhost:1;Redis=redis://localhost:1/0"
)


@pytest.fixture
async def topic(make_topic: MakeTopic) -> str:
    """A new partitioned topic with the subscriptions ``one`` and ``two``."""
    return await make_topic("one", "two")


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
async def sessions(
    make_topic: MakeTopic, administration: ServiceBusAdministrationClient, request: pytest.FixtureRequest
) -> str:
    """A new topic with the subscriptions ``one`` and ``two``, which have sessions, and ``plain``, which has none."""
    name = await make_topic("plain", partitioned=request.param)
    for subscription in ("one", "two"):
        await administration.create_subscription(name, subscription, requires_session=True)
    return name


async def send(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic."""
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(list(messages))


async def all_from(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages, and see that no more come."""
    async with receiver:
        messages = await take(receiver, count)
        await receiver.complete_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
    return messages


def numbered(count: int, session: str | None = None) -> list[ServiceBusMessage]:
    """Return messages with one key or of one session."""
    return [ServiceBusMessage(f"{number}", session_id=session, partition_key=session or "k") for number in range(count)]


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages."""
    return [str(message) for message in messages]


# Contents and handles.


async def test_a_message_arrives_in_each_subscription_as_it_was_sent(client: ServiceBusClient, topic: str) -> None:
    """Body and properties come with one sequence number and one time for all, and a lock for each."""
    sent = ServiceBusMessage(
        "häh",
        message_id="m-1",
        partition_key="key",
        correlation_id="c-1",
        subject="sub",
        content_type="text/plain",
        to="somebody",
        reply_to="me",
        reply_to_session_id="s-1",
        time_to_live=timedelta(hours=1),
        application_properties={"text": "tëxt", "int": 5, "big": 1 << 60, "bool": True},
    )
    await send(client, topic, sent)
    async with (
        client.get_subscription_receiver(topic, "one") as first,
        client.get_subscription_receiver(topic, "two") as second,
    ):
        (one,), (two,) = await take(first, 1), await take(second, 1)
        for message in (one, two):
            assert (str(message), message.message_id, message.partition_key) == ("häh", "m-1", "key")
            assert (message.correlation_id, message.subject, message.content_type) == ("c-1", "sub", "text/plain")
            assert (message.to, message.reply_to, message.reply_to_session_id) == ("somebody", "me", "s-1")
            assert message.expires_at_utc == message.enqueued_time_utc + timedelta(hours=1)
            assert message.application_properties == {
                b"text": "tëxt".encode(),
                b"int": 5,
                b"big": 1 << 60,
                b"bool": True,
            }
        assert one.lock_token != two.lock_token
        assert (one.sequence_number, one.enqueued_time_utc) == (two.sequence_number, two.enqueued_time_utc)
        await first.complete_message(one)
        await second.abandon_message(two)
        (two,) = await take(second, 1)
        assert two.delivery_count == 1
        await second.complete_message(two)


async def test_messages_near_the_limit_arrive_whole_in_each_subscription(client: ServiceBusClient, topic: str) -> None:
    """The test sends several of 250 KB with different contents. Messages above 256 KB are refused."""
    contents = [random.Random(seed).randbytes(250 * 1024) for seed in range(5)]
    async with client.get_topic_sender(topic) as sender:
        for number, content in enumerate(contents):
            await sender.send_messages(ServiceBusMessage(content, message_id=f"{number}"))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 262_144))
    for name in ("one", "two"):
        found = await all_from(client.get_subscription_receiver(topic, name), len(contents))
        arrived = {message.message_id: b"".join(message.body or ()) for message in found}
        assert [number for number, content in enumerate(contents) if arrived[f"{number}"] != content] == []


async def test_lists_batches_and_mappings_are_sent_to_a_topic(client: ServiceBusClient, topic: str) -> None:
    """A topic accepts every form that a queue accepts."""
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages([])
        await sender.send_messages({"body": "mapping", "partition_key": "k"})
        batch = await sender.create_message_batch()
        for body in ("batched", "with it"):
            batch.add_message(ServiceBusMessage(body, partition_key="k"))
        await sender.send_messages(batch)
        await sender.send_messages(ServiceBusMessage(body, partition_key="k") for body in ("generated",))
        with pytest.raises(TypeError, match="message"):
            await sender.send_messages("no message")  # type: ignore[arg-type]
    for name in ("one", "two"):
        found = await all_from(client.get_subscription_receiver(topic, name), 4)
        assert bodies(found) == ["mapping", "batched", "with it", "generated"]


async def test_what_a_subscription_s_handles_say_of_themselves(client: ServiceBusClient, topic: str) -> None:
    """Handles name the entity that they send to and receive from, as a message's dead-letter source names it."""
    sender = client.get_topic_sender(topic, client_identifier="mine")
    assert (sender.entity_name, sender.client_identifier) == (topic, "mine")
    receiver = client.get_subscription_receiver(topic, "one", client_identifier="yours")
    assert (receiver.entity_path, receiver.client_identifier) == (f"{topic}/Subscriptions/one", "yours")
    assert topic in str(sender)
    assert f"{topic}/Subscriptions/one" in str(receiver)
    dead_letters = client.get_subscription_receiver(topic, "one", sub_queue="deadletter")
    assert dead_letters.entity_path.lower() == f"{topic}/subscriptions/one/$deadletterqueue"
    assert "SBReceiver" in str(dead_letters.client_identifier)
    for handle in (sender, receiver, dead_letters):
        await handle.close()
    with pytest.raises(ValueError, match="already been shutdown"):
        await sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(ValueError, match="already been shutdown"):
        await receiver.receive_messages()


async def test_bad_arguments_of_a_subscription_s_receiver_are_refused(client: ServiceBusClient) -> None:
    """The call that gets the argument raises the error."""
    for name, value in (("max_wait_time", 0), ("prefetch_count", -1), ("prefetch_count", 50_001)):
        with pytest.raises(ValueError, match=f"{name} {value}"):
            client.get_subscription_receiver("t", "s", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="PEEKLOCK"):
        client.get_subscription_receiver("t", "s", receive_mode="PEEKLOCK")
    with pytest.raises(ValueError, match="DEADLETTER"):
        client.get_subscription_receiver("t", "s", sub_queue="DEADLETTER")
    with pytest.raises(ValueError, match="sub-queues have no sessions"):
        client.get_subscription_receiver("t", "s", sub_queue="deadletter", session_id="a")
    with pytest.raises(ServiceBusError, match="session ids are texts"):
        client.get_subscription_receiver("t", "s", session_id=1)  # type: ignore[arg-type]
    async with AutoLockRenewer() as renewer:
        with pytest.raises(ValueError, match="auto_lock_renewer"):
            client.get_subscription_receiver(
                "t", "s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, auto_lock_renewer=renewer
            )
    with pytest.raises(ValueError, match="timeout"):
        client.list_subscription_sessions("t", "s", timeout=0)
    with pytest.raises(TypeError, match="subscription name is NoneType"):
        client.get_subscription_receiver("t", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="subscription name ''"):
        client.list_subscription_sessions("t", "")


async def test_a_connection_string_for_one_topic_is_for_no_other(connection_string: str, topic: str) -> None:
    """It serves the topic's subscriptions and no queue. Another entity is refused before any request."""
    async with ServiceBusClient.from_connection_string(f"{NOWHERE};EntityPath=news") as client:
        with pytest.raises(ValueError, match=r"'news' alone \(EntityPath\), not for 'other'"):
            client.get_topic_sender("other")
        with pytest.raises(ValueError, match=r"'news' alone \(EntityPath\), not for 'other/Subscriptions/one'"):
            client.get_subscription_receiver("other", "one")
        with pytest.raises(ValueError, match=r"'news' alone \(EntityPath\)"):
            client.list_subscription_sessions("other", "one")
    async with ServiceBusClient.from_connection_string(f"{connection_string};EntityPath={topic}") as client:
        await send(client, topic, ServiceBusMessage("x"))
        assert bodies(await all_from(client.get_subscription_receiver(topic.upper(), "one"), 1)) == ["x"]
    only = f"{topic}/Subscriptions/two"
    async with ServiceBusClient.from_connection_string(f"{connection_string};EntityPath={only}") as client:
        assert bodies(await all_from(client.get_subscription_receiver(topic, "two"), 1)) == ["x"]
        with pytest.raises(ValueError, match=r"alone \(EntityPath\)"):
            client.get_subscription_receiver(topic, "one")


# Locks.


async def test_messages_are_settled_by_receivers_of_their_own_subscription(
    client: ServiceBusClient, other_client: ServiceBusClient, topic: str
) -> None:
    """Any of these receivers settles them; another subscription of the topic is another queue."""
    await send(client, topic, *numbered(2))
    receiver, another = (
        client.get_subscription_receiver(topic, "one"),
        other_client.get_subscription_receiver(topic, "one"),
    )
    stranger = client.get_subscription_receiver(topic, "two")
    first, second = await take(receiver, 2)
    await stranger.receive_messages(2, max_wait_time=PATIENCE)
    for use in (stranger.complete_message, stranger.abandon_message, stranger.renew_message_lock):
        with pytest.raises(ValueError, match="settle it with a receiver of that queue"):
            await use(first)
    await another.complete_message(first)
    await another.dead_letter_message(second)
    assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []


async def test_a_message_delivered_too_often_leaves_its_subscription_alone(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, topic: str, later: Advance
) -> None:
    """Abandons and expired locks count together. The other subscription counts for itself."""
    subscription = await administration.get_subscription(topic, "one")
    await administration.update_subscription(topic, subscription, max_delivery_count=2)
    await send(client, topic, *numbered(1))
    async with client.get_subscription_receiver(topic, "one") as receiver:
        (message,) = await take(receiver, 1)
        await receiver.abandon_message(message)
        (message,) = await take(receiver, 1)
        assert message.delivery_count == 1
        await later(f"{topic}/Subscriptions/one", 61)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []
    (dead,) = await all_from(client.get_subscription_receiver(topic, "one", sub_queue="deadletter"), 1)
    assert (str(dead), dead.dead_letter_reason) == ("0", "MaxDeliveryCountExceeded")
    (message,) = await all_from(client.get_subscription_receiver(topic, "two"), 1)
    assert message.delivery_count == 0


async def test_a_renewer_keeps_the_locks_of_a_subscription_s_messages(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The renewer keeps them far beyond the lock's duration, which is the subscription's."""
    topic = await make_topic()
    await administration.create_subscription(topic, "short", lock_duration=timedelta(seconds=3))
    await send(client, topic, *numbered(20))
    async with (
        AutoLockRenewer() as renewer,
        client.get_subscription_receiver(topic, "short", auto_lock_renewer=renewer) as receiver,
    ):
        messages = await take(receiver, 20)
        deadline, seen = time.monotonic() + PATIENCE, {messages[-1].locked_until_utc}
        while len(seen) < 4:
            assert time.monotonic() < deadline, f"renewed {len(seen) - 1} times"
            await sleep(0.02)
            seen.add(messages[-1].locked_until_utc)
        await receiver.complete_messages(messages)
        assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []


async def test_a_subscription_is_iterated_and_goes_on_after_a_silence(client: ServiceBusClient, topic: str) -> None:
    """The loop can be taken up again after a break or an end."""
    await send(client, topic, *numbered(5))
    async with client.get_subscription_receiver(topic, "one", max_wait_time=3) as receiver:
        found: list[str] = []
        async for message in receiver:
            found.append(str(message))
            await receiver.complete_message(message)
            if len(found) == 2:
                break
        async for message in receiver:
            found.append(str(message))
            await receiver.complete_message(message)
        assert found == ["0", "1", "2", "3", "4"]
        await send(client, topic, ServiceBusMessage("late"))
        assert [str(message) async for message in receiver] == ["late"]


async def test_a_purge_empties_one_subscription(client: ServiceBusClient, topic: str) -> None:
    """It loses its waiting messages. The other subscription has all of them."""
    await send(client, topic, *numbered(6))
    async with client.get_subscription_receiver(topic, "one") as receiver:
        (locked,) = await take(receiver, 1)
        assert await receiver.purge_messages() == 5
        await receiver.complete_message(locked)
        assert await receiver.peek_messages(10, sequence_number=1) == []
        await send(client, topic, ServiceBusMessage("later"))
        assert bodies(await take(receiver, 1)) == ["later"]
    assert len(await all_from(client.get_subscription_receiver(topic, "two"), 7)) == 7


async def test_a_deferred_message_is_received_and_deleted(client: ServiceBusClient, topic: str) -> None:
    """It comes once. Only its own subscription knows it as deferred."""
    await send(client, topic, *numbered(1))
    async with client.get_subscription_receiver(topic, "one") as receiver:
        (message,) = await take(receiver, 1)
        await receiver.defer_message(message)
    deleting = client.get_subscription_receiver(topic, "one", receive_mode="receiveanddelete")
    number = message.sequence_number or 0
    (again,) = await deleting.receive_deferred_messages(number)
    assert (str(again), again.state) == ("0", ServiceBusMessageState.DEFERRED)
    for receiver in (deleting, client.get_subscription_receiver(topic, "two")):
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(number)
    (peeked,) = await client.get_subscription_receiver(topic, "two").peek_messages()
    assert peeked.state == ServiceBusMessageState.ACTIVE


async def test_a_scheduled_message_says_its_time_in_each_subscription(client: ServiceBusClient, topic: str) -> None:
    """It names the requested time, and is enqueued then or later, scheduled by a call or by its own property."""
    due = (datetime.now(timezone.utc) + timedelta(seconds=2)).replace(microsecond=0)
    async with client.get_topic_sender(topic) as sender:
        assert await sender.schedule_messages([], due) == []
        (number,) = await sender.schedule_messages(ServiceBusMessage("called", partition_key="k"), due)
        await sender.send_messages(ServiceBusMessage("set", partition_key="k", scheduled_enqueue_time_utc=due))
        await sender.cancel_scheduled_messages([])
    for name in ("one", "two"):
        found = await all_from(client.get_subscription_receiver(topic, name), 2)
        assert sorted(bodies(found)) == ["called", "set"]
        for message in found:
            assert message.scheduled_enqueue_time_utc == due
            assert message.enqueued_time_utc >= due
            assert message.sequence_number != number


# Sessions.


async def test_each_subscription_has_sessions_of_its_own(client: ServiceBusClient, sessions: str) -> None:
    """A session is locked, received and has a state in one subscription, and is untouched in another."""
    await send(client, sessions, *numbered(4, "a"), *numbered(4, "b"))
    async with (
        client.get_subscription_receiver(sessions, "one", session_id="a") as one,
        client.get_subscription_receiver(sessions, "two", session_id="a") as two,
    ):
        assert one.session is not None
        assert two.session is not None
        messages = await take(one, 4)
        assert bodies(messages) == ["0", "1", "2", "3"]
        assert {message.session_id for message in messages} == {"a"}
        assert {message.locked_until_utc for message in messages} == {None}
        assert None not in {message.lock_token for message in messages}
        await one.session.set_state("x")
        assert await two.session.get_state() is None
        await one.complete_messages(messages[:2])
        await one.abandon_message(messages[2])
        await one.dead_letter_message(messages[3], "Bad")
        assert bodies(await take(two, 4)) == ["0", "1", "2", "3"]
        assert await one.session.renew_lock() > datetime.now(timezone.utc)
        with pytest.raises(TypeError, match=r"session\.renew_lock"):
            await one.renew_message_lock(messages[2])
        with pytest.raises(SessionCannotBeLockedError):
            await client.get_subscription_receiver(sessions, "one", session_id="a").receive_messages(max_wait_time=1)
    async with client.get_subscription_receiver(
        sessions, "one", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE
    ) as other:
        assert other.session is not None
        assert other.session.session_id in {"a", "b"}
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as again:
        assert again.session is not None
        assert await again.session.get_state() == b"x"
        (message,) = await again.receive_messages(5, max_wait_time=PATIENCE)
        assert (str(message), message.delivery_count) == ("2", 1)
    (dead,) = await all_from(client.get_subscription_receiver(sessions, "one", sub_queue="deadletter"), 1)
    assert (str(dead), dead.session_id, dead.dead_letter_reason) == ("3", "a", "Bad")
    assert sorted(bodies(await all_from(client.get_subscription_receiver(sessions, "plain"), 8))) == sorted("01230123")


async def test_all_sessions_of_a_subscription_are_drained_in_order(client: ServiceBusClient, sessions: str) -> None:
    """A receiver takes the next available session until none is left; a named session may have no messages."""
    names = ["s0", "s1", "s2", "s3"]
    async with client.get_topic_sender(sessions) as sender:
        await sender.send_messages([ServiceBusMessage(f"{n}", session_id=name) for n in range(5) for name in names])
    found: dict[str, list[str]] = {}
    while True:
        receiver = client.get_subscription_receiver(
            sessions, "one", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1 if len(found) == 4 else PATIENCE
        )
        try:
            async with receiver:
                assert receiver.session is not None
                messages = await take(receiver, 5)
                await receiver.complete_messages(messages)
                found[str(receiver.session.session_id)] = bodies(messages)
        except OperationTimeoutError:
            break
    assert found == {name: ["0", "1", "2", "3", "4"] for name in names}
    async with client.get_subscription_receiver(sessions, "one", session_id="none", max_wait_time=A_MOMENT) as named:
        assert [str(message) async for message in named] == []


async def test_a_session_of_a_subscription_whose_lock_was_lost(
    client: ServiceBusClient, sessions: str, later: Advance
) -> None:
    """Every later use raises the error. Messages that were not settled come again, counted."""
    await send(client, sessions, *numbered(2, "a"))
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as receiver:
        (message, _) = await take(receiver, 2)
        assert receiver.session is not None
        await later(f"{sessions}/Subscriptions/one", 61)
        for use in (receiver.complete_message, receiver.defer_message):
            with pytest.raises(SessionLockLostError):
                await use(message)
        with pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()
        with pytest.raises(SessionLockLostError):
            await receiver.session.set_state("stale")
        with pytest.raises(SessionLockLostError):
            await anext(aiter(receiver))
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as receiver:
        again = await take(receiver, 2)
        assert [(str(one), one.delivery_count) for one in again] == [("0", 1), ("1", 1)]
        await receiver.complete_messages(again)


async def test_messages_of_a_subscription_s_session_are_deferred_and_peeked(
    client: ServiceBusClient, sessions: str
) -> None:
    """A receiver of the same session of the same subscription gets the deferred ones."""
    await send(client, sessions, *numbered(3, "a"), *numbered(3, "b"))
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as receiver:
        assert [(str(one), one.session_id) for one in await receiver.peek_messages(10)] == [(n, "a") for n in "012"]
        (message, *_) = await take(receiver, 3)
        await receiver.defer_message(message)
    number = message.sequence_number or 0
    for name, session in (("one", "b"), ("two", "a")):
        async with client.get_subscription_receiver(sessions, name, session_id=session) as stranger:
            with pytest.raises(ServiceBusError):
                await stranger.receive_deferred_messages(number)
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as receiver:
        (again,) = await receiver.receive_deferred_messages(number)
        assert (str(again), again.state) == ("0", ServiceBusMessageState.DEFERRED)
        await receiver.complete_message(again)
        assert bodies(await take(receiver, 2)) == ["1", "2"]


async def test_several_copies_of_a_message_stand_behind_what_was_sent_meanwhile(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, sessions: str
) -> None:
    """The copies are last in their session, in this subscription. A single copy keeps the message's place."""
    for name in ("a", "b"):
        await administration.create_rule(
            sessions,
            "one",
            name,
            filter=SqlRuleFilter("sys.Label = 'first'"),
            action=SqlRuleAction(f"SET made = '{name}'"),
        )
    action = SqlRuleAction("SET made = 'c'")
    await administration.update_rule(
        sessions, "two", await administration.get_rule(sessions, "two", "$Default"), action=action
    )
    sent = numbered(3, "s")
    sent[0].subject = "first"
    await send(client, sessions, *sent)
    for subscription, wanted in (("one", ["1", "2", "0", "0", "0"]), ("two", ["0", "1", "2"])):
        async with client.get_subscription_receiver(sessions, subscription, session_id="s") as receiver:
            messages = await take(receiver, len(wanted))
            assert bodies(messages) == wanted
            numbers = [message.sequence_number or 0 for message in messages]
            assert numbers == sorted(set(numbers))
            assert {message.delivery_count for message in messages} == {0}
            await receiver.complete_messages(messages)
            assert await receiver.receive_messages(1, max_wait_time=A_MOMENT) == []


async def test_sessions_of_a_subscription_are_listed_by_when_their_state_was_set(
    client: ServiceBusClient, sessions: str, later: Advance
) -> None:
    """The list has sessions with messages or state, page by page too. A cutoff leaves out earlier states."""
    assert [str(name) async for name in client.list_subscription_sessions(sessions, "one")] == []
    await send(client, sessions, *numbered(1, "waits"))
    moments: list[datetime] = []
    for name in ("early", "late"):
        async with client.get_subscription_receiver(sessions, "one", session_id=name) as receiver:
            assert receiver.session is not None
            await receiver.session.set_state(name)
            until = receiver.session.locked_until_utc
            assert until is not None
            # Locks last for a minute.
            moments.append(until - timedelta(minutes=1))
        await later(f"{sessions}/Subscriptions/one", 30)
    cutoff = moments[0] + timedelta(seconds=10)
    everything = client.list_subscription_sessions(sessions, "one", timeout=10)
    assert [[str(name) async for name in page] async for page in everything.by_page()] == [["early", "late", "waits"]]
    found = client.list_subscription_sessions(sessions, "one", state_updated_after=cutoff)
    assert [str(name) async for name in found] == ["late"]
    assert [str(name) async for name in client.list_subscription_sessions(sessions, "two")] == ["waits"]


async def test_what_does_not_fit_a_subscription_with_sessions(client: ServiceBusClient, sessions: str) -> None:
    """Receivers without a session, and sessions of subscriptions that have none, are refused when they are opened."""
    with pytest.raises(ServiceBusError, match="has sessions: receive from it with session_id"):
        await client.get_subscription_receiver(sessions, "one").receive_messages(max_wait_time=1)
    with pytest.raises(ServiceBusError, match="has sessions"):
        await client.get_subscription_receiver(sessions, "one").peek_messages()
    with pytest.raises(ServiceBusError, match="has sessions"):
        async with client.get_subscription_receiver(sessions, "one"):
            pass
    with pytest.raises(ServiceBusError, match="has no sessions"):
        async with client.get_subscription_receiver(sessions, "plain", session_id="a"):
            pass
    with pytest.raises(ServiceBusError, match="has no sessions"):
        assert [str(name) async for name in client.list_subscription_sessions(sessions, "plain")]


async def test_a_message_without_a_session_is_dead_lettered_where_one_is_required(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, sessions: str
) -> None:
    """A subscription with sessions dead-letters it once a client looks; the topic takes it, and others receive it."""
    await administration.create_rule(sessions, "two", "none", filter=SqlRuleFilter("sys.Label = 'wanted'"))
    await administration.delete_rule(sessions, "two", "$Default")
    await send(client, sessions, ServiceBusMessage("without"), ServiceBusMessage("with", session_id="a"))
    assert sorted(bodies(await all_from(client.get_subscription_receiver(sessions, "plain"), 2))) == ["with", "without"]
    assert [str(name) async for name in client.list_subscription_sessions(sessions, "one")] == ["a"]
    async with client.get_subscription_receiver(sessions, "one", session_id="a") as receiver:
        assert bodies(await take(receiver, 1)) == ["with"]
    (dead,) = await all_from(client.get_subscription_receiver(sessions, "one", sub_queue="deadletter"), 1)
    assert (str(dead), dead.dead_letter_reason) == ("without", "SessionIdMissing")
    assert [str(name) async for name in client.list_subscription_sessions(sessions, "two")] == []
    async with client.get_subscription_receiver(sessions, "two", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert await receiver.peek_messages(5) == []


async def test_a_subscription_without_sessions_forwards_to_a_queue_with_them(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
) -> None:
    """Each session stays in order. A message without a session cannot go there."""
    queue, topic = await make_queue(requires_session=True), await make_topic(partitioned=False)
    await administration.create_subscription(topic, "moved", forward_to=queue)
    await send(client, topic, *numbered(3, "a"), ServiceBusMessage("without"), *numbered(3, "b"))
    for name in "ab":
        async with client.get_queue_receiver(queue, session_id=name) as receiver:
            assert bodies(await take(receiver, 3)) == ["0", "1", "2"]
    (stuck,) = await all_from(client.get_subscription_receiver(topic, "moved", sub_queue="transferdeadletter"), 1)
    assert (str(stuck), stuck.dead_letter_reason) == ("without", "Session ID is null")
