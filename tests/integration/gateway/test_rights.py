"""Rights of the gateway's clients: by which tokens and logins they get them, what each opens, and how they end."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from kafkabus.gateway import attempts
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.performatives import Accepted, Close, Declare, Declared, ErrorCondition, Source, Target
from kafkabus.gateway.sas_tokens import Policies, Policy, Right
from kafkabus.gateway.server import connection_claims, rights
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.logins import MECHANISMS
from kafkabus.gateway.server.management import ManagementNode
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import Array, Int, Symbol
from kafkabus_mapping.secret import Secret
from tests import amqp_client
from tests.amqp_client import AmqpClient, Link, LinkError
from tests.signatures import signature

KEY, SECOND = "a-key-of-a-test", "the-second-key-of-a-test"
MANAGE = frozenset(Right)


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace with queues, and a topic with a subscription; one of each has sessions."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_queue("q")
        administration.create_queue("other")
        administration.create_queue("s", requires_session=True)
        administration.create_topic("t")
        administration.create_subscription("t", "all", requires_session=True)
        yield namespace


@pytest.fixture
async def gateway(namespace: InMemoryNamespace) -> AsyncIterator[Gateway]:
    """A gateway that checks keys."""
    keys = (Secret(KEY),)
    policies = Policies(
        [
            Policy("root", (Secret(KEY), Secret(SECOND)), MANAGE),
            Policy("send", keys, frozenset({Right.SEND})),
            Policy("receive", keys, frozenset({Right.LISTEN})),
            Policy("listen", keys, frozenset({Right.LISTEN}), "q"),
        ]
    )
    async with Gateway(namespace.connection_string, GatewaySettings(policies=policies)) as gateway:
        yield gateway


@pytest.fixture
async def port(gateway: Gateway) -> int:
    """Its port."""
    return await gateway.listen("127.0.0.1", 0)


@pytest.fixture
async def client(port: int) -> AsyncIterator[AmqpClient]:
    """A client without any right yet."""
    async with AmqpClient(port) as client:
        yield client


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that claims go by, which the test sets; they are looked at every few milliseconds."""
    clock = SimpleNamespace(now=time.time())
    clock.time = lambda: clock.now
    monkeypatch.setattr(connection_claims, "time", clock)
    monkeypatch.setattr(connection_claims, "LONGEST_TIMER", 0.005)
    return clock


def signed(entity: str, policy: str, key: str = KEY, lasts: float = 600.0) -> str:
    """Return a shared access signature."""
    return signature(f"sb://localhost/{entity}", policy, key, lasts)


async def put(client: AmqpClient, token: str, entity: str = "q", *, audience: str | None = None) -> int:
    """Put a token; return the status."""
    return await amqp_client.put(client, f"sb://localhost/{entity}" if audience is None else audience, token)


def plain(port: int, name: str, key: str, identity: str = "") -> AmqpClient:
    """Return a client that logs in by SASL PLAIN."""
    return AmqpClient(port, login=("PLAIN", f"{identity}\0{name}\0{key}".encode()))


@asynccontextmanager
async def granting(namespace: InMemoryNamespace, granted: Collection[Right]) -> AsyncGenerator[AmqpClient]:
    """Open a client of a gateway whose policy ``some`` grants rights; it has no token yet."""
    settings = GatewaySettings(policies=Policies([Policy("some", (Secret(KEY),), frozenset(granted))]))
    async with Gateway(namespace.connection_string, settings) as gateway:
        async with AmqpClient(await gateway.listen("127.0.0.1", 0)) as client:
            yield client


def message(body: str = "hi", **sections: Any) -> bytes:
    """Return an encoded message."""
    return encode_sections(Sections(data=[body.encode()], **sections))


async def received(link: Link) -> bytes:
    """Return the body of the next message of a link."""
    link.grant(1)
    return (await link.receive()).body


async def lost(link: Link, client: AmqpClient) -> str:
    """Wait until a link was detached because a right is missing; return the words."""
    await client.until(lambda: link.is_detached)
    with pytest.raises(LinkError) as caught:
        link.check()
    assert caught.value.condition == c.UNAUTHORIZED_ACCESS
    return str(caught.value)


# Operations and links.

