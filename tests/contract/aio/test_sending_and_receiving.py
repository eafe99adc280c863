"""Sent messages are received: contents, properties, counts, waiting, iteration."""

from __future__ import annotations

import gc
import time
import uuid
import warnings
import weakref
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.exceptions import InvalidOperationError, MessageSizeExceededError, MessagingEntityNotFoundError
from tests.contract.aio.conftest import MakeQueue
from tests.contract.aio.receiving import receive_all


async def drain(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete until ``count`` messages came, or none comes for a while; return their bodies."""
    bodies: list[str] = []
    while len(bodies) < count:
        messages = await receiver.receive_messages(count - len(bodies), max_wait_time=5)
        if not messages:
            break
        bodies += [str(message) for message in messages]
        await receiver.complete_messages(messages)
    return bodies


async def test_a_message_arrives_as_it_was_sent(client: ServiceBusClient, queue: str) -> None:
    """Body and every property come back. Keys and texts of application properties come back as bytes."""
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=timezone.utc)
    number = uuid.uuid4()
    sent = ServiceBusMessage(
        "häh",
        message_id="m-1",
        partition_key="key",
        correlation_id="c-1",
        subject="sub",
        content_type="text/plain",
        to="somebody",
        reply_to="me",
        reply_to_session_id="s-1",
        time_to_live=timedelta(hours=1),
        application_properties={
            "text": "tëxt",
            "int": 5,
            "big": 1 << 60,
            "float": 1.5,
            "bool": True,
            "id": number,
            "at": moment,
        },
    )
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(sent)
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert message.body is not None
        assert (str(message), b"".join(message.body)) == ("häh", "häh".encode())
        assert (message.message_id, message.partition_key, message.session_id) == ("m-1", "key", None)
        assert (message.correlation_id, message.subject, message.content_type) == ("c-1", "sub", "text/plain")
        assert (message.to, message.reply_to, message.reply_to_session_id) == ("somebody", "me", "s-1")
        assert message.time_to_live == timedelta(hours=1)
        assert message.expires_at_utc == message.enqueued_time_utc + timedelta(hours=1)
        assert message.application_properties == {
            b"text": "tëxt".encode(),
            b"int": 5,
            b"big": 1 << 60,
            b"float": 1.5,
            b"bool": True,
            b"id": number,
            b"at": moment,
        }
        assert (message.delivery_count, message.state) == (0, 0)
        assert abs(message.enqueued_time_utc - datetime.now(timezone.utc)) < timedelta(seconds=30)
        await receiver.complete_message(message)


async def test_a_message_with_a_time_to_live_has_times_of_creation_and_expiry(
    client: ServiceBusClient, queue: str
) -> None:
    """The AMQP properties have them, in milliseconds. A received message counts as created when it was enqueued."""
    before = datetime.now(timezone.utc).replace(microsecond=0)
    message = ServiceBusMessage("x", time_to_live=60)
    sent: Any = message.raw_amqp_message.properties
    assert sent.creation_time >= before.timestamp() * 1000
    assert sent.absolute_expiry_time == sent.creation_time + 60_000
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([message, ServiceBusMessage("y")])
        received = {str(one): one for one in await receiver.receive_messages(2, max_wait_time=60)}
        mortal: Any = received["x"].raw_amqp_message.properties
        immortal: Any = received["y"].raw_amqp_message.properties
        assert mortal.creation_time == round(received["x"].enqueued_time_utc.timestamp() * 1000)
        assert mortal.absolute_expiry_time == mortal.creation_time + 60_000
        assert (immortal.creation_time, immortal.absolute_expiry_time) == (None, None)


async def test_the_old_view_of_a_message_has_its_delivery_tag(client: ServiceBusClient, queue: str) -> None:
    """The tag is the lock token's bytes, the first fields little-endian. A warning calls the view deprecated."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x", subject="s"))
        (message,) = await receiver.receive_messages(1, max_wait_time=60)
        assert message.lock_token is not None
        with pytest.warns(DeprecationWarning, match="raw_amqp_message"):
            old = message.message
        assert old.delivery_tag == message.lock_token.bytes_le
        assert old.properties.subject == b"s"
        with pytest.raises(AttributeError, match="nonsense"):
            _ = old.nonsense
        await receiver.complete_message(message)
        with pytest.warns(DeprecationWarning, match="raw_amqp_message"):
            assert message.message.delivery_tag is None


async def test_texts_with_a_nul_come_back_whole(client: ServiceBusClient, queue: str) -> None:
    """Empty texts do, too."""
    texts = ("message_id", "partition_key", "correlation_id", "subject", "content_type", "to", "reply_to")
    sent: dict[str, Any] = {name: f"{name}\0 and more" for name in texts}
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(
            ServiceBusMessage("x", application_properties={"a\0b": "c\0d"}, reply_to_session_id="", **sent)
        )
        (received,) = await receiver.receive_messages(max_wait_time=20)
        assert {name: getattr(received, name) for name in texts} == sent
        assert received.application_properties == {b"a\0b": b"c\0d"}
        assert received.reply_to_session_id == ""
        await receiver.dead_letter_message(received, "why\0", "in more\0 words")
    async with client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters:
        (dead,) = await receive_all(dead_letters, 1)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("why\0", "in more\0 words")


async def test_decimals_come_back_with_all_digits(client: ServiceBusClient, queue: str) -> None:
    """As Python's decimals."""
    sent: Any = {
        "price": Decimal("12.50"),
        "many": Decimal("-1234567890123456789012345678901.234"),
        "far": Decimal("1E+6000"),
    }
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x", application_properties=sent))
        (received,) = await receiver.receive_messages(max_wait_time=60)
        assert received.application_properties == {name.encode(): value for name, value in sent.items()}
        assert str((received.application_properties or {})[b"price"]) == "12.50"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("NaN", "is NaN: send a finite number, or text"),
        ("-Infinity", "is -Infinity: send a finite number"),
        ("1" * 35, "has more than 34 digits: AMQP carries no more; round it, or send text"),
        ("1E+6112", "exponents are from -6176 to 6111"),
    ],
)
@pytest.mark.rules
async def test_a_decimal_that_amqp_cannot_carry_is_refused(
    client: ServiceBusClient, queue: str, value: str, complaint: str
) -> None:
    """It is refused before anything is sent."""
    async with client.get_queue_sender(queue) as sender:
        with pytest.raises(ValueError, match=f"application property 'price' {complaint}|'price' .*{complaint}"):
            await sender.send_messages(ServiceBusMessage("x", application_properties={"price": Decimal(value)}))


