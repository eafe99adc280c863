"""``kafkabus doctor`` names faults that were planted in real servers, each by the check that is for it, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.message import receipt_of
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.keys import rights_of, upkeep_key
from kafkabus._ledger.operations import AdoptTransfers, BeginTransfer, NoteRefusal, Operation, Prepare
from kafkabus._sync.context import ClientContext
from kafkabus.doctor import CHECKS, Finding, LookLimits, State, gather, judge
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, topic_name
from tests.clock import advance, step
from tests.kafka_log import KAFKA_LOG
from tests.kafka_server import PASSWORD, USER, Guarded, guarded
from tests.processes import run_command
from tests.redis_server import serving
from tests.servers import scratch_folder
from tests.upkeep import upkeep

PATIENCE = 120.0
NOWHERE = f"{HOST}:1"
"""An address at which no server listens."""
LIMITS = LookLimits(step_s=30.0, transaction_s=0.2)
"""Limits for a machine that may stall, and for a Kafka transaction that was left open a moment ago."""


def look(connection: str, limits: LookLimits = LIMITS, clock: Callable[[], float] = time.time) -> dict[str, Finding]:
    """Return what each check finds."""
    facts = gather(parse_settings(connection), limits, clock=clock)
    return {check.name: judge(check, facts) for check in CHECKS}


def not_ok(findings: Mapping[str, Finding], beginning: str = "") -> dict[str, State]:
    """Return the states of the checks that did not end well, and that do not only depend on others."""
    return {
        name: one.state
        for name, one in findings.items()
        if one.state not in {State.OK, State.NOT_CHECKED} and name.startswith(beginning)
    }


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait for a condition, and fail when it does not come true in time."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def with_kafka(connection: str, servers: str) -> str:
    """Return a connection string with another Kafka, ``host:port[;Part=value…]``."""
    return re.sub(r"KafkaBootstrapServers=[^;]*", f"KafkaBootstrapServers={servers}", connection)


def with_redis(connection: str, url: str) -> str:
    """Return a connection string with another Redis."""
    return re.sub(r"Redis=[^;]*", f"Redis={url}", connection)


def run(connection: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    environment = {**os.environ, "KAFKABUS_CONNECTION_STRING": connection}
    folder.mkdir()
    return run_command(["doctor", *arguments], environment, "", folder, PATIENCE)


# A healthy namespace.


def contents(runtime: RunningNamespace, connection: str) -> dict[str, object]:
    """Return what a namespace has: topics, settings, logs, entities, counts and keys."""
    settings = parse_settings(connection)
    topics = Topics(settings)
    names = sorted(name for name in topics.names() if name.startswith(f"{settings.namespace}."))
    described = topics.describe_all(names)
    with (
        redis.Redis.from_url(runtime.redis_url, protocol=2) as server,
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
    ):
        keys = {key for key in server.scan_iter(match=f"{{{settings.namespace}*", count=1000) if b":slot:" not in key}
        queue = administration.get_queue_runtime_properties("orders")
        return {
            "topics": described,
            "ends": topics.ends_of({name: one.partitions for name, one in described.items()}),
            "queues": list(administration.list_queues()),
            "subscriptions": list(administration.list_subscriptions("news")),
            "counts": (queue.active_message_count, queue.dead_letter_message_count, queue.scheduled_message_count),
            "keys": keys,
        }


@pytest.mark.timeout(300)
def test_a_healthy_namespace_is_all_green_and_stays_as_it_is(
    runtime: RunningNamespace, untended: str, tmp_path: Path
) -> None:
    """The exit status is 0, also with --strict. Topics, descriptions, counts and keys are what they were.

    Upkeep has to have written all down first, which takes some seconds. It ends before the comparison, as it goes on writing.
    """
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        administration.create_queue("orders", requires_duplicate_detection=True)
        administration.create_topic("news")
        administration.create_subscription("news", "all")
        client.get_topic_sender("news").send_messages(ServiceBusMessage("one"))
        client.get_queue_sender("orders").send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        with client.get_queue_receiver("orders") as receiver:
            receiver.complete_message(receiver.receive_messages(1, max_wait_time=PATIENCE)[0])
    with upkeep(untended):
        wait_until(lambda: not not_ok(look(untended)), "all is green")
    with redis.Redis.from_url(runtime.redis_url) as server:
        server.zadd(upkeep_key(parse_settings(untended).namespace), {"instance": (time.time() + PATIENCE) * 1000})
    before = contents(runtime, untended)
    done = run(untended, tmp_path / "run", "--strict", "--json", "--timeout", "60")
    after = contents(runtime, untended)
    report = json.loads(done.stdout)
    assert {one["check"]: one["state"] for one in report["checks"]} == {check.name: "ok" for check in CHECKS}
    assert {one["remedy"] for one in report["checks"]} == {""}
    assert done.returncode == 0
    assert after == before


# Servers that are not there, or speak something else.

UNREACHABLE: Mapping[str, tuple[Callable[[str], str], str, str]] = {
    "Kafka at a closed port": (lambda one: with_kafka(one, NOWHERE), "kafka-address", r"127\.0\.0\.1:1: .*refused"),
    "Kafka at an unknown host": (
        lambda one: with_kafka(one, "nohost.invalid:9092"),
        "kafka-address",
        "the name 'nohost.invalid' is not known",
    ),
    "Redis at a closed port": (lambda one: with_redis(one, f"redis://{NOWHERE}/0"), "redis-address", "refused"),
    "TLS to a plaintext Kafka": (
        lambda one: one.replace(";Redis=", ";KafkaSecurityProtocol=SSL;Redis="),
        "kafka-tls",
        "does not answer in TLS",
    ),
    "TLS to a plaintext Redis": (
        lambda one: one.replace("Redis=redis://", "Redis=rediss://"),
        "redis-tls",
        "does not answer in TLS",
    ),
    "a wrong password of Redis": (
        lambda one: re.sub(r"(Redis=redis://):[^@]*@", r"\1:open-sesame@", one),
        "redis-authentication",
        "refuses the credentials",
    ),
}


@pytest.mark.parametrize("fault", UNREACHABLE)
def test_a_server_that_is_not_reached_is_one_failure(untended: str, fault: str) -> None:
    """The checks behind it are not made, those of the other server are. No password is shown.

    A plaintext Redis waits for the end of a line, and never answers to TLS: only the time limit ends that.
    """
    change, check, found = UNREACHABLE[fault]
    findings = look(change(untended), LookLimits(step_s=5.0))
    kind = check.partition("-")[0]
    assert not_ok(findings, kind) == {check: State.FAILURE}
    assert re.search(found, findings[check].found)
    assert findings[check].remedy
    behind = [one for one in CHECKS if one.name.startswith(f"{kind}-")]
    behind = behind[[one.name for one in behind].index(check) + 1 :]
    assert {findings[one.name].state for one in behind} == {State.NOT_CHECKED}
    other = "redis" if kind == "kafka" else "kafka"
    assert {one.state for name, one in findings.items() if name.startswith(f"{other}-")} == {State.OK}
    assert "sesame" not in str(findings)


def test_a_server_that_hangs_does_not_hang_the_look(untended: str) -> None:
    """Kafka and Redis take connections, and never answer. The look waits for its time limits."""
    with socket.create_server((HOST, 0)) as deaf:
        address = f"{HOST}:{deaf.getsockname()[1]}"
        began = time.monotonic()
        findings = look(with_redis(with_kafka(untended, address), f"redis://{address}/0"), LookLimits(step_s=0.6))
        took = time.monotonic() - began
    assert not_ok(findings).keys() >= {"kafka-address", "redis-address"}
    assert {one.state for name, one in findings.items() if "authentication" in name} == {State.NOT_CHECKED}
    assert "does not answer" in findings["kafka-version"].found
    assert took < 10


# Faults of Redis; Kafka is not there, which is seen at once.

Change = Callable[[redis.Redis], object]


def settings(**wanted: str) -> Change:
    """Set some of Redis's settings."""

    def change(server: redis.Redis) -> None:
        for name, value in wanted.items():
            server.config_set(name.replace("_", "-"), value)

    return change


