"""Links on which clients receive: what they ask for is in force or refused, and nothing is lost when they end."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import Any

import pytest

from kafkabus._async.engine.receiver_engine import ReceiverEngine
from kafkabus._core.exceptions import ServiceBusServerBusyError
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from kafkabus.gateway.server import receivers
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.settlements import DELAY
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections
from kafkabus_mapping.amqp.types import Array, Described, Int, Symbol, UInt, ULong
from kafkabus_mapping.amqp_values import LARGEST_UINT
from tests.amqp_client import PATIENCE, AmqpClient, Delivered, LinkError
from tests.certificates import Authority
from tests.integration.gateway.conversation import (
    Completions,
    become,
    declared,
    discharged,
    left,
    message,
    operation,
    received,
)

SELECTOR = Symbol("apache.org:selector-filter:string")
LOCK_TOKEN = "x-opt-lock-token"


async def fill(client: AmqpClient, count: int, entity: str = "q", size: int = 1, session: str | None = None) -> None:
    """Send messages, whose bodies begin with their numbers."""
    sender = await client.sender(entity, 50)
    properties = {} if session is None else {"group_id": session}
    for number in range(count):
        await sender.send(message(b"%d".ljust(size) % number, properties=properties))
    await sender.detach()


# Browsing.


@pytest.mark.parametrize("takes", [True, False])
async def test_a_link_that_copies_leaves_the_messages(client: AmqpClient, takes: bool) -> None:
    """Its client gets each message once, and those that come later as well, whether it settles the copies or not."""
    await fill(client, 40)
    modes = {"snd_settle_mode": 1 if takes else 0}
    browser = await client.attach(
        5, receives=True, source=Source("q", distribution_mode="copy"), target=Target("here"), **modes
    )
    assert browser.answer is not None
    assert browser.answer.source.distribution_mode == "copy"
    came = await received(browser, 40)
    assert sorted(int(one.body) for one in came) == list(range(40))
    assert {one.settled for one in came} == {takes}
    assert LOCK_TOKEN not in came[0].sections.delivery_annotations
    if not takes:
        assert await browser.settle(came[0], state=Accepted()) == [Accepted()]
    browser.grant(10)
    await browser.drain()
    assert browser.waiting == 0
    await fill(client, 1)
    assert [one.body for one in await received(browser)] == [b"0"]
    assert len(await left(client)) == 41
    assert {one.sections.header["delivery_count"] for one in await received(await client.receiver("q"), 41)} == {0}


@pytest.mark.parametrize("takes", [True, False])
async def test_a_link_that_deletes_is_detached_a_little_after_its_sessions_lock(
    namespace: InMemoryNamespace, gateway: Gateway, client: AmqpClient, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """Its client, which may wait for as long as the lock lasts, here a second, has nothing to settle."""
    monkeypatch.setattr(receivers, "TAKING_SLACK", 60.0)
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("short", requires_session=True, lock_duration=timedelta(seconds=1))
    modes = {"snd_settle_mode": 1} if takes else {}
    source = Source("short", filter={SESSION_FILTER: "a"})
    link = await client.attach(5, receives=True, source=source, target=Target("here"), **modes)
    link.grant(1)
    [peer] = gateway.commons.clients
    [node] = [node for node in peer.links.nodes.values() if isinstance(node, ReceiverNode)]
    if takes:
        await become(lambda: node._pump is not None and node._pump.done())
        assert node.link.is_attached
    else:
        with pytest.raises(LinkError, match="session-lock-lost"):
            await link.receive()


async def test_a_transaction_that_settles_what_was_browsed_fails(client: AmqpClient) -> None:
    """Nothing of it would be settled."""
    await fill(client, 1)
    source = Source("q", distribution_mode="copy")
    browser = await client.attach(5, receives=True, source=source, target=Target("here"))
    (copy,) = await received(browser)
    coordinator = await client.coordinator()
    name = await declared(coordinator)
    (answer,) = await browser.settle(copy, state=TransactionalState(name, Accepted()))
    assert (answer.txn_id, answer.outcome.error.condition) == (name, c.NOT_ALLOWED)
    outcome = await discharged(coordinator, name)
    assert outcome.error.condition == c.TRANSACTION_ROLLBACK
    assert "browser" in outcome.error.description


async def test_a_durable_subscriber_receives_its_subscriptions_messages(client: AmqpClient) -> None:
    """JMS asks for copies of a topic's messages on its link, and means that each subscription has its own."""
    await fill(client, 3, "t")
    source = Source("t/subscriptions/all", durable=2, expiry_policy="never", distribution_mode="copy")
    subscriber = await client.attach(5, receives=True, source=source, target=Target("here"), name="audit")
    assert subscriber.answer is not None
    assert (subscriber.answer.source.distribution_mode, subscriber.answer.source.durable) == ("move", None)
    came = await received(subscriber, 3)
    assert await subscriber.settle(*came, state=Accepted()) == [Accepted()] * 3
    assert await left(client, "t/subscriptions/all") == []


