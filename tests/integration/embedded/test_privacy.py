"""Other users of the machine learn nothing of an embedded namespace, and clients of its Redis have few rights."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis
from redis.exceptions import AuthenticationError, ResponseError

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.redis.connection import RedisConnection
from kafkabus.embedded import EmbeddedRuntime, EmbeddedRuntimeError, up
from kafkabus.embedded.cluster import Addresses
from kafkabus.embedded.folders import make_private, write_private
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import parse_parts
from tests.integration.embedded.serving import kill, redis_call, wait_until


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRuntime]:
    """One runtime for the tests of this module, in an existing folder that others could read; its start takes seconds."""
    data = tmp_path_factory.mktemp("privacy") / "data"
    data.mkdir()
    data.chmod(0o755)
    before = os.umask(0o022)
    try:
        with EmbeddedRuntime(data) as started:
            yield started
    finally:
        os.umask(before)


@pytest.fixture
def server(runtime: EmbeddedRuntime) -> Iterator[redis.Redis]:
    """The namespace's Redis, with the password of the connection string."""
    with redis.Redis.from_url(runtime.redis_url, decode_responses=True) as client:
        yield client


def password_of(runtime: EmbeddedRuntime) -> str:
    """Return the password of the namespace's Redis."""
    return urlsplit(runtime.redis_url).password or ""


def test_redis_lets_nobody_in_without_its_password(runtime: EmbeddedRuntime) -> None:
    """The password is long, is part of the connection string, and differs for each data folder."""
    assert len(password_of(runtime)) >= 32
    assert parse_parts(runtime.connection_string)["Redis"] == runtime.redis_url
    for credentials in ("", ":wrong@", "default:@"):
        url = runtime.redis_url.replace(f":{password_of(runtime)}@", credentials)
        with redis.Redis.from_url(url) as intruder, pytest.raises(AuthenticationError):
            intruder.ping()


def test_another_folder_has_another_password(tmp_path: Path) -> None:
    """A folder from before there were passwords gets one, which stays."""
    passwords: list[str] = []
    for name in ("one", "another", "another"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        addresses = Addresses(folder, 1)
        addresses.release()
        passwords.append(addresses.cluster.redis_password.reveal())
    assert passwords[0] != passwords[1] == passwords[2]

    file = tmp_path / "one" / "cluster.json"
    old = {key: value for key, value in json.loads(file.read_text()).items() if key != "redis_password"}
    file.write_text(json.dumps(old))
    for _ in range(2):
        addresses = Addresses(tmp_path / "one", 1)
        addresses.release()
        passwords.append(addresses.cluster.redis_password.reveal())
    assert passwords[3] == passwords[4] not in passwords[:3]


@pytest.mark.parametrize(
    "command",
    [
        "CONFIG SET dir /tmp",
        "CONFIG SET dbfilename authorized_keys",
        "CONFIG SET maxmemory 0",
        "CONFIG REWRITE",
        "MODULE LOAD /tmp/module.so",
        "DEBUG SLEEP 0",
        "SLAVEOF NO ONE",
        "REPLICAOF NO ONE",
        "PSYNC ? -1",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "ACL SETUSER default +@all",
        "MONITOR",
        "SHUTDOWN NOSAVE",
    ],
)
def test_clients_may_not_command_the_server(server: redis.Redis, command: str) -> None:
    """That holds even with the password: such commands write files, load programs, hand out the data, or end Redis.

    Since Redis 7, some of them are refused to all users.
    """
    with pytest.raises(ResponseError, match=r"no permissions|not allowed"):
        server.execute_command(*command.split())


def test_its_settings_can_be_read(
    runtime: EmbeddedRuntime, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients read them before they trust a Redis, and find no fault."""
    assert server.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert server.config_get("save") == {"save": ""}
    assert server.config_get("appendonly") == {"appendonly": "yes"}
    assert server.config_get("requirepass")["requirepass"] in {"", None}
    assert RedisConnection(server, address="redis://address", namespace="n").call(server.ping)
    assert caplog.text == ""


def test_files_are_for_their_owner_alone(runtime: EmbeddedRuntime) -> None:
    """Only the owner may read the folders and all that is in them: states, settings, data, logs, also later ones."""
    wait_until(lambda: "upkeep" in runtime.processes, "all of it runs")
    found = [runtime.data, *runtime.data.rglob("*")]
    assert {
        "state.json",
        "cluster.json",
        "lock",
        "redis.conf",
        "server.properties",
        "supervisor.log",
        "upkeep.out",
    } <= {path.name for path in found}
    assert [str(path) for path in found if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_no_process_has_a_connection_string_among_its_arguments(runtime: EmbeddedRuntime) -> None:
    """Every user of the machine sees those."""
    supervisor = psutil.Process(runtime.pid)
    arguments = [argument for one in [supervisor, *supervisor.children(recursive=True)] for argument in one.cmdline()]
    assert "kafkabus.upkeep" in arguments
    secrets = ("SharedAccessKey", "redis://", password_of(runtime))
    assert [argument for argument in arguments if any(secret in argument for secret in secrets)] == []


@pytest.mark.faults
def test_only_two_files_hold_the_password(runtime: EmbeddedRuntime) -> None:
    """Logs, and the stores of Redis and Kafka, do not hold it after a send and a kill of Redis. The test takes seconds."""
    with (
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
    ):
        administration.create_queue("orders")
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("an order"))
        wait_until(lambda: b"upkeep_started" in (runtime.data / "logs" / "upkeep.out").read_bytes(), "upkeep logs")
        kill(runtime.processes["redis"])
        wait_until(lambda: redis_call(runtime.redis_url, "PING") == b"+PONG", "Redis answers")
        (message,) = client.get_queue_receiver("orders").receive_messages(1, max_wait_time=60)
        assert str(message) == "an order"
    password = password_of(runtime).encode()
    files = [path for path in runtime.data.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files if password in path.read_bytes()) == ["cluster.json", "state.json"]


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user could read the data in it."""

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(EmbeddedRuntimeError, match=r"belongs to another user.*Use another data folder"):
        up(tmp_path)
    with pytest.raises(EmbeddedRuntimeError, match="belongs to another user"):
        make_private(tmp_path)


def test_a_folder_in_common_is_refused(tmp_path: Path) -> None:
    """The folder of temporary files is one: other programs need it as it is."""
    tmp_path.chmod(0o1777)
    with pytest.raises(EmbeddedRuntimeError, match=f"that users share.*Use a folder in it: {tmp_path}/kafkabus"):
        up(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_a_draft_that_others_could_read_is_not_used(tmp_path: Path) -> None:
    """A process that was killed left it."""
    draft = tmp_path / "file.new"
    draft.touch(0o644)
    write_private(tmp_path / "file", "text")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert not draft.exists()
