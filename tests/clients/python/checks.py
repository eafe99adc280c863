"""The checks of the Python SDK: written once, with asyncio; the blocking half runs in threads."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from tests.clients.python.harness import Check, Context, same, text, texts, want

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

CHECKS: dict[str, Check] = {}
"""All checks, by name."""

_PATIENCE_S = 5.0


def _check(function: Check) -> Check:
    CHECKS[getattr(function, "__name__").replace("_", "-")] = function  # noqa: B009 - a callable need not have a name
    return function


@_check
async def send_one(context: Context) -> None:
    """A message comes as it was sent, with the numbers and times of the broker."""
    async with context.client.get_queue_sender(context.entity) as sender:
        await sender.send_messages(context.message("one", message_id="id-1", application_properties={"colour": "red"}))
    async with context.receiver() as receiver:
        message = await context.receive_one(receiver)
        same(text(message), "one", "body")
        same(message.message_id, "id-1", "message id")
        same(message.delivery_count, 0, "delivery count")
        want(message.sequence_number, "no sequence number")
        want(message.enqueued_time_utc, "no enqueued time")
        want(message.locked_until_utc, "no end of the lock")
        want(message.lock_token, "no lock token")
        properties = {_text(key): _text(value) for key, value in (message.application_properties or {}).items()}
        same(properties, {"colour": "red"}, "application properties")
        await receiver.complete_message(message)


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


@_check
async def send_list(context: Context) -> None:
    """A list of messages comes whole."""
    async with context.client.get_queue_sender(context.entity) as sender:
        await sender.send_messages([context.message(f"{number:02}") for number in range(10)])
    async with context.receiver() as receiver:
        messages = await context.receive(receiver, 10)
        same(texts(messages), [f"{number:02}" for number in range(10)], "bodies")
        for message in messages:
            await receiver.complete_message(message)


@_check
async def send_batch(context: Context) -> None:
    """A batch of messages comes whole."""
    async with context.client.get_queue_sender(context.entity) as sender:
        batch = await sender.create_message_batch()
        for number in range(50):
            batch.add_message(context.message(f"{number:02}", partition_key="key"))
        await sender.send_messages(batch)
    async with context.receiver() as receiver:
        messages = await context.receive(receiver, 50)
        same(texts(messages), [f"{number:02}" for number in range(50)], "bodies")
        for message in messages:
            await receiver.complete_message(message)


@_check
async def send_1mb(context: Context) -> None:
    """A message of a million bytes comes whole."""
    body = bytes(range(250)) * 4000
    async with context.client.get_queue_sender(context.entity) as sender:
        await sender.send_messages(context.message(body))
    async with context.receiver() as receiver:
        message = await context.receive_one(receiver)
        want(b"".join(message.body) == body, "the body is another")
        await receiver.complete_message(message)


@_check
async def send_too_large(context: Context) -> None:
    """A message that is too large is refused; the sender still works."""
    async with context.client.get_queue_sender(context.entity) as sender:
        async with context.raises("MessageSizeExceededError"):
            await sender.send_messages(context.message(bytes(1_100_000)))
        batch = await sender.create_message_batch()
        with contextlib.suppress(ValueError):
            batch.add_message(context.message(bytes(1_100_000)))
        same(len(batch), 0, "number of messages in the batch")
        await sender.send_messages(context.message("small"))
    async with context.receiver() as receiver:
        same(text(await context.receive_one(receiver)), "small", "body")


@_check
async def send_scheduled(context: Context) -> None:
    """A message that is sent with a time of enqueueing comes then."""
    due = datetime.now(timezone.utc) + timedelta(seconds=4)
    await context.send("later", scheduled_enqueue_time_utc=due)
    async with context.receiver() as receiver:
        same(text(await context.receive_one(receiver)), "later", "body")
        want(datetime.now(timezone.utc) >= due - timedelta(seconds=0.5), "the message came too early")


@_check
async def receive_complete(context: Context) -> None:
    """Completed messages are gone."""
    await context.send("1", "2", "3")
    async with context.receiver() as receiver:
        messages = await context.receive(receiver, 3)
        same(texts(messages), ["1", "2", "3"], "bodies")
        for message in messages:
            await receiver.complete_message(message)
        await context.receive_nothing(receiver)
    await context.empty()


@_check
async def receive_empty(context: Context) -> None:
    """Receiving from an empty queue ends, and the receiver still works."""
    async with context.receiver() as receiver:
        await context.receive_nothing(receiver)
        await context.send("one")
        await receiver.complete_message(await context.receive_one(receiver))


@_check
async def receive_and_delete(context: Context) -> None:
    """A message that is received and deleted is gone."""
    await context.send("1", "2")
    async with context.receiver(receive_mode="receiveanddelete") as receiver:
        same(texts(await context.receive(receiver, 2)), ["1", "2"], "bodies")
    await context.empty()


@_check
async def receive_prefetch(context: Context) -> None:
    """A receiver that prefetches gets each message once."""
    await context.send(*(f"{number:02}" for number in range(30)))
    async with context.receiver(prefetch_count=20) as receiver:
        messages = await context.receive(receiver, 30)
        same(texts(messages), [f"{number:02}" for number in range(30)], "bodies")
        for message in messages:
            await receiver.complete_message(message)
    await context.empty()


@_check
async def abandon(context: Context) -> None:
    """An abandoned message comes again, and its deliveries are counted."""
    await context.send("one")
    async with context.receiver() as receiver:
        message = await context.receive_one(receiver)
        same(message.delivery_count, 0, "first delivery count")
        await receiver.abandon_message(message)
        message = await context.receive_one(receiver)
        same(message.delivery_count, 1, "second delivery count")
        await receiver.complete_message(message)


@_check
async def max_delivery_count(context: Context) -> None:
    """A message that was delivered too often is dead-lettered."""
    await context.send("one")
    async with context.receiver() as receiver:
        for _ in range(2):
            await receiver.abandon_message(await context.receive_one(receiver))
    async with context.receiver(sub_queue="deadletter") as receiver:
        message = await context.receive_one(receiver)
        same(message.dead_letter_reason, "MaxDeliveryCountExceeded", "reason")
        await receiver.complete_message(message)


@_check
async def defer(context: Context) -> None:
    """A deferred message comes by its sequence number alone, and is completed."""
    await context.send("one")
    async with context.receiver() as receiver:
        message = await context.receive_one(receiver)
        assert message.sequence_number is not None
        await receiver.defer_message(message)
        await context.receive_nothing(receiver)
        [deferred] = await receiver.receive_deferred_messages(message.sequence_number)
        same(text(deferred), "one", "body")
        await receiver.complete_message(deferred)
        async with context.raises("MessageNotFoundError"):
            await receiver.receive_deferred_messages(message.sequence_number)
    await context.empty()


@_check
async def dead_letter(context: Context) -> None:
    """A dead-lettered message is in the sub-queue, with reason and description."""
    await context.send("one")
    async with context.receiver() as receiver:
        message = await context.receive_one(receiver)
        await receiver.dead_letter_message(message, reason="a reason", error_description="a description")
    async with context.receiver(sub_queue="deadletter") as receiver:
        message = await context.receive_one(receiver)
        same(text(message), "one", "body")
        same(message.dead_letter_reason, "a reason", "reason")
        same(message.dead_letter_error_description, "a description", "description")
        await receiver.complete_message(message)
        await context.receive_nothing(receiver)


@_check
async def peek(context: Context) -> None:
    """Peeking shows messages and locks none."""
    await context.send("1", "2", "3", partition_key="key")
    async with context.receiver() as receiver:
        peeked = await receiver.peek_messages(max_message_count=10)
        same([text(message) for message in peeked], ["1", "2", "3"], "bodies")
        number = peeked[1].sequence_number
        assert number is not None
        rest = await receiver.peek_messages(max_message_count=10, sequence_number=number)
        same([text(message) for message in rest], ["2", "3"], "bodies from the second on")
        same(rest[0].sequence_number, number, "sequence number")
        for message in await context.receive(receiver, 3):
            await receiver.complete_message(message)
    await context.empty()


@_check
async def schedule(context: Context) -> None:
    """A scheduled message shows when peeked, and comes when it is due."""
    async with context.client.get_queue_sender(context.entity) as sender, context.receiver() as receiver:
        due = datetime.now(timezone.utc) + timedelta(seconds=6)
        [number] = await sender.schedule_messages(context.message("later"), due)
        [peeked] = await receiver.peek_messages()
        same(peeked.sequence_number, number, "sequence number")
        same(peeked.state, context.sdk.ServiceBusMessageState.SCHEDULED, "state")
        message = await context.receive_one(receiver)
        same(text(message), "later", "body")
        want(datetime.now(timezone.utc) >= due - timedelta(seconds=0.5), "the message came too early")
        await receiver.complete_message(message)


@_check
async def schedule_cancel(context: Context) -> None:
    """A cancelled message is gone; cancelling it again is refused."""
    async with context.client.get_queue_sender(context.entity) as sender:
        due = datetime.now(timezone.utc) + timedelta(hours=1)
        messages = [context.message(body, partition_key="key") for body in "ab"]
        numbers = await sender.schedule_messages(messages, due)
        same(len(numbers), 2, "number of sequence numbers")
        await sender.cancel_scheduled_messages(numbers)
        await context.empty()
        async with context.raises("MessageNotFoundError"):
            await sender.cancel_scheduled_messages(numbers)


@_check
async def renew_lock(context: Context) -> None:
    """A lock that is renewed lasts longer than it would have."""
    await context.send("one")
    async with context.receiver() as receiver, context.receiver() as other:
        message = await context.receive_one(receiver)
        before = message.locked_until_utc
        assert before is not None
        while datetime.now(timezone.utc) < before:
            renewed = await receiver.renew_message_lock(message)
            await context.receive_nothing(other)
            want(renewed > before, "the renewed lock does not end later")
        await receiver.complete_message(message)
    await context.empty()


@_check
async def lock_lost(context: Context) -> None:
    """A message whose lock ended comes again, and its first receiver can neither complete it nor renew its lock."""
    await context.send("one")
    async with context.receiver() as receiver, context.receiver() as other:
        message = await context.receive_one(receiver)
        again = await context.receive_one(other)
        same(again.delivery_count, 1, "second delivery count")
        async with context.raises("MessageLockLostError"):
            await receiver.complete_message(message)
        async with context.raises("MessageLockLostError"):
            await receiver.renew_message_lock(message)
        await other.complete_message(again)


@_check
async def unknown_queue(context: Context) -> None:
    """Sending to a queue that does not exist and receiving from it are refused."""
    async with context.raises("MessagingEntityNotFoundError"):
        await context.send("one")
    async with context.raises("MessagingEntityNotFoundError"):
        async with context.receiver() as receiver:
            await receiver.receive_messages(max_wait_time=_PATIENCE_S)


@_check
async def unknown_subscription(context: Context) -> None:
    """Receiving from a subscription that does not exist is refused."""
    async with context.raises("MessagingEntityNotFoundError"):
        async with context.client.get_subscription_receiver(context.entity, "missing") as receiver:
            await receiver.receive_messages(max_wait_time=_PATIENCE_S)


@_check
async def session_state(context: Context) -> None:
    """A session's state is kept until it is cleared."""
    async with context.receiver(session_id="a") as receiver:
        want(not await receiver.session.get_state(), "a new session has a state")
        await receiver.session.set_state(b"\x00state")
        same(bytes(await receiver.session.get_state()), b"\x00state", "state")
    async with context.receiver(session_id="a") as receiver:
        same(bytes(await receiver.session.get_state()), b"\x00state", "state of the next receiver")
        await receiver.session.set_state(None)
        want(not await receiver.session.get_state(), "the state was not cleared")