OPERATIONS = {
    "peek-message": {Right.LISTEN},
    "receive-by-sequence-number": {Right.LISTEN},
    "renew-lock": {Right.LISTEN},
    "renew-session-lock": {Right.LISTEN},
    "update-disposition": {Right.LISTEN},
    "batch-delete-messages": {Right.LISTEN},
    "get-session-state": {Right.LISTEN},
    "set-session-state": {Right.LISTEN},
    "get-message-sessions": {Right.LISTEN},
    "schedule-message": {Right.SEND},
    "cancel-scheduled-message": {Right.SEND},
    "enumerate-rules": {Right.LISTEN, Right.MANAGE},
    "add-rule": {Right.MANAGE},
    "remove-rule": {Right.MANAGE},
}
"""The operations of ``$management``, and the rights of which each needs one, as the documentation says."""


@pytest.mark.parametrize(
    "granted",
    [{Right.SEND}, {Right.LISTEN}, {Right.SEND, Right.LISTEN}, MANAGE],
    ids=["Send", "Listen", "Send and Listen", "Manage"],
)
async def test_each_operation_needs_its_right(namespace: InMemoryNamespace, granted: set[Right]) -> None:
    """A refused one is answered with 401, an unknown one with 501, whatever the rights; the link stays."""
    async with granting(namespace, granted) as client:
        await put(client, signed("t", "some"), "t")
        for operation in [*OPERATIONS, "unheard-of"]:
            answer = await client.ask(
                "t/Subscriptions/all/$management", {}, {"operation": f"com.microsoft:{operation}"}
            )
            told = answer.application_properties
            if operation not in OPERATIONS:
                assert told["statusCode"] == 501
            elif OPERATIONS[operation] & granted:
                assert told["statusCode"] not in {401, 500}, told
            else:
                assert (told["statusCode"], told["errorCondition"]) == (401, c.UNAUTHORIZED_ACCESS), operation
                assert "claim is required" in told["statusDescription"]


async def test_the_table_has_each_operation(gateway: Gateway, port: int) -> None:
    """One that it lacks would be refused to all; one too many would be a mistake of spelling."""
    async with plain(port, "root", KEY) as client:
        await client.sender("q/$management")
        (peer,) = gateway.commons.clients
        (node,) = peer.links.nodes.values()
        assert isinstance(node, ManagementNode)
        assert node._operations.keys() == rights.OPERATIONS.keys() == OPERATIONS.keys()


async def test_a_refused_operation_does_nothing(port: int, client: AmqpClient) -> None:
    """A queue of a client that may only send keeps its messages and its secrets."""
    await put(client, signed("q", "send"))
    await (await client.sender("q", 3)).send(message("secret"))
    for operation, body in (("peek-message", {"message-count": 1}), ("batch-delete-messages", {"message-count": 1})):
        answer = await client.ask("q/$management", body, {"operation": f"com.microsoft:{operation}"})
        assert (answer.application_properties["statusCode"], answer.value) == (401, None)
    async with AmqpClient(port) as other:
        await put(other, signed("q", "listen"))
        assert await received(await other.receiver("q")) == b"secret"


SCHEDULED = message(
    message_annotations={Symbol("x-opt-scheduled-enqueue-time"): datetime(9999, 1, 1, tzinfo=timezone.utc)}
)