async def test_the_messages_of_one_session_are_browsed(client: AmqpClient) -> None:
    """Although another client has it; without a session, those of all are."""
    await fill(client, 2, "s", session="A")
    await fill(client, 1, "s", session="B")
    holder = await client.receiver("s", filters={SESSION_FILTER: "A"})
    assert len(await received(holder, 2)) == 2
    for filters, count in (({SESSION_FILTER: "A"}, 2), (None, 3)):
        source = Source("s", distribution_mode="copy", filter=filters)
        browser = await client.attach(5 + count, receives=True, source=source, target=Target("here"), snd_settle_mode=1)
        browser.grant(10, drain=True)
        await client.until(lambda browser=browser: browser.flowed is not None)
        assert browser.waiting == count


# Filters and answers.


@pytest.mark.parametrize(
    "source",
    [
        Source("q", filter={SELECTOR: Described(ULong(0x468C_0000_0004), "color = 'red'")}),
        Source("q", filter={Symbol("apache.org:no-local-filter:list"): Described(ULong(3), [])}),
        Source("q", filter={Symbol("x"): None}),
        Source("q", distribution_mode="copy", filter={SELECTOR: "a = 1"}),
        Source("q", distribution_mode="round"),
        Source("q", distribution_mode="copy", durable=2),
        Source("t/Subscriptions/all/$deadletterqueue", distribution_mode="copy", durable=2),
        Source(None, dynamic=True),
        None,
    ],
)
async def test_a_link_whose_filter_is_not_in_force_is_refused(client: AmqpClient, source: Source | None) -> None:
    """By the filter's name; the messages that it excludes are not received. A JMS client unsubscribes without a source."""
    await fill(client, 1)
    with pytest.raises(LinkError) as caught:
        await client.attach(5, receives=True, source=source, target=Target("here"))
    assert caught.value.condition in {c.NOT_IMPLEMENTED, c.NOT_ALLOWED, *([] if source else [c.NOT_FOUND])}
    asked = source or Source()
    named = [*(asked.filter or {}), *([asked.distribution_mode] if asked.distribution_mode == "round" else [])]
    assert not named or any(name in str(caught.value) for name in named)
    assert len(await left(client)) == 1


async def test_a_temporary_queue_is_refused_by_name(client: AmqpClient) -> None:
    """That holds for those who send to it as well."""
    with pytest.raises(LinkError, match="no temporary queues") as caught:
        await client.attach(5, receives=False, source=Source("here"), target=Target(None, dynamic=True))
    assert caught.value.condition == c.NOT_IMPLEMENTED


@pytest.mark.parametrize("receives", [True, False])
async def test_a_link_with_an_empty_address_is_told_what_that_asks_for(client: AmqpClient, receives: bool) -> None:
    """Clients send one, or none, for nodes that a broker makes, and for the sender of JMS without a destination."""
    with pytest.raises(LinkError, match=r"address is empty.*name a queue") as caught:
        await client.attach(
            5, receives=receives, source=Source("" if receives else "h"), target=Target("h" if receives else "")
        )
    assert caught.value.condition == c.NOT_FOUND


