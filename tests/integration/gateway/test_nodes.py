"""The gateway's nodes, as a client of AMQP sees them: what Azure's SDKs rely on, and what they never do."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus._async.engine.message_settler import MessageSettler
from kafkabus._async.receiving.log_reader import LogReader
from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._core.exceptions import ServiceBusConnectionError
from kafkabus._core.message import batch_of
from kafkabus._core.settlement import SettlementBatch
from kafkabus._runtime.turns import FairLock
from kafkabus.aio import ServiceBusReceiver, ServiceBusSender
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Detach,
    Disposition,
    ErrorCondition,
    Modified,
    Rejected,
    Released,
    Transfer,
)
from kafkabus.gateway.server import client_socket, management
from kafkabus.gateway.server import scheduling as schedules
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.receivers import LOCKED_UNTIL, ReceiverNode
from kafkabus.gateway.server.service_bus_conditions import TIMEOUT
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.management import CorrelationRuleFilter, ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import (
    Array,
    Byte,
    Char,
    DecimalBits,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
)
from kafkabus_mapping.amqp_values import TIMESPAN
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import LockToken
from tests.amqp_client import PATIENCE, AmqpClient, Delivered, Link, LinkError
from tests.integration.gateway.conversation import MANAGEMENT, become, message, operation, received

# Sending.


async def test_a_message_is_accepted_when_it_is_stored(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """The queue counts it then."""
    sender = await client.sender("q")
    assert sender.answer is not None
    assert sender.answer.max_message_size == 1_048_576
    assert await sender.send(message()) == Accepted()
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        assert administration.get_queue_runtime_properties("q").active_message_count == 1


async def test_many_messages_under_way_are_all_stored_in_order(client: AmqpClient) -> None:
    """Each is answered separately, and those of one key keep their order."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    key = {Symbol("x-opt-partition-key"): "k"}
    await client.until(lambda: sender.credit > 0)
    outcomes = [sender.put(message(str(number), message_annotations=key)) for number in range(200)]
    assert set(map(type, await asyncio.gather(*outcomes))) == {Accepted}
    assert [one.body for one in await received(receiver, 200)] == [b"%d" % number for number in range(200)]


async def test_a_batch_is_several_messages(client: AmqpClient) -> None:
    """They are stored together; what surrounds them is ignored."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    pieces = [message(str(number), properties={"message_id": f"m{number}"}) for number in range(3)]
    batch = encode_sections(Sections(properties={"message_id": "m0"}, data=pieces))
    assert await sender.send(batch, message_format=BATCH_FORMAT) == Accepted()
    assert [one.sections.properties["message_id"] for one in await received(receiver, 3)] == ["m0", "m1", "m2"]


@pytest.mark.parametrize(
    ("payload", "message_format", "condition"),
    [
        (b"\x00\x53\x75\xa0\x05x", 0, service_bus.ARGUMENT_ERROR),
        (b"\x00\x53\x75\x40", 0, service_bus.ARGUMENT_ERROR),
        (b"", BATCH_FORMAT, service_bus.ARGUMENT_ERROR),
        (encode_sections(Sections(data=[b"\x01"])), BATCH_FORMAT, service_bus.ARGUMENT_ERROR),
        (message(properties={"message_id": "x" * 129}), 0, service_bus.ARGUMENT_ERROR),
        (
            message(properties={"group_id": "a"}, message_annotations={"x-opt-partition-key": "b"}),
            0,
            service_bus.ARGUMENT_ERROR,
        ),
        (message(message_annotations={"x-opt-scheduled-enqueue-time": "soon"}), 0, service_bus.ARGUMENT_ERROR),
        (message(application_properties={"x": [1]}), 0, service_bus.ARGUMENT_ERROR),
        (message(b"x" * 1_048_576), 0, c.MESSAGE_SIZE_EXCEEDED),
        (message(b"x" * 2_000_000), 0, c.MESSAGE_SIZE_EXCEEDED),
    ],
)
async def test_a_message_that_breaks_a_rule_is_rejected(
    client: AmqpClient, payload: bytes, message_format: int, condition: str
) -> None:
    """Those around it are stored, and the link stays."""
    sender = await client.sender("q")
    await client.until(lambda: sender.credit > 0)
    outcomes = [sender.put(message()), sender.put(payload, message_format=message_format), sender.put(message())]
    before, outcome, after = await asyncio.gather(*outcomes)
    assert before == after == Accepted()
    assert isinstance(outcome, Rejected)
    assert outcome.error.condition == condition


async def test_a_message_that_an_entity_refuses_does_not_spoil_others(client: AmqpClient) -> None:
    """A queue with sessions takes no message without one."""
    sender = await client.sender("s")
    await client.until(lambda: sender.credit > 0)
    payloads = [message(properties={"group_id": "A"}), message(), message(properties={"group_id": "A"})]
    first, second, third = await asyncio.gather(*map(sender.put, payloads))
    assert first == third == Accepted()
    assert second.error.condition == c.NOT_ALLOWED


async def test_messages_that_are_stored_are_accepted_whatever_becomes_of_their_neighbours(
    client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway stores those of a link together; their client would send again what was stored."""
    send = ServiceBusSender.send_messages

    async def send_but_one(sender: ServiceBusSender, batch: Any, **options: Any) -> None:
        messages = batch._messages
        stored = [one for one in messages if one.value != b"refused"]
        await send(sender, batch_of(stored), **options)
        if len(stored) < len(messages):
            error = ServiceBusConnectionError("a partition is unavailable")
            error._unstored = frozenset(at for at, one in enumerate(messages) if one.value == b"refused")
            raise error

    monkeypatch.setattr(ServiceBusSender, "send_messages", send_but_one)
    sender = await client.sender("q")
    await sender.until_credit(9)
    outcomes = await asyncio.gather(*(sender.put(message(b"refused" if number == 4 else b"x")) for number in range(9)))
    assert [isinstance(outcome, Rejected) for outcome in outcomes] == [number == 4 for number in range(9)]


@pytest.mark.parametrize("address", ["nope", "t/Subscriptions/nope", "q/no/such", "", "q//x", "nope/$management"])
@pytest.mark.parametrize("receives", [False, True])
async def test_an_unknown_entity_is_refused_in_the_words_that_clients_know(
    client: AmqpClient, address: str, receives: bool
) -> None:
    """The link is attached to nothing, and detached."""
    condition = c.NOT_ALLOWED if "Subscriptions" in address and not receives else c.NOT_FOUND
    if receives and address.endswith(MANAGEMENT):
        return
    with pytest.raises(LinkError) as caught:
        await (client.receiver(address) if receives else client.sender(address))
    assert caught.value.condition == condition
    if condition == c.NOT_FOUND:
        assert "The messaging entity '" in str(caught.value)
        assert "' could not be found" in str(caught.value)


