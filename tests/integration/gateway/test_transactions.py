"""Transactions over AMQP: what belongs to one, what makes it fail, and what is left when it did not happen.

Descriptions of entities, which clients read again every five seconds, are held back here: operations then take
longer than the discharge that comes after them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Disposition,
    ErrorCondition,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)
from kafkabus.gateway.server import receivers, transactions
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.senders import SEND_VIA
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.gateway.server.transactions import COMMITS_AT_ONCE, TransactionLimits
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import Array, Int, Symbol
from kafkabus_mapping.entities import EntityStatus
from tests.amqp_client import PATIENCE, AmqpClient, Delivered, Link, LinkError
from tests.integration.gateway.conversation import (
    Gate,
    become,
    declared,
    discharge,
    discharged,
    message,
    operation,
    received,
)

KEY = {Symbol("x-opt-partition-key"): "k"}


def keyed(body: str = "within", key: str = "k") -> bytes:
    """Return an encoded message with a key, without which no transaction sends it."""
    return message(body, message_annotations={Symbol("x-opt-partition-key"): key})


def within(name: bytes) -> TransactionalState:
    """Return the state of what completes, or was accepted, in a transaction."""
    return TransactionalState(name, Accepted())


async def bodies(client: AmqpClient, entity: str = "q") -> list[bytes]:
    """Return the bodies of an entity's messages, also of locked ones."""
    status, found = await operation(client, "peek-message", {"message-count": Int(300)}, entity)
    messages = found["messages"] if status == 200 else []
    return [b"".join(decode_sections(one["message"]).data) for one in messages]