def fails_to_save(server: redis.Redis) -> None:
    """Have Redis fail to write a snapshot, without an append-only file."""
    settings(appendonly="no", save="3600 1")(server)
    shutil.rmtree(str(server.config_get("dir")["dir"]))
    server.bgsave()
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "it saves nothing")


REDIS_FAULTS: Mapping[str, tuple[Change, str, State, str]] = {
    "eviction": (
        settings(maxmemory_policy="allkeys-lru"),
        "redis-eviction",
        State.FAILURE,
        "allkeys-lru: a full Redis would drop locks",
    ),
    "no persistence": (settings(appendonly="no"), "redis-persistence", State.WARNING, "persists nothing"),
    "snapshots only": (settings(appendonly="no", save="60 1"), "redis-persistence", State.WARNING, "snapshots only"),
    "no room for snapshots": (fails_to_save, "redis-persistence", State.FAILURE, "the last snapshot failed"),
    "full": (settings(maxmemory="1000000"), "redis-memory", State.FAILURE, "clients receive nothing new"),
    "a replica": (lambda one: one.replicaof(HOST, "1"), "redis-replication", State.FAILURE, "takes no writes"),
    "no replica": (settings(min_replicas_to_write="1"), "redis-replication", State.FAILURE, "0 replicas follow it"),
}
_RIGHTS: Mapping[str, tuple[str, str]] = {
    "-eval": ("redis-right-scripts", "eval"),
    "resetkeys": ("redis-right-keys", "keys"),
    "resetchannels": ("redis-right-channels", "channel"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis.Redis]:
    """A Redis of the test's own, as it should be."""
    with serving(find_redis(), tmp_path / "redis", "--appendonly", "yes") as port:
        with redis.Redis(HOST, port, protocol=2) as client:
            yield client


def at(untended: str, server: redis.Redis, user: str = "") -> str:
    """Return the connection string of a namespace in that Redis, ``user`` being ``name:password@``, without Kafka."""
    port = server.get_connection_kwargs()["port"]
    return with_redis(with_kafka(untended, NOWHERE), f"redis://{user}{HOST}:{port}/0")


@pytest.mark.parametrize("fault", REDIS_FAULTS)
def test_a_fault_of_redis_is_named(untended: str, server: redis.Redis, fault: str) -> None:
    """It is the only fault of Redis that is found."""
    change, check, state, found = REDIS_FAULTS[fault]
    connection = at(untended, server)
    assert not_ok(look(connection), "redis") == {}
    change(server)
    findings = look(connection)
    assert not_ok(findings, "redis") == {check: state}
    assert found in findings[check].found


@pytest.mark.parametrize("taken", _RIGHTS)
def test_a_missing_right_of_redis_is_named(untended: str, server: redis.Redis, taken: str) -> None:
    """The rights of the documentation are enough; without one of them, the check of that fails."""
    check, word = _RIGHTS[taken]
    rights = rights_of(parse_settings(untended).namespace).split()
    server.execute_command("ACL SETUSER app on >open-sesame", *rights)
    connection = at(untended, server, "app:open-sesame@")
    assert not_ok(look(connection), "redis-right") == {}
    server.execute_command("ACL SETUSER app", taken)
    findings = look(connection)
    assert not_ok(findings, "redis-right").keys() >= {check}
    assert word in findings[check].found
    assert "sesame" not in str(findings)


def test_a_redis_cluster_is_named(untended: str, tmp_path: Path) -> None:
    """Trials fail there as well, for that reason."""
    with serving(find_redis(), tmp_path / "node", "--cluster-enabled", "yes") as port:
        findings = look(with_redis(with_kafka(untended, NOWHERE), f"redis://{HOST}:{port}/0"))
    assert findings["redis-mode"].state is State.FAILURE


@pytest.mark.parametrize(
    ("silent_s", "state", "found"),
    [
        (None, State.FAILURE, "no upkeep service has ever sent a heartbeat"),
        (100, State.FAILURE, "no sign of an upkeep service for 10"),
        (7, State.WARNING, "no sign of an upkeep service for "),
        (0, State.OK, "1 instance"),
    ],
)
def test_upkeep_that_is_dead_or_silent_is_named(
    untended: str, server: redis.Redis, silent_s: int | None, state: State, found: str
) -> None:
    """A running one gives a sign every second."""
    if silent_s is not None:
        server.zadd(upkeep_key(parse_settings(untended).namespace), {"instance": (time.time() - silent_s) * 1000})
    finding = look(at(untended, server))["upkeep"]
    assert finding.state is state
    assert finding.found.startswith(found)


# Rights in Kafka.

_ON_TOPICS = (AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ, AclOperation.DELETE)


@pytest.fixture(scope="module")
def kafka(runtime: RunningNamespace) -> Iterator[Guarded]:
    """A Kafka of the module's own, with a password and rights; the run's servers have fetched its jars."""
    assert runtime.bootstrap_servers
    folder = scratch_folder()
    try:
        with guarded(folder) as serving_:
            yield serving_
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def guarded_at(untended: str, kafka: Guarded, password: str = PASSWORD) -> str:
    """Return the connection string of the user in that Kafka."""
    return with_kafka(
        untended,
        f"{kafka.sasl};KafkaSecurityProtocol=SASL_PLAINTEXT;KafkaSaslMechanism=PLAIN;KafkaSaslUsername={USER};"
        f"KafkaSaslPassword={password}",
    )


def grant(kafka: Guarded, namespace: str, *denied: AclOperation, transactions: bool = True) -> None:
    """Give the user all rights to a namespace but for some; return when they count."""
    admin = AdminClient({"bootstrap.servers": kafka.open}, logger=KAFKA_LOG)
    prefixed, allow, deny = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW, AclPermissionType.DENY
    wanted = [(ResourceType.TOPIC, f"{namespace}.", AclOperation.ALL, allow)]
    wanted += [(ResourceType.TOPIC, f"{namespace}.", operation, deny) for operation in denied]
    wanted += [(ResourceType.GROUP, f"{namespace}.", AclOperation.ALL, allow)]
    if transactions:
        wanted += [(ResourceType.TRANSACTIONAL_ID, f"{namespace}.", AclOperation.ALL, allow)]
    rules = {
        AclBinding(kind, name, prefixed, f"User:{USER}", "*", operation, permission)
        for kind, name, operation, permission in wanted
    }
    for done in admin.create_acls(list(rules)).values():
        done.result()
    # None means any, which the types of Kafka's client do not know.
    any_: Any = None
    every = AclBindingFilter(
        ResourceType.ANY, any_, ResourcePatternType.ANY, any_, any_, AclOperation.ANY, AclPermissionType.ANY
    )
    wait_until(lambda: rules <= set(admin.describe_acls(every).result()), "the rights count")


def test_the_documented_rights_in_kafka_are_enough(untended: str, kafka: Guarded) -> None:
    """All trials succeed, and nothing of them is left."""
    namespace = parse_settings(untended).namespace
    grant(kafka, namespace)
    assert not_ok(look(guarded_at(untended, kafka)), "kafka") == {}
    admin = AdminClient({"bootstrap.servers": kafka.open}, logger=KAFKA_LOG)
    wait_until(
        lambda: not [name for name in admin.list_topics(timeout=PATIENCE).topics if name.startswith(f"{namespace}.")],
        "nothing is left",
    )


@pytest.mark.parametrize("operation", _ON_TOPICS, ids=lambda one: one.name.lower())
def test_a_missing_right_in_kafka_is_named(untended: str, kafka: Guarded, operation: AclOperation) -> None:
    """The check of that right alone fails; rights that could not be tried without it are not checked."""
    grant(kafka, parse_settings(untended).namespace, operation)
    findings = look(guarded_at(untended, kafka))
    check = f"kafka-right-{operation.name.lower()}"
    assert not_ok(findings, "kafka") == {check: State.FAILURE}
    assert "uthorization failed" in findings[check].found
    assert f"--operation {operation.name.capitalize()}" in findings[check].remedy


def test_a_missing_right_to_transactions_is_named(untended: str, kafka: Guarded) -> None:
    """Senders and receivers without transactions work."""
    grant(kafka, parse_settings(untended).namespace, transactions=False)
    findings = look(guarded_at(untended, kafka))
    assert not_ok(findings, "kafka") == {"kafka-right-transactions": State.FAILURE}


def test_a_wrong_password_of_kafka_is_named_and_not_shown(untended: str, kafka: Guarded, tmp_path: Path) -> None:
    """The command exits with 5, and shows neither that password nor that of Redis."""
    connection = guarded_at(untended, kafka, "open-sesame")
    done = run(connection, tmp_path / "run")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("kafka-authentication")]
    assert "failure" in line
    assert "refuses the credentials" in line
    assert done.returncode == 5
    password = urlsplit(parse_settings(untended).redis_url.reveal()).password
    assert password
    for secret in ("sesame", password):
        assert secret not in done.stdout + done.stderr


