"""Redis forgets settings that senders stored in Redis alone: still no message comes early, late or never."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest
import redis
from confluent_kafka import Producer

from kafkabus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Operation, Schedule, TakeSnapshot
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.codec import to_milliseconds
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.contract.receiving import receive_all
from tests.kafka_log import KAFKA_LOG
from tests.queues import new_queue
from tests.upkeep import hasten, tend

HOUR, LIFE = timedelta(hours=1), timedelta(seconds=1)
BEYOND = 3603.0
"""Seconds until messages for an hour from now are due, and no client waits for upkeep any more."""
TOPIC, SUBSCRIPTION = "prices", "prices/Subscriptions/all"


def in_an_hour() -> datetime:
    """Return a time an hour from now."""
    return datetime.now(timezone.utc) + HOUR


class Forgetful:
    """A namespace that only the test looks after, and the contents of its Redis.

    Args:
        connection_string: Of the namespace.
        redis_url: Address of the Redis that holds its ledgers.
        monkeypatch: Has upkeep write checkpoints and delete records at once instead of now and then.
    """

    def __init__(self, connection_string: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection_string = connection_string
        self.name = parse_settings(connection_string).namespace
        self._redis_url = redis_url
        hasten(monkeypatch)

    def write_down(self, name: str) -> None:
        """Write a checkpoint of a plain entity's ledger as it is now."""
        context = ClientContext(parse_settings(self.connection_string))
        try:
            (ledger,) = context.catalog.entity(EntityPath(name)).ledgers
            keep = TakeSnapshot(ledger)
            context.ledger_client.execute(keep)
            context.stores.checkpoints.write({ledger.keys.prefix: keep.snapshot})
        finally:
            context.close()

    def forget(self) -> None:
        """Have Redis lose all that it holds of the namespace."""
        with redis.Redis.from_url(self._redis_url) as store:
            store.delete(*store.scan_iter(match=f"*{self.name}*", count=1000))

    def wait(self, name: str, seconds: float) -> None:
        """Let time pass for the ledgers of an entity, which are made again first if they are gone."""
        context = ClientContext(parse_settings(self.connection_string))
        try:
            context.ledger_client.execute(
                *(TakeSnapshot(ledger) for ledger in context.catalog.entity(EntityPath(name)).ledgers)
            )
        finally:
            context.close()
        advance(self._redis_url, self.name, name, seconds)

    def tend(self, *names: str) -> None:
        """Look after entities."""
        tend(self.connection_string, *names)


