"""A Redis that Sentinels watch: clients, upkeep and notifications follow the primary."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._async.redis import subscription as aio_subscription
from kafkabus._sync.redis import subscription
from kafkabus._sync.redis.opening import open_redis
from kafkabus.doctor.findings import State
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts
from tests.effort import SEED
from tests.faults.failover import watched_servers
from tests.faults.kill import run
from tests.integration.clusters.findings import redis_findings
from tests.processes import paused
from tests.redis_server import Server, Watched, sentinel, watched
from tests.servers import scratch_folder
from tests.upkeep import upkeep

pytestmark = pytest.mark.faults

PATIENCE = 60.0


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Watched]:
    """Servers and Sentinels of the module's own."""
    folder = scratch_folder()
    try:
        with watched(find_redis(), folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def elsewhere(untended: str, runtime: RunningNamespace, sentinels: Watched) -> str:
    """The connection string of an empty namespace."""
    assert runtime.redis_url in untended
    return format_connection_string(parse_parts(untended) | {"Redis": sentinels.url})


def test_the_doctor_examines_the_primary(elsewhere: str) -> None:
    """It asks the Sentinels for it. It takes some seconds, as it waits for the servers' answers."""
    deadline = time.monotonic() + PATIENCE
    # Replicas need a moment to follow.
    while "it is a primary" not in (findings := redis_findings(elsewhere))["redis-replication"].found:
        assert time.monotonic() < deadline, findings
    assert {name for name, one in findings.items() if one.state is State.FAILURE} == set()


def test_client_and_upkeep_follow_the_new_primary(elsewhere: str, sentinels: Watched) -> None:
    """The primary is killed, and its locks are still there. The test waits for the election, and for a message's time."""
    with (
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration,
        ServiceBusClient.from_connection_string(elsewhere) as client,
        upkeep(elsewhere),
    ):
        administration.create_queue("orders")
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        sender.send_messages(ServiceBusMessage("one"))
        (one,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        sentinels.wait_for_replicas()
        before = sentinels.primary()
        before.kill()
        receiver.complete_message(one)
        assert sentinels.wait_for_another(before) is not before
        due = datetime.now(timezone.utc) + timedelta(seconds=1)
        sender.schedule_messages(ServiceBusMessage("two"), due)
        (two,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        receiver.complete_message(two)
        assert (str(one), str(two)) == ("one", "two")
        # Upkeep may note only now that the scheduled message was enqueued.
        deadline = time.monotonic() + PATIENCE
        while (left := administration.get_queue_runtime_properties("orders")).total_message_count:
            assert time.monotonic() < deadline, left
        before.start()


@pytest.mark.extended
def test_a_waiting_receiver_leaves_a_primary_that_hangs(
    elsewhere: str, sentinels: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open, and say nothing. The receiver hears of the next message at the new primary."""
    for module in (subscription, aio_subscription):
        monkeypatch.setattr(module, "PING_AFTER", 0.5)
        monkeypatch.setattr(module, "ANSWERS_WITHIN", 1.0)
    with (
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration,
        ServiceBusClient.from_connection_string(elsewhere) as client,
    ):
        administration.create_queue("orders")
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
        sentinels.wait_for_replicas()
        before = sentinels.primary()
        with paused(before.pid):
            sentinels.wait_for_another(before)
            sender.send_messages(ServiceBusMessage("one"))
            (one,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
            receiver.complete_message(one)


def test_the_sentinel_that_knows_the_latest_election_is_believed(sentinels: Watched, tmp_path: Path) -> None:
    """A Sentinel that missed it names the previous primary, which may run again, and would lose what is written to it.

    That one is asked first here, and never hears of the others. It takes the seconds that Sentinels need to elect.
    """
    sentinels.wait_for_replicas()
    before = sentinels.primary()
    before.kill()
    sentinels.wait_for_another(before)
    before.start()
    with (
        Server(find_redis(), tmp_path / "alone") as alone,
        sentinel(find_redis(), tmp_path / "late", alone.port) as late,
    ):
        url = sentinels.url.replace("sentinel://", f"sentinel://{HOST}:{late.port},")
        with closing(open_redis(url)) as client:
            # On a busy machine the Sentinels may have elected another one since.
            deadline = time.monotonic() + PATIENCE
            while (port := _port_of(client)) != sentinels.primary().port:
                assert port != alone.port
                assert time.monotonic() < deadline
            sentinels.wait_for_replicas()


def _port_of(client: redis.Redis) -> int:
    """Return the port of the server that answers; just after an election a Sentinel may take the primary for down."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return int(client.info("server")["tcp_port"])
        except redis.ConnectionError:  # noqa: PERF203 - it is tried again
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.extended
def test_a_service_that_no_sentinel_knows_is_told(
    elsewhere: str, sentinels: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names it, and the Sentinels."""
    monkeypatch.setattr("kafkabus._sync.redis.connection.REACHED_WITHIN", 0.0)
    unknown = elsewhere.replace("/ledgers/", "/unknown/")
    with ServiceBusAdministrationClient.from_connection_string(unknown) as administration:
        with pytest.raises(ServiceBusCommunicationError, match=r"redis\+sentinel://.*No master found for 'unknown'"):
            administration.create_queue("orders")
    assert sentinels.sentinels


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_nothing_is_lost_when_the_primary_is_killed_under_load() -> None:
    """Three failovers, as in the campaign. Messages that were settled long before do not come again."""
    with watched_servers() as servers:
        began = time.monotonic()
        count = run(servers, SEED, 3, victims=["failover"])
        assert count.fine, str(count)
        assert count.sent > 1000, f"{count} in {time.monotonic() - began:.0f} s"
