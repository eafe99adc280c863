"""Forwarding on real logs: forwarders die, destinations are deleted, and Redis loses everything."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from kafkabus._async.context import ClientContext as AsyncContext
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities import catalog
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import LedgerState
from kafkabus._sync.dispositions.transfer import ORPHAN_AGE
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace
from kafkabus.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.forwarder import LOCK, Forwarder
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.contract.receiving import receive_all
from tests.integration.facade.test_rebuild import empty
from tests.queues import new_queue

PATIENCE = 60.0
NAMESPACE = "forwarded"
"""A namespace whose Redis may be emptied; see ``own_runtime``."""
ROUND = 1.0
"""How long, in seconds, a forwarder works at a time."""


def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    """Send messages of one key."""
    client.get_queue_sender(queue).send_messages([ServiceBusMessage(body, partition_key="k") for body in bodies])


def all_of(client: ServiceBusClient, queue: str, count: int, sub_queue: ServiceBusSubQueue | None = None) -> list[str]:
    """Receive and complete so many messages, and see that no more come; return their bodies."""
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        return [str(message) for message in receive_all(receiver, count, quiet=1.0)]


def once(_state: LedgerState) -> bool:
    """Stop after one round of forwarding."""
    return True


def all_forwarded(count: int) -> Callable[[LedgerState], bool]:
    """Stop when all messages of a plain queue are forwarded, of which there are so many."""
    return lambda state: (state.cursor, state.in_flight) == (count, 0)


def forward(connection_string: str, queue: str, until: Callable[[LedgerState], bool]) -> LedgerState:
    """Forward as upkeep does, until the ledger of a plain queue is as wanted, or a time limit passes; return its state."""

    async def work() -> LedgerState:
        context = AsyncContext(parse_settings(connection_string))
        try:
            entity = await context.catalog.entity(EntityPath(queue))
            deadline = time.monotonic() + PATIENCE
            while True:
                forwarder = Forwarder(context)
                try:
                    await forwarder.forward(entity, ROUND)
                finally:
                    await forwarder.close()
                (state,) = await context.ledger_client.states(entity.ledgers)
                assert state is not None
                if until(state) or time.monotonic() > deadline:
                    return state
        finally:
            await context.close()

    return asyncio.run(work())


def die_at(
    step: str, connection_string: str, client: ServiceBusClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send three messages; the forwarder dies at a step of forwarding them."""
    send(client, queue, "1", "2", "3")
    with monkeypatch.context() as patch:
        patch.setattr(Transfers, step, _fail)
        with pytest.raises(ServiceBusCommunicationError):
            forward(connection_string, queue, lambda _: False)