# Faults of a namespace, all planted in one.


def plant(runtime: RunningNamespace, connection: str) -> Producer:
    """Plant faults; return a producer with an open transaction."""
    namespace, url = parse_settings(connection).namespace, runtime.redis_url
    names = ("stamped", "hanging", "prepared", "half-moved", "large", "brimful", "dead", "stepped", "forgotten", "gone")
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
        closing(ClientContext(parse_settings(connection))) as context,
    ):
        for name in names:
            administration.create_queue(name, enable_partitioning=False)
        producer = leave_open(runtime, topic_name(namespace, EntityPath("hanging")))
        unset(runtime, topic_name(namespace, EntityPath("stamped")))
        for name in ("dead", "prepared", "half-moved", "large", "stepped"):
            client.get_queue_sender(name).send_messages(ServiceBusMessage("one"))
        receiver = client.get_queue_receiver("dead")
        receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=PATIENCE)[0])
        leave_unfinished(
            client,
            context,
            "prepared",
            lambda *held: Prepare(held[0], [("complete", held[1], [held[2]], {})], "0@x", 1, 10),
        )
        leave_unfinished(
            client, context, "half-moved", lambda *held: BeginTransfer(held[0], held[1], [held[2]], "elsewhere", 1)
        )
        for name in ("prepared", "half-moved"):
            advance(url, namespace, name, 600)
        # A client that tries to finish it sets another time, each time that it fails.
        (ledger,) = context.catalog.entity(EntityPath("half-moved")).ledgers
        context.ledger_client.execute(AdoptTransfers(ledger, 10, 3_600_000))
        advance(url, namespace, "half-moved", 600)
        leave_unfinished(
            client, context, "large", lambda *held: BeginTransfer(held[0], held[1], [held[2]], "[0, null, null]", 1)
        )
        (ledger,) = context.catalog.entity(EntityPath("large")).ledgers
        context.ledger_client.execute(NoteRefusal(ledger, 0, 50_000))
        advance(url, namespace, "large", 600)
        step(url, namespace, "stepped", 60)
        receiver = client.get_queue_receiver("stepped")
        receiver.complete_messages(receiver.receive_messages(1, max_wait_time=PATIENCE))
        description = context.descriptions.get("brimful")
        assert description is not None
        context.descriptions.put(description.model_copy(update={"max_size_in_megabytes": 1}))
        for _ in range(4):
            client.get_queue_sender("brimful").send_messages(ServiceBusMessage(b"x" * 230_000))
    with redis.Redis.from_url(url, protocol=2) as server:
        (meta,) = server.scan_iter(match=f"{{{namespace}/forgotten/*:meta", count=1000)
        server.delete(meta)
    Topics(parse_settings(connection)).delete(topic_name(namespace, EntityPath("gone")))
    return producer


