"""``docker/compose.yaml``: Kafka, Redis and two instances of upkeep."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string
from tests.containers.composition import Composition
from tests.ports import free_ports

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

PATIENCE_S = 60
NAMESPACE = "shop"


@pytest.fixture
def composition(kafkabus_image: str, compose_images: None) -> Iterator[Composition]:
    """The file's services, on free ports of the host; its volumes are removed afterwards."""
    kafka, redis = free_ports(2)
    started = Composition(
        f"kafkabus-{uuid.uuid4().hex[:8]}",
        {
            "KAFKABUS_IMAGE": kafkabus_image,
            "KAFKABUS_NAMESPACE": NAMESPACE,
            "KAFKA_PORT": str(kafka),
            "REDIS_PORT": str(redis),
            "REDIS_PASSWORD": secrets.token_hex(16),
        },
    )
    try:
        yield started
    finally:
        started.compose("down", "--volumes", "--timeout", "15")


def connection_string(composition: Composition) -> str:
    """The connection string for clients on the host, as the file's opening comment gives it."""
    given = composition.environment
    return format_connection_string(
        {
            "Endpoint": f"sb://{NAMESPACE}.localhost/",
            "KafkaBootstrapServers": f"localhost:{given['KAFKA_PORT']}",
            "Redis": f"redis://:{given['REDIS_PASSWORD']}@localhost:{given['REDIS_PORT']}/0",
        }
    )


def test_messages_outlast_the_services_and_upkeep_one_of_its_instances(composition: Composition) -> None:
    """Takes half a minute: it starts all services twice."""
    address = connection_string(composition)
    composition.start()
    with ServiceBusAdministrationClient.from_connection_string(address) as administration:
        administration.create_queue("orders", enable_partitioning=True)
    with ServiceBusClient.from_connection_string(address) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("kept"))

    composition.compose("down", "--timeout", "30")
    composition.start()
    composition.compose("kill", "upkeep-1")

    with (
        ServiceBusClient.from_connection_string(address) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        soon = datetime.now(timezone.utc) + timedelta(seconds=1)
        # Sixteen, so that some are of each instance's share.
        sender.schedule_messages([ServiceBusMessage(f"due {number}") for number in range(16)], soon)
        expected = {"kept", *(f"due {number}" for number in range(16))}
        bodies: set[str] = set()
        while bodies != expected:
            received = receiver.receive_messages(20, max_wait_time=PATIENCE_S)
            assert received, f"{bodies} came, and nothing more: {composition.logs()}"
            receiver.complete_messages(received)
            bodies |= {str(message) for message in received}
