"""Entities come and go: neither a client that used them nor Redis keeps anything of them."""

from __future__ import annotations

import gc
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from kafkabus._core.entity import Entity
from kafkabus._core.record import as_bytes
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import descriptions_key
from kafkabus._sync.context import ClientContext
from kafkabus._sync.entities import catalog
from kafkabus._sync.kafka import transactional_producer
from kafkabus._sync.receiving import readers
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep import checkpoint_writer
from tests.effort import effort
from tests.integration.embedded.serving import wait_until
from tests.servers import NAMESPACE
from tests.upkeep import tend

ENTITIES = effort(100, 300)
AT_A_TIME = 8


def held() -> tuple[int, int]:
    """Return how many threads this process has, those of Kafka's client among them, and how many files and connections."""
    task, fd = (len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("task", "fd"))
    return task, fd


def test_entities_that_come_and_go_leave_nothing(runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No threads or descriptors are left during use, and no objects and keys afterwards.

    It takes as long as 100 queues.
    """
    monkeypatch.setattr(catalog, "OLD", 0.0)
    server = redis.Redis.from_url(runtime.redis_url)
    run = uuid.uuid4().hex[:8]
    names = [f"leak-{run}-{number}" for number in range(ENTITIES)]
    with (
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        most: list[tuple[int, int]] = []

        def use(name: str) -> None:
            administration.create_queue(name)
            with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
                sender.send_messages(ServiceBusMessage("one"))
                (message,) = receiver.receive_messages(1, max_wait_time=30)
                receiver.complete_message(message)
            # The application forgets this one.
            client.get_queue_receiver(name).peek_messages(1)
            most.append(held())
            administration.delete_queue(name)

        for name in names[:AT_A_TIME]:
            use(name)
        before = held()
        most.clear()
        list(pool.map(use, names[AT_A_TIME:]))
        for peak, start in zip(map(max, zip(*most, strict=True)), before, strict=True):
            # Eight queues are received from at a time, and their readers have messages of each, for a while after that.
            # A hundred would have six hundred.
            assert peak < start + 300
        gc.collect()
        handles = [one for one in gc.get_objects() if isinstance(one, (ServiceBusReceiver, ServiceBusSender))]
        entities = [
            handle.entity_name if isinstance(handle, ServiceBusSender) else str(handle.entity_path)
            for handle in handles
        ]
        # The globals of a program that another test ran may hold others for a while.
        assert [entity for entity in entities if run in entity] == []
        kept = [key for key in server.scan_iter(f"*{run}*") if server.ttl(key) < 0]
        assert kept == []
        fields = [name for name in server.hkeys(descriptions_key(NAMESPACE)) if run in str(name)]
        assert fields == []
        assert sum(isinstance(one, Entity) for one in gc.get_objects()) < 100


def test_transactions_that_are_committed_at_once_share_few_producers(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each producer has its own threads and files, until no transaction needs it any more."""
    monkeypatch.setattr(transactional_producer, "PRODUCERS", 4)
    monkeypatch.setattr(transactional_producer, "IDLE", 0.5)
    name, count = f"at-once-{uuid.uuid4().hex[:8]}", 12
    with (
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        ThreadPoolExecutor(count) as pool,
    ):
        administration.create_queue(name)
        sender = client.get_queue_sender(name)
        together = threading.Barrier(count, timeout=60)

        def commit(number: int) -> None:
            with client.transaction() as transaction:
                sender.send_messages(ServiceBusMessage(str(number)), transaction=transaction)
                together.wait()

        list(pool.map(commit, range(count)))
        producers = sender._context.connections.transactional_producers
        # Kafka shows what was committed a moment later.
        wait_until(
            lambda: administration.get_queue_runtime_properties(name).active_message_count == count, "all are stored"
        )
        wait_until(lambda: len(producers._idle) == 1, "the others rest")
        assert producers._count <= 4
        assert all(one._producer is None for one in producers._resting)
        list(pool.map(commit, range(count)))
        assert producers._count <= 4


def test_clients_that_come_and_go_leave_no_threads(runtime: RunningNamespace) -> None:
    """Neither threads nor connections wait for the garbage collector, which may be long in coming."""
    name = f"clients-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue(name)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for _ in range(3):
            with (
                ServiceBusClient.from_connection_string(runtime.connection_string) as client,
                client.get_queue_sender(name) as sender,
                client.get_queue_receiver(name) as receiver,
            ):
                sender.send_messages(ServiceBusMessage("x"))
                (message,) = receiver.receive_messages(1, max_wait_time=60)
                with client.transaction() as transaction:
                    sender.send_messages(ServiceBusMessage("y"), transaction=transaction)
                    receiver.complete_message(message, transaction=transaction)
                receiver.complete_messages(receiver.receive_messages(1, max_wait_time=60))
            with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
                administration.get_queue(name)
        # Kafka's client ends its threads one after the other.
        wait_until(lambda: all(now <= then + 2 for now, then in zip(held(), before, strict=True)), "all threads end")
    finally:
        gc.enable()


def test_a_client_that_was_never_closed_is_freed(runtime: RunningNamespace) -> None:
    """Its reports do not keep it."""
    name = f"forgotten-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue(name)
        client = ServiceBusClient.from_connection_string(runtime.connection_string)
        client.get_queue_sender(name).send_messages(ServiceBusMessage("x"))
        registry = weakref.ref(client._connections().registry)
        del client
        wait_until(lambda: not gc.collect() or registry() is None, "nothing more is freed")
        assert registry() is None
        administration.delete_queue(name)


def awake(client: ServiceBusClient) -> bool:
    """Return whether any reader of a client has a consumer."""
    return any(one.reader.log.is_awake for one in client._connections().receiving.readers._known.values())


def test_an_idle_reader_lets_its_consumer_go(runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receiver is open, and receives later as before."""
    for constant in ("REST_AFTER", "LOOK_EVERY"):
        monkeypatch.setattr(readers, constant, 0.5)
    names = [f"rest-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with (
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
    ):
        for name, sessions in zip(names, (False, True), strict=True):
            administration.create_queue(name, requires_session=sessions)
            sender = client.get_queue_sender(name)
            receiver = client.get_queue_receiver(name, session_id="s" if sessions else None)
            for body in ("first", "second"):
                sender.send_messages(ServiceBusMessage(body, session_id="s"))
                (message,) = receiver.receive_messages(1, max_wait_time=30)
                assert str(message) == body
                receiver.complete_message(message)
                wait_until(lambda: not awake(client), "all readers rest")
            administration.delete_queue(name)


def test_an_entity_that_was_deleted_leaves_nothing_in_kafka(untended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither checkpoints nor states of its sessions are left. Those of other entities stay."""
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_EVERY", 0.0)
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
        closing(ClientContext(parse_settings(untended))) as context,
    ):
        for name in ("gone", "stays"):
            administration.create_queue(name, requires_session=True)
            client.get_queue_sender(name).send_messages(ServiceBusMessage("one", session_id="a"))
            with client.get_queue_receiver(name, session_id="a") as receiver:
                assert receiver.session is not None
                receiver.session.set_state("known")
            tend(untended, name)

        def left() -> list[str]:
            names = set[str]()
            for compacted_topic in (context.stores.checkpoints._topic, context.stores.session_states._topic):
                last = {as_bytes(record.key()) or b"": record.value() for record in compacted_topic.read()[0]}
                names |= {
                    name for name in ("gone", "stays") for key, value in last.items() if value and name in key.decode()
                }
            return sorted(names)

        assert left() == ["gone", "stays"]
        administration.delete_queue("gone")
        assert left() == ["stays"]
        with client.get_queue_receiver("stays", session_id="a") as receiver:
            assert receiver.session is not None
            assert receiver.session.get_state() == b"known"
