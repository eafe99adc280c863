"""Parts of upkeep, and of the list of entities, that keep the work for a large namespace small."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.context import ClientContext
from kafkabus._async.redis.upkeep_events import LOOK_EVERYWHERE, UpkeepEvent, UpkeepEvents
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Ledger
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus.upkeep import entity_maintainer
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus.upkeep.first_look import FirstLook
from kafkabus.upkeep.log_watch import LogWatch
from kafkabus.upkeep.service import Upkeep, is_home
from kafkabus_mapping.entities import EntityDescription
from kafkabus_mapping.names import EntityPath


@pytest.fixture(params=["in memory", "servers"])
def new_namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a new namespace that upkeep does not tend."""
    if request.param == "servers":
        yield request.getfixturevalue("untended")
        return
    with InMemoryNamespace(upkeep=False) as namespace:
        yield namespace.connection_string


@pytest.fixture
async def context(new_namespace: str) -> AsyncIterator[ClientContext]:
    """The parts of a client of it."""
    opened = ClientContext(parse_settings(new_namespace))
    yield opened
    await opened.close()


@pytest.fixture
async def administration(new_namespace: str) -> AsyncIterator[ServiceBusAdministrationClient]:
    """An administration client of it."""
    async with ServiceBusAdministrationClient.from_connection_string(new_namespace) as opened:
        yield opened


@pytest.fixture
async def client(new_namespace: str) -> AsyncIterator[ServiceBusClient]:
    """A client of it."""
    async with ServiceBusClient.from_connection_string(new_namespace) as opened:
        yield opened


async def quiet_among(context: ClientContext, *names: str) -> set[str]:
    """Return the paths of those of some queues, and of their dead-letter queues, that need nothing done."""
    described: dict[EntityPath, EntityDescription] = {}
    for name in names:
        description = await context.descriptions.get(name)
        assert description is not None
        described |= dict.fromkeys(EntityPath(name).all, description)
    return {str(one.entity.path) for one in await FirstLook(context).quiet(described)}