@pytest.fixture
def gate(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The gate of the gateway's descriptions of entities."""
    return Gate(gateway, monkeypatch)


async def answered_once_there(gate: Gate, client: AmqpClient, ending: asyncio.Future[Any]) -> Any:
    """Return the outcome of a discharge, which must not come before the descriptions do.

    The gateway reads the connection while it waits: an answer to a later frame shows that it has seen the discharge.
    """
    await gate.until_asked()
    assert await (await client.sender("t", 40)).send(message()) == Accepted()
    assert not ending.done()
    gate.release()
    return await asyncio.wait_for(ending, PATIENCE)


# The operations of a transaction.


async def test_a_transaction_sends_and_settles_together(client: AmqpClient) -> None:
    """Nothing before it is discharged; everything then, also across queues with one key."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    topic = await client.sender("t", 5)
    await sender.send(message("before"))
    (came,) = await received(receiver)
    name = await declared(link)
    for one in (sender, topic):
        assert await one.send(keyed(), state=TransactionalState(name)) == within(name)
    assert await receiver.settle(came, state=within(name)) == [within(name)]
    subscription = await client.receiver("t/Subscriptions/all", 6)
    subscription.grant(1)
    receiver.grant(1, drain=True)
    await client.until(lambda: receiver.flowed is not None and receiver.flowed.drain)
    assert (receiver.waiting, subscription.waiting) == (0, 0)
    assert await discharged(link, name) == Accepted()
    assert [one.body for one in await received(receiver)] == [b"within"]
    assert (await subscription.receive()).body == b"within"
    outcome = await discharged(link, name)
    assert outcome.error.condition == c.UNKNOWN_TRANSACTION


async def test_a_discharge_waits_for_what_was_sent_before(client: AmqpClient, gate: Gate) -> None:
    """Transfers are accepted once the transaction has them, and not before."""
    sender, link = await client.sender("q"), await client.coordinator()
    name = await declared(link)
    await client.until(lambda: sender.credit > 0)
    gate.hold()
    sent = [sender.put(keyed(str(number)), state=TransactionalState(name)) for number in range(12)]
    ending = link.put(discharge(name))
    assert await answered_once_there(gate, client, ending) == Accepted()
    assert await asyncio.gather(*sent) == [within(name)] * 12
    assert await bodies(client) == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("settled", [True, False])
async def test_a_discharge_waits_for_what_was_settled_before(client: AmqpClient, gate: Gate, settled: bool) -> None:
    """By a client that waits for its answers, and by one that does not."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    for number in range(3):
        await sender.send(message(str(number)))
    came = await received(receiver, 3)
    name = await declared(link)
    gate.hold()
    for one in came:
        client.say(Disposition(True, one.number, one.number, settled, within(name)))
    ending = link.put(discharge(name))
    assert await answered_once_there(gate, client, ending) == Accepted()
    assert await bodies(client) == []


async def test_a_discharge_waits_for_requests_before(client: AmqpClient, gate: Gate) -> None:
    """Messages may be settled by their tokens."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message())
    (came,) = await received(receiver)
    await bodies(client)  # Opens the node.
    name = await declared(link)
    gate.hold()
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "completed"}
    asking = asyncio.ensure_future(operation(client, "update-disposition", body, state=TransactionalState(name)))
    await gate.until_asked()
    assert await answered_once_there(gate, client, link.put(discharge(name))) == Accepted()
    assert await asking == (200, None)
    assert await bodies(client) == []


async def test_a_discharge_waits_for_nothing_else(client: AmqpClient, gate: Gate) -> None:
    """Neither for messages outside of the transaction, nor for another transaction's."""
    topic, sender, link = await client.sender("t", 5), await client.sender("q"), await client.coordinator()
    name, other = await declared(link), await declared(link)
    await client.until(lambda: sender.credit > 0)
    assert await topic.send(keyed(), state=TransactionalState(name)) == within(name)
    gate.hold()
    alone = sender.put(keyed())
    another = sender.put(keyed(), state=TransactionalState(other))
    assert await discharged(link, name) == Accepted()
    assert not alone.done()
    gate.release()
    assert (await alone, await another) == (Accepted(), within(other))


async def test_what_comes_after_the_discharge_does_not_belong_to_it(client: AmqpClient, gate: Gate) -> None:
    """It is refused, within the transaction: a bare refusal is a success to some clients."""
    sender, link = await client.sender("q"), await client.coordinator()
    name = await declared(link)
    await client.until(lambda: sender.credit > 0)
    gate.hold()
    sender.put(keyed("before"), state=TransactionalState(name))
    ending = link.put(discharge(name))
    after = sender.put(keyed("after"), state=TransactionalState(name))
    again = link.put(discharge(name))
    assert (await again).error.condition == c.UNKNOWN_TRANSACTION
    assert await answered_once_there(gate, client, ending) == Accepted()
    outcome = await after
    assert outcome.txn_id == name
    assert outcome.outcome.error.condition == c.UNKNOWN_TRANSACTION
    assert await bodies(client) == [b"before"]


async def test_a_settlement_after_the_discharge_does_not_belong_to_it(client: AmqpClient) -> None:
    """Also if the settler takes it together with one that came before."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    for number in range(2):
        await sender.send(message(str(number)))
    first, second = await received(receiver, 2)
    name = await declared(link)
    client.say(Disposition(True, first.number, first.number, False, within(name)))
    ending = link.put(discharge(name))
    answer = client.expect_answer(second.number)
    client.say(Disposition(True, second.number, second.number, False, within(name)))
    assert await ending == Accepted()
    outcome = await asyncio.wait_for(answer, PATIENCE)
    assert isinstance(outcome.outcome, Rejected)
    assert await bodies(client) == [second.body]


async def test_a_settlement_of_an_unknown_delivery_fails_the_transaction(client: AmqpClient) -> None:
    """The message was settled in a transaction that was rolled back; a repeated settlement in one transaction counts once."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    await receiver.settle(came, state=within(name))
    assert await discharged(link, name, fail=True) == Accepted()
    name = await declared(link)
    client.say(Disposition(True, came.number, came.number, True, within(name)))
    assert (await discharged(link, name)).error.condition == c.TRANSACTION_ROLLBACK
    assert await bodies(client) == [b"input"]
    await sender.send(message("more"))
    (more,) = await received(receiver)
    name = await declared(link)
    await receiver.settle(more, state=within(name))
    client.say(Disposition(True, more.number, more.number, True, within(name)))
    assert await discharged(link, name) == Accepted()


@pytest.mark.parametrize("first", ["suspended", "completed", "abandoned", "defered"])
async def test_a_message_is_settled_once_in_a_transaction(client: AmqpClient, first: str) -> None:
    """By its token, and over its link: not both."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": first}
    assert (await operation(client, "update-disposition", body, state=TransactionalState(name)))[0] == 200
    await receiver.settle(came, state=within(name))
    assert (await discharged(link, name)).error.condition == c.TRANSACTION_ROLLBACK
    assert (await bodies(client), await bodies(client, "q/$DeadLetterQueue")) == ([b"input"], [])


async def test_a_message_without_its_last_frames_fails_the_transaction(client: AmqpClient) -> None:
    """Also if its link is detached before the discharge; one that the client aborts does not count."""
    sender, link = await client.sender("q"), await client.coordinator()
    await client.until(lambda: sender.credit > 0)
    name = await declared(link)
    state = TransactionalState(name)
    client.say(Transfer(0, client.next_delivery(), b"a", 0, state=state, more=True), keyed()[:10])
    client.say(Transfer(0, aborted=True))
    await sender.send(keyed("whole"), state=state)
    assert await discharged(link, name) == Accepted()
    assert await bodies(client) == [b"whole"]
    for detaches in (False, True):
        name = await declared(link)
        state = TransactionalState(name)
        await sender.send(keyed("never"), state=state)
        client.say(Transfer(0, client.next_delivery(), b"b", 0, state=state, more=True), keyed()[:10])
        if detaches:
            await sender.detach()
        outcome = await discharged(link, name)
        assert outcome.error.condition == c.TRANSACTION_ROLLBACK
        if not detaches:
            client.say(Transfer(0, aborted=True))
    assert await bodies(client) == [b"whole"]


async def test_what_goes_to_a_link_that_is_gone_fails_the_transaction(
    client: AmqpClient, gateway: Gateway, namespace: InMemoryNamespace
) -> None:
    """The client does not know yet that the gateway has detached it."""
    sender, link = await client.sender("q"), await client.coordinator()
    receiver = await client.receiver("q")
    await sender.send(message("before"))
    (came,) = await received(receiver)
    (peer,) = gateway.commons.clients
    ends = {one.attach.handle: one for one in peer.links.nodes}
    for is_message in (True, False):
        name = await declared(link)
        for one in (sender, receiver):
            if not one.is_detached:
                peer.links.detach(ends[one.handle], None)
        if is_message:
            client.say(Transfer(0, client.next_delivery(), b"a", 0, state=within(name)), keyed())
        else:
            client.say(Disposition(True, came.number, came.number, True, within(name)))
        outcome = await discharged(link, name)
        assert outcome.error.condition == c.TRANSACTION_ROLLBACK
    assert await bodies(client) == [b"before"]
    namespace.advance(61)
    assert [one.body for one in await received(await client.receiver("q", 7))] == [b"before"]


# Failures.


@pytest.fixture
async def bounded(namespace: InMemoryNamespace) -> AsyncIterator[AmqpClient]:
    """A client of a gateway with small bounds, and its time for a transaction is short."""
    limits = TransactionLimits(seconds=0.5, transactions=2, bytes=1_000, operations=3)
    async with Gateway(namespace.connection_string, GatewaySettings(transactions=limits)) as gateway:
        async with AmqpClient(await gateway.listen("127.0.0.1", 0)) as client:
            yield client


async def refused(client: AmqpClient, link: Link, name: bytes, outcome: Any, condition: str) -> None:
    """Check that an operation was refused within its transaction, and that the transaction is rolled back for that."""
    assert outcome.txn_id == name
    assert isinstance(outcome.outcome, Rejected)
    assert outcome.outcome.error.condition == condition
    ended = await discharged(link, name)
    assert isinstance(ended, Rejected)
    assert ended.error.condition == c.TRANSACTION_ROLLBACK
    assert condition in ended.error.description


@pytest.mark.parametrize(
    ("entity", "payload", "condition"),
    [
        ("q", message("no key"), c.NOT_ALLOWED),
        ("q", keyed(key="another"), c.NOT_ALLOWED),
        ("q", keyed("x" * 1_048_577), c.MESSAGE_SIZE_EXCEEDED),
        ("q", b"\x00\x53\x75\x40", service_bus.ARGUMENT_ERROR),
        ("s", message("no session", message_annotations=KEY), c.NOT_ALLOWED),
        ("off", keyed(), service_bus.ENTITY_DISABLED),
    ],
)
async def test_a_message_that_is_refused_fails_its_transaction(
    client: AmqpClient, namespace: InMemoryNamespace, entity: str, payload: bytes, condition: str
) -> None:
    """Its input stays, whatever else the transaction was to do."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        administration.create_queue("off")
        administration.update_queue(replace(administration.get_queue("off"), status=EntityStatus.DISABLED))
    sender = await client.sender(entity, 8)
    inputs, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await inputs.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    assert await inputs.send(keyed("output"), state=TransactionalState(name)) == within(name)
    client.say(Disposition(True, came.number, came.number, True, within(name)))
    await client.until(lambda: sender.credit > 0)
    outcome = await sender.put(payload, state=TransactionalState(name))
    await refused(client, link, name, outcome, condition)
    (again,) = await received(receiver)
    assert (again.body, again.sections.header["delivery_count"]) == (b"input", 1)
    assert await bodies(client) == [b"input"]


async def test_a_lock_that_is_lost_fails_the_transaction(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """At its discharge, which takes the messages."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    await sender.send(keyed("output"), state=TransactionalState(name))
    await receiver.settle(came, state=within(name))
    namespace.advance(61)
    ended = await discharged(link, name)
    assert ended.error.condition == c.TRANSACTION_ROLLBACK
    assert await bodies(client) == [b"input"]


async def test_a_message_that_is_settled_twice_fails_the_transaction(client: AmqpClient) -> None:
    """The second transaction would do something else than the client thinks."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "completed"}
    assert await operation(client, "update-disposition", body) == (200, None)
    name = await declared(link)
    (outcome,) = await receiver.settle(came, state=within(name))
    assert outcome == within(name)
    assert (await discharged(link, name)).error.condition == c.TRANSACTION_ROLLBACK


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        {"resume": True},
        {"delivery_tag": b"t" * 33},
        {"delivery_tag": None},
        {"delivery_id": None},
    ],
    ids=["resumed", "long tag", "no tag", "no id"],
)
async def test_a_transfer_that_may_not_begin_fails_its_transaction(
    client: AmqpClient, wrong: dict[str, Any], settled: bool
) -> None:
    """Its link is gone, and the discharge fails as well."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    client.say(Disposition(True, came.number, came.number, True, within(name)))
    fields: dict[str, Any] = {
        "handle": 0,
        "delivery_id": client.next_delivery(),
        "delivery_tag": b"x",
        "message_format": 0,
        **wrong,
    }
    client.say(Transfer(**fields, settled=settled, state=TransactionalState(name)), keyed("output"))
    ended = await discharged(link, name)
    assert isinstance(ended, Rejected)
    assert ended.error.condition == c.TRANSACTION_ROLLBACK
    assert sender.is_detached
    assert await bodies(client) == [b"input"]


@pytest.mark.parametrize(
    ("outcome", "condition"),
    [
        (Released(), c.NOT_IMPLEMENTED),
        (None, c.NOT_ALLOWED),
    ],
)
async def test_an_outcome_that_transactions_do_not_have_fails_them(
    client: AmqpClient, outcome: Any, condition: Symbol
) -> None:
    """The message is available again after the client has settled it."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    name = await declared(link)
    client.say(Disposition(True, came.number, came.number, True, TransactionalState(name, outcome)))
    ended = await discharged(link, name)
    assert ended.error.condition == c.TRANSACTION_ROLLBACK
    assert condition in ended.error.description