@pytest.mark.parametrize("mode", [None, "copy"])
async def test_a_receiver_on_a_topic_is_told_the_address_of_its_subscriptions(
    client: AmqpClient, mode: str | None
) -> None:
    """It has no messages; the error names no method of a library that the client does not use."""
    source = Source("t", distribution_mode=mode)
    with pytest.raises(LinkError, match=r"^(?!.*get_subscription).*t/Subscriptions/NAME") as caught:
        await client.attach(5, receives=True, source=source, target=Target("here"))
    assert caught.value.condition == c.NOT_ALLOWED
    status, _ = await operation(client, "peek-message", {"message-count": Int(5)}, "t")
    assert status == 400


async def test_who_sends_settled_messages_is_told_that_one_was_refused(client: AmqpClient) -> None:
    """Such a client gets no outcome. Messages that were sent behind it are stored, and so are those of the next link."""
    sender = await client.sender("q")
    await sender.until_credit()
    for body in (message(b"one"), message(b"two", properties={"message_id": "x" * 200}), message(b"three")):
        sender.put(body, settled=True)
    unsettled = sender.put(message(b"zero"))
    await client.until(lambda: sender.is_detached)
    # Nothing is left without an answer that the client may send again.
    assert await unsettled == Accepted()
    with pytest.raises(LinkError, match="message_id") as caught:
        sender.check()
    assert caught.value.condition == service_bus.ARGUMENT_ERROR
    again = await client.sender("q", 5)
    assert await again.send(message(b"four")) == Accepted()
    # Nor does a discharge report on a transaction that does not exist.
    again.put(message(b"five"), state=TransactionalState(b"none"), settled=True)
    await client.until(lambda: again.is_detached)
    assert sorted(await left(client)) == [b"four", b"one", b"three", b"zero"]


async def test_the_answer_names_what_is_in_force(client: AmqpClient) -> None:
    """The address as it came, and of the others those that the gateway has."""
    source = Source(
        "sb://localhost/q",
        durable=2,
        expiry_policy="never",
        timeout=7,
        default_outcome=Modified(True),
        outcomes=Array([Symbol("amqp:accepted:list"), Symbol("x:list")]),
        capabilities=Array([Symbol("queue"), Symbol("shared")]),
    )
    link = await client.attach(5, receives=True, source=source, target=Target("here"))
    assert link.answer is not None
    assert link.answer.source == Source(
        "sb://localhost/q", outcomes=Array([Symbol("amqp:accepted:list")]), capabilities=Array([Symbol("queue")])
    )


async def test_a_link_whose_ends_cannot_be_written_has_an_answer(client: AmqpClient) -> None:
    """They can be read: a text in place of a symbol may hold any letters."""
    capabilities = Array(["é"])
    source = Described(ULong(Source.CODE), ["q", *[None] * 9, capabilities])
    target = Described(ULong(Target.CODE), ["q", *[None] * 5, capabilities])
    for handle, receives in ((5, True), (6, False)):
        with pytest.raises(LinkError) as caught:
            await client.attach(handle, receives=receives, source=source, target=target)
        assert caught.value.condition == service_bus.ARGUMENT_ERROR


# Receive and delete.


@pytest.mark.parametrize("end", ["detach", "end", "close"])
async def test_what_is_deleted_is_sent_although_its_client_ends(
    port: int, client: AmqpClient, completions: Completions, end: str
) -> None:
    """It gives its credit up and ends the link, its session or the connection while messages are completed for it."""
    await fill(client, 10)
    async with AmqpClient(port) as going:
        receiver = await going.receiver("q", takes=True)
        receiver.grant(5)
        await asyncio.wait_for(completions.came.wait(), PATIENCE)
        receiver.grant(0)
        going.say({"detach": Detach(1, closed=True), "end": End(), "close": Close()}[end])
        completions.may_go.set()
        await going.until(lambda: receiver.is_detached)
        came = [await receiver.receive() for _ in range(receiver.waiting)]
    assert len(came) + len(await left(client)) == 10
    assert came