@_check
async def session_next(context: Context) -> None:
    """The next available session is one with messages; they come in their order."""
    await context.send("1", "2", "3", session_id="a")
    async with _next(context) as receiver:
        same(receiver.session.session_id, "a", "session id")
        want(receiver.session.locked_until_utc, "no end of the lock")
        messages = await context.receive(receiver, 3)
        same([text(message) for message in messages], ["1", "2", "3"], "bodies")
        same({message.session_id for message in messages}, {"a"}, "session ids")
        for message in messages:
            await receiver.complete_message(message)
        await context.receive_nothing(receiver)


def _next(context: Context, wait_s: float = 20.0) -> ServiceBusReceiver:
    return context.receiver(session_id=context.sdk.NEXT_AVAILABLE_SESSION, max_wait_time=wait_s)


@_check
async def session_none(context: Context) -> None:
    """Asking for the next available session ends with a time-out if there is none."""
    async with context.raises("OperationTimeoutError"):
        async with _next(context, 3):
            pass


@_check
async def session_two(context: Context) -> None:
    """Two receivers have two sessions at once, and each gets its own messages."""
    await context.send("a1", "a2", session_id="a")
    await context.send("b1", "b2", session_id="b")
    async with _next(context) as first, _next(context) as second:
        same({first.session.session_id, second.session.session_id}, {"a", "b"}, "session ids")
        for receiver in (first, second):
            messages = await context.receive(receiver, 2)
            session = receiver.session.session_id
            same([text(message) for message in messages], [f"{session}1", f"{session}2"], "bodies")
            for message in messages:
                await receiver.complete_message(message)