async def test_a_request_that_is_refused_fails_the_transaction(client: AmqpClient) -> None:
    """Also one for an operation that no transaction has: it would be done at once."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("input"))
    (came,) = await received(receiver)
    token = uuid.UUID(bytes_le=came.tag)
    # Of another delivery of the message, which is over.
    unknown = {"lock-tokens": Array([uuid.UUID(int=token.int ^ 1 << 127)]), "disposition-status": "completed"}
    odd = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "odd"}
    scheduled = {"messages": [{"message": keyed()}]}
    for asked, body in (
        ("update-disposition", odd),
        ("update-disposition", {"lock-tokens": 5, "disposition-status": "completed"}),
        ("schedule-message", scheduled),
        ("peek-message", {"message-count": Int(1)}),
        ("update-disposition", unknown),
    ):
        name = await declared(link)
        status, _ = await operation(client, asked, body, state=TransactionalState(name))
        assert (status >= 400) is (body is not unknown)
        ended = await discharged(link, name)
        assert ended.error.condition == c.TRANSACTION_ROLLBACK


async def test_a_transaction_has_bounds(bounded: AmqpClient) -> None:
    """An operation that exceeds them is refused when it comes, and nothing of the transaction happens."""
    sender, receiver, link = await bounded.sender("q"), await bounded.receiver("q"), await bounded.coordinator()
    for _ in range(4):
        await sender.send(message("input"))
    came = await received(receiver, 4)
    name = await declared(link)
    assert await sender.send(keyed("x" * 500), state=TransactionalState(name)) == within(name)
    outcome = await sender.send(keyed("x" * 500), state=TransactionalState(name))
    await refused(bounded, link, name, outcome, c.RESOURCE_LIMIT_EXCEEDED)
    name = await declared(link)
    bounded.say(Disposition(True, came[0].number, came[3].number, False, within(name)))
    outcome = await asyncio.wait_for(bounded.expect_answer(came[0].number), PATIENCE)
    await refused(bounded, link, name, outcome, c.RESOURCE_LIMIT_EXCEEDED)
    await declared(link)
    await declared(link)
    with pytest.raises(AssertionError):
        await declared(link)


async def test_slow_commits_of_a_client_keep_no_other_waiting(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them are under way at a time. Of those that wait the time goes on, and those that have none left do nothing."""
    free, commit = asyncio.Event(), transactions._Transaction.commit
    slow: set[bytes] = set()
    begun: list[bytes] = []

    async def late(transaction: transactions._Transaction) -> None:
        begun.append(transaction.name)
        if transaction.name in slow:
            await free.wait()
        await commit(transaction)

    monkeypatch.setattr(transactions._Transaction, "commit", late)
    settings = GatewaySettings(transactions=TransactionLimits(seconds=3.0))
    async with Gateway(namespace.connection_string, settings) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port) as one, AmqpClient(port) as other:
            sender, link = await one.sender("q"), await one.coordinator()
            names = [await declared(link) for _ in range(COMMITS_AT_ONCE + 1)]
            slow.update(names)
            for number, name in enumerate(names):
                assert await sender.send(keyed(str(number)), state=TransactionalState(name)) == within(name)
            endings = [link.put(discharge(name)) for name in names]
            await become(lambda: len(begun) == COMMITS_AT_ONCE)
            its_link = await other.coordinator()
            its_name = await declared(its_link)
            assert await discharged(its_link, its_name) == Accepted()
            late_one = await asyncio.wait_for(endings[-1], PATIENCE)
            assert late_one.error.condition == c.TRANSACTION_TIMEOUT
            assert not any(ending.done() for ending in endings[:-1])
            free.set()
            outcomes = await asyncio.wait_for(asyncio.gather(*endings[:-1]), PATIENCE)
            assert outcomes == [Accepted()] * COMMITS_AT_ONCE
            assert sorted(await bodies(one)) == [b"%d" % number for number in range(COMMITS_AT_ONCE)]