@pytest.mark.parametrize("session", [None, "A"])
async def test_what_is_deleted_for_a_client_that_is_lost_goes_to_the_next_one(
    port: int, gateway: Gateway, client: AmqpClient, completions: Completions, session: str | None
) -> None:
    """Its connection was cut off while they were completed for it."""
    entity, filters = ("q", None) if session is None else ("s", {SESSION_FILTER: session})
    await fill(client, 3, entity, session=session)
    async with AmqpClient(port) as lost:
        receiver = await lost.receiver(entity, takes=True, filters=filters)
        receiver.grant(3)
        await asyncio.wait_for(completions.came.wait(), PATIENCE)
        (peer,) = [
            one for one in gateway.commons.clients if any(link.attach.name == "link-1" for link in one.links.nodes)
        ]
        lost.abort()
        await lost.until(lambda: False)
        while not peer.socket.is_lost:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        completions.may_go.set()
        while peer in gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
    heir = await client.receiver(entity, takes=True, filters=filters)
    assert sorted(one.body for one in await received(heir, 3)) == [b"0", b"1", b"2"]
    assert await left(client, entity) == []


async def test_no_more_is_deleted_than_the_operating_system_holds(
    port: int, gateway: Gateway, client: AmqpClient
) -> None:
    """For a client that reads nothing, and is lost then."""
    await fill(client, 80, size=250_000)
    async with AmqpClient(port) as stuck:
        receiver = await stuck.receiver("q", takes=True)
        stuck.pause_reading()
        receiver.grant(80)
        (peer,) = [
            one for one in gateway.commons.clients if any(link.attach.name == "link-1" for link in one.links.nodes)
        ]
        while peer.socket.room >= 250_000:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        buffers = sum(
            int(transport.get_extra_info("socket").getsockopt(SOL_SOCKET, which))
            for transport, which in ((peer.socket.transport, SO_SNDBUF), (stuck._writer.transport, SO_RCVBUF))
            if transport is not None
        )
        stuck.abort()
        await stuck.until(lambda: False)
        while peer in gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
    assert 0 < 80 - len(await left(client)) <= buffers // 250_000 + 1