@pytest.mark.parametrize("step", ["begin", "produce", "end"])
def test_whoever_forwards_may_die(
    untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It may die at any step. Others finish its work, later messages overtake none, and each message comes once."""
    destination, namespace = new_queue(untended, enable_partitioning=True), parse_settings(untended).namespace
    queue = new_queue(untended, forward_to=destination)
    with ServiceBusClient.from_connection_string(untended) as client:
        die_at(step, untended, client, queue, monkeypatch)
        send(client, queue, "4", "5")
        state = forward(untended, queue, all_forwarded(5) if step == "begin" else once)
        if step == "begin":
            # The forwarder had only looked at the messages.
            assert (state.in_flight, state.moving) == (0, 0)
        else:
            assert (state.in_flight, state.moving) == (3, 3)
            counts = _counts(untended, queue)
            assert (counts.transfer_message_count, counts.active_message_count) == (3, 2)
        advance(runtime.redis_url, namespace, queue, ORPHAN_AGE + 1)
        state = forward(untended, queue, all_forwarded(5))
        assert all_of(client, destination, 5) == ["1", "2", "3", "4", "5"]
        assert (state.in_flight, state.moving) == (0, 0)


def test_whoever_forwards_may_die_before_the_first_step(
    untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages that it had locked come first, once the locks expire."""
    destination, namespace = new_queue(untended), parse_settings(untended).namespace
    queue = new_queue(untended, forward_to=destination)
    with ServiceBusClient.from_connection_string(untended) as client:
        send(client, queue, "1", "2", "3")
        with monkeypatch.context() as patch:
            patch.setattr(Forwarder, "_move_on", _fail)
            patch.setattr("kafkabus._async.receiving.undelivered.UndeliveredGrants.put_back", _nothing)
            with pytest.raises(ServiceBusCommunicationError):
                forward(untended, queue, lambda _: False)
        send(client, queue, "4")
        assert forward(untended, queue, once).in_flight == 3
        assert all_of(client, destination, 0) == []
        advance(runtime.redis_url, namespace, queue, LOCK.total_seconds() + 1)
        forward(untended, queue, all_forwarded(4))
        assert all_of(client, destination, 4) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("anew", [False, True], ids=["for ever", "and comes back"])
def test_a_destination_that_goes_while_messages_are_on_their_way(
    untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """They end among the messages that could not be forwarded, or in the new destination, whose partitions differ."""
    destination, namespace = new_queue(untended, enable_partitioning=True), parse_settings(untended).namespace
    queue = new_queue(untended, forward_to=destination)
    with ServiceBusClient.from_connection_string(untended) as client:
        die_at("produce", untended, client, queue, monkeypatch)
        with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
            administration.delete_queue(destination)
            if anew:
                administration.create_queue(destination)
        advance(runtime.redis_url, namespace, queue, ORPHAN_AGE + 1)
        state = forward(untended, queue, all_forwarded(3))
        assert (state.in_flight, state.moving) == (0, 0)
        undelivered = all_of(client, queue, 0 if anew else 3, ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
        found = all_of(client, destination, 3) if anew else []
        assert (undelivered, found) == (([], ["1", "2", "3"]) if anew else (["1", "2", "3"], []))


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_copies_in_a_destination_that_was_created_anew_count(
    untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, is_partitioned: bool
) -> None:
    """A forwarder uses the description of a deleted queue for some seconds; its copies are stored in the new queue's topic."""
    destination, namespace = new_queue(untended, enable_partitioning=is_partitioned), parse_settings(untended).namespace
    queue = new_queue(untended, forward_to=destination)

    async def forward_and_die() -> None:
        context = AsyncContext(parse_settings(untended))
        forwarder = Forwarder(context)
        try:
            source, known = [await context.catalog.entity(EntityPath(name)) for name in (queue, destination)]
            administration.delete_queue(destination)
            administration.create_queue(destination, enable_partitioning=is_partitioned)
            with monkeypatch.context() as patch:
                patch.setattr(Transfers, "end", _fail)
                with pytest.raises(ServiceBusCommunicationError):
                    await forwarder.forward(source, PATIENCE)
            assert await context.catalog.entity(EntityPath(destination)) == known
        finally:
            await forwarder.close()
            await context.close()

    monkeypatch.setattr(catalog, "DESCRIPTION_AGE", PATIENCE)
    with (
        ServiceBusClient.from_connection_string(untended) as client,
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
    ):
        send(client, queue, "1", "2", "3")
        asyncio.run(forward_and_die())
        send(client, queue, "4")
        advance(runtime.redis_url, namespace, queue, ORPHAN_AGE + 1)
        forward(untended, queue, all_forwarded(4))
        assert all_of(client, destination, 4) == ["1", "2", "3", "4"]


def test_several_forward_at_once(untended: str) -> None:
    """That happens when upkeep's instances change. No message comes twice, and those of a key come in order."""
    destination = new_queue(untended)
    queue = new_queue(untended, forward_to=destination)

    async def work(done: asyncio.Event) -> None:
        context = AsyncContext(parse_settings(untended))
        forwarder = Forwarder(context)
        try:
            while not done.is_set():
                await forwarder.forward(await context.catalog.entity(EntityPath(queue)), ROUND / 5)
        finally:
            await forwarder.close()
            await context.close()

    async def all_at_once(send_all: Callable[[], Awaitable[None]]) -> None:
        done = asyncio.Event()
        tasks = [asyncio.create_task(work(done)) for _ in range(3)]
        await send_all()
        done.set()
        await asyncio.gather(*tasks)

    with ServiceBusClient.from_connection_string(untended) as client:
        sender, found = client.get_queue_sender(queue), list[str]()

        async def send_all() -> None:
            for number in range(50):
                messages = [ServiceBusMessage(f"{key} {number}", partition_key=key) for key in "abc"]
                await asyncio.to_thread(sender.send_messages, messages)
            deadline = time.monotonic() + PATIENCE
            while len(found) < 150 and time.monotonic() < deadline:
                found.extend(await asyncio.to_thread(all_of, client, destination, 0))

        asyncio.run(all_at_once(send_all))
        found += all_of(client, destination, 0)
    by_key: dict[str, list[int]] = defaultdict(list)
    for body in found:
        key, number = body.split()
        by_key[key].append(int(number))
    assert by_key == {key: list(range(50)) for key in "abc"}


def test_nothing_is_lost_when_redis_loses_everything(own_runtime: EmbeddedRuntime) -> None:
    """Redis fails while messages are forwarded; some may come again."""
    destination = new_queue(own_runtime.connection_string, enable_partitioning=True)
    queue = new_queue(own_runtime.connection_string, enable_partitioning=True, forward_to=destination)
    sent, found = [str(number) for number in range(1000)], set[str]()
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        sender = client.get_queue_sender(queue)
        for first in range(0, 1000, 50):
            sender.send_messages([ServiceBusMessage(body) for body in sent[first : first + 50]])
            if first == 500:
                empty(own_runtime)
        deadline = time.monotonic() + 3 * PATIENCE
        while len(found) < 1000 and time.monotonic() < deadline:
            try:
                found.update(all_of(client, destination, 0))
            except ServiceBusError:  # noqa: PERF203  # ledgers are made again
                continue
    assert found == set(sent)


def _counts(connection_string: str, queue: str) -> Any:
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        return administration.get_queue_runtime_properties(queue)


async def _fail(*_arguments: Any, **_named: Any) -> None:
    raise ServiceBusCommunicationError("killed")


async def _nothing(*_arguments: Any, **_named: Any) -> None:
    """Do nothing, as a dead forwarder does."""
