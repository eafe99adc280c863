"""Receive and delete: a deleted message is sent to its client, or to the next one if that client detaches or is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import Any

import pytest

from kafkabus._core.exceptions import ServiceBusConnectionError
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.performatives import Accepted, Flow, Modified, Source, Target
from kafkabus.gateway.server import deferred_messages, receivers
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.peer import Peer
from kafkabus.gateway.server.requests import ReplyNode
from kafkabus.gateway.server.service_bus_conditions import TIMEOUT
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.gateway.server.undelivered import Deleted, OnTheWay, place_of
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import Array, Int, UInt
from kafkabus_mapping.names import EntityPath
from tests.amqp_client import PATIENCE, AmqpClient, Link, LinkError
from tests.integration.gateway.conversation import Completions, become, left, message, operation, received

ANSWERS, REQUESTS = 61, 60


async def fill(client: AmqpClient, count: int, size: int = 1, entity: str = "q") -> None:
    """Send messages."""
    sender = await client.sender(entity, 50)
    await sender.until_credit(count)
    await asyncio.gather(*(sender.put(message(b"%d".ljust(size) % number)) for number in range(count)))
    await sender.detach()


async def taken(client: AmqpClient, entity: str = "q", handle: int = 70) -> list[bytes]:
    """Receive and delete all messages that are there; return the beginnings of their bodies."""
    link = await client.receiver(entity, handle, takes=True)
    deadline = time.monotonic() + PATIENCE
    while True:
        await link.drain(10_000)
        # On a busy machine, those that are there may take longer than a client waits.
        if not await left(client, entity, deferred=False):
            break
        assert time.monotonic() < deadline
    found = [(await link.receive()).body[:10].strip() for _ in range(link.waiting)]
    await link.detach()
    return found


async def kept(gateway: Gateway, *bodies: bytes) -> None:
    """Keep messages that were deleted from the queue for a client that was lost."""
    place = place_of(await gateway.namespace.entity(EntityPath("q")))
    gateway.commons.undelivered.put(Deleted(place, None, [message(body) for body in bodies]))


def peer_of(gateway: Gateway, handle: int = 1) -> Peer:
    """Return the connection that has a link with a handle."""
    (peer,) = [
        one for one in gateway.commons.clients if any(link.attach.name == f"link-{handle}" for link in one.links.nodes)
    ]
    return peer


async def let_go(gateway: Gateway, peer: Peer) -> None:
    """Wait until a connection that is lost was let go of."""
    while peer in gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)


async def test_links_share_a_window(port: int, client: AmqpClient) -> None:
    """Its room is for the messages of one of them."""
    await fill(client, 5)
    await fill(client, 5, entity="t")
    narrow = AmqpClient(port)
    narrow.window = 5
    async with narrow:
        links = [await narrow.receiver("q", 1, takes=True), await narrow.receiver("t/Subscriptions/all", 2, takes=True)]
        for link in links:
            link.grant(5)
        await narrow.until(lambda: sum(link.waiting for link in links) == 5)
        for link in links:
            await link.detach()
        came = [link.waiting for link in links]
    left = [len(await taken(client)), len(await taken(client, "t/Subscriptions/all"))]
    assert [sum(pair) for pair in zip(came, left, strict=True)] == [5, 5]


@pytest.mark.parametrize("end", ["detach", "lose"])
async def test_a_message_that_the_window_cuts_goes_to_the_next_client(
    port: int, gateway: Gateway, client: AmqpClient, end: str
) -> None:
    """It has more frames than its client ever takes at once, and the client goes before it has taken all."""
    await fill(client, 1, size=500_000)
    narrow = AmqpClient(port)
    narrow.window = 2
    async with narrow:
        link = await narrow.receiver("q", takes=True)
        link.grant(1)
        peer = peer_of(gateway)
        while not peer.engine.usage.waiting_bytes:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        if end == "detach":
            await link.detach()
        else:
            narrow.abort()
            await narrow.until(lambda: False)
            await let_go(gateway, peer)
        assert link.waiting == 0
        assert await taken(client) == [b"0"]


@pytest.mark.parametrize("links", [1, 3])
async def test_a_small_socket_bounds_what_is_deleted(
    port: int, gateway: Gateway, client: AmqpClient, links: int
) -> None:
    """Over all links of a client; also after the socket has passed on all that it got."""
    await fill(client, 200, size=10_000)
    async with AmqpClient(port) as stuck:
        receivers = [await stuck.receiver("q", handle, takes=True) for handle in range(1, links + 1)]
        peer = peer_of(gateway)
        assert peer.socket.transport is not None
        for transport, which in ((peer.socket.transport, SO_SNDBUF), (stuck._writer.transport, SO_RCVBUF)):
            transport.get_extra_info("socket").setsockopt(SOL_SOCKET, which, 20_000)
        receivers[0].grant(3)
        await received(receivers[0], 3)
        stuck.pause_reading()
        for link in receivers:
            link.grant(200)
        while peer.socket.room >= 10_000:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        stuck.abort()
        await stuck.until(lambda: False)
        await let_go(gateway, peer)
    # 200 of them are 2 MB.
    assert 200 - 3 - len(await taken(client)) <= 20


async def test_what_is_kept_goes_to_a_client_that_waits(gateway: Gateway, client: AmqpClient) -> None:
    """It waits for messages, of which none comes."""
    link = await client.receiver("q", takes=True)
    link.grant(5)
    await operation(client, "peek-message", {"message-count": Int(1)})  # The gateway has read the credit.
    await kept(gateway, b"kept")
    assert (await link.receive()).body == b"kept"


async def test_kept_messages_of_a_session_keep_their_order(port: int, gateway: Gateway, client: AmqpClient) -> None:
    """Small ones do not overtake one that has no room yet."""
    await kept(gateway, b"0".ljust(300_000), b"1")
    narrow = AmqpClient(port)
    narrow.window = 9
    async with narrow:
        link = await narrow.receiver("q", takes=True)
        narrow.window = 3
        link.grant(9, echo=True)
        await fill(client, 1)
        await narrow.until(lambda: link.flowed is not None)
        narrow.window = 9
        link.grant(9)
        assert [one.body[:1] for one in await received(link, 2)] == [b"0", b"1"]


async def keep_of_session(gateway: Gateway, session: str, *bodies: bytes) -> None:
    """Keep messages that were deleted from a session for a client that was lost."""
    place = place_of(await gateway.namespace.entity(EntityPath("s")))
    gateway.commons.undelivered.put(Deleted(place, session, [message(body) for body in bodies]))


async def next_session(client: AmqpClient, handle: int, *, takes: bool = True, seconds: float = 60) -> Link:
    """Attach a link that receives from the next available session."""
    wait = {TIMEOUT: UInt(int(seconds * 1000))}
    return await client.receiver("s", handle, takes=takes, filters={SESSION_FILTER: None}, properties=wait)


@pytest.mark.parametrize("waits", [False, True])
async def test_kept_messages_of_a_session_go_to_a_client_that_takes_the_next_session(
    gateway: Gateway, client: AmqpClient, waits: bool
) -> None:
    """Before newer ones of the session, also if the client has waited already. No ledger knows the session any more."""
    asked = asyncio.create_task(next_session(client, 3))
    if waits:
        reader = await gateway.namespace.context.receiving.readers.sessions_of(
            await gateway.namespace.entity(EntityPath("s"))
        )
        await become(lambda: reader._line._waiters)
    await keep_of_session(gateway, "A", b"0", b"1")
    link = await asked
    assert link.answer is not None
    assert link.answer.source.filter == {SESSION_FILTER: "A"}
    await (await client.sender("s", 50)).send(message(b"2", properties={"group_id": "A"}))
    assert [one.body for one in await received(link, 3)] == [b"0", b"1", b"2"]


async def test_kept_messages_of_a_session_that_is_locked_keep_nobody_waiting(
    gateway: Gateway, client: AmqpClient
) -> None:
    """A client gets another session, and the next one gets theirs when it is free."""
    await keep_of_session(gateway, "A", b"kept")
    holder = await client.receiver("s", 3, filters={SESSION_FILTER: "A"})
    await (await client.sender("s", 50)).send(message(b"other", properties={"group_id": "B"}))
    link = await next_session(client, 4)
    assert [one.body for one in await received(link)] == [b"other"]
    with pytest.raises(LinkError) as caught:
        await next_session(client, 5, seconds=0.2)
    assert caught.value.condition == service_bus.TIMEOUT
    await holder.detach()
    assert [one.body for one in await received(await next_session(client, 6))] == [b"kept"]


async def test_locked_sessions_of_which_messages_are_kept_hide_no_free_one(
    gateway: Gateway, client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client tries all of them, and waits for another one no longer than it asked for."""
    monkeypatch.setattr(receivers, "KEPT_TRIED", 1)
    for session in ("A", "B", "C"):
        await keep_of_session(gateway, session, b"kept")
    for handle, session in ((3, "A"), (4, "B")):
        await client.receiver("s", handle, filters={SESSION_FILTER: session})
    link = await next_session(client, 5)
    assert link.answer is not None
    assert link.answer.source.filter == {SESSION_FILTER: "C"}
    with pytest.raises(LinkError) as caught:
        await next_session(client, 6, seconds=0.2)
    assert caught.value.condition == service_bus.TIMEOUT


