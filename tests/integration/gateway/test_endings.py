"""Ends of links, sessions, connections and gateways: nothing is lost, doubled or locked for a client that is gone."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kafkabus._core.exceptions import ServiceBusConnectionError
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Begin,
    Composite,
    End,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from kafkabus.gateway.server import client_links, receivers
from kafkabus.gateway.server.client_links import OPENED_AT_ONCE
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.gateway.server.undelivered import Deleted, place_of
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import Array, Symbol, UInt
from kafkabus_mapping.names import EntityPath
from tests.amqp_client import PATIENCE, AmqpClient
from tests.integration.gateway.conversation import Gate, become, declared, discharge, left, message, operation

KEY = {Symbol("x-opt-partition-key"): "k"}


async def fill(client: AmqpClient, count: int, size: int = 1) -> None:
    """Send messages to the queue."""
    sender = await client.sender("q", 50)
    await sender.until_credit(count)
    await asyncio.gather(*(sender.put(message(b"%d".ljust(size) % number)) for number in range(count)))
    await sender.detach()


async def test_few_links_of_a_client_are_opened_at_a_time(
    client: AmqpClient, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many would keep the ledgers busy for others. Links that end do not wait behind them: their sessions are free."""
    free, opening = asyncio.Event(), ReceiverNode.open

    async def late(node: ReceiverNode) -> None:
        if node.path.name == "q":
            await free.wait()
        await opening(node)

    monkeypatch.setattr(ReceiverNode, "open", late)
    monkeypatch.setattr(client_links, "LINK_WITHIN", PATIENCE)
    async with AmqpClient(port) as many:
        sender = await many.sender("q", 90)
        holder = await many.receiver("s", 91, filters={SESSION_FILTER: "A"})
        links = [
            many.begin_to_attach(handle, receives=True, source=Source("q"), target=Target("here"))
            for handle in range(OPENED_AT_ONCE)
        ]
        behind = many.begin_to_attach(92, receives=False, source=Source("here"), target=Target("q"))
        assert await sender.send(message()) == Accepted()
        await holder.detach()
        await client.receiver("s", filters={SESSION_FILTER: "A"})
        assert behind.answer is None
        await links[0].detach()
        await many.until(lambda: behind.answer is not None)
        free.set()
        await many.until(lambda: links[-1].answer is not None)


async def test_a_client_is_gone_when_all_its_links_have_ended(
    gateway: Gateway, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that it has detached before: what they hold may be kept for others."""
    free, close = asyncio.Event(), ReceiverNode.close

    async def late(node: ReceiverNode) -> None:
        await free.wait()
        await close(node)

    monkeypatch.setattr(ReceiverNode, "close", late)
    async with AmqpClient(port) as client:
        await (await client.receiver("q")).detach()
    assert len(gateway.commons.clients) == 1
    free.set()
    await become(lambda: not gateway.commons.clients)


class Seen:
    """The performatives that a client got, in their order."""

    def __init__(self, client: AmqpClient) -> None:
        take = client._take
        self.names: list[str] = []

        def note(performative: Composite, payload: bytes) -> None:
            self.names.append(type(performative).__name__)
            take(performative, payload)

        client._take = note  # type: ignore[method-assign]

    def count(self, name: str, *, after: str = "") -> int:
        """Return how many there were of a kind, if need be after another one."""
        return self.names[self.names.index(after) if after else 0 :].count(name)


async def test_a_client_whose_window_is_used_up_has_nothing_deleted(port: int, client: AmqpClient) -> None:
    """Nothing that it could not be sent; when there is room again, it gets the messages."""
    await fill(client, 20)
    narrow = AmqpClient(port)
    narrow.window = 0
    async with narrow:
        link = await narrow.receiver("q", takes=True)
        link.grant(20)
        link.grant(20, echo=True)
        await narrow.until(lambda: link.flowed is not None)
        assert len(await left(client)) == 20
        # For the session, not for the link.
        narrow.say(Flow(next_incoming_id=0, incoming_window=100, outgoing_window=100))
        assert len([await link.receive() for _ in range(20)]) == 20
    assert len(await left(client)) == 0


@pytest.mark.parametrize("takes", [True, False])
async def test_nothing_comes_behind_the_close_of_a_gateway(namespace: InMemoryNamespace, takes: bool) -> None:
    """A client would not look at it: deleted messages would be lost, and others locked."""
    async with Gateway(namespace.connection_string) as first:
        client = AmqpClient(await first.listen("127.0.0.1", 0))
        await client.__aenter__()
        await fill(client, 200)
        link = await client.receiver("q", takes=takes)
        seen = Seen(client)
        for _ in range(5):
            link.grant(1)
            await link.receive()
        link.grant(150)
        stop = asyncio.ensure_future(first.close())
        await client.until(lambda: client.closed is not None)
        await stop
        client.abort()
    assert seen.count("Transfer", after="Close") == 0
    async with (
        Gateway(namespace.connection_string) as second,
        AmqpClient(await second.listen("127.0.0.1", 0)) as looking,
    ):
        assert (seen.count("Transfer") if takes else 0) + len(await left(looking)) == 200


async def test_what_is_under_way_when_a_gateway_stops_is_answered(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would send it again."""
    async with Gateway(namespace.connection_string) as gateway:
        client = AmqpClient(await gateway.listen("127.0.0.1", 0))
        await client.__aenter__()
        sender = await client.sender("q")
        await sender.until_credit()
        gate = Gate(gateway, monkeypatch)
        gate.hold("q")
        outcome = sender.put(message())
        await gate.until_asked("q")
        stop = asyncio.ensure_future(gateway.close())
        while not all(peer.is_ending for peer in gateway.commons.clients):  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0)
        gate.release("q")
        assert await outcome == Accepted()
        await client.until(lambda: client.closed is not None)
        client.abort()
        await stop


