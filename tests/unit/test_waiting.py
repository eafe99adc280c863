"""Waiting in tasks: a cancellation is never forgotten, whatever comes at the same moment."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Message, Producer
from redis.asyncio import Redis

from kafkabus._async.compat import Bell, Pool
from kafkabus._async.kafka.compat import Deliveries
from kafkabus._async.redis.connection import RedisConnection
from kafkabus._kafka.delivery_reports import DeliveryReports
from kafkabus._sync.compat import Pool as BlockingPool
from kafkabus._sync.kafka.compat import Deliveries as BlockingDeliveries
from tests.kafka_log import KAFKA_LOG

STEPS = range(6)
"""How many turns of the loop pass between the event and the cancellation."""


def unconnected_producer() -> Producer:
    return Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, logger=KAFKA_LOG)


async def cancelled_after(task: asyncio.Task[object], happens: Callable[[], object], turns: int) -> bool:
    """Return whether a task is cancelled so many turns after the event that it waits for, or was done by then."""
    for _ in range(3):
        await asyncio.sleep(0)
    happens()
    for _ in range(turns):
        await asyncio.sleep(0)
    if not task.cancel():
        return True
    await asyncio.wait([task])
    return task.cancelled()


@pytest.mark.asyncio
async def test_a_bell_that_rings_hides_no_cancellation() -> None:
    """asyncio.wait_for hid them before Python 3.12, and a cancelled service went on for ever."""
    for timeout in (None, 60):
        for turns in STEPS:
            bell = Bell()
            assert await cancelled_after(asyncio.create_task(bell.wait(timeout)), bell.ring, turns)


@pytest.mark.asyncio
async def test_an_answer_of_redis_hides_no_cancellation() -> None:
    """redis-py sends its commands with asyncio.wait_for.

    A receive that was cancelled as the answer came went on for an hour.
    """
    connection = RedisConnection(Redis(), address="nowhere", namespace="n")
    connection._looked_at = True
    loop = asyncio.get_running_loop()
    for turns in STEPS:
        answer: asyncio.Future[bytes] = loop.create_future()

        async def receive(answer: asyncio.Future[bytes] = answer) -> None:
            await connection.call(lambda: asyncio.wait_for(answer, 60))
            await asyncio.sleep(0)

        def come(answer: asyncio.Future[bytes] = answer) -> None:
            answer.set_result(b"")

        assert await cancelled_after(asyncio.create_task(receive()), come, turns)


@pytest.mark.asyncio
async def test_an_acknowledgement_hides_no_cancellation() -> None:
    """A sender does not hide one, either."""
    pool = Pool("waiting")
    producer = unconnected_producer()
    for turns in STEPS:
        reports = DeliveryReports(1)
        deliveries = Deliveries(producer, pool)
        waiting = asyncio.create_task(deliveries.wait(reports, 60))

        def acknowledge(reports: DeliveryReports = reports) -> None:
            thread = threading.Thread(target=reports.acknowledge, args=(None, Message()))
            thread.start()
            thread.join()

        assert await cancelled_after(waiting, acknowledge, turns)
    await pool.close()


@pytest.mark.asyncio
async def test_tasks_do_not_wait_for_a_closed_producer(caplog: pytest.LogCaptureFixture) -> None:
    """A client may be closed while tasks wait for acknowledgements, or before a thread has begun to serve these."""
    pool = Pool("waiting")
    deliveries = Deliveries(unconnected_producer(), pool)
    waiting = [asyncio.create_task(deliveries.wait(DeliveryReports(1), 600)) for _ in range(3)]
    await asyncio.sleep(0)
    deliveries.close()
    assert await asyncio.gather(*waiting) == [False] * 3
    assert not await deliveries.wait(DeliveryReports(1), 600)
    await pool.close()
    gc.collect()
    assert not caplog.records


def test_threads_do_not_wait_for_a_closed_producer() -> None:
    """All of them return, also the one that serves the others."""
    deliveries = BlockingDeliveries(unconnected_producer(), BlockingPool("waiting"))
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(deliveries.wait, DeliveryReports(1), 600) for _ in range(3)]
        deliveries.close()
        assert [one.result() for one in waiting] == [False] * 3
    assert not deliveries.wait(DeliveryReports(1), 600)


@pytest.mark.asyncio
async def test_a_client_keeps_no_more_threads_than_it_needs() -> None:
    """Many calls at once need many threads; once fewer are needed, those end."""
    pool, arrived = Pool("renewed"), threading.Barrier(8)
    try:
        await asyncio.gather(*(pool.run(arrived.wait, 60) for _ in range(arrived.parties)))
        busy = [thread for thread in threading.enumerate() if thread.name.startswith("renewed")]
        assert len(busy) == arrived.parties
        pool._renew_at = 0.0  # as after half a minute
        await pool.run(lambda: None)
        for thread in busy:
            thread.join(60)
            assert not thread.is_alive()
    finally:
        await pool.close()
    with pytest.raises(RuntimeError):
        await pool.run(lambda: None)