def leave_unfinished(
    client: ServiceBusClient, context: ClientContext, name: str, made: Callable[..., Operation]
) -> None:
    """Have a client end in the middle of an operation on a message."""
    (message,) = client.get_queue_receiver(name).receive_messages(1, max_wait_time=PATIENCE)
    ledger = context.catalog.entity(EntityPath(name)).ledgers[0]
    place = (receipt_of(message).offset, receipt_of(message).offset)
    context.ledger_client.execute(made(ledger, receipt_of(message).delivery.lease, place))


def leave_open(runtime: RunningNamespace, topic: str) -> Producer:
    """Store a record in a transaction that is not ended."""
    producer = Producer(
        {
            "bootstrap.servers": runtime.bootstrap_servers,
            "transactional.id": topic,
            "transaction.timeout.ms": round(PATIENCE * 1000),
            "log_level": 0,
        },
        logger=KAFKA_LOG,
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE) == 0
    return producer


def unset(runtime: RunningNamespace, topic: str) -> None:
    """Let producers' clocks count in a topic."""
    changed = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[changed])
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    admin.incremental_alter_configs([resource])[resource].result()


@pytest.fixture(scope="module")
def findings(runtime: RunningNamespace) -> Iterator[dict[str, Finding]]:
    """Findings about a namespace with many faults; by the doctor's clock, the servers' is half a minute late."""
    connection = runtime.connection_string.replace("sb://tests.", "sb://faulty.", 1)
    producer = plant(runtime, connection)
    try:
        yield look(connection, clock=lambda: time.time() + 30)
    finally:
        producer.abort_transaction(PATIENCE)
        with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
            for queue in list(administration.list_queues()):
                administration.delete_queue(queue.name)