@pytest.fixture
def forgetful(untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> Forgetful:
    """An empty namespace."""
    return Forgetful(untended, runtime.redis_url, monkeypatch)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A plain topic of the namespace that keeps no settled messages, and its only subscription.

    Attributes:
        administration: Of the namespace.
        sender: To the topic.
        receiver: Of the subscription.
    """

    administration: ServiceBusAdministrationClient
    sender: ServiceBusSender
    receiver: ServiceBusReceiver

    @property
    def scheduled(self) -> int:
        """Return how many messages of the topic wait for their time."""
        return self.administration.get_topic_runtime_properties(TOPIC).scheduled_message_count

    def received(self, count: int) -> list[str]:
        """Receive and complete so many messages, and see that no more come; return their bodies."""
        return [str(message) for message in receive_all(self.receiver, count)]


@pytest.fixture
def subscribed(forgetful: Forgetful) -> Iterator[Subscribed]:
    """A new topic with its subscription."""
    with (
        ServiceBusAdministrationClient.from_connection_string(forgetful.connection_string) as administration,
        ServiceBusClient.from_connection_string(forgetful.connection_string) as client,
    ):
        administration.create_topic(TOPIC, settled_retention=timedelta(0))
        administration.create_subscription(TOPIC, "all")
        yield Subscribed(administration, client.get_topic_sender(TOPIC), client.get_subscription_receiver(TOPIC, "all"))


def all_of(
    client: ServiceBusClient,
    queue: str,
    count: int,
    mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK,
    session: str | None = None,
) -> list[str]:
    """Receive and settle so many messages, and see that no more come; return their bodies."""
    with client.get_queue_receiver(queue, session_id=session, receive_mode=mode) as receiver:
        messages = receive_all(receiver, count, quiet=1.0, settle=mode is ServiceBusReceiveMode.PEEK_LOCK)
    return [str(message) for message in messages]


@pytest.mark.parametrize(
    ("mode", "session"),
    [
        pytest.param(ServiceBusReceiveMode.PEEK_LOCK, None, id="locked"),
        pytest.param(ServiceBusReceiveMode.RECEIVE_AND_DELETE, None, id="deleted"),
        pytest.param(ServiceBusReceiveMode.PEEK_LOCK, "s", id="in a session"),
    ],
)
def test_what_was_scheduled_since_the_checkpoint_comes_at_its_time(
    forgetful: Forgetful, mode: ServiceBusReceiveMode, session: str | None
) -> None:
    """They come at that time and not before, however they are received."""
    queue = new_queue(forgetful.connection_string, requires_session=session is not None)
    with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
        sender = client.get_queue_sender(queue)
        sender.send_messages(ServiceBusMessage("before", session_id=session))
        assert all_of(client, queue, 1, mode, session) == ["before"]
        forgetful.write_down(queue)
        messages = [ServiceBusMessage(body, session_id=session) for body in ("1", "2")]
        sender.schedule_messages(messages, in_an_hour())
        sender.send_messages(ServiceBusMessage("at once", session_id=session))
        forgetful.forget()
        assert all_of(client, queue, 1, mode, session) == ["at once"]
        forgetful.wait(queue, BEYOND)
        assert all_of(client, queue, 2, mode, session) == ["1", "2"]


@pytest.mark.parametrize("received", [True, False], ids=["received", "looked after"])
def test_a_time_to_live_that_came_since_the_checkpoint_is_over(forgetful: Forgetful, received: bool) -> None:
    """No client receives the message; the receiver, or upkeep, dead-letters it.

    It lives for a second by the broker's clock.
    """
    queue = new_queue(forgetful.connection_string, dead_lettering_on_message_expiration=True)
    with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
        sender = client.get_queue_sender(queue)
        forgetful.write_down(queue)
        sender.send_messages([ServiceBusMessage("lasts"), ServiceBusMessage("over", time_to_live=LIFE)])
        over_at = time.monotonic() + LIFE.total_seconds() + 0.1
        forgetful.forget()
        forgetful.wait(queue, 0)
        while time.monotonic() < over_at:
            time.sleep(0.01)
        if received:
            assert all_of(client, queue, 1) == ["lasts"]
        else:
            forgetful.tend(queue)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (dead,) = receive_all(receiver, 1)
            assert (str(dead), dead.dead_letter_reason) == ("over", "TTLExpiredException")


def test_a_topic_knows_what_was_scheduled_since_the_checkpoint(forgetful: Forgetful, subscribed: Subscribed) -> None:
    """It counts the messages, can cancel them, and they come at their time. Their records stay, settled ones do not."""
    subscribed.sender.send_messages(ServiceBusMessage("before"))
    assert len(subscribed.received(1)) == 1
    forgetful.write_down(TOPIC)
    messages = [ServiceBusMessage(body) for body in ("1", "2")]
    numbers = subscribed.sender.schedule_messages(messages, in_an_hour())
    subscribed.sender.send_messages(ServiceBusMessage("at once"))
    forgetful.forget()
    # Messages that were settled since the checkpoint may come again.
    assert subscribed.received(1)[-1] == "at once"
    forgetful.tend(SUBSCRIPTION, TOPIC)
    assert subscribed.scheduled == 2
    subscribed.sender.cancel_scheduled_messages(numbers[0])
    forgetful.wait(TOPIC, BEYOND)
    forgetful.tend(SUBSCRIPTION, TOPIC)
    assert subscribed.received(1) == ["2"]


def test_marks_that_a_lagging_replica_never_got_are_set_again(forgetful: Forgetful, runtime: RunningNamespace) -> None:
    """Upkeep sets them again, as the entity's description has them."""
    queue = new_queue(forgetful.connection_string)
    marks = ("has_message_ttl", "schedules", "transacts")
    context = ClientContext(parse_settings(forgetful.connection_string))
    try:
        with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
            sender = client.get_queue_sender(queue)
            sender.schedule_messages(ServiceBusMessage("later", time_to_live=HOUR), in_an_hour())
            with client.transaction() as transaction:
                sender.send_messages(ServiceBusMessage("inside"), transaction=transaction)
        (ledger,) = context.catalog.entity(EntityPath(queue)).ledgers
        for there in (True, False, True):
            (state,) = context.ledger_client.states([ledger])
            assert [getattr(state, mark) for mark in marks] == [there] * 3
            if there:
                with redis.Redis.from_url(runtime.redis_url) as store:
                    store.hdel(ledger.keys.meta, *marks)
            else:
                forgetful.tend(queue)
    finally:
        context.close()


def produce(runtime: RunningNamespace, topic: str, *bodies: str) -> None:
    """Store messages for an hour from now as a plain producer does."""
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    due = str(to_milliseconds(in_an_hour())).encode()
    for body in bodies:
        producer.produce(topic, body, partition=0, headers={"sb-scheduled-enqueue-time": due})
    assert producer.flush(30) == 0


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
def test_what_a_plain_producer_scheduled_comes_at_its_time(
    forgetful: Forgetful, runtime: RunningNamespace, mode: ServiceBusReceiveMode
) -> None:
    """The message is in a queue."""
    queue = new_queue(forgetful.connection_string)
    with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
        client.get_queue_sender(queue).send_messages(ServiceBusMessage("at once"))
        produce(runtime, f"{forgetful.name}.{queue}", "1", "2")
        assert all_of(client, queue, 1, mode) == ["at once"]
        forgetful.wait(queue, BEYOND)
        assert all_of(client, queue, 2, mode) == ["1", "2"]


def test_what_a_plain_producer_scheduled_for_a_topic_comes_at_its_time(
    forgetful: Forgetful, subscribed: Subscribed, runtime: RunningNamespace
) -> None:
    """Each subscription gets them, as soon as one of them was received from."""
    produce(runtime, f"{forgetful.name}.{TOPIC}", "1", "2")
    subscribed.sender.send_messages(ServiceBusMessage("at once"))
    assert subscribed.received(1) == ["at once"]
    forgetful.tend(SUBSCRIPTION, TOPIC)
    assert subscribed.scheduled == 2
    forgetful.wait(TOPIC, BEYOND)
    forgetful.tend(TOPIC)
    assert subscribed.received(2) == ["1", "2"]


def test_what_a_plain_producer_scheduled_for_a_topic_is_known_though_nobody_receives(
    forgetful: Forgetful, subscribed: Subscribed, runtime: RunningNamespace
) -> None:
    """Upkeep passes the message in the subscription, and notifies the topic before."""
    produce(runtime, f"{forgetful.name}.{TOPIC}", "1", "2")
    forgetful.tend(SUBSCRIPTION, TOPIC)
    assert subscribed.scheduled == 2


@pytest.mark.parametrize("stored_by", ["a plain producer", "a sender"])
def test_what_waits_for_its_time_does_not_expire_before(
    forgetful: Forgetful, runtime: RunningNamespace, stored_by: str
) -> None:
    """Its life begins when it is enqueued, even if Redis forgot it. The test takes the second of that life."""
    keeps = stored_by == "a plain producer"
    queue = new_queue(
        forgetful.connection_string,
        default_message_time_to_live=LIFE,
        dead_lettering_on_message_expiration=keeps,
    )
    with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
        if stored_by == "a sender":
            client.get_queue_sender(queue).schedule_messages(ServiceBusMessage("1"), in_an_hour())
        else:
            produce(runtime, f"{forgetful.name}.{queue}", "1")
        (peeked,) = client.get_queue_receiver(queue).peek_messages(1)
        over_at = peeked.enqueued_time_utc + LIFE
        time.sleep(max(0.0, (over_at - datetime.now(timezone.utc)).total_seconds() + 0.1))
        if stored_by == "a sender":
            forgetful.forget()
        forgetful.tend(queue)
        (peeked,) = client.get_queue_receiver(queue).peek_messages(1)
        assert peeked.state == ServiceBusMessageState.SCHEDULED


def test_a_purge_leaves_what_was_scheduled_and_not_told_of_yet(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge comes between the record and the sender's report of it to the ledger."""
    queue = new_queue(forgetful.connection_string)
    with (
        ServiceBusClient.from_connection_string(forgetful.connection_string) as client,
        ServiceBusClient.from_connection_string(forgetful.connection_string) as other,
    ):
        ledger_client = client._connections().ledger_client
        ask = ledger_client.execute

        def purge_before(*operations: Operation) -> None:
            if any(isinstance(operation, Schedule) for operation in operations):
                other.get_queue_receiver(queue).purge_messages()
            ask(*operations)

        monkeypatch.setattr(ledger_client, "execute", purge_before)
        client.get_queue_sender(queue).schedule_messages(ServiceBusMessage("1"), in_an_hour())
        monkeypatch.undo()
        forgetful.wait(queue, BEYOND)
        assert all_of(client, queue, 1) == ["1"]


def test_a_sender_describes_its_times_to_live_though_it_received_others(
    forgetful: Forgetful, runtime: RunningNamespace
) -> None:
    """The others came from a plain producer; its client reported them to the ledger alone."""
    queue = new_queue(forgetful.connection_string)
    with ServiceBusClient.from_connection_string(forgetful.connection_string) as client:
        producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
        producer.produce(f"{forgetful.name}.{queue}", "foreign", partition=0, headers={"sb-time-to-live": b"3600000"})
        assert producer.flush(30) == 0
        assert all_of(client, queue, 1) == ["foreign"]
        client.get_queue_sender(queue).send_messages(ServiceBusMessage("own", time_to_live=HOUR))
    context = ClientContext(parse_settings(forgetful.connection_string))
    try:
        assert context.catalog.entity(EntityPath(queue)).description.has_message_ttl
    finally:
        context.close()
