"""Closed handles, arguments in all their forms, waiting, renewers' options, and the order of refusals."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
import time
import warnings
from collections import Counter, UserDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

# blocking: from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus._async.compat import Bell, sleep
from kafkabus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    MessageAlreadySettled,
    MessageLockLostError,
)
from tests.contract.aio.conftest import Advance, MakeQueue
from tests.contract.aio.receiving import take

PATIENCE = 60.0
LONG = 60.0
"""A wait that no test means to sit through."""
NOWHERE = (
    "Endpoint=sb://tests.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b;"
    "KafkaBootstrapServers=localhost:1;Redis=redis://localhost:1/0"
)
SHUT = "already been shutdown"


class Row:
    """A mapping that inherits from none, as rows of some databases are.

    Args:
        fields: Its fields.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def keys(self) -> list[str]:
        """Return the names of its fields."""
        return list(self._fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]


class Clock:
    """A replacement for a module's ``time``: the real clock, moved on by ``ahead`` seconds.

    Args:
        then: How far it is ahead from its second reading on.
    """

    def __init__(self, then: float = 0.0) -> None:
        self.ahead = 0.0
        self._then = then

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        now = time.monotonic() + self.ahead
        self.ahead = max(self.ahead, self._then)
        return now


async def bodies_of(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive so many messages and return their bodies, sorted."""
    return sorted(str(message) for message in await take(receiver, count))


async def assert_refused(receiver: ServiceBusReceiver, message: Any, kind: type[Exception], words: str) -> None:
    """Assert that each way to settle a message, and renewing it, raises just this error."""
    ways: list[Callable[[Any], Awaitable[object]]] = [
        receiver.complete_message,
        receiver.abandon_message,
        receiver.defer_message,
        receiver.dead_letter_message,
        receiver.renew_message_lock,
    ]
    for way in ways:
        with pytest.raises(kind, match=words) as refused:
            await way(message)
        assert type(refused.value) is kind, way


async def until_renewed(message: ServiceBusReceivedMessage) -> None:
    """Wait until a lock was moved on."""
    deadline = time.monotonic() + PATIENCE
    before = message.locked_until_utc
    while message.locked_until_utc == before:
        assert time.monotonic() < deadline, "it was not renewed"
        assert message.auto_renew_error is None
        await sleep(0.02)


async def until_told(bell: Bell, told: Sequence[str], count: int) -> None:
    """Wait until a callback, which rings a bell each time, was called so often."""
    deadline = time.monotonic() + PATIENCE
    while len(told) < count:
        assert time.monotonic() < deadline
        await bell.wait(PATIENCE)


async def until_given_up(message: ServiceBusReceivedMessage) -> str:
    """Wait until a renewer reached its time limit and gave the lock up; return the error's text."""
    deadline = time.monotonic() + PATIENCE
    while message.auto_renew_error is None:
        assert time.monotonic() < deadline, "it was not given up"
        await sleep(0.02)
    assert isinstance(message.auto_renew_error, AutoLockRenewTimeout)
    return str(message.auto_renew_error)


async def test_closed_handles_do_nothing_any_more(client: ServiceBusClient, queue: str) -> None:
    """All methods raise a ValueError: receiving, iterating, peeking, fetching, renewing, making a batch, entering."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        deferred, locked = await receiver.receive_messages(2, max_wait_time=60)
        await receiver.defer_message(deferred)
    with pytest.raises(ValueError, match=SHUT):
        await receiver.receive_messages(max_wait_time=1)
    with pytest.raises(ValueError, match=SHUT):
        await anext(aiter(receiver))
    with pytest.raises(ValueError, match=SHUT):
        await receiver.peek_messages()
    for numbers in (deferred.sequence_number, [deferred.sequence_number], []):
        with pytest.raises(ValueError, match=SHUT):
            await receiver.receive_deferred_messages(numbers)
    with pytest.raises(ValueError, match=SHUT):
        await receiver.renew_message_lock(locked)
    with pytest.raises(ValueError, match=SHUT):
        await sender.create_message_batch()
    with pytest.raises(ValueError, match=SHUT):
        await sender.__aenter__()


async def test_a_client_closes_its_receivers(client: ServiceBusClient, queue: str) -> None:
    """It closes used and unused ones."""
    used, unused = client.get_queue_receiver(queue), client.get_queue_receiver(queue)
    assert await used.receive_messages(max_wait_time=0.2) == []
    await client.close()
    for receiver in (used, unused):
        with pytest.raises(ValueError, match=SHUT):
            await receiver.receive_messages(max_wait_time=0.2)


async def test_a_client_that_was_closed_before_its_first_use_can_be_used(connection_string: str, queue: str) -> None:
    """Closing does not end a client."""
    client = ServiceBusClient.from_connection_string(connection_string)
    await client.close()
    async with client:
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
        assert await bodies_of(client.get_queue_receiver(queue), 1) == ["x"]


@pytest.mark.parametrize("timeout", [0, -1])
@pytest.mark.rules
async def test_a_lock_is_not_renewed_within_no_time(client: ServiceBusClient, queue: str, timeout: float) -> None:
    """A timeout is more than 0; the lock stays as it was."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        until = message.locked_until_utc
        with pytest.raises(ValueError, match=f"timeout {timeout}"):
            await receiver.renew_message_lock(message, timeout=timeout)
        assert message.locked_until_utc == until
        await receiver.complete_message(message)


async def test_a_handle_has_a_name_for_logs(client: ServiceBusClient, queue: str) -> None:
    """It has the given name, or a unique one that says what it is."""
    senders = [client.get_queue_sender(queue) for _ in range(2)]
    receivers = [client.get_queue_receiver(queue) for _ in range(2)]
    assert all("SBSender" in sender.client_identifier for sender in senders)
    assert all("SBReceiver" in receiver.client_identifier for receiver in receivers)
    assert len({one.client_identifier for one in senders} | {one.client_identifier for one in receivers}) == 4
    sender = client.get_queue_sender(queue, client_identifier="writer 1")
    receiver = client.get_queue_receiver(queue, client_identifier="reader 1")
    assert (sender.client_identifier, receiver.client_identifier) == ("writer 1", "reader 1")
    assert "writer 1" in str(sender)
    assert "reader 1" in str(receiver)


async def test_an_unknown_keyword_is_named_with_what_was_meant(client: ServiceBusClient, queue: str) -> None:
    """Handles and clients warn. Keywords that only azure.servicebus uses are accepted in silence."""
    misspelt: dict[str, Any] = {"max_wait_tiem": 3}
    with pytest.warns(UserWarning, match=r"^Unsupported keyword args: max_wait_tiem \(did you mean max_wait_time\?\)$"):
        client.get_queue_receiver(queue, **misspelt)
    unheard_of: dict[str, Any] = {"colour": "red"}
    with pytest.warns(UserWarning, match="^Unsupported keyword args: colour$"):
        client.get_queue_sender(queue, **unheard_of)
    known: dict[str, Any] = {"logging_enable": True, "transport_type": "Amqp", "retry_total": 3, "http_proxy": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.get_queue_sender(queue, **known)
        client.get_queue_receiver(queue, **known)


async def test_a_receive_mode_may_be_a_text(client: ServiceBusClient, queue: str) -> None:
    """The receiver locks or deletes as the mode of that name does. A number is no mode."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(
            [ServiceBusMessage("x", partition_key="k"), ServiceBusMessage("y", partition_key="k")]
        )
    async with client.get_queue_receiver(queue, receive_mode="peeklock") as receiver:
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(message), message.lock_token is None) == ("x", False)
        await receiver.complete_message(message)
    async with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(message), message.lock_token) == ("y", None)
        assert await receiver.peek_messages() == []
    for number in (0, 1):
        with pytest.raises(ValueError, match=f"receive_mode {number}"):
            client.get_queue_receiver(queue, receive_mode=number)  # type: ignore[arg-type]  # that is the test


async def test_a_connection_string_for_one_queue_is_for_no_other(connection_string: str, queue: str) -> None:
    """A handle for another queue is refused before any request, even if no server would answer."""
    async with ServiceBusClient.from_connection_string(f"{NOWHERE};EntityPath=orders") as client:
        for get in (client.get_queue_sender, client.get_queue_receiver):
            with pytest.raises(ValueError, match=r"'orders' alone \(EntityPath\), not for 'returns'"):
                get("returns")
    async with ServiceBusClient.from_connection_string(f"{connection_string};EntityPath={queue}") as client:
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
        assert await bodies_of(client.get_queue_receiver(queue.upper()), 1) == ["x"]


async def test_a_receive_returns_what_is_there(client: ServiceBusClient, queue: str) -> None:
    """It returns fewer messages than it may, long before the wait is over."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        began = time.monotonic()
        messages = await receiver.receive_messages(10, max_wait_time=LONG)
        assert time.monotonic() - began < LONG / 2
        assert [str(message) for message in messages] == ["0", "1", "2"]


async def test_the_wait_of_a_call_counts_before_that_of_the_receiver(client: ServiceBusClient, queue: str) -> None:
    """The call's wait may be shorter or longer. Without one the receiver's wait counts."""
    patient = client.get_queue_receiver(queue, max_wait_time=LONG)
    hasty = client.get_queue_receiver(queue, max_wait_time=0.1)
    began = time.monotonic()
    assert await patient.receive_messages(max_wait_time=0.1) == []
    assert await hasty.receive_messages() == []
    assert time.monotonic() - began < LONG / 2
    began = time.monotonic()
    assert await hasty.receive_messages(max_wait_time=0.8) == []
    assert time.monotonic() - began >= 0.8


async def test_a_receive_waits_60_seconds_where_nobody_says_otherwise(
    client: ServiceBusClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test moves the receiver's clock to half a second before the end."""
    async with client.get_queue_receiver(queue) as receiver:
        monkeypatch.setattr("kafkabus._async.engine.message_claimer.time", Clock(then=59.5))
        began = time.monotonic()
        assert await receiver.receive_messages() == []
        assert 0.4 < time.monotonic() - began < 10


async def test_an_iteration_without_a_wait_goes_on_for_ever(
    client: ServiceBusClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a wait without a message it waits again. Here each wait is short."""
    monkeypatch.setattr("kafkabus._async.handles.receiver.FOREVER", 0.05)
    waits: list[float] = []
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        receive = receiver._receive

        async def counted(count: int, wait: float) -> list[ServiceBusReceivedMessage]:
            waits.append(wait)
            if len(waits) == 4:
                await sender.send_messages(ServiceBusMessage("late"))
            return await receive(count, wait)

        monkeypatch.setattr(receiver, "_receive", counted)
        assert str(await receiver.__anext__()) == "late"
    assert waits[:3] == [0.05, 0.05, 0.05]


async def test_within_a_loop_one_may_receive_and_iterate(client: ServiceBusClient, queue: str) -> None:
    """Each message comes once, in order, to the inner call or the loop; the outer loop goes on, and ends."""
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=1) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(6)])
        outer: list[str] = []
        inner: list[str] = []
        received: list[str] = []
        async for message in receiver:
            outer.append(str(message))
            if len(outer) == 1:
                received += [str(one) for one in await take(receiver, 2)]
                async for one in receiver:
                    inner.append(str(one))
                    if len(inner) == 2:
                        break
        assert (outer, received, inner) == (["0", "5"], ["1", "2"], ["3", "4"])


async def test_the_next_message_can_be_asked_for(client: ServiceBusClient, queue: str) -> None:
    """The iteration ends after the receiver's wait without a message, and goes on when one comes."""
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=1) as receiver,
    ):
        await sender.send_messages(
            [ServiceBusMessage("0", partition_key="k"), ServiceBusMessage("1", partition_key="k")]
        )
        first = await anext(receiver)
        second = await anext(receiver)  # aio-only
        # blocking: second = receiver.next()
        assert (str(first), str(second)) == ("0", "1")
        with pytest.raises(StopAsyncIteration):
            await anext(receiver)
        # blocking: with pytest.raises(StopIteration):
        # blocking:     receiver.next()
        await sender.send_messages(ServiceBusMessage("2"))
        assert str(await anext(receiver)) == "2"


async def test_what_was_deleted_by_receiving_it_cannot_be_settled_or_renewed(
    client: ServiceBusClient, queue: str
) -> None:
    """No receiver settles or renews it, nor does a lock renewer take it."""
    async with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as deleting,
        client.get_queue_receiver(queue) as locking,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await deleting.receive_messages(max_wait_time=60)
        for receiver in (deleting, locking):
            await assert_refused(receiver, message, ValueError, "not locked.*RECEIVE_AND_DELETE")
            with pytest.raises(ValueError, match=r"not locked.*RECEIVE_AND_DELETE"):
                renewer.register(receiver, message)
        assert await deleting.peek_messages() == []


async def test_a_settlement_is_refused_for_the_first_reason_that_there_is(
    client: ServiceBusClient, queue: str, later: Advance
) -> None:
    """The order is: closed, no received message, peeked or deleted, settled before, lock lost."""
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as deleting,
    ):
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(2)])
        (peeked,) = await receiver.peek_messages()
        settled, lost = await receiver.receive_messages(2, max_wait_time=60)
        await receiver.complete_message(settled)
        await later(queue, 61)
        closed = client.get_queue_receiver(queue, receive_mode="receiveanddelete")
        await closed.close()
        for anything in (None, ServiceBusMessage("x"), peeked, settled, lost):
            await assert_refused(closed, anything, ValueError, SHUT)
        for nothing in (None, "x", ServiceBusMessage("x")):
            await assert_refused(deleting, nothing, TypeError, f"{type(nothing).__name__} cannot be settled")
        for message in (peeked, settled, lost):
            await assert_refused(deleting, message, ValueError, "not locked")
        await assert_refused(receiver, peeked, ValueError, "not locked")
        await assert_refused(receiver, settled, MessageAlreadySettled, "settled")
        await assert_refused(receiver, lost, MessageLockLostError, str(lost.sequence_number))