async def test_nothing_is_sent_to_a_sub_queue_and_nothing_is_received_from_a_topic(client: AmqpClient) -> None:
    """Both are refused, as on the service."""
    for refused in (client.sender("q/$DeadLetterQueue"), client.receiver("t"), client.sender("t/Subscriptions/all")):
        with pytest.raises(LinkError) as caught:
            await refused
        assert caught.value.condition == c.NOT_ALLOWED


@pytest.mark.parametrize("address", ["amqps://host:5671/q", "/q", "Q", "sb://host/q"])
async def test_an_address_may_be_written_in_several_ways(client: AmqpClient, address: str) -> None:
    """All mean the same queue, and come back as they were."""
    sender, receiver = await client.sender("q"), await client.receiver(address)
    assert receiver.answer is not None
    assert receiver.answer.source.address == address
    await sender.send(message(b"hello"))
    assert [one.body for one in await received(receiver)] == [b"hello"]


# Values.


TYPED = {
    "none": None,
    "true": True,
    "ubyte": UByte(200),
    "ushort": UShort(60_000),
    "uint": UInt(4_000_000_000),
    "ulong": ULong(1 << 63),
    "byte": Byte(-5),
    "short": Short(-500),
    "int": Int(-70_000),
    "long": -(1 << 40),
    "float": Float(1.5),
    "double": 0.1,
    "decimal": DecimalBits(b"\x22\x50\x00\x05"),
    "char": Char("ü"),
    "time": datetime(2026, 1, 31, 12, 0, 0, 1_000, timezone.utc),
    "uuid": uuid.UUID(int=5),
    "binary": b"\x00\xff",
    "text": "tëxt",
    "symbol": Symbol("sym"),
    "span": Described(Symbol("com.microsoft:timespan"), 15),
}
"""A value of each type that an application property may have."""
BODIES: list[dict[str, Any]] = [
    {"data": [b"\x00\xff"]},
    {"data": [b""]},
    {"value": None},
    {"value": "text"},
    {"value": Int(5)},
    {"value": {"a": [UByte(1), Symbol("s")], Symbol("b"): Array((UInt(1), UInt(2)))}},
    {"value": Described(ULong(7), [Short(1), None])},
    {"sequences": [[1, "two", Float(3.0)], [None]]},
]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, their types as well."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same([*one.items()], [*other.items()])
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("body", BODIES, ids=lambda one: str(one)[:40])
async def test_values_keep_their_types(client: AmqpClient, body: dict[str, Any]) -> None:
    """In properties, annotations, footer and body; also those that kafkabus's own messages cannot hold."""
    sent = Sections(
        header={"durable": True, "priority": UByte(7), "ttl": UInt(60_000)},
        message_annotations={Symbol("x-own"): Int(1), Symbol("x-opt-partition-key"): "k"},
        properties={
            "message_id": ULong(5),
            "user_id": b"me",
            "to": "there",
            "subject": "what",
            "reply_to": "here",
            "correlation_id": uuid.UUID(int=9),
            "content_type": Symbol("text/plain"),
            "content_encoding": Symbol("gzip"),
            "absolute_expiry_time": datetime(2030, 1, 1, tzinfo=timezone.utc),
            "creation_time": datetime(2020, 1, 1, tzinfo=timezone.utc),
            "group_id": "k",
            "group_sequence": UInt(3),
            "reply_to_group_id": "r",
        },
        application_properties=TYPED,
        footer={Symbol("x-end"): Byte(1)},
        **body,
    )
    sender, receiver = await client.sender("q"), await client.receiver("q")
    assert await sender.send(encode_sections(sent)) == Accepted()
    (came,) = await received(receiver)
    found = came.sections
    for name in ("properties", "application_properties", "data", "sequences", "value", "footer"):
        assert same(getattr(found, name), getattr(sent, name)), name
    header, annotations = found.header, found.message_annotations
    assert {name: header[name] for name in sent.header} == sent.header
    assert same(annotations["x-own"], Int(1))
    assert header["delivery_count"] == 0
    assert type(annotations["x-opt-message-state"]) is Int
    assert annotations["x-opt-sequence-number"] == annotations["x-opt-enqueue-sequence-number"]
    assert isinstance(annotations["x-opt-locked-until"], datetime)
    assert annotations["x-opt-partition-key"] == "k"


async def test_a_message_without_an_id_gets_one(client: AmqpClient) -> None:
    """JavaScript's lock renewer needs one. A broker's notes on a message are not sent again."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message(message_annotations={Symbol("x-opt-sequence-number"): 77, Symbol("x-opt-lock-token"): 1}))
    (came,) = await received(receiver)
    assert len(came.sections.properties["message_id"]) == 32
    assert came.sections.message_annotations["x-opt-sequence-number"] != 77
    assert "x-opt-lock-token" not in came.sections.message_annotations


# Receiving and settling.


async def test_a_message_is_completed_by_a_link_and_once(client: AmqpClient) -> None:
    """Its tag is the lock token, in .NET's order of bytes; an unknown number is no error."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message())
    (came,) = await received(receiver)
    token = LockToken.from_uuid(uuid.UUID(bytes_le=came.tag))
    assert (token.partition << 48 | token.offset + 1) == came.sections.message_annotations["x-opt-sequence-number"]
    assert await receiver.settle(came, state=Accepted()) == [Accepted()]
    await receiver.settle(came, state=Accepted(), settled=True)
    receiver.grant(1, drain=True)
    await client.until(lambda: receiver.flowed is not None and receiver.flowed.drain)
    assert receiver.waiting == 0