async def test_the_transactions_of_all_clients_share_a_room(namespace: InMemoryNamespace) -> None:
    """It is free again when they have ended."""
    settings = GatewaySettings(transactions=TransactionLimits(total_bytes=1_000))
    async with Gateway(namespace.connection_string, settings) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port) as one, AmqpClient(port) as other:
            sender, link = await one.sender("q"), await one.coordinator()
            second, its_link = await other.sender("q"), await other.coordinator()
            name = await declared(link)
            assert await sender.send(keyed("x" * 600), state=TransactionalState(name)) == within(name)
            its_name = await declared(its_link)
            outcome = await second.send(keyed("x" * 600), state=TransactionalState(its_name))
            await refused(other, its_link, its_name, outcome, service_bus.SERVER_BUSY)
            assert await discharged(link, name) == Accepted()
            its_name = await declared(its_link)
            assert await second.send(keyed("x" * 600), state=TransactionalState(its_name)) == within(its_name)
            (peer,) = [known for known in gateway.commons.clients if known.transactions.is_known(its_name)]
            part = peer.transactions.join(TransactionalState(its_name), 100)
            assert part is not None
        while gateway.commons.clients:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        # An operation that outlasts its transaction takes no room.
        with pytest.raises(AmqpError):
            part.count(100)
        assert gateway.commons.transaction_room.taken == 0


