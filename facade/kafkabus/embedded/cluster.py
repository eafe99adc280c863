"""The identity and the addresses of a data folder's cluster, which stay the same from one run to the next."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.folders import write_private
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus_mapping.connection import format_connection_string
from kafkabus_mapping.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "cluster.json"


@dataclass(frozen=True)
class Cluster:
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
        return f"redis://:{self.redis_password.reveal()}@{HOST}:{self.redis_port}/0"

    def connection_string(self, namespace: str) -> str:
        """Return the connection string of a namespace.

        Args:
            namespace: The namespace's name.

        Returns:
            An Azure connection string with the addresses of Kafka and Redis added.
        """
        return format_connection_string(
            {
                "Endpoint": f"sb://{namespace}.localhost/",
                "SharedAccessKeyName": "RootManageSharedAccessKey",
                "SharedAccessKey": "embedded",
                "KafkaBootstrapServers": self.bootstrap_servers,
                "Redis": self.redis_url,
            }
        )


class Addresses:
    """The ports of a cluster, reserved while it runs.

    Args:
        data: The data folder. Its earlier ports are used again if they are free.
        brokers: The number of brokers.

    Raises:
        EmbeddedRuntimeError: The folder holds a cluster with another number of brokers.
    """

    def __init__(self, data: Path, brokers: int) -> None:
        before = _load(data)
        if before is not None and len(before.broker_ports) != brokers:
            raise EmbeddedRuntimeError(
                f"{data} holds a cluster of {len(before.broker_ports)} broker(s), not of {brokers}."
                f" Start it with brokers={len(before.broker_ports)}, or use another data folder."
            )
        wanted = _ports(before) if before else [None] * (2 * brokers + 1)
        self._ports = [ReservedPort(port) for port in wanted]
        numbers = [port.number for port in self._ports]
        self.cluster = Cluster(
            before.cluster_id if before else _new_cluster_id(),
            tuple(numbers[:brokers]),
            tuple(numbers[brokers:-1]),
            numbers[-1],
            before.redis_password if before else _new_password(),
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


def _ports(cluster: Cluster) -> list[int]:
    return [*cluster.broker_ports, *cluster.controller_ports, cluster.redis_port]


def _new_cluster_id() -> str:
    """Generate an id as Kafka does, without a leading dash, which would be read as an option."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _new_password() -> Secret:
    """Generate a password that needs no escaping in a URL."""
    return Secret(secrets.token_urlsafe(24))


def _load(data: Path) -> Cluster | None:
    file = data / _FILE
    try:
        stored = json.loads(file.read_text())
        return Cluster(
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


def _save(data: Path, cluster: Cluster) -> None:
    stored = {**vars(cluster), "redis_password": cluster.redis_password.reveal()}
    write_private(data / _FILE, json.dumps(stored, indent=1))
