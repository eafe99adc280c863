"""Duplicates on real logs: a Redis that lost everything, plain producers, and upkeep that looks before receivers do."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest
from confluent_kafka import Producer

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions import duplicate_scan
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace
from kafkabus.exceptions import MessageNotFoundError, OperationTimeoutError
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath
from tests.contract.receiving import receive_all
from tests.integration.facade.test_rebuild import empty, wait_for_checkpoint
from tests.kafka_log import KAFKA_LOG
from tests.queues import new_queue

PATIENCE = 20.0
NAMESPACE = "duplicates"
"""A namespace whose Redis may be emptied; see ``own_runtime``."""


def send(client: ServiceBusClient, queue: str, names: str, suffix: str) -> None:
    """Send a message for each letter, with the letter as its id."""
    client.get_queue_sender(queue).send_messages([ServiceBusMessage(f"{one}{suffix}", message_id=one) for one in names])


def all_of(client: ServiceBusClient, queue: str, count: int) -> list[str]:
    """Receive and complete so many messages, and see that no more come; return their bodies."""
    with client.get_queue_receiver(queue) as receiver:
        return [str(message) for message in receive_all(receiver, count, quiet=2.0)]


@pytest.mark.parametrize("checkpoint", [True, False], ids=["written down", "not written down"])
def test_ids_are_known_when_redis_lost_everything(
    own_runtime: EmbeddedRuntime, context: ClientContext, checkpoint: bool
) -> None:
    """Ids of settled messages are known, too. Only messages whose settlement was not written down come again."""
    queue = new_queue(own_runtime.connection_string, requires_duplicate_detection=True)
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        send(client, queue, "abca", "1")
        first = set(all_of(client, queue, 3))
        assert first == {"a1", "b1", "c1"}
        if checkpoint:
            wait_for_checkpoint(
                context, queue, 0, lambda one: one.cursor == 4 and one.duplicates == [(3, 3)] and not one.waiting
            )
        empty(own_runtime)
        send(client, queue, "bd", "2")
        second = all_of(client, queue, 1)
        assert sorted(second) == ["d2"] if checkpoint else set(second) - first == {"d2"}
        assert len(second) == len(set(second))


@pytest.mark.parametrize("partitioned", [True, False])
def test_copies_by_a_plain_producer(runtime: RunningNamespace, partitioned: bool) -> None:
    """The copies may be in any partition."""
    queue = new_queue(runtime.connection_string, requires_duplicate_detection=True, enable_partitioning=partitioned)
    partitions = 16 if partitioned else 1
    right = partition_of("a", partitions)
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        send(client, queue, "a", "1")
        for partition, headers, key in (
            (right, {"sb-message-id": b"a"}, "a"),
            ((right + 1) % partitions, {"sb-message-id": b"a"}, "a"),
            ((right + 2) % partitions, {"sb-message-id": b"b"}, "b"),
            ((right + 3) % partitions, {"sb-message-id": b"b"}, "b"),
            (right, {}, "a"),
            (right, {}, "a"),
        ):
            body = headers["sb-message-id"].decode() if headers else "plain"
            producer.produce(f"tests.{queue}", body, key=key, partition=partition, headers=dict(headers))
        assert producer.flush(30) == 0
        bodies = sorted(all_of(client, queue, 4))
        assert bodies == ["a1", "b", "plain", "plain"]


def test_upkeep_finds_duplicates_that_nobody_reads(own_runtime: EmbeddedRuntime, context: ClientContext) -> None:
    """Expired messages are therefore dead-lettered once."""
    queue = new_queue(
        own_runtime.connection_string,
        requires_duplicate_detection=True,
        default_message_time_to_live=timedelta(seconds=2),
        dead_lettering_on_message_expiration=True,
    )
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        send(client, queue, "aab", "1")
        ledger = context.catalog.entity(EntityPath(queue)).ledgers[0]
        deadline = time.monotonic() + PATIENCE
        while (state := context.ledger_client.states([ledger])[0]) is None or state.dedup_upto != 3:
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        with client.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
            dead: list[str] = []
            while len(dead) < 2:
                messages = receiver.receive_messages(10, max_wait_time=PATIENCE)
                assert messages
                dead += map(str, messages)
            assert sorted(dead) == ["a1", "b1"]
            assert receiver.receive_messages(10, max_wait_time=1) == []


def test_no_duplicate_is_cancelled_while_a_transaction_hides_it(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known to be one; a cancel fails until the transaction is over."""
    queue = new_queue(runtime.connection_string, requires_duplicate_detection=True)
    monkeypatch.setattr(duplicate_scan, "JUDGED_WITHIN", 0.3)
    options = {"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": queue}
    producer = Producer(options, logger=KAFKA_LOG)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(f"tests.{queue}", b"plain", partition=0)
    producer.flush()
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        first, second = [
            sender.schedule_messages(ServiceBusMessage(body, message_id="a"), later)[0] for body in ("a1", "a2")
        ]
        with pytest.raises(OperationTimeoutError, match="a transaction is not over"):
            sender.cancel_scheduled_messages(second)
        producer.commit_transaction()
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(second)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(second + 9)
        sender.cancel_scheduled_messages(first)