async def test_the_client_that_keeps_most_gives_up_a_transaction_for_others(namespace: InMemoryNamespace) -> None:
    """Its largest; it learns so when it goes on with it. Those of the others are safe from it."""
    settings = GatewaySettings(transactions=TransactionLimits(total_bytes=2_000))
    async with Gateway(namespace.connection_string, settings) as gateway:
        port = await gateway.listen("127.0.0.1", 0)
        async with AmqpClient(port) as one, AmqpClient(port) as other:
            sender, link = await one.sender("q"), await one.coordinator()
            second, its_link = await other.sender("q"), await other.coordinator()
            names = [await declared(link) for _ in range(2)]
            for name, size in zip(names, (900, 600), strict=True):
                assert await sender.send(keyed("x" * size), state=TransactionalState(name)) == within(name)
            its_name = await declared(its_link)
            for _ in range(2):
                sent = await second.send(keyed("y" * 300), state=TransactionalState(its_name))
                assert sent == within(its_name)
            outcome = await sender.send(keyed(), state=TransactionalState(names[0]))
            assert outcome.outcome.error.condition == service_bus.SERVER_BUSY
            assert (await discharged(link, names[0])).error.condition == service_bus.SERVER_BUSY
            assert await discharged(link, names[1]) == Accepted()
            assert await discharged(its_link, its_name) == Accepted()
            assert gateway.commons.transaction_room.taken == 0
            assert sorted(await bodies(one)) == [b"x" * 600, b"y" * 300, b"y" * 300]