async def test_data_sections_come_back(client: ServiceBusClient, queue: str) -> None:
    """Each for itself, and again in a copy that is sent."""
    sections = [b"aa", b"", b"bb", b"c"]
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(AmqpAnnotatedMessage(data_body=sections))
        (received,) = await receiver.receive_messages(max_wait_time=60)
        assert list(received.body) == list(received.raw_amqp_message.body) == sections
        assert str(received) == "aabbc"
        await sender.send_messages(received)
        (again,) = await receiver.receive_messages(max_wait_time=60)
        assert list(again.body) == sections


@pytest.mark.parametrize("name", ["message_id", "subject", "application_properties"])
@pytest.mark.rules
async def test_half_of_a_surrogate_pair_is_refused(client: ServiceBusClient, queue: str, name: str) -> None:
    """It is refused before anything is sent."""
    wrong: Any = {"a": "\ud800"} if name == "application_properties" else "\ud800"
    async with client.get_queue_sender(queue) as sender:
        with pytest.raises(ValueError, match=f"{name.replace('_', '-')} is .*surrogate pair"):
            await sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y", **{name: wrong})])
    async with client.get_queue_receiver(queue) as receiver:
        assert await receiver.peek_messages() == []


async def test_a_message_without_properties_has_none(client: ServiceBusClient, queue: str) -> None:
    """Properties that were not set are falsy; the sender made up a message id."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage(b"\x00\xff"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert message.message_id
        assert not message.application_properties
        assert not any((message.subject, message.time_to_live, message.partition_key, message.correlation_id))
        with pytest.raises(UnicodeDecodeError):
            str(message)


async def test_a_message_without_a_body_stays_without(client: ServiceBusClient, queue: str) -> None:
    """None is not an empty body."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(
            [ServiceBusMessage(None, partition_key="a"), ServiceBusMessage(b"", partition_key="a")]
        )
        messages = await receiver.receive_messages(2, max_wait_time=60)
        assert [message.body if message.body is None else b"".join(message.body) for message in messages] == [None, b""]


