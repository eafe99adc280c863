"""The way to the ledgers over a network that loses replies, and from many threads or tasks at once."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from kafkabus._async.redis.connection import CALLS_AT_ONCE, connect
from kafkabus._async.redis.connection import RedisConnection as AsyncRedisConnection
from kafkabus._async.redis.ledger_client import LedgerClient as AsyncLedgerClient
from kafkabus._ledger.keys import LedgerKeys
from kafkabus._ledger.operations import Claim, Ledger, LedgerRequest, Operation, Prepare, Seen, Settlement
from kafkabus._sync.compat import Bell
from kafkabus._sync.redis.connection import RedisConnection
from kafkabus._sync.redis.ledger_client import LedgerClient
from kafkabus.embedded.ports import HOST
from kafkabus.exceptions import MessageLockLostError, ServiceBusCommunicationError, ServiceBusError
from kafkabus_mapping.names import EntityPath
from tests.integration.ledger.bench import LOCK_MS, Bench
from tests.proxy import Proxy


def through(proxy: Proxy, bench: Bench, retry_for: float) -> tuple[LedgerClient, Ledger]:
    """A client of the bench's ledger behind a proxy, with no retries but the ledger client's."""
    client = redis.Redis(port=proxy.port, protocol=2, retry=Retry(NoBackoff(), 0))
    connection = RedisConnection(client, address="redis", namespace="ledgers", retry_for=retry_for)
    ledger = Ledger(bench.keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)
    ledger_client = LedgerClient(connection, rebuild=Bench._missing)
    # The client connects before anything is lost, so that the lost reply is that of the request that matters.
    ledger_client.execute(Claim(ledger, "", want=0, lock_ms=0))
    return ledger_client, ledger


async def missing(ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
    """Fail: no ledger of these tests has to be made again."""
    raise AssertionError(f"{[ledger.keys.prefix for ledger in ledgers]} are missing")


def claim_of(ledger: Ledger, lease: str) -> Claim:
    """Return a claim of three messages out of ten."""
    return Claim(ledger, lease, want=3, lock_ms=LOCK_MS, seen=Seen(0, 10, [(0, 9)]))


def test_a_redis_that_never_answered_is_given_up_sooner(monkeypatch: pytest.MonkeyPatch, redis_port: int) -> None:
    """A wrong address is no failover, for which a call waits longer once Redis has answered."""
    monkeypatch.setattr("kafkabus._sync.redis.connection.REACHED_WITHIN", 0.1)
    with Proxy(redis_port) as proxy:
        client = redis.Redis(port=proxy.port, protocol=2, retry=Retry(NoBackoff(), 0))
        connection = RedisConnection(client, address="redis", namespace="ledgers", retry_for=30)
        proxy.lose_replies = True
        with pytest.raises(ServiceBusCommunicationError, match=r"cannot be reached \(tried for 0 s\)"):
            connection.call(client.ping)
        proxy.lose_replies = False
        connection.call(client.ping)
        assert connection._patience == 30


def test_a_lost_reply_is_asked_for_again_and_nothing_is_done_twice(bench: Bench, redis_port: int) -> None:
    """The ledger served the request; its reply was lost; the same number brings the same reply."""
    with Proxy(redis_port) as proxy:
        ledger_client, ledger = through(proxy, bench, retry_for=30)
        proxy.lose_replies = True
        claim = claim_of(ledger, "aa" * 8)
        asking = threading.Thread(target=ledger_client.execute, args=(claim,))
        asking.start()
        deadline = time.monotonic() + 30
        while bench.cursor != 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        proxy.lose_replies = False
        asking.join()
        assert claim.granted.fresh == [(0, 2)]
        assert (bench.cursor, bench.in_flight) == (3, 3)


def test_a_request_in_doubt_goes_first_and_a_claim_that_nobody_waits_for_is_given_back(
    bench: Bench, redis_port: int
) -> None:
    """The caller gives the request up. It is sent again with the next one's, and its messages return uncounted."""
    with Proxy(redis_port) as proxy:
        ledger_client, ledger = through(proxy, bench, retry_for=0.2)
        proxy.lose_replies = True
        with pytest.raises(ServiceBusCommunicationError, match="cannot be reached"):
            ledger_client.execute(claim_of(ledger, "aa" * 8))
        assert bench.cursor == 3
        proxy.lose_replies = False
        second = claim_of(ledger, "bb" * 8)
        ledger_client.execute(second)
        assert second.granted.again == [(0, 2, 0)]
        assert bench.in_flight == 3


