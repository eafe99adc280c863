"""Logs with all that real ones hold: transactions' markers, plain producers' records, broken headers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._async.context import ClientContext as AsyncContext
from kafkabus._core.settings import parse_settings
from kafkabus._kafka import topic_admin as topics
from kafkabus._sync.context import ClientContext
from kafkabus._sync.kafka.producer import OutgoingRecord
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep import stuck_logs as stuck
from kafkabus_mapping.names import EntityPath, topic_name
from tests.integration.embedded.serving import wait_until
from tests.kafka_log import KAFKA_LOG


@pytest.fixture
def client(runtime: RunningNamespace) -> Iterator[ServiceBusClient]:
    """A client."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as opened:
        yield opened


def transact(runtime: RunningNamespace, topic: str, bodies: list[str], *, commit: bool) -> None:
    """Store records in a Kafka transaction, which ends with a marker that takes an offset."""
    producer = Producer(
        {"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": uuid.uuid4().hex}, logger=KAFKA_LOG
    )
    producer.init_transactions()
    producer.begin_transaction()
    for body in bodies:
        producer.produce(topic, body.encode(), partition=0)
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def test_markers_and_aborted_records_are_holes(runtime: RunningNamespace, client: ServiceBusClient, queue: str) -> None:
    """They are neither delivered nor counted, and block no message, in the middle and at the end of the log."""
    topic = f"tests.{queue}"
    receiver = client.get_queue_receiver(queue)
    transact(runtime, topic, ["a", "b"], commit=True)
    transact(runtime, topic, ["never"], commit=False)
    client.get_queue_sender(queue).send_messages(ServiceBusMessage("c"))
    transact(runtime, topic, ["d"], commit=True)
    first = receiver.receive_messages(3, max_wait_time=60)
    second = receiver.receive_messages(10, max_wait_time=60)
    assert [str(message) for message in first + second] == ["a", "b", "c", "d"]
    numbers = [message.sequence_number for message in first + second]
    assert numbers[:2] == [1, 2]
    # The coordinator decides on the place of the aborted one's marker, and writes it a moment later.
    assert numbers == sorted(numbers)
    assert numbers[3] == 7
    receiver.abandon_messages(first + second)
    again = receiver.receive_messages(10, max_wait_time=60)
    assert [(str(message), message.delivery_count) for message in again] == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    receiver.complete_messages(again)
    assert receiver.receive_messages(10, max_wait_time=0.5) == []


def test_a_marker_as_last_record_hangs_nobody(runtime: RunningNamespace, client: ServiceBusClient, queue: str) -> None:
    """With no traffic after it, receivers reach the log's end and later messages."""
    receiver = client.get_queue_receiver(queue)
    transact(runtime, f"tests.{queue}", ["never"], commit=False)
    assert receiver.receive_messages(1, max_wait_time=1) == []
    client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
    (message,) = receiver.receive_messages(5, max_wait_time=60)
    assert str(message) == "x"
    receiver.complete_message(message)


def test_a_plain_producers_records_are_messages(
    runtime: RunningNamespace, client: ServiceBusClient, queue: str
) -> None:
    """Its key is the partition key, its headers are properties, its place is the message id; broken ones do no harm."""
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    topic = f"tests.{queue}"
    producer.produce(topic, b"plain", key=b"k", headers=[("trace", b"t1")], partition=0)
    producer.produce(topic, None, key=b"\xff\xfe", partition=0)
    broken: list[tuple[str, str | bytes | None]] = [
        ("sb-message-id", b"\xff"),
        ("sb-time-to-live", b"soon"),
        ("sb-application-properties", b"{no json"),
        ("sb-subject", None),
        ("sb-nobody-knows", b"x"),
    ]
    producer.produce(topic, b"broken", headers=broken, partition=0)
    assert producer.flush(10) == 0
    receiver = client.get_queue_receiver(queue)
    plain, empty, odd = receiver.receive_messages(3, max_wait_time=60)
    assert (plain.message_id, plain.partition_key) == (f"{topic}/0/0", "k")
    assert plain.application_properties == {b"trace": b"t1"}
    assert (empty.body, empty.partition_key) == (None, None)
    assert (str(odd), odd.message_id, odd.time_to_live, odd.subject) == ("broken", f"{topic}/0/2", None, None)
    assert set(odd.application_properties or {}) == {
        b"sb-message-id",
        b"sb-time-to-live",
        b"sb-application-properties",
        b"sb-subject",
        b"sb-nobody-knows",
    }
    receiver.dead_letter_messages([plain, empty, odd], "Odd")
    dead = client.get_queue_receiver(queue, sub_queue="deadletter").receive_messages(3, max_wait_time=60)
    assert [(message.message_id, message.partition_key) for message in dead] == [
        (f"{topic}/0/0", "k"),
        (f"{topic}/0/1", None),
        (f"{topic}/0/2", None),
    ]
    client.get_queue_receiver(queue, sub_queue="deadletter").complete_messages(dead)


def test_reading_by_offset_from_a_deleted_topic_ends(runtime: RunningNamespace, queue: str) -> None:
    """Kafka's client would wait until the topic is created again."""
    context = ClientContext(parse_settings(runtime.connection_string))
    topic = f"tests.{queue}"
    try:
        transact(runtime, topic, ["a"], commit=True)
        assert [record.value() for record in context.connections.offset_reader.read(topic, 0, 0, 0)] == [b"a"]
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            administration.delete_queue(queue)
        with pytest.raises(MessagingEntityNotFoundError, match=topic):
            context.connections.offset_reader.read(topic, 0, 1, 1)
    finally:
        context.close()