async def test_lists_batches_and_mappings_are_sent(client: ServiceBusClient, queue: str) -> None:
    """Every form that the SDK takes arrives: lists, generators, mappings, batches; an empty list sends nothing."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([])
        await sender.send_messages([ServiceBusMessage("list-1"), {"body": "list-2"}])
        await sender.send_messages(ServiceBusMessage(f"generator-{number}") for number in range(2))
        await sender.send_messages({"body": "mapping", "subject": "s"})
        batch = await sender.create_message_batch()
        await sender.send_messages(batch)
        batch.add_message(ServiceBusMessage("batch-1"))
        batch.add_message({"body": "batch-2"})
        await sender.send_messages(batch)
        by_hand = ServiceBusMessageBatch()
        by_hand.add_message(ServiceBusMessage("by hand"))
        await sender.send_messages(by_hand)
        assert sorted(await drain(receiver, 8)) == sorted(
            ["list-1", "list-2", "generator-0", "generator-1", "mapping", "batch-1", "batch-2", "by hand"]
        )
        assert await receiver.receive_messages(max_wait_time=0.2) == []


async def test_messages_with_one_key_keep_their_order(client: ServiceBusClient, queue: str) -> None:
    """One key has one partition and one order."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(30):
            await sender.send_messages(ServiceBusMessage(str(number), partition_key="same"))
        messages = await receiver.receive_messages(30, max_wait_time=60)
        assert [str(message) for message in messages] == [str(number) for number in range(30)]
        assert len({message.sequence_number >> 48 for message in messages}) == 1
        numbers = [message.sequence_number for message in messages]
        assert numbers == sorted(set(numbers))


async def test_keyless_messages_go_round_the_partitions(client: ServiceBusClient, queue: str) -> None:
    """Without a key each send takes the next partition. Sixteen sends reach all sixteen."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(16):
            await sender.send_messages(ServiceBusMessage(str(number)))
        partitions: set[int] = set()
        for _ in range(16):
            (message,) = await receiver.receive_messages(max_wait_time=60)
            partitions.add(message.sequence_number >> 48)
        assert partitions == set(range(16))


async def test_a_plain_queue_has_one_partition_and_dense_numbers(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """Without partitioning all messages are in one order, numbered from 1."""
    queue = await make_queue(partitioned=False)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
        await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(5, 10)])
        messages = await receiver.receive_messages(20, max_wait_time=60)
        assert [str(message) for message in messages] == [str(number) for number in range(10)]
        assert [message.sequence_number for message in messages] == list(range(1, 11))


async def test_a_receive_takes_no_more_than_was_asked_for(client: ServiceBusClient, queue: str) -> None:
    """The count is a limit for one call, and the rest waits for the next."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
        first = await receiver.receive_messages(4, max_wait_time=60)
        second = await receiver.receive_messages(100, max_wait_time=60)
        assert [str(message) for message in first + second] == [str(number) for number in range(10)]


async def test_an_empty_queue_yields_nothing_after_the_wait(client: ServiceBusClient, queue: str) -> None:
    """The result is an empty list, after about the given wait."""
    async with client.get_queue_receiver(queue) as receiver:
        began = time.monotonic()
        assert await receiver.receive_messages(max_wait_time=0.3) == []
        assert time.monotonic() - began >= 0.3
        assert await receiver.receive_messages(max_message_count=None, max_wait_time=30) == []


