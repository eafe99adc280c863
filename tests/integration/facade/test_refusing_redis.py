"""Redis refuses commands: for a moment, as in a failover, or for as long as its settings stay."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.keys import rights_of, upkeep_key
from kafkabus._ledger.operations import Ledger
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import RedisProgram, find_redis
from kafkabus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusServerBusyError,
    UnsuitableRedisError,
)
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.entities import QueueDescription
from kafkabus_mapping.names import EntityPath, topic_name
from tests.proxy import Proxy
from tests.redis_server import all_programs, serving
from tests.upkeep import upkeep

PATIENCE = 30.0

Change = Callable[[redis.Redis], object]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis.Redis]:
    """A Redis of the test's own."""
    with serving(find_redis(), tmp_path) as port, redis.Redis(HOST, port, protocol=2) as client:
        yield client


@pytest.fixture
def connection(untended: str, runtime: RunningNamespace, server: redis.Redis) -> str:
    """The connection string of a namespace whose ledgers are in that Redis."""
    return with_redis(untended, runtime, server, "")


def with_redis(untended: str, runtime: RunningNamespace, server: redis.Redis, user: str) -> str:
    """Return a connection string with a user of Redis, ``name:password@``."""
    port = server.get_connection_kwargs()["port"]
    return untended.replace(runtime.redis_url, f"redis://{user}{HOST}:{port}/0")


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait for a condition, and fail when it does not come true in time."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def cannot_save(server: redis.Redis) -> None:
    """Make Redis fail to write its snapshot."""
    server.config_set("dir", "/proc")
    server.config_set("save", "1 1")
    server.bgsave()
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "it saves nothing")


def saves_again(server: redis.Redis, folder: str) -> None:
    """Undo ``cannot_save``."""
    server.config_set("save", "")
    server.config_set("dir", folder)


def cut_off(server: redis.Redis) -> None:
    """Make Redis a replica that answers nothing without its primary."""
    server.config_set("replica-serve-stale-data", "no")
    to_replica(server)


def to_replica(server: redis.Redis) -> None:
    """Make Redis a replica, as a demoted primary is one, of a Redis that does not answer."""
    server.replicaof(HOST, "1")


def to_primary(server: redis.Redis) -> None:
    """Undo ``to_replica``."""
    server.replicaof("NO", "ONE")


@contextmanager
def failover(server: redis.Redis) -> Generator[None]:
    """Make Redis a replica for half a second."""
    to_replica(server)
    mended = threading.Timer(0.5, to_primary, [server])
    mended.start()
    yield
    mended.join()


def drop_others(server: redis.Redis) -> None:
    """Close the connections of all clients but this one."""
    server.execute_command("CLIENT KILL TYPE normal SKIPME yes")


def new_password(server: redis.Redis) -> None:
    """Set a password that no other client has."""
    server.config_set("requirepass", "changed")
    drop_others(server)


def settings(**wanted: str) -> Change:
    """Set some of Redis's settings."""

    def change(server: redis.Redis) -> None:
        for name, value in wanted.items():
            server.config_set(name.replace("_", "-"), value)

    return change


def rights(*rules: str) -> Change:
    """Change the rights of the clients' user."""

    def change(server: redis.Redis) -> None:
        server.execute_command("ACL SETUSER default", *rules)

    return change


FAULTS: Mapping[str, tuple[Change, Change]] = {
    "READONLY": (to_replica, to_primary),
    "MASTERDOWN": (cut_off, to_primary),
    "OOM": (settings(maxmemory="1000"), settings(maxmemory="0")),
    "MISCONF": (cannot_save, lambda server: saves_again(server, "/tmp")),  # noqa: S108 - it keeps nothing there
    "NOREPLICAS": (settings(min_replicas_to_write="1"), settings(min_replicas_to_write="0")),
    "NOPERM": (rights("-eval"), rights("+eval")),
    "NOAUTH": (new_password, lambda server: server.config_set("requirepass", "")),
}
"""Faults of Redis, and their ends."""


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_upkeep_outlives_all_that_redis_answers(
    connection: str, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on once Redis serves again. Each fault takes two seconds, in which its rounds fail and come back."""
    caplog.set_level(logging.WARNING, "kafkabus")
    key = upkeep_key(parse_settings(connection).namespace)

    def last_heard_of() -> float:
        latest: list[Any] = server.zrange(key, -1, -1, withscores=True)
        return float(latest[0][1]) if latest else 0.0

    with upkeep(connection) as service:
        wait_until(last_heard_of, "upkeep begins")
        for name, (breaks, mends) in FAULTS.items():
            caplog.clear()
            breaks(server)
            try:
                wait_until(lambda: caplog.records or not service.is_alive(), f"{name} is noticed")
            finally:
                mends(server)
            before = last_heard_of()
            wait_until(
                lambda since=before: last_heard_of() > since or not service.is_alive(),  # type: ignore[misc]
                f"upkeep goes on after {name}",
            )
            assert service.is_alive(), f"upkeep ended with {name}"
        assert "Traceback" not in caplog.text


def test_a_client_waits_while_redis_is_a_replica(connection: str, server: redis.Redis) -> None:
    """In the middle of a failover a call waits until Redis takes writes; nothing fails."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
    ):
        administration.create_queue("orders")
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        one, two = receiver.receive_messages(2, max_wait_time=PATIENCE)
        for act in (
            lambda: receiver.complete_message(one),
            lambda: receiver.renew_message_lock(two),
            lambda: administration.create_queue("invoices"),
        ):
            with failover(server):
                act()
        receiver.complete_message(two)
        assert administration.get_queue_runtime_properties("orders").total_message_count == 0