async def test_the_messages_of_a_batch_count_each(bounded: AmqpClient) -> None:
    """A transaction has so many messages, however they come."""
    sender, link = await bounded.sender("q"), await bounded.coordinator()
    name = await declared(link)
    batch = encode_sections(Sections(data=[keyed("x")] * 4))
    state = TransactionalState(name)
    outcome = await sender.send(batch, message_format=BATCH_FORMAT, state=state)
    await refused(bounded, link, name, outcome, c.RESOURCE_LIMIT_EXCEEDED)


async def test_a_transaction_that_lasts_for_too_long_is_rolled_back(
    namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that waits for what came before its discharge. It takes the time that transactions may last here."""
    settings = GatewaySettings(transactions=TransactionLimits(seconds=0.3))
    async with Gateway(namespace.connection_string, settings) as gateway:
        gate = Gate(gateway, monkeypatch)
        async with AmqpClient(await gateway.listen("127.0.0.1", 0)) as client:
            sender, link = await client.sender("q"), await client.coordinator()
            await client.until(lambda: sender.credit > 0)
            name = await declared(link)
            gate.hold()
            late = sender.put(keyed("late"), state=TransactionalState(name))
            ended = await link.send(discharge(name))
            assert ended.error.condition == c.TRANSACTION_TIMEOUT
            gate.release()
            assert isinstance((await late).outcome, Rejected)
            name = await declared(link)
            (peer,) = gateway.commons.clients
            while peer.transactions.is_open(name):  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.01)
            ended = await discharged(link, name)
            assert ended.error.condition == c.TRANSACTION_TIMEOUT
            assert await bodies(client) == []


# After a transaction that did not happen.


async def test_a_transaction_that_fails_leaves_nothing(client: AmqpClient) -> None:
    """A message that the client has not settled stays locked by its receiver, which may settle it by its token."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("before"))
    (came,) = await received(receiver)
    name = await declared(link)
    await sender.send(keyed(), state=TransactionalState(name))
    await receiver.settle(came, state=within(name))
    assert await discharged(link, name, fail=True) == Accepted()
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came.tag)]), "disposition-status": "completed"}
    assert await operation(client, "update-disposition", body) == (200, None)
    assert await bodies(client) == []


