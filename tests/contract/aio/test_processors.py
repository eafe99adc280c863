"""Processors: the handlers of messages, how many run at a time, and the outcome for the messages."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.compat import sleep
from kafkabus._async.handles.processor import ProcessErrorEventArgs, ProcessMessageEventArgs
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import MessagingEntityNotFoundError
from tests.contract.aio.conftest import MakeQueue, MakeTopic

PATIENCE = 60.0


async def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        await sleep(0.02)


async def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    """Send messages, in one partition."""
    await client.get_queue_sender(queue).send_messages([ServiceBusMessage(body, partition_key="k") for body in bodies])


async def left_in(client: ServiceBusClient, queue: str) -> list[str]:
    """Return the messages that are not settled."""
    return [str(message) for message in await client.get_queue_receiver(queue).peek_messages(100)]


async def test_each_message_is_handed_out_and_completed(client: ServiceBusClient, queue: str) -> None:
    """Later messages are handed out too, none after a stop. The processor can be started again."""
    seen: list[str] = []

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        assert arguments.session is None
        seen.append(str(arguments.message))

    processor = client.get_queue_processor(queue, handle)
    states = [processor.is_processing]
    await send(client, queue, "0", "1")
    async with processor:
        states.append(processor.is_processing)
        assert processor.entity_path == queue
        await until(lambda: len(seen) == 2)
        await send(client, queue, "2")
        await until(lambda: len(seen) == 3)
    assert [*states, processor.is_processing] == [False, True, False]
    assert await left_in(client, queue) == []
    await send(client, queue, "3")
    assert seen == ["0", "1", "2"]
    await processor.start()
    await processor.start()
    await until(lambda: len(seen) == 4)
    await processor.stop()
    await processor.stop()
    assert await left_in(client, queue) == []


async def test_what_a_callback_settles_is_settled_and_what_it_breaks_on_is_abandoned(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """The error handler gets the error and the message. Other messages go on."""
    queue = await make_queue(max_delivery_count=2)
    told: list[ProcessErrorEventArgs] = []
    seen: set[str] = set()

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        body = str(arguments.message)
        seen.add(body)
        if body == "dead":
            await arguments.dead_letter("because", "of this")
        elif body == "deferred":
            await arguments.defer()
        elif body == "broken":
            raise LookupError(body)

    async def tell(arguments: ProcessErrorEventArgs) -> None:
        told.append(arguments)

    await send(client, queue, "dead", "deferred", "broken", "fine")
    async with client.get_queue_processor(queue, handle, tell):
        await until(lambda: len(told) == 2 and len(seen) == 4)
    assert [(type(one.error), one.operation, str(one.message)) for one in told] == [
        (LookupError, "process", "broken")
    ] * 2
    assert told[0].entity_path == queue
    assert await left_in(client, queue) == ["deferred"]
    dead = await client.get_queue_receiver(queue, sub_queue="deadletter").peek_messages(10)
    assert sorted((str(one), one.dead_letter_reason) for one in dead) == [
        ("broken", "MaxDeliveryCountExceeded"),
        ("dead", "because"),
    ]


async def test_a_callback_that_ends_the_program_ends_nothing(client: ServiceBusClient, queue: str) -> None:
    """A thread that raises SystemExit would end in silence, and a task would end the program.

    The error handler gets it.
    """
    told: list[BaseException] = []
    seen: list[str] = []

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        seen.append(str(arguments.message))
        if len(seen) == 1:
            sys.exit("no way on")

    async def tell(arguments: ProcessErrorEventArgs) -> None:
        told.append(arguments.error)
        raise SystemExit

    await send(client, queue, "0", "1")
    async with client.get_queue_processor(queue, handle, tell) as processor:
        await until(lambda: len(seen) == 3)
        assert processor.is_processing
    assert seen == ["0", "0", "1"]
    assert [repr(error) for error in told] == ["SystemExit('no way on')"]
    assert await left_in(client, queue) == []


async def test_so_many_callbacks_run_at_a_time_and_their_locks_are_renewed(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """Exactly so many run, far beyond the locks' duration."""
    queue = await make_queue(lock_duration=timedelta(seconds=2))
    running: list[str] = []
    most, done, gate = 0, 0, {"open": False}

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        nonlocal most, done
        running.append(str(arguments.message))
        most = max(most, len(running))
        locked_until = arguments.message.locked_until_utc
        await until(lambda: gate["open"] or arguments.message.locked_until_utc != locked_until)
        await until(lambda: gate["open"])
        running.remove(str(arguments.message))
        done += 1

    await send(client, queue, *map(str, range(9)))
    async with client.get_queue_processor(queue, handle, max_concurrent_calls=3):
        await until(lambda: len(running) == 3)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 3)
        gate["open"] = True
        await until(lambda: done == 9)
    assert most == 3
    assert await left_in(client, queue) == []