def test_a_full_redis_is_busy(connection: str, server: redis.Redis) -> None:
    """That holds for the scripts of locks and for descriptions. Refused calls succeed once there is room."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
    ):
        administration.create_queue("orders")
        receiver = client.get_queue_receiver("orders")
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
        (one,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        settings(maxmemory="1000")(server)
        with pytest.raises(ServiceBusServerBusyError, match=r"is full and refused .*: raise its maxmemory") as caught:
            receiver.renew_message_lock(one)
        assert "user_script" not in str(caught.value)
        with pytest.raises(ServiceBusServerBusyError, match="maxmemory"):
            administration.create_queue("invoices")
        settings(maxmemory="0")(server)
        receiver.renew_message_lock(one)
        receiver.complete_message(one)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_evicts_is_refused_by_every_operation(connection: str, server: redis.Redis, policy: str) -> None:
    """The refusal comes before a topic is created. Upkeep refuses it, too, and ends."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
    ):
        administration.create_queue("orders", requires_duplicate_detection=True)
    settings(maxmemory_policy=policy)(server)
    settled = parse_settings(connection)
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
    ):
        operations: list[Callable[[], object]] = [
            lambda: administration.create_queue("invoices"),
            lambda: list(administration.list_queues()),
            lambda: client.get_queue_sender("orders").send_messages(ServiceBusMessage("one")),
            lambda: client.get_queue_receiver("orders").receive_messages(1, max_wait_time=1),
            lambda: asyncio.run(Upkeep(settled).run(asyncio.Event())),
        ]
        for operation in operations:
            with pytest.raises(UnsuitableRedisError, match=f"maxmemory-policy '{policy}'.*set it to noeviction"):
                operation()
    assert Topics(settled).describe(topic_name(settled.namespace, EntityPath("invoices"))) is None


def test_a_redis_that_begins_to_evict_is_noticed_when_it_comes_back(connection: str, server: redis.Redis) -> None:
    """A failover may lead to another Redis with other settings."""
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_queue("orders")
        settings(maxmemory_policy="allkeys-lru")(server)
        with failover(server), pytest.raises(UnsuitableRedisError):
            administration.create_queue("invoices")


def test_a_cluster_is_refused_by_name(
    untended: str, runtime: RunningNamespace, tmp_path: Path, server: redis.Redis
) -> None:
    """Its URL does not say that it is one. The refusal comes before a topic is created, and says what to write."""
    with serving(find_redis(), tmp_path / "node", "--cluster-enabled", "yes") as port:
        connection = untended.replace(runtime.redis_url, f"redis://{HOST}:{port}/0")
        settled = parse_settings(connection)
        with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
            with pytest.raises(
                UnsuitableRedisError, match=r"is part of a Redis Cluster: begin its URL with redis\+cluster:"
            ):
                administration.create_queue("orders")
        assert Topics(settled).describe(topic_name(settled.namespace, EntityPath("orders"))) is None


@pytest.mark.parametrize("program", all_programs(), ids=lambda program: str(program.path))
def test_a_server_that_is_no_cluster_is_refused_by_name(
    untended: str, runtime: RunningNamespace, tmp_path: Path, program: RedisProgram
) -> None:
    """Its URL says that it is one. That its user has no right to ask for slots, which Redis checks first, hides nothing."""
    with serving(program, tmp_path / "single") as port, redis.Redis(HOST, port) as server:
        server.execute_command("ACL SETUSER app on >secret ~* &* +@all -cluster")
        wrong = untended.replace(runtime.redis_url, f"redis+cluster://app:secret@{HOST}:{port}")
        with (
            ServiceBusAdministrationClient.from_connection_string(wrong) as administration,
            pytest.raises(UnsuitableRedisError, match="is no Redis Cluster: begin its URL with redis://"),
        ):
            administration.create_queue("orders")