PLANTED: Mapping[str, tuple[State, str]] = {
    "kafka-topic-settings": (
        State.FAILURE,
        "faulty.stamped has message.timestamp.type=CreateTime instead of LogAppendTime",
    ),
    "kafka-transactions": (State.FAILURE, "faulty.hanging/0 from offset 0 on"),
    "clock-client": (State.WARNING, r"this machine's clock is (29|3\d)\.\d s ahead of the servers'"),
    "clock-ledgers": (State.WARNING, r"ledgers of stepped go (5\d|60)\.\d s ahead of Redis's clock"),
    "upkeep": (State.FAILURE, "no upkeep service has ever sent a heartbeat"),
    "entity-topics": (State.FAILURE, "topic faulty.gone of gone is gone"),
    "ledgers": (State.WARNING, "Redis does not hold all ledgers of forgotten"),
    "checkpoints": (State.WARNING, "are in no checkpoint.*(prepared|half-moved|large)"),
    "transactions": (State.FAILURE, r"overdue: prepared partition 0 for [56]\d\d s"),
    "transfers": (State.FAILURE, r"overdue: half-moved partition 0 for [56]\d\d s"),
    "refused-copies": (
        State.FAILURE,
        r"message 1 of large partition 0: a copy of 50000 bytes in large/\$deadletterqueue",
    ),
    "quota": (State.WARNING, r"nearly full: brimful partition 0 to 88%"),
    "dead-letters": (State.WARNING, r"1 in dead/\$deadletterqueue"),
}


