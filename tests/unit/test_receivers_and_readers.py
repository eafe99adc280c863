"""Messages that a reader has in hand when its call ends early, and logs that were truncated behind it; in memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.record import StoredRecord, place_of
from kafkabus._core.settings import Settings, parse_settings
from kafkabus._kafka.client_factory import open_consumer
from kafkabus._kafka.client_options import Options
from kafkabus._sync.compat import Pool
from kafkabus._sync.context import ClientContext
from kafkabus._sync.kafka import offset_reader
from kafkabus._sync.kafka.offset_reader import LogTruncatedError, OffsetReader, UnfinishedReadError
from kafkabus._sync.receiving.log_reader import SLOW_POLL
from kafkabus._sync.receiving.undelivered import UndeliveredGrants
from kafkabus.exceptions import SessionLockLostError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.names import EntityPath

PATIENCE = 60.0


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace in memory, without upkeep, with a queue, and one with sessions."""
    with InMemoryNamespace(upkeep=False) as opened:
        with ServiceBusAdministrationClient.from_connection_string(opened.connection_string) as administration:
            administration.create_queue("plain")
            administration.create_queue("sessions", requires_session=True)
        yield opened


@pytest.fixture
def client(namespace: InMemoryNamespace) -> Iterator[ServiceBusClient]:
    """A client of it."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as opened:
        yield opened


@pytest.fixture
def entity(client: ServiceBusClient) -> Entity:
    """The plain queue, as the client knows it."""
    return client._connections().catalog.entity(EntityPath("plain"))


def settled(entity: Entity, *offsets: int) -> Grant:
    """Return messages that receive and delete has settled."""
    records = [StoredRecord((entity.topic, 0, offset), (None, b"x", []), (1, 0)) for offset in offsets]
    return Grant(entity.delivery(0, "", 0, 0), list(records))


def undelivered_of(context: ClientContext, entity: Entity) -> UndeliveredGrants:
    """Return an empty store of undelivered messages."""
    return UndeliveredGrants(context.connections, lambda: entity)


def offsets(grants: list[Grant]) -> list[int]:
    """Return the offsets of messages, in their order."""
    return [place_of(record)[2] for grant in grants for record in grant.records]


def test_settled_messages_come_in_order_and_in_part(client: ServiceBusClient, entity: Entity) -> None:
    """The rest waits for the next call, and so do messages that are not wanted."""
    store = undelivered_of(client._connections(), entity)
    store.put_back([settled(entity, 4, 5), settled(entity, 8)])
    store.put_back([settled(entity, 1, 2)])
    assert offsets(store.take(3)) == [1, 2, 4]
    assert offsets(store.take(9, lambda grant: grant.records[0].offset() == 8)) == [8]
    assert offsets(store.take(9)) == [5]
    assert store.take(9) == []


def test_settled_messages_outlive_their_reader(
    client: ServiceBusClient, entity: Entity, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader of the next ledgers hands them out, also those that a running call puts back after it was replaced."""
    old, new = (undelivered_of(client._connections(), entity) for _ in range(2))
    old.put_back([settled(entity, 1)])
    old.hand_over(new)
    old.put_back([settled(entity, 2)])
    old.report_lost()
    assert "lost_by_receive_and_delete" not in caplog.text
    assert offsets(new.take(9)) == [1, 2]


def test_settled_messages_of_a_closed_reader_are_reported_once(
    client: ServiceBusClient, entity: Entity, caplog: pytest.LogCaptureFixture
) -> None:
    """No call hands them out any more."""
    store = undelivered_of(client._connections(), entity)
    store.put_back([settled(entity, 3, 4)])
    store.report_lost()
    store.report_lost()
    assert caplog.text.count("lost_by_receive_and_delete") == 1
    assert "offsets=[(3, 4)]" in caplog.text


def test_no_settled_message_is_lost_among_threads(client: ServiceBusClient, entity: Entity) -> None:
    """Threads that take and put back at once get each message once."""
    store, count, threads = undelivered_of(client._connections(), entity), 400, 4
    barrier = threading.Barrier(2 * threads)

    def put(first: int) -> list[Grant]:
        barrier.wait(PATIENCE)
        for offset in range(first, count, threads):
            store.put_back([settled(entity, offset)])
        return []

    def take(number: int) -> list[Grant]:
        barrier.wait(PATIENCE)
        return [
            grant
            for _ in range(count)
            for grant in store.take(1, lambda one: (one.records[0].offset() or 0) % threads == number)
        ]

    with ThreadPoolExecutor(2 * threads) as pool:
        works = [pool.submit(put, number) for number in range(threads)]
        works += [pool.submit(take, number) for number in range(threads)]
        taken = [offset for work in works for offset in offsets(work.result(PATIENCE))]
    assert sorted([*taken, *offsets(store.take(count))]) == list(range(count))