def test_a_user_with_the_documented_rights_can_do_everything(
    untended: str, runtime: RunningNamespace, server: redis.Redis
) -> None:
    """The rights are those that the error names if one is missing."""
    namespace = parse_settings(untended).namespace
    server.execute_command("ACL SETUSER app on >secret", *rights_of(namespace).split())
    connection = with_redis(untended, runtime, server, "app:secret@")
    with (
        ServiceBusAdministrationClient.from_connection_string(connection) as administration,
        ServiceBusClient.from_connection_string(connection) as client,
    ):
        administration.create_queue("orders", requires_session=True, requires_duplicate_detection=True)
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("one", session_id="a"))
        receiver = client.get_queue_receiver("orders", session_id="a")
        (one,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        assert receiver.session is not None
        receiver.session.set_state(b"x")
        receiver.complete_message(one)
        administration.delete_queue("orders")
    # Only commands that redis-py and the check of Redis's settings can do without were refused.
    assert {str(entry["object"]).partition("|")[0] for entry in server.acl_log()} <= {"client", "config"}


@pytest.mark.parametrize("taken", ["-eval", "-evalsha", "-hset", "-@scripting", "resetkeys"])
def test_a_missing_right_is_named_before_a_topic_is_created(
    untended: str, runtime: RunningNamespace, server: redis.Redis, taken: str
) -> None:
    """The error has Redis's words, which name the command and its keys."""
    settled = parse_settings(untended)
    server.execute_command("ACL SETUSER app on >secret", *rights_of(settled.namespace).split(), taken)
    connection = with_redis(untended, runtime, server, "app:secret@")
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        with pytest.raises(ServiceBusAuthorizationError) as caught:
            administration.create_queue("orders")
    assert rights_of(settled.namespace) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert Topics(settled).describe(topic_name(settled.namespace, EntityPath("orders"))) is None


def test_refused_credentials_are_no_silence(untended: str, runtime: RunningNamespace, server: redis.Redis) -> None:
    """The error comes at once, and without the password."""
    server.execute_command("ACL SETUSER app on >secret +@all ~*")
    began = time.monotonic()
    with ServiceBusAdministrationClient.from_connection_string(
        with_redis(untended, runtime, server, "app:guessed@")
    ) as administration:
        with pytest.raises(ServiceBusAuthenticationError, match="refuses the credentials") as caught:
            administration.create_queue("orders")
    assert "guessed" not in str(caught.value)
    assert time.monotonic() - began < 10
    assert isinstance(caught.value, ServiceBusError)


def test_who_may_not_ask_about_redis_asks_once(untended: str, runtime: RunningNamespace, server: redis.Redis) -> None:
    """Some hosted Redis refuse that: a client goes on without the answer."""
    namespace = parse_settings(untended).namespace
    server.execute_command("ACL SETUSER app on >secret", *rights_of(namespace).split(), "-info")
    connection = with_redis(untended, runtime, server, "app:secret@")
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_queue("orders")
        assert [one.name for one in administration.list_queues()] == ["orders"]
    refused = {str(entry["object"]): int(str(entry["count"])) for entry in server.acl_log()}
    assert refused["info"] == 1


def test_upkeep_stops_while_it_waits(connection: str, server: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for a Redis that takes no writes, and would wait for a minute."""
    caplog.set_level(logging.WARNING, "kafkabus")
    to_replica(server)
    with upkeep(connection) as service:
        wait_until(lambda: "redis_retry" in caplog.text, "upkeep waits")
        began = time.monotonic()
    assert not service.is_alive()
    assert time.monotonic() - began < PATIENCE / 2


def test_a_look_at_the_rights_that_was_cut_off_is_over(
    connection: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's next request sends it again, and it finds no ledger: other calls are not affected."""
    port = server.get_connection_kwargs()["port"]
    now = datetime.now(timezone.utc)
    orders = QueueDescription(
        name="orders",
        enable_partitioning=False,
        partitions=1,
        topic="orders",
        topic_id="",
        created_at=now,
        updated_at=now,
    )
    with Proxy(port) as proxy:
        settled = parse_settings(connection.replace(f"{HOST}:{port}", f"{HOST}:{proxy.port}"))
        with closing(ClientContext(settled, retry_for=0.2)) as context:
            create = context.catalog.create_ledgers

            def create_and_cut(ledgers: Sequence[Ledger]) -> None:
                create(ledgers)
                proxy.lose_replies = True

            monkeypatch.setattr(context.catalog, "create_ledgers", create_and_cut)
            with pytest.raises(ServiceBusCommunicationError):
                context.catalog.check_rights(EntityPath("orders"), orders)
            proxy.lose_replies = False
            server.flushall()
            context.ledger_client.flush()