@pytest.mark.parametrize("sub_queue", ["$deadletterqueue", "$Transfer/$DeadLetterQueue"])
@pytest.mark.parametrize(
    ("operation", "entity", "body"),
    [
        ("schedule-message", "q", {"messages": [{"message": SCHEDULED}]}),
        ("cancel-scheduled-message", "q", {"sequence-numbers": Array([1])}),
        ("get-message-sessions", "s", {"last-updated-time": datetime.max.replace(tzinfo=timezone.utc)}),
        ("enumerate-rules", "t/Subscriptions/all", {}),
        (
            "add-rule",
            "t/Subscriptions/all",
            {"rule-name": "new", "rule-description": {"sql-filter": {"expression": "1=1"}}},
        ),
        ("remove-rule", "t/Subscriptions/all", {"rule-name": "$Default"}),
    ],
)
async def test_what_a_dead_letter_queue_has_not_is_not_its_entitys(
    port: int, operation: str, entity: str, body: Any, sub_queue: str
) -> None:
    """A right may be for the dead-letter queue alone."""
    async with plain(port, "root", KEY) as client:
        options = {"operation": f"com.microsoft:{operation}"}
        refused = await client.ask(f"{entity}/{sub_queue}/$management", body, options)
        told = refused.application_properties
        assert (told["statusCode"], told["errorCondition"]) == (400, c.NOT_ALLOWED), told
        with pytest.raises(LinkError):
            await client.sender(f"{entity}/{sub_queue}", 3)
        # Nothing was done: the entity takes the same request.
        if operation == "schedule-message":
            peeked = await client.ask(
                "q/$management", {"message-count": Int(9)}, {"operation": "com.microsoft:peek-message"}
            )
            assert peeked.application_properties["statusCode"] == 204
        elif operation != "cancel-scheduled-message":
            done = await client.ask(f"{entity}/$management", body, options, base=110)
            assert done.application_properties["statusCode"] in {200, 204}


@pytest.mark.parametrize(
    ("granted", "opened"),
    [
        (set[Right](), set[str]()),
        ({Right.SEND}, {"sender", "management", "coordinator"}),
        ({Right.LISTEN}, {"receiver", "management", "coordinator"}),
        (MANAGE, {"sender", "receiver", "management", "coordinator"}),
    ],
    ids=["none", "Send", "Listen", "Manage"],
)
async def test_each_link_needs_its_right(namespace: InMemoryNamespace, granted: set[Right], opened: set[str]) -> None:
    """Links to ``$management`` open with any right, for each request needs its own."""
    async with granting(namespace, granted) as client:
        if granted:
            await put(client, signed("q", "some"))
        attach: dict[str, Callable[[], Awaitable[Link]]] = {
            "sender": lambda: client.sender("q", 1),
            "receiver": lambda: client.receiver("q", 2),
            "management": lambda: client.sender("q/$management", 3),
            "coordinator": lambda: client.coordinator(4),
        }
        for name, try_it in attach.items():
            if name in opened:
                await try_it()
                continue
            with pytest.raises(LinkError) as caught:
                await try_it()
            assert caught.value.condition == c.UNAUTHORIZED_ACCESS


async def test_claims_are_checked_if_there_are_policies(client: AmqpClient) -> None:
    """A link is refused without the right for its entity; the words of the token and its audience do not matter."""
    assert await put(client, signed("q", "send", "another key")) == 401
    assert await put(client, "rubbish") == 401
    assert await put(client, signed("q", "send")) == 202
    assert await (await client.sender("q", 3)).send(message()) == Accepted()
    with pytest.raises(LinkError):
        await client.receiver("q", 4)
    assert await put(client, signed("q", "listen"), "q/x") == 202
    assert await received(await client.receiver("q", 5)) == b"hi"
    with pytest.raises(LinkError):
        await client.receiver("t/Subscriptions/all", 6)


@pytest.mark.parametrize("audience", ["q", "q/", "", "sb:q", "sb%3A%2F%2Flocalhost%2Fq", "sb://localhost//q"])
async def test_a_token_is_put_for_an_audience_that_is_understood(client: AmqpClient, audience: str) -> None:
    """Otherwise it opens nothing."""
    assert await put(client, signed("", "root"), audience=audience) == 401
    with pytest.raises(LinkError):
        await client.sender("q", 3)


# Claims that end.


async def test_links_end_with_their_claims(client: AmqpClient, clock: SimpleNamespace) -> None:
    """Each at its time; the coordinator's with the last of them. The error names the reason."""
    await put(client, signed("q", "send", lasts=100), "q")
    await put(client, signed("other", "send", lasts=200), "other")
    first, second = await client.sender("q", 3), await client.sender("other", 4)
    coordinator = await client.coordinator(5)
    clock.now += 101
    assert "ExpiredToken" in await lost(first, client)
    assert isinstance(await coordinator.send(encode_sections(Sections(value=Declare().described()))), Declared)
    assert await second.send(message()) == Accepted()
    clock.now += 100
    assert "ExpiredToken" in await lost(second, client)
    await lost(coordinator, client)
    with pytest.raises(LinkError, match="no claim was put"):
        await client.sender("q", 6)


