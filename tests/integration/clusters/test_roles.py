"""The rights of docs/how-to/secure.md: with these and no others, each user does its work, and not that of another."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from redis.exceptions import NoPermissionError

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.exceptions import ServiceBusAuthorizationError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string
from tests.kafka_log import KAFKA_LOG
from tests.kafka_server import PASSWORD, USER, Guarded
from tests.redis_server import serving
from tests.servers import scratch_folder
from tests.upkeep import upkeep

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "secure.md"
ROLES = ("administrator", "sender", "receiver", "upkeep")
NAMESPACE, QUEUE = "shop", "orders"
"""The names on the page; the tests put others into the lines."""
PATIENCE = 60.0


def lines_of(namespace: str, role: str, user: str, queue: str) -> tuple[list[AclBinding], list[str]]:
    """Return the rights of a role on the page, for a user, a namespace and a queue: in Kafka, and the command for Redis."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    own = [
        re.sub(rf"(?<=[ :{{.]){NAMESPACE}(?=[./}}])", namespace, line).replace(f"User:{role}", f"User:{user}")
        for line in lines
        if f"User:{role} " in line
    ]
    (command,) = [line for line in lines if line.startswith(f"ACL SETUSER {role} ")]
    words = re.sub(rf"(?<=[{{:]){NAMESPACE}(?=[/}}])", namespace, command).replace(">password", f">{PASSWORD}").split()
    rules = [re.sub(rf"(?<=/){QUEUE}", queue, word) for word in words[3:]]
    return [binding for line in own for binding in _bindings(line.replace(f".{QUEUE}", f".{queue}"))], [user, *rules]


def _bindings(line: str) -> list[AclBinding]:
    """Return the rights that a line for ``kafka-acls.sh --add`` grants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", default="literal", choices=["literal", "prefixed"])
    kinds = {kind: parser.add_argument(f"--{kind}", action="append", default=[]) for kind in ("topic", "group")}
    kinds["transactional_id"] = parser.add_argument("--transactional-id", action="append", default=[])
    told = parser.parse_args(shlex.split(line))
    return [
        AclBinding(
            ResourceType[kind.upper()],
            name,
            ResourcePatternType[told.resource_pattern_type.upper()],
            told.allow_principal,
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for kind in kinds
        for name in getattr(told, kind)
        for operation in told.operation
    ]


@dataclass
class Shop:
    """A namespace whose users have the rights of the page.

    Attributes:
        namespace: Its name.
        kafka: The broker's listener with passwords.
        redis_port: The port of Redis.
        admin: A client that may do everything.
    """

    namespace: str
    kafka: str
    redis_port: int
    admin: AdminClient

    def string(self, user: str) -> str:
        """Return the connection string of a user."""
        return format_connection_string(
            {
                "Endpoint": f"sb://{self.namespace}.example/",
                "KafkaBootstrapServers": self.kafka,
                "KafkaSecurityProtocol": "SASL_PLAINTEXT",
                "KafkaSaslMechanism": "PLAIN",
                "KafkaSaslUsername": user,
                "KafkaSaslPassword": PASSWORD,
                "Redis": f"redis://{user}:{PASSWORD}@{HOST}:{self.redis_port}/0",
            }
        )

    def grant(self, role: str, user: str, queue: str = QUEUE) -> None:
        """Give a user the rights of a role; the broker has them when this returns."""
        bindings, command = lines_of(self.namespace, role, user, queue)
        for added in self.admin.create_acls(bindings).values():
            added.result()
        with redis.Redis(HOST, self.redis_port) as server:
            server.execute_command("ACL SETUSER", *command)

    def administration(self, user: str = "administrator") -> ServiceBusAdministrationClient:
        """Return an administration client of a user."""
        return ServiceBusAdministrationClient.from_connection_string(self.string(user))

    def client(self, user: str) -> ServiceBusClient:
        """Return a client of a user."""
        return ServiceBusClient.from_connection_string(self.string(user))


@pytest.fixture(scope="module")
def servers(kafka: Guarded) -> Iterator[tuple[str, int, AdminClient]]:
    """A Kafka, and a Redis of the module's own, whose users have no rights yet."""
    folder = scratch_folder()
    try:
        with serving(find_redis(), folder / "redis") as port:
            yield kafka.sasl, port, AdminClient({"bootstrap.servers": kafka.open}, logger=KAFKA_LOG)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shop(servers: tuple[str, int, AdminClient]) -> Shop:
    """A namespace with a queue."""
    made = Shop(f"s-{uuid.uuid4().hex[:6]}", *servers)
    for role in ROLES:
        made.grant(role, role)
    with made.administration() as administration:
        administration.create_queue(QUEUE, enable_partitioning=True, max_delivery_count=2)
    return made


def refused(work: Callable[[], object]) -> None:
    """Check that Kafka or Redis refuses some work at once."""
    began = time.monotonic()
    with pytest.raises(ServiceBusAuthorizationError):
        work()
    assert time.monotonic() - began < PATIENCE / 2


def test_an_administrator_creates_changes_counts_and_deletes(shop: Shop) -> None:
    """Queues and topics, with subscriptions and rules. It does no other's work: no messages come to it, and none leave."""
    with shop.administration() as administration:
        administration.create_queue("invoices", requires_session=True)
        administration.update_queue(administration.get_queue("invoices"), max_delivery_count=3)
        administration.create_topic("news")
        administration.create_subscription("news", "all")
        administration.create_rule("news", "all", "more")
        assert [one.name for one in administration.list_queues()] == ["invoices", QUEUE]
        assert administration.get_queue_runtime_properties("invoices").total_message_count == 0
        administration.delete_topic("news")
        administration.delete_queue("invoices")