@pytest.mark.parametrize("check", PLANTED)
def test_a_fault_of_the_namespace_is_named(findings: Mapping[str, Finding], check: str) -> None:
    """The finding names the entity."""
    state, found = PLANTED[check]
    assert findings[check].state is state
    assert re.search(found, findings[check].found)


def test_nothing_else_is_found(findings: Mapping[str, Finding]) -> None:
    """Each fault is found by the check that is for it."""
    assert not_ok(findings).keys() == PLANTED.keys()


def test_warnings_count_if_they_are_to(untended: str, server: redis.Redis, tmp_path: Path) -> None:
    """Dead letters and the like leave the exit status at 0, unless --strict; checks may be left out."""
    settings(appendonly="no")(server)
    skipped = [part for check in CHECKS if check.name != "redis-persistence" for part in ("--skip", check.name)]
    for number, (arguments, code) in enumerate({(): 0, ("--strict",): 6}.items()):
        done = run(at(untended, server), tmp_path / str(number), *skipped, *arguments)
        assert done.returncode == code
        heading, line = done.stdout.splitlines()
        assert heading.split() == ["CHECK", "STATE", "FOUND", "REMEDY"]
        assert line.split(maxsplit=2)[:2] == ["redis-persistence", "warning"]
        assert "1 warning" in done.stderr