async def test_iteration_ends_after_a_silence_and_can_go_on(client: ServiceBusClient, queue: str) -> None:
    """A loop ends when no message comes for max_wait_time. It can be taken up again after a break or an end."""
    async with client.get_queue_sender(queue) as sender:
        async with client.get_queue_receiver(queue, max_wait_time=3) as receiver:
            await sender.send_messages([ServiceBusMessage(str(number), partition_key="k") for number in range(5)])
            seen: list[str] = []
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
                if len(seen) == 2:
                    break
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
            await sender.send_messages(ServiceBusMessage("more"))
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
            assert seen == ["0", "1", "2", "3", "4", "more"]


async def test_receive_and_delete_hands_out_each_message_once(client: ServiceBusClient, queue: str) -> None:
    """Opening deletes nothing. Receiving and iterating together return every message once, and none is left."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver(queue, receive_mode=mode, max_wait_time=3) as receiver:
        seen = [str(message) for message in await receiver.receive_messages(3, max_wait_time=60)]
        async for message in receiver:
            seen.append(str(message))
            assert (message.lock_token, message.locked_until_utc) == (None, None)
            with pytest.raises(ValueError, match="not locked"):
                await receiver.complete_message(message)
        assert sorted(seen) == sorted(str(number) for number in range(10))
        assert await receiver.receive_messages(10, max_wait_time=0.3) == []


async def test_a_received_message_can_be_sent_again(client: ServiceBusClient, queue: str) -> None:
    """It may be changed or not, settled or not. Text properties stay text."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("body", subject="1st", application_properties={"a": "b", "n": 1}))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert message.application_properties == {b"a": b"b", b"n": 1}
        message.subject = "2nd"
        await receiver.complete_message(message)
        await sender.send_messages(message)
        (again,) = await receiver.receive_messages(max_wait_time=60)
        assert (str(again), again.subject, again.message_id) == ("body", "2nd", message.message_id)
        assert again.application_properties == {b"a": b"b", b"n": 1}


async def test_sending_a_dead_letter_again_leaves_it_as_it_was(client: ServiceBusClient, queue: str) -> None:
    """The application keeps the reason why the message is dead, however it sends the message."""
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue="deadletter") as dead_receiver,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await receiver.dead_letter_message(message, reason="why", error_description="how")
        (dead,) = await dead_receiver.receive_messages(max_wait_time=60)

        def noted() -> tuple[object, ...]:
            return (
                dead.dead_letter_reason,
                dead.dead_letter_error_description,
                dead.dead_letter_source,
                dead.enqueued_sequence_number,
                dead.application_properties,
            )

        before = noted()
        assert before[:3] == ("why", "how", queue)
        batch = await sender.create_message_batch()
        batch.add_message(dead)
        await sender.send_messages(batch)
        await sender.send_messages(dead)
        assert noted() == before


async def test_keywords_that_nobody_knows_are_named_in_a_warning(client: ServiceBusClient, queue: str) -> None:
    """Unknown keywords change nothing else; azure.servicebus's keywords without a meaning here are accepted in silence."""
    async with client.get_queue_sender(queue, socket_timeout=1) as sender, client.get_queue_receiver(queue) as receiver:
        with pytest.warns(UserWarning, match="Unsupported keyword args: partion_key"):
            message = ServiceBusMessage("x", partion_key="k")
        with pytest.warns(UserWarning, match="Unsupported keyword args: foo"):
            await sender.send_messages(message, foo=1)
        with pytest.warns(UserWarning, match="foo"):
            assert len(await receiver.peek_messages(foo=1)) == 1
        (received,) = await receiver.receive_messages(max_wait_time=60)
        with pytest.warns(UserWarning, match="foo"):
            await receiver.renew_message_lock(received, foo=1)
        with pytest.warns(UserWarning, match="foo"):
            assert await receiver.receive_deferred_messages([], foo=1) == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await sender.send_messages([], logging_enable=True)