async def test_messages_that_a_client_does_not_take_are_not_deleted(
    client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their client gave its credit up after they were claimed; they are there at once, and no delivery is counted."""
    claimed, may_come = asyncio.Event(), asyncio.Event()
    receive = ReceiverEngine.receive

    async def late(engine: ReceiverEngine, *arguments: Any, **options: Any) -> Any:
        messages = await receive(engine, *arguments, **options)
        claimed.set()
        await may_come.wait()
        return messages

    monkeypatch.setattr(ReceiverEngine, "receive", late)
    await fill(client, 5)
    receiver = await client.receiver("q", takes=True)
    receiver.grant(5)
    await asyncio.wait_for(claimed.wait(), PATIENCE)
    receiver.grant(2)
    await left(client)  # The gateway has read it.
    may_come.set()
    assert [await receiver.receive() for _ in range(2)]
    assert len(await left(client)) == 3
    monkeypatch.undo()
    again = await received(await client.receiver("q", 7), 3)
    assert {one.sections.header["delivery_count"] for one in again} == {0}


# Outcomes.


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("default", "own", "shown"),
    [(None, None, None), (None, 5_000, 5_000), (1, None, DAY_MS), (1, 5_000, 5_000), (1, 5 * DAY_MS, DAY_MS)],
)
async def test_the_time_to_live_that_is_in_force_is_shown(
    client: AmqpClient,
    namespace: InMemoryNamespace,
    default: int | None,
    own: int | None,
    shown: int | None,
) -> None:
    """The message's own, or its queue's default if that is shorter; and the time when it is over."""
    lives = None if default is None else timedelta(days=default)
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("lives", default_message_time_to_live=lives)
    sender, receiver = await client.sender("lives"), await client.receiver("lives")
    await sender.send(message(header={} if own is None else {"ttl": UInt(own)}))
    (came,) = await received(receiver)
    enqueued_at = came.sections.message_annotations["x-opt-enqueued-time"]
    expiry = came.sections.properties.get("absolute_expiry_time")
    assert came.sections.header.get("ttl") == shown
    assert (None if expiry is None else expiry - enqueued_at) == (
        None if shown is None else timedelta(milliseconds=shown)
    )
    assert "creation_time" not in came.sections.properties


async def test_a_long_time_to_live_is_shown(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """By two times, as a header holds 49 days at most; a sender's own times stay, unless the queue's default is shorter."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("long", default_message_time_to_live=timedelta(days=100))
    sender, receiver = await client.sender("long"), await client.receiver("long")

    async def shown(sent: bytes) -> Sections:
        await sender.send(sent)
        (came,) = await received(receiver)
        return came.sections

    plain = await shown(message())
    begin = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    own, longer = [
        await shown(
            message(
                header={"ttl": UInt(LARGEST_UINT)},
                properties={"creation_time": begin, "absolute_expiry_time": begin + timedelta(days=days)},
            )
        )
        for days in (60, 200)
    ]
    assert {one.header["ttl"] for one in (plain, own, longer)} == {LARGEST_UINT}
    assert plain.properties["creation_time"] == plain.message_annotations["x-opt-enqueued-time"]
    lives = [one.properties["absolute_expiry_time"] - one.properties["creation_time"] for one in (plain, own, longer)]
    assert lives == [timedelta(days=days) for days in (100, 60, 100)]
    assert own.properties["creation_time"] == longer.properties["creation_time"] == begin


async def test_java_shows_no_message_as_expired(port: int) -> None:
    """Its SDK computes when a message expires as if a time to live that is missing were 0."""
    opening = {"properties": {Symbol("user-agent"): "azsdk-java-azure-messaging-servicebus/7.17.17"}}
    async with AmqpClient(port, opening=opening) as client:
        await fill(client, 1)
        (came,) = await received(await client.receiver("q"))
        assert came.sections.header["ttl"] == LARGEST_UINT
        assert came.sections.properties.get("absolute_expiry_time") is None


@pytest.mark.parametrize("by_token", [False, True])
async def test_properties_are_changed(client: AmqpClient, by_token: bool) -> None:
    """Of messages that are abandoned, also twice, and deferred; browsers see it, and so do dead letters."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message(application_properties={"colour": "red", "size": 5}))

    async def settle(came: Delivered, changes: dict[str, Any], *, defer: bool = False) -> None:
        if not by_token:
            await receiver.settle(
                came, state=Modified(not defer, defer, {Symbol(name): changes[name] for name in changes})
            )
            return
        body = {
            "lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]),
            "disposition-status": "defered" if defer else "abandoned",
            "properties-to-modify": changes,
        }
        assert await operation(client, "update-disposition", body) == (200, None)

    (came,) = await received(receiver)
    await settle(came, {"colour": "blue"})
    (came,) = await received(receiver)
    assert came.sections.application_properties == {"colour": "blue", "size": 5}
    await settle(came, {"size": 6, "more": True})
    (came,) = await received(receiver)
    wanted = {"colour": "blue", "size": 6, "more": True}
    assert came.sections.application_properties == wanted
    await settle(came, {"more": None}, defer=True)
    body = {"from-sequence-number": 0, "message-count": Int(9)}
    status, answer = await operation(client, "peek-message", body)
    assert status == 200
    seen = Delivered(Transfer())
    seen.payload = answer["messages"][0]["message"]
    assert seen.sections.application_properties == wanted | {"more": None}


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("delay", [Int(3_600_000), 3_600_000, 3_600_000.0])
async def test_an_abandoned_message_is_postponed(
    client: AmqpClient, namespace: InMemoryNamespace, by_token: bool, delay: float
) -> None:
    """By a delay among the properties to modify, which is no property; peek says until when."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message(application_properties={"colour": "red"}))
    (came,) = await received(receiver)
    changes = {DELAY: delay, "colour": "blue"}
    if by_token:
        body = {
            "lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]),
            "disposition-status": "abandoned",
            "properties-to-modify": changes,
        }
        assert await operation(client, "update-disposition", body) == (200, None)
    else:
        outcome = Modified(True, None, {Symbol(name): changes[name] for name in changes})
        assert await receiver.settle(came, state=outcome) == [outcome]
    seen = await peeked(client)
    assert seen.application_properties == {"colour": "blue"}
    assert seen.message_annotations["x-opt-message-state"] == 0
    assert seen.message_annotations["x-opt-kafkabus-postponed-until"] > datetime.now(timezone.utc)
    namespace.advance(3700)
    (came,) = await received(receiver)
    assert came.sections.header["delivery_count"] == 1
    assert "x-opt-kafkabus-postponed-until" not in came.sections.message_annotations
    await receiver.settle(came, state=Accepted())


@pytest.mark.parametrize("name", [None, "SBReceiver-1"])
async def test_a_lock_names_the_clients_receiver(
    client: AmqpClient, namespace: InMemoryNamespace, name: str | None
) -> None:
    """By the name that the client gave it, else by that of the link; once broken, the lock settles nothing. Peek shows it."""
    sender = await client.sender("q")
    properties = None if name is None else {Symbol("com.microsoft:receiver-name"): name}
    receiver = await client.receiver("q", properties=properties)
    await sender.send(message())
    (came,) = await received(receiver)
    assert (await peeked(client)).message_annotations["x-opt-kafkabus-locked-until"] > datetime.now(timezone.utc)
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        (lock,) = await asyncio.to_thread(list, administration.list_locks("q"))
        assert lock.client_identifier is not None
        assert lock.client_identifier == name or lock.client_identifier.startswith("link-")
        await asyncio.to_thread(administration.break_lock, "q", lock.sequence_numbers[0][0])
    (outcome,) = await receiver.settle(came, state=Accepted())
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == service_bus.MESSAGE_LOCK_LOST


async def peeked(client: AmqpClient) -> Sections:
    """Return the only message of a queue, as it is peeked."""
    status, answer = await operation(client, "peek-message", {"from-sequence-number": 0, "message-count": Int(9)})
    assert status == 200
    seen = Delivered(Transfer())
    seen.payload = answer["messages"][0]["message"]
    return seen.sections


@pytest.mark.parametrize(
    ("outcome", "condition", "error"),
    [
        (
            Modified(True, None, {Symbol(DELAY): -1}),
            service_bus.ARGUMENT_ERROR,
            "-1: give whole milliseconds from 0 to",
        ),
        (Modified(True, None, {Symbol(DELAY): 604_800_001}), service_bus.ARGUMENT_ERROR, "604,800,000"),
        (Modified(True, None, {Symbol(DELAY): 0.5}), service_bus.ARGUMENT_ERROR, "0.5"),
        (Modified(True, None, {Symbol(DELAY): "1000"}), service_bus.ARGUMENT_ERROR, "'1000'"),
        (Modified(True, None, {Symbol(DELAY): True}), service_bus.ARGUMENT_ERROR, "True"),
        (Modified(None, True, {Symbol(DELAY): 5}), service_bus.ARGUMENT_ERROR, "for abandoned ones alone"),
    ],
)
async def test_a_delay_that_is_none(client: AmqpClient, outcome: Modified, condition: str, error: str) -> None:
    """The link is detached with an error that names value and rule; the message stays locked."""
    await fill(client, 1)
    receiver = await client.receiver("q")
    (came,) = await received(receiver)
    client.say(Disposition(True, came.number, came.number, False, outcome))
    await client.until(lambda: receiver.is_detached)
    with pytest.raises(LinkError, match=error) as caught:
        receiver.check()
    assert caught.value.condition == condition
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "completed"}
    assert await operation(client, "update-disposition", body) == (200, None)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("undeliverable_here", [False, True])
