"""Bounds of the bytes that a client makes a gateway keep; another client is served at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from types import ModuleType
from typing import Any

import pytest

from kafkabus import ServiceBusReceivedMessage
from kafkabus._async.engine.receiver_engine import ReceiverEngine
from kafkabus._core.fetch_plan import Plan, PlannedClaim
from kafkabus._core.raw_message import SCHEDULED
from kafkabus.gateway.amqp.frames import frame_of
from kafkabus.gateway.amqp.performatives import Accepted, Flow, Released, Source, Target, Transfer
from kafkabus.gateway.sas_tokens import Policies, Policy, Right, UnauthorizedError
from kafkabus.gateway.server import client_load, client_socket, peeking, receivers, requests
from kafkabus.gateway.server import peer as peers
from kafkabus.gateway.server.client_load import ClientLoad
from kafkabus.gateway.server.connection_claims import Claims
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import Int, Symbol
from kafkabus_mapping.secret import Secret
from tests.amqp_client import AmqpClient, Link, LinkError, put_token
from tests.integration.gateway.conversation import become, message, operation, received
from tests.signatures import signature

KEY = "a-key-of-a-test"
PIECE = b"x" * 60_000


async def log_in(client: AmqpClient) -> None:
    """Put a token for a queue."""
    assert await put_token(client, "sb://localhost/q", "all", KEY, 600) == 202


@asynccontextmanager
async def gateway_with(namespace: InMemoryNamespace, **settings: Any) -> AsyncGenerator[tuple[Gateway, int]]:
    """Run a gateway; yield it and its port."""
    async with Gateway(namespace.connection_string, GatewaySettings(**settings)) as gateway:
        yield gateway, await gateway.listen("127.0.0.1", 0)


async def is_served(port: int, entity: str = "q") -> None:
    """Send a message as a client that does everything right."""
    async with AmqpClient(port) as client:
        assert await (await client.sender(entity)).send(message()) == Accepted()


async def claims_link(client: AmqpClient) -> Link:
    """Attach the links for requests to ``$cbs``; give no credit for the answers."""
    await client.attach(51, receives=True, source=Source("$cbs"), target=Target("answers"))
    return await client.attach(50, receives=False, source=Source("here"), target=Target("$cbs"))


def request(name: str) -> bytes:
    """Return a request to ``$cbs`` that has its id sent back."""
    properties = {"message_id": name, "reply_to": "answers"}
    return encode_sections(Sections(properties=properties, application_properties={"operation": "x"}, value="x"))


@pytest.mark.parametrize("window", [None, 0])
async def test_answers_that_nobody_takes_are_dropped(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    """Because there is no credit for them, or because the session takes no frames."""
    monkeypatch.setattr(requests, "MOST_WAITING_BYTES", 200_000)
    async with gateway_with(namespace) as (gateway, port), AmqpClient(port) as client:
        link = await claims_link(client)
        if window is not None:
            flow = Flow(next_incoming_id=0, incoming_window=0, outgoing_window=9, handle=51, delivery_count=0)
            flow.link_credit = 1_000
            client.say(flow)
        [peer] = gateway.commons.clients
        for _ in range(30):
            await link.send(request("m" * 50_000))
        kept = peer.load.answer_bytes + peer.engine.usage.waiting_bytes
        assert 100_000 < kept < 250_000
        await is_served(port)


async def test_a_client_that_does_not_read_is_not_read(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And cut off if it goes on; the questions would have 2 MB of answers, of which the operating system takes little."""
    monkeypatch.setattr(client_socket, "READ_WITHIN", 0.3)
    async with gateway_with(namespace) as (gateway, port), AmqpClient(port) as client:
        [peer] = gateway.commons.clients
        assert peer.socket.transport is not None
        peer.socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 8_192)
        client.pause_reading()
        flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
        for _ in range(50):
            client.raw(1_000 * frame_of(0, flow.encoded()))
        await become(lambda: "unread" in peer.socket.pauses)
        assert gateway.commons.budget.bytes < 500_000
        await is_served(port)
        await become(lambda: peer not in gateway.commons.clients)
        assert gateway.commons.budget.bytes == 0
        client.abort()
        client.closed = LinkError("the test has cut it off")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(client_load, "CARRIED_BYTES", 500_000), (client_load, "CARRIED_SHARE", 0.002), (receivers, "CARRIED_FOR", 0.2)],
)
async def test_a_client_that_does_not_read_keeps_few_messages_from_others(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, value: float
) -> None:
    """Its links give back what they claimed and cannot send, if that is much, or for long."""
    monkeypatch.setattr(module, name, value)
    async with gateway_with(namespace) as (gateway, port), AmqpClient(port) as client:
        sender = await client.sender("q", 50)
        for number in range(60):
            await sender.send(message(b"%d".ljust(200_000) % number))
        async with AmqpClient(port) as stuck:
            links = [await stuck.receiver("q", handle) for handle in range(1, 5)]
            [peer] = [one for one in gateway.commons.clients if len(one.links.nodes) == len(links)]
            assert peer.socket.transport is not None
            for transport, which in ((peer.socket.transport, SO_SNDBUF), (stuck._writer.transport, SO_RCVBUF)):
                transport.get_extra_info("socket").setsockopt(SOL_SOCKET, which, 20_000)
            stuck.pause_reading()
            for link in links:
                link.grant(100)
            await become(lambda: not peer.socket.can_write.is_set())
            # Without the bound, each of the links keeps four.
            assert len({bytes(one.body[:2]) for one in await received(await client.receiver("q", 60), 50)}) == 50
            await become(lambda: peer.load.carried_bytes == 0)
            # Messages that went back count no longer; what the operating system took since it was noted is less than one.
            assert gateway.commons.budget._kept[peer.network][peer][1] < peer.shared_bytes + 200_000
            stuck.abort()
            await stuck.until(lambda: False)
        await become(lambda: len(gateway.commons.clients) == 1)
        assert peer.load.carried_bytes == gateway.commons.carried_bytes == 0