async def test_an_answer_of_a_session_that_is_over_does_not_come_in_another_one(
    gateway: Gateway, client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session on the same channel has deliveries with the same numbers."""
    take, ended = client._take, asyncio.Event()

    def without_end(performative: Composite, payload: bytes) -> None:
        if isinstance(performative, End):
            ended.set()
        else:
            take(performative, payload)

    client._take = without_end  # type: ignore[method-assign]
    gate = Gate(gateway, monkeypatch)
    sender, link = await client.sender("q"), await client.coordinator()
    await sender.until_credit()
    name = await declared(link)
    gate.hold("q")
    sender.put(message(message_annotations=KEY), state=TransactionalState(name))
    link.put(discharge(name))
    await gate.until_asked("q")
    client.say(End())
    await asyncio.wait_for(ended.wait(), PATIENCE)
    client._deliveries = itertools.count()
    client.say(Begin(None, 0, client.window, client.window))
    fresh = await client.sender("s", 7)
    await fresh.until_credit(3)
    gate.hold("s")
    outcomes = [fresh.put(message(str(number))) for number in range(3)]
    await gate.until_asked("s")
    gate.release("q")
    (peer,) = gateway.commons.clients
    while peer.transactions.is_known(name):  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)
    assert not any(outcome.done() for outcome in outcomes)
    gate.release("s")
    answers = await asyncio.gather(*outcomes)
    assert [one.error.condition if isinstance(one, Rejected) else one for one in answers] == [c.NOT_ALLOWED] * 3


async def test_a_completion_with_an_unknown_outcome_loses_no_message(
    port: int, gateway: Gateway, client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a client whose connection is lost while Redis does not answer: rather twice than never."""
    await fill(client, 1)
    complete, begun, is_over = ServiceBusReceiver.complete_messages, asyncio.Event(), asyncio.Event()

    async def unknown(receiver: ServiceBusReceiver, *arguments: Any, **options: Any) -> None:
        await complete(receiver, *arguments, **options)
        begun.set()
        await is_over.wait()
        raise ServiceBusConnectionError("Redis did not answer")

    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", unknown)
    async with AmqpClient(port) as gone:
        link = await gone.receiver("q", takes=True)
        link.grant(1)
        await asyncio.wait_for(begun.wait(), PATIENCE)
        (peer,) = [
            one for one in gateway.commons.clients if any(link.attach.name == "link-1" for link in one.links.nodes)
        ]
        gone.abort()
        await gone.until(lambda: False)
    while not peer.socket.is_lost:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)
    is_over.set()
    monkeypatch.undo()
    while peer in gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.01)
    heir = await client.receiver("q", takes=True)
    heir.grant(1)
    assert (await heir.receive()).body == b"0"