async def test_without_auto_complete_the_callback_decides(client: ServiceBusClient, queue: str) -> None:
    """Messages that the callback leaves stay locked; messages in receive-and-delete mode need no settling."""
    seen: list[str] = []

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        seen.append(str(arguments.message))
        if str(arguments.message) == "0":
            await arguments.complete()

    await send(client, queue, "0", "1")
    async with client.get_queue_processor(queue, handle, auto_complete=False, max_auto_lock_renewal_duration=0):
        await until(lambda: len(seen) == 2)
    assert await left_in(client, queue) == ["1"]
    await send(client, queue, "2")
    async with client.get_queue_processor(queue, handle, receive_mode="receiveanddelete"):
        await until(lambda: len(seen) == 3)
    assert await left_in(client, queue) == ["1"]


async def test_errors_of_the_service_are_told_and_it_goes_on(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """It looks for a missing queue again. An error of the error handler does no harm."""
    told: list[str] = []

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        raise AssertionError(arguments.message)

    async def tell(arguments: ProcessErrorEventArgs) -> None:
        told.append(f"{arguments.operation} {type(arguments.error).__name__}")
        raise LookupError("of the handler")

    async with client.get_queue_processor("nowhere", handle, tell):
        await until(lambda: len(told) >= 2)
    assert set(told) == {f"receive {MessagingEntityNotFoundError.__name__}"}
    queue = await make_queue()
    with pytest.raises(ValueError, match=r"max_concurrent_calls 0: choose 1 or more"):
        client.get_queue_processor(queue, handle, max_concurrent_calls=0)
    with pytest.raises(ValueError, match=r"max_concurrent_sessions 0: choose 1 or more"):
        client.get_queue_session_processor(queue, handle, max_concurrent_sessions=0)
    with pytest.raises(ValueError, match=r"session_idle_timeout 0"):
        client.get_queue_session_processor(queue, handle, session_idle_timeout=0)


async def test_sessions_are_processed_in_order_so_many_at_a_time(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """One message of a session is processed at a time. A session without messages makes room for another one."""
    queue = await make_queue(requires_session=True)
    names = [f"s{number}" for number in range(6)]
    sender = client.get_queue_sender(queue)
    await sender.send_messages(
        [ServiceBusMessage(str(number), session_id=name) for number in range(5) for name in names]
    )
    received: dict[str, list[str]] = defaultdict(list)
    busy: set[str] = set()
    most = 0

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        nonlocal most
        assert arguments.session is not None
        name = arguments.session.session_id or ""
        assert name not in busy
        busy.add(name)
        most = max(most, len(busy))
        await sleep(0.01)
        received[name].append(str(arguments.message))
        if arguments.message.message_id and len(received[name]) == 5:
            await arguments.session.set_state("done")
        busy.remove(name)

    async with client.get_queue_session_processor(queue, handle, max_concurrent_sessions=2, session_idle_timeout=0.2):
        await until(lambda: sum(map(len, received.values())) == 30)
    assert received == {name: ["0", "1", "2", "3", "4"] for name in names}
    assert most == 2
    async with client.get_queue_receiver(queue, session_id="s0") as receiver:
        assert receiver.session is not None
        assert await receiver.session.get_state() == b"done"


async def test_processors_of_subscriptions(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """They work as those of queues do, with sessions and without."""
    topic = await make_topic("plain")
    await administration.create_subscription(topic, "sessions", requires_session=True)
    seen: dict[str, list[str]] = defaultdict(list)

    async def handle(arguments: ProcessMessageEventArgs) -> None:
        session = arguments.session
        seen["plain" if session is None else str(session.session_id)].append(str(arguments.message))

    messages = [ServiceBusMessage(f"{n}", session_id=f"s{n % 2}") for n in range(6)]
    await client.get_topic_sender(topic).send_messages(messages)
    async with (
        client.get_subscription_processor(topic, "plain", handle, max_concurrent_calls=2) as plain,
        client.get_subscription_session_processor(topic, "sessions", handle),
    ):
        assert plain.entity_path == f"{topic}/Subscriptions/plain"
        await until(lambda: sum(map(len, seen.values())) == 12)
    assert sorted(seen.pop("plain")) == [f"{n}" for n in range(6)]
    assert seen == {"s0": ["0", "2", "4"], "s1": ["1", "3", "5"]}