async def test_a_renewed_claim_keeps_links(client: AmqpClient, clock: SimpleNamespace) -> None:
    """Clients put another token before the end of the first."""
    await put(client, signed("q", "send", lasts=100))
    sender = await client.sender("q", 3)
    clock.now += 90
    await put(client, signed("q", "send", lasts=200))
    clock.now += 90
    assert await sender.send(message()) == Accepted()


async def test_a_weaker_claim_detaches_the_links_that_it_does_not_allow(client: AmqpClient) -> None:
    """Others stay: those that it allows, and those of another audience."""
    await put(client, signed("", "root"), "q")
    await put(client, signed("other", "send"), "other")
    sender, receiver, other = (
        await client.sender("q", 3),
        await client.receiver("q", 4),
        await client.sender("other", 5),
    )
    assert await put(client, signed("q", "send"), "q") == 202
    assert "Listen claim is required" in await lost(receiver, client)
    assert await sender.send(message()) == await other.send(message()) == Accepted()
    # A token that is refused replaces nothing.
    assert await put(client, signed("q", "root", "another key"), "q") == 401
    assert await sender.send(message()) == Accepted()
    answer = await client.ask("q/$management", {}, {"operation": "com.microsoft:peek-message"})
    assert answer.application_properties["statusCode"] == 401


@pytest.mark.parametrize("how", ["ended", "replaced"])
async def test_a_link_that_opens_after_its_claim_is_detached(port: int, clock: SimpleNamespace, how: str) -> None:
    """A client that waits for a session gets nothing of it, and leaves it to others."""
    async with AmqpClient(port) as waiting, plain(port, "root", KEY) as other:
        await put(waiting, signed("s", "receive", lasts=100), "s")
        wanted = Source("s", filter={SESSION_FILTER: None})
        attached = waiting.begin_to_attach(1, receives=True, source=wanted, target=Target("here"))
        # The answer comes after the link was looked at.
        await put(waiting, signed("q", "listen"), "q")
        if how == "ended":
            clock.now += 101
        else:
            await put(waiting, signed("s", "send"), "s")
        await (await other.sender("s", 3)).send(message(properties={"group_id": "A"}))
        await lost(attached, waiting)
        assert attached.waiting == 0
        assert await received(await other.receiver("s", 4, filters={SESSION_FILTER: "A"})) == b"hi"


# Logs.