async def test_messages_near_the_limit_arrive_whole(client: ServiceBusClient, queue: str) -> None:
    """The test sends several messages of 250 KB with different contents."""
    bodies = [random.Random(seed).randbytes(250 * 1024) for seed in range(5)]
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number, body in enumerate(bodies):
            await sender.send_messages(ServiceBusMessage(body, message_id=str(number)))
        messages = await take(receiver, len(bodies))
        arrived = {message.message_id: b"".join(message.body) for message in messages}
        assert sorted(arrived, key=str) == ["0", "1", "2", "3", "4"]
        assert [number for number, body in enumerate(bodies) if arrived[str(number)] != body] == []
        await receiver.complete_messages(messages)


async def test_a_lock_is_renewed_for_300_seconds_or_as_long_as_its_registration_says(
    client: ServiceBusClient, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter or a longer time of one registration counts for that one alone."""
    clock = Clock()
    monkeypatch.setattr("kafkabus._async.handles.lock_renewer.time", clock)
    queue = await make_queue(lock_duration=timedelta(seconds=4))
    async with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        usual, shorter, longer = await receiver.receive_messages(3, max_wait_time=60)
        renewer.register(receiver, usual)
        renewer.register(receiver, shorter, max_lock_renewal_duration=100)
        renewer.register(receiver, longer, max_lock_renewal_duration=600)
        clock.ahead = 280
        await until_renewed(usual)
        assert "renewed for 100 s" in await until_given_up(shorter)
        clock.ahead = 301
        assert "renewed for 300 s" in await until_given_up(usual)
        await until_renewed(longer)
        await receiver.complete_message(longer)


async def test_a_renewer_is_silent_about_what_was_closed(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """It reports no message of a closed receiver, and a closed renewer reports none. It reports the others."""
    queue = await make_queue(lock_duration=timedelta(seconds=3))
    told: list[str] = []
    bell = Bell()

    async def tell(message: ServiceBusReceivedMessage, _error: Exception | None) -> None:
        told.append(str(message))
        bell.ring()

    async with (
        client.get_queue_sender(queue) as sender,
        AutoLockRenewer(on_lock_renew_failure=tell) as renewer,
        client.get_queue_receiver(queue) as receiver,
    ):
        closed_renewer = AutoLockRenewer(on_lock_renew_failure=tell)
        closed_receiver = client.get_queue_receiver(queue)
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        (first,) = await closed_receiver.receive_messages(max_wait_time=60)
        renewer.register(closed_receiver, first)
        second, third = await take(receiver, 2)
        closed_renewer.register(receiver, second)
        renewer.register(receiver, third)
        await closed_receiver.close()
        await closed_renewer.close()
        await later(queue, 30)
        await bell.wait(PATIENCE)
        assert await bodies_of(receiver, 3) == ["0", "1", "2"]
        assert told == ["2"]
        assert (first.auto_renew_error, second.auto_renew_error) == (None, None)


async def test_a_renewer_takes_what_it_shall_work_with(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """With asyncio it takes a loop, otherwise one worker, and an executor, in which it calls back."""
    queue = await make_queue(lock_duration=timedelta(seconds=3))
    told: list[str] = []
    threads: set[str] = set()
    bell = Bell()

    async def tell(message: ServiceBusReceivedMessage, _error: Exception | None) -> None:
        told.append(str(message))
        threads.add(threading.current_thread().name)
        bell.ring()

    renewer = AutoLockRenewer(on_lock_renew_failure=tell, loop=asyncio.get_running_loop())  # aio-only
    # blocking: executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mine")
    # blocking: renewer = AutoLockRenewer(on_lock_renew_failure=tell, executor=executor, max_workers=1)
    async with client.get_queue_sender(queue) as sender, renewer, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        messages = await take(receiver, 3)
        for message in messages:
            renewer.register(receiver, message)
        for message in messages:
            await until_renewed(message)
        await later(queue, 30)
        await until_told(bell, told, 3)
    assert sorted(told) == ["0", "1", "2"]
    assert threads == {threading.current_thread().name}  # aio-only
    # blocking: executor.shutdown()
    # blocking: assert threads == {"mine_0"}


async def test_a_renewer_goes_on_whatever_becomes_of_its_callbacks(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """A callback that ends the program ends nothing. Without a usable executor the renewer makes do."""
    queue = await make_queue(lock_duration=timedelta(seconds=3))
    told: list[str] = []
    bell = Bell()

    async def tell(message: ServiceBusReceivedMessage, _error: Exception | None) -> None:
        told.append(str(message))
        bell.ring()
        raise SystemExit

    renewer = AutoLockRenewer(on_lock_renew_failure=tell)  # aio-only
    # blocking: executor = ThreadPoolExecutor(max_workers=1)
    # blocking: renewer = AutoLockRenewer(on_lock_renew_failure=tell, executor=executor)
    # blocking: executor.shutdown()
    async with client.get_queue_sender(queue) as sender, renewer, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(3)])
        messages = await take(receiver, 3)
        for message in messages[:2]:
            renewer.register(receiver, message)
            await until_renewed(message)
        await later(queue, 30)
        await until_told(bell, told, 2)
        (again,) = await take(receiver, 1)
        renewer.register(receiver, again)
        await until_renewed(again)
        assert all(isinstance(message.auto_renew_error, AutoLockRenewFailed) for message in messages[:2])
    assert sorted(told) == ["0", "1"]


async def test_tuples_sets_and_other_mappings_are_sent(client: ServiceBusClient, queue: str) -> None:
    """Any kind of collection holds several messages, and any mapping holds the arguments of one."""

    def mapping(body: str) -> Mapping[str, Any]:
        return MappingProxyType({"body": body, "subject": f"of {body}"})

    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages((ServiceBusMessage("tuple-1"), mapping("tuple-2")))
        await sender.send_messages({ServiceBusMessage("set-1"), ServiceBusMessage("set-2")})
        await sender.send_messages(frozenset({ServiceBusMessage("set-3")}))
        await sender.send_messages(mapping("alone"))
        await sender.send_messages([UserDict({"body": "in a list", "subject": "of in a list"})])
        row: Any = Row({"body": "row", "subject": "of row"})
        await sender.send_messages(row)
        await sender.schedule_messages([row], datetime.now(timezone.utc))
        batch = await sender.create_message_batch()
        batch.add_message(mapping("batch-1"))
        batch.add_message(UserDict({"body": "batch-2", "subject": "of batch-2"}))
        batch.add_message(row)
        await sender.send_messages(batch)
        messages = await take(receiver, 12)
        assert sorted((str(message), message.subject) for message in messages if message.subject) == [
            (body, f"of {body}")
            for body in ("alone", "batch-1", "batch-2", "in a list", "row", "row", "row", "tuple-2")
        ]
        assert sorted(str(message) for message in messages if not message.subject) == [
            "set-1",
            "set-2",
            "set-3",
            "tuple-1",
        ]


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict, Row])
@pytest.mark.rules
async def test_a_mapping_without_a_body_is_no_message(
    client: ServiceBusClient, queue: str, kind: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> None:
    """A mapping of any kind is refused; if it is in a list, no message of the list is sent."""
    what = kind({"subject": "no body"})
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        batch = await sender.create_message_batch()
        with pytest.raises(TypeError, match="body"):
            await sender.send_messages(what)
        with pytest.raises(TypeError, match="body"):
            await sender.send_messages([ServiceBusMessage("x"), what])
        with pytest.raises(TypeError, match="body"):
            batch.add_message(what)
        assert (len(batch), batch.size_in_bytes) == (0, 0)
        assert await receiver.peek_messages() == []


async def test_a_message_or_a_batch_can_be_sent_twice(client: ServiceBusClient, queue: str) -> None:
    """Each send makes a new message with the same id, even for one that is twice in a list."""
    message = ServiceBusMessage("alone", application_properties={"a": 1})
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("batch-1"))
        batch.add_message({"body": "batch-2"})
        size = batch.size_in_bytes
        for _ in range(2):
            await sender.send_messages(message)
            await sender.send_messages(batch)
        assert (len(batch), batch.size_in_bytes) == (2, size)
        await sender.send_messages([message, message])
        arrived = await take(receiver, 8)
        assert Counter(str(one) for one in arrived) == {"alone": 4, "batch-1": 2, "batch-2": 2}
        assert len({one.sequence_number for one in arrived}) == 8
        assert {one.message_id for one in arrived if str(one) == "alone"} == {message.message_id}
        assert [one.application_properties for one in arrived if str(one) == "alone"] == [{b"a": 1}] * 4


async def test_a_settled_message_stays_settled_when_it_is_pickled(client: ServiceBusClient, queue: str) -> None:
    """It has no token, is not settled again, and can be sent."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x", subject="s"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await receiver.complete_message(message)
        copy = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
        assert (str(copy), copy.subject, copy.sequence_number) == ("x", "s", message.sequence_number)
        assert (copy.lock_token, copy.locked_until_utc) == (None, None)
        await assert_refused(receiver, copy, MessageAlreadySettled, "settled")
        await sender.send_messages(copy)
        (again,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(again), again.message_id) == ("x", message.message_id)


async def test_texts_may_be_long_and_what_was_not_set_is_falsy(client: ServiceBusClient, queue: str) -> None:
    """Texts that are no identifiers have no limit besides that of the message."""
    texts: dict[str, Any] = {name: f"{name} " * 100 for name in ("correlation_id", "subject", "to", "reply_to")}
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(
            [ServiceBusMessage("long", partition_key="k", **texts), ServiceBusMessage("bare", partition_key="k")]
        )
        long, bare = await take(receiver, 2)
        assert {name: getattr(long, name) for name in texts} == texts
        unset = ("scheduled_enqueue_time_utc", "session_id", "reply_to_session_id", "content_type", "to", "reply_to")
        assert [name for name in unset if getattr(bare, name)] == []


async def test_updating_a_queue_returns_none(administration: ServiceBusAdministrationClient, queue: str) -> None:
    """The update returns None; an application asks for the new settings."""
    update: Callable[..., Awaitable[object]] = administration.update_queue
    assert await update(await administration.get_queue(queue), max_delivery_count=3) is None
    assert (await administration.get_queue(queue)).max_delivery_count == 3
