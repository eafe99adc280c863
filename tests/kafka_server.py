"""A Kafka broker of a test's own that asks for a password and grants rights, with an open listener for administrators."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from typing_extensions import override

from kafkabus.embedded.broker import Broker
from kafkabus.embedded.children import spawn
from kafkabus.embedded.class_archive import ClassArchive
from kafkabus.embedded.cluster import Addresses
from kafkabus.embedded.java import java_for_kafka
from kafkabus.embedded.kafka_jars import installed_jars
from kafkabus.embedded.ports import HOST, ReservedPort

PATIENCE = 120.0
USER, PASSWORD = "app", "secret"
"""The only user that has a password."""
_JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


@dataclass(frozen=True)
class GuardedBroker(Broker):
    """A broker with two listeners: one gives all clients all rights, the other serves users with SASL/PLAIN and ACLs.

    Attributes:
        sasl_port: Port of the latter.
    """

    sasl_port: int = 0

    @override
    def _settings(self) -> dict[str, object]:
        settings, door = super()._settings(), f",SASL_PLAINTEXT://{HOST}:{self.sasl_port}"
        return settings | {
            "listeners": f"{settings['listeners']}{door}",
            "advertised.listeners": f"{settings['advertised.listeners']}{door}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


@dataclass(frozen=True)
class Guarded:
    """The addresses of the broker.

    Attributes:
        open: Address of the listener that gives all clients all rights.
        sasl: Address of the other one.
    """

    open: str
    sasl: str


@contextmanager
def guarded(folder: Path) -> Generator[Guarded]:
    """Run a broker on an empty folder; Kafka's jars are there already."""
    jars, java, reserved = installed_jars(), java_for_kafka(), ReservedPort()
    assert jars is not None
    addresses = Addresses(folder, 1)
    log = folder / "broker.log"
    place = folder / "broker"
    broker = GuardedBroker(
        1, addresses.cluster, place, log, java, jars, ClassArchive(java, jars), sasl_port=reserved.number
    )
    broker.prepare()
    subprocess.run(broker.format_command(), cwd=place, check=True, capture_output=True)
    process = spawn(broker.command(), place, folder / "broker.out")
    try:
        _wait_until_it_serves(addresses.cluster.bootstrap_servers, process, folder / "broker.out")
        yield Guarded(addresses.cluster.bootstrap_servers, f"{HOST}:{reserved.number}")
    finally:
        process.terminate()
        process.wait(PATIENCE)
        addresses.release()
        reserved.release()


def _wait_until_it_serves(servers: str, process: subprocess.Popen[bytes], output: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if admin.list_topics("__nothing", timeout=1).brokers:
                return
        except KafkaException:
            pass
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