async def settled_in(client: AmqpClient, receiver: Link, name: bytes) -> Delivered:
    """Receive a message, and settle it in a transaction, without waiting."""
    (came,) = await received(receiver)
    client.say(Disposition(True, came.number, came.number, True, within(name)))
    return came


@pytest.mark.parametrize("detaches", [False, True])
async def test_a_message_that_its_client_has_settled_comes_again_at_once(client: AmqpClient, detaches: bool) -> None:
    """After a roll-back, with its delivery counted; also if the link over which it came is gone."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("before"))
    name = await declared(link)
    await settled_in(client, receiver, name)
    if detaches:
        await receiver.detach()
        receiver = await client.receiver("q", 9)
    assert await discharged(link, name, fail=True) == Accepted()
    (again,) = await received(receiver)
    assert (again.body, again.sections.header["delivery_count"]) == (b"before", 1)


async def test_messages_of_transactions_in_turn_are_settled_together(
    client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And they come again together: each on its own would keep others waiting."""
    abandoned: list[int] = []
    settled: list[int] = []
    abandon, complete = ServiceBusReceiver.abandon_messages, ServiceBusReceiver.complete_messages

    async def abandoning(receiver: ServiceBusReceiver, messages: Any, **options: Any) -> None:
        abandoned.append(len(messages))
        await abandon(receiver, messages, **options)

    async def completing(receiver: ServiceBusReceiver, messages: Any, **options: Any) -> None:
        settled.append(len(messages))
        await complete(receiver, messages, **options)

    monkeypatch.setattr(ServiceBusReceiver, "abandon_messages", abandoning)
    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", completing)
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    for number in range(20):
        await sender.send(message(str(number)))
    names = [await declared(link) for _ in range(2)]
    for number, came in enumerate(await received(receiver, 20)):
        client.say(Disposition(True, came.number, came.number, True, within(names[number % 2])))
    for name in names:
        assert await discharged(link, name, fail=True) == Accepted()
    assert (sum(settled), sum(abandoned)) == (20, 20)
    assert (len(settled) < 20, len(abandoned)) == (True, 2)
    assert len(await received(receiver, 20)) == 20


async def test_nothing_of_a_transaction_that_was_rolled_back_is_in_a_dead_letter(client: AmqpClient) -> None:
    """It was the message's last delivery, and the transaction would have dead-lettered it with another property."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("x", application_properties={"more": "original"}))
    for _ in range(2):
        (came,) = await received(receiver)
        await receiver.settle(came, state=Modified(delivery_failed=True))
    name = await declared(link)
    (came,) = await received(receiver)
    dead = Rejected(ErrorCondition(service_bus.DEAD_LETTER, info={Symbol("more"): "changed"}))
    client.say(Disposition(True, came.number, came.number, True, TransactionalState(name, dead)))
    assert await discharged(link, name, fail=True) == Accepted()
    (letter,) = await received(await client.receiver("q/$DeadLetterQueue", 9))
    properties = letter.sections.application_properties
    assert (properties["more"], properties["DeadLetterReason"]) == ("original", "MaxDeliveryCountExceeded")


async def test_one_that_cannot_be_given_back_keeps_no_other_one(
    client: AmqpClient, other: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was completed by its token."""
    monkeypatch.setattr(receivers, "ABANDONED_AT_ONCE", 1)
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    for number in range(3):
        await sender.send(message(str(number)))
    name = await declared(link)
    came = [await settled_in(client, receiver, name) for _ in range(3)]
    await operation(client, "peek-message", {"message-count": Int(1)})  # The gateway has settled them by then.
    body = {"lock-tokens": Array([uuid.UUID(bytes_le=came[0].tag)]), "disposition-status": "completed"}
    assert await operation(other, "update-disposition", body) == (200, None)
    assert await discharged(link, name, fail=True) == Accepted()
    assert {one.body for one in await received(receiver, 2)} == {one.body for one in came[1:]}