async def test_a_log_that_is_not_read_on_is_told_of(
    runtime: RunningNamespace, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning comes if a transaction was open twice in a row at the same place. After its end it is another place."""
    monkeypatch.setattr(stuck, "LOOK_EVERY", 0.0)
    producer = Producer(
        {"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": uuid.uuid4().hex}, logger=KAFKA_LOG
    )
    producer.init_transactions()
    context = AsyncContext(parse_settings(runtime.connection_string))
    entity = await context.catalog.entity(EntityPath(queue))
    logs = stuck.StuckLogs(context)
    told: list[int] = []
    for looks in (1, 3):
        producer.begin_transaction()
        producer.produce(entity.topic, b"never", partition=0)
        producer.flush()
        for _ in range(looks):
            await logs.look(entity, await context.topics.ends(entity.topic, [0]))
            told.append(sum("log_stuck" in record.getMessage() for record in caplog.records))
        producer.abort_transaction()
    await context.close()
    assert told == [0, 0, 1, 1]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_queue_that_was_deleted_and_created_again_takes_messages_at_once(
    runtime: RunningNamespace, transactional: bool
) -> None:
    """That holds even if Kafka's client has noticed by then that its topic was gone."""
    name = f"again-{uuid.uuid4().hex[:8]}"
    context = ClientContext(parse_settings(runtime.connection_string))
    transactional_producer = context.connections.transactional_producers.borrow()
    record = OutgoingRecord(0, None, b"x", [])
    topic = topic_name(context.settings.namespace, EntityPath(name))

    def store() -> None:
        if transactional:
            transactional_producer.begin()
            transactional_producer.send([(topic, record)])
            transactional_producer.commit()
        else:
            assert context.connections.record_producer.send(topic, [record], timeout=20.0).is_done

    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue(name, enable_partitioning=False)
        store()
        known_at = time.monotonic()
        administration.delete_queue(name)
        producer = (
            transactional_producer._begun_producer() if transactional else context.connections.record_producer._producer
        )
        # If it has known a topic for less than five seconds (topic.metadata.propagation.max.ms), it takes it for a new
        # one.
        while producer.list_topics(topic, 60).topics[topic].error is None or time.monotonic() < known_at + 5.5:
            assert time.monotonic() < known_at + 120
        administration.create_queue(name, enable_partitioning=False)
        store()
        assert context.topics.stored_ends(topic, [0])[0] > 0
        # Kafka stores the end of a transaction a moment later.
        wait_until(lambda: context.topics.ends(topic, [0])[0] > 0, "the end of the transaction")
        administration.delete_queue(name)
    context.close()


def test_a_topic_that_is_gone_is_not_waited_for(runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic, of which not all brokers know yet, is waited for, for a few seconds at most."""
    monkeypatch.setattr(topics, "APPEARS_WITHIN", 0.1)
    asking = topics.Topics(parse_settings(runtime.connection_string), timeout=100.0)
    began = time.monotonic()
    with pytest.raises(ServiceBusError, match="nowhere"):
        asking.ends("nowhere", [0])
    assert time.monotonic() < began + 50


def test_the_ends_of_several_logs(runtime: RunningNamespace) -> None:
    """They are the same if Kafka's client is asked for all together, and, once that has failed, for each."""
    asking, name = topics.Topics(parse_settings(runtime.connection_string)), uuid.uuid4().hex
    asking.create(name, 2, {})
    asking.wait_for(name)
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": name}, logger=KAFKA_LOG)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"open", partition=1)
    producer.flush()
    transact(runtime, name, ["one", "two"], commit=True)
    wait_until(lambda: asking.ends(name, [0])[0] > 0, "the end of the transaction")
    for together in (True, False):
        assert asking.ends_of({name: 2, "nowhere": 2}) == {name: {0: 3, 1: 0}, "nowhere": {}}
        assert asking.ends_of({name: 2, "nowhere": 2}, stored=True) == {name: {0: 3, 1: 1}, "nowhere": {}}
        assert asking.asks_together is together
        assert asking.ends_of({"nowhere": 2}) == {"nowhere": {}}
    producer.abort_transaction()
    asking.delete(name)
    asking.close()


def test_a_topic_is_deleted_when_the_broker_says_so(runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker hears of it after the controller, and would describe the old topic when the next one is created."""
    asking, name, late = topics.Topics(parse_settings(runtime.connection_string)), uuid.uuid4().hex, 3
    asking.create(name, 1, {})
    old, describe = asking.wait_for(name), asking.describe

    def describe_late(name: str, timeout: float | None = None) -> topics.Topic | None:
        nonlocal late
        late -= 1
        return old if late >= 0 else describe(name, timeout)

    monkeypatch.setattr(asking, "describe", describe_late)
    assert asking.delete(name)
    assert late < 0


def test_a_topic_is_created_and_deleted_though_the_broker_s_answers_are_lost(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker did it, and could not say so in time. Asked again, it says that the topic exists, or does not."""
    asking, name = topics.Topics(parse_settings(runtime.connection_string)), uuid.uuid4().hex
    lost: list[str] = []

    def lose_the_first(method: str) -> None:
        do = getattr(asking._admin, method)

        def ask(wanted: list[Any], **options: float) -> dict[str, Future[None]]:
            answers: dict[str, Future[None]] = do(wanted, **options)
            if method in lost:
                return answers
            lost.append(method)
            answers[name].result()
            answers[name] = Future()
            answers[name].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
            return answers

        monkeypatch.setattr(asking._admin, method, ask)

    lose_the_first("create_topics")
    lose_the_first("delete_topics")
    assert asking.create(name, 1, {})
    assert not asking.create(name, 1, {})
    assert asking.delete(name)
    assert not asking.delete(name)
    assert lost == ["create_topics", "delete_topics"]