@_check
async def session_held(context: Context) -> None:
    """A session that another receiver holds is refused, until that one is closed."""
    await context.send("one", session_id="a")
    async with context.receiver(session_id="a") as receiver:
        message = await context.receive_one(receiver)
        async with context.raises("SessionCannotBeLockedError"):
            async with context.receiver(session_id="a"):
                pass
        await receiver.abandon_message(message)
    async with context.receiver(session_id="a") as receiver:
        await receiver.complete_message(await context.receive_one(receiver))


@_check
async def session_defer(context: Context) -> None:
    """A deferred message of a session comes by its sequence number."""
    await context.send("one", session_id="a")
    async with context.receiver(session_id="a") as receiver:
        message = await context.receive_one(receiver)
        assert message.sequence_number is not None
        await receiver.defer_message(message)
        [deferred] = await receiver.receive_deferred_messages(message.sequence_number)
        same(text(deferred), "one", "body")
        await receiver.complete_message(deferred)


@_check
async def session_peek(context: Context) -> None:
    """A session's receiver peeks at the session's messages alone."""
    await context.send("a1", session_id="a")
    await context.send("b1", session_id="b")
    async with context.receiver(session_id="b") as receiver:
        peeked = await receiver.peek_messages(max_message_count=10)
        same([text(message) for message in peeked], ["b1"], "bodies")


