"""A Kafka with passwords and ACLs: a refused client gets an error at once that names the operation and the topic."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
from kafkabus.management import ServiceBusAdministrationClient
from tests.kafka_log import KAFKA_LOG
from tests.kafka_server import PASSWORD, USER, Guarded, allow_everything, guarded
from tests.servers import scratch_folder

WITHIN = 10.0
PATIENCE = 30.0


@pytest.fixture(scope="module")
def kafka(runtime: RunningNamespace) -> Iterator[Guarded]:
    """A Kafka of the module's own; the run's servers have fetched its jars."""
    assert runtime.bootstrap_servers
    folder = scratch_folder()
    try:
        with guarded(folder) as serving:
            yield serving
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def admin(kafka: Guarded) -> AdminClient:
    """A Kafka client that grants rights; the user has all of them at first."""
    client = AdminClient({"bootstrap.servers": kafka.open}, logger=KAFKA_LOG)
    allow_everything(client)
    return client


def add(
    client: AdminClient, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> None:
    """Allow or deny the user an operation."""
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission)
    client.create_acls([rule])[rule].result()


def deny(client: AdminClient, topic: str, operation: AclOperation) -> None:
    """Deny the user an operation on a topic."""
    add(client, ResourceType.TOPIC, topic, operation, AclPermissionType.DENY)


def connection_of(untended: str, runtime: RunningNamespace, kafka: Guarded, password: str = PASSWORD) -> str:
    """Return the user's connection string for a namespace in that Kafka."""
    return untended.replace(
        f"KafkaBootstrapServers={runtime.bootstrap_servers}",
        f"KafkaBootstrapServers={kafka.sasl};KafkaSecurityProtocol=SASL_PLAINTEXT;KafkaSaslMechanism=PLAIN;"
        f"KafkaSaslUsername={USER};KafkaSaslPassword={password}",
    )


def test_a_wrong_password_is_said_at_once(untended: str, runtime: RunningNamespace, kafka: Guarded) -> None:
    """The first call says so, whichever it is, without the password."""
    began = time.monotonic()
    with ServiceBusAdministrationClient.from_connection_string(
        connection_of(untended, runtime, kafka, "guessed")
    ) as administration:
        with pytest.raises(ServiceBusAuthenticationError, match="refuses the credentials") as caught:
            administration.create_queue("orders")
    assert kafka.sasl in str(caught.value)
    assert "guessed" not in str(caught.value)
    assert time.monotonic() - began < WITHIN


def test_a_missing_right_names_the_topic(
    untended: str, runtime: RunningNamespace, kafka: Guarded, admin: AdminClient
) -> None:
    """Rights are needed to send, also in a transaction, to receive, and to create.

    The test waits for ACLs to take effect.
    """
    connection = connection_of(untended, runtime, kafka)
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        topic = administration.create_queue("orders").name
        namespace = administration.fully_qualified_namespace.partition(".")[0]
        topic = f"{namespace}.{topic}"
        with ServiceBusClient.from_connection_string(connection) as client:
            sender = client.get_queue_sender("orders")
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])

        def send() -> None:
            with ServiceBusClient.from_connection_string(connection) as client:
                client.get_queue_sender("orders").send_messages(ServiceBusMessage("more"))

        def send_in_a_transaction() -> None:
            with ServiceBusClient.from_connection_string(connection) as client, client.transaction() as transaction:
                client.get_queue_sender("orders").send_messages(ServiceBusMessage("more"), transaction=transaction)

        def receive() -> None:
            with ServiceBusClient.from_connection_string(connection) as client:
                client.get_queue_receiver("orders").receive_messages(1, max_wait_time=PATIENCE)

        def create() -> None:
            with suppress(MessagingEntityNotFoundError):
                administration.delete_queue("invoices")
            administration.create_queue("invoices")

        deny(admin, topic, AclOperation.WRITE)
        refused(send, f"write to topic '{topic}'")
        refused(send_in_a_transaction, f"write to topic '{topic}'")
        deny(admin, topic, AclOperation.READ)
        refused(receive, f"read topic '{topic}'")
        # If the user may create any topic, rights for each topic are not needed.
        add(admin, ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE, AclPermissionType.DENY)
        deny(admin, f"{namespace}.invoices", AclOperation.CREATE)
        refused(create, f"create topic '{namespace}.invoices'")
        deny(admin, topic, AclOperation.DESCRIBE)
        refused(receive, f"'{topic}'")


def refused(act: Callable[[], object], action: str) -> None:
    """Try a call until the broker refuses it; the last attempt fails at once, and its error names the cause."""
    deadline = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        try:
            act()
        except ServiceBusAuthorizationError as error:
            assert action in str(error)  # noqa: PT017 - the others are waited for
            assert "within 60 s" not in str(error)  # noqa: PT017
            assert time.monotonic() - began < WITHIN
            return
        assert time.monotonic() < deadline, f"{action} is allowed"