async def test_queues_that_hold_nothing_need_nothing_done(
    context: ClientContext, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """A message that waits, is locked or is not deleted from the log yet may need something, and so do some settings."""
    for name in ("empty", "waiting", "locked", "settled", "buried", "partly"):
        await administration.create_queue(name, enable_partitioning=name in {"empty", "partly"})
        if name != "empty":
            sender, receiver = client.get_queue_sender(name), client.get_queue_receiver(name)
            await sender.send_messages(ServiceBusMessage("x"))
            if name in {"locked", "settled", "buried"}:
                (message,) = await receiver.receive_messages(max_wait_time=30)
                if name == "settled":
                    await receiver.complete_message(message)
                if name == "buried":
                    await receiver.dead_letter_message(message)
    await administration.create_queue("idle", auto_delete_on_idle="PT1H")
    await administration.create_queue("forwards", forward_to="empty")
    await administration.create_queue("detects", requires_duplicate_detection=True)
    every = [one.name async for one in administration.list_queues()]
    assert await quiet_among(context, *every) == {"empty"}
    await delete_first_record(context, "settled")
    # Its last checkpoint may say that the message waits.
    assert await quiet_among(context, *every) == {"empty"}
    await EntityMaintainer(context, EntityPath("settled")).maintain()
    assert await quiet_among(context, *every) == {"empty", "settled"}


async def delete_first_record(context: ClientContext, queue: str) -> None:
    """Delete the first record of a queue's log, as upkeep does when it is settled, or kept apart."""
    entity = await context.catalog.entity(EntityPath(queue))
    await context.topics.delete_records(entity.topic, {0: 1})


async def test_a_queue_whose_checkpoint_says_otherwise_is_tended(
    context: ClientContext, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Else a message that was completed would come again, once Redis is emptied."""
    await administration.create_queue("q")
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
    await sender.send_messages(ServiceBusMessage("x"))
    (message,) = await receiver.receive_messages(max_wait_time=30)
    await receiver.defer_message(message)
    await EntityMaintainer(context, EntityPath("q")).maintain()
    (deferred,) = await receiver.receive_deferred_messages(message.sequence_number)
    await receiver.complete_message(deferred)
    await delete_first_record(context, "q")
    assert await quiet_among(context, "q") == set()
    await EntityMaintainer(context, EntityPath("q")).maintain()
    assert await quiet_among(context, "q") == {"q"}


async def test_a_quiet_queue_of_messages_that_do_not_live_long_is_watched(
    context: ClientContext, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """As it is after it was tended."""
    await administration.create_queue("lives", default_message_time_to_live="PT20S")
    await administration.create_queue("once")
    sender, receiver = client.get_queue_sender("once"), client.get_queue_receiver("once")
    await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
    (message,) = await receiver.receive_messages(max_wait_time=30)
    await receiver.complete_message(message)
    await delete_first_record(context, "once")
    await EntityMaintainer(context, EntityPath("once")).maintain()
    await administration.create_queue("other")
    urgent = {}
    for name in ("lives", "once", "other"):
        description = await context.descriptions.get(name)
        assert description is not None
        (quiet,) = await FirstLook(context).quiet({EntityPath(name): description})
        urgent[name] = quiet.is_urgent
    assert urgent == {"lives": True, "once": True, "other": False}


async def test_a_dead_letter_queue_of_another_instance_is_tended(
    new_namespace: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """It comes into being while the instance that tends its queue is another one."""
    await administration.create_queue("bin")
    stop, services = asyncio.Event(), [Upkeep(parse_settings(new_namespace)) for _ in range(2)]
    running = [asyncio.create_task(one.run(stop)) for one in services]
    try:
        await until(lambda: all(len(one.members) == 2 for one in services))
        instances = [one.context.client_id for one in services if one.context is not None]

        def home(path: EntityPath) -> str:
            return next(one for one in instances if is_home(path.key, one, services[0].members))

        paths = [EntityPath(f"queue-{number}") for number in range(100)]
        path = next(one for one in paths if home(one) != home(one.dead_letter))
        await administration.create_queue(path.name, forward_dead_lettered_messages_to="bin")
        sender, receiver = client.get_queue_sender(path.name), client.get_queue_receiver(path.name)
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=30)
        await receiver.dead_letter_message(message)
        assert await client.get_queue_receiver("bin").receive_messages(max_wait_time=30)
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*running), 30)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a state."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_calm", [False, True])
async def test_a_record_is_noticed_in_logs_that_are_calm(
    context: ClientContext,
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    monkeypatch: pytest.MonkeyPatch,
    is_calm: bool,
) -> None:
    """Each log is looked at in turn; none is left out."""
    monkeypatch.setattr(entity_maintainer, "CALM_AFTER", 0.0 if is_calm else 3600.0)
    names = [f"queue-{number}" for number in range(5)]
    maintainers = []
    for name in names:
        await administration.create_queue(name)
        maintainers.append(EntityMaintainer(context, EntityPath(name)))
        await maintainers[-1].maintain()
    assert {one.is_calm(time.monotonic()) for one in maintainers} == {is_calm}
    watch = LogWatch(context)
    assert await watch.find_moved(maintainers) == []
    await client.get_queue_sender("queue-3").send_messages(ServiceBusMessage("x"))
    noticed: list[EntityMaintainer] = []
    for _ in range(1_000):
        # As if nothing else had to be done.
        watch._looked_at = -1e9
        noticed = await watch.find_moved(maintainers)
        if noticed:
            break
    assert [one.path.name for one in noticed] == ["queue-3"]


async def test_changes_of_descriptions_are_read_alone(
    context: ClientContext, administration: ServiceBusAdministrationClient
) -> None:
    """Together with what was known before, they are all descriptions."""
    await administration.create_queue("gone")
    await administration.create_queue("Stays")
    before = await context.descriptions.edition()
    known = {one.name.lower(): one for one in await context.descriptions.all()}
    assert await context.descriptions.changes(before.upto, before.upto) == {}
    await administration.create_topic("new")
    await administration.create_subscription("new", "one")
    await administration.update_queue(await administration.get_queue("Stays"), max_delivery_count=3)
    await administration.delete_queue("gone")
    after = await context.descriptions.edition()
    changes = await context.descriptions.changes(before.upto, after.upto)
    assert set(changes) == {"new", "new/subscriptions/one", "stays", "gone"}
    every = {name: one for name, one in {**known, **changes}.items() if one is not None}
    assert every == {one.name.lower(): one for one in await context.descriptions.all()}
    assert after.life == before.life


async def test_queues_are_counted_together_as_by_themselves(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Those that hold nothing in one go, the others one by one."""
    for name in ("empty", "waiting", "settled", "buried"):
        await administration.create_queue(name, enable_partitioning=name == "empty")
        if name != "empty":
            sender, receiver = client.get_queue_sender(name), client.get_queue_receiver(name)
            await sender.send_messages(ServiceBusMessage("x"))
            if name in {"settled", "buried"}:
                (message,) = await receiver.receive_messages(max_wait_time=30)
                await (receiver.complete_message if name == "settled" else receiver.dead_letter_message)(message)
    # Its receivers give heartbeats, by which the time of the last access changes.
    await client.close()
    listed = [one async for one in administration.list_queues_runtime_properties()]
    assert listed == [await administration.get_queue_runtime_properties(one.name) for one in listed]
    assert [one.total_message_count for one in listed] == [1, 0, 0, 1]
    assert len(listed[1].partitions) == 16
    settings = [one async for one in administration.list_queues()]
    assert settings == [await administration.get_queue(one.name) for one in settings]


async def test_ledgers_that_are_not_as_they_were_written_down_are_found(
    context: ClientContext, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Changed ones, and those that are gone; one that was never changed is as it was."""
    for name in ("never", "since", "gone"):
        await administration.create_queue(name)
    ledgers = [ledger for name in ("never", "since", "gone") for ledger in await ledgers_of(context, name)]
    before = await context.ledger_client.changes(ledgers)
    assert await context.ledger_client.not_as_written(ledgers, before) == []
    assert await context.ledger_client.not_as_written(ledgers, [None] * 3) == [0, 1, 2]
    await client.get_queue_sender("since").send_messages(ServiceBusMessage("x"))
    assert await client.get_queue_receiver("since").receive_messages(max_wait_time=30)
    await context.ledger_client.forget([ledgers[2]])
    assert await context.ledger_client.not_as_written(ledgers, before) == [1, 2]


async def ledgers_of(context: ClientContext, queue: str) -> Sequence[Ledger]:
    """Return the ledgers of a queue."""
    return (await context.catalog.entity(EntityPath(queue))).ledgers


async def test_a_ledger_that_was_never_changed_tells_of_its_first_change(
    new_namespace: str, context: ClientContext, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """However long ago upkeep looked at it."""
    await administration.create_queue("q")
    ledgers = await ledgers_of(context, "q")
    # As if upkeep had said a while ago that it would look soon.
    await context.ledger_client.look(ledgers, await context.ledger_client.changes(ledgers), -60)
    events = UpkeepEvents(context.connections.redis, parse_settings(new_namespace).namespace)
    try:
        assert await events.next() == LOOK_EVERYWHERE
        await client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
        assert await client.get_queue_receiver("q").receive_messages(max_wait_time=30)
        event = await asyncio.wait_for(first_of(events), 10)
        assert event.entity == "q"
    finally:
        await events.close()


async def first_of(events: UpkeepEvents) -> UpkeepEvent:
    """Return the next event of an entity."""
    while True:
        event = await events.next()
        if event is not None and event != LOOK_EVERYWHERE:
            return event