@_check
async def session_renew_lock(context: Context) -> None:
    """A session's lock that is renewed lasts longer than it would have."""
    await context.send("one", session_id="a")
    async with context.receiver(session_id="a") as receiver:
        message = await context.receive_one(receiver)
        before = receiver.session.locked_until_utc
        assert before is not None
        while datetime.now(timezone.utc) < before:
            renewed = await receiver.session.renew_lock()
            want(renewed > before, "the renewed lock does not end later")
            await context.receive_nothing(receiver)
        await receiver.complete_message(message)


@_check
async def session_lock_lost(context: Context) -> None:
    """A session whose lock ended goes to another receiver, and its first one cannot settle."""
    await context.send("one", session_id="a")
    async with context.receiver(session_id="a") as receiver:
        message = await context.receive_one(receiver)
        async with _next(context) as other:
            same(other.session.session_id, "a", "session id")
            again = await context.receive_one(other)
            async with context.raises("SessionLockLostError"):
                await receiver.complete_message(message)
            async with context.raises("SessionLockLostError"):
                await receiver.session.renew_lock()
            await other.complete_message(again)


@_check
async def session_required(context: Context) -> None:
    """A receiver without a session is refused if the queue has sessions."""
    async with context.raises("ServiceBusError"):
        async with context.receiver() as receiver:
            await receiver.receive_messages(max_wait_time=_PATIENCE_S)