async def test_names_of_clients_forge_no_lines(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Containers, programs, links, entities and errors: each is a value, which ends neither its line nor the screen."""
    caplog.set_level(logging.INFO, "kafkabus.gateway")
    forged = "x peer=10.0.0.1\r\n1970-01-01T00:00:00.000Z INFO kafkabus.gateway: \x1b[2J\u2028" + "y" * 1_000
    opening = {"container_id": forged, "properties": {Symbol("user-agent"): forged}}
    async with AmqpClient(port, opening=opening) as client:
        with pytest.raises(LinkError):
            await client.sender(f"q/{forged}", 3, name=forged)
        client.say(Close(ErrorCondition(Symbol(forged[:50]), forged)))
        await client.until(lambda: client.closed is not None)
    lines = [one.getMessage() for one in caplog.records if one.name == "kafkabus.gateway"]
    events = {line.partition(" ")[0]: line for line in lines}
    assert {"connection_opened", "link_refused", "connection_closed"} <= events.keys()
    for line in lines:
        assert line.isprintable(), line
        assert len(line) < 1_000
    assert ' container="x peer=10' in events["connection_opened"]
    assert ' client="x peer=10' in events["connection_opened"]
    assert ' link="x peer=10' in events["link_refused"]


# Logins.


@pytest.mark.parametrize(("key", "identity"), [(KEY, ""), (SECOND, ""), (KEY, "root")])
async def test_a_policy_s_name_and_key_log_in(port: int, key: str, identity: str) -> None:
    """No token is put then."""
    async with plain(port, "root", key, identity) as client:
        assert client.mechanisms == ["MSSBCBS", "PLAIN", "ANONYMOUS"]
        assert await (await client.sender("q", 3)).send(message()) == Accepted()
        assert await received(await client.receiver("q", 4)) == b"hi"


@pytest.mark.parametrize(
    "response",
    [
        f"\0root\0{KEY}x",
        f"\0root\0{KEY[:-1]}",
        "\0root\0",
        f"\0nobody\0{KEY}",
        f"\0{KEY}\0root",
        f"listen\0root\0{KEY}",
        f"root\0{KEY}",
        f"\0root\0{KEY}\0",
        "\0\0",
        "",
        "\udcff",
    ],
)
async def test_a_wrong_key_does_not_log_in(port: int, response: str, caplog: pytest.LogCaptureFixture) -> None:
    """SASL fails, and the connection is closed; the log shows no key, also if it was given as the name."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(LinkError, match="SASL: 1"):
        async with AmqpClient(port, login=("PLAIN", response.encode(errors="surrogateescape"))):
            pass
    assert "SASL PLAIN" in caplog.text
    assert KEY[:-1] not in caplog.text


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS"])
async def test_other_logins_give_no_right(port: int, mechanism: str) -> None:
    """Azure's SDKs use them, and put tokens; what they say of policies and keys does not matter."""
    async with AmqpClient(port, login=(mechanism, f"\0root\0{KEY}".encode())) as client:
        with pytest.raises(LinkError, match="no claim was put"):
            await client.sender("q", 3)
        await put(client, signed("q", "send"))
        await client.sender("q", 4)


async def test_a_mechanism_that_is_not_offered_is_refused(port: int) -> None:
    """The gateway asks for no certificates."""
    with pytest.raises(LinkError, match="SASL: 1"):
        async with AmqpClient(port, login=("EXTERNAL", b"")):
            pass


async def test_a_login_gives_what_its_policy_grants(port: int) -> None:
    """And nothing else."""
    async with plain(port, "listen", KEY) as client:
        await client.receiver("q", 3)
        for wanted in (client.sender("q", 4), client.receiver("other", 5)):
            with pytest.raises(LinkError) as caught:
                await wanted
            assert caught.value.condition == c.UNAUTHORIZED_ACCESS


async def test_tokens_add_to_a_login(port: int, clock: SimpleNamespace) -> None:
    """A weaker one does not narrow it, and the end of one leaves it as it was."""
    async with plain(port, "receive", KEY) as client:
        receiver = await client.receiver("q", 3)
        await put(client, signed("", "root", lasts=100), "q")
        sender = await client.sender("q", 4)
        assert await put(client, signed("q", "send", lasts=100), "q") == 202
        assert await sender.send(message()) == Accepted()
        clock.now += 101
        await lost(sender, client)
        assert await received(receiver) == b"hi"
        await client.receiver("other", 5)


async def test_logins_with_wrong_keys_are_limited(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Then the address has to wait, also with the right key, and may try again later; connections that are open stay."""
    caplog.set_level(logging.DEBUG)
    async with plain(port, "send", KEY) as before:
        for number in range(attempts.MOST_OF_POLICY - 1):
            with pytest.raises(LinkError, match="SASL: 1"):
                await plain(port, "send", f"guess-{number}").__aenter__()
        async with AmqpClient(port) as client:
            assert await put(client, signed("q", "send", "another guess")) == 401
            assert await put(client, signed("q", "send")) == 503
            assert await put(client, signed("q", "listen")) == 202
        with pytest.raises(LinkError, match="SASL: 4"):
            await plain(port, "send", KEY).__aenter__()
        assert await (await before.sender("q", 3)).send(message()) == Accepted()
    assert "guess" not in caplog.text


async def test_without_policies_every_login_passes(namespace: InMemoryNamespace) -> None:
    """Keys are carried, and not checked."""
    async with Gateway(namespace.connection_string) as open_to_all:
        port = await open_to_all.listen("127.0.0.1", 0)
        for login in (("PLAIN", b"\0any\0key"), ("PLAIN", b"rubbish"), ("EXTERNAL", b""), ("ANONYMOUS", b"x")):
            async with AmqpClient(port, login=login) as client:
                assert client.mechanisms == list(MECHANISMS)
                await client.sender("q", 3)
                await put(client, "rubbish", audience="")
                await client.coordinator(4)
                answer = await client.ask("q/$management", {}, {"operation": "com.microsoft:peek-message"})
                assert answer.application_properties["statusCode"] == 204