async def test_changes_of_properties_that_are_refused_detach_the_link(
    client: AmqpClient, settled: bool, undeliverable_here: bool
) -> None:
    """Azure's SDK for Go takes a bare refusal for success."""
    await fill(client, 1)
    receiver = await client.receiver("q")
    (came,) = await received(receiver)
    outcome = Modified(True, undeliverable_here, {Symbol("x"): [1]})
    client.say(Disposition(True, came.number, came.number, settled, outcome))
    await client.until(lambda: receiver.is_detached)
    with pytest.raises(LinkError) as caught:
        receiver.check()
    assert caught.value.condition == service_bus.ARGUMENT_ERROR
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "completed"}
    assert await operation(client, "update-disposition", body) == (200, None)


@pytest.mark.parametrize(("settled", "is_detached"), [(False, True), (True, False)])
async def test_a_settlement_that_could_be_tried_again_is_not_told_as_refused(
    client: AmqpClient, monkeypatch: pytest.MonkeyPatch, settled: bool, is_detached: bool
) -> None:
    """Azure's SDK for Go tries it again, and takes that for success. A client that asks for no answer need not know."""

    async def fail(*_: object, **__: object) -> None:
        raise ServiceBusServerBusyError("Redis takes no writes")

    await fill(client, 1)
    receiver = await client.receiver("q")
    (came,) = await received(receiver)
    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", fail)
    client.say(Disposition(True, came.number, came.number, settled, Accepted()))
    if is_detached:
        await client.until(lambda: receiver.is_detached)
    else:
        await left(client)
    assert receiver.is_detached is is_detached