async def test_a_closed_handle_is_let_go(client: ServiceBusClient, queue: str) -> None:
    """A program that opens a handle for each message holds only the open ones."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        gone: list[weakref.ref[object]] = [weakref.ref(sender), weakref.ref(receiver)]
    del sender, receiver
    gc.collect()
    assert [one() for one in gone] == [None, None]


async def test_large_messages_arrive_whole_and_larger_ones_are_refused(client: ServiceBusClient, queue: str) -> None:
    """The limit counts everything. Beyond it nothing is sent, whether one message or many are too large."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage(b"A" * 250 * 1024))
        with pytest.raises(MessageSizeExceededError, match="262144") as refused:
            await sender.send_messages(ServiceBusMessage(b"A" * 256 * 1024))
        assert isinstance(refused.value, ValueError)
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages([ServiceBusMessage(b"A" * 100 * 1024) for _ in range(3)])
        batch = await sender.create_message_batch(1000)
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage(b"A" * 1000))
        assert (len(batch), batch.size_in_bytes) == (0, 0)
        with pytest.raises(ValueError, match="max_size_in_bytes"):
            await sender.create_message_batch(256 * 1024 + 1)
        assert [len(body) for body in await drain(receiver, 1)] == [250 * 1024]
        assert await receiver.receive_messages(max_wait_time=0.3) == []


async def test_a_key_that_contradicts_the_session_is_refused(client: ServiceBusClient, queue: str) -> None:
    """The whole list is refused before any message is sent, however the message was made."""
    contradicting = ServiceBusMessage("x", partition_key="a")
    contradicting.session_id = "b"
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        with pytest.raises(InvalidOperationError, match="'a' differs from session_id 'b'") as refused:
            await sender.send_messages([ServiceBusMessage("fine"), contradicting])
        assert isinstance(refused.value, ValueError)
        assert await receiver.receive_messages(max_wait_time=0.3) == []
    with pytest.raises(ValueError, match="differs"):
        ServiceBusMessage("x", session_id="b", partition_key="a")


@pytest.mark.parametrize("what", ["cat", b"cat", 5, ["cat"], {"subject": "no body"}, [{"subject": "no body"}], None])
@pytest.mark.rules
async def test_what_is_no_message_is_refused(client: ServiceBusClient, queue: str, what: object) -> None:
    """A TypeError names the accepted types."""
    async with client.get_queue_sender(queue) as sender:
        with pytest.raises(TypeError, match="message"):
            await sender.send_messages(what)  # type: ignore[arg-type]  # that is the test
        batch = await sender.create_message_batch()
        if not isinstance(what, list):
            with pytest.raises(TypeError, match="message"):
                batch.add_message(what)  # type: ignore[arg-type]


async def test_bad_arguments_name_value_and_rule(client: ServiceBusClient, queue: str) -> None:
    """The call that gets counts, waits, timeouts and choices checks them."""
    with pytest.raises(ValueError, match="max_wait_time 0"):
        client.get_queue_receiver(queue, max_wait_time=0)
    with pytest.raises(ValueError, match=r"receive_mode 'PEEKLOCK'.*peeklock"):
        client.get_queue_receiver(queue, receive_mode="PEEKLOCK")
    with pytest.raises(ValueError, match=r"sub_queue 'DEADLETTER'.*deadletter"):
        client.get_queue_receiver(queue, sub_queue="DEADLETTER")
    with pytest.raises(ValueError, match="entity name 'no//name'"):
        client.get_queue_sender("no//name")
    async with client.get_queue_receiver(queue) as receiver, client.get_queue_sender(queue) as sender:
        with pytest.raises(ValueError, match="max_wait_time -1"):
            await receiver.receive_messages(max_wait_time=-1)
        with pytest.raises(ValueError, match="max_message_count 0"):
            await receiver.receive_messages(0)
        with pytest.raises(ValueError, match="timeout 0"):
            await sender.send_messages(ServiceBusMessage("x"), timeout=0)


