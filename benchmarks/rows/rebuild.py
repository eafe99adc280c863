"""Rebuilding of ledgers that Redis lost by one client, and the waiting time of its other operations during that time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import redis

from benchmarks.results import MILLISECONDS, Budget, Curve, Result, target
from benchmarks.rounds import Scale, rate
from benchmarks.workbench import PARTITIONS, Workbench
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Claim, TakeSnapshot
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath

_PARTITIONED, _PLAIN = 100, 900
"""How many queues with 16 ledgers, and with one, lose them."""
_FEW, _SOME = 100, 500
"""The numbers of ledgers of the plot, besides all."""
_TRANSACTIONS = 1_000
"""The number of transaction markers that each ledger is compared with."""
_WANTED = 500.0
"""The target: ledgers rebuilt per second."""
_MOST_MS = 50.0
"""The target for the 99th percentile of an operation of another queue during the rebuild, in milliseconds."""
_ELSEWHERE = "elsewhere"


def rebuild(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure the rebuilding of all ledgers after Redis was emptied; all are used at once.

    The references are the project's own targets.
    """
    partitioned, plain = scale.count(_PARTITIONED), scale.count(_PLAIN)
    # An upkeep service would rebuild ledgers itself.
    with EmbeddedRuntime(bench.scratch / "rebuild", namespace="rebuild", upkeep=False) as runtime:
        queues = [f"partitioned-{number}" for number in range(partitioned)]
        queues += [f"plain-{number}" for number in range(plain)]
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            for number, name in enumerate(queues):
                administration.create_queue(name, enable_partitioning=number < partitioned)
            administration.create_queue(_ELSEWHERE)
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            sender = client.get_queue_sender(_ELSEWHERE)
            for _ in range(scale.count(_TRANSACTIONS)):
                with client.transaction() as transaction:
                    sender.send_messages(ServiceBusMessage("one"), transaction=transaction)
        # It warns of each ledger.
        logging.getLogger("kafkabus").setLevel(logging.ERROR)
        speeds: dict[float, float] = {}
        for several in (queues[: _FEW // PARTITIONS], queues[: _SOME // PARTITIONS], queues):
            measured = [asyncio.run(_lose_and_rebuild(runtime, several)) for _ in range(scale.rounds + 1)][1:]
            speed, wait = (median(values) for values in zip(*measured, strict=True))
            speeds[sum(PARTITIONS if name.startswith("partitioned") else 1 for name in several)] = speed
        logging.getLogger("kafkabus").setLevel(logging.NOTSET)
    yield Result(
        f"{PARTITIONS * partitioned + plain:,} ledgers rebuilt, with {_TRANSACTIONS:,} transactions: {_WANTED:,.0f} a second",
        speed,
        "ledgers/s",
        _WANTED,
        speed / _WANTED,
        Budget(1.0),
        curve=Curve("ledgers rebuilt, ledgers/s", "ledgers", tuple(speeds.items())),
    )
    yield target(f"an operation of another queue during a rebuild, p99: {_MOST_MS:g} ms", MILLISECONDS, wait, _MOST_MS)


async def _lose_and_rebuild(runtime: EmbeddedRuntime, queues: list[str]) -> tuple[float, float]:
    """Return ledgers rebuilt per second, and the 99th percentile of other operations' waits in milliseconds."""
    context = ClientContext(parse_settings(runtime.connection_string))
    try:
        entities = [await context.catalog.entity(EntityPath(name)) for name in queues]
        elsewhere = await context.catalog.entity(EntityPath(_ELSEWHERE))
        keeps = [TakeSnapshot(ledger) for entity in entities for ledger in entity.ledgers]
        await context.ledger_client.execute(*keeps)
        # The ledger's state from before all transactions.
        await context.stores.checkpoints.write(
            {keep.ledger.keys.prefix: replace(keep.snapshot, markers=0) for keep in keeps}
        )
        with redis.Redis.from_url(runtime.redis_url) as store:
            store.flushall()
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
    await context.ledger_client.execute(*(Claim.poll(ledger) for ledger in entity.ledgers))


async def _ask_until(done: asyncio.Event, context: ClientContext, entity: Entity, waits: list[float]) -> None:
    while not done.is_set():
        began = time.perf_counter()
        await _ask(context, entity)
        waits.append(time.perf_counter() - began)
