"""A namespace in a container, for tests: built on testcontainers (``pip install "kafkabus[containers]"``)."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from typing_extensions import Self

from kafkabus.gateway.announcement import AMQP_PORT, HTTP_PORT, Bound, connection_string
from kafkabus_mapping.connection import format_connection_string

try:
    from docker.errors import APIError
    from testcontainers.core.config import ConnectionMode
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'Containers for tests need {missing.name}. Run: pip install "kafkabus[containers]"', name=missing.name
    ) from missing

IMAGE: Final = "kafkabus-emulator"
"""The image that is run by default, under the name that the README gives it."""
START_TIMEOUT_S: Final = 120
"""How long a container may take to start, in seconds."""
_KAFKA_INSIDE, _REDIS_INSIDE = 29092, 6379
_POLL_S = 0.2
_LOG_SHOWN = 2_000
"""How many of the last characters of a container's output an error shows."""
_ENTITIES_INSIDE = "/ServiceBus_Emulator/ConfigFiles/Config.json"
_POLICIES_INSIDE = "/policies"


class KafkabusContainer(DockerContainer):
    """A separate namespace in a container, with Kafka, Redis, upkeep, and a gateway for Azure's SDKs.

    Args:
        image: An image made from docker/Dockerfile's target ``kafkabus-emulator``.
        entities: JSON file with the entities to create at the start; see ``kafkabus namespace apply``.
        namespace: The namespace's name in the connection string.
        policies: File with the policies that the gateway checks keys against; by default, any key will do.
        **settings: Arguments of testcontainers' ``DockerContainer``. With ``network_mode="host"`` the namespace listens on
            the host's own ports.

    Examples:
        >>> from kafkabus.testing.containers import KafkabusContainer
        >>> with KafkabusContainer() as container:  # doctest: +SKIP
        ...     client = ServiceBusClient.from_connection_string(container.connection_string)
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        entities: Path | str | None = None,
        namespace: str = "kafkabus",
        policies: Path | str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(image, **settings)
        self._namespace = namespace
        self._password = secrets.token_urlsafe(16)
        self._shares_network = settings.get("network_mode") == "host"
        self._ports: tuple[int, ...] | None = None
        if entities is not None:
            self.with_volume_mapping(str(Path(entities).absolute()), _ENTITIES_INSIDE, "ro")
        self._checks_keys = policies is not None
        if policies is not None:
            inside = _POLICIES_INSIDE + Path(policies).suffix
            self.with_volume_mapping(str(Path(policies).absolute()), inside, "ro")
            self.with_env("KAFKABUS_POLICIES", inside)
        self.waiting_for(_Healthy())

    def start(self) -> Self:
        """Start the container, and return when the namespace serves.

        Returns:
            This container.

        Raises:
            TimeoutError: The namespace does not serve in time.
            RuntimeError: The container ended; the error shows its last output.
            docker.errors.DockerException: Docker cannot be reached, or has no such image.
        """
        # Kafka advertises the port on the host to its clients, so it must be known before.
        self._ports = kafka, redis, amqp, http = _free_ports()
        host = self.get_container_host_ip()
        inside = redis if self._shares_network else _REDIS_INSIDE
        # Clients in other containers of the network connect to the first alias of this one.
        alias = next(iter(self._network_aliases or ()), None)
        listeners = [f"{kafka}={host}", *([f"{_KAFKA_INSIDE}={alias}"] if alias else [])]
        self.with_envs(
            KAFKABUS_LISTENER=" ".join(listeners),
            KAFKABUS_REDIS_PORT=str(inside),
            KAFKABUS_REDIS_PASSWORD=self._password,
            KAFKABUS_AMQP_PORT=str(amqp if self._shares_network else AMQP_PORT),
            KAFKABUS_HTTP_PORT=str(http if self._shares_network else HTTP_PORT),
        )
        if not self._shares_network:
            self.with_bind_ports(kafka, kafka)
            self.with_bind_ports(inside, redis)
            self.with_bind_ports(AMQP_PORT, amqp)
            self.with_bind_ports(HTTP_PORT, http)
        self.with_command(["--namespace", self._namespace])
        try:
            super().start()
        except BaseException:
            # A with statement that is not entered does not stop what it began.
            self.stop()
            raise
        return self

    def get_container_host_ip(self) -> str:
        """Return the host that clients in this process connect to; it is known before the container starts.

        Raises:
            RuntimeError: This process runs in a container with a separate network, and no host is named.
        """
        client = self.get_docker_client()
        mode = client.get_connection_mode()
        if mode is ConnectionMode.docker_host:
            return client.host()
        if mode is ConnectionMode.gateway_ip:
            bridge: Any = client.client.networks.get("bridge")
            network = bridge.attrs["IPAM"]["Config"][0]
            # A daemon that made the network itself does not name the gateway before its next start.
            return str(network.get("Gateway") or next(ip_network(network["Subnet"]).hosts()))
        raise RuntimeError(
            "this program runs in a container itself, and Kafka needs the name under which it reaches Docker's host: set "
            "TESTCONTAINERS_HOST_OVERRIDE to that name"
        )

    @property
    def connection_string(self) -> str:
        """The namespace's connection string, for clients in this process.

        Raises:
            RuntimeError: The container was not started.
        """
        kafka, redis, *_ = self._started()
        return self._connection_string(self.get_container_host_ip(), kafka, redis)

    @property
    def amqp_connection_string(self) -> str:
        """The connection string for applications with Azure's SDKs, in this process or another one of this machine.

        With policies, it has ``<policy>`` and ``<key>`` in place of their name and key.

        Raises:
            RuntimeError: The container was not started.
        """
        _, _, amqp, http = self._started()
        return connection_string(self.get_container_host_ip(), Bound(amqp, None, http), checked=self._checks_keys)

    @property
    def administration_port(self) -> int:
        """The port of the gateway's administration over HTTP.

        Raises:
            RuntimeError: The container was not started.
        """
        return self._started()[3]

    @property
    def network_connection_string(self) -> str:
        """The namespace's connection string, for clients in other containers of the network.

        Raises:
            RuntimeError: The container was not started, or has no alias in a network.
        """
        self._started()
        if not self._network_aliases:
            raise RuntimeError("the container has no alias: call with_network and with_network_aliases before start")
        return self._connection_string(self._network_aliases[0], _KAFKA_INSIDE, _REDIS_INSIDE)

    def _started(self) -> tuple[int, ...]:
        if self._ports is None:
            raise RuntimeError("the container does not run: call start, or use it in a with statement")
        return self._ports

    def _connection_string(self, host: str, kafka: int, redis: int) -> str:
        return format_connection_string(
            {
                "Endpoint": f"sb://{self._namespace}.localhost/",
                "SharedAccessKeyName": "RootManageSharedAccessKey",
                "SharedAccessKey": "container",
                "KafkaBootstrapServers": f"{host}:{kafka}",
                "Redis": f"redis://:{self._password}@{host}:{redis}/0",
            }
        )


class _Healthy(WaitStrategy):
    """Waits until the namespace in a container serves, and notices if the container ends instead."""

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        if not isinstance(container, KafkabusContainer):
            raise TypeError(f"{container!r} is no KafkabusContainer")
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            container.reload()
            if container.status == "exited":
                raise RuntimeError(f"the container ended: {_last_output(container)}")
            if _serves(container):
                return
            time.sleep(_POLL_S)
        raise TimeoutError(f"the container did not serve within {START_TIMEOUT_S} s: {_last_output(container)}")


def _serves(container: KafkabusContainer) -> bool:
    try:
        return container.exec(["kafkabus-emulator", "healthy"]).exit_code == 0
    except APIError:
        # It may have ended since its status was asked for.
        container.reload()
        if container.status == "running":
            raise
        return False


def _last_output(container: KafkabusContainer) -> str:
    return "".join(part.decode(errors="replace") for part in container.get_logs())[-_LOG_SHOWN:]


def _free_ports() -> tuple[int, ...]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        return tuple(server.getsockname()[1] for server in servers)