# Credit, tokens, sessions, the end.


@pytest.mark.parametrize("credit", [1 << 31, (1 << 32) - 1])
async def test_any_credit_counts(client: AmqpClient, credit: int) -> None:
    """Also the largest; after some messages as well."""
    await fill(client, 4)
    receiver = await client.receiver("q")
    for _ in range(2):
        assert len(await received(receiver, 1)) == 1
        receiver.grant(credit)
        await receiver.receive()


async def test_a_lock_token_is_among_the_delivery_annotations(client: AmqpClient) -> None:
    """Rust's client renews the lock by it; a message that was deleted has none."""
    await fill(client, 2)
    (came,) = await received(await client.receiver("q"))
    assert came.sections.delivery_annotations[LOCK_TOKEN] == uuid.UUID(bytes_le=came.tag)
    (deleted,) = await received(await client.receiver("q", 7, takes=True))
    assert LOCK_TOKEN not in deleted.sections.delivery_annotations
    assert "x-opt-locked-until" not in deleted.sections.message_annotations


async def test_a_link_and_a_session_that_contradict_each_other_are_refused(client: AmqpClient) -> None:
    """The session that a request names is the one that it is for."""
    first = await client.receiver("s", 5, filters={SESSION_FILTER: "A"})
    await client.receiver("s", 6, filters={SESSION_FILTER: "B"})
    assert first.answer is not None
    body = {"session-id": "B", "session-state": b"of B"}
    assert await operation(client, "set-session-state", body, "s", of_link="link-5") == (
        410,
        service_bus.SESSION_LOCK_LOST,
    )
    assert await operation(client, "set-session-state", body, "s", of_link="link-6") == (200, None)


@pytest.mark.parametrize("copies", [False, True])
async def test_a_link_to_an_entity_that_was_replaced_may_be_attached_again(
    client: AmqpClient, namespace: InMemoryNamespace, copies: bool
) -> None:
    """Clients take the condition for an entity that is gone for final."""
    source = Source("q", distribution_mode="copy" if copies else None)
    link = await client.attach(1, receives=True, source=source, target=Target("here"))
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.delete_queue("q")
        administration.create_queue("q")
        link.grant(1)
        await client.until(lambda: link.is_detached)
        with pytest.raises(LinkError) as caught:
            link.check()
        assert caught.value.condition == c.DETACH_FORCED
        again = await client.attach(2, receives=True, source=source, target=Target("here"))
        await fill(client, 1)
        assert [one.body for one in await received(again)] == [b"0"]
        again.grant(9)
        administration.delete_queue("q")
        await client.until(lambda: again.is_detached)
        with pytest.raises(LinkError) as caught:
            again.check()
        assert caught.value.condition == c.NOT_FOUND


async def test_a_client_of_tls_is_let_go_of(gateway: Gateway, client: AmqpClient, tmp_path: Path) -> None:
    """Although something of it is under way when it closes the connection, so that there is more to send then."""
    authority = Authority(tmp_path)
    served, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(authority.file))
    served.load_cert_chain(authority.certify("localhost").both)
    port = await gateway.listen("127.0.0.1", 0, served)
    await fill(client, 3)
    peers = set(gateway.commons.clients)
    for takes in (False, True):
        going = await AmqpClient(port, tls=trusting).__aenter__()
        receiver = await going.receiver("q", takes=takes)
        (came,) = await received(receiver)
        if not takes:
            going.say(Disposition(True, came.number, came.number, True, Accepted()))
        going.say(Detach(1, closed=True))
        going.say(Close())
        await going.until(lambda going=going: going.closed is not None)
        going.abort()
    while gateway.commons.clients != peers:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)
    assert len(await left(client)) == 1
