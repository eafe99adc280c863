"""A Redis fails, and a replica of it that lags behind is promoted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import pytest
import redis
from tenacity import retry, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.snapshot import Snapshot
from kafkabus._sync.context import ClientContext
from kafkabus._sync.stores.checkpoints import Checkpoints
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from kafkabus_mapping.names import EntityPath
from tests.proxy import Proxy
from tests.redis_server import serving
from tests.servers import scratch_folder

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

PATIENCE_S = 60


@contextmanager
def another_redis() -> Generator[redis.Redis, None, None]:
    """A Redis that may be followed, and may follow another one."""
    data = scratch_folder()
    try:
        with serving(find_redis(), data) as port, closing(redis.Redis(HOST, port)) as server:
            yield server
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def replica_of(primary: redis.Redis) -> Generator[redis.Redis, None, None]:
    """Run a Redis that follows another one; it has caught up when this yields."""
    with another_redis() as replica:
        replica.replicaof(HOST, str(primary.get_connection_kwargs()["port"]))
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
        yield replica


@retry(
    retry=retry_if_result(lambda done: not done) | retry_if_exception_type(redis.ConnectionError),
    stop=stop_after_delay(PATIENCE_S),
    wait=wait_fixed(0.05),
)
def wait_until(done: Callable[[], object]) -> object:
    """Wait until a condition holds."""
    return done()


@contextmanager
def upkeep(connection: str) -> Generator[None, None, None]:
    """The upkeep service, as a separate process."""
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: connection}
    program = subprocess.Popen([sys.executable, "-m", "kafkabus.upkeep"], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.terminate()
        program.wait()


def test_what_was_written_down_is_not_undone(runtime: RunningNamespace, untended: str) -> None:
    """Settled messages stay settled and deferred ones deferred, the rest comes again; no stale lock settles anything."""
    with (
        another_redis() as primary,
        replica_of(primary) as replica,
        Proxy(primary.get_connection_kwargs()["port"]) as proxy,
    ):
        connection = untended.replace(runtime.redis_url, f"redis://{HOST}:{proxy.port}/0")
        assert connection != untended
        settings = parse_settings(connection)
        with (
            ServiceBusAdministrationClient.from_connection_string(connection) as administration,
            ServiceBusClient.from_connection_string(connection) as client,
            closing(ClientContext(settings)) as context,
        ):
            administration.create_queue("orders")
            sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(30)])
            early = receiver.receive_messages(20, max_wait_time=PATIENCE_S)
            receiver.complete_messages(early[:10])
            assert primary.wait(1, PATIENCE_S * 1000) == 1
            replica.replicaof("NO", "ONE")

            # None of this reaches the replica.
            administration.create_queue("invoices")
            receiver.complete_messages(early[10:])
            late = receiver.receive_messages(10, max_wait_time=PATIENCE_S)
            receiver.complete_messages(late[:5])
            receiver.defer_message(late[5])
            prefix = context.catalog.entity(EntityPath("orders")).ledgers[0].keys.prefix

            def written_down() -> Snapshot | None:
                snapshot = Checkpoints(context.connections).read(prefix)
                return snapshot if snapshot and snapshot.waiting == [(26, 29, 1)] and snapshot.deferred else None

            with upkeep(connection):
                wait_until(written_down)
                proxy.redirect(replica.get_connection_kwargs()["port"])
                wait_until(lambda: (found := context.descriptions.get("orders")) and found.incarnation == 1)
                wait_until(lambda: context.descriptions.get("invoices"))

            with pytest.raises(ServiceBusError):
                receiver.complete_message(late[6])
            seen: list[str] = []
            while len(seen) < 5:
                messages = receiver.receive_messages(10, max_wait_time=PATIENCE_S)
                assert messages
                seen += [f"{message} {message.delivery_count}" for message in messages]
                receiver.complete_messages(messages)
                if len(seen) == 4:
                    sender.send_messages(ServiceBusMessage("the last one"))
            assert seen == ["26 1", "27 1", "28 1", "29 1", "the last one 0"]
            (deferred,) = receiver.receive_deferred_messages(late[5].sequence_number or 0)
            assert str(deferred) == "25"
            receiver.complete_message(deferred)
            assert administration.get_queue_runtime_properties("orders").total_message_count == 0