@pytest.fixture
def most_carried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most bytes of claimed messages that any client had at a time; a link may claim about 100,000 bytes at once."""
    monkeypatch.setattr(receivers, "BYTES_AT_ONCE", 100_000)
    carry, most = ClientLoad.carry, [0]

    def note(load: ClientLoad, size: int) -> None:
        carry(load, size)
        most[0] = max(most[0], load.carried_bytes)

    monkeypatch.setattr(ClientLoad, "carry", note)
    return most


@pytest.mark.parametrize("session", [None, "A"])
async def test_large_messages_behind_small_ones_are_claimed_a_few_at_a_time(
    namespace: InMemoryNamespace, most_carried: list[int], session: str | None
) -> None:
    """As many of them as of the small ones would be claimed otherwise. A session stays in order."""
    queue, properties = ("q", {}) if session is None else ("s", {"group_id": session})
    async with gateway_with(namespace) as (_, port), AmqpClient(port) as client:
        sender = await client.sender(queue, 50)
        for number in range(130):
            await sender.send(message(b"%d".ljust(50_000 if number >= 100 else 5) % number, properties=properties))
        filters = None if session is None else {SESSION_FILTER: session}
        link = await client.receiver(queue, 60, filters=filters)
        numbers = [int(one.body[:5]) for one in await received(link, 130)]
        assert numbers == list(range(130)) if session else sorted(numbers) == list(range(130))
    assert 50_000 < most_carried[0] <= 200_000


async def link_and_holder_of_large_messages(
    client: AmqpClient, other: AmqpClient, *, large: int, small: int
) -> tuple[Link, Link]:
    """Return a receiver that settled small messages, and another one, which then gave large messages back."""
    sender = await client.sender("q", 50)
    for number in range(large):
        await sender.send(message(b"%d".ljust(50_000) % number))
    holder = await other.receiver("q", 60)
    held = await received(holder, large)
    for _ in range(small):
        await sender.send(message())
    link = await client.receiver("q", 60)
    for one in await received(link, small):
        await link.settle(one, state=Accepted())
    await holder.settle(*held, state=Released())
    return link, holder


async def test_large_messages_that_come_again_are_claimed_a_few_at_a_time(
    namespace: InMemoryNamespace, most_carried: list[int]
) -> None:
    """Their sizes are not known before; the others go back, and no delivery is counted."""
    async with gateway_with(namespace) as (_, port), AmqpClient(port) as client, AmqpClient(port) as other:
        link, _ = await link_and_holder_of_large_messages(client, other, large=30, small=100)
        most_carried[0] = 0
        again = await received(link, 30)
        assert sorted(int(one.body[:5]) for one in again) == list(range(30))
        assert {one.sections.header["delivery_count"] for one in again} == {0}
    assert 50_000 < most_carried[0] <= 200_000


async def test_messages_that_no_receiver_gets_count_nothing(
    namespace: InMemoryNamespace, most_carried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader goes on behind them at once, instead of looking again and again for what it may claim."""
    claims, calls = Plan.claims, [0]

    def count(*arguments: Any, **options: Any) -> list[PlannedClaim]:
        calls[0] += 1
        return claims(*arguments, **options)

    monkeypatch.setattr(Plan, "claims", count)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    async with gateway_with(namespace) as (_, port), AmqpClient(port) as client:
        sender = await client.sender("q", 50)
        for _ in range(20):
            await sender.send(message(b"x" * 50_000, message_annotations={Symbol(SCHEDULED): due}))
        await sender.send(message(b"live"))
        assert [bytes(one.body) for one in await received(await client.receiver("q", 60))] == [b"live"]
    assert calls[0] < 200
    assert most_carried[0] < 50_000