async def test_outcomes_do_what_they_say(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """Each is echoed without an error: complete, abandon, release, defer, dead-letter."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for name in ("complete", "abandon", "release", "defer", "bury"):
        await sender.send(message(name))
    came = {one.body.decode(): one for one in await received(receiver, 5)}
    bury = Rejected(
        ErrorCondition(
            service_bus.DEAD_LETTER,
            "text",
            {Symbol("DeadLetterReason"): "bad", "DeadLetterErrorDescription": "very", "more": Int(1)},
        )
    )
    for name, state, answer in (
        ("complete", Accepted(), Accepted()),
        ("abandon", Modified(True), Modified(True)),
        ("release", Released(), Released()),
        ("defer", Modified(None, True), Modified(None, True)),
        ("bury", bury, Rejected()),
    ):
        assert await receiver.settle(came[name], state=state) == [answer]
    again = {one.body.decode(): one.sections for one in await received(receiver, 2)}
    assert {name: one.header["delivery_count"] for name, one in again.items()} == {"abandon": 1, "release": 0}
    number = came["defer"].sections.message_annotations["x-opt-sequence-number"]
    asked = {"sequence-numbers": Array([number]), "receiver-settle-mode": UInt(1)}
    status, body = await operation(client, "receive-by-sequence-number", asked)
    assert status == 200
    ((deferred,),) = (body["messages"],)
    assert isinstance(deferred["lock-token"], uuid.UUID)
    dead = await client.receiver("q/$deadletterqueue", 7)
    (buried,) = await received(dead)
    assert buried.sections.application_properties == {
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "very",
        "more": 1,
    }
    assert buried.sections.message_annotations["x-opt-deadletter-source"] == "q"


@pytest.mark.parametrize("by_token", [False, True])
async def test_the_last_of_its_deliveries_puts_a_message_among_the_dead_letters_as_it_was(
    client: AmqpClient, namespace: InMemoryNamespace, by_token: bool
) -> None:
    """The gateway keeps no content of messages that clients hold, and reads it for the copy."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("once", max_delivery_count=1)
    sender, receiver = await client.sender("once"), await client.receiver("once")
    await sender.send(message(b"content", application_properties={"n": Int(5)}))
    (came,) = await received(receiver)
    if by_token:
        tokens = Array([uuid.UUID(bytes_le=came.tag)])
        asked = {"lock-tokens": tokens, "disposition-status": "abandoned"}
        assert await operation(client, "update-disposition", asked, "once") == (200, None)
    else:
        assert await receiver.settle(came, state=Modified(True)) == [Modified(True)]
    (buried,) = await received(await client.receiver("once/$DeadLetterQueue", 9))
    assert buried.body == b"content"
    assert buried.sections.application_properties["n"] == 5
    assert buried.sections.application_properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"


async def test_a_settlement_that_is_asked_for_twice_counts_once(client: AmqpClient) -> None:
    """The other messages of the link are settled all the same."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for number in range(2):
        await sender.send(message(str(number)))
    one, other = await received(receiver, 2)
    client.say(Disposition(True, one.number, one.number, False, Accepted()))
    assert await receiver.settle(one, other, state=Accepted()) == [Accepted()] * 2


async def test_several_are_settled_by_one_disposition(client: AmqpClient) -> None:
    """And answered by as few as possible."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for number in range(10):
        await sender.send(message(str(number)))
    came = await received(receiver, 10)
    assert await receiver.settle(*came, state=Accepted()) == [Accepted()] * 10


async def test_a_settlement_after_the_locks_end_is_refused(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """The answer says so, and the message comes again."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message())
    (came,) = await received(receiver)
    namespace.advance(61)
    (again,) = await received(receiver)
    assert again.sections.header["delivery_count"] == 1
    (answer,) = await receiver.settle(came, state=Accepted())
    assert answer.error.condition == service_bus.MESSAGE_LOCK_LOST
    assert await receiver.settle(again, state=Accepted()) == [Accepted()]


async def test_a_message_that_is_received_and_deleted_comes_settled(client: AmqpClient) -> None:
    """Nothing is left of it."""
    sender, receiver = await client.sender("q"), await client.receiver("q", takes=True)
    await sender.send(message(b"once"))
    (came,) = await received(receiver)
    assert (came.settled, came.body, len(came.tag)) == (True, b"once", 8)
    assert "x-opt-locked-until" not in came.sections.message_annotations
    assert (await operation(client, "peek-message", {"message-count": Int(5)}))[0] == 204


async def test_no_more_messages_come_than_were_asked_for(client: AmqpClient, other: AmqpClient) -> None:
    """Messages that one client does not take are there for another."""
    sender, receiver, second = await client.sender("q"), await client.receiver("q"), await other.receiver("q")
    for number in range(3):
        await sender.send(message(str(number)))
    assert len(await received(receiver, 2)) == 2
    assert len(await received(second, 1)) == 1
    await receiver.drain()
    assert (receiver.waiting, receiver.flowed and receiver.flowed.link_credit) == (0, 0)


async def test_credit_is_drained_while_a_link_waits(client: AmqpClient) -> None:
    """Soon: JavaScript's client waits for it. Messages that are there still come."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    receiver.grant(100)
    began = time.monotonic()
    await receiver.drain()
    assert time.monotonic() - began < 10
    for number in range(3):
        await sender.send(message(str(number)))
    deadline = time.monotonic() + 30
    while receiver.waiting < 3:
        # On a busy machine, those that are there may take longer than the client would wait.
        assert time.monotonic() < deadline
        receiver.flowed = None
        receiver.grant(100, drain=True)
        await client.until(lambda: receiver.flowed is not None)


async def test_messages_of_a_client_that_is_gone_stay_locked(
    port: int, client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """As long as its locks last; then they come again, with a delivery counted. Those that it never saw come at once."""
    async with AmqpClient(port) as gone:
        sender, receiver = await gone.sender("q"), await gone.receiver("q")
        for number in range(2):
            await sender.send(message(str(number)))
        (held,) = await received(receiver)
        gone.abort()
        await gone.until(lambda: False)
    survivor = await client.receiver("q")
    (free,) = await received(survivor)
    assert free.body != held.body
    namespace.advance(61)
    (again,) = await received(survivor)
    assert (again.body, again.sections.header["delivery_count"]) == (held.body, 1)


async def test_a_link_that_opens_when_its_client_goes_is_let_go(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may come in the moment at which the wait for it is cancelled; asyncio then forgets the cancellation."""
    opens, closed = asyncio.Event(), asyncio.Event()
    open_at_once, close_at_once = ReceiverNode.open, ReceiverNode.close

    async def open_late(node: ReceiverNode) -> None:
        opens.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await open_at_once(node)

    async def close_and_tell(node: ReceiverNode) -> None:
        await close_at_once(node)
        closed.set()

    monkeypatch.setattr(ReceiverNode, "open", open_late)
    monkeypatch.setattr(ReceiverNode, "close", close_and_tell)
    async with AmqpClient(port) as gone:
        attaching = asyncio.ensure_future(gone.receiver("q"))
        await asyncio.wait_for(opens.wait(), PATIENCE)
        gone.abort()
        with pytest.raises((LinkError, ConnectionError)):
            await attaching
    await asyncio.wait_for(closed.wait(), PATIENCE)


# Sessions.


async def test_a_session_is_locked_by_its_link(client: AmqpClient, other: AmqpClient) -> None:
    """By name or the next available one, which the answer gives in the form of the question."""
    sender = await client.sender("s")
    for name in ("A", "B"):
        await sender.send(message(name, properties={"group_id": name}))
    one = await client.receiver("s", filters={SESSION_FILTER: "A"})
    assert one.answer is not None
    assert one.answer.source.filter == {SESSION_FILTER: "A"}
    ticks = (one.answer.properties or {})[LOCKED_UNTIL]
    assert type(ticks) is int
    until = datetime(1, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=ticks // 10)
    assert abs((until - datetime.now(timezone.utc)).total_seconds() - 60) < 30
    wanted = Described(ULong(0x137_0000_00C), None)
    two = await other.receiver("s", filters={SESSION_FILTER: wanted})
    assert two.answer is not None
    assert two.answer.source.filter == {SESSION_FILTER: Described(wanted.descriptor, "B")}
    (came,) = await received(two)
    assert (came.body, came.sections.properties["group_id"]) == (b"B", "B")
    assert "x-opt-locked-until" not in came.sections.message_annotations
    for filters, condition in (
        ({SESSION_FILTER: "A"}, service_bus.SESSION_CANNOT_BE_LOCKED),
        ({SESSION_FILTER: None}, service_bus.TIMEOUT),
        (None, c.NOT_ALLOWED),
    ):
        with pytest.raises(LinkError) as caught:
            await other.receiver("s", 9, filters=filters, properties={TIMEOUT: UInt(200)})
        assert caught.value.condition == condition
    with pytest.raises(LinkError) as caught:
        await other.receiver("q", 9, filters={SESSION_FILTER: "A"}, properties={TIMEOUT: UInt(200)})
    assert caught.value.condition == c.NOT_ALLOWED


@pytest.mark.parametrize("same", [True, False])
async def test_a_session_may_be_asked_for_again_as_soon_as_its_link_is_detached(
    client: AmqpClient, other: AmqpClient, same: bool
) -> None:
    """The answer to the detach may come before the session was given up, as a claim of messages has to end first."""
    for _ in range(3):
        for one in (client, client if same else other):
            link = await one.receiver("s", 7, filters={SESSION_FILTER: "A"})
            link.grant(1)
            # The claim has begun once this is answered.
            await (await one.sender("q", 8)).detach()
            await link.detach()


async def test_a_session_may_be_asked_for_again_at_another_gateway(
    namespace: InMemoryNamespace, client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one does not know of the link that was detached, and asks once more; here, the session is given up in between."""
    close, given_up, may_close = ServiceBusReceiver.close, ReceiverNode._wait_for_release, asyncio.Event()

    async def wait(receiver: ServiceBusReceiver) -> None:
        await may_close.wait()
        await close(receiver)

    async def let_close(node: ReceiverNode, session_id: str | None) -> bool:
        may_close.set()
        return await given_up(node, session_id)

    monkeypatch.setattr(ServiceBusReceiver, "close", wait)
    monkeypatch.setattr(ReceiverNode, "_wait_for_release", let_close)
    async with (
        Gateway(namespace.connection_string) as another,
        AmqpClient(await another.listen("127.0.0.1", 0)) as stranger,
    ):
        await (await client.receiver("s", 7, filters={SESSION_FILTER: "A"})).detach()
        await stranger.receiver("s", 7, filters={SESSION_FILTER: "A"})


async def test_a_session_is_free_when_its_link_is_detached(client: AmqpClient, other: AmqpClient) -> None:
    """Its messages come to the next one, and no delivery is counted."""
    sender = await client.sender("s")
    await sender.send(message(properties={"group_id": "A"}))
    link = await client.receiver("s", filters={SESSION_FILTER: "A"})
    await received(link)
    await link.detach()
    (again,) = await received(await other.receiver("s", filters={SESSION_FILTER: None}))
    assert again.sections.header["delivery_count"] == 0


async def waiting_links(client: AmqpClient, gateway: Gateway, count: int) -> list[asyncio.Task[Link]]:
    """Return links that wait for a session."""
    links = [
        asyncio.create_task(
            client.receiver("s", 200 + number, filters={SESSION_FILTER: None}, properties={TIMEOUT: UInt(60_000)})
        )
        for number in range(count)
    ]
    reader = await gateway.namespace.context.receiving.readers.sessions_of(
        await gateway.namespace.entity(EntityPath("s"))
    )
    deadline = time.monotonic() + PATIENCE
    while len(reader._line._waiters) < count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return links


def session_of(link: Link) -> str:
    """Return the session that a link was given."""
    assert link.answer is not None
    return str(link.answer.source.filter[SESSION_FILTER])


async def test_each_session_goes_to_one_of_many_links_that_wait(
    client: AmqpClient, other: AmqpClient, gateway: Gateway
) -> None:
    """To the one that has waited longest, and soon; a link that has gone by then gets none."""
    links = await waiting_links(client, gateway, 200)
    sender = await other.sender("s")
    delays: list[float] = []
    for number in range(20):
        began = time.monotonic()
        await sender.send(message(properties={"group_id": f"session-{number}"}))
        assert session_of(await asyncio.wait_for(links[number], PATIENCE)) == f"session-{number}"
        delays.append(time.monotonic() - began)
    assert sorted(delays)[10] < 0.8
    client.say(Detach(220, closed=True))
    for number in range(20, 199):
        await sender.send(message(properties={"group_id": f"session-{number}"}))
    found = [session_of(await asyncio.wait_for(link, PATIENCE)) for link in links[21:]]
    assert sorted(found) == sorted(f"session-{number}" for number in range(20, 199))
    links[20].cancel()


async def test_links_that_wait_for_sessions_do_not_look_by_themselves(
    client: AmqpClient, other: AmqpClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them reads for all; a session that is taken at once costs one look of one link. It watches for half a second."""
    turns: list[float] = []
    acquire = LogReader.acquire

    async def counted(log: LogReader, timeout: float) -> bool:
        turns.append(timeout)
        return await acquire(log, timeout)

    links = await waiting_links(client, gateway, 200)
    monkeypatch.setattr(LogReader, "acquire", counted)
    await asyncio.sleep(0.5)
    assert len(turns) < 20
    for link in links:
        link.cancel()


async def test_a_wait_for_a_session_ends_in_time_behind_others(client: AmqpClient, gateway: Gateway) -> None:
    """The link that reads for all goes on."""
    links = await waiting_links(client, gateway, 3)
    began = time.monotonic()
    with pytest.raises(LinkError) as caught:
        await client.receiver("s", 300, filters={SESSION_FILTER: None}, properties={TIMEOUT: UInt(300)})
    assert caught.value.condition == service_bus.TIMEOUT
    assert 0.2 < time.monotonic() - began < 20
    for link in links:
        link.cancel()


async def test_a_link_that_goes_as_it_gets_a_session_leaves_it(
    client: AmqpClient, other: AmqpClient, gateway: Gateway
) -> None:
    """All links of a connection are cut off while a session is on its way to one of them."""
    links = await waiting_links(client, gateway, 20)
    sender = await other.sender("s")
    await sender.send(message(properties={"group_id": "A"}))
    client.abort()
    link = await other.receiver("s", filters={SESSION_FILTER: None}, properties={TIMEOUT: UInt(20_000)})
    assert session_of(link) == "A"
    for one in links:
        one.cancel()
    await asyncio.gather(*links, return_exceptions=True)


async def test_a_session_has_state_and_a_lock(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """Only its own client reaches them, and only while the lock lasts."""
    await client.receiver("s", filters={SESSION_FILTER: "A"})
    name = {"session-id": "A"}
    assert await operation(client, "get-session-state", name, "s") == (200, {"session-state": None})
    assert (await operation(client, "set-session-state", {**name, "session-state": b"state"}, "s"))[0] == 200
    assert await operation(client, "get-session-state", name, "s") == (200, {"session-state": b"state"})
    status, body = await operation(client, "renew-session-lock", name, "s")
    assert (status, type(body["expiration"])) == (200, datetime)
    everything = {"last-updated-time": datetime(9999, 12, 31, tzinfo=timezone.utc), "skip": Int(0), "top": Int(10)}
    assert await operation(client, "get-message-sessions", everything, "s") == (
        200,
        {"skip": 1, "sessions-ids": ("A",)},
    )
    assert await operation(client, "get-session-state", {"session-id": "B"}, "s") == (
        410,
        service_bus.SESSION_LOCK_LOST,
    )
    namespace.advance(61)
    assert await operation(client, "renew-session-lock", name, "s") == (410, service_bus.SESSION_LOCK_LOST)


async def test_a_silent_link_is_detached_when_its_session_lock_ends(
    client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """Unless the lock is renewed before. It takes the five seconds of the shortest lock."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("short", requires_session=True, lock_duration=timedelta(seconds=5))
    link = await client.receiver("short", filters={SESSION_FILTER: "A"})
    namespace.advance(3)
    assert (await operation(client, "renew-session-lock", {"session-id": "A"}, "short"))[0] == 200
    began = time.monotonic()
    await client.until(lambda: link.is_detached)
    assert time.monotonic() - began > 3
    with pytest.raises(LinkError) as caught:
        link.check()
    assert caught.value.condition == service_bus.SESSION_LOCK_LOST


async def test_a_session_that_another_link_has_locked_since_is_not_that_of_the_first(client: AmqpClient) -> None:
    """A client that has lost a session does not renew the lock that another of its receivers holds."""
    first = await client.receiver("s", 1, filters={SESSION_FILTER: "A"})
    await first.detach()
    await client.receiver("s", 2, filters={SESSION_FILTER: "A"})
    name = {"session-id": "A"}
    lost = (410, service_bus.SESSION_LOCK_LOST)
    assert await operation(client, "renew-session-lock", name, "s", of_link="link-1") == lost
    assert await operation(client, "get-session-state", name, "s", of_link="link-1") == lost
    assert (await operation(client, "renew-session-lock", name, "s", of_link="link-2"))[0] == 200


async def test_a_request_may_name_the_link_of_its_session(client: AmqpClient) -> None:
    """Go's client does, in place of the session. Messages of all sessions are peeked without either."""
    sender = await client.sender("s")
    for name in ("A", "B"):
        await sender.send(message(name, properties={"group_id": name}))
    link = await client.receiver("s", filters={SESSION_FILTER: "A"})
    (came,) = await received(link)
    await link.settle(came, state=Modified(None, True))
    number = came.sections.message_annotations["x-opt-sequence-number"]
    asked = {"sequence-numbers": Array([number]), "receiver-settle-mode": UInt(1)}
    status, body = await operation(client, "receive-by-sequence-number", asked, "s", of_link="link-1")
    assert status == 200
    delivered = Delivered(Transfer())
    delivered.payload = body["messages"][0]["message"]
    # Java's client needs the end of the lock.
    assert "x-opt-locked-until" in delivered.sections.message_annotations
    everything = {"from-sequence-number": 0, "message-count": Int(9)}
    status, body = await operation(client, "peek-message", everything, "s", of_link="link-1")
    assert (status, len(body["messages"])) == (200, 1)
    status, body = await operation(client, "peek-message", everything, "s")
    assert (status, len(body["messages"])) == (200, 2)


async def test_a_link_whose_session_lock_has_ended_is_detached(
    client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """With the error that says so."""
    sender = await client.sender("s")
    link = await client.receiver("s", filters={SESSION_FILTER: "A"})
    namespace.advance(61)
    await sender.send(message(properties={"group_id": "A"}))
    link.grant(1)
    with pytest.raises(LinkError) as caught:
        await link.receive()
    assert caught.value.condition == service_bus.SESSION_LOCK_LOST


# Management.


async def test_messages_are_settled_by_their_tokens_on_any_connection(
    client: AmqpClient, other: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """As if by their link; also deferred ones, and also the content of those that are dead-lettered is there."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for name in ("completed", "abandoned", "defered", "suspended", "late"):
        await sender.send(message(name))
    came = {one.body.decode(): one for one in await received(receiver, 5)}
    tokens = {name: Array([uuid.UUID(bytes_le=one.tag)]) for name, one in came.items()}
    for name in ("completed", "abandoned", "defered"):
        known = {"lock-tokens": tokens[name], "disposition-status": name}
        assert await operation(other, "update-disposition", known) == (200, None)
    body: dict[str, Any] = {
        "lock-tokens": tokens["suspended"],
        "disposition-status": "suspended",
        "deadletter-reason": "bad",
        "properties-to-modify": {"more": "x"},
    }
    assert await operation(other, "update-disposition", body) == (200, None)
    (buried,) = await received(await other.receiver("q/$DeadLetterQueue", 9))
    assert (buried.body, buried.sections.application_properties) == (
        b"suspended",
        {"more": "x", "DeadLetterReason": "bad"},
    )
    (again,) = await received(receiver)
    assert (again.body, again.sections.header["delivery_count"]) == (b"abandoned", 1)
    status, answer = await operation(other, "renew-lock", {"lock-tokens": tokens["late"]})
    assert (status, type(answer["expirations"]), len(answer["expirations"])) == (200, Array, 1)
    namespace.advance(61)
    for name, body in (
        ("update-disposition", {"lock-tokens": tokens["late"], "disposition-status": "completed"}),
        ("renew-lock", {"lock-tokens": tokens["late"]}),
        ("renew-lock", {"lock-tokens": Array([uuid.uuid4()])}),
    ):
        assert await operation(other, name, body) == (410, service_bus.MESSAGE_LOCK_LOST)


async def test_changes_keep_their_types_if_others_are_equal(client: AmqpClient) -> None:
    """Dead letters that are settled together have the properties that each was given: 1.0 is no True."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for number in range(2):
        await sender.send(message(str(number)))
    came = await received(receiver, 2)
    for one, value in zip(came, (True, 1.0), strict=True):
        changed = Rejected(ErrorCondition(service_bus.DEAD_LETTER, info={Symbol("more"): value}))
        client.say(Disposition(True, one.number, one.number, True, changed))
    dead = await received(await client.receiver("q/$DeadLetterQueue", 9), 2)
    found = {one.body: one.sections.application_properties["more"] for one in dead}
    assert (found[came[0].body], found[came[1].body]) == (True, 1.0)
    assert [type(found[one.body]) for one in came] == [bool, float]


async def test_many_locks_are_renewed_together(client: AmqpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many at a time, in the order of the tokens, each once."""
    renewals: list[int] = []
    renew = MessageSettler.renew

    async def renewing(settler: MessageSettler, batches: list[SettlementBatch]) -> Any:
        renewals.append(sum(len(one.messages) for one in batches))
        return await renew(settler, batches)

    monkeypatch.setattr(MessageSettler, "renew", renewing)
    monkeypatch.setattr(management, "RENEWED_AT_ONCE", 3)
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for number in range(5):
        await sender.send(message(str(number)))
    tokens = [uuid.UUID(bytes_le=came.tag) for came in await received(receiver, 5)]
    status, answer = await operation(client, "renew-lock", {"lock-tokens": Array([*tokens, tokens[0]])})
    assert (status, renewals, len(answer["expirations"])) == (200, [3, 2], 6)
    assert answer["expirations"][0] == answer["expirations"][5]


@pytest.mark.parametrize("fails", [False, True])
async def test_many_messages_are_scheduled_in_parts(
    client: AmqpClient, namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """If a part fails, those before stay: if they were cancelled, they would be duplicates when their client repeats them."""
    parts: list[int] = []
    schedule = ServiceBusSender._schedule

    async def scheduling(sender: ServiceBusSender, outgoing: Sequence[Any], timeout: float | None = None) -> list[int]:
        parts.append(len(outgoing))
        if fails and len(parts) == 3:
            raise ServiceBusConnectionError("Kafka cannot be reached")
        return await schedule(sender, outgoing, timeout)

    monkeypatch.setattr(ServiceBusSender, "_schedule", scheduling)
    monkeypatch.setattr(schedules, "SCHEDULED_AT_ONCE", 2)
    when = {Symbol("x-opt-scheduled-enqueue-time"): datetime.now(timezone.utc) + timedelta(hours=1)}
    entries = [{"message-id": "m", "message": message(str(number), message_annotations=when)} for number in range(5)]
    options = {"operation": "com.microsoft:schedule-message"}
    answer = await client.ask(f"q{MANAGEMENT}", {"messages": entries}, options, base=100)
    status = answer.application_properties["statusCode"]
    assert parts == [2, 2, 1]
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        scheduled = administration.get_queue_runtime_properties("q").scheduled_message_count
    if fails:
        assert (status, scheduled) == (503, 4)
        text = answer.application_properties["statusDescription"]
        assert text.startswith("the first 4 of 5 messages are scheduled, and come; of those after them: Kafka cannot")
    else:
        assert (status, len(answer.value["sequence-numbers"]), scheduled) == (200, 5, 5)


@pytest.mark.parametrize(
    ("name", "entity"), [("get-message-sessions", "s"), ("enumerate-rules", "t/Subscriptions/all")]
)
async def test_one_list_is_made_at_a_time(
    client: AmqpClient, other: AmqpClient, gateway: Gateway, name: str, entity: str
) -> None:
    """Each is of all sessions or rules that there are: many at once would keep others waiting."""
    gateway.commons.listing = FairLock()
    async with gateway.commons.listing.turn("a third one"):
        asked = [asyncio.create_task(operation(one, name, {}, entity)) for one in (client, other)]
        await become(lambda: gateway.commons.listing.waiting_count == 2)
    assert len({status for status, _ in await asyncio.gather(*asked)}) == 1


async def test_pages_of_sessions_are_those_of_one_list(
    client: AmqpClient, other: AmqpClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is asked for again, or by another client, is listed again."""
    sender = await client.sender("s")
    for session in "ABCDE":
        await sender.send(message("x", properties={"group_id": session}))
    lists, list_sessions = [0], gateway.namespace.sessions

    def count(path: EntityPath, updated_after: datetime | None) -> AsyncIterator[str]:
        lists[0] += 1
        return list_sessions(path, updated_after)

    monkeypatch.setattr(gateway.namespace, "sessions", count)

    async def page(client: AmqpClient, skip: int) -> tuple[str, ...]:
        everything = datetime(9999, 12, 31, tzinfo=timezone.utc)
        asked = {"last-updated-time": everything, "skip": Int(skip), "top": Int(2)}
        status, body = await operation(client, "get-message-sessions", asked, "s")
        assert status == 200
        return tuple(body["sessions-ids"])

    pages = [await page(client, skip) for skip in (0, 2, 4)]
    assert (sorted(name for names in pages for name in names), lists) == (list("ABCDE"), [1])
    assert (await page(client, 2), await page(other, 4), lists) == (pages[1], pages[2], [3])


@pytest.mark.parametrize(
    ("name", "body"),
    [("renew-lock", {"lock-tokens": Array([uuid.UUID(int=1)])}), ("peek-message", {"message-count": Int(1)})],
)
async def test_a_request_that_only_tells_ends_with_its_client(
    port: int, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, name: str, body: Any
) -> None:
    """No client takes the answer, and the request would keep the connection's memory."""
    asked = asyncio.Event()

    async def never(*_: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MessageSettler, "renew", never)
    monkeypatch.setattr(MessagePeeker, "look_from", never)
    async with AmqpClient(port) as gone:
        asking = asyncio.create_task(operation(gone, name, body))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        gone.abort()
        await become(lambda: not gateway.commons.clients)
        asking.cancel()


async def test_a_message_of_a_session_has_no_lock_of_its_own(client: AmqpClient) -> None:
    """To renew it would promise what is not in force."""
    await (await client.sender("s")).send(message("x", properties={"group_id": "A"}))
    (came,) = await received(await client.receiver("s", filters={SESSION_FILTER: "A"}))
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)])}
    assert await operation(client, "renew-lock", body, "s") == (400, c.NOT_ALLOWED)


async def test_a_token_of_a_lost_session_is_answered_with_the_loss_of_the_session(
    client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """A link is detached when its session's lock ends, and its client settles by token from then on."""
    await (await client.sender("s")).send(message("x", properties={"group_id": "A"}))
    receiver = await client.receiver("s", filters={SESSION_FILTER: "A"})
    (came,) = await received(receiver)
    namespace.advance(61)
    tokens = Array([uuid.UUID(bytes_le=came.tag)])
    body = {"lock-tokens": tokens, "disposition-status": "completed", "session-id": "A"}
    assert await operation(client, "update-disposition", body, "s") == (410, service_bus.SESSION_LOCK_LOST)


async def test_messages_are_peeked_in_order(client: AmqpClient) -> None:
    """From a number on; there is a separate answer for none."""
    sender = await client.sender("q")
    for number in range(3):
        await sender.send(message(str(number), message_annotations={Symbol("x-opt-partition-key"): "k"}))
    first = {"from-sequence-number": 0, "message-count": Int(2)}
    status, body = await operation(client, "peek-message", first)
    assert status == 200
    numbers = [_number_of(one["message"]) for one in body["messages"]]
    assert len(numbers) == 2
    status, body = await operation(
        client, "peek-message", {"from-sequence-number": numbers[-1] + 1, "message-count": Int(9)}
    )
    assert [_number_of(one["message"]) for one in body["messages"]] == [numbers[-1] + 1]
    empty = {"from-sequence-number": numbers[-1] + 2, "message-count": Int(9)}
    assert await operation(client, "peek-message", empty) == (204, None)


def _number_of(payload: bytes) -> int:
    delivered = Delivered(Transfer())
    delivered.payload = payload
    return int(delivered.sections.message_annotations["x-opt-sequence-number"])


async def test_messages_are_scheduled_and_cancelled(client: AmqpClient) -> None:
    """Their numbers cancel them, once, however often a request says them; one that lacks its time is refused."""
    when = {Symbol("x-opt-scheduled-enqueue-time"): datetime.now(timezone.utc) + timedelta(hours=1)}
    entries = [{"message-id": "m", "message": message(str(n), message_annotations=when)} for n in range(2)]
    status, body = await operation(client, "schedule-message", {"messages": entries})
    assert (status, type(body["sequence-numbers"]), len(body["sequence-numbers"])) == (200, Array, 2)
    twice = {"sequence-numbers": Array([*body["sequence-numbers"], *body["sequence-numbers"]])}
    assert await operation(client, "cancel-scheduled-message", twice) == (200, None)
    assert await operation(client, "cancel-scheduled-message", body) == (404, service_bus.MESSAGE_NOT_FOUND)
    refused = {"messages": [{"message-id": "m", "message": message()}]}
    assert await operation(client, "schedule-message", refused) == (400, service_bus.ARGUMENT_ERROR)


async def test_rules_are_listed_added_and_removed(client: AmqpClient) -> None:
    """In the two families of descriptors that clients know."""
    everything = {"top": Int(100), "skip": Int(0)}

    async def rules() -> dict[str, list[Any]]:
        status, body = await operation(client, "enumerate-rules", everything, "t/Subscriptions/all")
        if status == 204:
            return {}
        described = [one["rule-description"] for one in body["rules"]]
        assert {one.descriptor for one in described} == {0x13700000004}
        return {one.value[2]: one.value for one in described}

    (default,) = (await rules()).values()
    assert default[0] == Described(ULong(0x1370000007), [])
    assert default[1] == Described(ULong(0x13700000005), [])
    sql = {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET b = 2"}}
    correlated = {"correlation-filter": {"label": "x", "properties": {"n": Int(5)}}, "sql-rule-action": None}
    for name, description in (("sql", sql), ("correlated", correlated)):
        body = {"rule-name": name, "rule-description": description}
        assert await operation(client, "add-rule", body, "t/Subscriptions/all") == (200, None)
        assert await operation(client, "add-rule", body, "t/Subscriptions/all") == (
            409,
            service_bus.ENTITY_ALREADY_EXISTS,
        )
    found = await rules()
    assert found["sql"][0] == Described(ULong(0x1370000006), ["a = 1", 20])
    assert found["sql"][1] == Described(ULong(0x13700000006), ["SET b = 2", 20])
    assert found["correlated"][0].descriptor == 0x1370000009
    assert found["correlated"][0].value[4] == "x"
    assert found["correlated"][0].value[8] == {"n": 5}
    for name in found:
        assert await operation(client, "remove-rule", {"rule-name": name}, "t/Subscriptions/all") == (200, None)
    assert await operation(client, "remove-rule", {"rule-name": "sql"}, "t/Subscriptions/all") == (404, c.NOT_FOUND)
    assert await rules() == {}
    assert (await operation(client, "enumerate-rules", everything))[0] == 400


async def test_rules_with_values_that_amqp_has_not_are_listed(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """With the nearest values that it has; other ways of administration take them."""
    values: dict[str, Any] = {
        "duration": timedelta(days=5),
        "longest": timedelta.max,
        "large": 2**64 - 1,
        "larger": 10**39,
    }
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_rule("t", "all", "odd", filter=CorrelationRuleFilter(properties=values))
    status, body = await operation(client, "enumerate-rules", {}, "t/Subscriptions/all")
    assert status == 200
    (odd,) = [rule for one in body["rules"] if (rule := one["rule-description"].value)[2] == "odd"]
    assert odd[0].value[8] == {
        "duration": Described(TIMESPAN, 5 * 86_400 * 10_000_000),
        "longest": Described(TIMESPAN, 2**63 - 1),
        "large": ULong(2**64 - 1),
        "larger": str(10**39),
    }


async def test_a_large_or_intricate_request_is_refused_before_it_takes_long(client: AmqpClient) -> None:
    """A stranger may ask ``$cbs``, and each element of a value takes a microsecond."""
    claims, requests = await client.sender("$cbs", 70), await client.sender("q/$management", 71)
    for link, value in ((claims, b"x" * 70_000), (requests, [None] * 70_000)):
        outcome = await link.send(encode_sections(Sections(value=value)))
        assert outcome.error.condition in {c.MESSAGE_SIZE_EXCEEDED, service_bus.ARGUMENT_ERROR}
    outcome = await (await client.sender("q", 72)).send(encode_sections(Sections(value=[None] * 70_000)))
    assert outcome.error.condition == service_bus.ARGUMENT_ERROR
    assert "more than 65536 elements" in outcome.error.description


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("fly", {}, (501, c.NOT_IMPLEMENTED)),
        ("peek-message", "text", (400, service_bus.ARGUMENT_ERROR)),
        ("renew-lock", {"lock-tokens": "text"}, (400, service_bus.ARGUMENT_ERROR)),
        ("renew-lock", {"lock-tokens": [1]}, (400, service_bus.ARGUMENT_ERROR)),
        ("peek-message", {"message-count": "many"}, (400, service_bus.ARGUMENT_ERROR)),
        ("update-disposition", {"lock-tokens": [], "disposition-status": "lost"}, (400, service_bus.ARGUMENT_ERROR)),
        ("schedule-message", {"messages": [5]}, (400, service_bus.ARGUMENT_ERROR)),
        ("receive-by-sequence-number", {"sequence-numbers": [77]}, (404, service_bus.MESSAGE_NOT_FOUND)),
        ("add-rule", {"rule-name": "x", "rule-description": {"sql-filter": {}}}, (400, service_bus.ARGUMENT_ERROR)),
        (
            "add-rule",
            {"rule-name": "x", "rule-description": {"correlation-filter": {"properties": 5}}},
            (400, service_bus.ARGUMENT_ERROR),
        ),
        (
            "get-message-sessions",
            {"last-updated-time": datetime(9999, 12, 31, tzinfo=timezone.utc)},
            (400, c.NOT_ALLOWED),
        ),
    ],
)
async def test_a_bad_request_is_answered_with_its_error(
    client: AmqpClient, name: str, body: Any, told: tuple[int, str]
) -> None:
    """The node goes on."""
    assert await operation(client, name, body) == told
    assert (await operation(client, "peek-message", {"message-count": Int(1)}))[0] == 204


# Connections.


async def test_a_peer_that_sends_rubbish_costs_its_own_connection(port: int, client: AmqpClient) -> None:
    """Another one does not notice."""
    sender = await client.sender("q")
    async with AmqpClient(port) as rude:
        rude.raw(b"\x00\x00\x00\x10\x02\x00\x00\x00rubbish!")
        await rude.until(lambda: False)
        assert rude.closed is not None
        assert rude.closed.condition == c.DECODE_ERROR
    assert await sender.send(message()) == Accepted()


async def test_a_silent_peer_is_let_go(namespace: InMemoryNamespace) -> None:
    """One that sends empty frames is kept."""
    settings = GatewaySettings(limits=Limits(idle_ms=200))
    async with Gateway(namespace.connection_string, settings) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port) as silent:
            await silent.until(lambda: False)
            assert silent.closed is not None
            assert silent.closed.condition == c.RESOURCE_LIMIT_EXCEEDED
        assert gateway.commons.clients == set()


@pytest.mark.parametrize("idle_ms", [200, 60_000])
async def test_a_client_that_does_not_read_the_end_is_cut_off(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch, idle_ms: int
) -> None:
    """A silent client, and one that breaks a rule: messages that were sent to it would stay in the gateway for ever."""
    monkeypatch.setattr(client_socket, "CLOSED_WITHIN", 0.1)
    monkeypatch.setattr(client_socket, "READ_WITHIN", 0.3)
    async with Gateway(namespace.connection_string, GatewaySettings(limits=Limits(idle_ms=idle_ms))) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port) as sending:
            sender = await sending.sender("q")
            for _ in range(60):
                await sender.send(message(b"x" * 250_000))
        async with AmqpClient(port) as stuck:
            receiver = await stuck.receiver("q")
            (peer,) = gateway.commons.clients
            stuck.pause_reading()
            receiver.grant(60)
            while peer.socket.can_write.is_set():  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.01)
            if idle_ms > 200:
                stuck.raw(b"\x00\x00\x00\x10\x02\x00\x00\x00rubbish!")
            while gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.01)
            stuck.abort()
            await stuck.until(lambda: stuck.closed is not None)


async def test_a_gateway_takes_so_many_connections(namespace: InMemoryNamespace) -> None:
    """One more is cut off, and there is room again when one has gone."""
    async with Gateway(namespace.connection_string, GatewaySettings(connections=1)) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                async with AmqpClient(port):
                    pass


async def test_a_gateway_that_ends_says_so(namespace: InMemoryNamespace) -> None:
    """Connections are closed with an error at which clients connect again; sessions are free at once.

    No link is detached before: Qpid JMS takes one that was detached with an error for dead.
    """
    async with Gateway(namespace.connection_string) as gateway:
        client = AmqpClient(await gateway.listen("127.0.0.1", 0))
        await client.__aenter__()
        link = await client.receiver("s", filters={SESSION_FILTER: "A"})
        link.grant(5)
        ending = asyncio.ensure_future(gateway.close())
        await client.until(lambda: False)
        assert client.closed is not None
        assert client.closed.condition == c.CONNECTION_FORCED
        assert link.error is client.closed
        client.abort()
        await ending
    async with (
        Gateway(namespace.connection_string) as gateway,
        AmqpClient(await gateway.listen("127.0.0.1", 0)) as client,
    ):
        await client.receiver("s", filters={SESSION_FILTER: "A"})


async def test_a_client_that_reads_nothing_gets_no_more_than_fits(client: AmqpClient, port: int) -> None:
    """The rest stays in the queue, for others."""
    sender = await client.sender("q")
    for number in range(60):
        await sender.send(message(b"x" * 250_000, properties={"message_id": str(number)}))
    async with AmqpClient(port) as slow:
        slow.window = 10
        receiver = await slow.receiver("q")
        receiver.grant(60)
        (first,) = [await receiver.receive()]
        assert first.body == b"x" * 250_000
        status, body = await operation(client, "peek-message", {"message-count": Int(1)})
        assert status == 200
        assert body["messages"]
        slow.abort()
        await slow.until(lambda: False)
