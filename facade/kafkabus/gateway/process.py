"""A process that is a gateway, or one of several that share their ports: what it listens on, its signals and its end."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafkabus._runtime.arenas import limit_arenas
from kafkabus._runtime.ending import stop_on_signals
from kafkabus._runtime.garbage import collect_rarely
from kafkabus.gateway.server.gateway import Gateway, GatewaySettings

LOGGER = logging.getLogger("kafkabus.gateway")

END_WITHIN = 8.0
"""After how many seconds at most a process ends that was told to, also while clients, Kafka or Redis do not answer."""
LATE = "clients, Kafka or Redis did not answer; locks that clients held end by themselves"


@dataclass(frozen=True)
class Ports:
    """What a gateway listens on.

    Attributes:
        host: The address or name; empty for all addresses.
        amqp: The port for AMQP without TLS; None: there is none.
        tls: The port for AMQP with TLS; None: there is none.
        certificate: The file with the certificate and those that it was signed with; None: there is no TLS.
        key: The file with its key; None: the same file has it.
        shared: Whether other processes listen on the same ports.
    """

    host: str
    amqp: int | None
    tls: int | None
    certificate: Path | None = None
    key: Path | None = None
    shared: bool = False

    def context(self) -> ssl.SSLContext | None:
        """Return what encrypts connections; None if there is no certificate.

        Raises:
            OSError: A file cannot be read, or holds no certificate or no key.
        """
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            files = " and ".join(str(one) for one in (self.certificate, self.key) if one is not None)
            raise OSError(
                f"{files}: no certificate with its key, in PEM: {error.reason}; 'kafkabus certificate' makes one"
            ) from error
        return context


@dataclass(frozen=True)
class Bound:
    """The ports that a gateway listens on.

    Attributes:
        amqp: The port for AMQP without TLS; None: there is none.
        tls: The port for AMQP with TLS; None: there is none.
    """

    amqp: int | None
    tls: int | None


async def serve(
    connection_string: str, ports: Ports, settings: GatewaySettings, on_ready: Callable[[Bound], None] | None = None
) -> None:
    """Be a gateway until SIGINT or SIGTERM; then close the clients' connections, and end.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.
        ports: What to listen on.
        settings: The gateway's settings.
        on_ready: Called with the ports once they are listened on.

    Raises:
        OSError: A port cannot be listened on, or a certificate cannot be read.
        ServiceBusError: Kafka or Redis cannot be used.
    """
    limit_arenas()
    stop = stop_on_signals(LOGGER, "gateway", within=END_WITHIN, late=LATE)
    async with Gateway(connection_string, settings) as gateway:
        bound = await listen(gateway, ports)
        collect_rarely()
        LOGGER.info("gateway_started host=%s amqp=%s tls=%s", ports.host or "*", bound.amqp, bound.tls)
        if on_ready is not None:
            on_ready(bound)
        await stop.wait()
    LOGGER.info("gateway_stopped")


async def listen(gateway: Gateway, ports: Ports) -> Bound:
    """Have a gateway listen; return the ports.

    Raises:
        OSError: A port cannot be listened on, or a certificate cannot be read.
    """
    tls = ports.context()
    amqp = encrypted = None
    if ports.amqp is not None:
        amqp = await _listen(gateway, ports, ports.amqp, None)
    if tls is not None and ports.tls is not None:
        encrypted = await _listen(gateway, ports, ports.tls, tls)
    return Bound(amqp, encrypted)


async def _listen(gateway: Gateway, ports: Ports, port: int, tls: ssl.SSLContext | None) -> int:
    try:
        return await gateway.listen(ports.host or None, port, tls, share_port=ports.shared)
    except OSError as error:
        raise OSError(
            f"{ports.host}:{port}: cannot listen there: {error.strerror or error}; choose another address or port"
        ) from error