def test_a_settlement_in_doubt_holds_nobody_up(bench: Bench, redis_port: int) -> None:
    """The caller gives the settlement up; it is done once, and later callers are served behind it."""
    with Proxy(redis_port) as proxy:
        ledger_client, ledger = through(proxy, bench, retry_for=0.2)
        held = bench.claim(2, upto=2)
        proxy.lose_replies = True
        with pytest.raises(ServiceBusCommunicationError):
            ledger_client.execute(Settlement(ledger, "complete", held.lease, [(0, 0)]))
        assert bench.in_flight == 1
        proxy.lose_replies = False
        second = Settlement(ledger, "complete", held.lease, [(0, 1)])
        ledger_client.execute(second)
        assert (second.lost, bench.in_flight) == ([(0, 0)], 0)


def test_a_ledger_named_again_meanwhile_is_asked_once(bench: Bench) -> None:
    """The request is sent once, although another thread may add to the ledger's operations during a round trip.

    If the request were sent twice, the claim in it would count as given up, and another receiver would get its
    messages, too.
    """

    class Busy(Ledger):
        """A ledger to which an operation is added whenever it is asked for its request."""

        def next_request(self) -> LedgerRequest | None:
            bench.ledger_client._waiting[self] = None
            return super().next_request()

    ledger = Busy(bench.keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)
    claim = claim_of(ledger, "aa" * 8)
    bench.ledger_client.execute(claim)
    assert claim.granted.fresh == [(0, 2)]
    bench.ledger_client.execute(Claim(ledger, "", want=0, lock_ms=0))
    assert bench.another().claim(10).offsets == []


def test_what_nobody_waits_for_any_more_is_not_asked_for(bench: Bench) -> None:
    """If it were granted in one request with its caller's next claim, it would come behind that, and go back after it."""
    given_up, next_one = claim_of(bench.ledger, "aa" * 8), claim_of(bench.ledger, "bb" * 8)
    given_up.is_given_up = True
    bench.ledger_client.enqueue(given_up)
    bench.ledger_client.execute(next_one)
    assert (next_one.granted.fresh, given_up.done) == ([(0, 2)], False)


