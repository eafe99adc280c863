"""A topic is deleted and created again behind the package's back: the same offsets, other messages."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.handles.receiver import ServiceBusReceiver
from kafkabus.cli.connection import receiver_of
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, SubQueue
from tests.kafka_log import KAFKA_LOG
from tests.queues import KINDS, new_source

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def namespace() -> Iterator[EmbeddedRuntime]:
    """A separate namespace, whose upkeep looks as well."""
    with EmbeddedRuntime(namespace="again") as started:
        yield started


@retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(30), wait=wait_fixed(0.1), reraise=True)
def create(admin: AdminClient, topic: str) -> None:
    """Create a topic, as soon as Kafka has done away with the old one."""
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()


def recreate(runtime: EmbeddedRuntime, topic: str) -> None:
    """Delete and create a topic with Kafka's own tools."""
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    admin.delete_topics([topic])[topic].result()
    create(admin, topic)


def receive_until(receiver: ServiceBusReceiver, wanted: set[str]) -> tuple[set[str], list[str]]:
    """Receive and complete until all of these came; return all that came, and the errors that were raised."""
    seen: set[str] = set()
    errors: list[str] = []

    def receive() -> None:
        messages = receiver.receive_messages(100, max_wait_time=PATIENCE_S)
        assert messages, (
            f"{len(wanted - seen)} messages are lost: {sorted(wanted - seen)[:3]} ... of which there are "
            f"{[(str(one), one.sequence_number, one.delivery_count) for one in receiver.peek_messages(20)]}, after {errors}"
        )
        seen.update(str(message) for message in messages)
        receiver.complete_messages(messages)

    while not wanted <= seen:
        try:
            receive()
        except MessagingEntityNotFoundError as error:  # noqa: PERF203  # each may come once
            errors.append(str(error))
    return seen, errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goes_on", [True, False], ids=["a client that goes on", "a new client"])
def test_no_message_of_the_new_topic_is_skipped(
    namespace: EmbeddedRuntime, goes_on: bool, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The new topic's offsets begin below the settled ones of the old topic, and each affected caller gets an error."""
    name = f"orders-{kind}-{int(goes_on)}"
    with (
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as old,
        ServiceBusClient.from_connection_string(namespace.connection_string) as new,
        caplog.at_level(logging.WARNING, "kafkabus"),
    ):
        source = new_source(administration, kind, name, max_delivery_count=7)
        sender, receiver = old.get_queue_sender(name), receiver_of(old, source)
        sender.send_messages([ServiceBusMessage(f"old {number}") for number in range(50)])
        receive_until(receiver, {f"old {number}" for number in range(50)})
        recreate(namespace, f"again.{name}")

        client = old if goes_on else new
        bodies = {f"new {number}" for number in range(70)}
        client.get_queue_sender(name).send_messages([ServiceBusMessage(body) for body in sorted(bodies)])
        seen, errors = receive_until(receiver_of(client, source), bodies)
        assert seen == bodies
        # The first one to find it gets an error, even if it is upkeep; the others go on.
        assert errors or not goes_on or "entity_anew" in caplog.text
        described = client._context.descriptions.get(source) if client._context else None
        assert described is not None
        assert described.max_delivery_count == 7


def test_another_topics_log_is_not_taken_for_a_truncated_one(namespace: EmbeddedRuntime) -> None:
    """A reader may find that its log is shorter than before, earlier than that the topic is another one."""
    with (
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        administration.create_queue("letters")
        client.get_queue_sender("letters").send_messages(ServiceBusMessage("old"))
        receive_until(client.get_queue_receiver("letters"), {"old"})
        context = client._context
        assert context is not None
        entity = context.catalog.entity(EntityPath("letters"))
        recreate(namespace, "again.letters")
        deadline = time.monotonic() + PATIENCE_S
        # The broker may answer with the old topic for a moment after it created the new one.
        while (topic := context.topics.describe("again.letters")) is None or topic.topic_id == entity.topic_id:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(MessagingEntityNotFoundError, match="another one than before"):
            context.maintenance.recovery.recover_from_truncation(entity, 0, None)


def test_a_dead_letter_queues_topic_is_noticed_as_well(namespace: EmbeddedRuntime) -> None:
    """The dead-letter queue goes on with messages that are dead-lettered from now on."""
    with (
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        administration.create_queue("invoices")
        sender, receiver = client.get_queue_sender("invoices"), client.get_queue_receiver("invoices")
        dead = client.get_queue_receiver("invoices", sub_queue=SubQueue.DEAD_LETTER)

        def dead_letter(bodies: set[str]) -> None:
            sender.send_messages([ServiceBusMessage(body) for body in sorted(bodies)])
            left = len(bodies)
            while left:
                messages = receiver.receive_messages(left, max_wait_time=PATIENCE_S)
                assert messages, f"{left} messages are lost before they are dead-lettered"
                for message in messages:
                    receiver.dead_letter_message(message)
                left -= len(messages)

        dead_letter({"old 0", "old 1", "old 2"})
        receive_until(dead, {"old 0", "old 1", "old 2"})
        recreate(namespace, "again.invoices.DLQ")
        dead_letter({f"new {number}" for number in range(5)})
        seen, _ = receive_until(dead, {f"new {number}" for number in range(5)})
        assert len(seen) == 5