async def test_a_detach_does_not_wait_for_other_links(port: int, client: AmqpClient) -> None:
    """Although messages are completed for others of the connection all the time. It takes a second to keep these busy."""
    async with AmqpClient(port) as busy:
        links = [await busy.receiver("q", handle, takes=True) for handle in range(10, 20)]
        for link in links:
            link.grant(1_000_000)
        sender, is_over = await client.sender("q"), asyncio.Event()

        async def feed() -> None:
            while not is_over.is_set():
                await sender.until_credit(50)
                await asyncio.gather(*(sender.put(message()) for _ in range(50)))

        feeding = asyncio.ensure_future(feed())
        try:
            await links[0].receive()
            for _ in range(3):
                idle = await busy.receiver("t/Subscriptions/all", 5)
                await asyncio.wait_for(idle.detach(), PATIENCE)
        finally:
            is_over.set()
            await feeding


async def test_a_browser_whose_window_is_used_up_makes_the_gateway_keep_little(
    port: int, gateway: Gateway, client: AmqpClient
) -> None:
    """About as much as it looks at at once."""
    await fill(client, 60, size=100_000)
    narrow = AmqpClient(port)
    narrow.window = 0
    async with narrow:
        source = Source("q", distribution_mode="copy")
        link = await narrow.attach(1, receives=True, source=source, target=Target("here"))
        (peer,) = [
            one for one in gateway.commons.clients if any(link.attach.name == "link-1" for link in one.links.nodes)
        ]
        link.grant(1_000)
        while not peer.engine.usage.waiting_bytes:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        await left(client)
        assert peer.engine.usage.waiting_bytes < 2_000_000


async def test_frames_of_a_link_that_is_gone_go_to_no_other_link(port: int, client: AmqpClient) -> None:
    """They waited for the session's window, and another link has the handle by then."""
    await fill(client, 10)
    await (await client.sender("t")).send(message("of t"))
    narrow = AmqpClient(port)
    narrow.window = 2
    async with narrow:
        link = await narrow.receiver("q", 3)
        link.grant(10)
        await narrow.until(lambda: link.waiting == 2)
        await link.detach()
        other = await narrow.receiver("t/Subscriptions/all", 3, name="another")
        narrow.window = 1_000
        other.grant(1)
        assert (await other.receive()).body == b"of t"


async def test_credit_is_given_up_behind_the_messages_that_used_it(
    port: int, client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client takes no more messages then."""
    # On a busy machine, those that are there may take longer than a client waits.
    monkeypatch.setattr(receivers, "DRAIN_WAIT", PATIENCE)
    await fill(client, 10)
    narrow = AmqpClient(port)
    narrow.window = 2
    async with narrow:
        link = await narrow.receiver("q", 3)
        link.grant(10, drain=True)
        await narrow.until(lambda: link.waiting == 2)
        assert link.flowed is None
        narrow.say(Flow(next_incoming_id=narrow.next_incoming, incoming_window=1_000, outgoing_window=1_000))
        await narrow.until(lambda: link.flowed is not None)
        assert link.waiting == 10


async def test_deferred_messages_are_deleted_for_an_answer_that_is_taken(client: AmqpClient, other: AmqpClient) -> None:
    """Not if the link for answers is gone by then, or has no credit."""
    await fill(client, 1)
    receiver = await client.receiver("q")
    receiver.grant(1)
    came = await receiver.receive()
    number = came.sections.message_annotations["x-opt-sequence-number"]
    await receiver.settle(came, state=Modified(True, True))
    await client.attach(61, receives=True, source=Source("q/$management"), target=Target("answers"))
    requests = await client.sender("q/$management", 60)
    body = {"sequence-numbers": Array([number]), "receiver-settle-mode": UInt(0)}
    request = Sections(
        properties={"message_id": "m", "reply_to": "answers"},
        application_properties={"operation": "com.microsoft:receive-by-sequence-number"},
        value=body,
    )
    assert await requests.send(encode_sections(request)) == Accepted()
    await requests.detach()
    status, found = await operation(other, "receive-by-sequence-number", body)
    assert (status, len(found["messages"])) == (200, 1)
    assert len(await left(client)) == 0


async def test_kept_messages_wait_for_the_window_of_the_next_client(
    port: int, gateway: Gateway, client: AmqpClient
) -> None:
    """They were deleted for a client that was lost; nothing of them waits behind a window, to go with its link."""
    gateway.commons.undelivered.put(
        Deleted(place_of(await gateway.namespace.entity(EntityPath("q"))), None, [message("kept")])
    )
    narrow = AmqpClient(port)
    narrow.window = 0
    async with narrow:
        link = await narrow.receiver("q", takes=True)
        link.grant(5, echo=True)
        await narrow.until(lambda: link.flowed is not None)
        await link.detach()
    heir = await client.receiver("q", takes=True)
    heir.grant(1)
    assert (await heir.receive()).body == b"kept"
