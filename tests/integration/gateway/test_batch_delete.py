"""Deleting messages by `batch-delete-messages`: never more than the request asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus._async.receiving import deletion
from kafkabus._ledger.operations import Seize
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.performatives import Accepted, Modified
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.sources import SESSION_FILTER
from kafkabus.management import ServiceBusAdministrationClient, SqlRuleFilter
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.types import Array, Int, Symbol
from tests.amqp_client import AmqpClient
from tests.integration.gateway.conversation import message, operation, received

DELETE = "batch-delete-messages"


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace with queues, and a topic whose subscription wants half of the messages."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_namespace("Premium", 4)
        administration.create_queue("q")
        administration.create_queue("s", requires_session=True)
        administration.create_queue(
            "d", requires_duplicate_detection=True, duplicate_detection_history_time_window=timedelta(minutes=5)
        )
        administration.create_topic("t")
        administration.create_subscription("t", "half")
        administration.delete_rule("t", "half", "$Default")
        administration.create_rule("t", "half", "wanted", filter=SqlRuleFilter("wanted = 1"))
        yield namespace


@pytest.fixture
async def client(namespace: InMemoryNamespace) -> AsyncIterator[AmqpClient]:
    """A client of a gateway to it."""
    async with Gateway(namespace.connection_string) as gateway:
        async with AmqpClient(await gateway.listen("127.0.0.1", 0)) as client:
            yield client


def asked(count: Any, before: Any = None, **more: Any) -> dict[str, Any]:
    """Return a request; by default for messages that were enqueued before now, or in the next minute."""
    return {"message-count": count, "enqueued-time-utc": before or later(), **more}


def later(**duration: float) -> datetime:
    """Return a time to come."""
    return datetime.now(timezone.utc) + timedelta(**(duration or {"minutes": 1}))


async def send(client: AmqpClient, count: int, entity: str = "q", **sections: Any) -> None:
    """Send so many messages."""
    sender = await client.sender(entity)
    assert (
        await asyncio.gather(*(sender.send(message(str(n), **sections)) for n in range(count))) == [Accepted()] * count
    )
    await sender.detach()


def active(namespace: InMemoryNamespace, name: str = "q") -> int:
    """Return how many messages of a queue wait or are locked."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        return administration.get_queue_runtime_properties(name).active_message_count


async def test_no_more_messages_are_deleted_than_asked_for(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """From all partitions together; the answer says how many, and there is a separate answer for none."""
    await send(client, 50)
    assert await operation(client, DELETE, asked(Int(10))) == (200, {"message-count": 10})
    assert active(namespace) == 40
    assert await operation(client, DELETE, asked(4_000)) == (200, {"message-count": 40})
    assert await operation(client, DELETE, asked(Int(1))) == (204, None)
    assert active(namespace) == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message-count": Int(1)},
        {"enqueued-time-utc": later()},
        asked(Int(0)),
        asked(Int(-5)),
        asked(Int(4_001)),
        asked(True),
        asked("10"),
        asked(1.5),
        asked(Int(1), "2030-01-01"),
        asked(Int(1), 1_900_000_000_000),
        asked(Int(1), **{"session-id": "x"}),
    ],
)
async def test_a_request_without_its_bounds_deletes_nothing(
    client: AmqpClient, namespace: InMemoryNamespace, body: dict[str, Any]
) -> None:
    """The error says which one is missing or wrong."""
    await send(client, 2)
    assert await operation(client, DELETE, body) == (400, service_bus.ARGUMENT_ERROR)
    assert active(namespace) == 2


async def test_only_messages_that_were_enqueued_before_are_deleted(
    client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """A message that was enqueued at that time, or later, stays."""
    key = {Symbol("x-opt-partition-key"): "k"}
    await send(client, 2, message_annotations=key)
    receiver = await client.receiver("q")
    came = await received(receiver, 2)
    for delivered in came:
        await receiver.settle(delivered, state=Modified(delivery_failed=True))
    second = came[1].sections.message_annotations["x-opt-enqueued-time"]
    await receiver.detach()
    expected = sum(one.sections.message_annotations["x-opt-enqueued-time"] < second for one in came)
    status, body = await operation(client, DELETE, asked(Int(9), second))
    assert (0 if status == 204 else body["message-count"]) == expected
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)
    assert await operation(client, DELETE, asked(Int(9), before_1970)) == (204, None)
    assert active(namespace) == 2 - expected