async def test_a_client_that_waits_gets_the_session_of_one_that_is_lost(
    port: int, client: AmqpClient, completions: Completions
) -> None:
    """Its messages are being deleted for the other client then, whose lock of the session ends after that."""
    for number in range(3):
        await (await client.sender("s", 50 + number)).send(message(str(number), properties={"group_id": "A"}))
    async with AmqpClient(port) as gone:
        (await next_session(gone, 3)).grant(3)
        await asyncio.wait_for(completions.came.wait(), PATIENCE)
        asked = asyncio.create_task(next_session(client, 3))
        gone.abort()
        completions.may_go.set()
        assert [one.body for one in await received(await asked, 3)] == [b"0", b"1", b"2"]


async def test_a_client_that_goes_while_it_waits_for_a_session_leaves_none_locked(
    gateway: Gateway, client: AmqpClient, port: int
) -> None:
    """Neither one of which messages are kept, nor another one."""
    async with AmqpClient(port) as gone:
        asked = asyncio.create_task(next_session(gone, 3))
        reader = await gateway.namespace.context.receiving.readers.sessions_of(
            await gateway.namespace.entity(EntityPath("s"))
        )
        await become(lambda: reader._line._waiters)
        gone.abort()
        await keep_of_session(gateway, "A", b"kept")
        with pytest.raises(LinkError, match="cut off"):
            await asked
    await become(lambda: len(gateway.commons.clients) == 1)
    assert [one.body for one in await received(await next_session(client, 6))] == [b"kept"]