def test_a_read_without_the_turn_changes_no_plan(client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deferred message that cannot be read makes its log suspect, and the next turn looks; the buffer stays till then."""
    client.get_queue_sender("plain").send_messages([ServiceBusMessage(str(number)) for number in range(9)])
    receiver = client.get_queue_receiver("plain")
    (first,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    receiver.defer_message(first)
    context = client._connections()
    log = context.receiving.readers.reader_of(context.catalog.entity(EntityPath("plain"))).log
    (view,) = [one for one in log.plan.views if one.state.is_read]
    log.read_on(8, PATIENCE)
    before = view.buffer_length

    def fail(*_: object, **__: object) -> None:
        raise LogTruncatedError("the log ends before")

    with monkeypatch.context() as patch:
        patch.setattr(OffsetReader, "read", fail)
        with pytest.raises(LogTruncatedError):
            receiver.receive_deferred_messages([first.sequence_number or 0])
    assert (view.buffer_length, log.is_verified(view.partition)) == (before, False)
    received: list[str] = []
    while len(received) < 8:
        received += map(str, receiver.receive_messages(8, max_wait_time=PATIENCE))
    assert received == [str(number) for number in range(1, 9)]
    assert log.is_verified(view.partition)


def test_a_session_whose_log_was_truncated_is_lost(namespace: InMemoryNamespace, client: ServiceBusClient) -> None:
    """Its receiver finds out by itself; a receiver of the session then gets the messages that there are."""
    sender = client.get_queue_sender("sessions")
    sender.send_messages([ServiceBusMessage(str(number), session_id="s") for number in range(3)])
    with ServiceBusClient.from_connection_string(namespace.connection_string) as other:
        # It files all three; closed, it gives them back.
        with other.get_queue_receiver(
            "sessions", session_id="s", receive_mode=ServiceBusReceiveMode.PEEK_LOCK
        ) as filing:
            assert len(filing.receive_messages(3, max_wait_time=PATIENCE)) == 3
    with client.get_queue_receiver("sessions", session_id="s") as receiver:
        assert receiver.session is not None
        receiver.session.get_state()
        (log,) = (log for log in namespace._cluster.topics["memory.sessions"].logs if log.records)
        with namespace._cluster.grown:
            del log.records[1:]
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(3, max_wait_time=PATIENCE)
    with client.get_queue_receiver("sessions", session_id="s") as receiver:
        assert [str(message) for message in receiver.receive_messages(3, max_wait_time=PATIENCE)] == ["0"]


def test_a_consumer_that_does_not_answer_is_replaced(
    namespace: InMemoryNamespace, client: ServiceBusClient, entity: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client may wait for ever for a partition that has another leader, while another client reads it."""
    with client.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage("one"))
    settings = parse_settings(namespace.connection_string)
    reader = OffsetReader(settings, Pool("reader"))
    opened: list[Consumer] = []

    def hear_nothing(_timeout: float) -> None:
        return None

    def open_deaf(settings: Settings, options: Options) -> Consumer:
        consumer = open_consumer(settings, options)
        if not opened:
            monkeypatch.setattr(consumer, "poll", hear_nothing)
        opened.append(consumer)
        return consumer

    monkeypatch.setattr(offset_reader, "open_consumer", open_deaf)
    with pytest.raises(UnfinishedReadError):
        reader.read(entity.topic, 0, 0, 0, timeout=0.01)
    (record,) = reader.read(entity.topic, 0, 0, 0)
    assert record.value() == b"one"
    assert len(opened) == 2
    reader.close()


def test_other_clients_know_at_once_that_a_client_was_closed(
    namespace: InMemoryNamespace, client: ServiceBusClient
) -> None:
    """They need not wait for six seconds before they read its home partitions."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as other:
        entity = other._connections().catalog.entity(EntityPath("plain"))
        with client.get_queue_receiver("plain") as receiver:
            receiver.receive_messages(max_wait_time=0.1)
        notifications = other._connections().connections.notifications
        assert len(notifications.meet(entity)) == 2
        client.close()
        assert len(notifications.meet(entity)) == 1


def test_a_reader_by_offset_that_is_not_used_fetches_nothing(
    namespace: InMemoryNamespace, client: ServiceBusClient, entity: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four consumers that each have a partition ask the brokers forty times a second. It reads afterwards as before."""
    with client.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage("one"))
    rested = threading.Event()

    def open_watched(settings: Settings, options: Options) -> Consumer:
        consumer = open_consumer(settings, options)
        unassign = consumer.unassign

        def rest() -> None:
            unassign()
            rested.set()

        monkeypatch.setattr(consumer, "unassign", rest)
        return consumer

    monkeypatch.setattr(offset_reader, "open_consumer", open_watched)
    monkeypatch.setattr(offset_reader, "REST_AFTER", 0.01)
    with closing(OffsetReader(parse_settings(namespace.connection_string), Pool("reader"))) as reader:
        for _ in range(2):
            (record,) = reader.read(entity.topic, 0, 0, 0)
            assert record.value() == b"one"
            assert rested.wait(PATIENCE)
            rested.clear()


def test_a_reader_that_is_woken_leaves_other_clients_partitions_to_them() -> None:
    """While nothing happens it reads them, too; of a burst each client would fetch everything."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        administration.create_queue("shared", enable_partitioning=True)
        with client.get_queue_receiver("shared") as receiver:
            assert receiver.receive_messages(500, max_wait_time=0.1) == []
            assert client._context is not None
            log = client._context.receiving.readers._known["shared"].reader.log
            log.plan.small_batches, log._pace.was_active, log._pace.slow_poll_every = True, False, 2 * SLOW_POLL
            log._pace.next_slow_poll = math.inf
            log.maintain(idle=True)
            assert log.plan.small_batches, "nothing happened"
            log._pace.was_active = True  # as after a record
            log.maintain(idle=False)
            assert not log.plan.small_batches