@_check
async def session_unsupported(context: Context) -> None:
    """A receiver with a session is refused if the queue has none."""
    async with context.raises("ServiceBusError"):
        async with context.receiver(session_id="a") as receiver:
            await receiver.receive_messages(max_wait_time=_PATIENCE_S)


@_check
async def session_missing(context: Context) -> None:
    """A message without a session id is refused if the queue has sessions; so is one whose partition key is another."""
    async with context.raises("ServiceBusError"):
        await context.send("one")
    message = context.message("one", session_id="a")
    message.raw_amqp_message.annotations = {"x-opt-partition-key": "b"}
    async with context.raises("ServiceBusError"):
        async with context.client.get_queue_sender(context.entity) as sender:
            await sender.send_messages(message.raw_amqp_message)


@_check
async def session_list(context: Context) -> None:
    """The sessions with messages are listed."""
    for session in "abc":
        await context.send("one", session_id=session)
    same(sorted(await context.sdk.session_ids(context.client, context.entity)), ["a", "b", "c"], "session ids")


@_check
async def topic_all(context: Context) -> None:
    """Each subscription gets each message."""
    await _publish(context, context.message("one"))
    for subscription in ("first", "second"):
        async with context.client.get_subscription_receiver(context.entity, subscription) as receiver:
            message = await context.receive_one(receiver)
            same(text(message), "one", "body")
            await receiver.complete_message(message)


async def _publish(context: Context, *messages: object) -> None:
    async with context.client.get_topic_sender(context.entity) as sender:
        for message in messages:
            await sender.send_messages(message)  # type: ignore[arg-type]


@_check
async def topic_rules(context: Context) -> None:
    """A subscription gets the messages that match its rules, as its actions change them."""
    await _publish(
        context,
        context.message("red", application_properties={"colour": "red"}),
        context.message("blue", subject="blue"),
    )
    for subscription, bodies in {"all": ["blue", "red"], "sql": ["red"], "correlation": ["blue"]}.items():
        async with context.client.get_subscription_receiver(context.entity, subscription) as receiver:
            messages = await context.receive(receiver, len(bodies))
            same(texts(messages), bodies, f"bodies of {subscription}")
            for message in messages:
                await receiver.complete_message(message)
            await context.receive_nothing(receiver)
            properties = {_text(key): _text(value) for key, value in (messages[0].application_properties or {}).items()}
            want(subscription != "sql" or properties.get("mixed") == "purple", "the rule's action was not applied")


@_check
async def topic_dead_letter(context: Context) -> None:
    """A subscription has its own dead-letter queue."""
    await _publish(context, context.message("one"))
    async with context.client.get_subscription_receiver(context.entity, "all") as receiver:
        await receiver.dead_letter_message(await context.receive_one(receiver), reason="a reason")
    async with context.client.get_subscription_receiver(context.entity, "all", sub_queue="deadletter") as receiver:
        message = await context.receive_one(receiver)
        same(message.dead_letter_reason, "a reason", "reason")
        await receiver.complete_message(message)


@_check
async def topic_session(context: Context) -> None:
    """A subscription with sessions gives them out."""
    await _publish(context, context.message("one", session_id="a"))
    async with context.client.get_subscription_receiver(
        context.entity, "all", session_id=context.sdk.NEXT_AVAILABLE_SESSION, max_wait_time=20
    ) as receiver:
        same(receiver.session.session_id, "a", "session id")
        await receiver.complete_message(await context.receive_one(receiver))