async def test_what_is_kept_does_not_outlive_its_queue(
    gateway: Gateway, client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """Another one of that name has other messages."""
    await kept(gateway, b"of the old queue")
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.delete_queue("q")
        administration.create_queue("q")
    # As after five seconds.
    gateway.namespace.context.catalog.look_up_again(await gateway.namespace.entity(EntityPath("q")))
    await fill(client, 1)
    assert await taken(client) == [b"0"]


async def test_a_window_that_became_small_is_enough(port: int, client: AmqpClient) -> None:
    """For a message with more frames than it, also if the window was large at first."""
    narrow = AmqpClient(port)
    narrow.window = 2**31 - 1
    async with narrow:
        link = await narrow.receiver("q", takes=True)
        narrow.window = 2
        link.grant(2)
        await fill(client, 1, size=500_000)
        await narrow.until(lambda: narrow.next_incoming > 0)
        narrow.window = 1_000
        link.grant(1)
        assert (await link.receive()).body[:1] == b"0"


def test_what_the_operating_system_has_is_not_kept() -> None:
    """The rest is, in its order."""
    way, first, second, third = OnTheWay(), *(Deleted("q", None, [b"%d" % number]) for number in range(3))
    way.note(10, [first])
    way.note(10, [])
    way.note(10, [second, third])
    way.note_left(21)
    assert len(way) == 2
    way.note_left(20)
    assert len(way) == 1
    way.note_left(1)
    assert (way.take(), way.take()) == ([second, third], [])


# By number.


class Deferred:
    """Messages of a queue that were deferred, and the links for requests of a client.

    Attributes:
        client: The client.
        numbers: Their numbers.
        answers: Takes the answers; it has no credit.
        requests: Takes the requests.
    """

    def __init__(self, client: AmqpClient, numbers: list[int], answers: Link, requests: Link) -> None:
        self.client = client
        self.numbers = numbers
        self.answers = answers
        self.requests = requests

    @classmethod
    async def made(cls, client: AmqpClient, count: int, size: int = 1) -> Deferred:
        """Defer messages."""
        await fill(client, count, size)
        receiver = await client.receiver("q", 40)
        came = await received(receiver, count)
        numbers = [int(one.sections.message_annotations["x-opt-sequence-number"]) for one in came]
        await receiver.settle(*came, state=Modified(True, True))
        await receiver.detach()
        answers = await client.attach(ANSWERS, receives=True, source=Source("q/$management"), target=Target("answers"))
        return cls(client, numbers, answers, await client.sender("q/$management", REQUESTS))

    def ask(self, name: str, body: Any, answers: str = "answers") -> asyncio.Future[Any]:
        """Ask for an operation; return the request's outcome."""
        request = Sections(
            properties={"message_id": "m", "reply_to": answers},
            application_properties={"operation": f"com.microsoft:{name}"},
            value=body,
        )
        return self.requests.put(encode_sections(request))

    def take(self, *numbers: int) -> asyncio.Future[Any]:
        """Ask for messages by their numbers, to be deleted."""
        return self.ask(
            "receive-by-sequence-number",
            {"sequence-numbers": Array(list(numbers)), "receiver-settle-mode": UInt(0)},
        )

    async def came(self) -> list[bytes]:
        """Return the bodies of the messages in the answers that have come."""
        bodies: list[bytes] = []
        for _ in range(self.answers.waiting):
            value = (await self.answers.receive()).sections.value or {}
            bodies += [decode_sections(one["message"]).data[0][:10].strip() for one in value.get("messages", [])]
        return bodies

    async def deferred(self, other: AmqpClient) -> list[bytes]:
        """Return the bodies of those that are still deferred."""
        found: list[bytes] = []
        for number in self.numbers:
            body = {"sequence-numbers": Array([number]), "receiver-settle-mode": UInt(1)}
            status, answer = await operation(other, "receive-by-sequence-number", body)
            if status == 200:
                found += [decode_sections(one["message"]).data[0][:10].strip() for one in answer["messages"]]
        return found


async def settled(client: AmqpClient) -> None:
    """Return when the gateway has read, and answered, what was said before."""
    await operation(client, "peek-message", {"message-count": Int(1)})


@pytest.mark.parametrize("end", ["detach", "end", "lose"])
@pytest.mark.parametrize("why", ["two at once", "given up", "taken"])
async def test_an_answer_with_messages_waits_for_credit_or_the_next_client(
    port: int, gateway: Gateway, client: AmqpClient, completions: Completions, why: str, end: str
) -> None:
    """Other answers may have used the credit, or the client may have given it up, while they were deleted."""
    async with AmqpClient(port) as going:
        deferred = await Deferred.made(going, 2)
        peer = peer_of(gateway, REQUESTS)
        deferred.answers.grant(1)
        await deferred.requests.until_credit()
        if why == "two at once":
            await asyncio.gather(*map(deferred.take, deferred.numbers))
        else:
            deferred.take(*deferred.numbers)
            await asyncio.wait_for(completions.came.wait(), PATIENCE)
            if why == "taken":
                deferred.ask("peek-message", {"message-count": Int(1)})
                await deferred.answers.receive()
            else:
                await deferred.answers.drain()
        completions.may_go.set()
        while peer.engine.holds:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        if end == "detach":
            await deferred.answers.detach()
        elif end == "end":
            # A handle that no link has ends the session.
            going.say(Flow(next_incoming_id=0, incoming_window=9, outgoing_window=9, handle=999, next_outgoing_id=0))
            await going.until(lambda: deferred.answers.is_detached)
        else:
            going.abort()
            await going.until(lambda: False)
            await let_go(gateway, peer)
        came = await deferred.came()
        left = await deferred.deferred(client)
        assert sorted([*came, *left, *await taken(client)]) == [b"0", b"1"]


@pytest.mark.parametrize("completes_first", [False, True])
async def test_messages_of_a_session_that_is_ended_meanwhile_are_kept(
    client: AmqpClient, namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch, completes_first: bool
) -> None:
    """Deferred, if they were not deleted by then, for the lock of the request lasts; else for the next client."""
    complete: Callable[..., Any] = ServiceBusReceiver.complete_messages
    came, may_go, is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(receiver: ServiceBusReceiver, messages: Any) -> None:
        if completes_first:
            await complete(receiver, messages)
        came.set()
        await may_go.wait()
        try:
            if not completes_first:
                await complete(receiver, messages)
        finally:
            is_over.set()

    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", late)
    async with AmqpClient(client.port) as going:
        deferred = await Deferred.made(going, 2)
        deferred.answers.grant(1)
        deferred.take(*deferred.numbers)
        await asyncio.wait_for(came.wait(), PATIENCE)
        # A handle that no link has ends the session.
        going.say(Flow(next_incoming_id=0, incoming_window=9, outgoing_window=9, handle=999, next_outgoing_id=0))
        await going.until(lambda: deferred.answers.is_detached)
        may_go.set()
        await is_over.wait()
        monkeypatch.undo()
        got = await deferred.came()
        namespace.advance(61)
        left = await deferred.deferred(client)
        assert sorted([*got, *left, *await taken(client)]) == [b"0", b"1"]


async def test_an_answer_that_comes_after_its_client_was_let_go_is_kept(
    gateway: Gateway, client: AmqpClient, completions: Completions
) -> None:
    """The connection was lost while messages were deleted for it, and while its other links were closed."""
    async with AmqpClient(client.port) as lost:
        deferred = await Deferred.made(lost, 1)
        peer = peer_of(gateway, REQUESTS)
        deferred.answers.grant(1)
        deferred.take(*deferred.numbers)
        await asyncio.wait_for(completions.came.wait(), PATIENCE)
        (answers,) = [node for node in peer.links.nodes.values() if isinstance(node, ReplyNode)]
        lost.abort()
        await lost.until(lambda: False)
        while not answers._is_closed:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        completions.may_go.set()
        await let_go(gateway, peer)
    assert await taken(client) == [b"0"]


async def test_an_answer_with_messages_is_sent_whatever_waits(client: AmqpClient, other: AmqpClient) -> None:
    """Other answers that are large wait for another link."""
    deferred = await Deferred.made(client, 4, size=600_000)
    await client.attach(63, receives=True, source=Source("q/$management"), target=Target("others"))
    for _ in range(3):
        assert await deferred.ask("peek-message", {"message-count": Int(4)}, "others") == Accepted()
    await settled(other)
    deferred.answers.grant(1)
    assert await deferred.take(deferred.numbers[0]) == Accepted()
    await client.until(lambda: deferred.answers.waiting == 1)
    assert len(await deferred.came()) == 1


@pytest.mark.parametrize("unknown", [True, False])
async def test_messages_that_may_be_deleted_are_in_the_answer(
    client: AmqpClient, other: AmqpClient, monkeypatch: pytest.MonkeyPatch, unknown: bool
) -> None:
    """Rather twice than never: whether they were deleted is unknown, or some were, and some locks were lost."""
    complete: Callable[..., Any] = ServiceBusReceiver.complete_messages

    async def completed(receiver: ServiceBusReceiver, messages: Any) -> None:
        if unknown:
            await complete(receiver, messages)
            raise ServiceBusConnectionError("no answer")
        # Another client abandons the first message before: its lock is lost.
        body = {"lock-tokens": Array([messages[0].lock_token]), "disposition-status": "abandoned"}
        assert (await operation(other, "update-disposition", body))[0] == 200
        await complete(receiver, messages)

    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", completed)
    deferred = await Deferred.made(client, 2)
    deferred.answers.grant(1)
    assert await deferred.take(*deferred.numbers) == Accepted()
    await client.until(lambda: deferred.answers.waiting == 1)
    came = await deferred.came()
    monkeypatch.undo()
    assert len(came) == (2 if unknown else 1)
    assert sorted([*came, *([] if unknown else await deferred.deferred(other))]) == [b"0", b"1"]


@pytest.mark.parametrize("takes", [False, True])
async def test_deferred_messages_are_had_together_or_not_at_all(
    client: AmqpClient, other: AmqpClient, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """Several at once are asked for; an answer has so many bytes, and those that do not fit stay deferred and unlocked."""
    monkeypatch.setattr(deferred_messages, "RECEIVED_AT_ONCE", 2)
    deferred = await Deferred.made(client, 5, size=1_000)
    mode = {"receiver-settle-mode": UInt(0 if takes else 1)}

    async def asked(*numbers: int) -> tuple[int, Any]:
        return await operation(other, "receive-by-sequence-number", {"sequence-numbers": Array(list(numbers)), **mode})

    monkeypatch.setattr(deferred_messages, "MOST_RECEIVED_BYTES", 4_000)
    assert await asked(*deferred.numbers) == (403, c.RESOURCE_LIMIT_EXCEEDED)
    monkeypatch.setattr(deferred_messages, "MOST_RECEIVED_BYTES", 9_000)
    assert await asked(*deferred.numbers[:3], 1 << 40) == (404, service_bus.MESSAGE_NOT_FOUND)
    status, found = await asked(*deferred.numbers, *deferred.numbers)
    assert (status, len(found["messages"])) == (200, 5)


async def test_deferred_messages_of_sessions_need_their_session(client: AmqpClient) -> None:
    """The request names it."""
    body = {"sequence-numbers": Array([1]), "receiver-settle-mode": UInt(1)}
    assert await operation(client, "receive-by-sequence-number", body, "s") == (400, service_bus.ARGUMENT_ERROR)


async def test_nothing_is_deleted_for_an_answer_that_nobody_takes(client: AmqpClient, other: AmqpClient) -> None:
    """The client has given no credit."""
    deferred = await Deferred.made(client, 1)
    assert await deferred.take(*deferred.numbers) == Accepted()
    await settled(other)
    deferred.answers.grant(1)
    answer = (await deferred.answers.receive()).sections.application_properties
    assert answer["errorCondition"] == c.NOT_ALLOWED
    assert await deferred.deferred(other) == [b"0"]
