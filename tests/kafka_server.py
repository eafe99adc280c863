"""A Kafka broker of a test's own that authenticates its users and grants rights, with an open listener for administrators."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from typing_extensions import override

from kafkabus.embedded.broker import Broker
from kafkabus.embedded.children import spawn
from kafkabus.embedded.class_archive import ClassArchive
from kafkabus.embedded.cluster import Addresses
from kafkabus.embedded.java import java_for_kafka
from kafkabus.embedded.kafka_jars import installed_jars
from kafkabus.embedded.ports import HOST, ReservedPort
from tests.certificates import Authority
from tests.kafka_log import KAFKA_LOG
from tests.servers import scratch_folder

PATIENCE = 120.0
USER, PASSWORD = "app", "secret"
"""A user and the password of all users."""
USERS = (USER, "administrator", "sender", "receiver", "upkeep", "stranger")
"""The users that have a password for SASL/PLAIN."""
_MODULES = "org.apache.kafka.common.security"
_PLAIN = (
    f"{_MODULES}.plain.PlainLoginModule required {' '.join(f'user_{user}={PASSWORD!r}' for user in USERS)};".replace(
        "'", '"'
    )
)
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
# Kafka's own checker of tokens without signatures, which is there for tests.
_TOKENS = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
_DOORS = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "TLS": "SASL_SSL", "MUTUAL": "SSL"}
"""The listeners that ask who comes, and their protocols."""


@dataclass(frozen=True)
class GuardedBroker(Broker):
    """A broker with an open listener that gives all clients all rights, and others, which serve users with ACLs.

    Attributes:
        doors: Ports of the others, by name.
        authority: Signs the broker's certificate and those of clients.
    """

    doors: Mapping[str, int] = field(default_factory=dict[str, int])
    authority: Authority | None = None

    @override
    def _settings(self) -> dict[str, object]:
        assert self.authority is not None
        settings = super()._settings()
        doors = "".join(f",{name}://{HOST}:{port}" for name, port in self.doors.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in _DOORS.items())
        return settings | {
            "listeners": f"{settings['listeners']}{doors}",
            "advertised.listeners": f"{settings['advertised.listeners']}{doors}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']}{protocols}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _PLAIN,
            "listener.name.tls.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.tls.plain.sasl.jaas.config": _PLAIN,
            "listener.name.tls.scram-sha-256.sasl.jaas.config": _SCRAM,
            "listener.name.tls.scram-sha-512.sasl.jaas.config": _SCRAM,
            "listener.name.tls.oauthbearer.sasl.jaas.config": _TOKENS,
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.certify("broker").both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


@dataclass(frozen=True)
class Guarded:
    """The addresses of the broker.

    Attributes:
        open: Address of the listener that gives all clients all rights.
        sasl: Address of the listener with passwords, without TLS.
        tls: Address of the listener with TLS, and with passwords or tokens.
        mutual: Address of the listener with TLS and certificates of clients.
        authority: Signs the broker's certificate and those of clients.
    """

    open: str
    sasl: str
    tls: str
    mutual: str
    authority: Authority


@contextmanager
def guarded(folder: Path) -> Generator[Guarded]:
    """Run a broker on an empty folder; Kafka's jars are there already."""
    jars, java, reserved = installed_jars(), java_for_kafka(), {name: ReservedPort() for name in _DOORS}
    assert jars is not None
    addresses = Addresses(folder, 1)
    log = folder / "broker.log"
    place = folder / "broker"
    authority = Authority(folder)
    broker = GuardedBroker(
        1,
        addresses.cluster,
        place,
        log,
        java,
        jars,
        ClassArchive(java, jars),
        doors={name: port.number for name, port in reserved.items()},
        authority=authority,
    )
    broker.prepare()
    subprocess.run(broker.format_command(), cwd=place, check=True, capture_output=True)
    process = spawn(broker.command(), place, folder / "broker.out")
    try:
        _wait_until_it_serves(addresses.cluster.bootstrap_servers, process, folder / "broker.out")
        sasl, tls, mutual = (f"{HOST}:{port.number}" for port in reserved.values())
        yield Guarded(addresses.cluster.bootstrap_servers, sasl, tls, mutual, authority)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        addresses.release()
        for port in reserved.values():
            port.release()


def _wait_until_it_serves(servers: str, process: subprocess.Popen[bytes], output: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0}, logger=KAFKA_LOG)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if admin.list_topics("__nothing", timeout=1).brokers:
                return
        except KafkaException:
            pass
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()


@contextmanager
def serving_a_user() -> Generator[Guarded]:
    """Run a broker whose first user may do everything, also with passwords for SCRAM; the others may do nothing."""
    folder = scratch_folder()
    try:
        with guarded(folder) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.open}, logger=KAFKA_LOG)
            allow_everything(admin)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                password = ScramCredentialInfo(mechanism, 4096)
                altered = admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, password, PASSWORD.encode())]
                )
                altered[USER].result()
            yield kafka
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def allow_everything(admin: AdminClient) -> None:
    """Let the user do everything."""
    everything = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        for kind, name in (
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
            (ResourceType.BROKER, "kafka-cluster"),
            (ResourceType.TRANSACTIONAL_ID, "*"),
        )
    ]
    for added in admin.create_acls(everything).values():
        added.result()
