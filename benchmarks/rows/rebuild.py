"""Ledgers that Redis lost, made anew by one client, and what others of its operations wait for meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import redis

from benchmarks.results import MILLISECONDS, Budget, Result
from benchmarks.rounds import Scale, rate
from benchmarks.workbench import NAMESPACE, Workbench
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Claim, Keep
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath

_QUEUES = 70
_TRANSACTIONS = 370
"""How many markers each ledger is compared with."""
_WANTED = 500.0
"""How many ledgers a second are to be made anew."""
_MOST_MS = 50.0
"""For how long, in milliseconds, an operation of another queue may wait meanwhile, but for one in a hundred."""
_ELSEWHERE = "elsewhere"
_UNTENDED = "untended"
"""A namespace that no upkeep service makes anything anew in."""


def rebuild(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """All ledgers of partitioned queues, whose keys are deleted from Redis; all are asked for at once.

    The references are what we promise ourselves.
    """
    connection = bench.connection_string.replace(f"sb://{NAMESPACE}.", f"sb://{_UNTENDED}.")
    queues = [f"queue-{number}" for number in range(scale.count(_QUEUES))]
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        for name in queues:
            administration.create_queue(name, enable_partitioning=True)
        administration.create_queue(_ELSEWHERE)
        try:
            with ServiceBusClient.from_connection_string(connection) as client:
                sender = client.get_queue_sender(_ELSEWHERE)
                for _ in range(scale.count(_TRANSACTIONS)):
                    with client.transaction() as transaction:
                        sender.send_messages(ServiceBusMessage("one"), transaction=transaction)
            measured = [asyncio.run(_lose_and_rebuild(bench, connection, queues)) for _ in range(scale.rounds + 1)][1:]
        finally:
            for name in (*queues, _ELSEWHERE):
                administration.delete_queue(name)
    speed, wait = (median(values) for values in zip(*measured, strict=True))
    yield Result(
        f"ledgers made anew, with {_TRANSACTIONS} transactions: {_WANTED:,.0f} a second",
        speed,
        "ledgers/s",
        _WANTED,
        speed / _WANTED,
        Budget(1.0),
    )
    yield Result(
        f"an operation of another queue meanwhile, p99: {_MOST_MS:g} ms",
        wait,
        MILLISECONDS,
        _MOST_MS,
        wait / _MOST_MS,
        Budget(1.0, at_most=True),
    )


async def _lose_and_rebuild(bench: Workbench, connection: str, queues: list[str]) -> tuple[float, float]:
    """How many ledgers a second were made anew, and the 99th percentile of what others waited, in milliseconds."""
    context = ClientContext(parse_settings(connection))
    try:
        entities = [await context.catalog.entity(EntityPath(name)) for name in queues]
        elsewhere = await context.catalog.entity(EntityPath(_ELSEWHERE))
        keeps = [Keep(ledger) for entity in entities for ledger in entity.ledgers]
        await context.ledger_client.execute(*keeps)
        # Written before all transactions.
        await context.checkpoints.write({keep.ledger.keys.prefix: replace(keep.snapshot, markers=0) for keep in keeps})
        with redis.Redis.from_url(bench.redis_url) as store:
            for keep in keeps:
                store.delete(*keep.ledger.keys.shared)
        waits: list[float] = []
        done = asyncio.Event()
        asking = asyncio.create_task(_ask_until(done, context, elsewhere, waits))
        began = time.perf_counter()
        await asyncio.gather(*(_ask(context, entity) for entity in entities))
        speed = rate(len(keeps), began)
        done.set()
        await asking
        return speed, sorted(waits)[int(len(waits) * 0.99)] * 1000
    finally:
        await context.close()


async def _ask(context: ClientContext, entity: Entity) -> None:
    await context.ledger_client.execute(*(Claim.of_nothing(ledger) for ledger in entity.ledgers))


async def _ask_until(done: asyncio.Event, context: ClientContext, entity: Entity, waits: list[float]) -> None:
    while not done.is_set():
        began = time.perf_counter()
        await _ask(context, entity)
        waits.append(time.perf_counter() - began)
