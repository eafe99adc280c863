"""Copies of messages that their destinations do not accept: they are named, and keep no other message from being moved."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._core.message import receipt_of
from kafkabus._core.record import Record
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions.transfer import ORPHAN_AGE, EntityLog, Intent
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import OperationTimeoutError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.names import EntityPath, topic_name
from tests.clock import advance
from tests.contract.receiving import receive_all
from tests.kafka_log import KAFKA_LOG
from tests.queues import new_queue

LIMIT, LARGE = 20_000, 50_000


def limit(runtime: RunningNamespace, topic: str, size: int) -> None:
    """Set the size of the largest batch of records that a topic accepts, and wait until it counts."""
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
    deadline = time.monotonic() + 30
    while True:
        asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
        if next(iter(asked.values())).result(30)["max.message.bytes"].value == str(size):
            return
        assert time.monotonic() < deadline


def by_lease(messages: Sequence[ServiceBusReceivedMessage]) -> dict[str, list[Record]]:
    """Return the records of messages by their leases."""
    records: dict[str, list[Record]] = {}
    for message in messages:
        records.setdefault(receipt_of(message).delivery.lease, []).append(receipt_of(message).record)
    return records


def ignore(*_: object) -> None:
    """Take no notice of a delivery report."""


def test_a_copy_that_its_topic_refuses_is_named_and_blocks_no_other(
    untended: str, runtime: RunningNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka refuses the batch that has it; the others are moved at once. It is once the topic accepts it."""
    settings = parse_settings(untended)
    queue = new_queue(untended, enable_partitioning=False)
    topic = topic_name(settings.namespace, EntityPath(queue).dead_letter)
    with (
        ServiceBusClient.from_connection_string(untended) as client,
        closing(ClientContext(settings)) as context,
        caplog.at_level(logging.WARNING, logger="kafkabus.transfer"),
    ):
        entity = context.catalog.entity(EntityPath(queue))
        context.catalog.entity(EntityPath(queue).dead_letter)
        limit(runtime, topic, LIMIT)
        client.get_queue_sender(queue).send_messages(
            [ServiceBusMessage("a" * 9_000), ServiceBusMessage("b" * LARGE), ServiceBusMessage("c" * 9_000)]
        )
        messages = receive_all(client.get_queue_receiver(queue), 3, settle=False)
        with pytest.raises(OperationTimeoutError, match=f"{topic} does not accept copies of that size: raise its max"):
            context.transfers.dead_letter(entity, 0, by_lease(messages), reason="bad", description=None)
        dead_letters = client.get_queue_receiver(queue, sub_queue="deadletter")
        assert [str(dead)[0] for dead in receive_all(dead_letters, 2)] == ["a", "c"]
        for _ in range(2):
            advance(runtime.redis_url, settings.namespace, queue, ORPHAN_AGE + 1)
            context.transfers.finish(entity, 0)
        (figures,) = context.ledger_client.figures(entity.ledgers)
        assert figures is not None
        ((offset, size),) = figures.refused
        assert (offset, figures.moving) == (receipt_of(messages[1]).offset, 1)
        assert LARGE < size < LARGE + 1_000
        (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        number = messages[1].sequence_number
        assert f"entity={queue} partition=0 sequence_number={number} bytes={size} topic={topic}" in warning.getMessage()
        limit(runtime, topic, size)
        advance(runtime.redis_url, settings.namespace, queue, ORPHAN_AGE + 1)
        context.transfers.finish(entity, 0)
        (dead,) = receive_all(dead_letters, 1)
        assert str(dead) == "b" * LARGE
        assert context.ledger_client.figures(entity.ledgers)[0].refused == ()  # type: ignore[union-attr]  # it is there


def test_a_destination_that_fails_keeps_no_other_from_being_finished() -> None:
    """Two transfers are late; a transaction that is not over may hide the copy of the first one."""
    with (
        InMemoryNamespace(upkeep=False) as here,
        ServiceBusClient.from_connection_string(here.connection_string) as client,
        ServiceBusAdministrationClient.from_connection_string(here.connection_string) as administration,
        closing(ClientContext(parse_settings(here.connection_string))) as context,
    ):
        for name in ("orders", "there"):
            administration.create_queue(name, enable_partitioning=False)
        client.get_queue_sender("orders").send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
        entity, destination = (context.catalog.entity(EntityPath(name)) for name in ("orders", "there"))
        source, messages = EntityLog(entity, 0), receive_all(client.get_queue_receiver("orders"), 2, settle=False)
        elsewhere = Intent(0, path="there", partition=0, topic_id=destination.topic_id)
        for message, intent in zip(messages, (elsewhere, Intent(0, "bad")), strict=True):
            context.transfers.begin(source, by_lease([message]), intent)
        producer = here.producer("open")
        producer.begin_transaction()
        producer.produce(destination.topic, b"", None, 0, ignore)
        here.advance(ORPHAN_AGE + 1)
        context.transfers.finish(entity, 0)
        (dead,) = receive_all(client.get_queue_receiver("orders", sub_queue="deadletter"), 1)
        assert str(dead) == "second"
        assert context.ledger_client.figures(entity.ledgers)[0].moving == 1  # type: ignore[union-attr]  # it is there
        producer.abort_transaction()
        here.advance(ORPHAN_AGE + 1)
        context.transfers.finish(entity, 0)
        (forwarded,) = receive_all(client.get_queue_receiver("there"), 1)
        assert str(forwarded) == "first"
