"""The identity and the addresses of a data folder's cluster, which stay the same from one run to the next."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import NOT_EXPOSED, Exposure, Listener
from kafkabus.embedded.folders import write_private
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus_mapping.connection import format_connection_string
from kafkabus_mapping.secret import Secret
from kafkabus_mapping.version import installed_version

if TYPE_CHECKING:
    from pathlib import Path


REDIS_PASSWORD_VARIABLE = "KAFKABUS_REDIS_PASSWORD"  # noqa: S105 - its name
"""The environment variable with the password of Redis; without it a password is generated when a folder is first used."""

_FILE = "cluster.json"
_FORMAT = 1
"""The format of the data folder: of its files, and of their arrangement."""
_PASSWORD = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class EmbeddedCluster:
    """Identity and addresses of the servers of one data folder.

    Attributes:
        cluster_id: Kafka's cluster id, fixed when the folder is first used.
        broker_ports: Port of each broker for clients; the broker's id is its position, from 1.
        controller_ports: Port of each broker's controller.
        redis_port: Port of Redis.
        redis_password: Password of Redis, generated when the folder is first used.
    """

    cluster_id: str
    broker_ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    redis_port: int
    redis_password: Secret

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's addresses, in the format for clients."""
        return ",".join(f"{HOST}:{port}" for port in self.broker_ports)

    @property
    def redis_url(self) -> str:
        """The URL of Redis with its password."""
        return self._redis_url(HOST)

    def connection_string(self, namespace: str, listener: Listener | None = None) -> str:
        """Return the connection string of a namespace.

        Args:
            namespace: The namespace's name.
            listener: The listener that its clients connect to; None if they run on this machine.

        Returns:
            An Azure connection string with the addresses of Kafka and Redis added.
        """
        servers, redis_url = self.bootstrap_servers, self.redis_url
        if listener is not None:
            ports = range(listener.advertised_port, listener.advertised_port + len(self.broker_ports))
            servers = ",".join(f"{listener.host}:{port}" for port in ports)
            redis_url = self._redis_url(listener.host)
        return format_connection_string(
            {
                "Endpoint": f"sb://{namespace}.localhost/",
                "SharedAccessKeyName": "RootManageSharedAccessKey",
                "SharedAccessKey": "embedded",
                "KafkaBootstrapServers": servers,
                "Redis": redis_url,
            }
        )

    def _redis_url(self, host: str) -> str:
        return f"redis://:{quote(self.redis_password.reveal(), safe='')}@{host}:{self.redis_port}/0"


class Addresses:
    """The ports of a cluster, reserved while it runs.

    Args:
        data: The data folder. Its earlier ports are used again if they are free.
        brokers: The number of brokers.
        exposure: The ports for clients elsewhere; that of Redis takes the place of an earlier one.

    Raises:
        EmbeddedRuntimeError: The folder holds a cluster with another number of brokers, or of a later format; a port for
            clients elsewhere is taken, or the password of Redis is malformed.
    """

    def __init__(self, data: Path, brokers: int, exposure: Exposure = NOT_EXPOSED) -> None:
        before = _load(data)
        if before is not None and len(before.broker_ports) != brokers:
            raise EmbeddedRuntimeError(
                f"{data} holds a cluster of {len(before.broker_ports)} broker(s), not of {brokers}."
                f" Start it with brokers={len(before.broker_ports)}, or use another data folder."
            )
        password = _given_password() or (before.redis_password if before else _new_password())
        exposure.check_apart(brokers)
        exposure.check_free(brokers)
        wanted = _ports(before) if before else [None] * (2 * brokers + 1)
        self._ports = [ReservedPort(port) for port in wanted]
        numbers = [port.number for port in self._ports]
        if exposure.redis_port is not None:
            self._ports.pop().release()
            numbers[-1] = exposure.redis_port
        self.cluster = EmbeddedCluster(
            before.cluster_id if before else _new_cluster_id(),
            tuple(numbers[:brokers]),
            tuple(numbers[brokers:-1]),
            numbers[-1],
            password,
        )
        _save(data, self.cluster)

    def release(self) -> None:
        """Release the ports to other programs."""
        for port in self._ports:
            port.release()


def broker_names(brokers: int) -> list[str]:
    """Return the names of the brokers among the runtime's processes.

    Args:
        brokers: The number of brokers.

    Returns:
        The names, in the order of the brokers' ids, which start at 1.
    """
    return [f"broker-{number}" for number in range(1, brokers + 1)]


def _ports(cluster: EmbeddedCluster) -> list[int]:
    return [*cluster.broker_ports, *cluster.controller_ports, cluster.redis_port]


def _new_cluster_id() -> str:
    """Generate an id as Kafka does, without a leading dash, which would be read as an option."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _new_password() -> Secret:
    return Secret(secrets.token_urlsafe(24))


def _given_password() -> Secret | None:
    """Return the password that the environment gives, or None."""
    given = os.environ.get(REDIS_PASSWORD_VARIABLE)
    if given and not _PASSWORD.fullmatch(given):
        raise EmbeddedRuntimeError(
            f"{REDIS_PASSWORD_VARIABLE} has characters that a password of Redis may not have: use visible ASCII characters, "
            "no blanks."
        )
    return Secret(given) if given else None


def _load(data: Path) -> EmbeddedCluster | None:
    file = data / _FILE
    try:
        stored = json.loads(file.read_text())
        if stored.get("format", _FORMAT) != _FORMAT:
            raise EmbeddedRuntimeError(
                f"{data} is in format {stored['format']} of a later kafkabus; this kafkabus {installed_version()} uses folders "
                f"of format {_FORMAT}. Upgrade it, or use another data folder."
            )
        return EmbeddedCluster(
            str(stored["cluster_id"]),
            tuple(int(port) for port in stored["broker_ports"]),
            tuple(int(port) for port in stored["controller_ports"]),
            int(stored["redis_port"]),
            # The folder was first used before Redis had a password.
            Secret(stored["redis_password"]) if "redis_password" in stored else _new_password(),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedRuntimeError(f"{file} is damaged ({error!r}). Restore it, or use another data folder.") from error


def _save(data: Path, cluster: EmbeddedCluster) -> None:
    stored = {"format": _FORMAT, **vars(cluster), "redis_password": cluster.redis_password.reveal()}
    write_private(data / _FILE, json.dumps(stored, indent=1))