async def test_messages_that_do_not_wait_stay(client: AmqpClient, namespace: InMemoryNamespace) -> None:
    """Locked, deferred and scheduled ones; one that was abandoned waits."""
    await send(client, 5)
    receiver = await client.receiver("q")
    locked, deferred, abandoned = await received(receiver, 3)
    await receiver.settle(deferred, state=Modified(undeliverable_here=True))
    await receiver.settle(abandoned, state=Modified(delivery_failed=True))
    when = {Symbol("x-opt-scheduled-enqueue-time"): later(hours=1)}
    entry = {"message-id": "m", "message": message("scheduled", message_annotations=when)}
    status, scheduled = await operation(client, "schedule-message", {"messages": [entry]})
    assert status == 200
    assert await operation(client, DELETE, asked(4_000)) == (200, {"message-count": 3})
    await receiver.settle(locked, state=Accepted())
    number = deferred.sections.message_annotations["x-opt-sequence-number"]
    status, _ = await operation(
        client, "receive-by-sequence-number", {"sequence-numbers": Array([number]), "receiver-settle-mode": 1}
    )
    assert status == 200
    assert await operation(client, "cancel-scheduled-message", scheduled) == (200, None)


async def test_a_subscription_counts_its_own_messages_alone(client: AmqpClient) -> None:
    """The rules do not want the others."""
    for wanted in (0, 1, 0, 1, 1):
        await send(client, 1, "t", application_properties={"wanted": Int(wanted)})
    half = "t/Subscriptions/half"
    assert await operation(client, DELETE, asked(Int(2)), half) == (200, {"message-count": 2})
    assert await operation(client, DELETE, asked(Int(9)), half) == (200, {"message-count": 1})
    assert await operation(client, DELETE, asked(Int(9)), half) == (204, None)


async def test_a_topic_has_no_messages_to_delete(client: AmqpClient) -> None:
    """Its subscriptions have."""
    assert await operation(client, DELETE, asked(Int(9)), "t") == (400, c.NOT_ALLOWED)


async def test_a_duplicate_is_no_message(client: AmqpClient) -> None:
    """Three messages of the same id are one."""
    for name in "xxxy":
        await send(client, 1, "d", properties={"message_id": name})
    assert await operation(client, DELETE, asked(Int(9)), "d") == (200, {"message-count": 2})


async def test_messages_of_a_session_are_deleted_by_its_holder(
    client: AmqpClient, namespace: InMemoryNamespace
) -> None:
    """The other sessions' messages stay, and those that the holder has received."""
    for session in "ABABAB":
        await send(client, 1, "s", properties={"group_id": session})
    assert await operation(client, DELETE, asked(Int(9)), "s") == (400, service_bus.ARGUMENT_ERROR)
    of_a = asked(Int(9), **{"session-id": "A"})
    assert await operation(client, DELETE, of_a, "s") == (410, service_bus.SESSION_LOCK_LOST)
    receiver = await client.receiver("s", filters={SESSION_FILTER: "A"})
    (first,) = await received(receiver)
    assert await operation(client, DELETE, of_a, "s") == (200, {"message-count": 2})
    await receiver.settle(first, state=Modified(delivery_failed=True))
    await receiver.detach()
    assert active(namespace, "s") == 4
    other = await client.receiver("s", filters={SESSION_FILTER: "B"})
    assert [one.body for one in await received(other, 3)] == [b"0"] * 3


async def test_messages_of_a_session_are_deleted_as_long_as_it_is_locked(
    client: AmqpClient, namespace: InMemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are its next receiver's; the answer says how many were deleted before."""
    await send(client, 5, "s", properties={"group_id": "A"})
    await client.receiver("s", filters={SESSION_FILTER: "A"})
    monkeypatch.setattr(deletion, "READ_AT_ONCE", 1)
    left = [2]

    class LockEnds(Seize):
        def arguments(self) -> dict[str, Any]:
            left[0] -= 1
            if not left[0]:
                namespace.advance(61)
            return super().arguments()

    monkeypatch.setattr(deletion, "Seize", LockEnds)
    of_a = asked(Int(9), **{"session-id": "A"})
    status, answer = await operation(client, DELETE, of_a, "s")
    heir = await client.receiver("s", 9, filters={SESSION_FILTER: "A"})
    assert (status, answer) == (200, {"message-count": 1})
    assert len(await received(heir, 4)) == 4