async def test_messages_go_back_of_a_link_that_ends_meanwhile(
    namespace: InMemoryNamespace, most_carried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it keeps as well as those that are too many, and no delivery is counted."""
    goes_back, may_go = asyncio.Event(), asyncio.Event()
    release = ReceiverEngine.release

    async def wait(engine: ReceiverEngine, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        if messages:
            goes_back.set()
            await may_go.wait()
        await release(engine, messages)

    async with gateway_with(namespace) as (_, port), AmqpClient(port) as client, AmqpClient(port) as other:
        link, holder = await link_and_holder_of_large_messages(client, other, large=20, small=60)
        monkeypatch.setattr(ReceiverEngine, "release", wait)
        link.grant(60)
        await goes_back.wait()
        await link.detach()
        may_go.set()
        again = await received(holder, 20)
        assert {int(one.body[:5]) for one in again} == set(range(20))
        assert {one.sections.header["delivery_count"] for one in again} == {0}


@pytest.mark.parametrize("by_window", [True, False])
async def test_a_browser_that_reads_again_gets_each_message_once(namespace: InMemoryNamespace, by_window: bool) -> None:
    """Nothing that was looked at waits for it while it does not take it."""
    async with gateway_with(namespace) as (gateway, port), AmqpClient(port) as client:
        sender = await client.sender("q", 50)
        for number in range(40):
            await sender.send(message(b"%d".ljust(40_000) % number))
        stuck = AmqpClient(port)
        stuck.window = 2 if by_window else 1_000
        async with stuck:
            source = Source("q", distribution_mode="copy")
            links = [
                await stuck.attach(handle, receives=True, source=source, target=Target("here"))
                for handle in range(1, 5)
            ]
            [peer] = [one for one in gateway.commons.clients if len(one.links.nodes) == len(links)]
            if not by_window:
                stuck.pause_reading()
            for link in links:
                link.grant(100)
            await become(
                lambda: peer.engine.usage.waiting_bytes > 0 if by_window else not peer.socket.can_write.is_set()
            )
            await is_served(port, "t")
            await become(lambda: peer.load.carried_bytes == 0)
            stuck.window = 1_000
            stuck.resume_reading()
            for link in links:
                assert sorted(int(one.body[:9]) for one in await received(link, 40)) == list(range(40))


async def test_messages_that_do_not_end_are_bounded_over_connections(namespace: InMemoryNamespace) -> None:
    """The client that has most is ended; one that has little, at the same address, goes on."""
    async with gateway_with(namespace, address_bytes=1_000_000) as (gateway, port):
        clients = [await AmqpClient(port).__aenter__() for _ in range(8)]
        for client in clients:
            link = await client.sender("q")
            for number in range(5):
                transfer = Transfer(link.handle, 0, b"t", 0, False, more=True)
                client.say(transfer, PIECE if number or client is not clients[0] else b"x")
        await become(lambda: len(gateway.commons.clients) < 8)
        assert gateway.commons.budget.bytes <= 1_000_000
        await is_served(port)
        engines = [peer.engine for peer in gateway.commons.clients]
        assert any(engine.usage.partial_bytes for engine in engines)
        for client in clients:
            client.abort()
        # Not when garbage is collected: a gateway does that rarely.
        await become(lambda: not any(engine.usage.partial_bytes or engine.sessions for engine in engines))
        assert gateway.commons.budget.bytes == 0


async def test_less_is_read_of_each_while_all_wait_for_too_much(namespace: InMemoryNamespace) -> None:
    """A client whose messages are stored is read again."""
    async with gateway_with(namespace, all_held_bytes=10_000_000, held_bytes=9_000_000) as (gateway, port):
        async with AmqpClient(port), AmqpClient(port):
            first, second = gateway.commons.clients
            first.load.hold(8_500_000)
            second.load.hold(1_200_000)
            assert (first.socket.pauses, second.socket.pauses) == (set(), set())
            second.load.hold(400_000)
            assert (first.socket.pauses, second.socket.pauses) == (set(), {"held"})
            second.load.hold(-1_600_000)
            first.load.hold(-8_500_000)
            assert (first.socket.pauses, second.socket.pauses, gateway.commons.held_bytes) == (set(), set(), 0)


async def test_a_peek_is_answered_with_so_many_bytes(client: AmqpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on; a single message comes whatever its size is."""
    monkeypatch.setattr(peeking, "PEEKED_BYTES", 2_500)
    monkeypatch.setattr(peeking, "PEEKED_AT_ONCE", 2)
    sender = await client.sender("q")
    for _ in range(5):
        await sender.send(message("x" * 1_000))
    seen: list[int] = []
    first = 1
    while True:
        body = {"from-sequence-number": first, "message-count": Int(5)}
        status, answer = await operation(client, "peek-message", body)
        if status == 204:
            break
        seen.append(len(answer["messages"]))
        last = decode_sections(answer["messages"][-1]["message"])
        first = last.message_annotations[Symbol("x-opt-sequence-number")] + 1
    assert seen == [3, 2]


async def test_a_token_for_a_long_audience_is_refused(namespace: InMemoryNamespace) -> None:
    """And more of them than a client may have; a claim is kept as long as its connection."""
    claims = Claims(POLICIES, lambda: None)
    token = signature("sb://localhost/q", "all", KEY)
    with pytest.raises(UnauthorizedError, match="2049 and a token of"):
        claims.put("a" * 2_049, token)
    with pytest.raises(UnauthorizedError, match="and a token of 9000"):
        claims.put("sb://localhost/q", "x" * 9_000)

    def put_many() -> None:
        for number in range(1_000):
            claims.put(f"sb://localhost/{number:04}{'a' * 1_500}", token)

    with pytest.raises(UnauthorizedError, match="1000000 characters together"):
        put_many()
    assert claims.has_any
    claims.close()


POLICIES = Policies([Policy("all", (Secret(KEY),), frozenset(Right))])


async def test_a_client_without_a_right_is_closed(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that put a token stays."""
    monkeypatch.setattr(peers, "RIGHT_WITHIN", 0.4)
    async with gateway_with(namespace, policies=POLICIES) as (gateway, port):
        async with AmqpClient(port) as client:
            await log_in(client)
            stranger = await AmqpClient(port).__aenter__()
            await stranger.until(lambda: stranger.closed is not None)
            await become(lambda: len(gateway.commons.clients) == 1)
            assert await (await client.sender("q")).send(message()) == Accepted()
            stranger.abort()


async def test_clients_without_a_right_have_a_share_of_the_connections(namespace: InMemoryNamespace) -> None:
    """The oldest of them end, and those with a right stay, of which there may be more from the same address."""
    async with gateway_with(namespace, policies=POLICIES, connections=8) as (gateway, port):
        clients = [await AmqpClient(port).__aenter__() for _ in range(2)]
        for client in clients:
            await log_in(client)
        strangers = [await AmqpClient(port).__aenter__() for _ in range(10)]
        await become(lambda: len(gateway.commons.clients) == 4)
        for stranger in strangers[:8]:
            await stranger.until(lambda stranger=stranger: stranger.closed is not None)
        for _ in range(4):
            clients.append(await AmqpClient(port).__aenter__())
            await log_in(clients[-1])
        for number, client in enumerate(clients):
            assert await (await client.sender("q", 20 + number)).send(message()) == Accepted()
        for client in clients + strangers:
            client.abort()