async def test_few_groups_of_messages_are_settled_at_a_time(
    client: AmqpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turns in between. Here each message has a different reason."""
    under_way = most = 0
    dead_letter = ServiceBusReceiver.dead_letter_messages

    async def dead_lettering(receiver: ServiceBusReceiver, *arguments: Any, **options: Any) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await dead_letter(receiver, *arguments, **options)
        under_way -= 1

    monkeypatch.setattr(ServiceBusReceiver, "dead_letter_messages", dead_lettering)
    monkeypatch.setattr(receivers, "SETTLED_AT_ONCE", 3)
    sender, receiver = await client.sender("q"), await client.receiver("q")
    for number in range(12):
        await sender.send(message(str(number)))
    outcomes = await asyncio.gather(
        *(
            receiver.settle(came, state=Rejected(ErrorCondition(service_bus.DEAD_LETTER, str(number))))
            for number, came in enumerate(await received(receiver, 12))
        )
    )
    assert outcomes == [[Rejected()]] * 12
    assert most <= 3


async def test_messages_of_a_session_come_again_in_their_order(client: AmqpClient) -> None:
    """After a roll-back, to the receiver that has the session."""
    sender, link = await client.sender("s"), await client.coordinator()
    receiver = await client.receiver("s", filters={SESSION_FILTER: "A"})
    for number in range(3):
        await sender.send(message(str(number), properties={"group_id": "A"}))
    name = await declared(link)
    for _ in range(2):
        await settled_in(client, receiver, name)
    assert await discharged(link, name, fail=True) == Accepted()
    assert [one.body for one in await received(receiver, 3)] == [b"0", b"1", b"2"]


async def test_a_transaction_ends_with_the_link_that_declared_it(client: AmqpClient) -> None:
    """As if it had been rolled back."""
    sender, receiver, link = await client.sender("q"), await client.receiver("q"), await client.coordinator()
    await sender.send(message("before"))
    name = await declared(link)
    await settled_in(client, receiver, name)
    await sender.send(keyed(), state=TransactionalState(name))
    await link.detach()
    (again,) = await received(receiver)
    assert again.body == b"before"
    outcome = await sender.send(keyed(), state=TransactionalState(name))
    assert outcome.outcome.error.condition == c.UNKNOWN_TRANSACTION
    assert await bodies(client) == [b"before"]


async def test_a_message_that_is_settled_for_a_transaction_that_is_gone_comes_again(client: AmqpClient) -> None:
    """The client does not hold it any more."""
    sender, receiver = await client.sender("q"), await client.receiver("q")
    await sender.send(message("before"))
    await settled_in(client, receiver, b"unknown")
    (again,) = await received(receiver)
    assert (again.body, again.sections.header["delivery_count"]) == (b"before", 1)


async def test_locks_outlast_a_connection_that_is_lost(
    port: int, client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """Nothing of its transactions happens."""
    async with AmqpClient(port) as gone:
        sender, receiver, link = await gone.sender("q"), await gone.receiver("q"), await gone.coordinator()
        await sender.send(message("before"))
        name = await declared(link)
        await settled_in(gone, receiver, name)
        await sender.send(keyed(), state=TransactionalState(name))
        gone.abort()
        await gone.until(lambda: False)
    survivor = await client.receiver("q")
    survivor.grant(1, drain=True)
    await client.until(lambda: survivor.flowed is not None and survivor.flowed.drain)
    assert survivor.waiting == 0
    namespace.advance(61)
    assert [one.body for one in await received(survivor)] == [b"before"]
    assert await bodies(client) == [b"before"]


async def test_an_unknown_transaction_and_an_odd_request_are_refused(client: AmqpClient) -> None:
    """The coordinator does nothing but begin and end transactions."""
    sender, link = await client.sender("q"), await client.coordinator()
    outcome = await sender.send(keyed(), state=TransactionalState(b"unknown"))
    assert outcome.outcome.error.condition == c.UNKNOWN_TRANSACTION
    for payload in (message(), b"\x00"):
        outcome = await link.send(payload)
        assert outcome.error.condition in {c.ILLEGAL_STATE, service_bus.ARGUMENT_ERROR}
    assert await discharged(link, await declared(link)) == Accepted()


async def test_a_link_by_way_of_another_entity_is_refused(client: AmqpClient) -> None:
    """Its messages would be stored in the entity on the way."""
    with pytest.raises(LinkError) as caught:
        await client.sender("q", properties={SEND_VIA: "t"})
    assert caught.value.condition == c.NOT_IMPLEMENTED
    assert SEND_VIA in str(caught.value)