async def test_a_short_timeout_draws_a_warning_on_a_partitioned_queue(client: ServiceBusClient, queue: str) -> None:
    """15 s leave no time for another partition. The message is sent anyway."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        with pytest.warns(UserWarning, match="15 s leaves no time for another partition"):
            await sender.send_messages(ServiceBusMessage("x"), timeout=15)
        await sender.send_messages(ServiceBusMessage("y"), timeout=16)
        assert sorted(await drain(receiver, 2)) == ["x", "y"]


async def test_a_lone_message_comes_with_the_first_receive(client: ServiceBusClient, queue: str) -> None:
    """The message may be in any partition, and the only one in the queue."""
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for number in range(16):
            await sender.send_messages(ServiceBusMessage(str(number)))
            (message,) = await receiver.receive_messages(max_wait_time=30)
            assert str(message) == str(number)
            await receiver.complete_message(message)


async def test_an_unknown_queue_is_named(client: ServiceBusClient) -> None:
    """The error says which queue, and how to create one."""
    sender = client.get_queue_sender("nowhere")
    with pytest.raises(MessagingEntityNotFoundError, match=r"'nowhere'.*create_queue"):
        await sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError, match="'nowhere'"):
        await client.get_queue_receiver("nowhere").receive_messages()


async def test_names_are_case_insensitive(client: ServiceBusClient, queue: str) -> None:
    """As in Service Bus, two spellings are one queue."""
    async with client.get_queue_sender(queue.upper()) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        assert await drain(receiver, 1) == ["x"]


async def test_closed_handles_refuse_everything(client: ServiceBusClient, queue: str) -> None:
    """A closed sender or receiver raises ValueError, also when entered again. The client goes on."""
    sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
    async with sender, receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(max_wait_time=60)
    with pytest.raises(ValueError, match="already been shutdown"):
        await sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(ValueError, match="already been shutdown"):
        await receiver.complete_message(message)
    with pytest.raises(ValueError, match="already been shutdown"):
        await receiver.__aenter__()
    async with client.get_queue_receiver(queue) as other:
        await other.complete_message(message)


async def test_a_closed_client_can_be_used_again(client: ServiceBusClient, queue: str) -> None:
    """Closing closes the client's handles. New handles work."""
    sender = client.get_queue_sender(queue)
    await sender.send_messages(ServiceBusMessage("x"))
    await client.close()
    with pytest.raises(ValueError, match="already been shutdown"):
        await sender.send_messages(ServiceBusMessage("x"))
    assert await drain(client.get_queue_receiver(queue), 1) == ["x"]


async def test_bodies_of_every_kind_travel(client: ServiceBusClient, queue: str) -> None:
    """They travel alone, in a list and in a batch, with all other AMQP sections."""
    value = {"order": 17, "lines": [b"a", 2.5, None], "at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        key = {"x-opt-partition-key": "k"}
        await sender.send_messages(AmqpAnnotatedMessage(value_body=value, annotations=key, header={"priority": 3}))
        await sender.send_messages([AmqpAnnotatedMessage(sequence_body=[1, 2], annotations=key)])
        batch = await sender.create_message_batch()
        batch.add_message(AmqpAnnotatedMessage(data_body="text", annotations=key))
        await sender.send_messages(batch)
        await sender.send_messages(ServiceBusMessage(None, partition_key="k"))
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 4:
            messages += await receiver.receive_messages(4, max_wait_time=60)
        assert [message.body_type for message in messages] == ["value", "sequence", "data", "value"]
        assert (messages[0].body, messages[1].body, messages[3].body) == (value, [[1, 2]], None)
        assert b"".join(messages[2].body) == b"text"
        header = messages[0].raw_amqp_message.header
        assert header is not None
        assert header.priority == 3