def test_what_is_granted_in_the_moment_of_giving_up_goes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller is interrupted when it is notified that all is done, and never gets the messages."""
    waits = threading.Event()

    class Interrupted(Bell):
        """A bell that interrupts the thread that it wakes."""

        def wait(self, timeout: float | None = None) -> None:
            waits.set()
            super().wait(timeout)
            raise KeyboardInterrupt

    monkeypatch.setattr("kafkabus._sync.redis.ledger_client.Bell", Interrupted)
    claim = claim_of(bench.ledger, "aa" * 8)

    def ask() -> None:
        with pytest.raises(KeyboardInterrupt):
            bench.ledger_client.execute(claim)

    with bench.ledger_client._turn:
        asking = threading.Thread(target=ask)
        asking.start()
        assert waits.wait(10)
        bench.ledger_client._carry()
        bench.ledger_client._wake()
        asking.join()
    assert claim.granted.fresh == [(0, 2)]
    bench.ledger_client.flush()
    assert (bench.in_flight, bench.another().claim(10).offsets) == (3, [0, 1, 2])


def test_operations_of_many_threads_share_round_trips(bench: Bench) -> None:
    """Each is done exactly once, and there are fewer requests than operations."""
    held = bench.claim(800, upto=800)
    lost: list[object] = []

    def complete(start: int) -> None:
        for offset in range(start, start + 50):
            settlement = Settlement(bench.ledger, "complete", held.lease, [(offset, offset)])
            bench.ledger_client.execute(settlement)
            lost.extend(settlement.lost)

    threads = [threading.Thread(target=complete, args=(start,)) for start in range(0, 800, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert bench.in_flight == 0
    assert bench.ledger.number < 800


def test_of_those_who_settle_one_message_at_once_one_does(bench: Bench) -> None:
    """That holds if their settlements share a round trip, too: all others lose it."""
    held = bench.claim(50, upto=50)
    settlements = [[Settlement(bench.ledger, "complete", held.lease, [(n, n)]) for n in range(50)] for _ in range(8)]

    def complete(mine: list[Settlement]) -> None:
        for settlement in mine:
            bench.ledger_client.execute(settlement)

    threads = [threading.Thread(target=complete, args=(mine,)) for mine in settlements]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for contenders in zip(*settlements, strict=True):
        assert sorted(len(one.lost) for one in contenders) == [0] + [1] * 7


@pytest.fixture
async def tasks_client(redis_port: int) -> AsyncGenerator[AsyncLedgerClient]:
    """A way to ledgers for asyncio tasks."""
    async with connect(f"redis://{HOST}:{redis_port}/0") as client:
        yield AsyncLedgerClient(
            AsyncRedisConnection(client, address="redis", namespace="ledgers", retry_for=1), rebuild=missing
        )


async def test_tasks_ask_again_for_a_lost_reply_and_nothing_is_done_twice(bench: Bench, redis_port: int) -> None:
    """They do as threads do: the same number brings the same reply."""
    with Proxy(redis_port) as proxy:
        async with redis.asyncio.Redis(port=proxy.port, protocol=2, retry=AsyncRetry(NoBackoff(), 0)) as client:
            connection = AsyncRedisConnection(client, address="redis", namespace="ledgers", retry_for=30)
            ledger_client = AsyncLedgerClient(connection, rebuild=missing)
            ledger = Ledger(bench.keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)
            await ledger_client.execute(Claim(ledger, "", want=0, lock_ms=0))
            proxy.lose_replies = True
            claim = claim_of(ledger, "aa" * 8)
            asking = asyncio.create_task(ledger_client.execute(claim))
            await until(lambda: bench.cursor == 3)
            proxy.lose_replies = False
            await asyncio.wait_for(asking, timeout=30)
    assert claim.granted.fresh == [(0, 2)]
    assert (bench.cursor, bench.in_flight) == (3, 3)


async def until(true: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


async def test_many_calls_at_once_share_few_connections(redis_port: int, caplog: pytest.LogCaptureFixture) -> None:
    """More calls than redis-py has connections for: none is refused, also if some are cancelled while they wait."""
    async with connect(f"redis://{HOST}:{redis_port}/0") as client:
        connection = AsyncRedisConnection(client, address="redis", namespace="ledgers", retry_for=30)
        calls = [asyncio.ensure_future(connection.call(client.client_id)) for _ in range(400)]
        await asyncio.sleep(0)
        for call in calls[100:200]:
            call.cancel()
        answers = await asyncio.gather(*calls[:100], *calls[200:])
        assert len(set(answers)) <= CALLS_AT_ONCE
        assert set(await asyncio.gather(*(connection.call(client.client_id) for _ in range(100))))
    assert [record.getMessage() for record in caplog.records if "redis_retry" in record.getMessage()] == []


async def test_whoever_is_woken_to_go_next_and_cancelled_passes_it_on(
    bench: Bench, tasks_client: AsyncLedgerClient
) -> None:
    """Tasks that wait behind it would wait for ever otherwise."""
    held = bench.claim(3, upto=3)
    ledger = Ledger(bench.keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)

    def ask(offset: int) -> asyncio.Task[None]:
        return asyncio.create_task(tasks_client.execute(Settlement(ledger, "complete", held.lease, [(offset, offset)])))

    first = ask(0)
    await until(lambda: ledger.in_doubt is not None)
    heir, last = ask(1), ask(2)
    await until(lambda: len(tasks_client._errands) == 3)
    first.add_done_callback(lambda _: heir.cancel())
    await asyncio.wait_for(last, timeout=10)
    assert heir.cancelled()
    assert bench.in_flight == 0


async def test_tasks_that_are_cancelled_at_any_moment_hold_nobody_up(
    bench: Bench, tasks_client: AsyncLedgerClient
) -> None:
    """All operations are done, even those of tasks that stopped waiting."""
    held = bench.claim(600, upto=600)
    ledger = Ledger(bench.keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)
    dice = random.Random(11)

    asked: list[int] = []

    async def complete(offset: int) -> None:
        asked.append(offset)
        await tasks_client.execute(Settlement(ledger, "complete", held.lease, [(offset, offset)]))

    waiting: set[asyncio.Task[None]] = set()
    for offset in range(600):
        waiting.add(asyncio.create_task(complete(offset)))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.choice([0.0, 0.0, 0.0005]))
        if dice.random() < 0.3:
            dice.choice(sorted(waiting, key=lambda task: task.get_name())).cancel()
        waiting = {task for task in waiting if not task.done()}
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), timeout=10)
    await tasks_client.flush()
    # Some tasks were cancelled before they began.
    assert 300 < len(asked) < 600
    assert bench.in_flight == 600 - len(asked)
    assert not tasks_client._errands


class Builder:
    """An object that makes ledgers again, once the test lets it.

    Args:
        store: Redis.
    """

    def __init__(self, store: redis.Redis) -> None:
        self.asked_for: list[set[str]] = []
        self.began, self.may_go_on = threading.Event(), threading.Event()
        connection = RedisConnection(store, address="redis", namespace="ledgers", retry_for=1)
        self.ledger_client = LedgerClient(connection, rebuild=self._build)

    def _build(self, ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
        self.asked_for.append({ledger.keys.prefix for ledger in ledgers})
        self.began.set()
        assert self.may_go_on.wait(30)
        for ledger in ledgers:
            self.ledger_client.create(ledger, 0)
        return {}

    @contextmanager
    def building(self, *operations: Operation) -> Generator[None]:
        """Have a thread wait for operations of ledgers that are made again during this block; they are done afterwards."""
        thread = threading.Thread(target=self.ledger_client.execute, args=operations)
        thread.start()
        try:
            assert self.began.wait(30)
            yield
        finally:
            self.may_go_on.set()
            thread.join(30)
        assert all(operation.done for operation in operations)


def other_ledger(bench: Bench, topic_id: str) -> Ledger:
    """Return a ledger that Redis does not hold."""
    keys = LedgerKeys.of("ledgers", EntityPath("q"), topic_id, 0)
    return Ledger(keys, partition=0, channel=bench.ledger.channel, client_id=uuid.uuid4().hex)


def test_nobody_waits_for_ledgers_that_are_made_anew_but_those_who_use_them(bench: Bench) -> None:
    """A settlement elsewhere goes on at the same time. All missing ledgers are made again in one go."""
    builder, there = Builder(bench.store), bench.ledger
    gone = [other_ledger(bench, uuid.uuid4().hex) for _ in range(3)]
    with builder.building(*(Claim(ledger, "", want=0, lock_ms=0) for ledger in gone)):
        claim = claim_of(there, "aa" * 8)
        builder.ledger_client.execute(claim)
        assert claim.granted.fresh == [(0, 2)]
        settlement = Settlement(there, "complete", claim.lease, [(0, 2)])
        builder.ledger_client.execute(settlement)
        assert settlement.lost == []
        builder.ledger_client.enqueue(Claim(gone[0], "", want=0, lock_ms=0))
    assert builder.asked_for == [{ledger.keys.prefix for ledger in gone}]
    builder.ledger_client.flush()
    assert not gone[0].pending


def test_a_transaction_does_not_wait_for_a_ledger_that_waits_for_it(bench: Bench) -> None:
    """A ledger is made again once all transactions have ended. Their locks there are lost, and they fail at once."""
    builder = Builder(bench.store)
    gone = other_ledger(bench, uuid.uuid4().hex)
    with builder.building(Claim(gone, "", want=0, lock_ms=0)):
        for one in (gone, other_ledger(bench, uuid.uuid4().hex)):
            prepare = Prepare(one, [("complete", "aa" * 8, [(0, 0)], {})], "t", 30_000, 10)
            with pytest.raises(MessageLockLostError, match="Redis lost the ledger"):
                builder.ledger_client.execute(prepare)


def test_why_a_ledger_cannot_be_made_anew_is_told_who_uses_it(bench: Bench) -> None:
    """Only a caller that uses the ledger gets the error; the next caller finds it missing once more."""
    asked_for: list[int] = []

    def fail(ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
        asked_for.append(len(ledgers))
        return {gone: ServiceBusError("it is gone")}

    connection = RedisConnection(bench.store, address="redis", namespace="ledgers", retry_for=1)
    ledger_client = LedgerClient(connection, rebuild=fail)
    gone = other_ledger(bench, uuid.uuid4().hex)
    for _ in range(2):
        with pytest.raises(ServiceBusError, match="it is gone"):
            ledger_client.execute(Claim(gone, "", want=0, lock_ms=0), Claim(bench.ledger, "", want=0, lock_ms=0))
    ledger_client.execute(Claim(bench.ledger, "", want=0, lock_ms=0))
    assert asked_for == [1, 1]


def test_a_flush_lets_others_go_on_while_ledgers_are_made_anew(bench: Bench) -> None:
    """A call that waited while it had the turn is not forgotten when it waits for the ledgers."""
    builder = Builder(bench.store)
    ledger_client, carry_all = builder.ledger_client, builder.ledger_client._carry_all
    reached, go_on = threading.Event(), threading.Event()

    def carry_slowly() -> None:
        carry_all()
        reached.set()
        assert go_on.wait(30)

    ledger_client._carry_all = carry_slowly  # type: ignore[method-assign]
    claim = Claim(bench.ledger, "", want=0, lock_ms=0)
    with builder.building(Claim(other_ledger(bench, uuid.uuid4().hex), "", want=0, lock_ms=0)):
        flushing = threading.Thread(target=ledger_client.flush)
        flushing.start()
        assert reached.wait(30)
        asking = threading.Thread(target=ledger_client.execute, args=[claim])
        asking.start()
        while not any(claim in errand.operations for errand in ledger_client._errands):
            time.sleep(0.001)
        go_on.set()
        asking.join(10)
        assert claim.done
    flushing.join(30)