def test_a_sender_sends(shop: Shop) -> None:
    """Plain messages, in a transaction, with times to live, scheduled, and cancelled. It neither receives nor administers."""
    with shop.client("sender") as client:
        sender = client.get_queue_sender(QUEUE)
        sender.send_messages([ServiceBusMessage("one", partition_key="a"), ServiceBusMessage("two")])
        sender.send_messages(ServiceBusMessage("three", time_to_live=timedelta(hours=1)))
        (number,) = sender.schedule_messages(
            ServiceBusMessage("never"), datetime.now(timezone.utc) + timedelta(hours=1)
        )
        sender.cancel_scheduled_messages(number)
        with client.transaction() as transaction:
            sender.send_messages(ServiceBusMessage("four", partition_key="a"), transaction=transaction)
        refused(lambda: client.get_queue_receiver(QUEUE).receive_messages(1, max_wait_time=10))
    with shop.administration("sender") as administration:
        refused(lambda: administration.create_queue("mine"))


def test_a_receiver_receives_and_settles(shop: Shop) -> None:
    """All ways to settle, dead letters, and a Redis that was emptied. It neither sends nor administers."""
    with shop.client("sender") as client:
        client.get_queue_sender(QUEUE).send_messages([ServiceBusMessage(str(number)) for number in range(6)])
    with shop.client("receiver") as client:
        receiver = client.get_queue_receiver(QUEUE)
        messages = receiver.receive_messages(4, max_wait_time=PATIENCE)
        while len(messages) < 4:
            messages += receiver.receive_messages(4 - len(messages), max_wait_time=PATIENCE)
        receiver.complete_message(messages[0])
        receiver.abandon_message(messages[1], delay=0.1)
        receiver.dead_letter_message(messages[2], reason="broken")
        receiver.defer_message(messages[3])
        assert receiver.peek_messages(1)
        (deferred,) = receiver.receive_deferred_messages(messages[3].sequence_number)
        receiver.renew_message_lock(deferred)
        with client.transaction() as transaction:
            receiver.complete_message(deferred, transaction=transaction)
        dead = client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        (letter,) = dead.receive_messages(1, max_wait_time=PATIENCE)
        dead.complete_message(letter)
        (last,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        receiver.abandon_message(last, delay=3600)
        with redis.Redis(HOST, shop.redis_port) as server:
            server.flushall()
        assert receiver.receive_messages(1, max_wait_time=PATIENCE)
        refused(lambda: client.get_queue_sender(QUEUE).send_messages(ServiceBusMessage("mine")))
    with shop.administration("receiver") as administration:
        refused(lambda: administration.create_queue("mine"))


def test_upkeep_does_what_no_client_waits_for(shop: Shop) -> None:
    """It forwards, activates, dead-letters what expired, writes checkpoints, and deletes settled records."""
    with shop.administration() as administration:
        administration.create_queue("late", dead_lettering_on_message_expiration=True, settled_retention=timedelta())
        administration.create_queue("first", forward_to="late")
    with upkeep(shop.string("upkeep")), shop.administration() as administration:
        shop.grant("sender", USER, "first")
        with shop.client(USER) as client:
            sender = client.get_queue_sender("first")
            sender.send_messages(ServiceBusMessage("gone", time_to_live=timedelta(seconds=1)))
            due = datetime.now(timezone.utc) + timedelta(seconds=1)
            sender.schedule_messages(ServiceBusMessage("due"), due)
        deadline = time.monotonic() + PATIENCE
        while True:
            counts = administration.get_queue_runtime_properties("late")
            if (counts.active_message_count, counts.dead_letter_message_count) == (1, 1):
                return
            assert time.monotonic() < deadline, counts
            time.sleep(0.1)


def test_another_tenant_reaches_nothing(shop: Shop, servers: tuple[str, int, AdminClient]) -> None:
    """The user of a namespace has all rights that the page names there; in the other namespace it has none."""
    own = Shop(f"t-{uuid.uuid4().hex[:6]}", *servers)
    for role in ROLES:
        own.grant(role, "stranger")
    with own.administration("stranger") as administration:
        administration.create_queue(QUEUE)
    theirs = Shop(shop.namespace, *servers)
    with theirs.client("stranger") as client, theirs.administration("stranger") as administration:
        for work in (
            lambda: client.get_queue_sender(QUEUE).send_messages(ServiceBusMessage("mine")),
            lambda: client.get_queue_receiver(QUEUE).receive_messages(1, max_wait_time=10),
            lambda: administration.get_queue(QUEUE),
            lambda: administration.create_queue("mine"),
        ):
            refused(work)
    with redis.Redis(HOST, servers[1], username="stranger", password=PASSWORD) as server:
        for command in (
            ("HGETALL", f"{{{shop.namespace}}}:descriptions"),
            ("EVAL", "return redis.call('DEL', KEYS[1])", 1, f"{{{shop.namespace}}}:descriptions"),
            ("PUBLISH", f"kafkabus:{shop.namespace}/$upkeep", "*"),
            ("SUBSCRIBE", f"kafkabus:{shop.namespace}/{QUEUE}"),
            ("SCAN", 0),
        ):
            with pytest.raises(NoPermissionError):
                server.execute_command(*command)
